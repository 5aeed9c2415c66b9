"""Reading an order's ranked trees: its rows in order, a batch at a time, as a source of rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from sqlfront.maintenance.program.metering import Meter, Metered
from sqlfront.maintenance.program.rows import BATCH, RowSource
from sqlfront.maintenance.program.shapes import COUNT, Part
from sqlfront.maintenance.ranked.exact import key_sums
from sqlfront.maintenance.ranked.keyset_start import KeysetStart, StartCursor
from sqlfront.maintenance.ranked.ranked_order import RankedOrder
from sqlfront.maintenance.ranked.rounded import rounded_sums
from sqlfront.maintenance.ranked.tree_cursor import Block, Cursor, TreeCursor
from sqlfront.maintenance.ranked.window import GroupedWindow, Window
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import any_k as kernels
from sqlfront.storage.kernels.programs import scan
from sqlfront.storage.stores.row_addresses import address_of

_gather_answers = entry_point(kernels.gather_answers)


class RankedRows:
    """The rows of a view that are found along its first order, and nowhere else."""

    single: Tree | None = None

    def __init__(self, order: RankedOrder, meter: Meter) -> None:
        self._order, self._meter, self.trees = order, meter, list[Tree]()

    def read(self, where: object, variables: Iterable[str], parts: Iterable[Part], by_order: bool) -> RowSource:
        return RankedWalk(self._order, None, self._meter)

    def merged(self) -> None:
        return None


class RankedWalk(Metered):
    """One ranked enumeration in progress, valid until the state changes. O(log N) a row; O(1) to begin, or O(log N) and
    the rows passed over where it has a `start`.

    It changes nothing but its own memory, which grows by a constant number of cells with each row. Rows whose place
    their keys do not tell, by a sum that is NULL or rounded, pass through a window (see ranked/window.py).
    """

    def __init__(self, index: RankedOrder, start: KeysetStart | None = None, meter: Meter | None = None) -> None:
        super().__init__(meter)
        self._index, self._nodes = index, index.arity
        self._cursor = _cursor_of(index, start)
        self._batch: Block = np.empty((0, self._nodes), np.int64), np.empty((0, len(index.layout.entries)), np.int64)
        self.rows = 0

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance by up to `capacity` tuples; the number of those now in the batch, 0 at the end."""
        try:
            self._batch = self._cursor.fetch(capacity)
        finally:  # Too many rows may have been passed over.
            self._tell()
        self.rows = len(self._batch[0])
        return self.rows

    @property
    def steps(self) -> int:
        """Elementary steps so far: slots looked at, cells compared."""
        return self._cursor.steps

    @property
    def cells(self) -> int:
        """How many cells have been made: what the walk keeps in memory."""
        return self._cursor.cells

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
        return _anchors(self._index, self._batch[0])


def _gather(addresses: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The words of rows at `places`, rows of (node, word); one row for each place."""
    rows, nodes = addresses.shape
    out = np.empty((len(places), rows), np.int64)
    _gather_answers(address_of(addresses), nodes, rows, address_of(places), len(places), address_of(out))
    return out


def _words(index: RankedOrder, addresses: np.ndarray, variable: str) -> np.ndarray:
    """The words of a variable of one word for rows of an order."""
    return _gather(addresses, index.source(variable))[0]


def _anchors(index: RankedOrder, addresses: np.ndarray) -> np.ndarray:
    """The words by which rows are ordered apart, shape (rows, words)."""
    root = index.root
    places = [(root.number, place) for place in root.shape.places(root.link)]
    return _gather(addresses, np.array(places, np.int64).reshape(-1, 2)).T


def _cursor_of(index: RankedOrder, start: KeysetStart | None) -> Cursor:
    """The rows of an order as they are compared, behind a start."""
    cursor = index.cursor(0 if start is None else start.address)
    window = partial(Window, index.order, index.layout, index.root, partial(_words, index))
    if index.layout.sums and not index.is_grouped:
        cursor = window(cursor)
    elif index.layout.sums and index.all_rows:
        assert isinstance(cursor, TreeCursor)
        cursor = GroupedWindow(window, cursor, partial(_anchors, index), index.quota)
    return cursor if start is None else StartCursor(cursor, start)
