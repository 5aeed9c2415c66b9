"""The epoch engine: relations, views, and the atomic application of changes.

One engine serves a database; its lock is held for the length of an epoch. An epoch either goes through
whole or is undone whole: programs are linear in the changes, so running them again with the weights'
signs turned restores every sum exactly, wrapped or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from maintenance.critical import Uninterrupted
from maintenance.epoch import Applied, Epoch, RowGate
from maintenance.filling import copy_rows, fill_store, lay_out
from maintenance.ingest import Ingest
from maintenance.machine import MAX_VIEWS, Encoded, Machine, RelationPrograms
from maintenance.outlets import Listener, Outlets
from maintenance.output_change import OutputChange
from maintenance.programs import Assembler
from maintenance.relation import Column, LeafStore, Relation, Rescale
from maintenance.view import MaintainedView, Source, demanded_indexes, unbuilt_view
from planner.plan import Plan
from planner.query import Definition
from storage import layout as at
from storage.encoding import Dictionaries
from storage.errors import DataError, IntegrityError, InternalError
from storage.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    Evaluate = Callable[[pa.Table, Mapping[str, str], Sequence[str]], pa.Table]
    Load = Callable[[str], tuple[Iterable[pa.RecordBatch], int]]


@dataclass
class Change:
    """Changes of one table: rows in the table's column order and their signed weights (None: all are +1)."""

    rows: pa.Table | pa.RecordBatch
    weights: np.ndarray | None = None


