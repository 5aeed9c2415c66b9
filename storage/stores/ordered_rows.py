"""The groups of a table's ordered index, by position: order statistics over many rows at once.

Rows are given and found by their addresses, 0 for none; groups by the addresses of their rows in the group table. Both
are valid until the table changes. A position counts copies, from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sqlfront.storage.codecs.sums import from_integers, to_integers
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import order_statistics as kernels
from sqlfront.storage.kernels.tables import whole_groups
from sqlfront.storage.stores.row_addresses import (
    address_of,
    find_rows,
    gather_words,
    group_sizes,
    list_members,
    list_runs,
)
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at


class OrderedRows:
    """The rows of a table whose ordered index has subtree sums. `steps` counts rows visited."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.index = int(words_at(table.order_address, 1)[0])
        self.group = table.groups[self.index]
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._scratch_at = address_of(self._scratch)
        self._orders: dict[int, np.ndarray] = {}

    @property
    def steps(self) -> int:
        return int(self._scratch[at.STEPS])

    def groups(self, keys: np.ndarray) -> np.ndarray:
        """The groups with these key words, of shape (groups, words). O(1) each."""
        return find_rows(self.group, _whole(keys), self._scratch)

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """The rows with these key words, of shape (rows, words). O(1) each."""
        return find_rows(self.table, _whole(keys), self._scratch)

    def groups_of(self, rows: np.ndarray) -> np.ndarray:
        """The groups of rows. O(1) each."""
        [links] = gather_words(rows, [int(self.table.header[at.LINKS]) + 2 * self.index + 1])
        return int(self.group.header[at.ROWS]) + (links & 0xFFFFFFFF) * int(self.group.header[at.WIDTH]) * 8

    def locate(self, rows: np.ndarray, copies: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where copies of rows stand: their groups, their positions there, how many copies their groups have. O(log
        group) expected each."""
        rows, copies, found = _whole(rows), _whole(copies), np.empty((len(rows), 3), np.int64)
        kernels.locate(
            self.table.address,
            self.group.address,
            address_of(rows),
            address_of(copies),
            len(rows),
            self._scratch_at,
            address_of(found),
        )
        return found[:, 0], found[:, 1], found[:, 2]

    def all_groups(self) -> np.ndarray:
        """All groups that have rows. O(groups)."""
        header = self.group.header
        first, size = int(header[at.ROWS]), int(header[at.WIDTH]) * 8
        found = first + np.arange(int(header[at.USED]), dtype=np.int64) * size
        return found[self.sizes(found) > 0]

    def sizes(self, groups: np.ndarray) -> np.ndarray:
        """How many different rows each group has. O(1) each."""
        return group_sizes(self.group, _whole(groups))

    def copies(self, groups: np.ndarray) -> np.ndarray:
        """How many copies of rows each group has. O(1) each."""
        groups, found = _whole(groups), np.empty(len(groups), np.int64)
        kernels.count_copies(self.table.address, self.group.address, address_of(groups), len(groups), address_of(found))
        return found

    def members(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many rows each group has, and all of them, group after group, in their order. O(1) a row."""
        return list_members(self.table, self.index, _whole(groups), self._scratch)

    def words(self, groups: np.ndarray, words: int) -> tuple[np.ndarray, list[np.ndarray], bool]:
        """How many rows each group has; the first `words` words of all of them, in the order of `members`; and whether
        one of them has several copies. O(1) a row."""
        groups = _whole(groups)
        sizes, wave = self.sizes(groups), np.empty(whole_groups.WAVE_WORDS, np.int64)
        found = [np.empty(int(sizes.sum()), np.int64) for _ in range(words)]  # Each lives as long as it is used.
        outs = np.array([address_of(one) for one in found], np.int64)
        copies = whole_groups.words_of_groups(
            self.table.address,
            self.group.address,
            self.index,
            address_of(groups),
            len(groups),
            words,
            address_of(wave),
            self._scratch_at,
            address_of(outs),
        )
        return sizes, found, bool(copies)

    def runs(self, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many rows there are from each of some rows to a later one of its group, and all of them. O(1) a row."""
        return list_runs(self.table, self.index, _whole(begins), _whole(ends), self._scratch)

    def frame_sums(self, groups: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The sums of each group's copies from a position to before another, of shape (groups, values, limbs + 1):
        value 0 counts them. O(log group) expected each."""
        groups, starts, ends = _whole(groups), _whole(starts), _whole(ends)
        found = np.empty((len(groups), int(self.table.header[at.SUMS]), self.table.limbs + 1), np.int64)
        parted = kernels.frame_sums(
            self.table.address,
            self.group.address,
            address_of(groups),
            address_of(starts),
            address_of(ends),
            len(groups),
            self._scratch_at,
            address_of(found),
        )
        if parted:
            for sign, positions in ((1, ends), (-1, starts)):
                rows, copies = self.select(groups, positions)
                for place in np.flatnonzero(copies):
                    self._add_copies(found[place], int(rows[place]), int(copies[place]), sign)
        return found

    def _add_copies(self, sums: np.ndarray, row: int, copies: int, sign: int) -> None:
        """Add (or with sign -1 take) the values of some copies of a row, which has the values of all of its copies."""
        values, limbs = len(sums), self.table.limbs
        words = words_at(row + 8 * self.table.keys, values * limbs).reshape(values, limbs)
        whole = to_integers(words)
        shares = [value * copies // whole[0] for value in whole]
        added = [total + sign * share for total, share in zip(to_integers(sums), shares, strict=True)]
        sums[:] = from_integers(added, sums.shape[1])

    def select(self, groups: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The row at a position of each group, 0 where there is none; and which of its copies stands there, from 0.
        O(log group) expected each."""
        groups, positions = _whole(groups), _whole(positions)
        found, copies = np.empty(len(groups), np.int64), np.empty(len(groups), np.int64)
        kernels.select(
            self.table.address,
            self.group.address,
            address_of(groups),
            address_of(positions),
            len(groups),
            self._scratch_at,
            address_of(found),
            address_of(copies),
        )
        return found, copies

    def positions_of(self, groups: np.ndarray, probes: np.ndarray, items: int, *, inclusive: bool) -> np.ndarray:
        """How many copies of each group come before a probe by the first `items` words of the order, with those that
        tie if `inclusive`. A probe is a row, or the address of words that lie as a row's. O(log group) expected
        each."""
        groups, probes, found = _whole(groups), _whole(probes), np.empty(len(groups), np.int64)
        kernels.positions_of(
            self.table.address,
            self.group.address,
            address_of(groups),
            address_of(probes),
            len(groups),
            address_of(self._order(items)),
            int(inclusive),
            self._scratch_at,
            address_of(found),
        )
        return found

    def peers_before(self, groups: np.ndarray, probes: np.ndarray, summary: int) -> np.ndarray:
        """How many groups of peers, by the subtree summary of this number, come before a probe in each group. O(log
        group) expected each."""
        return self._counted(kernels.peers_before, groups, probes, summary)

    def peer_starts(self, groups: np.ndarray, numbers: np.ndarray, summary: int) -> np.ndarray:
        """The position in each group where the peers of this number, from 0, begin; behind the last row where there are
        none. O(log group) expected each."""
        return self._counted(kernels.peer_starts, groups, numbers, summary)

    def _counted(self, kernel: Callable[..., None], groups: np.ndarray, asked: np.ndarray, summary: int) -> np.ndarray:
        groups, asked, found = _whole(groups), _whole(asked), np.empty(len(groups), np.int64)
        kernel(
            self.table.address,
            self.group.address,
            address_of(groups),
            address_of(asked),
            len(groups),
            summary,
            self._scratch_at,
            address_of(found),
        )
        return found

    def frame_extremes(self, groups: np.ndarray, starts: np.ndarray, ends: np.ndarray, summary: int) -> np.ndarray:
        """The row that comes last by the subtree summary of this number, from a position of each group to before
        another; 0 of none. O(log group) expected each."""
        groups, starts, ends = _whole(groups), _whole(starts), _whole(ends)
        found = np.empty(len(groups), np.int64)
        kernels.frame_extremes(
            self.table.address,
            self.group.address,
            address_of(groups),
            address_of(starts),
            address_of(ends),
            len(groups),
            summary,
            self._scratch_at,
            address_of(found),
        )
        return found

    def gather(self, rows: np.ndarray, places: Sequence[int]) -> np.ndarray:
        """The words at some places of each row, NULL's code where there is none; shape (places, rows)."""
        return gather_words(rows, places, at.NULL_CODE)

    def _order(self, items: int) -> np.ndarray:
        """The order list of the first `items` words."""
        if items not in self._orders:
            words = words_at(self.table.order_address, at.ORDER_ENTRY + 3 * items).copy()
            words[at.ORDER_COUNT] = items
            self._orders[items] = words
        return self._orders[items]


def order_list(places: Sequence[tuple[int, int, int]], *, descending: bool) -> np.ndarray:
    """The order list of words that compare as `codecs/order.py` says."""
    flag = at.ORDER_DESCENDING if descending else 0
    words = [word for place, kind, operand in places for word in (place, kind + flag, operand)]
    return np.array([0, len(places), *words], np.int64)


def frame_firsts(
    order: np.ndarray, rows: np.ndarray, present: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> np.ndarray:
    """Which of rows[start:end] comes first by an order list, among those `present`: its number, -1 for none, for each
    pair of bounds. Neither bound ever goes back. O(rows + bounds)."""
    order, rows, present = _whole(order), _whole(rows), _whole(present)
    starts, ends, found = _whole(starts), _whole(ends), np.empty(len(starts), np.int64)
    queue = np.empty(max(1, len(rows)), np.int64)
    kernels.frame_firsts(
        address_of(order),
        address_of(rows),
        address_of(present),
        address_of(starts),
        address_of(ends),
        len(starts),
        address_of(queue),
        address_of(found),
    )
    return found


def _whole(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words, np.int64)
