"""Descriptions of nodes as they are drawn and as dictionaries: EXPLAIN's tree, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlfront.explain.drawing import Box
from sqlfront.maintenance.tree.description import (
    DescribedPartTree,
    DescribedRanks,
    DescribedTree,
    DescribedView,
    Description,
)
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.stores.table import Table


def tree_boxes(tree: DescribedTree, orders: Sequence[str]) -> Iterator[Box]:
    """A view's tree, the joins, the projection and the number of rows maintained beside it, the trees over parts, the
    distinct values and the ranked trees, of these `orders`."""
    yield _box(tree.root)
    yield from map(_join, tree.joins)
    if tree.projection is not None:
        notes = ("maintained", *_figures(tree.projected))
        yield Box(f"projection [{', '.join(tree.projection)}]", notes, "projection")
    if tree.tuple_count:
        notes = ("counted in a tree of the same shape", *_figures(*tree.tuple_count))
        yield Box("number of rows", notes, "projection")
    yield from map(_part_tree, tree.part_trees)
    for label, how, kept in tree.distinct_sets:
        yield Box(f"values of {label}", (how, *_figures(kept.projected)), "projection", (_box(kept.root),))
    for name, order in zip(orders, tree.orders, strict=True):
        if order.trees:
            yield Box(f"ranked by {name}", ("first rows first",), "projection", tuple(map(_ranked, order.trees)))


def block_box(node: Description) -> Box:
    """A block of the query: a view of its own, or what its node says of it."""
    if node.tree is None:
        return Box(table_name(node.name), node.notes, "projection")
    return Box(table_name(node.name), ("a view of its own",), "projection", (_box(node.tree.root),))


def block_data(node: Description) -> dict[str, Any]:
    """A block of the query, for machines."""
    return dict(node.facts) if node.tree is None else view_data(node.tree.root)


def node_data(node: Description) -> dict[str, Any]:
    """A node of the epoch graph: its bounds for one changed row of its inputs, and its steps so far."""
    return {
        "name": table_name(node.name),
        "kind": node.kind,
        "inputs": list(map(table_name, node.inputs)),
        "work": str(node.work),
        "output": str(node.output),
        "predicted": {table_name(table): steps for table, steps in node.predicted.items()} if node.runs else None,
        "observed": node.per_change,
        "changes": {table_name(table): count for table, count in node.changes.items()} if node.runs else None,
    }


def node_line(node: Description, *, last: bool) -> str:
    """A node in a sentence; the `last` one is the view itself."""
    name = "the view itself" if last else table_name(node.name)
    inputs = f" over {', '.join(map(table_name, node.inputs))}" if node.inputs else ""
    found = f"{name}, {node.kind}{inputs}: {node.work} per changed row, which changes {node.output} of its rows"
    steps = [f"{table_name(table)} {cost:.1f}" for table, cost in node.predicted.items()]
    if steps:
        found += f"; predicted {', '.join(steps)}"
    if node.per_change is not None:
        found += f"; observed {node.per_change:.1f} over {sum(node.changes.values())}"
    return found


def view_data(view: DescribedView) -> dict[str, Any]:
    """A node of a tree; rows and bytes if it is stored by a view that runs."""
    order = None
    if view.order is not None:
        order = {"index": list(view.order[0]), "by": view.order[1], "sums": view.sums}
    return {
        "variables": list(view.variables),
        "atom": view.atom,
        "filters": view.filters,
        "form": view.form,
        "enumerated": view.enumerated,
        "presence": view.presence,
        "indexes": list(map(list, view.indexes)),
        "order": order,
        "comparisons": list(view.comparisons),
        "rows": view.table.live if view.table is not None else None,
        "bytes": view.table.bytes() if view.table is not None else None,
        "children": list(map(view_data, view.children)),
    }


def ranked_data(node: DescribedRanks) -> dict[str, Any]:
    """A node of a ranked tree that runs."""
    return {
        "variables": list(node.variables),
        "atom": node.atom,
        "anchor": list(node.anchor),
        "rows": node.table.live,
        "bytes": node.table.bytes(),
        "children": list(map(ranked_data, node.children)),
    }


def _box(view: DescribedView) -> Box:
    names = ", ".join(view.variables)
    title, name = f"[{names}]", view.atom or view.filters
    if view.of is not None:
        table = table_name(view.of)
        title = f"{name}({names})"
        title += f" of {table}" if table != name else ""
        title += f" where {view.where}" if view.where else ""
        title += f", {view.copies} times" if view.copies else ""
    notes = [f"where {' and '.join(view.comparisons)}"] if view.comparisons else []
    notes += [view.presence] if view.presence != "required" else []
    notes += [view.form, *(["enumerated"] if view.enumerated and not view.is_root else []), *_indexes(view)]
    kind = "leaf" if name is not None else "enumerated" if view.enumerated else "stored"
    return Box(
        title, (*notes, *_figures(view.table)), kind if view.stored else "passed", tuple(map(_box, view.children))
    )


def _indexes(view: DescribedView) -> Iterable[str]:
    for index in view.indexes:
        by = ""
        if view.order is not None and view.order[0] == index:
            by = f", sorted by {view.order[1]}" + (" with sums of ranges" if view.sums else "")
            by += f" with extremes of {view.extreme}" if view.extreme is not None else ""
        yield f"index on {', '.join(index) or 'all rows'}{by}"
    if view.boxes is not None:
        yield f"sums over boxes of {' and '.join(view.boxes)}"


def _join(view: DescribedView) -> Box:
    """A join that is stored beside the tree, for changes to be joined with."""
    names = ", ".join(leaf.atom or "" for leaf in view.children)
    return replace(_box(replace(view, children=(), is_root=True)), title=f"join of {names}")


def _part_tree(tree: DescribedPartTree) -> Box:
    return Box(f"part tree {tree.name}", (tree.reading, ", ".join(tree.parts)), "projection", (_box(tree.root),))


def _ranked(node: DescribedRanks) -> Box:
    names = ", ".join(node.variables)
    notes = (f"sorted by best, per {', '.join(node.anchor) or 'all rows'}", *_figures(node.table))
    title = f"[{names}]" if node.atom is None else f"{node.atom}({names})"
    return Box(title, notes, "leaf" if node.atom else "stored", tuple(map(_ranked, node.children)))


def _figures(*tables: Table | None) -> list[str]:
    kept = [table for table in tables if table is not None]
    rows, size = sum(table.live for table in kept), sum(table.bytes() for table in kept)
    return [f"{rows} rows, {size} bytes"] if kept else []
