"""Epochs: what one atomic change did, and the shortest way in for a single row."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from maintenance.machine import run_epoch
from storage import layout as at
from storage.layout import NULL_CODE

if TYPE_CHECKING:
    from maintenance.engine import Engine
    from maintenance.relation import Relation


@dataclass
class Epoch:
    """One committed epoch. `steps` are elementary steps per view; `seconds` the time of the whole epoch."""

    number: int
    steps: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    _encoded: list[tuple[Relation, np.ndarray]] = field(default_factory=list, repr=False)

    @property
    def rows(self) -> dict[str, int]:
        """Netted rows per table: how many distinct full rows changed their multiplicity. Computed when asked."""
        return {relation.name: _netted(data) for relation, data in self._encoded}


class Applied:
    """An epoch that is in the state but not committed yet: `commit` or `undo` it."""

    def __init__(self, engine: Engine, encoded: list[tuple[Relation, np.ndarray]], steps: np.ndarray) -> None:
        self.engine, self.encoded, self._steps = engine, encoded, steps
        self._started = time.perf_counter()

    def commit(self) -> Epoch:
        return self.engine.commit(self)

    def undo(self) -> None:
        self.engine.undo(self)

    def epoch(self, number: int) -> Epoch:
        """The record of this epoch under its number."""
        touched = {relation.name for relation, _ in self.encoded}
        views = [view for view in self.engine.views.values() if view.relations & touched]
        steps = {view.name: int(self._steps[view.number]) for view in views}
        return Epoch(number, steps, time.perf_counter() - self._started, self.encoded)


class RowGate:
    """One row into a relation's program with one packing and one call, when its columns are plain integers."""

    def __init__(
        self, engine: Engine, relation: Relation, body: np.ndarray, check: np.ndarray, sweep: np.ndarray
    ) -> None:
        self._programs = (body, check, sweep)
        self.relation = relation
        self._engine, self._columns = engine, len(relation.columns)
        position = {column.name: i for i, column in enumerate(relation.columns)}
        items = sorted(relation.inputs.values(), key=lambda item: item.place)
        self._open = bool(items) and all(
            item.kind == "key" and item.source is not None and item.type == "BIGINT" for item in items
        )
        if not self._open:
            return
        self._identity = [position[item.source] for item in items if item.source] == list(range(self._columns))
        self._pick = itemgetter(*(position[item.source] for item in items if item.source))
        self._single = len(items) == 1
        self._buffer = bytearray(8 * (len(items) + 1))
        self._words = np.frombuffer(self._buffer, np.int64)
        self._pack = struct.Struct(f"={len(items) + 1}q").pack_into
        machine = engine.machine
        self._call = (
            body.ctypes.data, check.ctypes.data, sweep.ctypes.data, machine.address, self._words.ctypes.data, 1,
        )  # fmt: skip

    def run(self, row: Sequence[Any], weight: int) -> bool:
        """Apply the row; False (and nothing changed) if it must go the general way."""
        if not self._open or len(row) != self._columns or NULL_CODE in row:
            return False
        try:
            if self._identity:
                self._pack(self._buffer, 0, *row, weight)
            elif self._single:
                self._pack(self._buffer, 0, self._pick(row), weight)
            else:
                self._pack(self._buffer, 0, *self._pick(row), weight)
        except struct.error:
            return False
        flags = run_epoch(*self._call, 1)
        if flags == 0:
            return True
        if flags & (at.OVERFLOW | at.VIOLATION):
            self._engine.take_back(self._programs, self._words)
            return False
        self._engine.shrink_all()
        return True


def _netted(data: np.ndarray) -> int:
    rows, places = np.unique(data[:, :-1], axis=0, return_inverse=True)
    totals = np.zeros(len(rows), np.int64)
    np.add.at(totals, places.ravel(), data[:, -1])
    return int(np.count_nonzero(totals))
