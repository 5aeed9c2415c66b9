"""The rows of a union whose branches are read in its place, so that it stores none of them.

The branches of first rows are ranked queries, whose ranked trees are merged. Others are read one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import get_args

from sqlfront.planner.model.cost import Cost
from sqlfront.planner.model.plan import Node, OrderPlan, Plan, RowsIn, Shape
from sqlfront.planner.model.query import Definition


def unmerged(definition: Definition, plans: Sequence[Plan]) -> str | None:
    """Why branches with these plans are not merged, as one keeps more than a ranked tree; None if they are."""
    for plan in plans if definition.limit is not None else ():
        if plan.rows_in != RowsIn.RANKED_TREE or plan.orders[0].root is None:
            return plan.orders[0].obstacle or "its rows are kept in heavy and light parts, not in bags"
    return None


def merge_branches(definition: Definition, plans: Sequence[Plan]) -> Plan:
    """The plan of a view whose rows, or first rows, are those of branches with these plans. It stores nothing."""
    return _first_rows(definition, plans) if definition.limit is not None else _rows_in_turn(definition, plans)


def _rows_in_turn(definition: Definition, plans: Sequence[Plan]) -> Plan:
    """The plan of a view with all rows of its branches. A change of the view is that of all branches together."""
    shapes, costs = get_args(Shape), [plan.stated_cost for plan in plans]
    cost = Cost(*(max(getattr(one, field.name) for one in costs) for field in fields(Cost)))
    kinds = Counter(f"{plan.shape}, {plan.cost.update} per change" for plan in plans)
    kept = "; ".join(how if count == 1 else f"{count} times {how}" for how, count in kinds.items())
    notes = "".join(f"{note}. " for note in dict.fromkeys(definition.notes))
    reason = (
        f"{notes}The {len(plans)} branches of the union are views of their own ({kept}), which are read one after the "
        f"other, so the union stores no row. {plans[0].reason}"
    )
    return Plan(
        shape=max((plan.shape for plan in plans), key=shapes.index),
        strategy=f"branches of a union in turn: {max(plans, key=lambda plan: plan.cost.update).strategy}",
        root=Node(()),
        free=definition.free,
        variables_added=(),
        cost=cost,
        reason=reason,
        rows_in=RowsIn.BRANCHES,
    )


def _first_rows(definition: Definition, plans: Sequence[Plan]) -> Plan:
    """The plan of a view that is the first rows of branches with these plans.

    The first k rows are among the first k of each branch, so a read goes on in one branch only as far as its rows come
    next, and a few rows further; in UNION equal rows follow each other, as all columns are compared (Deep, Hu and
    Koutris 2022, Theorem 20).
    """
    shapes = get_args(Shape)
    costs = [plan.orders[0].cost for plan in plans]
    cost = Cost(*(max(getattr(one, field.name) for one in costs) for field in fields(Cost)))
    again = " Rows that several branches have follow each other, and are one." if definition.mode == "set" else ""
    reason = (
        f"Each of the {len(plans)} branches of the union keeps a ranked tree of its own, in the order by "
        f"{definition.orders[0].label}; what they find is merged when it is read, so that no row of a branch is stored "
        f"(Deep, Hu and Koutris 2022, Theorem 20).{again} {plans[0].orders[0].reason}"
    )
    roots = tuple(plan.orders[0].root for plan in plans if plan.orders[0].root is not None)
    return Plan(
        shape=max((plan.shape for plan in plans), key=shapes.index),
        strategy="ranked enumeration of a union",
        root=Node(()),
        free=definition.free,
        variables_added=(),
        cost=cost,
        reason=reason,
        orders=(OrderPlan(None, cost, reason, part_trees=roots),),
        rows_in=RowsIn.RANKED_TREE,
    )


def merged_definition(definition: Definition) -> Definition:
    """The definition of a view whose branches are merged: they take the places of its atom and its union. Unions that
    the branches read stay."""
    own = {atom.table for atom in definition.atoms}
    unions = tuple(union for union in definition.unions if union[0] not in own)
    ranked = {branch.table: branch.definition for branch in definition.branches}
    derived = tuple((table, ranked.get(table, block)) for table, block in definition.derived)
    return replace(definition, atoms=(), derived=derived, unions=unions, merged=True)
