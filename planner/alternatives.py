"""Other plans of a query, for a view that runs: trees for other mixes of changes, and parts by heavy and light values.

The search for a tree knows the mix of changes, and no data. So the trees for several mixes are the choice that whoever
knows the data has, such as the sizes of groups.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition

MOST_TABLES, MOST_ATOMS = 6, 8
"""So many tables are taken, by turns, for the one that changes most; in joins of more atoms one: searches take long."""

_HOT = 1000.0
"""How many times as often as all others together a table changes then."""


def alternative_trees(definition: Definition, rates: Mapping[str, float]) -> list[Plan]:
    """The plans of a query for these rates of its tables, for equal ones, and for each of the tables that change most
    as the one that changes most by far; each tree once. All are of the class of the first.
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
    return [first, *(plan for plan in others if (plan.cost, plan.total) == (first.cost, first.total))]
