"""The rows that a plan's tree combines, as an exponent of N: those of the extended result, or of the widest bag."""

from __future__ import annotations

from fractions import Fraction

from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.cover import cover_number


def extended_exponent(definition: Definition, plan: Plan) -> Fraction:
    """The least e such that the tree of a query without comparisons combines O(N^e) rows, over tables of N rows.

    The extended result of an acyclic query is bounded by its fractional edge cover (Atserias, Grohe and Marx 2013), a
    bag by its width. A free-connex tree combines no rows beyond those of its tables.
    """
    if plan.shape == "acyclic":
        return cover_number(plan.free, hypergraph(definition).values())
    return plan.cost.preprocessing.power
