"""IVM^eps for the user: which views epsilon is for, what a plan with it costs, and what another epsilon would cost.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates": Theorem 3, and its nullary
query with tables partitioned twice. Which views these are the engine decides by their trees (maintenance/skew.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from maintenance.skew import Edge, partitioned_edges, triangle_edges
from maintenance.symmetry import symmetric_terms
from maintenance.tree import Tree
from planner.companions import add_companions
from planner.cost import bag_cost
from planner.plan import Cost, Plan
from planner.query import Definition
from planner.rules import cyclic, materialize
from planner.wording import labels
from storage.errors import ProgrammingError

EPSILON = 0.5
"""The least cost of a change, at linear space."""

CHOICES = (0, 0.25, 0.5, 0.75, 1)
"""Those whose costs an explanation compares."""

_SOURCE = "Kara, Nikolic, Ngo, Olteanu and Zhang 2020, Theorem 3 and the nullary query with double partitioning"


def epsilon_of(options: Mapping[str, Any]) -> float:
    """The epsilon of a view by its options."""
    return float(options.get("epsilon", EPSILON))


def heavy_edges(tree: Tree) -> tuple[Edge, Edge, Edge] | None:
    """The atoms of a view whose heavy values are told from light ones, unless its epsilon is 0 or 1; else None."""
    return partitioned_edges(tree, symmetric=symmetric_terms(tree) is not None)


def epsilon_cost(epsilon: float) -> Cost:
    """What the sum over a triangle costs: O(N^max(eps, 1-eps)) a change, O(N^max(1, min(1+eps, 2-2eps))) space.

    At 0 and 1 no value is told apart, and a change is joined with whole lists.
    """
    exact = Fraction(str(epsilon))
    space = max(Fraction(1), min(1 + exact, 2 - 2 * exact))
    cost = bag_cost(Fraction(3, 2), max(exact, 1 - exact), space)
    return replace(cost, update=f"{cost.update} amortised") if 0 < epsilon < 1 else cost


def with_epsilon(definition: Definition, plan: Plan, epsilon: float) -> Plan:
    """A plan whose strategy, cost and reason are those of IVM^eps, if it is for such a view; else the plan itself.

    The plan may already be one with another epsilon.
    """
    if plan.shape != "cyclic" or heavy_edges(_tree(definition, plan)) is None:
        return plan
    strategy = f"IVM^eps with epsilon = {epsilon:g}, heavy and light values apart"
    if not 0 < epsilon < 1:
        strategy = f"{cyclic.STRATEGY} (epsilon = {epsilon:g}: no values apart)"
    changed = replace(
        plan, strategy=strategy, cost=epsilon_cost(epsilon), reason=_reason(definition, plan, epsilon),
        companions=(), total=None,
    )  # fmt: skip
    companions = iter(plan.companions)
    return add_companions(changed, definition, lambda _: next(companions))


def check_epsilon(name: str, definition: Definition, plan: Plan) -> None:
    """ProgrammingError when the option is given for a view, called `name`, whose values are not told apart."""
    tree = _tree(definition, plan)
    if heavy_edges(tree) is not None:
        return
    if plan.strategy == materialize.STRATEGY:
        raise _refused(name, "every join is stored (strategy = 'materialize')")
    if definition.derived:
        block = "create the block as a materialized view of its own WITH (epsilon = ...), and read that"
        raise _refused(name, "its query reads a block, which is kept as a view of its own", block)
    if definition.free:
        raise _refused(name, f"it puts out or groups by {labels(definition, definition.free)}")
    if triangle_edges(tree) is not None:
        raise _refused(name, "it joins a table with itself, and does not look the same from each of the three")
    raise _refused(name, "its query is not the join of three tables of which each two share a column of their own")


def refuse_materialized(name: str, options: Mapping[str, Any]) -> None:
    """ProgrammingError when a view's options ask both for an epsilon and to store every join."""
    if "epsilon" in options and options.get("strategy") == "materialize":
        raise _refused(name, "strategy = 'materialize' stores every join", "create the view anew with one of the two")


def _refused(name: str, why: str, hint: str | None = None) -> ProgrammingError:
    return ProgrammingError(
        f"option epsilon does not apply to materialized view {name}",
        why=f"{why}; epsilon is for aggregates without GROUP BY over triangles, as planned by default",
        hint=hint or "leave the option out",
    )


def _tree(definition: Definition, plan: Plan) -> Tree:
    """The tree of a plan, of which only the structure is looked at."""
    return Tree(definition, plan, {}, counted=definition.mode == "bag")


def _reason(definition: Definition, plan: Plan, epsilon: float) -> str:
    sides = labels(definition, sorted({variable for node in plan.root.leaves() for variable in node.variables}))
    start = f"The query is a sum over the triangles of {sides}."
    if not 0 < epsilon < 1:
        return (
            f"{start} With epsilon = {epsilon:g} no value is heavy or all are, so nothing is kept beside the sum: a "
            "change is joined with whole lists, the shortest first, in worst-case optimal steps (Ngo et al. 2012). "
            f"epsilon = {EPSILON:g} would take {epsilon_cost(EPSILON).update} per change."
        )
    return (
        f"{start} A value that N^{epsilon:g} rows of a table have is heavy there: light values have short lists, heavy "
        "ones are few, and for pairs of heavy values the sum over light ones is kept as a product. A change costs "
        f"N^max(eps, 1-eps), with the rebalances that it makes necessary, and space N^max(1, min(1+eps, 2-2eps)) "
        f"({_SOURCE})."
    )
