"""Epochs: what one atomic change did, and the shortest way in for a single row."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from maintenance.machine import Encoded, RelationPrograms, run_epoch
from storage import layout as at
from storage.layout import NULL_CODE

if TYPE_CHECKING:
    from maintenance.engine import Engine
    from maintenance.relation import Relation


class Epoch:
    """One committed epoch: its `number` and the `seconds` it took, from the call to its end.

    Tables and views are called as in SQL, without the schema if that is main.
    """

    def __init__(self, engine: Engine, number: int, applied: Applied, seconds: float) -> None:
        self.number, self.seconds = number, seconds
        self._engine, self._applied = engine, applied

    @property
    def steps(self) -> dict[str, int]:
        """Elementary steps per view whose tables changed: slots looked at, list members visited, rows written."""
        before, after = self._applied.counts
        touched = {item.relation.name for item in self._applied.encoded}
        views = [view for view in self._engine.views.values() if view.relations & touched]
        return {shown(v.name): int(after[v.number] - before[v.number]) for v in views if v.number < len(before)}

    @property
    def view_seconds(self) -> dict[str, float]:
        """`seconds` apportioned to the views by their steps: all views of an epoch are updated by one program."""
        steps = self.steps
        total = sum(steps.values())
        return {view: self.seconds * count / total if total else 0.0 for view, count in steps.items()}

    @property
    def rows(self) -> dict[str, int]:
        """Netted rows per table: how many distinct rows, in the columns that views read, changed their multiplicity.

        Computed when asked.
        """
        return {shown(item.relation.name): netted_rows(item.relation, item.keep) for item in self._applied.encoded}

    def __repr__(self) -> str:
        return f"Epoch(number={self.number}, seconds={self.seconds:.6f})"


class Applied:
    """An epoch that is in the state but not committed yet: `commit` or `undo` it."""

    def __init__(
        self, engine: Engine, encoded: list[Encoded], before: np.ndarray, after: np.ndarray, started: float
    ) -> None:
        self.engine, self.encoded, self.started = engine, encoded, started
        self.counts = before, after


class RowGate:
    """One row into a relation's program with one packing and one call, when its columns are plain integers."""

    def __init__(self, engine: Engine, relation: Relation, programs: RelationPrograms) -> None:
        self.relation = relation
        self._engine, self._columns = engine, len(relation.columns)
        position = {column.name: i for i, column in enumerate(relation.columns)}
        items = sorted(relation.inputs.values(), key=lambda item: item.place)
        self._open = bool(items) and all(
            item.kind == "key" and item.source is not None and item.type == "BIGINT" for item in items
        )
        if not self._open:
            return
        picked = [position[item.source] for item in items if item.source is not None]
        self._pick: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        if picked != list(range(self._columns)):
            first = picked[0]
            self._pick = itemgetter(*picked) if len(picked) > 1 else lambda row: (row[first],)
        self._buffer = bytearray(8 * (len(items) + 1))
        self._words = np.frombuffer(self._buffer, np.int64)
        self._pack = struct.Struct(f"={len(items) + 1}q").pack_into
        self._encoded = Encoded(relation, programs, int(self._words.ctypes.data), 1, self._words)
        self._entry = np.array(self._encoded.entry(), np.int64)
        self._call = (int(self._entry.ctypes.data), 1, engine.machine.address, 1)

    def run(self, row: Sequence[Any], weight: int) -> bool:
        """Apply the row; False (and nothing changed) if it must go the general way."""
        if not self._open or len(row) != self._columns or NULL_CODE in row or weight == NULL_CODE:
            return False
        try:
            self._pack(self._buffer, 0, *(self._pick(row) if self._pick is not None else row), weight)
        except struct.error:
            return False
        machine = self._engine.machine
        runs = machine.runs
        try:
            flags = run_epoch(*self._call)
        except KeyboardInterrupt:
            if machine.runs != runs:
                self._engine.undo_encoded([self._encoded])
            raise
        if flags & (at.OVERFLOW | at.VIOLATION):
            self._engine.undo_encoded([self._encoded])
            return False
        self.relation.passed = True
        if flags:
            self._engine.shrink([self.relation])
        return True


def shown(name: str) -> str:
    """The engine's name of a table or a view (with the number of its build behind #) as a user would write it."""
    return re.sub(r"#\d+$", "", name).removeprefix("main.")


def netted_rows(relation: Relation, rows: Any) -> int:
    """The number of distinct rows whose weights do not add up to zero; `rows` are words, or the batch itself."""
    if not isinstance(rows, np.ndarray):
        names = {name.casefold(): i for i, name in enumerate(rows.schema.names)}
        weights = rows.column(names["_weight"]).to_numpy() if "_weight" in names else np.ones(rows.num_rows, np.int64)
        columns = [rows.column(names[column.name.casefold()]) for column in relation.columns]
        words = [np.asarray(column.fill_null(NULL_CODE).cast("int64")) for column in columns]
        rows = np.column_stack([*words, weights])
    distinct, places = np.unique(rows[:, :-1], axis=0, return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, places.ravel(), rows[:, -1])
    return int(np.count_nonzero(totals))
