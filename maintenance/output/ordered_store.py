"""The rows of a relation in the order of a time within each group: what is nearest to a time, and what a range has.

Cost: O(log group) for each row that asks, and the rows that are listed (storage/kernels/tables/nearest.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.group_store import GroupStore
from sqlfront.maintenance.program.programs import PASSING, WordTest
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import nearest
from sqlfront.storage.stores.row_addresses import find_rows

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.storage.stores.table import Table


class OrderedStore(GroupStore):
    """The rows of a relation grouped by `keys` and sorted by `order`, whose first column is the time.

    Rows that ask come row after row.
    """

    def __init__(self, relation: Relation, keys: Sequence[str], order: Sequence[tuple[str, int]], user: str) -> None:
        super().__init__(relation, [keys], user, order)
        self._keys, self._time = keys, order[0][0]

    @property
    def key_places(self) -> list[int]:
        """The places of the words of a row's key."""
        return [place for name in self._keys for place in self.places_of(name)]

    def take_steps(self) -> int:
        """The steps of reads since this was asked last."""
        steps = int(self._scratch[at.STEPS])
        self._scratch[at.STEPS] = 0
        return steps

    def test(self, asking: OrderedStore, operator: str, *, nulls_last: bool) -> np.ndarray:
        """The test of a member by a row of `asking`, whose time stands left of the operator and the member's right of
        it."""
        flags = at.ORDER_NULLS_LAST if nulls_last else 0
        places = [(place, kind + flags, operand) for place, kind, operand in order_places(self._codec(self._time), 0)]
        return np.array(WordTest(PASSING[operator], asking.time_place, self.time_place, places).words(), np.int64)

    @property
    def time_place(self) -> int:
        """The place of the first word of a row's time."""
        return self.places_of(self._time)[0]

    def groups(self, keys: np.ndarray) -> np.ndarray:
        """The addresses of the groups with these keys."""
        return find_rows(self._group, keys, self._scratch)

    def rows(self, words: np.ndarray) -> np.ndarray:
        """The addresses of the rows with these words, 0 where there is none."""
        return find_rows(self.store.table, words, self._scratch)

    def first(self, keys: np.ndarray, rows: np.ndarray, test: np.ndarray) -> np.ndarray:
        """The addresses of the first members that pass each row's test, 0 where none does."""
        groups, out = self.groups(keys), np.empty(len(rows), np.int64)
        nearest.first_members(
            self.store.table.address, self._group.address, groups.ctypes.data, rows.ctypes.data, len(rows),
            rows.shape[1], test.ctypes.data, self._scratch.ctypes.data, out.ctypes.data,
        )  # fmt: skip
        return out

    def neighbours(self, rows: np.ndarray, *, equal: bool) -> np.ndarray:
        """The addresses of the last members before each row or, if `equal`, of those at its place; 0 where none is. The
        rows are laid out as the store's."""
        groups, out = self.groups(rows[:, self.key_places]), np.empty(len(rows), np.int64)
        nearest.neighbours(
            self.store.table.address, self._group.address, groups.ctypes.data, rows.ctypes.data, len(rows),
            rows.shape[1], int(equal), self._scratch.ctypes.data, out.ctypes.data,
        )  # fmt: skip
        return out

    def ranges(self, keys: np.ndarray, rows: np.ndarray, test: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The addresses of the members that pass a row's test and not that of the row at its end (0: there is none)."""
        groups = self.groups(keys)

        def listed(out: int) -> int:
            found: int = nearest.ranges(
                self.store.table.address, self.index_number(), self._group.address, groups.ctypes.data,
                rows.ctypes.data, len(rows), rows.shape[1], test.ctypes.data, ends.ctypes.data,
                self._scratch.ctypes.data, out,
            )  # fmt: skip
            return found

        addresses = np.empty(listed(0), np.int64)
        if len(addresses):
            listed(addresses.ctypes.data)
        return addresses

    @property
    def _group(self) -> Table:
        return self.store.table.groups[self.index_number()]
