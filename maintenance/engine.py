"""The epoch engine: the atomic application of changes.

One engine serves a database; its lock is held for the length of an epoch. An epoch either goes through
whole or is undone whole: programs are linear in the changes, so running them again with the weights'
signs turned restores every sum exactly, wrapped or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.chained_rows import ChainedFastPath, Chains
from sqlfront.maintenance.clocks import Clocks
from sqlfront.maintenance.deferred import DeferredViews, joined
from sqlfront.maintenance.epoch import Applied, Epoch, RowFastPath, WaitingFastPath, is_load
from sqlfront.maintenance.epoch_work import Work
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.program.critical import Uninterrupted, insist
from sqlfront.maintenance.pulled import PulledRelations
from sqlfront.maintenance.relation.bad_rows import absent_row
from sqlfront.maintenance.relation.base_relation import Relation, Rescale
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.maintenance.relation.ingest import Ingest
from sqlfront.maintenance.relation.keyed_rows import Codes, decoded_rows, held_code, index_by, keyed_changes, new_code
from sqlfront.maintenance.relation.waiting import rows_of
from sqlfront.maintenance.snapshot_state import SnapshotState
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.kernels import layout as at

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import TreeNode
    from sqlfront.maintenance.program.machine import Watch
    from sqlfront.maintenance.relation.base_relation import Evaluate


MANY = 4096
"""An epoch of so many rows is large: several threads share it, and a store that consists mostly of its rows is laid out
again in the order of reads."""
_WATCHED = 1 << 16


@dataclass
class Change:
    """Changes of one table: rows in the table's column order and their signed weights (None: all are +1)."""

    rows: pa.Table | pa.RecordBatch
    weights: np.ndarray | None = None


