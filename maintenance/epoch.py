"""Epochs: what one atomic change did, and the shortest way in for a single row."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.program.machine import RelationPrograms, place_row, run_packed, run_row
from sqlfront.maintenance.program.netting import net
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.encoding import codec_for
from sqlfront.storage.errors import DataError, NotSupportedError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.layout import NULL_CODE

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.engine import Engine
    from sqlfront.maintenance.epoch_work import Work
    from sqlfront.maintenance.output.output_change import OutputChange
    from sqlfront.maintenance.relation.base_relation import Column, Relation
    from sqlfront.maintenance.relation.expressions import Computation


_BLOCK = re.compile(r"/(union )?\d+$")  # Behind the name of the view that the block or union of blocks is part of.


class Epoch:
    """One committed epoch: its `number` and the `seconds` it took, from the call to its end.

    Tables and views are called as in SQL, without the schema if that is main.
    """

    def __init__(self, applied: Applied) -> None:
        self._applied = applied
        self.number, self.seconds = applied.work.number, applied.work.seconds or 0.0

    @property
    def steps(self) -> dict[str, int]:
        """Elementary steps per view whose tables changed: slots looked at, list members visited, rows written."""
        steps: dict[str, int] = {}
        for spent in self._applied.work.spent():
            if spent.node is not None:
                view = shown_relation(spent.node.name)
                steps[view] = steps.get(view, 0) + spent.steps
        return steps

    @property
    def view_seconds(self) -> dict[str, float]:
        """The seconds that each view took: its part in the programs, which update all views, by steps; and the output
        of its nodes. Encoding the changes and writing them to DuckDB is no view's."""
        seconds: dict[str, float] = {}
        for spent in self._applied.work.spent():
            if spent.node is not None:
                view = shown_relation(spent.node.name)
                seconds[view] = seconds.get(view, 0.0) + (spent.seconds or 0.0)
        return seconds

    @property
    def rows(self) -> dict[str, int]:
        """Netted rows per table: how many distinct rows changed their multiplicity. Computed when asked."""
        tables = [item for item in self._applied.encoded if not (item.relation.is_view or item.relation.copy_of)]
        return {shown_relation(item.relation.name): netted_rows(item) for item in tables}

    @property
    def changes(self) -> dict[str, pa.Table]:
        """The changed rows per view that is subscribed to: its columns and `_weight`, their signed multiplicity."""
        types = {one.node.name: dict(one.node.columns) for one in self._applied.work.spent() if one.node is not None}
        return {
            shown_relation(name): change.weighted(types.get(name, {})) for name, change in self._applied.shown_changes()
        }

    def __repr__(self) -> str:
        return f"Epoch(number={self.number}, seconds={self.seconds:.6f})"


class Applied:
    """An epoch that is in the state but not committed yet: `commit` or `undo` it.

    When it is committed, the changes `waiting` wait for the copies of their relations (`maintenance/deferred.py`).
    """

    def __init__(
        self,
        encoded: list[Encoded],
        started: float,
        changes: dict[str, OutputChange],
        work: Work,
        waiting: list[tuple[Relation, Encoded]],
    ) -> None:
        self.encoded, self.started, self.changes = encoded, started, changes
        self.work, self.waiting = work, waiting

    def shown_changes(self) -> list[tuple[str, OutputChange]]:
        """The changes of views, not of their blocks."""
        return [(name, change) for name, change in self.changes.items() if not _BLOCK.search(name)]

    def deletes_only(self) -> bool:
        """Whether no table has got a row."""
        return not any(item.brings_rows() for item in self.encoded if not item.relation.is_view)

    def decode(self) -> None:
        """Decode the changes that somebody may ask for later: dictionaries may forget their words from now on."""
        for _, change in self.shown_changes():
            if not change.lasts:
                _ = change.rows


