"""Heavy and light values, for EXPLAIN and SHOW STATE: the partitions' figures, the part trees', and other epsilons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlfront.define.epsilon import EPSILON
from sqlfront.explain.tradeoff import choice_table, cost_choices
from sqlfront.maintenance.heavy_light.balance import Balance
from sqlfront.maintenance.heavy_light.part_trees import PartTrees
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.heavy_light import PartTree, Reading, Union
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.wording import column
from sqlfront.storage.stores.table import Table


def skew_data(tree: Tree, plan: Plan, view: MaintainedView | None) -> dict[str, Any] | None:
    """epsilon, choices [{epsilon, update, delay, space}], part trees [{name, parts, reading}], those that keep rows or
    are read, and figures {N, size, threshold, minor, major, tables, part trees}.

    None for a view to which epsilon does not apply; no figures if it is not running, or nothing is told apart. O(1).
    """
    if plan.union is None:
        return None
    return {
        "epsilon": EPSILON if view is None else view.epsilon,
        "choices": [
            {"epsilon": epsilon, "update": str(cost.update), "delay": str(cost.delay), "space": str(cost.space)}
            for epsilon, cost in cost_choices(tree.definition, plan)
        ],
        "part_trees": [
            {
                "name": part_tree.name,
                "parts": {atom: str(part) for atom, part in part_tree.parts},
                "reading": part_tree.reading.value,
            }
            for part_tree in _kept(plan.union)
        ],
        "figures": _figures(view.balance) if view is not None and view.balance is not None else None,
    }


def skew_lines(data: dict[str, Any] | None, definition: Definition, plan: Plan) -> Iterator[str]:
    """What `skew_data` found, for people."""
    if data is None:
        return
    figures = data["figures"]
    if figures is not None:
        yield (
            f"values with {figures['threshold']:.4g} rows or more, {figures['N']}^{data['epsilon']:g}, at the last "
            f"partition; {figures['size']} rows now; {figures['minor']} values moved, partitioned anew "
            f"{figures['major']} times"
        )
        for name, found in figures["tables"].items():
            heavy = ", ".join(f"{count} of {column}" for column, count in found["heavy"].items())
            parts = ", ".join(f"{part} {rows}" for part, rows in found["parts"].items())
            yield f"{name}: {heavy} are heavy; rows by {'the two' if len(found['heavy']) > 1 else 'it'}: {parts}"
    for part_tree in _kept(plan.union) if plan.union is not None else ():
        parts = ", ".join(f"{atom} {part}" for atom, part in part_tree.parts if not part.is_whole)
        kept = figures["part_trees"].get(part_tree.name) if figures is not None else None
        rows = f": {' and '.join(map(str, kept))} rows" if kept else ""
        yield f"part tree {part_tree.name}, {part_tree.reading.value} ({parts}){rows}"
    yield from choice_table(cost_choices(definition, plan), data["epsilon"])


def _kept(union: Union) -> Iterator[PartTree]:
    """The part trees that keep rows or are read."""
    return (part_tree for part_tree in union.part_trees if part_tree.changed is None)


def heavy_tables(part_trees: PartTrees) -> Iterator[tuple[str, str, Table]]:
    """The tables kept for part trees, each with its name and kind for SHOW STATE."""
    for partition in part_trees.partitions:
        atom = next(edge.atom for edge in part_trees.union.edges if part_trees.stores[edge.atom] is partition.store)
        for part, table in partition.parts.items():
            yield f"{atom} {part}", "part", table
        for name, kept in zip(_columns(part_trees, atom), partition.columns, strict=True):
            yield name, "heavy values", kept.heavy
            yield name, "pending values", kept.pending
    for joined in part_trees.joined():
        yield joined.name, "heavy values", joined
    for tree in part_trees.trees:
        for view in part_trees.own(tree):
            if view.table is not None:
                yield (
                    tree.planned.name,
                    "product" if tree.planned.reading == Reading.LOOKED_UP else "part_tree",
                    view.table,
                )


def _figures(balance: Balance) -> dict[str, Any]:
    found, part_trees = balance.figures(), balance.part_trees
    tables = {}
    for partition, heavy, sizes in zip(part_trees.partitions, found.heavy, found.parts, strict=True):
        atom = next(edge.atom for edge in part_trees.union.edges if part_trees.stores[edge.atom] is partition.store)
        tables[atom] = {"heavy": dict(zip(_columns(part_trees, atom), heavy, strict=True)), "parts": sizes}
    return {
        "N": found.base,
        "size": found.size,
        "threshold": found.threshold,
        "minor": found.minors,
        "major": found.majors,
        "tables": tables,
        "part_trees": {kept.planned.name: rows for kept, rows in zip(part_trees.trees, found.views, strict=True)},
    }


def _columns(part_trees: PartTrees, atom: str) -> list[str]:
    """The partitioned columns of an atom's store, as the user calls them."""
    variables = {column.expression: column.name for column in part_trees.base.definition.atom(atom).variables}
    named = [[variables[expression] for expression in one.expressions] for one in part_trees.partition(atom).columns]
    return [", ".join(column(part_trees.base.definition, atom, name) for name in names) for names in named]
