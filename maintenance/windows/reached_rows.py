"""The rows of an order that changed rows reach: found along the order's trees, in the state before or after the change.

The changed rows of a partition are sorted. Each is a place in the order, whether it is there or not. Reaches are ranges
of positions around the changed rows and between them (planner/model/window_reach.py). The ranges have the same rows
before the change and after it, apart from the changed rows. Cost: O(log partition) for each changed row, and the rows
reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sqlfront.maintenance.windows.qualified_rows import STEPS_SOUGHT, qualified_ranges
from sqlfront.maintenance.windows.range_edges import range_edge
from sqlfront.maintenance.windows.whole_partitions import WholePartitions
from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.planner.model.window_functions import RankBound
from sqlfront.planner.model.window_reach import Near, Net, Reach
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.ordered_rows import OrderedRows
from sqlfront.storage.stores.row_addresses import gather_words

_DIGIT = 0xFFFFFFFF

Ranges = tuple[np.ndarray, np.ndarray]


class ReachedRows:
    """The rows that some changed rows reach in one order, in its present state.

    `owners` has the number of the partition of each range, whose positions go from `starts` on to before `ends`. No two
    ranges of a partition overlap.
    """

    def __init__(
        self,
        kept: KeptOrder,
        reach: Reach,
        words: np.ndarray,
        values: np.ndarray,
        bounds: Sequence[RankBound] = (),
    ) -> None:
        """`words` are the key words of the changed rows, `values` the changes of their counts and sums. Rows out of
        `bounds` are none of the view's."""
        self._kept, self._reach, self._ordered = kept, reach, OrderedRows(kept.source.store.table)
        keys = words[:, list(kept.places(kept.order.partition))]
        parts, owner = np.unique(keys, axis=0, return_inverse=True)
        self._groups = self._ordered.groups(parts)
        self._owner = owner.reshape(-1)
        self._sizes = self._ordered.copies(self._groups)
        self._sort(words, values)
        self.owners, self.starts, self.ends = self._merged(list(self._ranges()), bounds)

    @property
    def steps(self) -> int:
        """Rows visited so far."""
        return self._ordered.steps

    @property
    def rows(self) -> int:
        """How many rows are reached."""
        return int((self.ends - self.starts).sum())

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """The key words of the rows reached, row after row; and which copy of its row each is, from 0."""
        lengths = self.ends - self.starts
        behind = np.cumsum(lengths)
        owners = np.repeat(self.owners, lengths)
        positions = np.arange(len(owners)) + np.repeat(self.starts - (behind - lengths), lengths)
        addresses, copies = self._at(owners, positions)
        return self._ordered.gather(addresses, range(self._ordered.table.keys)).T, copies

    def _at(self, owners: np.ndarray, positions: np.ndarray) -> Ranges:
        """The rows at positions of partitions, and which of their copies stand there."""
        groups = np.unique(owners)
        if len(owners) * STEPS_SOUGHT < self._sizes[groups].sum():
            return self._ordered.select(self._groups[owners], positions)
        whole = WholePartitions(self._kept, self._groups[groups])
        places = whole.partitions.starts[np.searchsorted(groups, owners)] + positions
        return whole.addresses[places], whole.copy_numbers[places]

    def _sort(self, words: np.ndarray, values: np.ndarray) -> None:
        """Put the changed rows in their order; note where each is, and what those up to it add up to."""
        first = self._probes(words)
        start = self._positions(first, len(self._kept.item_places(len(self._kept.order.items))), inclusive=False)
        rows = self._ordered.rows(words)
        end = start + gather_words(rows, [self._ordered.table.keys])[0]
        order = np.lexsort((end, start, self._owner))
        self._words, self._owner = np.ascontiguousarray(words[order]), self._owner[order]
        self._start, self._end = start[order], end[order]
        self._addresses = self._probes(self._words)
        self._is_first = np.append(True, self._owner[1:] != self._owner[:-1])
        running = np.cumsum(_digits(values[order]), axis=0)
        firsts = np.flatnonzero(self._is_first)
        before = np.where((firsts > 0).reshape(-1, 1, 1), running[firsts - 1], 0)
        number = np.cumsum(self._is_first) - 1
        self._running = running - before[number]
        self._totals = self._running[np.append(firsts[1:], len(number)) - 1][number]

    def _ranges(self) -> Iterator[Ranges]:
        """The ranges of positions that each changed row reaches."""
        reach, size = self._reach, self._sizes[self._owner]
        yield self._start, self._end
        for near in reach.near:
            yield self._near(near)
        firsts = np.flatnonzero(self._is_first)
        lasts = np.append(firsts[1:], len(size)) - 1
        until = np.append(self._start[1:], 0)
        until[lasts] = size[lasts]
        since = np.append(0, self._end[:-1])
        since[firsts] = 0
        before = self._totals - self._running + self._own_values()
        yield self._end, np.where(_differs(reach.behind, self._running), until, self._end)
        yield np.where(_differs(reach.ahead, before), since, self._start), self._start
        whole = _differs(reach.whole, self._totals)
        whole |= self._is_first & (self._start < reach.first)
        whole[lasts] |= size[lasts] - self._end[lasts] < reach.last
        yield np.zeros_like(size), np.where(whole, size, 0)

    def _own_values(self) -> np.ndarray:
        """The changes of each row's count and sums."""
        before = np.concatenate([self._running[:1] * 0, self._running[:-1]])
        return self._running - np.where(self._is_first.reshape(-1, 1, 1), 0, before)

    def _near(self, near: Near) -> Ranges:
        size = self._sizes[self._owner]
        if near.unit == "ROWS":
            return np.maximum(self._start - near.before, 0), np.minimum(self._end + near.after, size)
        peers = self._peers(self._addresses, near.peers)
        if near.unit == "GROUPS":
            return self._groups_near(peers, near)
        [place] = self._kept.item_places(1)
        codes = self._words[:, place]
        edges = (
            range_edge(self._kept, self._ordered, self._groups[self._owner], codes, distance, behind)
            for distance, behind in ((-near.before, False), (near.after, True))
        )
        first, last = (np.where(codes == at.NULL_CODE, peer, edge) for peer, edge in zip(peers, edges, strict=True))
        return first, last

    def _groups_near(self, peers: Ranges, near: Near) -> Ranges:
        if not (near.before or near.after):
            return peers
        groups, summary = self._groups[self._owner], self._kept.peers(near.peers)
        number = self._ordered.peers_before(groups, self._addresses, summary)
        is_there = peers[0] < peers[1]
        first = self._ordered.peer_starts(groups, number - near.before, summary)
        return first, self._ordered.peer_starts(groups, number + is_there + near.after, summary)

    def _peers(self, probes: np.ndarray, items: int) -> Ranges:
        words = len(self._kept.item_places(items))
        return self._positions(probes, words, inclusive=False), self._positions(probes, words, inclusive=True)

    def _positions(self, probes: np.ndarray, words: int, *, inclusive: bool) -> np.ndarray:
        return self._ordered.positions_of(self._groups[self._owner], probes, words, inclusive=inclusive)

    @staticmethod
    def _probes(words: np.ndarray) -> np.ndarray:
        return words.ctypes.data + np.arange(len(words), dtype=np.int64) * words.strides[0]

    def _merged(self, ranges: list[Ranges], bounds: Sequence[RankBound]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The ranges of each partition, without those that overlap; only the positions within bounds."""
        starts, ends = (np.concatenate([one[side] for one in ranges]) for side in (0, 1))
        owners = np.tile(self._owner, len(ranges))
        if bounds:
            first, last = qualified_ranges(self._kept, self._ordered, self._groups, bounds)
            starts, ends = np.maximum(starts, first[owners]), np.minimum(ends, last[owners])
        some = starts < ends
        starts, ends, owners = starts[some], ends[some], owners[some]
        order = np.lexsort((starts, owners))
        starts, ends, owners = starts[order], ends[order], owners[order]
        apart = int(self._sizes.max(initial=0)) + 1  # Positions of all partitions in one row.
        reached = np.maximum.accumulate(ends + owners * apart) if len(ends) else ends
        fresh = np.append(True, (starts + owners * apart)[1:] > reached[:-1])[: len(starts)]
        firsts = np.flatnonzero(fresh)
        last = reached[np.append(firsts[1:], len(starts))[: len(firsts)] - 1]
        return owners[firsts], starts[firsts], last - owners[firsts] * apart


def _differs(net: Net, sums: np.ndarray) -> np.ndarray:
    """Where changes that add up to these counts and sums, in digits, make a difference."""
    match net:
        case Net.NEVER:
            return np.zeros(len(sums), bool)
        case Net.COUNT:
            return _is_not_zero(sums[:, :1])
        case Net.SUMS:
            return _is_not_zero(sums)
        case Net.ALWAYS:
            return np.ones(len(sums), bool)


def _digits(values: np.ndarray) -> np.ndarray:
    """Numbers, given by limbs, in digits of 32 bits. The last digit has the sign. The digits of as many rows as a table
    can have add up without a carry."""
    found = np.stack([values & _DIGIT, (values >> 32) & _DIGIT], axis=-1).reshape(*values.shape[:2], -1)
    found[:, :, -1] = values[:, :, -1] >> 32
    return found


def _is_not_zero(sums: np.ndarray) -> np.ndarray:
    """Whether any of each row's numbers is not 0."""
    found, carry = np.zeros(sums.shape[:2], bool), np.zeros(sums.shape[:2], np.int64)
    for digit in range(sums.shape[2]):
        total = sums[:, :, digit] + carry
        found |= (total & _DIGIT) != 0
        carry = total >> 32
    return np.asarray((found | (carry != 0)).any(axis=1), bool)
