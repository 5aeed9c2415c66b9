"""Companions in a plan: each is planned as a view of its own whose result is kept as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from planner.cost import MATERIALIZED, exponent, leading_power
from planner.plan import Cost, Plan
from planner.query import Definition


def add_companions(plan: Plan, definition: Definition, plan_view: Callable[[Definition], Plan]) -> Plan:
    """`plan` with the plans of the definition's companions, and the `total` cost.

    What a companion keeps changes by more than a constant when its argument and its group columns come from several
    tables; so its update costs the change.
    """
    if not definition.companions:
        return plan
    plans = [replace(plan_view(companion.definition), projected=True) for companion in definition.companions]
    return replace(
        plan, companions=tuple(plans), total=_cost(plan, definition, plans), reason=_reason(plan, definition)
    )


def _cost(plan: Plan, definition: Definition, plans: list[Plan]) -> Cost:
    ordered = any(companion.ordered for companion in definition.companions)
    if MATERIALIZED in (plan.cost, *(one.cost for one in plans)):
        update = "O(1 + change of every intermediate result * log N)" if ordered else MATERIALIZED.update
        return replace(MATERIALIZED, update=update, delay=_delay(definition, plan.cost.delay))
    alone = all(len(companion.definition.atoms) == 1 for companion in definition.companions)
    joining = _highest(one.cost.update for one in (plan, *plans))
    if alone and joining == "1":
        update = "O(log N)" if ordered else plan.cost.update
    else:
        change = "change of the values kept" + (" * log N" if ordered else "")
        update = f"O({joining} + {change})"
    costs = [(one.cost.preprocessing, one.cost.space) for one in (plan, *plans)]
    building, space = (_highest(found) if alone else f"{_highest(found)} + values kept" for found in zip(*costs))
    if ordered:
        building = f"{building} log N" if alone else f"({building}) log N"
    return Cost(f"O({building})", update, _delay(definition, plan.cost.delay), f"O({space})")


def _highest(costs: Iterable[str]) -> str:
    """The highest of the powers of N that the costs start with."""
    return max((leading_power(cost) for cost in costs), key=lambda power: (exponent(power), power != "1"))


def _delay(definition: Definition, delay: str) -> str:
    kept = {column.kind for column in definition.raw if column.companion is not None}
    if kept & {"sum", "avg"}:
        return "O(distinct values of the group)"
    return "O(log N)" if "greatest" in kept else delay


def _reason(plan: Plan, definition: Definition) -> str:
    notes = []
    for companion in definition.companions:
        how = "sorted" if companion.ordered else "counted"
        notes.append(f"The values of {companion.label} are kept per group, {how}, with how often they come about.")
    if any(column.kind in ("sum", "avg") for column in definition.raw if column.companion is not None):
        notes.append("A sum of distinct values is added up when it is read.")
    return " ".join((*notes, plan.reason.replace("The query", "Without them the query", 1)))
