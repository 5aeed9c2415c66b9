"""Heavy and light values, for EXPLAIN: the partitions' figures, the part trees', and the costs of other epsilons, as a
table and as curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlfront.explain.draw_plot import Plot
from sqlfront.maintenance.tree.description import DescribedTree
from sqlfront.planner.heavy_light.division import divide
from sqlfront.planner.model.bound import CONSTANT_BOUND
from sqlfront.planner.model.cost import Cost
from sqlfront.planner.model.heavy_light import PartTree, Union
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition

_CHOICES = (0, 0.25, 0.5, 0.75, 1)
"""The epsilons whose costs an explanation compares."""

_MEANINGS = {"update": "one change", "delay": "next row", "space": "memory"}
_STEPS = 60
"""Of a curve: its corners are at 1/3, 1/2 and 2/3."""


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
            for epsilon, cost in _cost_choices(definition, plan)
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
    yield from _choice_table(_cost_choices(definition, plan), data["epsilon"])


def choice_plot(definition: Definition, plan: Plan, epsilon: float) -> Plot:
    """The exponents of N in the costs of all epsilons from 0 to 1."""
    lines: dict[str, list[tuple[float, float]]] = {meaning: [] for meaning in _MEANINGS.values()}
    for number in range(_STEPS + 1):
        x = number / _STEPS
        cost = divide(definition, plan, x).stated_cost
        for kind, meaning in _MEANINGS.items():
            lines[meaning].append((x, float(getattr(cost, kind).power)))
    moving = {name: points for name, points in lines.items() if any(y for _, y in points)}
    return Plot("exponent of N by epsilon", "epsilon", moving, epsilon)


def _cost_choices(definition: Definition, plan: Plan) -> list[tuple[float, Cost]]:
    """The costs that several epsilons have."""
    return [(epsilon, divide(definition, plan, epsilon).stated_cost) for epsilon in _CHOICES]


def _choice_table(choices: Sequence[tuple[float, Cost]], epsilon: float) -> Iterator[str]:
    """The lines of a table of the costs that several epsilons have; the view's own is marked.

    Costs that are constant for all are left out.
    """
    kinds = [kind for kind in _MEANINGS if any(getattr(cost, kind) != CONSTANT_BOUND for _, cost in choices)]
    rows = [["epsilon", *(_MEANINGS[kind] for kind in kinds)]]
    for choice, cost in choices:
        mark = " (now)" if choice == epsilon else ""
        rows.append([f"{choice:g}{mark}", *(str(getattr(cost, kind)) for kind in kinds)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _kept(union: Union) -> Iterator[PartTree]:
    """The part trees that keep rows or are read."""
    return (part_tree for part_tree in union.part_trees if part_tree.changed is None)
