"""IVM^eps for the user: which views epsilon is for, what a plan with it costs, and what another epsilon would cost.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates": Theorem 3; the nullary query
with tables partitioned twice. Which trees run is plan data (planner/heavy_light.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from planner.companions import add_companions
from planner.cost import bag_cost, power_cost
from planner.heavy_light import triangle_union
from planner.plan import Cost, Plan
from planner.query import Definition
from planner.rules import cyclic, materialize
from planner.wording import labels
from storage.errors import ProgrammingError

EPSILON = 0.5
"""The least cost of a change."""

CHOICES = (0, 0.25, 0.5, 0.75, 1)
"""Those whose costs an explanation compares."""

_SOURCE = "Kara, Nikolic, Ngo, Olteanu and Zhang 2020, Theorem 3"
_NULLARY = f"{_SOURCE} and the nullary query with double partitioning"


def epsilon_of(options: Mapping[str, Any]) -> float:
    """The epsilon of a view by its options."""
    return float(options.get("epsilon", EPSILON))


def epsilon_cost(epsilon: float, free: int = 0) -> Cost:
    """What a view over the triangles with that many free variables costs: O(N^max(eps, 1-eps)) a change.

    At 0 and 1 no value is told apart, and a change is joined with whole lists.
    """
    exact = Fraction(str(epsilon))
    least = min(exact, 1 - exact)
    space = (max(Fraction(1), min(1 + exact, 2 - 2 * exact)), 1 + least, 1 + least, Fraction(3, 2))[free]
    delay = (0, 2 * least, least, 0)[free]
    cost = replace(bag_cost(Fraction(3, 2), max(exact, 1 - exact), space), delay=power_cost(Fraction(delay)))
    return replace(cost, update=f"{cost.update} amortised") if 0 < epsilon < 1 else cost


def with_epsilon(definition: Definition, plan: Plan, epsilon: float, *, divided: bool = False) -> Plan:
    """A plan that is a union of trees over heavy and light parts, if it is for such a view; else the plan itself.

    A sum over all triangles always is; a view with free variables if it is to be `divided`, or was already.
    """
    union = triangle_union(definition, plan.root)
    if union is None or plan.shape != "cyclic" or plan.strategy == materialize.STRATEGY:
        return plan
    if plan.free and not divided and plan.union is None:
        return plan
    strategy = f"IVM^eps with epsilon = {epsilon:g}, heavy and light values apart"
    if not 0 < epsilon < 1:
        strategy = f"{cyclic.STRATEGY} (epsilon = {epsilon:g}: no values apart)"
    changed = replace(
        plan, strategy=strategy, cost=epsilon_cost(epsilon, len(plan.free)), union=union,
        reason=_reason(definition, plan, epsilon), companions=(), total=None,
    )  # fmt: skip
    companions = iter(plan.companions)
    return add_companions(changed, definition, lambda _: next(companions))


def check_epsilon(name: str, definition: Definition, plan: Plan) -> None:
    """ProgrammingError when the option is given for a view, called `name`, whose values cannot be told apart."""
    if plan.strategy == materialize.STRATEGY:
        raise _refused(name, "every join is stored (strategy = 'materialize')")
    if triangle_union(definition, plan.root) is not None:
        return
    if definition.derived:
        block = "create the block as a materialized view of its own WITH (epsilon = ...), and read that"
        raise _refused(name, "its query reads a block, which is kept as a view of its own", block)
    raise _refused(name, "its query is not the join of three tables of which each two share a column of their own")


def refuse_materialized(name: str, options: Mapping[str, Any]) -> None:
    """ProgrammingError when a view's options ask both for an epsilon and to store every join."""
    if "epsilon" in options and options.get("strategy") == "materialize":
        raise _refused(name, "strategy = 'materialize' stores every join", "create the view anew with one of the two")


def _refused(name: str, why: str, hint: str | None = None) -> ProgrammingError:
    return ProgrammingError(
        f"option epsilon does not apply to materialized view {name}",
        why=f"{why}; epsilon is for views over triangles, as planned by default",
        hint=hint or "leave the option out",
    )


def _reason(definition: Definition, plan: Plan, epsilon: float) -> str:
    sides = labels(definition, sorted({variable for node in plan.root.leaves() for variable in node.variables}))
    start = f"The query is {_asks(definition, plan)} the triangles of {sides}."
    if not 0 < epsilon < 1:
        beside = "what is put out" if plan.free else "the sum"
        return (
            f"{start} With epsilon = {epsilon:g} no value is heavy or all are, so nothing is kept beside {beside}: a "
            "change is joined with whole lists, the shortest first, in worst-case optimal steps (Ngo et al. 2012). "
            f"epsilon = {EPSILON:g} would take {epsilon_cost(EPSILON, len(plan.free)).update} per change."
        )
    apart = (
        f"{start} A value that N^{epsilon:g} rows of a table have is heavy there: light values have short lists, heavy"
    )
    if not plan.free:
        return (
            f"{apart} ones are few, and for pairs of heavy values the sum over light ones is kept as a product. A "
            "change costs N^max(eps, 1-eps), with the rebalances that it makes necessary, and space "
            f"N^max(1, min(1+eps, 2-2eps)) ({_NULLARY})."
        )
    return (
        f"{apart} ones are few. The triangles are divided by the status of their values into pieces, each a view tree "
        f"of its own: {_DELAYS[len(plan.free)]} A change costs N^max(eps, 1-eps), with the rebalances that it makes "
        f"necessary ({_SOURCE})."
    )


_DELAYS = {
    1: "those of values with few partners are enumerated from it, at a delay of N^(2 min(eps, 1-eps)), the others are "
    "added to a shared output.",
    2: "those whose third value is told apart are enumerated from it, at a delay of N^min(eps, 1-eps), the others are "
    "added to a shared output.",
    3: "those of a heavy and a light value are enumerated from it, at constant delay, the others are listed.",
}


def _asks(definition: Definition, plan: Plan) -> str:
    if not plan.free:
        return "a sum over"
    return f"{'the' if definition.mode != 'group' else 'an aggregate by'} {labels(definition, plan.free)} of"
