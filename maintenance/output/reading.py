"""What a view is read from: its tree, trees of a union, one after the other or merged, a ranked tree, branches, or the
rows of its tables, in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sqlfront.maintenance.program.rows import BATCH, RowSource
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.ranked.cursor import RankedRows, RankedWalk
from sqlfront.maintenance.ranked.keyset_start import equal_start
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.windows.order_walk import OrderWalk, partition_walk
from sqlfront.maintenance.windows.qualified_rows import qualified_walk
from sqlfront.planner.model.plan import RowsIn

if TYPE_CHECKING:
    from sqlfront.maintenance.heavy_light.union_enumeration import UnionEnumeration

Where = Mapping[str, tuple[int, ...]]


class ViewRows(Protocol):
    """Where a view's rows are. `trees` are walked: none if rows are found along a ranked tree, or in turn. `single` is
    the tree that alone has them, if one does."""

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
    if view.plan.rows_in == RowsIn.BRANCHES:
        return BranchRows(view)
    if view.plan.rows_in == RowsIn.TURNS:
        return TurnRows(view)
    if view.tree.is_shared and view.balance is not None:
        from sqlfront.maintenance.heavy_light.union_enumeration import PartTreeRows

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


class TurnRows:
    """The distinct rows of a view that no table has: outer groups are read in turn."""

    single: Tree | None = None

    def __init__(self, view: MaintainedView) -> None:
        self._view, self.trees = view, list[Tree]()

    def read(self, where: Where | None, variables: Iterable[str], parts: Iterable[Part], by_order: bool) -> RowSource:
        from sqlfront.maintenance.turns.rows_in_turn import RowsInTurn

        view = self._view
        assert view.plan.turns is not None
        return RowsInTurn(view.tree, view.plan.turns, where or {}, view.reads)

    def merged(self) -> None:
        return None


class BranchRows:
    """The rows of a view that are those of its branches, each a view of its own: they are read in turn."""

    single: Tree | None = None

    def __init__(self, view: MaintainedView) -> None:
        self._view = view
        self.trees = [tree for branch in view.branches for tree in rows_of(branch).trees]

    def read(self, where: Where | None, variables: Iterable[str], parts: Iterable[Part], by_order: bool) -> RowSource:
        from sqlfront.maintenance.heavy_light.union_enumeration import Chain

        return Chain(self._branches(where or {}, tuple(variables), tuple(parts), by_order))

    def _branches(
        self, where: Where, variables: tuple[str, ...], parts: tuple[Part, ...], by_order: bool
    ) -> Iterator[RowSource]:
        """The rows of each branch, begun when it is their turn."""
        for names, branch in zip(self._view.branch_variables, self._view.branches, strict=True):
            own = {names[variable]: code for variable, code in where.items()}
            yield _Branch(read(branch, own, [names[variable] for variable in variables], parts, by_order), names)

    def merged(self) -> None:
        return None


class _Branch:
    """The rows of a branch by the variables of the union."""

    def __init__(self, walk: RowSource, names: Mapping[str, str]) -> None:
        self._walk, self._names = walk, names

    @property
    def rows(self) -> int:
        return self._walk.rows

    @property
    def steps(self) -> int:
        return self._walk.steps

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        return self._walk.next(capacity, gather)

    def words(self, variable: str) -> list[np.ndarray]:
        return self._walk.words(self._names[variable])

    def values(self, part: Part) -> np.ndarray:
        return self._walk.values(part)

    def all_ones(self, part: Part) -> bool:
        return self._walk.all_ones(part)
