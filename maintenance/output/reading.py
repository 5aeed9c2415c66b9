"""What a view is read from: its tree, the trees of a union, one after the other or merged, or a ranked tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from sqlfront.maintenance.heavy_light.union_enumeration import PartTreeRows, UnionEnumeration
from sqlfront.maintenance.program.rows import RowSource
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.ranked.cursor import RankedRows, RankedWalk
from sqlfront.maintenance.ranked.keyset_start import equal_start
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.windows.order_walk import OrderWalk, partition_walk
from sqlfront.maintenance.windows.qualified_rows import qualified_walk
from sqlfront.planner.model.plan import RowsIn

Where = Mapping[str, tuple[int, ...]]


class ViewRows(Protocol):
    """Where a view's rows are. `trees` are walked: none if rows are found along a ranked tree. `single` is the tree
    that alone has them, if one does."""

    single: Tree | None
    trees: list[Tree]

    def read(
        self, where: Where | None, variables: Iterable[str], parts: Iterable[Part], by_order: bool
    ) -> RowSource: ...

    def merged(self) -> UnionEnumeration | None:
        """The reading that merges trees which may have a tuple in common; None if no two may."""
        ...


def rows_of(view: MaintainedView) -> ViewRows:
    """Where the rows of a view are."""
    if view.plan.rows_in == RowsIn.RANKED_TREE:
        return RankedRows(view.ranked[0], view.reads)
    if view.tree.is_shared and view.balance is not None:
        return PartTreeRows(view.balance.part_trees, view.reads)
    return TreeRows(view)


def read(
    view: MaintainedView,
    where: Where | None = None,
    variables: Iterable[str] = (),
    parts: Iterable[Part] = (),
    by_order: bool = True,
) -> RowSource:
    """The rows of a view's core, as `Walk` has them; `where` may narrow them: by a key or an index of the tree, or, if
    `by_order`, by an order of the view. A view that is the first rows of its order has them in order, and all that the
    order goes on with."""
    return rows_of(view).read(where, tuple(variables), tuple(parts), by_order)


class TreeRows:
    """The rows of a view whose tree has them all."""

    def __init__(self, view: MaintainedView) -> None:
        self._view, self.trees = view, [view.tree]
        self.single: Tree | None = view.tree

    def read(self, where: Where | None, variables: Iterable[str], parts: Iterable[Part], by_order: bool) -> RowSource:
        view, windows = self._view, self._view.windows
        if not where and windows is not None:
            return qualified_walk(windows, {}, view.reads) or OrderWalk(windows.kept[0], view.reads)
        walk = Walk(view.tree, where, variables, parts, view.reads)
        if not where or not walk.scans:
            return walk
        if windows is not None:
            qualified = qualified_walk(windows, where, view.reads)
            found: RowSource | None = qualified or partition_walk(windows, where, view.reads)
            if found is not None:
                return found
        return (self._ordered(where) if by_order else None) or walk

    def _ordered(self, where: Where) -> RankedWalk | None:
        """The rows that have these codes along an order of the view whose first terms they are; None if there is
        none."""
        for index in self._view.ranked.values():
            if (start := equal_start(index, where)) is not None:
                return RankedWalk(index, start, self._view.reads)
        return None

    def merged(self) -> None:
        return None
