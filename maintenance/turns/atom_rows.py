"""The rows of one atom as arrays of code words, as a read that finds rows in turn works on them.

Values that rows join by are numbered across the atoms, by hashing. Values that are compared are numbers in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.planner.model.distinct_turns import Extreme, Range
from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.kernels.layout import NULL_CODE, ORDER_HIGH
from sqlfront.storage.kernels.tables import upkeep

Where = Mapping[str, tuple[int, ...]]


class AtomRows:
    """Rows of an atom: the words of each variable, and how many rows there are. `read` counts the rows of the table."""

    def __init__(self, tree: Tree, atom: str, where: Where) -> None:
        leaf = tree.leaves[atom]
        assert leaf.table is not None and leaf.shape is not None
        table = leaf.table
        found = np.empty((table.used, table.keys + table.limbs), np.int64)
        found = found[: upkeep.copy_rows(table.address, 0, table.used, found.ctypes.data)]
        self.read = self.count = len(found)
        self._codecs = tree.codecs
        places = {variable: leaf.shape.places([variable]) for variable in leaf.shape.variables}
        self.words = {name: [np.ascontiguousarray(found[:, p]) for p in own] for name, own in places.items()}
        for variable in self.words.keys() & where.keys():
            for place, wanted in enumerate(where[variable]):
                self.keep(np.flatnonzero(self.words[variable][place] == wanted))

    def keep(self, rows: np.ndarray) -> None:
        """Keep the rows at these places alone, in this order."""
        self.words = {name: [word[rows] for word in own] for name, own in self.words.items()}
        self.count = len(rows)

    def of(self, variables: Iterable[str]) -> list[np.ndarray]:
        """The words of some variables."""
        return [word for variable in variables for word in self.words[variable]]

    def ordered(self, variable: str) -> np.ndarray:
        """The values of a variable, none of which is NULL, as numbers in their order."""
        return _in_order(self._codecs[variable], self.words[variable])

    def reduced(self, variables: Sequence[str], extreme: Extreme | None) -> np.ndarray:
        """The place of one row of those that have these variables in common: with the greatest or least value of
        another. O(rows)."""
        [ids] = numbered([self.of(variables)], [self.count])
        values = np.zeros(self.count, np.int64) if extreme is None else self.ordered(extreme.variable)
        return best_rows(ids, values, greatest=extreme is None or extreme.greatest)


class RangeRuns:
    """For each row of one atom the run of rows of another that join it, once the other is in `order`: `begins` and
    `counts`.

    Invariant: in this order rows are numbered by what they join by, then by the rank of the compared value, so one
    search finds an end of a run.
    """

    def __init__(self, atom: AtomRows, others: AtomRows, joined: Range) -> None:
        """The runs of `atom` for each row of `others`. O(rows log rows)."""
        own, their = numbered([atom.of(joined.by), others.of(joined.by)], [atom.count, others.count])
        values = np.zeros(atom.count, np.int64) if joined.variable is None else atom.ordered(joined.variable)
        ranks, place = np.unique(values, return_inverse=True)
        step = len(ranks) + 1
        keys = own * step + place
        self.order = np.argsort(keys, kind="stable")
        keys = keys[self.order]
        low, high = np.zeros(others.count, np.int64), np.full(others.count, len(ranks))
        for test in joined.tests:
            bound = others.ordered(test.left if test.right == joined.variable else test.right)
            strict = test.operator in ("<", ">")
            if (test.operator in ("<", "<=")) == (test.right == joined.variable):
                low = np.searchsorted(ranks, bound, "right" if strict else "left")
            else:
                high = np.searchsorted(ranks, bound, "left" if strict else "right")
        self.begins = np.searchsorted(keys, their * step + low)
        self.counts = np.maximum(np.searchsorted(keys, their * step + high) - self.begins, 0)

    def keep(self, rows: np.ndarray) -> None:
        """Keep the runs of some of the rows that join, in this order."""
        self.begins, self.counts = self.begins[rows], self.counts[rows]


def numbered(sides: Sequence[Sequence[np.ndarray]], sizes: Sequence[int]) -> list[np.ndarray]:
    """A number for each row of sides of these sizes, equal where all their words are. O(rows)."""
    found = np.zeros(sum(sizes), np.int64)
    for words in zip(*sides, strict=True):
        codes = first_numbers(np.concatenate(words))
        found = first_numbers(found * (int(codes.max(initial=0)) + 1) + codes)
    return np.split(found, np.cumsum(sizes)[:-1])


def best_rows(groups: np.ndarray, values: np.ndarray, *, greatest: bool) -> np.ndarray:
    """The place of a row with the greatest value of each group, or the least. Groups are numbered from 0 on.

    O(rows).
    """
    sought = values if greatest else ~values
    most = np.full(int(groups.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(most, groups, sought)
    found, places = np.empty(len(most), np.int64), np.flatnonzero(sought == most[groups])
    found[groups[places]] = places
    return found


def first_numbers(values: np.ndarray) -> np.ndarray:
    """The numbers of values, from 0 on, as they come first."""
    return np.asarray(arrow_numbers(values).dictionary_encode().indices.to_numpy(), np.int64)


def _in_order(codec: Codec, words: Sequence[np.ndarray]) -> np.ndarray:
    """Code words of values that are not NULL as numbers in the order of the values, as kernels compare them."""
    [(_, kind, operand)], [word] = order_places(codec, 0), words
    if not operand:
        return word
    found = np.where(word == operand, NULL_CODE, word)
    return found - np.int64(1) if kind == ORDER_HIGH else found
