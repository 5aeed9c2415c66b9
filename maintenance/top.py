"""Reading an order's ranked trees: its rows in order, a batch at a time, as a source of raw columns."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np

from maintenance.exact import key_sums, numbers
from maintenance.ranked import RankedIndex, RankedNode
from maintenance.ranked_branches import BranchRows, RankedBranches
from maintenance.ranked_union import RankedUnion
from maintenance.seek import Start
from maintenance.shapes import COUNT, Part
from maintenance.walk import BATCH
from storage import any_k_kernels as kernels
from storage import layout as at
from storage import scan_kernels
from storage.jit import entry_point
from storage.order_kernels import sort_addresses

_open_read, _next_answers = entry_point(kernels.open_read), entry_point(kernels.next_answers)
_gather_answers = entry_point(kernels.gather_answers)
_FIRST, _WHOLE = 4, 4096

Block = tuple[np.ndarray, np.ndarray]


class RankedWalk:
    """One ranked enumeration in progress, valid until the state changes. O(log N) a row; O(1) to begin, or O(log N) and
    the rows passed over where it has a `start`, which only a tree has.

    It changes nothing but its own memory, which grows by a constant number of cells with each row. Rows whose sum is
    NULL compare by what comes after it, which no part of a row tells; so they are sorted among themselves when the
    walk comes to them.
    """

    def __init__(self, index: RankedIndex | RankedUnion | RankedBranches, start: Start | None = None) -> None:
        self._index, self._start = index, start
        self._answers = _answers_of(index, start)
        self._nodes, self._key = len(index.nodes), len(index.layout.entries)
        self._sums = index.layout.sums
        self._ahead = self._batch = self._nothing()
        self._sorted = 0
        self.rows = 0

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance by up to `capacity` tuples; the number of those now in the batch, 0 at the end."""
        self._batch = self._block(capacity)
        while self._start is not None and len(self._batch[0]):
            self._batch = self._start.behind(self._batch)
            if len(self._batch[0]) or self._start.ended:
                break
            self._batch = self._block(capacity)
        self.rows = len(self._batch[0])
        return self.rows

    @property
    def steps(self) -> int:
        """Elementary steps so far: slots looked at, cells compared."""
        return self._answers.steps

    @property
    def cells(self) -> int:
        """How many cells have been made: what the walk keeps in memory."""
        return self._answers.cells

    def gather(self, places: np.ndarray) -> np.ndarray:
        """The words of the batch's rows at `places`, rows of (node, word); one row for each place."""
        out = np.empty((len(places), self.rows), np.int64)
        addresses = address_of(self._batch[0])
        _gather_answers(addresses, self._nodes, self.rows, address_of(places), len(places), address_of(out))
        return out

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the tuples of the batch."""
        return list(self.gather(self._index.source(variable)))

    def sums(self, number: int) -> list[int | None]:
        """The value of a term that is a sum for the tuples of the batch, times the term's `whole`; None for NULL."""
        return key_sums(self._index.order, self._index.layout, self._batch[1], number)

    def values(self, part: Part) -> np.ndarray:
        """How often each tuple occurs, shape (rows, limbs); no other part is kept."""
        assert part == COUNT
        factors = [(leaf.number, leaf.shape.keys, leaf.shape.limbs) for leaf in self._index.leaves.values()]
        limbs = max(limbs for _, _, limbs in factors)
        operands = np.array(factors, np.int64)
        temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        while True:
            out = np.empty((self.rows, limbs), np.int64)
            overflow = scan_kernels.gather_product(
                address_of(self._batch[0]), self._nodes, address_of(operands), len(factors),
                address_of(out), limbs, self.rows, address_of(temporary),
            )  # fmt: skip
            if not overflow:
                return out
            limbs += 1

    def all_ones(self, part: Part) -> bool:
        """Whether each tuple occurs once."""
        values = self.values(part)
        return values.shape[1] == 1 and bool((values == 1).all())

    def anchors(self) -> np.ndarray:
        """The words by which the batch's tuples are ordered apart, shape (rows, words)."""
        root = self._index.root
        places = [(root.number, place) for place in root.shape.places(root.link)]
        return self.gather(np.array(places, np.int64).reshape(-1, 2)).T

    # Rows as they are found, and those whose sums are NULL -----------------------------------------

    def _nothing(self) -> Block:
        return np.empty((0, self._nodes), np.int64), np.empty((0, self._key), np.int64)

    def _block(self, capacity: int) -> Block:
        return self._take(capacity) if self._sums else self._answers.fetch(capacity)

    def _take(self, capacity: int) -> Block:
        """The next rows where sums may be NULL; of what has been fetched ahead, `_sorted` rows are in their places."""
        if not self._sorted:
            if not len(self._ahead[0]):
                self._ahead = self._answers.fetch(capacity)
            keys = self._ahead[1]
            missing = keys[:, self._sums[0]] != 0
            for place in self._sums[1:]:
                missing |= keys[:, place] != 0
            self._sorted = int(missing.argmax()) if missing.any() else len(keys)
            if len(keys) and not self._sorted:
                self._sort_block()
        count = min(capacity, self._sorted)
        found = np.ascontiguousarray(self._ahead[0][:count]), self._ahead[1][:count]
        self._ahead = self._ahead[0][count:], self._ahead[1][count:]
        self._sorted -= count
        return found

    def _sort_block(self) -> None:
        """Fetch all rows that are equal to the first one up to its first sum that is NULL, as theirs is; sort them."""
        addresses, keys = self._ahead
        first = keys[0].copy()
        place = next(place for place in self._sums if first[place] > 0)
        size = 0
        while True:
            inside = (keys[size:, :place] == first[:place]).all(axis=1) & (keys[size:, place] > 0)
            if not inside.all():
                size += int(inside.argmin())
                break
            size = len(keys)
            more = self._answers.fetch(_WHOLE)
            if not len(more[0]):
                break
            addresses, keys = np.concatenate([addresses, more[0]]), np.concatenate([keys, more[1]])
        block = np.ascontiguousarray(keys[:size])
        for null in self._sums:
            block[block[:, null] > 0, null : null + 3] = (1, 0, 0)
        order = _sorted_places(self._index.root, block)
        self._ahead = np.concatenate([addresses[order], addresses[size:]]), np.concatenate([keys[order], keys[size:]])
        self._sorted = size


