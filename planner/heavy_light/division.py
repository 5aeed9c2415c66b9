"""A plan divided by heavy and light values: whether it is better than the plan's one tree, and what it costs then.

The strategies know the trees (strategies.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlfront.planner.heavy_light.strategies import find_union
from sqlfront.planner.model.heavy_light import EPSILON, Union
from sqlfront.planner.model.plan import Plan, RowsIn
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.distinct_plans import add_distinct_sets
from sqlfront.planner.passes.orders import over_part_trees

READS = 1.0
"""Nothing declared: a view may be read after every change."""

_ASKING = {"epsilon", "partition", "reads"}
"""The options without which only those divisions are made that always are: the others slow reads down."""

_EPSILONS = (EPSILON, 0.33, 0.67)
"""Those at which some strategy has its least cost of a change, or nearly."""

_NOMINAL_ROWS = 1e6
"""For which the planner compares expected costs."""


def divide(definition: Definition, plan: Plan, epsilon: float, options: Mapping[str, Any] | None = None) -> Plan:
    """A plan that is a union of trees over heavy and light parts, if one is known for its query; else the plan itself.

    A view is divided if its strategy always is, if its `options` say so, or if it was already.
    """
    union = plan.union
    if union is None and not plan.joins and plan.turns is None:
        asked = options or {}
        union = find_union(
            definition, plan, single=asked.get("partition") == "single", unasked=not asked.keys() & _ASKING
        )
    if union is None:
        return plan
    divided = plan.union is not None or (options is not None and _divides(union, plan, options))
    if not (divided or union.strategy.choice == "always"):
        return plan
    strategy, cost = union.strategy, union.exponents.cost(epsilon)
    ordered = zip(plan.orders, definition.orders, strict=True)
    orders = tuple(
        over_part_trees(planned, order, union, cost, distinct=strategy.distinct) for planned, order in ordered
    )
    ranked = plan.rows_in == RowsIn.RANKED_TREE and orders[0].is_ranked
    projected = plan.rows_in == RowsIn.PROJECTION
    changed = replace(
        plan, strategy=strategy.name(epsilon), cost=orders[0].cost if ranked else cost,
        union=union, root=union.root, free=union.enumerated(plan.free),
        reason=strategy.reason(definition, union, plan.free, epsilon), distinct_sets=(), total=None, orders=orders,
        rows_in=RowsIn.RANKED_TREE if ranked else RowsIn.TREE, suggestion=None if projected else _left(plan.suggestion),
        variables_added=() if projected else plan.variables_added,
    )  # fmt: skip
    distinct_sets = iter(plan.distinct_sets)
    return add_distinct_sets(changed, definition, lambda _: next(distinct_sets))


def _left(suggestion: str | None) -> str | None:
    """The offers for a plan's one tree that are left when the plan is divided: those without epsilon."""
    offers = (suggestion or "").split("; or ")
    return "; or ".join(offer for offer in offers if "epsilon" not in offer) or None


def _divides(union: Union, plan: Plan, options: Mapping[str, Any]) -> bool:
    """Whether a view is better kept by trees over heavy and light parts than by its plan's one tree.

    As asked by `epsilon`, else by the costs that are expected in the worst case: with the share `reads` of operations
    that read all rows, trees over parts save changes and cost the delay of rows. First rows are only divided if asked.
    """
    if options.keys() & {"epsilon", "partition"}:
        return True
    if union.strategy.choice == "if asked":
        return False
    divided, rows, reads = union.exponents.cost(EPSILON), union.exponents.rows, float(options.get("reads", READS))
    whole, parts = (
        (1 - reads) * _NOMINAL_ROWS ** float(change) + reads * _NOMINAL_ROWS ** float(rows + wait)
        for change, wait in ((plan.cost.update.power, 0), (divided.update.power, divided.delay.power))
    )
    return parts < whole


def divide_unasked(definition: Definition, plan: Plan) -> tuple[Plan, float] | None:
    """A plan that tells heavy values from light ones, and its epsilon, for a view whose changes meet skew: that with
    the least cost of a change at worst. None if no division is known that has a lower one than the plan."""
    union = find_union(definition, plan) if plan.union is None and not plan.joins else None
    if union is None:
        return None
    epsilon = min(_EPSILONS, key=lambda one: union.exponents.cost(one).update.power)
    if union.exponents.cost(epsilon).update.power >= plan.cost.update.power:
        return None
    return divide(definition, plan, epsilon, {"epsilon": epsilon}), epsilon
