"""IVM^eps for the user: which views epsilon is for, what a plan with it costs, and what another epsilon would cost.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates": Theorem 3; the nullary query
with tables partitioned twice. Which trees run is plan data (planner/model/heavy_light.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlfront.planner.heavy_light.strategies import find_refusal, find_union
from sqlfront.planner.model.heavy_light import Union
from sqlfront.planner.model.plan import Plan, RowsIn
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.distinct_plans import add_distinct_sets
from sqlfront.planner.passes.orders import over_part_trees
from sqlfront.planner.theory.wording import spell_comparison
from sqlfront.storage.errors import ProgrammingError

EPSILON = 0.5
"""The least cost of a change."""

READS = 1.0
"""Nothing declared: a view may be read after every change."""

NOMINAL_ROWS = 1e6
"""For which the planner compares expected costs."""

OPTIONS = ("epsilon", "reads", "partition")
"""The options of a view that are about heavy and light values."""

CHOICES = (0, 0.25, 0.5, 0.75, 1)
"""Those whose costs an explanation compares."""


def epsilon_of(options: Mapping[str, Any]) -> float:
    """The epsilon of a view by its options."""
    return float(options.get("epsilon", EPSILON))


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
        (1 - reads) * NOMINAL_ROWS ** float(change) + reads * NOMINAL_ROWS ** float(rows + wait)
        for change, wait in ((plan.cost.update.power, 0), (divided.update.power, divided.delay.power))
    )
    return parts < whole


def with_epsilon(definition: Definition, plan: Plan, epsilon: float, options: Mapping[str, Any] | None = None) -> Plan:
    """A plan that is a union of trees over heavy and light parts, if one is known for its query; else the plan itself.

    A view is divided if its strategy always is, if its `options` say so, or if it was already.
    """
    union = plan.union
    if union is None and not plan.joins:
        union = find_union(definition, plan, single=(options or {}).get("partition") == "single")
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
    rows_in = plan.rows_in if plan.rows_in != RowsIn.RANKED_TREE or orders[0].is_ranked else RowsIn.TREE
    changed = replace(
        plan, strategy=strategy.name(epsilon), cost=orders[0].cost if rows_in == RowsIn.RANKED_TREE else cost,
        union=union, root=union.root, free=union.enumerated(plan.free),
        reason=strategy.reason(definition, union, plan.free, epsilon), distinct_sets=(), total=None, orders=orders,
        rows_in=rows_in,
    )  # fmt: skip
    distinct_sets = iter(plan.distinct_sets)
    return add_distinct_sets(changed, definition, lambda _: next(distinct_sets))


def check_epsilon(name: str, definition: Definition, plan: Plan, options: Mapping[str, Any]) -> None:
    """ProgrammingError when epsilon, reads or partition is given for a view, called `name`, whose values cannot be told
    apart, or not so."""
    for option in OPTIONS:
        if option in options:
            _check_option(option, name, definition, plan)


def _check_option(option: str, name: str, definition: Definition, plan: Plan) -> None:
    if plan.joins:
        raise _refused(option, name, "every join is stored (strategy = 'materialize')")
    single = option == "partition"
    if (plan.union is not None and not single) or find_union(definition, plan, single=single) is not None:
        return
    if definition.derived:
        block = f"create the block as a materialized view of its own WITH ({option} = ...), and read that"
        raise _refused(option, name, "its query reads a block, which is kept as a view of its own", block)
    if definition.comparisons:
        compared = " and ".join(spell_comparison(definition, test) for test in definition.comparisons)
        raise _refused(option, name, f"its query compares {compared} across tables, and parts are joined by equalities")
    refusal = find_refusal(definition, plan, single=single)
    if refusal is not None:
        raise _refused(option, name, *refusal)
    why = "its query is no join of three tables of which each two share a column of their own, nor one of the others"
    raise _refused(option, name, why)


def refuse_materialized(name: str, options: Mapping[str, Any]) -> None:
    """ProgrammingError when a view's options ask both for heavy and light values and to store every join."""
    for option in OPTIONS:
        if option in options and options.get("strategy") == "materialize":
            why = "strategy = 'materialize' stores every join"
            raise _refused(option, name, why, "create the view anew with one of the two")


def _refused(option: str, name: str, why: str, hint: str | None = None) -> ProgrammingError:
    views = "sums over all triangles" if option == "partition" else "views over triangles, and the others"
    return ProgrammingError(
        f"option {option} does not apply to materialized view {name}",
        why=f"{why}; {option} is for {views} that the documentation lists",
        hint=hint or "leave the option out",
    )
