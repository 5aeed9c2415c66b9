"""The *order* lines of EXPLAIN: the orders that a view keeps or is asked for, and how their first rows are found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlfront.maintenance.ranked.index import RankedNode
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition, is_grouped


def kept_orders(definition: Definition, plan: Plan, view: MaintainedView | None) -> list[dict[str, Any]]:
    """One dictionary for each order; with figures of its ranked trees if the view runs.

    `after` are the columns by whose values reads can begin; None for an order that does not run, or has a LIMIT.
    """
    from sqlfront.maintenance.output.output import crossover
    from sqlfront.maintenance.ranked.keyset_start import sought

    found = []
    grouped = is_grouped(definition)
    for number, (order, planned) in enumerate(zip(definition.orders, plan.orders, strict=True)):
        running = view.ranked.get(number) if view is not None else None
        keyset = sought(running) if running is not None and definition.limit is None else None
        members = [view, *view.branches] if view is not None else []
        found.append(
            {
                "order": order.label + (" of each group" if grouped and number == 0 else ""),
                "strategy": "ranked enumeration" if planned.is_ranked else "sorted when read",
                "cost": {kind: str(getattr(planned.cost, kind)) for kind in ("update", "delay", "space")},
                "reason": planned.reason,
                "crossover": None if running is None or view is None else crossover(view),
                "after": None if keyset is None else list(map(definition.label, keyset)),
                "trees": [
                    _ranked(tree.root, member.definition)
                    for member in members
                    if number in member.ranked
                    for tree in member.ranked[number].trees()
                ],
            }
        )
    return found


def order_lines(order: Mapping[str, Any]) -> list[str]:
    """An order in sentences."""
    cost = order["cost"]
    figures = f"{cost['update']} per change, {cost['delay']} between rows, {cost['space']} space"
    lines = [f"by {order['order']}: {order['strategy']}, {figures}", order["reason"]]
    if order["crossover"] is not None:
        lines.append(f"Queries for more than {order['crossover']:,} rows read all of them and sort: that is sooner.")
    if order["after"]:
        lines.append(f"The rows after given values of {', '.join(order['after'])} are found without those before them.")
        lines.append(f"WHERE {order['after'][0]} = ... finds the first such row in O(log N) and reads no others.")
    elif order["after"] is not None:
        lines.append("WHERE column = ... does not use this order: it looks up the tree's keys and indexes, or scans.")
    return lines


def _ranked(node: RankedNode, definition: Definition) -> dict[str, Any]:
    """A node of a ranked tree that runs."""
    assert node.table is not None
    return {
        "variables": [definition.label(variable) for variable in node.node.variables],
        "atom": node.node.atom,
        "anchor": [definition.label(variable) for variable in node.link],
        "rows": node.table.live,
        "bytes": node.table.bytes(),
        "children": [_ranked(child, definition) for child in node.children],
    }
