"""Orders in a plan: along which tree the first rows are found without computing the join, or why they are sorted.

A ranked tree keeps the rows of each node by anchor, sorted by the best that they and what is below them can make (Deep,
Hu and Koutris 2022, Theorem 19). It is a view tree that enumerates every variable: its inner nodes hold only variables
that several atoms share, so that a leaf's own columns do not multiply the rows above it, and it is the cheapest one by
levels and by look-ups to many, which puts its root where most changes meet one row.
"""

from __future__ import annotations

from dataclasses import replace

from planner.cost import RANKED, RANKED_DISTINCT_DELAY, RANKED_LOGARITHMIC, SORTED
from planner.gyo import is_acyclic
from planner.hypergraph import hypergraph, ordered_variables
from planner.plan import Node, OrderPlan, Plan
from planner.query import Definition, Order, is_grouped
from planner.tree import Weights, build_tree, cheapest_tree


def add_orders(plan: Plan, definition: Definition, weights: Weights) -> Plan:
    """`plan` with the plans of the definition's orders; if the view is the first rows of a ranked one, only that."""
    if not definition.orders:
        return plan
    orders = tuple(_plan_order(definition, order, weights) for order in definition.orders)
    if definition.limit is None or orders[0].root is None:
        return replace(plan, orders=orders)
    return replace(
        plan,
        strategy="ranked enumeration",
        cost=orders[0].cost,
        reason=orders[0].reason,
        suggestion=None,
        projected=False,
        variables_added=(),
        orders=orders,
        ranked_only=True,
    )


def _plan_order(definition: Definition, order: Order, weights: Weights) -> OrderPlan:
    top = definition.limit.variables if definition.limit is not None else ()
    obstacle = order.obstacle or _obstacle(definition, order)
    free, found = ordered_variables(definition), None
    if obstacle is None and top is not None:
        simple = build_tree(definition, free, "simple", weights, frozenset(top))
        found = (simple, None) if simple is not None else cheapest_tree(definition, free, weights, frozenset(top))
    if top is None or found is None:
        why = obstacle or "no table has all columns of PARTITION BY"
        return OrderPlan(None, SORTED, f"The rows are sorted when they are read: {why}.")
    root, keys = found
    cost = RANKED if simple is None and keys is None else RANKED_LOGARITHMIC
    if definition.mode == "set" and set(free) != set(definition.free):
        cost = replace(cost, delay=RANKED_DISTINCT_DELAY)
    return OrderPlan(_without_lone_root(root), cost, _explain(definition, order), top)


def _obstacle(definition: Definition, order: Order) -> str | None:
    """Why a query's rows have no ranked tree; None if they have one."""
    if definition.mode == "group":
        return "a group's aggregates change with each of its rows, so its place is found when it is asked for"
    if definition.comparisons:
        return "it joins by comparisons, and a ranked tree joins by equalities only"
    if not is_acyclic(hypergraph(definition)):
        return "the query is cyclic, and its bags have no ranked tree yet"
    if is_grouped(definition) and _may_be_null(definition, order):
        return "a sum that a group's rows are ordered by may be NULL (declare its columns NOT NULL)"
    return None


def _explain(definition: Definition, order: Order) -> str:
    nulls = ""
    if _may_be_null(definition, order):
        nulls = " Rows whose sum is NULL are sorted among themselves when a reader comes to them."
    repeated = ""
    if definition.mode == "set":
        repeated = " Rows that several rows of the join make follow each other, and are one (Theorem 24)."
    groups = "of each group " if is_grouped(definition) else ""
    return (
        f"The first rows {groups}by {order.label} are found without computing the join: each node of the tree keeps "
        "its rows sorted by their best completion, and a change goes up only as far as a best changes (ranked "
        f"enumeration, Deep, Hu and Koutris 2022, Theorem 19).{repeated}{nulls}"
    )


def _may_be_null(definition: Definition, order: Order) -> bool:
    """Whether a sum that rows are ordered by may be NULL."""
    safe = {column.name for atom in definition.atoms for column in atom.variables if column.not_null}
    safe |= {name for atom in definition.atoms for name in atom.required}
    return any(name not in safe for term in order.terms if term.summed for _, name in term.parts)


def _without_lone_root(root: Node) -> Node:
    """A root over nothing with one child tells no more than the child."""
    return root.children[0] if len(root.children) == 1 else root
