"""Where a walk along a ranked tree begins that is asked for the rows after given values of its order's first terms.

Of a term whose variable the tree's root has, all completions of a root's row have the same value. So of the leading
ones of these terms the root's list is in order too, and its first row that is not before the values is found in the
tree of that list: O(log N). What its completions and those of equal rows have before the values in other terms is
passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from maintenance.ranked import RankedIndex
from maintenance.ranked_union import RankedOrder
from storage import any_k_kernels as kernels
from storage import layout as at
from storage.encoding import Codec
from storage.jit import entry_point

Block = tuple[np.ndarray, np.ndarray]

_passed_over = entry_point(kernels.passed_over)


@dataclass(frozen=True)
class After:
    """The rows of an order after values of its first terms, which are variables as they are: those that have all of
    them too if it is `inclusive`, and those with a NULL that comes after a value if `nulls` count. They all have the
    first of the values, `fixed` of them."""

    values: tuple[tuple[str, Any], ...]
    inclusive: bool
    nulls: bool
    fixed: int = 0


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


class Start:
    """The start of one walk along a ranked tree whose order is `sought`. What stands for a string that no row has is
    valid until the state changes."""

    def __init__(self, index: RankedOrder, after: After, codecs: Mapping[str, Codec]) -> None:
        assert isinstance(index, RankedIndex) and index.root.table is not None
        words = [codecs[variable].encode_value(value) for variable, value in after.values]
        self._terms = list(zip(index.layout.starts, map(np.array, words), strict=False))
        self._bound = np.array([word for one in words for word in one], np.int64)
        self._nulls, self._fixed, self._found, self.ended = after.nulls, after.fixed, False, False
        decided = min(len(words), len(sought(index)))
        begun = sum(map(len, words[:decided]))
        rank_words = int(index.root.table.header[at.TAIL]) + 1
        self._whole = self._test(index, 0, len(self._bound), after.inclusive)
        self._root = self._test(index, rank_words, begun, after.inclusive or decided < len(words))

    @property
    def address(self) -> int:
        """Where the root's rows that are walked begin, as the kernels read it."""
        return self._root.ctypes.data

    def behind(self, block: Block) -> Block:
        """The rows of a block that come after the values. Blocks come in order; none follows once it has `ended`."""
        addresses, keys = block
        if not self._found:
            keys = np.ascontiguousarray(keys)
            first = _passed_over(self._whole.ctypes.data, keys.ctypes.data, keys.shape[1], len(keys))
            self._found = first < len(keys)
            addresses, keys = addresses[first:], keys[first:]
        equal = np.ones(len(keys), bool)
        for place, words in self._terms[: self._fixed]:
            equal &= (keys[:, place : place + len(words)] == words).all(axis=1)
        if not equal.all():
            self.ended, inside = True, int(np.flatnonzero(~equal)[0])
            addresses, keys, equal = addresses[:inside], keys[:inside], equal[:inside]
        bounds = self._terms[self._fixed :]
        if self._nulls or not bounds or not len(keys):
            return addresses, keys
        missing = np.zeros(len(keys), bool)
        for place, words in bounds:
            missing |= equal & (keys[:, place] == at.NULL_CODE)
            equal &= (keys[:, place : place + len(words)] == words).all(axis=1)
        self.ended |= bool(keys[-1, bounds[0][0]] == at.NULL_CODE)
        return addresses[~missing], keys[~missing]

    def _test(self, index: RankedIndex, place: int, words: int, inclusive: bool) -> np.ndarray:
        """The values' address, and the test of so many rank words, which lie at `place`, against them."""
        passing = at.PASS_LESS | (at.PASS_EQUAL if inclusive else 0)
        entries = [word for entry in index.layout.entries[:words] for word in entry]
        return np.array([self._bound.ctypes.data, passing, 0, place, 0, words, *entries], np.int64)