class RowFastPath:
    """One row into a relation's program with one packing and one call, when each column takes one word.

    It reports nothing: where a view's changes are `heard`, it stays closed, unless it is chained: a chain tells
    listeners (see maintenance/chained_rows.py). `close` it when the programs change.
    """

    def __init__(
        self, engine: Engine, relation: Relation, programs: RelationPrograms, heard: bool, is_chained: bool = False
    ) -> None:
        self.relation, self.heard = relation, heard
        self._engine, self._lock, self._columns = engine, engine.lock, len(relation.columns)
        self._reading, self._pinned = engine.readers.waiting, engine.kept.pinned
        items = sorted(relation.inputs.values(), key=lambda item: item.place)
        plain = all(item.words == 1 for item in items if item.source is not None)
        self._chained = is_chained
        self._open = bool(items) and plain and relation.computable and (is_chained or not heard)
        if not self._open:
            return
        names = [column.name for column in relation.columns]
        # Behind the row's columns come its weight, and 0 in the place of what is computed.
        columns = len(names)
        places = [
            place
            for item in items
            for place in ([names.index(item.source)] if item.source is not None else [columns + 1] * item.words)
        ]
        # Columns that no view reads are packed behind the weight, so that values of wrong types are noticed.
        order = [*places, columns, *(place for place in range(columns) if place not in places)]
        try:
            codecs = [codec_for(column.type, relation.dictionaries) for column in relation.columns]
        except NotSupportedError:  # A nested type, in a column that no view reads.
            self._open = False
            return
        self._encoders: list[Callable[[Any], int]] | None = None
        if any(column.type != "BIGINT" for column in relation.columns):
            self._encoders = [_encoder(codec, column) for codec, column in zip(codecs, relation.columns, strict=True)]
        self._computation = relation.computation
        words = np.zeros(len(order), np.int64)
        self._encoded = Encoded(relation, programs, int(words.ctypes.data), 1, words)
        # A word that tells how far the row has come: the shortest to write from Python.
        self._stage = bytearray(8)
        self._stage_word = np.frombuffer(self._stage, np.int64)
        machine, counter = engine.machine.address, int(relation.counter.ctypes.data)
        head = [*self._encoded.entry(), int(self._stage_word.ctypes.data), machine, counter]
        self._entry = np.array([*head, self._encoders is None, columns, len(order), *order], np.int64)
        self._address = int(self._entry.ctypes.data)
        self._sweep = engine.sweep_dictionaries if relation.has_dictionaries else None

    def close(self) -> None:
        """Let no row in any more."""
        self._open = False

    def run(self, row: Sequence[Any], weight: int, is_kept: bool = False) -> int | None:
        """Apply and commit the row; the epoch's number, or None (and nothing changed) if it must go the general way.
        `is_kept`: the caller keeps it for readers of older epochs."""
        # A `with` would cost twice as much. Ctrl-C may come as soon as the lock is taken.
        lock, held = self._lock, True
        try:
            held = lock.acquire(False)
            if not held:
                with lock:
                    return self.run(row, weight)
            if self._reading:
                self._engine.readers.finish()  # This may close the fast path.
            if not self._open:
                return None
            if self._pinned and not is_kept:
                return self._run_kept(row, weight)
            words: Sequence[Any] | None = row
            if (self._encoders is not None or type(row) is not tuple) and (words := self._encode(row)) is None:
                return None
            self._stage[0] = 0
            try:
                if self._chained:
                    number = self._enter(words or (), weight)
                elif self._computation is None:
                    number = run_row(self._address, words, weight)
                elif place_row(self._address, words, weight) and self._compute(self._computation):
                    number = run_packed(self._address)
                else:
                    return None
                if number <= 0 and (number := self._attend(-number)) == 0:
                    return None
            except KeyboardInterrupt:
                self._undo()
                raise
            if self._sweep is not None:
                self._sweep()
            if number >= self._engine.next_look:
                self._engine.look()
            return number
        finally:
            if held:
                lock.release()

    def _enter(self, words: Sequence[Any], weight: int) -> int:
        """As `run_row` for words that pass through a chain; -REFUSED if they must go the general way."""
        raise NotImplementedError

    def _run_kept(self, row: Sequence[Any], weight: int) -> int | None:
        """As `run` for a row that readers of older epochs undo. Ctrl-C waits: it is applied and kept, or neither."""
        with Uninterrupted():
            number = RowFastPath.run(self, row, weight, is_kept=True)
            if number is not None:
                self._engine.kept.add_row(self.relation, row, weight)
        return number

    def _encode(self, row: Sequence[Any]) -> tuple[Any, ...] | None:
        """The codes of a row's values, or None if one has none, or it is no tuple or list."""
        if not isinstance(row, (tuple, list)) or len(row) != self._columns:
            return None
        if self._encoders is None:
            return tuple(row)
        try:
            if NULL_CODE in row:
                return None
            return tuple([encode(value) for encode, value in zip(self._encoders, row)])
        except (TypeError, ValueError, DataError):
            return None

    def _compute(self, computation: Computation) -> bool:
        """Compute the words that are no columns', behind those that are."""
        return computation.run(self._encoded.address, self.relation.width, 1)

    def _attend(self, flags: int) -> int:
        """Do what a run asks for and commit it; the epoch's number, 0 if it has been refused or taken back."""
        if flags & at.REFUSED:
            return 0
        if flags & (at.OVERFLOW | at.VIOLATION):
            self._undo()
            return 0
        commit_asking(self._engine, self.relation, flags, 1)
        self._engine.pulled.bound()
        return self._engine.epoch

    def _undo(self) -> None:
        """Take the row back if it has been applied, once, whenever Ctrl-C arrives."""
        machine = self._engine.machine
        runs, stage = machine.runs, self._stage[0]
        try:
            if stage:
                self._engine.undo_encoded([self._encoded])
        finally:
            if machine.runs != runs:
                self._stage[0] = 0
                if stage == at.COMMITTED:
                    self.relation.changes -= 1
                    machine.epochs -= 1