class Engine(SnapshotState):
    """All maintained state of one database, and the epochs that change it.

    `version` changes whenever the state does, committed or not; `epoch` counts committed epochs. An epoch of `many`
    rows is shared out to several threads.
    """

    def __init__(self, evaluate: Evaluate, lock: threading.RLock | None = None, watch: Watch | None = None) -> None:
        super().__init__(evaluate, lock, watch)
        self.deferred = DeferredViews(self)
        self.pulled = PulledRelations(self)
        self.clocks = Clocks(self)
        self.many = MANY
        self.gates: dict[str, RowFastPath] = {}
        self.ingests: dict[str, Ingest] = {}

    # Epochs --------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of the last committed epoch."""
        return self.machine.epochs

    def begin_after(self, epoch: int) -> None:
        """Number the epochs from the one after this."""
        self.machine.epochs = epoch
        self._log.pass_over(epoch)

    def last_work(self) -> list[Work]:
        """Where the time of the last epochs went, oldest first."""
        with self.lock:
            return self._log.last(self.epoch)

    def apply(self, changes: Mapping[str, Change]) -> Applied:
        """Apply changes to several tables at once, to all views; to be committed or undone by the caller.

        Raises IntegrityError when a row would be there a negative number of times, DataError when a value does
        not fit its column. The state is then as before.
        """
        with self.changing():
            started = time.perf_counter()
            return self._apply(self._encode_all(changes), started)

    def apply_batches(self, batches: Mapping[str, Any], gates: Mapping[str, RowFastPath]) -> Epoch | None:
        """A committed epoch of record batches by the shortest way; None (and nothing changed) if one needs the long.

        `gates` are those of the batches' relations, by the names that `batches` has for them.
        """
        started = time.perf_counter()
        with self.changing():
            encoded, used = [], []  # The buffers of these hold the rows; widening after an overflow makes new ones.
            for name, batch in batches.items():
                gate = gates.get(name)
                ingest = self.ingests.get(gate.relation.name) if gate is not None else None
                packed = ingest.pack(batch) if ingest is not None else None
                if packed is None:
                    return None
                encoded.append(packed)
                used.append(ingest)
            if len({id(item.relation) for item in encoded}) < len(encoded):
                return None
            return self._commit_whole(encoded, started)

    def apply_row(self, name: str, row: Sequence[Any], weight: int = 1) -> int:
        """A committed epoch of one row, without Arrow, by the general way (see RowGate); returns the epoch's number."""
        return self.apply_rows(name, [row], [weight])

    def apply_rows(self, name: str, rows: Sequence[Sequence[Any]], weights: Sequence[int]) -> int:
        """A committed epoch of a few rows, without Arrow; returns its number."""
        with self.changing():
            started = time.perf_counter()
            for row, weight in zip(rows, weights, strict=True):
                self.relations[name].check_row(row, weight)
            return self._commit_whole(self._encode_few(name, rows, weights), started).number

    def change_by_key(self, name: str, key: Sequence[str], codes: Codes, changed: Codes | None) -> int | None:
        """A committed epoch in which the rows of a table with these codes, those of `key` among them, get the changed
        ones, or go (None); how many they are, or None, with nothing done, if Arrow is needed."""
        with self.changing():
            started, relation = time.perf_counter(), self.relations[name]
            if not self.index_rows(name, key):
                return None
            count, rows = keyed_changes(relation, key, codes, changed)
            if rows and self.kept.pinned:
                change = Change(decoded_rows(relation, [row for row, _ in rows]), np.array([one for _, one in rows]))
                self._commit_whole([self._encode(name, change)], started)
                return count
            words = [relation.encode_row(partial(held_code, row), weight) for row, weight in rows]
            data = [found for found in words if found is not None]
            if len(data) < len(words):
                return None
            if data:
                self._commit_whole([self._encoded(relation, np.concatenate(data))], started)
            return count

    def index_rows(self, name: str, key: Sequence[str]) -> bool:
        """Index the rows of a table by columns, if they are not; False if they cannot be found by the codes of their
        values. No epoch may be open."""
        relation = self.relations[name]
        if not relation.computable or name in self.deferred.copied:
            return False
        if index_by(self.machine, relation, key):
            self._assemble((), [name])
        return True

    def apply_few(self, name: str, rows: Sequence[Sequence[Any]], weights: Sequence[int]) -> Applied:
        """As `apply`, of a few rows of one table, without Arrow."""
        with self.changing():
            started = time.perf_counter()
            return self._apply(self._encode_few(name, rows, weights), started)

    def undo(self, applied: Applied) -> None:
        """Take an applied epoch back."""
        with self.lock:
            # Pulling since then may have widened values.
            self.undo_encoded([self._with_programs(item) for item in applied.encoded])
            self._log.pass_over(self.epoch)

    def undo_whole(self, applied: Applied) -> None:
        """Take an applied epoch back exactly once, whenever Ctrl-C arrives; it is raised afterwards."""
        insist(partial(self.undo, applied))

    def commit(self, applied: Applied, started: float | None = None) -> Epoch:
        """Make an applied epoch the committed state. `started` (time.perf_counter) is when the epoch began."""
        with self.lock:
            self.machine.epochs += 1
            self._settle(applied, started if started is not None else applied.started)
            self.look_after(sum(item.rows for item in applied.encoded))
            return Epoch(applied)

    def _settle(self, applied: Applied, started: float, epochs: int = 1) -> None:
        """Tell what an epoch that stays has changed to whom it concerns."""
        if self.subscribers.tell(self.epoch, applied.encoded, applied.changes, applied.work.output):
            applied.work.after = self._log.counts()
        applied.decode()
        self.kept.add(applied.encoded)
        self.deferred.wait(applied.waiting)
        for item in applied.encoded:
            item.relation.passed = True
            item.relation.loaded += item.rows * is_load(item.rows, item.relation.changes)
            item.relation.changes += item.rows
        self._log.end(applied.work, self.epoch, time.perf_counter() - started, epochs)
        self.deferred.bound([copy for copy, _ in applied.waiting])
        self.pulled.bound()
        if any(item.relation.has_dictionaries for item in applied.encoded):
            self.sweep_dictionaries()

    def _commit_whole(self, encoded: list[Encoded], began: float) -> Epoch:
        """Apply and commit; Ctrl-C undoes the epoch."""
        with Uninterrupted() as signals:
            applied = self._apply(encoded, began)
            try:
                signals.check()
            except BaseException:
                self.undo(applied)
                raise
            return self.commit(applied)

    def _apply(self, encoded: list[Encoded], began: float) -> Applied:
        """`_apply_all`, watched if it may take long."""
        if (rows := sum(item.rows for item in encoded)) < _WATCHED:
            return self._apply_all(encoded, began)
        with self.machine.watch("applying changes", rows):
            return self._apply_all(encoded, began)

    def _apply_all(self, encoded: list[Encoded], began: float) -> Applied:
        """Run an epoch; widen values and run again after an overflow; undo it on any failure."""
        work = self._log.begin(self.machine.epochs)
        work.took("encoding", time.perf_counter() - began)
        for item in encoded:
            item.net()
        while True:
            done: list[Encoded] = []
            try:
                flags, changes = self._run_stages(encoded, done, work)
            except Rescale as needed:
                self.undo_encoded(done)
                self._rescale(needed)
                encoded = [self._with_programs(item) for item in encoded]
                continue
            except BaseException:
                self.undo_encoded(done)
                self._log.pass_over(self.epoch)
                raise
            if flags & at.OVERFLOW == 0:
                break
            self.undo_encoded(done)
            self._widen([item.relation for item in done])
            encoded = [self._with_programs(item) for item in encoded]
        if flags & at.SHRINK:
            self.shrink([item.relation for item in done])
        for item in done:
            if item.rows >= MANY:
                item.lay_out()
        if flags & at.REBALANCE and self.rebalance([item.relation for item in done]):
            done = [self._with_programs(item) for item in done]
        work.after = self._log.counts()
        return self._admitted(Applied(done, began, changes, work, self.deferred.copies(done, at_once=False)))

    def _run_stages(
        self, encoded: list[Encoded], done: list[Encoded], work: Work
    ) -> tuple[int, dict[str, OutputChange]]:
        """Run the changes of tables, then, one after the other, those of nodes that others read.

        `done` collects what has run, for undo, also when this raises. An overflow ends it early.
        """
        self.subscribers.begin()
        waiting, touched = self.subscribers.pushed(), set[str]()
        changes: dict[str, OutputChange] = {}
        stage, flags = encoded + self._copied(encoded), 0
        while stage:
            began = time.perf_counter()
            flags |= self._run_stage(stage, done, changes.values())
            work.ran(stage, time.perf_counter() - began)
            if flags & at.VIOLATION:
                raise absent_row(self.machine, stage)
            touched |= {item.relation.name for item in stage}
            stage = []
            while waiting and not stage and flags & at.OVERFLOW == 0:
                relation, nodes = waiting.pop(0)
                read = {node.name: work.output(node, done) for node in nodes if node.relations & touched}
                changes |= read
                began = time.perf_counter()
                stage = self._encode_together(relation, [change for change in read.values() if len(change)])
                stage += self._copied(stage)
                work.took("encoding", time.perf_counter() - began)
        return flags, changes

    def _run_programs(self, stage: Sequence[Encoded]) -> int:
        """Run the programs of changes, of many rows on several threads; returns the flags."""
        large = self.machine.threads > 1 and sum(item.rows for item in stage) >= self.many
        if large and (shares := self._shares([item.relation.name for item in stage])):
            return self.machine.run_shares([list(map(Encoded.run_by, stage, share)) for share in shares])
        return self.machine.run_epoch(stage)

    def take(self, changes: Mapping[str, tuple[pa.Table, np.ndarray]]) -> None:
        """Apply changes of copies of relations, which are part of no epoch: readers of other views see the same state.

        Raises as `apply` does; the state is then as before.
        """
        started, runs = time.perf_counter(), self.machine.runs
        try:
            applied = self._apply(self._encode_all({name: Change(*rows) for name, rows in changes.items()}), started)
        finally:
            self._rebuilt -= self.machine.runs - runs
        self._settle(applied, started, epochs=0)

    def pull(self, relation: str, nodes: Sequence[TreeNode]) -> None:
        """Bring the changes that wait in nodes into the relation that they feed, which is part of no epoch: readers of
        other views see the same state."""
        started, runs = time.perf_counter(), self.machine.runs
        self._log.begin(self.machine.epochs)
        self._log.pass_over(self.epoch)  # A transaction's own changes, which it will take back, are no step of this.
        with Uninterrupted():
            rows, weights = joined([node.changed_rows() for node in nodes])
            if len(weights):
                try:
                    applied = self._apply(self._encode_all({relation: Change(rows, weights)}), started)
                finally:
                    self._rebuilt -= self.machine.runs - runs
                self._log.end(applied.work, self.epoch, time.perf_counter() - started, epochs=0)
            for node in nodes:
                node.begin()

    def _catch_up(self, relations: Collection[str]) -> None:
        self.pulled.catch_up(relations)

    def sweep_dictionaries(self) -> None:
        """Forget values that nothing refers to, between epochs, if that pays. Groups that wait refer to some."""
        if due := self.dictionaries.due():
            self.pulled.catch_up_all()
            for dictionary in due:
                dictionary.sweep(all_unused=False)

    def undo_encoded(self, encoded: list[Encoded]) -> None:
        """Run an epoch with all signs turned; an interrupt waits until it is done."""
        interrupted: KeyboardInterrupt | None = None
        runs = self.machine.runs
        while self.machine.runs == runs:
            try:
                flags = self.machine.run_epoch(encoded, -1)
                if flags & at.SHRINK:
                    self.shrink([item.relation for item in encoded])
                if flags & at.REBALANCE:
                    self.rebalance([item.relation for item in encoded])
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def rebalance(self, relations: Iterable[Relation]) -> bool:
        """Tell heavy from light values anew where views over these relations ask for it, between epochs; True if the
        programs are new ones."""
        readers = {id(view): view for relation in relations for view in self._readers(relation)}
        balances = [view.balance for view in readers.values() if view.balance is not None]
        widened = [balance for balance in balances if balance.rebalance(self.machine)]
        if widened:
            self._assemble(view for view in readers.values() if view.balance in widened)
        return bool(widened)

    def counters(self, view: MaintainedView) -> int:
        """Elementary steps spent on a view since it was built: slots looked at, list members visited, rows written."""
        return int(self.machine.counters[view.number])

    def steps(self, view: MaintainedView) -> int:
        """Elementary steps of changes of a view and its blocks since it was built; a row computed by DuckDB is one."""
        numbers = [node.number for node in self.nodes_of(view)]
        return int(self.machine.counters[numbers].sum())

    def read_steps(self, view: MaintainedView) -> int:
        """Elementary steps of reads of a view, its blocks and its distinct values since it was built."""
        return sum(part.reads.steps for part in self.parts(view))

    # Inner workings ------------------------------------------------------------------------------

    def _encode_all(self, changes: Mapping[str, Change]) -> list[Encoded]:
        while True:
            try:
                return [self._encode(name, change) for name, change in changes.items()]
            except Rescale as needed:
                self._rescale(needed)

    def _encode_few(self, name: str, rows: Sequence[Sequence[Any]], weights: Sequence[int]) -> list[Encoded]:
        relation = self.relations[name]
        names = [column.name for column in relation.columns]
        data: list[np.ndarray] = []
        for row, weight in zip(rows, weights, strict=True):
            values = dict(zip(names, row, strict=True))
            is_kept = name in self.deferred.copied or self.kept.pinned
            words = None if is_kept else relation.encode_row(partial(new_code, values), weight)
            if words is None:
                return self._encode_all({name: Change(relation.as_batch(rows), np.array(weights, np.int64))})
            data.append(words)
        return [self._encoded(relation, data[0] if len(data) == 1 else np.concatenate(data))]

    def _encode(self, name: str, change: Change) -> Encoded:
        relation = self.relations[name]
        return self._encoded(relation, relation.encode(change.rows, change.weights), change.rows, change.weights)

    def _encode_together(self, name: str, changes: Sequence[OutputChange]) -> list[Encoded]:
        """The changes of views as one of the relation that they feed; nothing if there are none."""
        if not changes:
            return []
        relation = self.relations[name]
        item = self._encoded(relation, np.concatenate([change.encode(relation) for change in changes]))
        if name in self.deferred.copied:
            item.given, item.weights = joined([(change.rows, change.weights) for change in changes])
        item.net()
        return [item]

    def _copied(self, stage: Sequence[Encoded]) -> list[Encoded]:
        """The same changes for the copies of relations whose views are applied in this epoch."""
        found = []
        for copy, item in self.deferred.copies(stage, at_once=True):
            rows, weights = rows_of(item, [column.name for column in copy.columns])
            found.append(self._encoded(copy, copy.encode(rows, weights), rows, weights))
            found[-1].net()
        return found

    def _encoded(
        self,
        relation: Relation,
        data: np.ndarray,
        batch: pa.Table | pa.RecordBatch | None = None,
        weights: np.ndarray | None = None,
    ) -> Encoded:
        programs = self._programs[relation.name]
        return Encoded(relation, programs, int(data.ctypes.data), len(data), data, batch, weights)

    def _with_programs(self, item: Encoded) -> Encoded:
        """The same rows with the relation's present programs."""
        return item.run_by(self._programs[item.relation.name])

    def _make_programs(self, stale: Collection[str]) -> None:
        super()._make_programs(stale)
        renewed = {*stale, *self.deferred.find(self.subscribers.listened()), *self.pulled.find()}
        chains = Chains(self, self._programs)
        for name in chains.above(renewed):
            if name in self.gates:
                self.gates.pop(name).close()
                del self.ingests[name]
            relation = self.relations.get(name)
            if relation is not None:
                told = (view.is_heard and view.name not in self.pulled.nodes for view in self._readers(relation))
                heard = self._is_near or self.deferred.is_heard(name) or any(told)
                waits = name in self.deferred.copied
                fast_path = WaitingFastPath if waits else RowFastPath
                if relation.is_base and not (waits or self._is_near) and (chain := chains.of(name)):
                    self.gates[name] = ChainedFastPath(self, relation, self._programs[name], chain)
                else:
                    self.gates[name] = fast_path(self, relation, self._programs[name], heard)
                self.ingests[name] = Ingest(relation, self._programs[name])
