"""A node of a view tree at run time: what of it is stored, and in what form."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sqlfront.maintenance.program.shapes import Shape
from sqlfront.planner.model.plan import Node, needed
from sqlfront.planner.model.query import Presence
from sqlfront.storage.stores.table import Table


@dataclass(eq=False)
class View:
    """A node of the tree at run time. `indexes` are the groupings its table must offer, by variables; the groups of one
    may be sorted by a variable: `order` is that index and the variable, `ranges` says that sums over ranges of a group
    are kept too; `extreme` says of which variable its rows know extremes, and whether these are the greatest. `boxes`
    are the variables of a key, and two more: sums of the rows of a key within bounds of both are kept. In
    `gathered`, an empty table, a delta is added up by key. What is added to its table is added to those of its
    `followers` too. A `stateless` leaf stores none of its rows. `missing` are the rows that stand for none of an
    optional or absent view, by the layout of what is looked up; it has none by its `key`."""

    node: Node
    parent: View | None
    children: list[View] = field(default_factory=list)
    full: bool = False
    message: bool = False
    indexes: list[tuple[str, ...]] = field(default_factory=list)
    order: tuple[tuple[str, ...], str] | None = None
    ranges: bool = False
    extreme: tuple[str, bool] | None = None
    boxes: tuple[tuple[str, ...], str, str] | None = None
    table: Table | None = None
    shape: Shape | None = None
    gathered: Table | None = None
    followers: dict[object, Table] = field(default_factory=dict)
    stateless: bool = False
    key: tuple[str, ...] = ()
    missing: dict[Shape, np.ndarray] = field(default_factory=dict)

    @property
    def presence(self) -> Presence:
        return self.node.presence

    @property
    def stored(self) -> bool:
        return self.full or self.message

    @cached_property
    def atoms(self) -> frozenset[str]:
        return frozenset(leaf.atom for leaf in self.node.leaves() if leaf.atom)

    @cached_property
    def link(self) -> tuple[str, ...]:
        """The variables shared with the parent, and those that it compares, in this node's order."""
        above = needed(self.parent.node) if self.parent else ()
        return tuple(v for v in self.node.variables if v in above)

    def is_sorted(self, index: tuple[str, ...], variables: Set[str]) -> bool:
        """Whether the groups of an index are sorted by one of these variables."""
        return self.order is not None and self.order[0] == index and self.order[1] in variables

    @property
    def listed(self) -> tuple[str, ...]:
        """The variables of a row when rows are listed."""
        whole = self.full or self.node.connex or self.node.atom is not None
        return self.node.variables if whole else self.link

    def ancestors(self) -> Iterator[View]:
        view = self.parent
        while view is not None:
            yield view
            view = view.parent

    def borders(self) -> Iterator[View]:
        """The optional and absent views that this one is in, or is, the smallest first."""
        return (view for view in (self, *self.ancestors()) if view.presence != "required")

    def walk(self) -> Iterator[View]:
        """This view and all below it, children first."""
        for child in self.children:
            yield from child.walk()
        yield self

    def index_number(self, variables: tuple[str, ...]) -> int:
        return self.indexes.index(variables)
