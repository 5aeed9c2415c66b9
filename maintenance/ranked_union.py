"""The ranked trees of a union's pieces, which have no row in common, as one order of the view.

What reads an order sees of each row the rows of the atoms' leaves alone, which all pieces have.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from maintenance.programs import Assembler
from maintenance.ranked import RankedIndex, RankedNode
from maintenance.ranked_branches import RankedBranches
from storage.table import Table


class RankedUnion:
    """One order of a view whose pieces keep a ranked tree each, `indexes`; their paths are the pieces' (pieces.py)."""

    def __init__(self, indexes: list[RankedIndex]) -> None:
        self.indexes = indexes
        first = indexes[0]
        self.order, self.layout, self.distinct, self.root = first.order, first.layout, first.distinct, first.root
        self._atoms = list(first.leaves)

    @property
    def nodes(self) -> list[RankedNode]:
        """What a row is made of."""
        return list(self.leaves.values())

    @property
    def leaves(self) -> dict[str, RankedNode]:
        """The leaf of each atom, by its place in a row."""
        return {atom: replace(self.indexes[0].leaves[atom], number=i) for i, atom in enumerate(self._atoms)}

    def places(self, index: RankedIndex) -> list[int]:
        """Where the leaves are in a row of one of the trees."""
        return [index.leaves[atom].number for atom in self._atoms]

    def tables(self) -> list[Table]:
        return [table for index in self.indexes for table in index.tables()]

    def add_ranking(self, assembler: Assembler, atoms: set[str]) -> None:
        """Add the steps that bring the trees up to date with changes of these atoms."""
        for index in self.indexes:
            index.add_ranking(assembler, atoms)

    def source(self, variable: str) -> np.ndarray:
        """Where the words of a variable are found: (place of a leaf, place) for each."""
        leaf = next(leaf for leaf in self.nodes if variable in leaf.node.variables)
        return np.array([(leaf.number, place) for place in leaf.shape.places([variable])], np.int64)


def ranked_trees(order: RankedIndex | RankedUnion | RankedBranches | None) -> list[RankedIndex]:
    """The ranked trees that an order of a view has of its own."""
    if isinstance(order, RankedUnion):
        return order.indexes
    return [order] if isinstance(order, RankedIndex) else []
