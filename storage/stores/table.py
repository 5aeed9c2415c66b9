"""A table as Python sees it: an owner of raw memory, with its figures and its invariants."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sqlfront.storage.errors import InternalError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.boxes import box_sums
from sqlfront.storage.kernels.programs import rank as ranking
from sqlfront.storage.kernels.tables import hash_table as kernels
from sqlfront.storage.kernels.tables import ordered_group as ordering
from sqlfront.storage.kernels.tables import sorted_groups, upkeep
from sqlfront.storage.stores.words import boxes_of, bytes_of, copied, order_list, words_at

SideBySide = Callable[[Callable[[int, int], Any]], Any]
"""Calls what it is given with the number of a part and the number of parts, for each part."""


def one_by_one(call: Callable[[int, int], Any]) -> Any:
    """All as one part."""
    return call(0, 1)


class Table:
    """A keyed store of rows: `keys` key words, `values` values of `limbs` words; value 0 is the row's count.

    `indexes` lists groupings by tuples of key places. `summed[i]` says how many of the leading values
    the groups of index i add up (0: only their size), so that one look-up answers for a whole group.
    `readers` are the walks that hold row numbers.
    `order` keeps the groups of one index sorted: its number, and (place, kind, operand) of the key words to compare.
    With `ranked` the index is number 0, and the words compared are as many that each row has besides its key. With
    `ranges` the rows of the ordered index keep subtree sums of all values, so that ranges of a group are summed up.
    Besides these they keep `summaries` of a kind, over key words to compare. With `boxes`, sums within bounds
    of two orders are found: the places of a group's key, and how its rows compare in the first order and the second.
    """

    def __init__(
        self,
        keys: int,
        values: int,
        limbs: int = 1,
        indexes: Iterable[tuple[int, ...]] = (),
        summed: Iterable[int] = (),
        references: Iterable[tuple[int, int]] = (),
        name: str = "",
        extra: int = -1,
        order: tuple[int, Sequence[tuple[int, int, int]]] | None = None,
        ranked: bool = False,
        ranges: bool = False,
        summaries: Sequence[tuple[int, Sequence[tuple[int, int, int]]]] = (),
        boxes: tuple[Sequence[int], Sequence[tuple[int, int, int]], Sequence[tuple[int, int, int]]] | None = None,
    ) -> None:
        self.name = name
        self.indexes = tuple(indexes)
        if order is not None:
            extra = len(order[1]) + 1 if ranked else values * (limbs + 1) if ranges else 0
        self.address = kernels.make(keys, values, limbs, len(self.indexes), extra, len(summaries))
        self.header = words_at(self.address, at.HEADER_WORDS)  # It never moves.
        self.header[at.RANKS] = extra - 1 if ranked else 0
        self.header[at.SUMS] = values if order is not None and ranges else 0
        weakref.finalize(self, upkeep.destroy, self.address).atexit = False  # A file that closes then reads tables.
        self.readers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.groups: list[Table] = []
        sums = tuple(summed) or (0,) * len(self.indexes)
        for number, (places, width) in enumerate(zip(self.indexes, sums, strict=True)):
            ordered = order is not None and order[0] == number
            self.groups.append(self._group(number, places, width, ordered))
        self._refer(tuple(references))
        if order is not None:
            self.header[at.ORDER] = order_list(*order)
        if summaries:
            kinds = [word for kind, compared in summaries for word in (kind, order_list(0, compared))]
            self.header[at.SUMMARIES] = copied([len(summaries), *kinds])
        if boxes is not None:
            self.header[at.BOXES] = boxes_of(keys, *boxes)

    def _group(self, number: int, places: tuple[int, ...], summed: int, ordered: bool) -> Table:
        if len(places) > 32:
            raise InternalError(f"an index of {len(places)} key words is too wide (32 at most)")
        group = Table(len(places), summed, self.limbs, name=f"{self.name}[{number}]", extra=int(ordered))
        group.header[at.OWNER] = self.address
        group.header[at.OWNER_INDEX] = number
        entry = words_at(self.header[at.INDEX_LIST] + number * (at.INDEX_ENTRY + 32) * 8, at.INDEX_ENTRY + 32)
        entry[0], entry[1] = group.address, len(places)
        entry[2 : 2 + len(places)] = places
        return group

    def _refer(self, references: tuple[tuple[int, int], ...]) -> None:
        """Count references: (place of a key word that is a dictionary code, address of that dictionary's header)."""
        if references:
            self.header[at.REFERENCE_LIST] = upkeep.calloc_words(2 * len(references))
            words_at(self.header[at.REFERENCE_LIST], 2 * len(references))[:] = np.array(references, np.int64).ravel()
            self.header[at.REFERENCES] = len(references)

    @property
    def counts_references(self) -> bool:
        """Whether key words are codes of dictionaries, whose references are counted."""
        return bool(self.header[at.REFERENCES])

    @property
    def keys(self) -> int:
        return int(self.header[at.KEYS])

    @property
    def values(self) -> int:
        return int(self.header[at.VALUES])

    @property
    def limbs(self) -> int:
        return int(self.header[at.LIMBS])

    @property
    def live(self) -> int:
        """Rows in the table, O(1)."""
        return int(self.header[at.LIVE])

    @property
    def used(self) -> int:
        """Rows up to the highest number ever used, free ones included."""
        return int(self.header[at.USED])

    @property
    def capacity(self) -> int:
        """Rows that the memory of now has room for."""
        return int(self.header[at.CAPACITY])

    @property
    def width(self) -> int:
        """Words of a row."""
        return int(self.header[at.WIDTH])

    @property
    def unswept(self) -> int:
        """Rows that came to a count of 0 and wait to be freed."""
        return int(self.header[at.DIRTY_USED])

    @property
    def order_address(self) -> int:
        """Where the kernels read how the rows of the ordered index compare; 0 without one."""
        return int(self.header[at.ORDER])

    @property
    def rank_words(self) -> int:
        """Words by which the rows of a ranked table are ordered; they begin at word `rank_place` of a row."""
        return int(self.header[at.RANKS])

    @property
    def rank_place(self) -> int:
        return int(self.header[at.TAIL]) + 1

    def bytes(self) -> int:
        """Bytes of memory in use, groups included: slots, rows up to the highest ever used, bookkeeping."""
        return bytes_of(self.header) + sum(group.bytes() for group in self.groups)

    def slot_bytes(self) -> int:
        """Bytes of the slots, groups included, which double when they are full."""
        return 8 * int(self.header[at.MASK] + 1) + sum(group.slot_bytes() for group in self.groups)

    def row_bytes(self) -> int:
        """At most so many bytes does a new row take, with a row of each group, but for slots that double."""
        return 8 * (self.width + 2) + sum(group.row_bytes() for group in self.groups)

    def entries(self) -> int:
        """Live rows of the table and of its groups."""
        return self.live + sum(group.entries() for group in self.groups)

    def longest_probe(self) -> int:
        """The most slots that a look-up of a present key inspects, O(slots)."""
        h = self.header
        slots = words_at(h[at.SLOTS], h[at.MASK] + 1)
        places = np.nonzero(slots)[0]
        if not len(places):
            return 0
        home = (slots[places] >> 32) & h[at.MASK]
        return int((((places - home) & h[at.MASK]) + 1).max())

    def figures(self) -> tuple[int, int, int, float, int]:
        """Rows, entries with groups, bytes, the load of the slots and the longest probe: the worst of all indexes."""
        hashed = (self, *self.groups)
        load = max(one.live / int(one.header[at.MASK] + 1) for one in hashed)
        return self.live, self.entries(), self.bytes(), round(load, 3), max(one.longest_probe() for one in hashed)

    def release(self) -> None:
        """Take back the references to dictionary codes; the table must not be used afterwards. O(slots)."""
        upkeep.release_references(self.address)

    def insert(self, key: Sequence[int]) -> None:
        """Add a row with this key and a count of 1 and 0 in all other values. O(1)."""
        values = [1, *[0] * (self.values * self.limbs - 1)]
        delta = np.array([*key, *values], np.int64)
        for table in (self, *self.groups):
            kernels.reserve(table.address, 1)
        keys = [tuple(range(self.keys)), *self.indexes]
        words = [np.array([*(key[place] for place in places), 0], np.int64) for places in keys]
        hashes = np.array([kernels.hash_words(w.ctypes.data, len(w) - 1) for w in words], np.int64)
        scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        kernels.upsert(self.address, scratch.ctypes.data, hashes.ctypes.data, 1, delta.ctypes.data)

    def overwrite(self, key: Sequence[int]) -> None:
        """Give the only row of a table other key words. It is then scanned, or found in a group of no words, never
        looked up by its key."""
        self._row(0)[: len(key)] = key

    def clear(self) -> None:
        """Empty a table that has no indexes and never lost a row; its memory stays. O(rows)."""
        kernels.clear(self.address)

    def reset(self) -> None:
        """Empty a table that counts no references, with its groups, and give its memory back. O(1)."""
        for table in (self, *self.groups):
            upkeep.reset(table.address)

    def members(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a group table: the key words of each group, and how many members it has. O(groups)."""
        h = self.header
        rows = words_at(h[at.ROWS], h[at.USED] * h[at.WIDTH]).reshape(-1, h[at.WIDTH])
        sizes = (rows[:, h[at.TAIL]] >> 32) & 0xFFFFFFFF
        return rows[sizes > 0, : self.keys], sizes[sizes > 0]

    def find(self, key: Sequence[int] | np.ndarray) -> int | None:
        """The number of the row with this key. O(1)."""
        import ctypes

        words, scratch = (ctypes.c_int64 * (len(key) + 1))(*key), (ctypes.c_int64 * at.SCRATCH_WORDS)()
        place = ctypes.addressof(words)
        h = kernels.hash_words(place, self.keys)
        row: int = kernels.find(self.address, ctypes.addressof(scratch), h, place, 0, 0)
        return row if row >= 0 else None

    def count_of(self, key: Sequence[int]) -> int:
        """The count of the row with this key, 0 without one. O(1)."""
        row = self.find(key)
        return 0 if row is None else _number(self._list_of(row), self.keys, self.limbs)

    def size_of(self, key: np.ndarray) -> int:
        """Of a group table: how many members the group of this key has. O(1)."""
        row = self.find(key)
        return 0 if row is None else int(self._row(row)[self.header[at.TAIL]] >> 32) & 0xFFFFFFFF

    def members_of(self, number: int, key: Sequence[int]) -> list[list[int]]:
        """The key words and values of the rows in a group of an index. O(rows)."""
        group, link = self.groups[number], int(self.header[at.LINKS]) + 2 * number
        row, own = group.find(key), self.keys + self.values * self.limbs
        head = 0 if row is None else group._list_of(row)[int(group.header[at.TAIL])] & 0xFFFFFFFF
        found = []
        while head:
            words = self._list_of(head - 1)
            found.append(words[:own])
            head = words[link] & 0xFFFFFFFF
        return found

    def reserve(self, rows: int) -> None:
        """Make room for that many more rows at once, not by doubling. `compact` gives back what they do not take."""
        kernels.reserve(self.address, rows)

    def shrink(self) -> None:
        """Compact the table and its groups where most of their memory is unused, unless changed groups are noted by
        their places. O(rows kept)."""
        if self.header[at.TOUCHED_USED]:
            return
        for table in (self, *self.groups):
            if upkeep.wants_shrink(table.address):
                upkeep.compact(table.address, -1)

    def give_back(self) -> None:
        """Give memory back that present rows do not need, unless somebody reads the table. O(slots), and O(rows) if an
        eighth of them is unused."""
        if self.header[at.TOUCHED_USED] or any(True for _ in self.readers):
            return
        for table in (self, *self.groups):
            if table.used - table.live > table.live // 8 + 64:
                upkeep.compact(table.address, -1)
            else:
                upkeep.trim(table.address)

    def changed_best(self) -> tuple[np.ndarray, np.ndarray]:
        """Of a ranked table's groups whose best row is another one since `settle`: the rank words of the best rows that
        they had, and of those that they have. O(groups changed)."""
        ranks, group = int(self.header[at.RANKS]), self.groups[0]
        count, width = int(self.header[at.TOUCHED_USED]), int(self.header[at.WIDTH])
        noted = words_at(self.header[at.TOUCHED], count * (2 + ranks)).reshape(count, 2 + ranks)
        size = int(group.header[at.WIDTH])
        groups = words_at(group.header[at.ROWS], int(group.header[at.USED]) * size).reshape(-1, size)
        lists = np.ascontiguousarray(groups[noted[:, 0]]).view(np.int32).reshape(count, 2 * size)
        heads = lists[:, 2 * int(group.header[at.TAIL])]
        rows = words_at(self.header[at.ROWS], int(self.header[at.USED]) * width).reshape(-1, width)
        first = int(self.header[at.TAIL]) + 1
        return noted[noted[:, 1] != 0, 2:].copy(), rows[heads[heads > 0] - 1, first : first + ranks].copy()

    def settle(self) -> None:
        """Forget which groups have changed."""
        if self.header[at.TOUCHED_USED]:
            scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
            ranking.settle(self.address, scratch.ctypes.data)
            self.shrink()

    @contextmanager
    def unsorted(self, side_by_side: SideBySide = one_by_one) -> Iterator[None]:
        """Sort groups when the body has filled an empty table and swept it, not row by row, in parts that may be sorted
        `side_by_side`. Ranked ones wait anyway."""
        waits = self.header[at.ORDER] != 0 and self.header[at.RANKS] == 0 and self.used == 0
        if waits:
            sorted_groups.turn_order(self.address)
        try:
            yield
        finally:
            if waits:
                side_by_side(lambda part, parts: sorted_groups.sort_groups(self.address, part, parts))
                sorted_groups.turn_order(self.address)

    def make_boxes(self, scratch: int) -> None:
        """Make the entries of sums over boxes of the rows, as who first asks for a sum does. O(rows * log rows)."""
        box_sums.make_runs(self.address, scratch)

    def compact(self, index: int = -1) -> None:
        """Lay rows out in the order of an index's groups, which makes enumeration sequential. O(rows)."""
        for group in self.groups:
            upkeep.compact(group.address, -1)
        upkeep.compact(self.address, index)

    def align(self, visitor: Table, places: Sequence[int]) -> None:
        """Lay rows out in the order in which another table's rows look them up by their words at `places`. O(rows)."""
        words = np.array(places, np.int64)
        upkeep.align(self.address, visitor.address, words.ctypes.data)

    def widen(self, limbs: int) -> None:
        """Give values and groups' sums `limbs` words each. O(rows)."""
        for table in (self, *self.groups):
            upkeep.widen(table.address, limbs)

    def rescale(self, value: int, bits: int) -> None:
        """Multiply value number `value` by 2**bits in every row and group. O(rows)."""
        for table in (self, *self.groups):
            if value < table.values:
                upkeep.rescale(table.address, value, bits)

    def rows(self) -> dict[tuple[int, ...], tuple[int, ...]]:
        """Every live row as key words -> values; for tests and small tables. O(words of all rows)."""
        words, keys, limbs = self._all_words(), self.keys, self.limbs
        places = [keys + v * limbs for v in range(self.values)]
        return {
            tuple(words[row][:keys]): tuple(_number(words[row], place, limbs) for place in places)
            for row in self._live_rows()
        }

    def key_of(self, row: int) -> tuple[int, ...]:
        """The key words of a row by its number."""
        return tuple(int(word) for word in self._row(row)[: self.keys])

    def _list_of(self, row: int) -> list[int]:
        """The words of a row: of a few words a list is made in half the time of an array."""
        import ctypes

        width = int(self.header[at.WIDTH])
        place = int(self.header[at.ROWS]) + row * width * 8
        return (ctypes.c_int64 * width).from_address(place)[:]

    def _row(self, row: int) -> np.ndarray:
        width = int(self.header[at.WIDTH])
        return words_at(self.header[at.ROWS] + row * width * 8, width)

    def _all_words(self) -> list[list[int]]:
        """The words of every row by its number, free ones too: read at once in a tenth of the time of one by one."""
        used, width = int(self.header[at.USED]), int(self.header[at.WIDTH])
        found: list[list[int]] = words_at(self.header[at.ROWS], used * width).reshape(used, width).tolist()
        return found

    def _live_rows(self) -> list[int]:
        h = self.header
        slots = words_at(h[at.SLOTS], h[at.MASK] + 1)
        return sorted(int(slot & 0xFFFFFFFF) - 1 for slot in slots[slots != 0])

    def _check(self) -> None:
        """Assert every invariant of slots, free list, indexes, lists and group sums. O(rows), between epochs only."""
        h, words, live, count = self.header, self._all_words(), self._live_rows(), self.keys
        alive, first, width = set(live), int(h[at.ROWS]), int(h[at.WIDTH])
        assert len(live) == self.live and len(alive) == len(live), "slots and live count disagree"
        assert h[at.DIRTY_USED] == 0, "rows wait to be swept"
        slots = words_at(h[at.SLOTS], h[at.MASK] + 1)
        for slot in slots[slots != 0].tolist():
            address = first + ((slot & 0xFFFFFFFF) - 1) * width * 8
            assert kernels.hash_words(address, count) == slot >> 32, "a slot's hash is wrong"
        keys = {tuple(words[row][:count]) for row in live}
        assert len(keys) == len(live), "a key occurs twice"
        free, seen = int(h[at.FREE]), 0
        while free:
            seen += 1
            assert free - 1 not in alive, "a live row is on the free list"
            free = words[free - 1][0]
        assert seen + len(live) == h[at.USED], "rows leaked"
        for x, (places, group) in enumerate(zip(self.indexes, self.groups, strict=True)):
            self._check_index(x, places, group, live, words)
            group._check()

    def _check_index(
        self, x: int, places: tuple[int, ...], group: Table, live: list[int], words: list[list[int]]
    ) -> None:
        from sqlfront.storage.stores.checked_order import check_order

        first, width = int(self.header[at.ROWS]), int(self.header[at.WIDTH])
        expected: dict[tuple[int, ...], list[int]] = {}
        for row in live:
            if ordering.is_listed(self.address, x, first + row * width * 8):
                expected.setdefault(tuple(words[row][p] for p in places), []).append(row)
        groups, count = group._all_words(), group.keys
        found = {tuple(groups[row][:count]): row for row in group._live_rows()}
        assert found.keys() == expected.keys(), "groups and members disagree"
        link, last = int(self.header[at.LINKS]) + 2 * x, int(group.header[at.TAIL])
        for row in live:
            assert words[row][link + 1] & 0x80000000 == 0, "a row that is in no list has no number of a group"
        for key, group_row in found.items():
            tail = groups[group_row][last]
            head, size = tail & 0xFFFFFFFF, tail >> 32
            assert size == len(expected[key]), "a group's size is wrong"
            members, back, skip = [], [], []
            while head:
                members.append(head - 1)
                own = words[head - 1]
                back.append((own[link] >> 32 & 0xFFFFFFFF) - 1)
                skip.append((own[link + 1] >> 32 & 0xFFFFFFFF) - 1)
                assert own[link + 1] & 0xFFFFFFFF == group_row, "a member's group is wrong"
                head = own[link] & 0xFFFFFFFF
            assert back == members[-1:] + members[:-1], "a back link is wrong"
            assert sorted(members) == expected[key], "a list misses members"
            if not self.header[at.ORDER] or int(words_at(self.header[at.ORDER], 1)[0]) != x:
                assert skip == [*members, -1, -1][2:], "a link to the next member but one is wrong"
            else:
                root = groups[group_row][last + 1] & 0xFFFFFFFF
                check_order(self.address, self.header, self._row, members, link, root)
            for v in range(group.values):
                total = sum(_number(words[row], self.keys + v * self.limbs, self.limbs) for row in members)
                assert total == _number(groups[group_row], count + v * group.limbs, group.limbs), (
                    "a group's sum is wrong"
                )


def _number(words: Sequence[int], place: int, limbs: int) -> int:
    """A number of so many words, the lowest first; the highest has the sign."""
    if limbs == 1:
        return words[place]
    low = sum((words[place + i] & 0xFFFFFFFFFFFFFFFF) << 64 * i for i in range(limbs - 1))
    return low + (words[place + limbs - 1] << 64 * (limbs - 1))
