"""Reading an order's ranked trees: its rows in order, a batch at a time, as a source of raw columns."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from sqlfront.maintenance.program.metering import Meter, Metered
from sqlfront.maintenance.program.shapes import COUNT, Part
from sqlfront.maintenance.ranked.branches import BranchRows, RankedBranches
from sqlfront.maintenance.ranked.exact import key_sums, numbers
from sqlfront.maintenance.ranked.index import RankedIndex, RankedNode
from sqlfront.maintenance.ranked.index_union import RankedOrder, RankedUnion
from sqlfront.maintenance.ranked.keyset_start import KeysetStart
from sqlfront.maintenance.ranked.rounded import rounded_sums
from sqlfront.maintenance.ranked.window import Block, GroupedWindow, Window, sorted_places, words_at
from sqlfront.maintenance.tree.walk import BATCH
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import any_k as kernels
from sqlfront.storage.kernels.programs import scan

_open_read, _next_answers = entry_point(kernels.open_read), entry_point(kernels.next_answers)
_gather_answers = entry_point(kernels.gather_answers)
_FIRST, _WHOLE = 4, 4096


class RankedWalk(Metered):
    """One ranked enumeration in progress, valid until the state changes. O(log N) a row; O(1) to begin, or O(log N) and
    the rows passed over where it has a `start`.

    It changes nothing but its own memory, which grows by a constant number of cells with each row. Rows whose place
    their keys do not tell, by a sum that is NULL or rounded, pass through a window (see ranked/window.py).
    """

    def __init__(self, index: RankedOrder, start: KeysetStart | None = None, meter: Meter | None = None) -> None:
        super().__init__(meter)
        self._index, self._start = index, start
        self._answers = _answers_of(index, start)
        self._nodes, self._key = index.arity, len(index.layout.entries)
        self._take = _taking(index, self._answers)
        self._batch: Block = np.empty((0, self._nodes), np.int64), np.empty((0, self._key), np.int64)
        self.rows = 0

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance by up to `capacity` tuples; the number of those now in the batch, 0 at the end."""
        try:
            self._batch = self._take(capacity)
            while self._start is not None and len(self._batch[0]):
                self._batch = self._start.behind(self._batch)
                if len(self._batch[0]) or self._start.ended:
                    break
                self._batch = self._take(capacity)
        finally:  # Too many rows may have been passed over.
            self._tell()
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
        return _gather(self._batch[0], places)

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the tuples of the batch."""
        return list(self.gather(self._index.source(variable)))

    def sums(self, number: int) -> list[int | None]:
        """The value of a term that is an exact sum for the tuples of the batch, times the term's `whole`; None for
        NULL."""
        return key_sums(self._index.order, self._index.layout, self._batch[1], number)

    def rounded(self, number: int) -> list[float | None]:
        """The value of a term that is a rounded sum for the tuples of the batch; None for NULL."""
        values, missing = rounded_sums(self._index.order.terms[number], partial(_words, self._index, self._batch[0]))
        return [None if null else value for value, null in zip(values.tolist(), missing.tolist(), strict=True)]

    def values(self, part: Part) -> np.ndarray:
        """How often each tuple occurs, shape (rows, limbs); no other part is kept."""
        assert part == COUNT
        factors = [(leaf.number, leaf.shape.keys, leaf.shape.limbs) for leaf in self._index.leaves.values()]
        limbs = max(limbs for _, _, limbs in factors)
        operands = np.array(factors, np.int64)
        temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        while True:
            out = np.empty((self.rows, limbs), np.int64)
            overflow = scan.gather_product(
                words_at(self._batch[0]), self._nodes, words_at(operands), len(factors),
                words_at(out), limbs, self.rows, words_at(temporary),
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
        return _anchors(self._index, self._batch[0])


def _gather(addresses: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The words of rows at `places`, rows of (node, word); one row for each place."""
    rows, nodes = addresses.shape
    out = np.empty((len(places), rows), np.int64)
    _gather_answers(words_at(addresses), nodes, rows, words_at(places), len(places), words_at(out))
    return out


