"""The ranked trees of a union's part trees, which have no row in common, as one order of the view.

What reads an order sees of each row what all part trees have: the rows of the atoms' leaves or, of a distinct row, the
words of its variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.ranked.index import RankedIndex, RankedNode
from sqlfront.maintenance.ranked.merged_cursor import MergedCursor
from sqlfront.maintenance.ranked.ranked_order import RankedOrder
from sqlfront.maintenance.ranked.tree_cursor import PickedCursor


class RankedUnion(RankedOrder):
    """One order of a view whose part trees keep a ranked tree each: `indexes`. Their paths are those of part_trees.py.

    Rows that are counted are made of the atoms' leaves, which all trees have; `distinct` ones of their variables.
    """

    def __init__(self, indexes: list[RankedIndex], free: Sequence[str]) -> None:
        self.indexes = indexes
        first = indexes[0]
        self.order, self.layout, self.distinct, self.root = first.order, first.layout, first.distinct, first.root
        read = dict.fromkeys((*free, *sorted(self.order.variables)))
        self._members = tuple(read) if self.distinct else tuple(first.leaves)

    @property
    def arity(self) -> int:
        return len(self._members)

    def trees(self) -> list[RankedIndex]:
        return self.indexes

    @property
    def leaves(self) -> dict[str, RankedNode]:
        """The leaf of each atom that rows are made of, by its place in a row."""
        if self.distinct:
            return {}
        return {atom: replace(self.indexes[0].leaves[atom], number=i) for i, atom in enumerate(self._members)}

    def cursor(self, begin: int = 0) -> MergedCursor:
        """The rows by their keys; they are read from the first on."""
        picked = [PickedCursor(one.cursor(), self.places(one)) for one in self.indexes]
        return MergedCursor(picked, self.root, self.arity, distinct=self.distinct)

    def places(self, index: RankedIndex) -> np.ndarray:
        """Where what rows are made of is in a row of one of the trees: (number of a node, word) for each."""
        if self.distinct:
            return np.array([index.source(variable)[0] for variable in self._members], np.int64)
        return np.array([(index.leaves[atom].number, 0) for atom in self._members], np.int64)

    def add_ranking(self, assembler: Assembler, atoms: set[str]) -> None:
        for index in self.indexes:
            index.add_ranking(assembler, atoms)

    def source(self, variable: str) -> np.ndarray:
        if self.distinct:
            place = self._members.index(variable)
            return np.array([(place, word) for word in range(len(self.indexes[0].source(variable)))], np.int64)
        leaf = next(leaf for leaf in self.leaves.values() if variable in leaf.node.variables)
        return np.array([(leaf.number, place) for place in leaf.shape.places([variable])], np.int64)
