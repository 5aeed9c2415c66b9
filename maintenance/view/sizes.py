"""How many rows look-ups meet: as a view's tables have them, or as a tree would that is not built.

The groups of a tree that is not built are those of the leaf stores that the running view reads. A group that no index
keeps is counted from the store's rows, O(rows). Groups of inner views are bounded by those of the leaves below them.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cached_property
from math import inf, log2
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from sqlfront.storage.kernels.tables import upkeep

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import LeafStore
    from sqlfront.maintenance.tree.steps import Step
    from sqlfront.maintenance.tree.view_tree import Tree, View
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.maintenance.view.range_shares import Known, RangeShares
    from sqlfront.storage.stores.table import Table

Profile = Literal["mean", "met", "largest"]
"""Of a column's groups: their mean size, the mean size of the group of a row, or the largest size."""

PROFILES: tuple[Profile, ...] = ("mean", "met", "largest")
_CHUNK = 1 << 16


class Sizes(Protocol):
    """The sizes of a tree's views."""

    def rows(self, view: View) -> float:
        """The rows of a stored view."""
        ...

    def fan_out(self, view: View, key: tuple[str, ...]) -> float:
        """The rows of a stored view that a look-up by some of its variables lists."""
        ...

    def depth(self, view: View) -> float:
        """The steps to a row's place in the ordered groups of a view; 0 where none are."""
        ...

    def projected(self, tree: Tree) -> float:
        """The rows of a kept projection."""
        ...

    def share(self, step: Step) -> float | None:
        """The share of the rows that a step's key lists which its comparisons let pass; None if nothing is known."""
        ...


class PresentSizes:
    """The sizes as the tables of a built view have them: of groups the mean. O(1), but for shares."""

    def __init__(self, member: MaintainedView) -> None:
        self._member = member

    def rows(self, view: View) -> float:
        assert view.table is not None
        return view.table.live

    def fan_out(self, view: View, key: tuple[str, ...]) -> float:
        """0 in an empty table."""
        assert view.table is not None
        groups = view.table.groups[view.index_number(key)].live
        return view.table.live / groups if groups else 0.0

    def depth(self, view: View) -> float:
        assert view.table is not None
        return table_depth(view.table)

    def projected(self, tree: Tree) -> float:
        return inf if tree.projection is None else tree.projection.live

    def share(self, step: Step) -> float | None:
        return _share(self._shares, step)

    @cached_property
    def _shares(self) -> RangeShares:
        return _range_shares(self._member)


class EstimatedSizes:
    """The sizes that a tree over some leaf stores would have, by a profile of their groups."""

    def __init__(self, member: MaintainedView, measured: Measured, profile: Profile) -> None:
        self._measured, self._profile = measured, profile
        self._member = member
        self._stores = {atom: source.store for atom, source in member.sources.items()}
        self._names = {
            atom: {column.name: column.expression for column in member.definition.atom(atom).variables}
            for atom in member.sources
        }

    def rows(self, view: View) -> float:
        return self.fan_out(view, ())

    def fan_out(self, view: View, key: tuple[str, ...]) -> float:
        """Leaf by leaf. Each step takes the leaf with the fewest rows for the known variables."""
        leaves = [below.node.atom or below.node.filters or "" for below in view.walk() if not below.children]
        wanted, known, total = frozenset(view.listed), frozenset(key), 1.0
        while missing := wanted - known:
            binding = [leaf for leaf in leaves if missing & self._names[leaf].keys()]
            sizes = [self._met(leaf, known, wanted) for leaf in binding]
            least = min(sizes)
            total *= least
            known |= self._names[binding[sizes.index(least)]].keys()
        return total

    def depth(self, view: View) -> float:
        return 0.0 if view.order is None else _depth(self.fan_out(view, view.order[0]))

    def projected(self, tree: Tree) -> float:
        return inf

    def share(self, step: Step) -> float | None:
        return _share(self._shares, step)

    @cached_property
    def _shares(self) -> RangeShares:
        return _range_shares(self._member, self._measured.shares)

    def _met(self, leaf: str, known: Set[str], wanted: Set[str]) -> float:
        """The rows of a leaf with known values, as far as they differ in what is wanted."""
        store, names = self._stores[leaf], self._names[leaf]
        key = [expression for name, expression in names.items() if name in known]
        distinct = [expression for name, expression in names.items() if name in wanted and name not in known]
        met = self._measured.size(store, key, self._profile)
        return met if len(key) + len(distinct) == len(names) else min(met, self._measured.groups(store, distinct))


class Measured:
    """The sizes of the groups of leaf stores, each counted once, and the shares of comparisons."""

    def __init__(self) -> None:
        self.shares: Known = {}
        self._sizes: dict[tuple[int, frozenset[str]], np.ndarray] = {}

    def size(self, store: LeafStore, key: list[str], profile: Profile) -> float:
        """The size of a group with equal values of these expressions; 0 in an empty store."""
        sizes = self._of(store, key)
        if not len(sizes):
            return 0.0
        if profile == "largest":
            return float(sizes.max())
        total = float(sizes.sum())
        return total / len(sizes) if profile == "mean" else float((sizes.astype(np.float64) ** 2).sum()) / total

    def groups(self, store: LeafStore, key: list[str]) -> float:
        """How many different values the expressions have."""
        return float(len(self._of(store, key)))

    def _of(self, store: LeafStore, key: list[str]) -> np.ndarray:
        place = id(store), frozenset(key)
        if place not in self._sizes:
            self._sizes[place] = _group_sizes(store, key)
        return self._sizes[place]


def table_depth(table: Table) -> float:
    """The steps to a row's place in a table's ordered groups; 0 where none are."""
    return _depth(table.live / table.groups[0].live) if table.order_address and table.live else 0.0


def _range_shares(member: MaintainedView, known: Known | None = None) -> RangeShares:
    from sqlfront.maintenance.view.range_shares import RangeShares  # Most views that are opened have none.

    return RangeShares(member, known)


def _share(shares: RangeShares, step: Step) -> float | None:
    return shares.of(step.tests, step.key if step.lists else None)


def _depth(rows: float) -> float:
    """The depth of a random search tree."""
    return 1.4 * log2(1 + rows)


def _group_sizes(store: LeafStore, key: list[str]) -> np.ndarray:
    table = store.table
    if not table.live:
        return np.empty(0, np.int64)
    if not key:
        return np.array([table.live])
    for number, index in enumerate(store.indexes):
        if set(index) == set(key):
            return table.groups[number].members()[1]
    if len(key) == len(store.variables):
        return np.ones(table.live, np.int64)
    starts = np.cumsum([0, *store.widths])
    places = [
        place
        for number, column in enumerate(store.variables)
        if column.expression in key
        for place in range(int(starts[number]), int(starts[number + 1]))
    ]
    return np.unique(_hashes(table, places), return_counts=True)[1]


def _hashes(table: Table, places: list[int]) -> np.ndarray:
    """A number for some key words of each row: only a size is at stake."""
    found = []
    for first in range(0, table.used, _CHUNK):
        count = min(_CHUNK, table.used - first)
        words = np.empty((count, table.keys + table.values * table.limbs), np.int64)
        words = words[: upkeep.copy_rows(table.address, first, count, words.ctypes.data)]
        found.append(mixed(words, places))
    return np.concatenate(found)


def mixed(words: np.ndarray, places: Iterable[int]) -> np.ndarray:
    """A number for some words of each row; different words share one about never."""
    found = np.zeros(len(words), np.uint64)
    for place in places:
        found = (found ^ np.ascontiguousarray(words[:, place]).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found