def _words(index: RankedOrder, addresses: np.ndarray, variable: str) -> np.ndarray:
    """The words of a variable of one word for rows of an order."""
    return _gather(addresses, index.source(variable))[0]


def _anchors(index: RankedOrder, addresses: np.ndarray) -> np.ndarray:
    """The words by which rows are ordered apart, shape (rows, words)."""
    root = index.root
    places = [(root.number, place) for place in root.shape.places(root.link)]
    return _gather(addresses, np.array(places, np.int64).reshape(-1, 2)).T


def _taking(index: RankedOrder, answers: _Answers | _Merged) -> Callable[[int], Block]:
    """What gives the next rows of an order as they are compared."""
    if not index.layout.sums:
        return answers.fetch
    window = partial(Window, index.order, index.layout, index.root, partial(_words, index))
    if not isinstance(index, RankedIndex) or (not index.root.link and not index.quota):
        return window(answers.fetch).take
    if not index.all_rows:
        return answers.fetch
    assert isinstance(answers, _Answers)
    anchors = partial(_anchors, index)
    return GroupedWindow(window, answers.fetch, anchors, answers.skip_group, index.quota).take


def _answers_of(index: RankedOrder, start: KeysetStart | None) -> _Answers | _Merged:
    """The rows of an order by their keys."""
    nodes = index.arity
    if isinstance(index, RankedUnion):
        picked = [_Picked(one, index.places(one)) for one in index.indexes]
        return _Merged(picked, index.root, nodes, distinct=index.distinct)
    if isinstance(index, RankedBranches):
        return _Merged([_Words(index, one) for one in index.branches], index.root, nodes, distinct=index.distinct)
    return _Answers(index, start)


class _Answers:
    """The rows of one ranked tree by their keys."""

    def __init__(self, index: RankedIndex, start: KeysetStart | None = None) -> None:
        self._plan, self._start = index.plan_words(), start
        self._read = _open_read(words_at(self._plan), 0 if start is None else start.address)
        self._finalizer = weakref.finalize(self, kernels.close_read, self._read)
        self._nodes, self._key = index.arity, len(index.layout.entries)

    @property
    def steps(self) -> int:
        return ctypes.c_int64.from_address(self._read + 8 * at.STEPS).value

    @property
    def cells(self) -> int:
        return ctypes.c_int64.from_address(self._read + 8 * kernels.CELLS_USED).value

    def skip_group(self) -> None:
        """Go on with the root's next group."""
        ctypes.c_int64.from_address(self._read + 8 * kernels.CHAIN).value = -1

    def fetch(self, capacity: int) -> Block:
        """The next rows: addresses of what each is made of, and keys; none at the end."""
        addresses, keys = np.empty((capacity, self._nodes), np.int64), np.empty((capacity, self._key), np.int64)
        rows = _next_answers(self._read, capacity, words_at(addresses), words_at(keys))
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
    """The rows of one of the trees that a union's pieces have, as addresses of what is at `places`."""

    def __init__(self, index: RankedIndex, places: np.ndarray) -> None:
        self._answers, self._places = _Answers(index), places
        super().__init__(self._answers)

    def fetch(self, capacity: int) -> Block:
        """As `_Answers` has it."""
        addresses, keys = self._answers.fetch(capacity)
        return addresses[:, self._places[:, 0]] + 8 * self._places[:, 1], keys


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
        addresses = words_at(words) + np.arange(rows) * words.strides[0]
        return addresses.reshape(-1, 1), words[:rows, self._copied]


class _Merged:
    """The rows of several sources by their keys, equal ones once if they are to be `distinct`: what has been fetched of
    all is merged as far as the source that has shown least goes, which is then asked for more, twice as many each time.

    `order` has a table in whose order keys compare, `nodes` is the number of addresses that each row has.
    """

    def __init__(self, sources: Sequence[_Picked | _Words], order: RankedNode, nodes: int, *, distinct: bool) -> None:
        assert order.table is not None
        self._sources, self._order, self._distinct = sources, order, distinct
        width = order.table.rank_words
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
        order = sorted_places(self._order, keys)
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