class Engine:
    """All maintained state of one database.

    `evaluate(rows, types, expressions)` computes SQL expressions over the columns of `rows`, cast to `types`.
    `version` changes whenever the state does, committed or not; `epoch` counts committed epochs.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self.lock = threading.RLock()
        self.epoch = 0
        self.version = 0
        self.relations: dict[str, Relation] = {}
        self.views: dict[str, MaintainedView] = {}
        self.dictionaries = Dictionaries()
        self.machine = Machine()
        self._evaluate = evaluate
        self._programs: dict[str, RelationPrograms] = {}
        self._gates: dict[str, RowGate] = {}
        self._ingests: dict[str, Ingest] = {}
        self._outlets = Outlets(self.views, self.machine, evaluate)
        self._highest = 0
        self._counts = self.machine.counters[:1].copy()

    # Definitions ---------------------------------------------------------------------------------

    def create_table(self, name: str, columns: Sequence[Column], *, retain: bool) -> None:
        """Register a base table. With `retain`, its rows are kept here."""
        with self.lock:
            self.relations[name] = Relation(name, columns, retain, self.dictionaries, self._evaluate)
            self._assemble()

    def drop_table(self, name: str) -> None:
        """Forget a base table, or a view exposed as one, that no view reads."""
        with self.lock:
            relation = self.relations.pop(name)
            self._outlets.unfeed(name)
            for store in relation.stores.values():
                store.table.release()
            self._assemble()

    def create_view(self, name: str, definition: Definition, plan: Plan, load: Load) -> MaintainedView:
        """Build a view and keep it from now on. `load(table)` gives the present rows of a table that is not retained,
        as record batches, and their number.

        O(rows of its tables) for free-connex plans. On failure nothing has changed.
        """
        with self.lock:
            view = self._plan_view(name, definition, plan)
            try:
                fresh = [opened for member in view.members for opened in self._open_stores(member)]
                for relation, store in fresh:
                    rows, count = self._present_rows(relation, load)
                    fill_store(self.machine, relation, store, rows, count, self._rescale)
                for member in view.members:
                    member.bind_leaves()
                    member.build(self.machine)
                lay_out([member.tree for member in view.members], [store.table for _, store in fresh])
            except BaseException:
                self._close_stores(view)
                self._assemble()
                raise
            self.views[name] = view
            self.version += 1
            self.machine.counters[view.number] = 0
            view.changes_before = {relation: self.relations[relation].changes for relation in view.relations}
            self._assemble()
            return view

    def drop_view(self, name: str) -> None:
        """Forget a view; stores that no other view reads go with it."""
        with self.lock:
            view = self.views.pop(name)
            self._outlets.close(name)
            self._close_stores(view)
            self.version += 1
            self._assemble()
            self.drop_unread()
            for dictionary in self.dictionaries:
                dictionary.sweep()

    # Changes out ---------------------------------------------------------------------------------

    def listen(self, name: str, listener: Listener) -> None:
        """Call `listener(epoch, change)` at each commit that may change a view; with the error if its rows have one.

        Listeners are called under the engine's lock and must not raise.
        """
        with self.lock:
            self._outlets.listen(name, listener)
            self._assemble()

    def forget(self, name: str, listener: Listener) -> None:
        """Call a listener no more."""
        with self.lock:
            self._outlets.forget(name, listener)
            self._assemble()

    def expose(self, name: str, relation: str, *, inner: bool = False) -> None:
        """Make a view's rows those of a relation that other views may read; they follow it in the same epoch.

        The view is `inner` if it is there for its readers alone: it goes with the last of them.
        """
        with self.lock:
            if relation in self.relations:
                return
            view = self.views[name]
            columns = [Column(*column) for column in view.definition.columns]
            made = Relation(relation, columns, False, self.dictionaries, self._evaluate)
            made.origin = name
            view.inner = inner
            self.relations[relation] = made
            self._outlets.feed(name, relation)
            self._assemble()

    def drop_unread(self) -> None:
        """Forget the relations of views that no other view reads any more."""
        with self.lock:
            for name in [name for name, relation in self.relations.items() if relation.origin is not None]:
                relation = self.relations.get(name)
                if relation is None or self._readers(relation):
                    continue
                self.drop_table(name)
                origin = self.views.get(relation.origin or "")
                if origin is not None and origin.inner:
                    self.drop_view(origin.name)

    # Epochs --------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[str, Change]) -> Applied:
        """Apply changes to several tables at once, to all views; to be committed or undone by the caller.

        Raises IntegrityError when a row would be there a negative number of times, DataError when a value does
        not fit its column. The state is then as before.
        """
        with self.lock:
            return self._apply(self._encode_all(changes))

    def apply_now(self, changes: Mapping[str, Change], started: float | None = None) -> Epoch:
        """`apply` and `commit`; Ctrl-C undoes the epoch."""
        with self.lock:
            return self._commit_whole(self._encode_all(changes), started)

    def apply_batches(self, batches: Mapping[str, Any], names: Mapping[str, str | None]) -> Epoch | None:
        """A committed epoch of record batches by the shortest way; None (and nothing changed) if one needs the long.

        `names` maps the batches' table names to relations.
        """
        started = time.perf_counter()
        with self.lock:
            encoded = []
            used = []  # Their buffers hold the rows; widening after an overflow makes new ones.
            for name, batch in batches.items():
                ingest = self._ingests.get(names.get(name) or "")
                packed = ingest.pack(batch) if ingest is not None else None
                if packed is None:
                    return None
                encoded.append(packed)
                used.append(ingest)
            if len({id(item.relation) for item in encoded}) < len(encoded):
                return None
            return self._commit_whole(encoded, started)

    def apply_row(self, name: str, row: Sequence[Any], weight: int = 1) -> int:
        """A committed epoch of one row, without Arrow; returns the epoch's number."""
        with self.lock:
            gate = self._gates.get(name)
            if gate is not None and gate.run(row, weight):
                self.epoch += 1
                self.version += 1
                return self.epoch
            relation = self.relations[name]
            relation.check_row(row, weight)
            data = relation.encode_row(row, weight)
            if data is None:
                change = Change(relation.as_batch(row), np.array([weight], np.int64))
                return self.apply_now({name: change}).number
            return self._commit_whole([self._encoded(relation, data)]).number

    def undo(self, applied: Applied) -> None:
        """Take an applied epoch back."""
        with self.lock:
            self.version += 1
            self.undo_encoded(applied.encoded)

    def commit(self, applied: Applied, started: float | None = None) -> Epoch:
        """Make an applied epoch the committed state. `started` (time.perf_counter) is when the epoch began."""
        with self.lock:
            self.epoch += 1
            self._outlets.tell(self.epoch, {item.relation.name for item in applied.encoded}, applied.changes)
            for item in applied.encoded:
                item.relation.passed = True
                item.relation.changes += item.rows
                if item.relation.has_dictionaries:
                    self.dictionaries.sweep_if_needed()
            seconds = time.perf_counter() - (started if started is not None else applied.started)
            return Epoch(self, self.epoch, applied, seconds)

    def _commit_whole(self, encoded: list[Encoded], started: float | None = None) -> Epoch:
        with Uninterrupted() as signals:
            applied = self._apply(encoded)
            try:
                signals.check()
            except BaseException:
                self.undo(applied)
                raise
            return self.commit(applied, started)

    def _apply(self, encoded: list[Encoded]) -> Applied:
        """Run an epoch; widen values and run again after an overflow; undo it on any failure."""
        started = time.perf_counter()
        before = self._counts
        self.version += 1
        while True:
            done: list[Encoded] = []
            try:
                flags, changes = self._run_stages(encoded, done)
            except Rescale as needed:
                self.undo_encoded(done)
                self._rescale(needed)
                encoded = [self._with_programs(item) for item in encoded]
                continue
            except BaseException:
                self.undo_encoded(done)
                raise
            if flags & at.OVERFLOW == 0:
                break
            self.undo_encoded(done)
            self._widen([item.relation for item in done])
            encoded = [self._with_programs(item) for item in encoded]
        if flags & at.SHRINK:
            self.shrink([item.relation for item in done])
        self._counts = self.machine.counters[: self._highest + 1].copy()
        return Applied(self, done, before, self._counts, started, changes)

    def _run_stages(self, encoded: list[Encoded], done: list[Encoded]) -> tuple[int, dict[str, OutputChange]]:
        """Run the changes of tables, then, one after the other, those of views that views read.

        `done` collects what has run, for undo, also when this raises. An overflow ends it early.
        """
        self._outlets.begin()
        waiting, touched = self._outlets.feeding(), set[str]()
        changes: dict[str, OutputChange] = {}
        stage, flags = encoded, 0
        while stage:
            runs = self.machine.runs
            try:
                flags |= self.machine.run_epoch(stage)
            finally:
                if self.machine.runs != runs:
                    done += stage
            if flags & at.VIOLATION:
                raise self._absent_row(stage)
            touched |= {item.relation.name for item in stage}
            stage = []
            while waiting and not stage and flags & at.OVERFLOW == 0:
                view, relation = waiting.pop(0)
                if view.relations & touched:
                    change = changes[view.name] = self._outlets.read(view)
                    if len(change):
                        stage = [self._encode(relation, Change(change.rows, change.weights))]
        return flags, changes

    def undo_encoded(self, encoded: list[Encoded]) -> None:
        """Run an epoch with all signs turned; an interrupt waits until it is done."""
        interrupted: KeyboardInterrupt | None = None
        runs = self.machine.runs
        while self.machine.runs == runs:
            try:
                if self.machine.run_epoch(encoded, -1) & at.SHRINK:
                    self.shrink([item.relation for item in encoded])
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def shrink(self, relations: Iterable[Relation] | None = None) -> None:
        """Give memory back wherever most of it is unused."""
        for relation in self.relations.values() if relations is None else relations:
            for table in self._touched(relation):
                table.shrink()

    def counters(self, view: MaintainedView) -> int:
        """Elementary steps spent on a view since it was built: slots looked at, list members visited, rows written."""
        return int(self.machine.counters[view.number])

    # Inner workings ------------------------------------------------------------------------------

    def _encode_all(self, changes: Mapping[str, Change]) -> list[Encoded]:
        while True:
            try:
                return [self._encode(name, change) for name, change in changes.items()]
            except Rescale as needed:
                self._rescale(needed)

    def _encode(self, name: str, change: Change) -> Encoded:
        relation = self.relations[name]
        return self._encoded(relation, relation.encode(change.rows, change.weights), change.rows, change.weights)

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
        programs = self._programs[item.relation.name]
        return Encoded(item.relation, programs, item.address, item.rows, item.keep, item.batch, item.weights)

    def _touched(self, relation: Relation) -> list[Table]:
        tables = [store.table for store in relation.stores.values()]
        for view in self._readers(relation):
            tables += view.tables()
        return tables

    @staticmethod
    def _add_paths(readers: list[MaintainedView], assembler: Assembler, store: LeafStore, position: int) -> None:
        for view in readers:
            view.add_paths(assembler, store, position)

    def _owner(self, store: LeafStore) -> int:
        """The number of the view that alone reads a store; 0 for a shared one, whose steps are nobody's."""
        view = self.views.get(next(iter(store.users))) if len(store.users) == 1 else None
        return view.number if view is not None else 0

    def _members(self) -> list[MaintainedView]:
        """All views with their companions."""
        return [member for view in self.views.values() for member in view.members]

    def _readers(self, relation: Relation) -> list[MaintainedView]:
        return [view for view in self._members() if relation.name in view.relations]

    def _absent_row(self, encoded: list[Encoded]) -> IntegrityError:
        address, row = int(self.machine.scratch[at.BAD_TABLE]), int(self.machine.scratch[at.BAD_ROW])
        stores = [(item.relation, store) for item in encoded for store in item.relation.stores.values()]
        relation, store = next(found for found in stores if found[1].table.address == address)
        values, place = [], 0
        words = store.table.key_of(row)
        for column, width in zip(store.variables, store.widths, strict=True):
            codec = store.inputs["key " + column.expression].codec
            assert codec is not None
            code = [np.array([word], np.int64) for word in words[place : place + width]]
            values.append(f"{column.expression} = {codec.decode(code)[0].as_py()!r}")
            place += width
        return IntegrityError(
            f"a row of {relation.name} is deleted more often than it is there",
            where="the row with " + ", ".join(values) if values else None,
            why="every view is exact only if no row occurs a negative number of times",
            hint="check the changes of this epoch; nothing of it has been applied",
        )

    def _widen(self, relations: list[Relation]) -> None:
        views = {id(view): view for relation in relations for view in self._readers(relation)}
        stores = [store for relation in relations for store in relation.stores.values()]
        if max([view.limbs for view in views.values()] + [store.limbs for store in stores]) >= at.MAX_LIMBS:
            raise DataError("a sum is too large to be kept", why=f"it needs more than {64 * at.MAX_LIMBS} bits")
        for view in views.values():
            view.widen(view.limbs + 1)
        for store in stores:
            store.limbs += 1
            store.table.widen(store.limbs)
        self._assemble()

    def _rescale(self, needed: Rescale) -> None:
        """Give a floating factor a finer unit, and multiply what has been summed in the old one."""
        item = needed.item
        bits = needed.shift - item.shift
        more = (bits + 63) // 64
        needed.relation.rescale(item, needed.limbs, needed.shift)
        for store in needed.relation.stores.values():
            column = next((c for c in store.factors if store.inputs["factor " + c.expression] is item), None)
            if column is None:
                continue
            store.limbs = max(store.limbs + more, needed.limbs)
            store.table.widen(store.limbs)
            store.table.rescale(1 + store.factors.index(column), bits)
            for view in self._members():
                if any(source.store is store for source in view.sources.values()):
                    view.rescale(store, column.expression, bits)
        self._assemble()

    def _plan_view(self, name: str, definition: Definition, plan: Plan) -> MaintainedView:
        taken = {view.number for view in self.views.values()}
        number = next((n for n in range(1, MAX_VIEWS) if n not in taken), None)
        if number is None:
            raise InternalError(f"more than {MAX_VIEWS - 1} views", hint="drop some")
        self.machine.counters[number] = 0
        return unbuilt_view(name, definition, plan, number, self.dictionaries)

    def _open_stores(self, view: MaintainedView) -> list[tuple[Relation, LeafStore]]:
        """Open the stores the view's atoms read; returns those that are new and empty."""
        fresh = []
        seen: dict[tuple[Any, ...], int] = {}
        for atom in view.definition.atoms:
            relation = self.relations[atom.table]
            names = {c.name: c.expression for c in atom.variables}
            required = sorted(names[v] for v in atom.required)
            plain = tuple(sorted(c.expression for c in atom.variables))
            factors = tuple(sorted(c.expression for c in atom.factors))
            alike = (atom.table, plain, factors, atom.predicate, tuple(required))
            occurrence = seen[alike] = seen.get(alike, -1) + 1
            known = set(relation.stores)
            store = relation.open_store(atom.variables, atom.factors, atom.predicate, required, occurrence // 2)
            indexes, summed = demanded_indexes(view.tree, view.tree.leaves[atom.name], view.definition)
            old = store.table
            if relation.reindex(store, indexes, summed) and store.key in known:
                copy_rows(self.machine, old, store)
            if store.key not in known:
                fresh.append((relation, store))
            store.users.add(view.name)
            view.sources[atom.name] = Source(relation, store, occurrence % 2)
        for other in self._members():
            other.bind_leaves()
        return fresh

    def _close_stores(self, view: MaintainedView) -> None:
        for source in [source for member in view.members for source in member.sources.values()]:
            if source.store.key in source.relation.stores:
                if source.store.users <= {view.name}:
                    source.store.table.release()
                source.relation.close_store(source.store, view.name)

    def _present_rows(self, relation: Relation, load: Load) -> tuple[Iterable[Any], int]:
        """The rows of a relation as record batches, or pairs of these and weights; and their number (0: unknown)."""
        from maintenance.output import table_batches
        from maintenance.output_change import view_batches

        if relation.origin is not None:
            return view_batches(self.views[relation.origin], self._evaluate), 0
        if relation.base is not None:
            return table_batches(relation), relation.base.table.live
        return load(relation.name)

    def _assemble(self) -> None:
        """Make all programs anew, after tables, views or widths have changed."""
        for view in self._members():
            view.bind_leaves()
        for name, relation in self.relations.items():
            body = relation.program(partial(self._add_paths, self._readers(relation)), self._owner)
            check, sweep = Assembler(), Assembler()
            stores = [store.table for store in relation.stores.values()]
            check.finish(at.CHECK, stores)
            sweep.finish(at.SWEEP, stores)
            for view in self._readers(relation):
                sweep.finish(at.SWEEP, view.tables(), view.number)
            programs = RelationPrograms(body.program(), check.program(), sweep.program())
            self._programs[name] = programs
            heard = any(view.delta is not None for view in self._readers(relation))
            self._gates[name] = RowGate(self, relation, programs, heard)
            self._ingests[name] = Ingest(relation, programs)
        for name in set(self._programs) - set(self.relations):
            del self._programs[name], self._gates[name], self._ingests[name]
        self._highest = max((view.number for view in self.views.values()), default=0)
        self._counts = self.machine.counters[: self._highest + 1].copy()
