"""The description of a node that is a view with its trees; see `Description`. A planned view has one too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlfront.maintenance.heavy_light.described_parts import described_parts, part_entries, skew_figures
from sqlfront.maintenance.output.output import crossover, sorted_rows
from sqlfront.maintenance.ranked.keyset_start import sought
from sqlfront.maintenance.tree.description import (
    DescribedOrder,
    DescribedRanks,
    DescribedTree,
    DescribedView,
    Description,
    StateEntry,
    described_view,
)
from sqlfront.maintenance.tree.view_tables import label
from sqlfront.maintenance.view.prediction import predict
from sqlfront.maintenance.view.unbuilt import unbuilt_view

if TYPE_CHECKING:
    from sqlfront.maintenance.ranked.index import RankedNode
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.planner.model.plan import Plan
    from sqlfront.planner.model.query import Definition
    from sqlfront.storage.codecs.encoding import Dictionaries


def describe_view(view: MaintainedView, steps: int = 0) -> Description:
    """A view, built or not; `steps` is its counter. O(nodes^2)."""
    from sqlfront.planner.passes.block_costs import (
        output_bound,
    )  # With the planner, which a view that runs has no use for.

    definition, plan = view.definition, view.plan
    runs = view.machine is not None
    sources = [source for one in (view, *view.branches) for source in one.sources.values()]
    relations = {source.relation.name: source.relation for source in sources}
    changes = {name: one.changes - view.changes_before.get(name, 0) for name, one in relations.items()}
    read = sorted_rows(view) if runs else 0
    inputs = view.relations if runs else definition.tables
    return Description(
        view.name,
        "view tree",
        tuple(sorted(inputs)),
        (plan.total or plan.cost).update,
        output_bound(definition, plan),
        plan.reason,
        tuple(_state(view)),
        tree=_described_tree(view),
        runs=runs,
        steps=steps,
        changes=changes,
        predicted={table: steps + read for table, steps in predict(view).items()} if runs else {},
        replans=tuple(map(str, view.observation.replans)) if view.observation is not None else (),
    )


def describe_unbuilt(
    name: str, definition: Definition, plan: Plan, dictionaries: Dictionaries, *, stateless: bool
) -> Description:
    """A planned view, of which nothing is stored. `stateless`: its leaves keep no rows. O(nodes^2)."""
    view = unbuilt_view(name, definition, plan, 0, dictionaries)
    for leaf in view.tree.leaves.values():
        leaf.stateless = stateless
    return describe_view(view)


def _described_tree(view: MaintainedView) -> DescribedTree:
    tree, balance = view.tree, view.balance
    runs = view.machine is not None
    part_trees = view.part_trees if balance is not None or not runs else None
    sets = zip(view.definition.distinct_sets, view.distinct_sets, strict=True)
    return DescribedTree(
        described_view(tree, tree.root),
        tuple(_side_joins(view)),
        None if tree.output is None else tuple(map(view.definition.label, tree.output)),
        tree.projection,
        tuple(view.tuple_count.tables()) if view.tuple_count is not None else (),
        view.delta_paths.alike(tree),
        () if part_trees is None else tuple(described_parts(part_trees)),
        view.epsilon,
        None if balance is None else skew_figures(balance),
        tuple(_order(view, number) for number in range(len(view.definition.orders))),
        tuple((one.label, "sorted" if one.ordered else "counted", _described_tree(kept)) for one, kept in sets),
    )


def _side_joins(view: MaintainedView) -> Iterator[DescribedView]:
    """The joins that are stored beside the tree, for changes to be joined with."""
    yield from (described_view(view.tree, join) for join in view.tree.side_joins())


def _order(view: MaintainedView, number: int) -> DescribedOrder:
    """An order of a view that runs; nothing of one that does not."""
    running = view.ranked.get(number)
    if running is None or view.machine is None:
        return DescribedOrder()
    keyset = sought(running) if view.definition.limit is None else None
    trees = [
        _ranks(tree.root, member.definition)
        for member in (view, *view.branches)
        if number in member.ranked
        for tree in member.ranked[number].trees()
    ]
    after = None if keyset is None else tuple(map(view.definition.label, keyset))
    return DescribedOrder(crossover(view), after, tuple(trees))


def _ranks(node: RankedNode, definition: Definition) -> DescribedRanks:
    assert node.table is not None
    return DescribedRanks(
        tuple(map(definition.label, node.node.variables)),
        node.node.atom,
        tuple(map(definition.label, node.link)),
        node.table,
        tuple(_ranks(child, definition) for child in node.children),
    )


def _state(view: MaintainedView) -> Iterator[StateEntry]:
    """The tables of a view and of its distinct values."""
    readers = Counter(id(source.store) for member in view.members for source in member.sources.values())
    for member in view.members:
        values = f"values of {member.distinct_set.label}" if member.distinct_set is not None else None
        of = f" for {values}" if values else ""
        for atom, source in member.sources.items():
            shared = len(source.store.users) > 1 or readers[id(source.store)] > 1
            yield StateEntry(atom + of, "passed on" if source.store.stateless else "leaf", source.store.table, shared)
        for kept in member.windows.kept if member.windows is not None else ():
            store = kept.source.store
            yield StateEntry(
                f"{kept.atom.name} in order {kept.order.label}", "window", store.table, len(store.users) > 1
            )
        for node in member.tree.stored_inner():
            if node.table is not None:
                name = label(member.definition, node.node) + of
                yield StateEntry(name, "view" if node.full else "message", node.table)
        if member.tree.projection is not None:
            yield StateEntry(values or "projection", "values" if values else "projection", member.tree.projection)
        if member.tuple_count is not None:
            for table in member.tuple_count.tables():
                yield StateEntry(f"number of rows, {table.name}{of}", "tuple_count", table)
        for index in (tree for order in member.ranked.values() for tree in order.trees()):
            for ranked, table in zip(index.nodes, index.tables(), strict=False):
                name = f"{ranked.node.atom or label(member.definition, ranked.node)} by {index.order.label}{of}"
                yield StateEntry(name, "ranked", table)
        if member.balance is not None:
            yield from part_entries(member.balance.part_trees, of)
