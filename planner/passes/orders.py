"""Orders in a plan: along which tree the first rows are found without computing the join, or why they are sorted.

A ranked tree keeps the rows of each node by anchor, sorted by the best that they and what is below them can make (Deep,
Hu and Koutris 2022, Theorem 19). It is a view tree that enumerates every variable: its inner nodes hold only variables
that several atoms share, so that a leaf's own columns do not multiply the rows above it, and it is the cheapest one by
levels and by look-ups to many, which puts its root where most changes meet one row. Of a cyclic query it is the
tree over bags that the view has, where a bag's rows guard the node of its variables. Optional and absent children are
below a node whose guard is required: a row of NULLs stands for a missing one, and has its place in the order.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.cost import RANKED, RANKED_DISTINCT_DELAY, RANKED_LOGARITHMIC, ROUNDED, SORTED, Cost
from sqlfront.planner.model.heavy_light import Reading, Union
from sqlfront.planner.model.hypergraph import ordered_variables
from sqlfront.planner.model.order_values import has_null_sums, is_rounded, may_be_null
from sqlfront.planner.model.plan import Node, OrderPlan, Plan, RowsIn
from sqlfront.planner.model.query import Definition, Order, Term, is_grouped
from sqlfront.planner.search.join_tree import Weights, build_tree, cheapest_tree
from sqlfront.planner.theory.group_changes import spreading_atom

_NAMES = {"greatest": "GREATEST", "least": "LEAST", "product": "product"}


def add_orders(plan: Plan, definition: Definition, weights: Weights) -> Plan:
    """`plan` with the plans of the definition's orders; if the view is the first rows of a ranked one, only that."""
    if not definition.orders:
        return plan
    orders = tuple(_plan_order(definition, order, plan, weights) for order in definition.orders)
    if definition.limit is None or not orders[0].is_ranked:
        return replace(plan, orders=orders)
    return replace(
        plan,
        strategy="ranked enumeration",
        cost=orders[0].cost,
        reason=orders[0].reason,
        suggestion=None,
        variables_added=(),
        orders=orders,
        rows_in=RowsIn.RANKED_TREE,
    )


def over_part_trees(planned: OrderPlan, order: Order, union: Union, cost: Cost, *, distinct: bool) -> OrderPlan:
    """The plan of an order, `planned` without, whose view, kept at this cost, has no bags but those of a union's
    part trees. `distinct`: these trees are only read to find distinct rows."""
    if not planned.bags and not planned.part_trees and not distinct:
        return planned
    delay = _delay(order, cost.delay.in_order()) if distinct else planned.cost.delay
    cost = Cost(cost.preprocessing.in_order(), cost.update.in_order(), delay, cost.space)
    if planned.part_trees:
        return replace(planned, cost=cost)
    if planned.top or any(part_tree.reading != Reading.ENUMERATED for part_tree in union.part_trees):
        return _sorted("its rows are kept in heavy and light parts, not in bags")
    trees = tuple(_without_lone_root(_over_bags(part_tree.root, distinct=distinct)) for part_tree in union.part_trees)
    reason = f"{planned.reason} Each of the {len(trees)} part trees has such a tree; what they find is merged."
    return OrderPlan(None, cost, reason, part_trees=trees)


def _plan_order(definition: Definition, order: Order, plan: Plan, weights: Weights) -> OrderPlan:
    top = definition.limit.variables if definition.limit is not None else ()
    obstacle = order.obstacle or _obstacle(definition, order, plan)
    if obstacle is not None:
        return _sorted(obstacle)
    distinct = definition.mode == "set" and order.variables <= set(definition.free)
    found = _ranked_tree(definition, plan, weights, top, distinct) if top is not None else None
    if top is None or found is None:
        return _sorted("no table has all columns of PARTITION BY")
    root, cost = found
    if not all(map(_is_guarded, root.walk())):
        return _sorted("columns of PARTITION BY are of rows that may be missing")
    if definition.mode == "set" and set(ordered_variables(definition)) != set(definition.free):
        cost = replace(cost, delay=RANKED_DISTINCT_DELAY)
    cost = replace(cost, delay=_delay(order, cost.delay))
    return OrderPlan(root, cost, _explain(definition, order, cyclic=plan.shape == "cyclic"), top)


def _sorted(why: str) -> OrderPlan:
    return OrderPlan(None, SORTED, f"The rows are sorted when they are read: {why}.", obstacle=why)


