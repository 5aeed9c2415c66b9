"""Other plans of a query, for a view that runs: trees for other mixes of changes, and parts by heavy and light values.

The search for a tree knows the mix of changes, and no data. So the trees for several mixes are the choice that whoever
knows the data has, such as the sizes of groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

MOST_TABLES, MOST_ATOMS = 6, 8
"""So many tables are taken, by turns, for the one that changes most; in joins of more atoms one: searches take long."""

MOST_ORDERED = 4
"""A bag of more tables has each of them first, and the others in their order."""

_HOT = 1000.0
"""How many times as often as all others together a table changes then."""


def alternative_trees(definition: Definition, rates: Mapping[str, float]) -> list[Plan]:
    """The plans of a query for these rates of its tables, for equal ones, and for each of the tables that change most
    as the one that changes most by far; each tree once. All are of the class of the first, or of a better one.
    """
    total = sum(rates.values()) or 1.0
    most = MOST_TABLES if len(definition.atoms) <= MOST_ATOMS else 1
    busy = sorted(rates, key=lambda table: (-rates[table], table))[:most]
    mixes = [dict(rates), dict.fromkeys(rates, 1.0), *({**rates, table: _HOT * total} for table in busy)]
    found: dict[object, Plan] = {}
    for mix in mixes:
        plan = plan_view(definition, mix)
        found.setdefault((plan.root, plan.free, *(one.root for one in plan.distinct_sets)), plan)
    first, *others = found.values()
    return [first, *(plan for plan in others if is_as_good(plan, first))]


def is_as_good(plan: Plan, other: Plan) -> bool:
    """Whether a plan costs at most what another one does, with its distinct values and without them."""
    return plan.cost.is_within(other.cost) and (plan.total or plan.cost).is_within(other.total or other.cost)


def join_orders(plan: Plan) -> Iterator[Plan]:
    """The plan with the tables of one bag in other orders.

    A change of one of them is joined with those first that bind the fewest columns, and of these with the first in
    order: whoever knows the sizes of groups knows which of them have few rows.
    """
    for root in _ordered(plan.root):
        yield replace(plan, root=root)


def _ordered(node: Node) -> Iterator[Node]:
    """The node with the children of one bag in other orders."""
    children = node.children
    if node.is_bag and len(children) > 2:
        yield from (replace(node, children=order) for order in _orders(children) if order != children)
    for place, child in enumerate(children):
        for other in _ordered(child):
            yield replace(node, children=(*children[:place], other, *children[place + 1 :]))


def _orders(children: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    if len(children) <= MOST_ORDERED:
        yield from permutations(children)
    else:
        yield from ((first, *(one for one in children if one is not first)) for first in children)
