"""Companions in a plan: each is planned as a view of its own whose result is kept as rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.cost import MATERIALIZED
from planner.plan import Cost, Plan
from planner.query import Definition
from planner.refusal import Refusal


def add_companions(
    plan: Plan, definition: Definition, plan_view: Callable[[Definition], Plan | Refusal]
) -> Plan | Refusal:
    """`plan` with the plans of the definition's companions, and the `total` cost.

    What a companion keeps changes by more than a constant when its argument and its group columns come from several
    tables; so its update costs the change.
    """
    if not definition.companions:
        return plan
    plans = []
    for companion in definition.companions:
        found = plan_view(companion.definition)
        if isinstance(found, Refusal):
            return found
        plans.append(replace(found, projected=True))
    return replace(
        plan, companions=tuple(plans), total=_cost(plan, definition, plans), reason=_reason(plan, definition)
    )


def _cost(plan: Plan, definition: Definition, plans: list[Plan]) -> Cost:
    ordered = any(companion.ordered for companion in definition.companions)
    if MATERIALIZED in (plan.cost, *(one.cost for one in plans)):
        update = "O(1 + change of every intermediate result * log N)" if ordered else MATERIALIZED.update
        return replace(MATERIALIZED, update=update, delay=_delay(definition, plan.cost.delay))
    alone = all(len(companion.definition.atoms) == 1 for companion in definition.companions)
    linear = any(one.cost.update.startswith("O(N") for one in (plan, *plans))
    if alone and not linear:
        update = "O(log N)" if ordered else plan.cost.update
    else:
        change = "change of the values kept" + (" * log N" if ordered else "")
        update = f"O({'N' if linear else '1'} + {change})"
    kept = "N" if alone else "N + values kept"
    preprocessing = f"O(({kept}) log N)" if ordered and not alone else "O(N log N)" if ordered else f"O({kept})"
    return Cost(preprocessing, update, _delay(definition, plan.cost.delay), f"O({kept})")


def _delay(definition: Definition, delay: str) -> str:
    kept = {column.kind for column in definition.raw if column.companion is not None}
    if kept & {"sum", "avg"}:
        return "O(distinct values of the group)"
    return "O(log N)" if "greatest" in kept else delay


def _reason(plan: Plan, definition: Definition) -> str:
    notes = []
    for companion in definition.companions:
        how = "sorted" if companion.ordered else "counted"
        notes.append(f"The values of {companion.label} are kept per group, {how}, with their multiplicities.")
    if any(column.kind in ("sum", "avg") for column in definition.raw if column.companion is not None):
        notes.append("A sum of distinct values is added up when it is read.")
    return " ".join((plan.reason, *notes))
