"""What another epsilon would cost: as a small table, and as curves of the exponents of N."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlfront.define.epsilon import CHOICES, with_epsilon
from sqlfront.explain.draw_plot import Plot
from sqlfront.planner.model.bound import CONSTANT_BOUND
from sqlfront.planner.model.cost import Cost
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition

_MEANINGS = {"update": "one change", "delay": "next row", "space": "memory"}
_STEPS = 60
"""Of a curve: its corners are at 1/3, 1/2 and 2/3."""


def cost_choices(definition: Definition, plan: Plan) -> list[tuple[float, Cost]]:
    """The costs that several epsilons have."""
    return [(epsilon, with_epsilon(definition, plan, epsilon).stated_cost) for epsilon in CHOICES]


def choice_table(choices: Sequence[tuple[float, Cost]], epsilon: float) -> Iterator[str]:
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


def choice_plot(definition: Definition, plan: Plan, epsilon: float) -> Plot:
    """The exponents of N in the costs of all epsilons from 0 to 1."""
    lines: dict[str, list[tuple[float, float]]] = {meaning: [] for meaning in _MEANINGS.values()}
    for number in range(_STEPS + 1):
        x = number / _STEPS
        cost = with_epsilon(definition, plan, x).stated_cost
        for kind, meaning in _MEANINGS.items():
            lines[meaning].append((x, float(getattr(cost, kind).power)))
    moving = {name: points for name, points in lines.items() if any(y for _, y in points)}
    return Plot("exponent of N by epsilon", "epsilon", moving, epsilon)
