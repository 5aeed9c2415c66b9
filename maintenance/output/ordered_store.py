"""The rows of a relation in an order within each group: what is nearest to a time, and what is at a position.

Cost: O(log group) for each row that asks, and the rows that are listed (storage/kernels/tables/nearest.py, and
order_statistics.py there). A position counts copies, from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlfront.maintenance.output.group_store import GroupStore
from sqlfront.maintenance.program.programs import PASSING, WordTest
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import nearest, range_extremes
from sqlfront.storage.stores.ordered_rows import OrderedRows
from sqlfront.storage.stores.row_addresses import find_rows

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.storage.stores.table import Table


class OrderedStore(GroupStore):
    """The rows of a relation grouped by `keys` and sorted by `order`, whose first column is the time.

    Rows that ask come row after row.
    """

    def __init__(
        self,
        relation: Relation,
        keys: Sequence[str],
        order: Sequence[tuple[str, int]],
        user: str,
        extreme: tuple[str, bool] | None = None,
    ) -> None:
        super().__init__(relation, [keys], user, order, extreme=extreme)
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

    def test(self, column: str, asking: OrderedStore, asked: str, operator: str, *, nulls_last: bool) -> np.ndarray:
        """The test of a member's column by a column of a row of `asking`, which stands left of the operator."""
        flags = at.ORDER_NULLS_LAST if nulls_last else 0
        places = [(place, kind + flags, operand) for place, kind, operand in order_places(self._codec(column), 0)]
        theirs, mine = asking.places_of(asked)[0], self.places_of(column)[0]
        return np.array(WordTest(PASSING[operator], theirs, mine, places).words(), np.int64)

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

    def first(
        self, keys: np.ndarray, rows: np.ndarray, test: np.ndarray, most: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first members that pass each row's test, as long as they are `most` copies: their addresses, how many
        copies of each are within, and how many members each row has."""
        groups, sizes = self.groups(keys), np.empty(len(rows), np.int64)

        def listed(out: int) -> int:
            found: int = nearest.first_members(
                self.store.table.address, self.index_number(), self._group.address, groups.ctypes.data,
                rows.ctypes.data, len(rows), rows.shape[1], test.ctypes.data, most, self.store.table.keys,
                sizes.ctypes.data, self._scratch.ctypes.data, out,
            )  # fmt: skip
            return found

        members = np.empty((listed(0) if most > 1 else len(rows), 2), np.int64)
        members = members[: listed(members.ctypes.data)]
        return members[:, 0].copy(), members[:, 1].copy(), sizes

    def before(self, rows: np.ndarray, most: int) -> np.ndarray:
        """The addresses of the last members before each row that make `most` copies with those between; 0 where none
        does. The rows are laid out as the store's."""
        groups, out = self.groups(rows[:, self.key_places]), np.empty(len(rows), np.int64)
        nearest.members_before(
            self.store.table.address, self.index_number(), self._group.address, groups.ctypes.data, rows.ctypes.data,
            len(rows), rows.shape[1], most, self.store.table.keys, self._scratch.ctypes.data, out.ctypes.data,
        )  # fmt: skip
        return out

    def at(self, rows: np.ndarray) -> np.ndarray:
        """The addresses of the members at the places of rows that are laid out as the store's."""
        groups = self.groups(rows[:, self.key_places])

        def listed(out: int) -> int:
            found: int = nearest.members_at(
                self.store.table.address, self.index_number(), self._group.address, groups.ctypes.data,
                rows.ctypes.data, len(rows), rows.shape[1], self._scratch.ctypes.data, out,
            )  # fmt: skip
            return found

        return _listed(listed)

    def extremes(
        self, keys: np.ndarray, rows: np.ndarray, lower: np.ndarray | None, upper: np.ndarray | None
    ) -> np.ndarray:
        """The addresses of the members with the extreme value within each row's bounds, 0 where there is none."""
        groups, out = self.groups(keys), np.empty(len(rows), np.int64)
        range_extremes.extremes(
            self.store.table.address, self._group.address, groups.ctypes.data, rows.ctypes.data, len(rows),
            rows.shape[1], _address(lower), _address(upper), self._scratch.ctypes.data, out.ctypes.data,
        )  # fmt: skip
        return out

    def ranges(
        self,
        keys: np.ndarray,
        rows: np.ndarray,
        test: np.ndarray,
        ends: np.ndarray | None = None,
        beside: np.ndarray | None = None,
    ) -> np.ndarray:
        """The addresses of the members that pass a row's test and not that of the row at its end (0: there is none).
        With a test `beside`, of the column of extremes, those that pass it too."""
        groups, ends = self.groups(keys), np.zeros(len(rows), np.int64) if ends is None else ends

        def listed(out: int) -> int:
            found: int = nearest.ranges(
                self.store.table.address, self.index_number(), self._group.address, groups.ctypes.data,
                rows.ctypes.data, len(rows), rows.shape[1], test.ctypes.data, ends.ctypes.data, _address(beside),
                self._scratch.ctypes.data, out,
            )  # fmt: skip
            return found

        return _listed(listed)

    @property
    def _group(self) -> Table:
        return self.store.table.groups[self.index_number()]


def _address(test: np.ndarray | None) -> int:
    return 0 if test is None else test.ctypes.data


def _listed(into: Callable[[int], int]) -> np.ndarray:
    """The addresses that are listed to an address, and counted at 0."""
    addresses = np.empty(into(0), np.int64)
    if len(addresses):
        into(addresses.ctypes.data)
    return addresses


class Run(NamedTuple):
    """Copies of rows at adjacent positions, run after run: their words, which run each is in, and which copy of its row
    it is, from 0."""

    words: np.ndarray
    number: np.ndarray
    copy: np.ndarray


class NumberedStore(GroupStore):
    """The rows of a relation grouped by `keys` and sorted by `order`, of which the first `compared` columns say where a
    probe stands. Rows that ask come row after row."""

    def __init__(
        self, relation: Relation, keys: Sequence[str], order: Sequence[tuple[str, int]], compared: int, user: str
    ) -> None:
        super().__init__(relation, [keys], user, order, numbered=True)
        self._keys, self._compared = keys, [name for name, _ in order[:compared]]

    def now(self) -> OrderedRows:
        """The rows as they are now, with a count of steps of its own."""
        return OrderedRows(self.store.table)

    @cached_property
    def key_places(self) -> list[int]:
        """The places of the words of a row's key."""
        return [place for name in self._keys for place in self.places_of(name)]

    @cached_property
    def compared_places(self) -> list[int]:
        """The places of the words by which a probe is compared, in the order of the columns."""
        return [place for name in self._compared for place in self.places_of(name)]

    def before(self, rows: OrderedRows, groups: np.ndarray, probes: np.ndarray, *, inclusive: bool) -> np.ndarray:
        """How many copies of each group come before a probe, with those that tie if `inclusive`. Probes have the first
        words of `compared_places`, as many as they like."""
        words = probes.shape[1]
        laid = np.zeros((len(probes), self.store.table.keys), np.int64)
        laid[:, self.compared_places[:words]] = probes
        addresses = laid.ctypes.data + np.arange(len(laid), dtype=np.int64) * laid.strides[0]
        return rows.positions_of(groups, addresses, words, inclusive=inclusive)

    def compared(self, rows: OrderedRows, addresses: np.ndarray) -> np.ndarray:
        """The words of rows that a probe has, row after row."""
        return rows.gather(addresses, self.compared_places).T

    def run(self, rows: OrderedRows, groups: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> Run:
        """The copies at the positions from `begins` to before `ends` of each group."""
        some = np.flatnonzero(ends > begins)
        groups, begins, ends = groups[some], begins[some], ends[some]
        first, skipped = rows.select(groups, begins)
        sizes, addresses = rows.runs(first, rows.select(groups, ends - 1)[0])
        words, counts = self.rows_at(addresses)
        heads = np.cumsum(np.append(0, counts))
        starts = heads[np.cumsum(sizes) - sizes] + skipped  # A run may begin and end among the copies of a row.
        lengths = ends - begins
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        copies = np.repeat(starts, lengths) + within
        row = np.searchsorted(heads, copies, side="right") - 1
        return Run(words[:, row], np.repeat(some, lengths), copies - heads[row])

    def numbers(self, name: str, words: np.ndarray) -> np.ndarray:
        """The whole numbers of a column in rows, 0 for NULL."""
        code = [np.ascontiguousarray(words[place]) for place in self.places_of(name)]
        return self._codec(name).decode(code).fill_null(0).to_numpy()

    def with_numbers(self, name: str, words: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Rows with other numbers in a column, but for NULLs."""
        import pyarrow as pa

        found, places = words.copy(), self.places_of(name)
        for place, word in zip(places, self._codec(name).encode(pa.array(numbers)), strict=True):
            found[place] = np.where(words[places[0]] == at.NULL_CODE, words[place], word)
        return found
