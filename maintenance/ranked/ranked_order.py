"""The source of an ordered read: one ranked tree, the ranked trees of part trees, or the ranked trees of branches."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from sqlfront.maintenance.relation.attachment import Attachment
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from sqlfront.maintenance.ranked.index import KeyLayout, RankedIndex, RankedNode
    from sqlfront.maintenance.ranked.tree_cursor import Cursor
    from sqlfront.planner.model.query import Order


class RankedOrder(Attachment):
    """One order of a view. `root` has a table in whose order keys compare, by the rank words that `layout` tells; if
    `distinct`, rows of equal keys are one row.

    Of each of the root's groups, if the order `is_grouped`, reads go on to at most `quota` different rows (0: all);
    with `all_rows` their reader counts them. `leaves` say how often a row occurs, by the places of their addresses in
    it.
    """

    order: Order
    layout: KeyLayout
    distinct: bool
    root: RankedNode
    quota = 0
    all_rows = False
    is_grouped = False

    @property
    @abstractmethod
    def arity(self) -> int:
        """Of how many addresses a row is made."""

    @property
    @abstractmethod
    def leaves(self) -> Mapping[str, RankedNode]: ...

    def trees(self) -> list[RankedIndex]:
        """The ranked trees that are the order's own; none if others keep them."""
        return []

    def tables(self) -> list[Table]:
        """The tables of its own trees, which are swept by the steps of `add_ranking`."""
        return [table for tree in self.trees() for table in tree.tables()]

    @abstractmethod
    def source(self, variable: str) -> np.ndarray:
        """Where the words of a variable are found: (place in a row, word) for each."""

    @abstractmethod
    def cursor(self, begin: int = 0) -> Cursor:
        """The rows by their keys, from a place in the root on, as kernels read it (0: from the first on)."""
