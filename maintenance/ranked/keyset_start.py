"""Where a walk along a ranked tree begins that is asked for the rows after given values of its order's first terms.

Of a term whose variable the tree's root has, all completions of a root's row have the same value. So of the leading
ones of these terms the root's list is in order too, and its first row that is not before the values is found in the
tree of that list: O(log N). What its completions and those of equal rows have before the values in other terms, sums
among them, is passed over, as OFFSET passes over rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.maintenance.ranked.ranked_order import RankedOrder
from sqlfront.maintenance.ranked.tree_cursor import Block, Cursor, CursorOver
from sqlfront.storage.codecs.encoding import Codec
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import any_k as kernels

_passed_over = entry_point(kernels.passed_over)


@dataclass(frozen=True)
class KeysetBound:
    """The rows of an order after values of its first terms, each a variable's or, of a sum (None), what its rank words
    hold: those that have all of them too if it is `inclusive`, and those with a NULL that comes after a value if
    `nulls` count. They all have the first of the values, `fixed` of them."""

    values: tuple[tuple[str | None, Any], ...]
    inclusive: bool
    nulls: bool
    fixed: int = 0

    def codes(self, codecs: Mapping[str, Codec]) -> list[Sequence[int]]:
        """The words of each value. The words of a string that is in no row are valid until the state changes."""
        return [
            [0, value >> 64, _signed(value)] if variable is None else codecs[variable].encode_value(value)
            for variable, value in self.values
        ]


def sought(index: RankedOrder) -> list[str]:
    """The variables of the leading terms by whose values a walk of an order can begin; none if it cannot."""
    found: list[str] = []
    if not isinstance(index, RankedIndex):
        return found
    for term in index.order.terms:
        if term.form != "value" or term.parts[0][1] not in index.root.node.variables:
            break
        found.append(term.parts[0][1])
    return found


def equal_start(index: RankedOrder, where: Mapping[str, tuple[int, ...]]) -> KeysetStart | None:
    """The start of a walk of the rows that have these codes in the leading terms; None if no walk can begin there."""
    leading = list(takewhile(where.__contains__, sought(index)))
    codes = [where[variable] for variable in leading]
    bound = KeysetBound(tuple(zip(leading, codes, strict=True)), inclusive=True, nulls=False, fixed=len(leading))
    return KeysetStart(index, bound, codes) if leading else None


class TooFar(Exception):
    """More rows have been passed over than are read sooner along the tree than all at once."""


class KeysetStart:
    """The start of one walk of an order: at a bound, whose values are given as their words.

    TooFar is raised once more than `most` rows are passed over (None: never).
    """

    def __init__(
        self, index: RankedOrder, after: KeysetBound, words: Sequence[Sequence[int]], most: int | None = None
    ) -> None:
        nulls = [0 if variable is None else at.NULL_CODE for variable, _ in after.values]
        self._terms = list(zip(index.layout.starts, map(np.array, words), nulls, strict=False))
        self._bound = np.array([word for one in words for word in one], np.int64)
        self._nulls, self._fixed, self._found, self.ended = after.nulls, after.fixed, False, False
        self._most, self._passed = most, 0
        decided = min(len(words), len(sought(index)))
        self._whole = self._test(index, 0, len(self._bound), after.inclusive)
        self._root = None
        if decided:
            assert index.root.table is not None
            begun = sum(map(len, words[:decided]))
            rank_words = index.root.table.rank_place
            self._root = self._test(index, rank_words, begun, after.inclusive or decided < len(words))

    @property
    def address(self) -> int:
        """Where the root's rows that are walked begin, as the kernels read it; 0: with the first."""
        return 0 if self._root is None else int(self._root.ctypes.data)

    def behind(self, block: Block) -> Block:
        """The rows of a block that come after the values. Blocks come in order; none follows once it has `ended`."""
        addresses, keys = block
        if not self._found:
            keys = np.ascontiguousarray(keys)
            first = _passed_over(self._whole.ctypes.data, keys.ctypes.data, keys.shape[1], len(keys))
            self._found, self._passed = first < len(keys), self._passed + first
            if self._most is not None and self._passed > self._most:
                raise TooFar
            addresses, keys = addresses[first:], keys[first:]
        equal = np.ones(len(keys), bool)
        for place, words, _ in self._terms[: self._fixed]:
            equal &= (keys[:, place : place + len(words)] == words).all(axis=1)
        if not equal.all():
            self.ended, inside = True, int(np.flatnonzero(~equal)[0])
            addresses, keys, equal = addresses[:inside], keys[:inside], equal[:inside]
        bounds = self._terms[self._fixed :]
        if self._nulls or not bounds or not len(keys):
            return addresses, keys
        missing = np.zeros(len(keys), bool)
        for place, words, null in bounds:
            missing |= equal & _is_null(keys[:, place], null)
            equal &= (keys[:, place : place + len(words)] == words).all(axis=1)
        place, _, null = bounds[0]
        self.ended |= bool(_is_null(keys[-1:, place], null).all())
        return addresses[~missing], keys[~missing]

    def _test(self, index: RankedOrder, place: int, words: int, inclusive: bool) -> np.ndarray:
        """The values' address, and the test of so many rank words, which lie at `place`, against them."""
        passing = at.PASS_LESS | (at.PASS_EQUAL if inclusive else 0)
        entries = [word for entry in index.layout.entries[:words] for word in entry]
        return np.array([self._bound.ctypes.data, passing, 0, place, 0, words, *entries], np.int64)


class StartCursor(CursorOver):
    """The rows of a cursor behind a start."""

    def __init__(self, cursor: Cursor, start: KeysetStart) -> None:
        super().__init__(cursor)
        self._cursor, self._start = cursor, start

    def fetch(self, capacity: int) -> Block:
        block = self._cursor.fetch(capacity)
        while len(block[0]):
            block = self._start.behind(block)
            if len(block[0]) or self._start.ended:
                break
            block = self._cursor.fetch(capacity)
        return block


def _is_null(words: np.ndarray, null: int) -> np.ndarray:
    """Whether terms are NULL by their first rank words: of a value it is `null`, a sum counts the NULLs in it."""
    return words == null if null else words != 0


def _signed(value: int) -> int:
    """The low word of a sum as int64."""
    low = value & (2**64 - 1)
    return low - 2**64 if low >> 63 else low