class WaitingFastPath(RowFastPath):
    """The fast path of a relation that has copies: a row that is committed waits for each of them."""

    def run(self, row: Sequence[Any], weight: int, is_kept: bool = False) -> int | None:
        with self._lock, Uninterrupted():  # No Ctrl-C between the two.
            number = super().run(row, weight, is_kept)
            if number is not None:
                self._engine.deferred.wait_row(self.relation.name, row, weight)
            return number


def commit_asking(engine: Engine, relation: Relation, flags: int, rows: int) -> None:
    """Do what an epoch of so many rows asks for that a kernel has run and not committed, and commit it."""
    if flags & at.REBALANCE:
        engine.rebalance([relation])
    if flags & at.SHRINK:
        engine.shrink([relation])
    relation.changes += rows
    engine.machine.epochs += 1


def _encoder(codec: Codec, column: Column) -> Callable[[Any], Any]:
    """From a column's value to its word; what is no number fails when the words are packed."""
    null = None if column.not_null else NULL_CODE
    if codec.type == "BIGINT":
        return lambda value: null if value is None else value
    if codec.type == "VARCHAR" and codec.dictionary is not None:
        encode_one = codec.dictionary.encode_one

        def encode_text(value: Any) -> Any:
            if type(value) is str:
                return encode_one(value.encode())
            return null if value is None else codec.encode_value(value)[0]

        return encode_text
    return lambda value: null if value is None else codec.encode_value(value)[0]


def shown_relation(name: str) -> str:
    """The engine's name of a table or a view as a user would write it; behind # are the numbers of build and part."""
    return re.sub(r"#\d+$", "", _BLOCK.sub("", name)).removeprefix("main.")


def netted_rows(item: Encoded) -> int:
    """The number of distinct rows of the table whose weights do not add up to zero. O(rows)."""
    import pyarrow as pa

    if (batch := item.batch) is None:
        *words, counts = map(np.ascontiguousarray, item.keep[: item.rows].T)
        return len(net([pa.array(word) for word in words], counts)[0])
    columns = dict(zip(map(str.casefold, batch.schema.names), batch.columns, strict=True))
    weights = item.weights
    if weights is None:
        own = columns.get("_weight") if len(columns) > len(item.relation.columns) else None
        weights = np.ones(item.rows, np.int64) if own is None else own.to_numpy()
    return len(net([columns[column.name.casefold()] for column in item.relation.columns], weights)[0])


def is_load(rows: int, before: int) -> bool:
    """Whether an epoch loads a table rather than changes it: with more than a tenth of the rows that came before it.

    A steady stream is no load after its first ten epochs. The mix of changes that a tree is chosen for counts no loads.
    """
    return 10 * rows > before