def _answers_of(index: RankedIndex | RankedUnion | RankedBranches, start: Start | None) -> _Answers | _Merged:
    """The rows of an order by their keys."""
    nodes = len(index.nodes)
    if isinstance(index, RankedUnion):
        picked = [_Picked(one, index.places(one)) for one in index.indexes]
        return _Merged(picked, index.root, nodes, distinct=False)
    if isinstance(index, RankedBranches):
        return _Merged([_Words(index, one) for one in index.branches], index.root, nodes, distinct=index.distinct)
    return _Answers(index, start)


class _Answers:
    """The rows of one ranked tree by their keys."""

    def __init__(self, index: RankedIndex, start: Start | None = None) -> None:
        self._plan, self._start = index.plan_words(), start
        self._read = _open_read(address_of(self._plan), 0 if start is None else start.address)
        self._finalizer = weakref.finalize(self, kernels.close_read, self._read)
        self._nodes, self._key = len(index.nodes), len(index.layout.entries)

    @property
    def steps(self) -> int:
        return ctypes.c_int64.from_address(self._read + 8 * at.STEPS).value

    @property
    def cells(self) -> int:
        return ctypes.c_int64.from_address(self._read + 8 * kernels.CELLS_USED).value

    def fetch(self, capacity: int) -> Block:
        """The next rows: addresses of what each is made of, and keys; none at the end."""
        addresses, keys = np.empty((capacity, self._nodes), np.int64), np.empty((capacity, self._key), np.int64)
        rows = _next_answers(self._read, capacity, address_of(addresses), address_of(keys))
        return addresses[:rows], keys[:rows]


class _Source:
    """What a merged order reads, and what that has cost."""

    def __init__(self, read: _Answers | RankedWalk) -> None:
        self._read = read

    @property
    def steps(self) -> int:
        return self._read.steps

    @property
    def cells(self) -> int:
        return self._read.cells


class _Picked(_Source):
    """The rows of one of the trees that a union's pieces have, with the addresses of leaves alone."""

    def __init__(self, index: RankedIndex, places: list[int]) -> None:
        self._answers, self._places = _Answers(index), places
        super().__init__(self._answers)

    def fetch(self, capacity: int) -> Block:
        """As `_Answers` has it."""
        addresses, keys = self._answers.fetch(capacity)
        return addresses[:, self._places], keys