def _ranked_tree(
    definition: Definition, plan: Plan, weights: Weights, top: tuple[str, ...], distinct: bool
) -> tuple[Node, Cost] | None:
    """The tree whose root has the columns `top`, and its cost; None if none has them. `distinct`: only what is put out
    is read of it, each row once."""
    if plan.shape == "cyclic":
        root = _without_lone_root(_over_bags(plan.root, distinct=distinct))
        building, update = plan.cost.preprocessing.in_order(), plan.cost.update.in_order()
        cost = Cost(building, update, delay=RANKED.delay, space=plan.cost.preprocessing)
        return (root, cost) if set(top) <= set(root.variables) else None
    free = ordered_variables(definition)
    simple = build_tree(definition, free, "simple", weights, frozenset(top))
    found = (simple, None) if simple is not None else cheapest_tree(definition, free, weights, frozenset(top))
    if found is None:
        return None
    tree, keys = found
    return _without_lone_root(tree), RANKED if simple is None and keys is None else RANKED_LOGARITHMIC


def _over_bags(node: Node, *, distinct: bool) -> Node:
    """A tree over bags as a ranked tree: a leaf of the bag's rows guards a node that no child covers. Where rows are
    `distinct`, it stands for all below it if no variable there is put out."""
    inside = node.connex and node.children and node.variables
    if distinct and inside and not any(child.connex for child in node.children):
        return Node(node.variables)
    children = tuple(_over_bags(child, distinct=distinct) for child in node.children if child.filters is None)
    if children and not any(set(node.variables) <= set(child.variables) for child in children):
        children = (Node(node.variables), *children)
    return replace(node, children=children)


def _delay(order: Order, delay: Bound) -> Bound:
    """The delay of an order's rows, `delay` where their keys tell which comes first."""
    return replace(delay, remark=delay.remark + ROUNDED) if is_rounded(order) else delay


def _obstacle(definition: Definition, order: Order, plan: Plan) -> str | None:
    """Why a query's rows have no ranked tree; None if they have one."""
    if definition.limit is not None and definition.limit.has_ties:
        return "rows that tie share their rank, and no tree stops behind such rows"
    if definition.mode == "group":
        return _group_obstacle(definition)
    if definition.having is not None:
        return "rows are left out when the view is read"
    if definition.comparisons:
        return "it joins by comparisons, and a ranked tree joins by equalities only"
    if plan.shape == "cyclic" and plan.joins:
        return "every join is stored, and no bag"
    unplaced = next((term for term in order.terms if _misplaces_null(term) and may_be_null(definition, term)), None)
    if unplaced is not None:
        name = _NAMES[unplaced.form]
        return f"NULL in a {name} is not in its place part by part (declare the columns NOT NULL)"
    return None


def _group_obstacle(definition: Definition) -> str:
    """Why groups are not kept in order."""
    if definition.scalar:
        return "there is one row"
    if definition.limit is None:
        return (
            "a read gives all groups, and keeping these in order would cost each change O(log N); ORDER BY ... LIMIT, "
            "here or in a view over this one, keeps the first rows"
        )
    atom = spreading_atom(definition)
    if atom is None:
        return "a column has a type without an order that is kept"
    return (
        f"one changed row of {atom} may change many groups, each of which would move: declare keys by which the row "
        "fixes its group, or make the groups a view and order that"
    )


def _explain(definition: Definition, order: Order, *, cyclic: bool) -> str:
    nulls = ""
    if has_null_sums(definition, order):
        nulls = " Rows whose sum is NULL are sorted among themselves when a reader comes to them."
    rounded = ""
    if is_rounded(order):
        rounded = (
            " Sums of floating numbers are compared as they are rounded: rows come in the order of a bound of theirs, "
            "and each is held back until none that follows can come before it."
        )
    repeated = ""
    if definition.mode == "set":
        repeated = " Rows that several rows of the join make follow each other, and are one (Theorem 24)."
    groups = "of each group " if is_grouped(definition) else ""
    avoided = "sorting them, in a tree over the query's bags" if cyclic else "computing the join"
    return (
        f"The first rows {groups}by {order.label} are found without {avoided}: each node of the tree keeps "
        "its rows sorted by their best completion, and a change goes up only as far as a best changes (ranked "
        f"enumeration, Deep, Hu and Koutris 2022, Theorem 19).{repeated}{rounded}{nulls}"
    )


def _misplaces_null(term: Term) -> bool:
    """Whether one value that is NULL puts rows where the term's order has not its NULLs: it is the least of a GREATEST
    and the greatest of a LEAST, while a product is NULL as a whole."""
    if term.form in ("greatest", "least"):
        return (term.nulls_first != term.descending) != (term.form == "greatest")
    return term.form == "product"


def _is_guarded(node: Node) -> bool:
    """Whether a node has just the rows of one child: a required one has all its variables."""
    whole = (child for child in node.children if set(node.variables) <= set(child.variables))
    return not node.children or any(child.presence == "required" for child in whole)


def _without_lone_root(root: Node) -> Node:
    """A root over nothing with one child tells no more than the child."""
    return root.children[0] if len(root.children) == 1 else root
