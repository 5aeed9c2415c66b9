"""The rows that have come and gone in the orders of a view, gathered for those who read its changes.

A path enters each changed row with its counts and sums, as the stores of the orders have them. So the orders can be put
back as they were, read, and renewed. The delta is linear in the changes: undoing an epoch takes its part out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.relation.attachment import Attachment
from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import upkeep
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.program.machine import Machine, Program
    from sqlfront.maintenance.program.room import Room
    from sqlfront.maintenance.program.shapes import Shape
    from sqlfront.maintenance.relation.base_relation import LeafStore

_USUAL_ROWS = 65536
"""Rows of an epoch's change for which memory is kept ready."""


class OrderDelta(Attachment):
    """The changed rows of some orders, whose stores all have the same columns. `owner` is the view's counter."""

    def __init__(self, kept: Sequence[KeptOrder], owner: int) -> None:
        self._kept, self._owner, store = kept, owner, kept[0].source.store
        self.table = Table(store.table.keys, store.table.values, store.limbs, name="order delta")

    def words(self) -> tuple[np.ndarray, np.ndarray]:
        """The key words of the changed rows, row after row; and the changes of their counts and sums, shape (rows,
        values, limbs)."""
        table = self.table
        words = np.empty((table.used, table.keys + table.values * table.limbs), np.int64)
        words = words[: upkeep.copy_rows(table.address, 0, table.used, words.ctypes.data)]
        limbs = words[:, table.keys :].reshape(len(words), table.values, table.limbs)
        changed = (limbs != 0).any(axis=(1, 2))
        return np.ascontiguousarray(words[changed, : table.keys]), limbs[changed]

    @contextmanager
    def undone(self, machine: Machine) -> Iterator[None]:
        """The orders are as they were before the changes. O(log N) a changed row."""
        with Uninterrupted():
            self._add(machine, -1)
            try:
                yield
            finally:
                self._add(machine, 1)

    def clear(self) -> None:
        """Forget what has been gathered; memory beyond a usual epoch's goes back."""
        self.table.clear()
        if self.table.capacity > _USUAL_ROWS:
            self.table.compact()

    def add_row_paths(self, assembler: Assembler, store: LeafStore, position: int, atoms: Mapping[str, Shape]) -> None:
        if store is self._kept[0].source.store and position == 1:
            assembler.path(self._owner)
            assembler.upsert(self.table)
            assembler.path_end()

    def rescale(self, names: Set[tuple[str, str]], bits: int) -> None:
        self._fit()
        for number, part in enumerate(self._kept[0].shape.parts):
            if part & names:
                self.table.rescale(number, bits)

    def refresh(self, machine: Machine, stores: Mapping[str, LeafStore], room: Room | None) -> None:
        self._fit()

    def _fit(self) -> None:
        """Give values the width that they have in the stores."""
        limbs = self._kept[0].source.store.limbs
        if self.table.limbs < limbs:
            self.table.widen(limbs)

    def _add(self, machine: Machine, sign: int) -> None:
        """Add the changes to the orders, or take them out."""
        for kept in self._kept:
            program = self._program(kept, sign)
            machine.run(program, rows=self.table.used)
        sweep = Assembler()
        sweep.finish(at.SWEEP, [kept.source.store.table for kept in self._kept], self._owner)
        machine.run_once(sweep.program())

    def _program(self, kept: KeptOrder, sign: int) -> Program:
        assembler = Assembler()
        assembler.scan(self.table)
        assembler.path(self._owner)
        if sign < 0:
            assembler.scale(kept.shape, sign)
        assembler.upsert(kept.source.store.table)
        assembler.path_end()
        return assembler.program()
