"""What a view is read from: its tree, the trees of a union, one after the other or merged, or a ranked tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from sqlfront.maintenance.heavy_light.union_enumeration import UnionEnumeration
from sqlfront.maintenance.program.rows import BATCH, RowSource
from sqlfront.maintenance.program.shapes import Part
from sqlfront.maintenance.ranked.cursor import RankedWalk
from sqlfront.maintenance.ranked.keyset_start import equal_start
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.maintenance.view.maintained_view import MaintainedView


def read(
    view: MaintainedView,
    where: Mapping[str, tuple[int, ...]] | None = None,
    variables: Iterable[str] = (),
    parts: Iterable[Part] = (),
    by_order: bool = True,
) -> RowSource:
    """The rows of a view's core, as `Walk` has them; `where` may narrow them: by a key or an index of the tree, or, if
    `by_order`, by an order of the view. A view that is the first rows of its order has them in order, and all that the
    order goes on with."""
    if view.plan.ranked_only:
        return RankedWalk(view.ranked[0], None, view.reads)
    merged = merging(view, where)
    if merged is not None:
        return merged
    variables, parts = tuple(variables), tuple(parts)
    walks = (Walk(tree, where, variables, parts, view.reads) for tree in trees_read(view))
    if view.divided:
        return Chain(walks)
    walk = next(walks)
    return (_ordered(view, where) if where and by_order and walk.scans else None) or walk


def _ordered(view: MaintainedView, where: Mapping[str, tuple[int, ...]]) -> RankedWalk | None:
    """The rows that have these codes along an order of the view whose first terms they are; None if there is none."""
    for index in view.ranked.values():
        if (start := equal_start(index, where)) is not None:
            return RankedWalk(index, start, view.reads)
    return None


def merging(view: MaintainedView, where: Mapping[str, tuple[int, ...]] | None = None) -> UnionEnumeration | None:
    """The reading of a union whose trees may have a tuple in common; None for any other view."""
    part_trees = view.balance.part_trees if view.divided and view.balance is not None else None
    return (
        UnionEnumeration(part_trees, where, view.reads) if part_trees is not None and part_trees.overlapping() else None
    )


def trees_read(view: MaintainedView) -> list[Tree]:
    """The trees whose tables are walked; none if they are found along a ranked tree."""
    if view.plan.ranked_only:
        return []
    part_trees = view.balance.part_trees.enumerated() if view.divided and view.balance is not None else []
    return [view.tree, *(kept.tree for kept in part_trees)]


def single_tree(view: MaintainedView) -> Tree | None:
    """The tree that alone has the view's rows; None if part trees or a ranked tree have them."""
    return None if view.plan.ranked_only or view.divided else view.tree


class Chain:
    """Walks one after the other, over trees that have no row in common."""

    def __init__(self, walks: Iterable[Walk]) -> None:
        self._walks: Iterator[Walk] = iter(walks)
        self._walk: Walk | None = next(self._walks)
        self._passed = self.rows = 0

    def next(self, capacity: int = BATCH, gather: bool = True) -> int:
        """Advance; the number of rows now in the batch, 0 at the end."""
        self.rows = 0
        while self._walk is not None and not self.rows:
            self.rows = self._walk.next(capacity, gather)
            if not self.rows:
                self._passed += self._walk.steps
                self._walk = next(self._walks, None)
        return self.rows

    @property
    def steps(self) -> int:
        """Elementary steps taken so far."""
        return self._passed + (self._walk.steps if self._walk is not None else 0)

    def words(self, variable: str) -> list[np.ndarray]:
        """The code words of a variable for the rows of the batch."""
        assert self._walk is not None
        return self._walk.words(variable)

    def values(self, part: Part) -> np.ndarray:
        """A part's value for each row, shape (rows, limbs)."""
        assert self._walk is not None
        return self._walk.values(part)

    def all_ones(self, part: Part) -> bool:
        """Whether a part's value is 1 for each row."""
        assert self._walk is not None
        return self._walk.all_ones(part)
