"""Heavy and light values, for EXPLAIN: the partitions' figures, the part trees', and other epsilons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlfront.explain.tradeoff import choice_table, cost_choices
from sqlfront.maintenance.tree.description import DescribedTree
from sqlfront.planner.model.heavy_light import PartTree, Union
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition


def skew_data(definition: Definition, plan: Plan, tree: DescribedTree) -> dict[str, Any] | None:
    """epsilon, choices [{epsilon, update, delay, space}], part trees [{name, parts, reading}], those that keep rows or
    are read, and figures {N, size, threshold, minor, major, tables, part trees}.

    None for a view to which epsilon does not apply; no figures if it is not running, or nothing is told apart. O(1).
    """
    if plan.union is None:
        return None
    return {
        "epsilon": tree.epsilon,
        "choices": [
            {"epsilon": epsilon, "update": str(cost.update), "delay": str(cost.delay), "space": str(cost.space)}
            for epsilon, cost in cost_choices(definition, plan)
        ],
        "part_trees": [
            {
                "name": part_tree.name,
                "parts": {atom: str(part) for atom, part in part_tree.parts},
                "reading": part_tree.reading.value,
            }
            for part_tree in _kept(plan.union)
        ],
        "figures": tree.skew,
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
