"""A view before it is built: its trees by its plan, and what they demand of the stores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.ranked.index import RankedIndex
from sqlfront.maintenance.relation.atom_source import Source
from sqlfront.maintenance.relation.base_relation import LeafStore, Relation, StoreBoxes, StoreOrder, Summary
from sqlfront.maintenance.relation.filling import refill
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.view.delta_paths import delta_paths
from sqlfront.maintenance.view.maintained_view import MaintainedView, ranked_by
from sqlfront.maintenance.windows.window_stores import WindowStores
from sqlfront.planner.model.order_values import is_held_back
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Atom, Definition, is_grouped
from sqlfront.storage.codecs.encoding import Codec, Dictionaries, codec_for


def unbuilt_view(
    name: str, definition: Definition, plan: Plan, number: int, dictionaries: Dictionaries, epsilon: float = 0.5
) -> MaintainedView:
    """A view with its distinct values, of which nothing is stored yet."""
    codecs = codecs_of(definition, dictionaries)
    tree = Tree(definition, plan, codecs, counted=definition.mode == "bag")
    view = MaintainedView(name, definition, plan, tree, number, codecs, delta_paths(tree), epsilon=epsilon)
    view.windows = WindowStores(definition.windows) if definition.windows is not None else None
    view.part_trees = view.planned_part_trees()
    if view.part_trees is not None:
        view.ranked |= ranked_by(view.part_trees)
    for place, (order, order_plan) in enumerate(zip(definition.orders, plan.orders, strict=True)):
        if order_plan.root is not None:
            quota = definition.limit.end if is_grouped(definition) and definition.limit is not None else None
            view.ranked[place] = RankedIndex(
                order,
                order_plan,
                tree,
                number,
                distinct=definition.mode == "set",
                quota=quota or 0,
                all_rows=is_held_back(definition, order),
            )
    for distinct_set, own_plan in zip(definition.distinct_sets, plan.distinct_sets, strict=True):
        kept = unbuilt_view(name, distinct_set.definition, own_plan, number, dictionaries)
        kept.distinct_set = distinct_set
        view.distinct_sets.append(kept)
    return view


def open_stores(
    view: MaintainedView, relations: Mapping[str, Relation], machine: Machine
) -> tuple[list[tuple[Relation, LeafStore]], list[LeafStore]]:
    """Open the stores that a view and its distinct values read. Returns the new stores, which are empty, and the known
    stores whose tables have been replaced, because they needed more indexes."""
    fresh: list[tuple[Relation, LeafStore]] = []
    renewed: list[LeafStore] = []
    for member in view.members:
        seen: dict[tuple[Any, ...], int] = {}
        for atom in member.definition.atoms:
            relation = relations[atom.table]
            known = set(relation.stores)
            alike = (atom.table, *_read_of(atom))
            occurrence = seen[alike] = member.delta_paths.occurrence(seen.get(alike, -1))
            store = _open_store(member, atom, relation, occurrence)
            indexes, summed, order, ranges, extremes, boxes = demanded_indexes(member, atom.name)
            old = store.table
            # A search by extremes reads the first summary.
            summaries = () if store.summaries else extremes
            if relation.reindex(store, indexes, summed, order, ranges, summaries, boxes) and store.key in known:
                refill(machine, old, store)
                renewed.append(store)
            if store.key not in known:
                fresh.append((relation, store))
            store.users.add(member.name)
            member.sources[atom.name] = Source(relation, store, occurrence % 2)
        if member.windows is not None:
            for relation, store, former in member.windows.open(member.definition, relations, member.name):
                if former is None:
                    fresh.append((relation, store))
                else:
                    refill(machine, former, store)
                    renewed.append(store)
    return fresh, renewed


def _read_of(atom: Atom) -> tuple[Any, ...]:
    """What an atom reads of its table: atoms for which it is the same may share a store."""
    names = {column.name: column.expression for column in atom.variables}
    variables = tuple(sorted(column.expression for column in atom.variables))
    factors = tuple(sorted(column.expression for column in atom.factors))
    required = tuple(sorted(names[variable] for variable in atom.required))
    return variables, factors, atom.predicate, atom.copies, required


def _open_store(view: MaintainedView, atom: Atom, relation: Relation, occurrence: int) -> LeafStore:
    conditions = [condition.text for condition in atom.conditions]
    required = _read_of(atom)[-1]
    open_copy = partial(relation.open_store, atom.variables, atom.factors, conditions, required)
    copy: int | str = f"passed on by {view.name}" if view.stateless else occurrence // 2
    store = open_copy(copy, view.definition.settings, atom.copies)
    _, _, order, _, extremes, boxes = demanded_indexes(view, atom.name)
    # A sum over a range or a box needs its order, and enumeration does: the store of another one will not do.
    if view.tree.needs_orders and order is not None and store.order not in (None, order):
        copy = f"{copy} of {order.grouping} sorted by {order.by}"
        store = open_copy(copy, view.definition.settings, atom.copies)
    if extremes and store.order == order and store.summaries[:1] not in ((), tuple(extremes)):
        [(of, greatest, *_)] = extremes  # Rows are searched by the first of a store's extremes.
        copy = f"{copy} with the {'greatest' if greatest else 'least'} {of}"
        store = open_copy(copy, view.definition.settings, atom.copies)
    if boxes is not None and store.boxes not in (None, boxes):
        store = open_copy(f"{copy} with boxes of {boxes}", view.definition.settings, atom.copies)
    return store


def demanded_indexes(
    view: MaintainedView, atom: str
) -> tuple[list[tuple[str, ...]], list[bool], StoreOrder | None, bool, list[Summary], StoreBoxes | None]:
    """What an atom's store must offer, by expressions: groupings; whether each sums values; the order of one grouping;
    whether that has sums over ranges; its extremes; its sums over boxes."""
    names = {c.name: c.expression for c in view.definition.atom(atom).variables}
    trees = [(view.tree, view.tree.leaves[atom]), *(view.part_trees.whole(atom) if view.part_trees is not None else ())]
    demands = [(tree, leaf, index) for tree, leaf in trees for index in leaf.indexes]
    indexes = [tuple(names[v] for v in index) for _, _, index in demands]
    summed = [tree.summed(leaf, index) > 0 for tree, leaf, index in demands]
    if view.part_trees is not None:
        told = view.part_trees.told(atom)
        indexes, summed = indexes + told, summed + [False] * len(told)
    leaf = view.tree.leaves[atom]
    order = leaf.order
    sorted_by = StoreOrder(tuple(names[v] for v in order[0]), ((names[order[1]], 0),)) if order is not None else None
    extremes = [] if leaf.extreme is None else [Summary(names[leaf.extreme[0]], leaf.extreme[1])]
    boxes = leaf.boxes and StoreBoxes(tuple(names[v] for v in leaf.boxes[0]), *(names[v] for v in leaf.boxes[1:]))
    return indexes, summed, sorted_by, leaf.ranges, extremes, boxes


def codecs_of(definition: Definition, dictionaries: Dictionaries) -> dict[str, Codec]:
    """The codec of every variable."""
    if definition.merged:
        return {raw.variable: codec_for(raw.type, dictionaries) for raw in definition.raw if raw.variable is not None}
    return {c.name: codec_for(c.type, dictionaries) for atom in definition.atoms for c in atom.variables}