class _Words(_Source):
    """The rows of a branch as words of the union's columns, with how often each occurs; they stay as long as this."""

    def __init__(self, union: RankedBranches, branch: BranchRows) -> None:
        self._walk, self._branch = RankedWalk(branch.index), branch
        super().__init__(self._walk)
        self._keys, self._copied = union.root.shape.keys, union.copied
        self._made: list[np.ndarray] = []

    def fetch(self, capacity: int) -> Block:
        """As `_Answers` has it: the address of each row's words, and keys; fewer than `capacity` rows are the last."""
        words = np.ones((capacity, self._keys + 1), np.int64)
        rows = 0
        while rows < capacity and self._walk.next(capacity - rows):
            block = words[rows : rows + self._walk.rows]
            rows += self._walk.rows
            place = 0
            for read in self._branch.columns:
                for word in read(self._walk):
                    block[:, place] = word
                    place += 1
            if self._branch.counted:
                block[:, place] = numbers(self._walk, COUNT)
        self._made.append(words)
        addresses = address_of(words) + np.arange(rows) * words.strides[0]
        return addresses.reshape(-1, 1), words[:rows, self._copied]


class _Merged:
    """The rows of several sources by their keys, equal ones once if they are to be `distinct`: what has been fetched of
    all is merged as far as the source that has shown least goes, which is then asked for more, twice as many each time.

    `order` has a table in whose order keys compare, `nodes` is the number of addresses that each row has.
    """

    def __init__(self, sources: Sequence[_Picked | _Words], order: RankedNode, nodes: int, *, distinct: bool) -> None:
        assert order.table is not None
        self._sources, self._order, self._distinct = sources, order, distinct
        width = int(order.table.header[at.RANKS])
        self._rest = np.empty((0, nodes), np.int64), np.empty((0, width), np.int64)
        self._last = np.empty((0, width), np.int64)
        self._origins = np.empty(0, np.int64)
        self._ended = np.zeros(len(sources), bool)
        self._asked = np.full(len(sources), _FIRST)
        self._ready = 0

    @property
    def steps(self) -> int:
        return sum(source.steps for source in self._sources)

    @property
    def cells(self) -> int:
        return sum(source.cells for source in self._sources)

    def fetch(self, capacity: int) -> Block:
        """As `_Answers` has it."""
        while not self._ready and not (self._ended.all() and not len(self._origins)):
            self._merge()
        count = min(capacity, self._ready)
        addresses, keys = self._rest
        self._rest, self._origins = (addresses[count:], keys[count:]), self._origins[count:]
        self._ready -= count
        return np.ascontiguousarray(addresses[:count]), np.ascontiguousarray(keys[:count])

    def _merge(self) -> None:
        """Ask the sources of which nothing is left; the rows that come before the last one of every source are
        ready."""
        waiting = np.flatnonzero(~self._ended & (np.bincount(self._origins, minlength=len(self._sources)) == 0))
        blocks = [self._rest]
        for number in waiting.tolist():
            block = self._sources[number].fetch(int(self._asked[number]))
            self._ended[number] = len(block[1]) < self._asked[number]
            self._asked[number] = min(2 * self._asked[number], _WHOLE)
            blocks.append(block)
        origins = np.repeat(waiting, [len(keys) for _, keys in blocks[1:]])
        addresses, keys = (np.ascontiguousarray(np.concatenate(side)) for side in zip(*blocks, strict=True))
        order = _sorted_places(self._order, keys)
        self._rest = addresses[order], keys[order]
        self._origins = np.concatenate([self._origins, origins])[order]
        last = [np.flatnonzero(self._origins == number)[-1] for number in np.flatnonzero(~self._ended)]
        self._ready = int(min(last)) + 1 if last else len(order)
        if self._distinct:
            self._pass_over_equal()

    def _pass_over_equal(self) -> None:
        """Leave out the rows that are equal to the one before them, which may have been fetched already."""
        addresses, keys = self._rest
        known = np.concatenate([self._last, keys])
        kept = np.ones(len(known), bool)
        kept[1:] = (known[1:] != known[:-1]).any(axis=1)
        kept = kept[len(self._last) :]
        if self._ready:
            self._last = keys[self._ready - 1 : self._ready]
        self._rest, self._origins = (addresses[kept], keys[kept]), self._origins[kept]
        self._ready = int(kept[: self._ready].sum())


def _sorted_places(root: RankedNode, keys: np.ndarray) -> np.ndarray:
    """In which order rows of keys come in the groups of a tree's root."""
    assert root.table is not None
    places = address_of(keys) + np.arange(len(keys)) * keys.strides[0]
    sort_addresses(int(root.table.header[at.ORDER]), address_of(places), len(keys))
    return (places - address_of(keys)) // keys.strides[0]


def address_of(array: np.ndarray) -> int:
    """Where an array's words lie. A fifth of the time that `ctypes.data` takes."""
    address: int = array.__array_interface__["data"][0]
    return address
