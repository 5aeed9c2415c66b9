"""The *order* lines of EXPLAIN: the orders that a view keeps or is asked for, and how their first rows are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlfront.explain.described_boxes import ranked_data
from sqlfront.maintenance.tree.description import DescribedTree
from sqlfront.planner.model.bound import between_rows
from sqlfront.planner.model.cost import Cost
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition, is_grouped


def kept_orders(definition: Definition, plan: Plan, tree: DescribedTree) -> list[dict[str, Any]]:
    """One dictionary for each order; with figures of its ranked trees if the view runs.

    `after` are the columns by whose values reads can begin; None for an order that does not run, or has a LIMIT.
    """
    return [
        {
            "order": name,
            "strategy": "ranked enumeration" if planned.is_ranked else "sorted when read",
            "cost": {kind: str(getattr(planned.cost, kind)) for kind in ("update", "delay", "space")},
            "reason": planned.reason,
            "crossover": kept.crossover,
            "after": None if kept.after is None else list(kept.after),
            "trees": list(map(ranked_data, kept.trees)),
        }
        for name, planned, kept in zip(order_names(definition), plan.orders, tree.orders, strict=True)
    ]


def order_names(definition: Definition) -> list[str]:
    """The orders of a view, as people call them."""
    grouped = is_grouped(definition)
    names = enumerate(order.label for order in definition.orders)
    return [name + (" of each group" if grouped and number == 0 else "") for number, name in names]


def order_lines(order: Mapping[str, Any], cost: Cost) -> list[str]:
    """An order in sentences."""
    figures = f"{cost.update} per change, {between_rows(cost.delay)}, {cost.space} space"
    lines = [f"by {order['order']}: {order['strategy']}, {figures}", order["reason"]]
    if order["crossover"] is not None:
        lines.append(f"Queries for more than {order['crossover']:,} rows read all of them and sort: that is sooner.")
    if order["after"]:
        lines.append(f"The rows after given values of {', '.join(order['after'])} are found without those before them.")
        lines.append(f"WHERE {order['after'][0]} = ... finds the first such row in O(log N) and reads no others.")
    elif order["after"] is not None:
        lines.append("WHERE column = ... does not use this order: it looks up the tree's keys and indexes, or scans.")
    return lines
