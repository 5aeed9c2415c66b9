"""The planner's entry: the first rule that knows the query's shape decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.plan import Plan
from planner.query import Definition
from planner.refusal import Refusal
from planner.rules.cyclic import refuse_cyclic
from planner.rules.extension import plan_extension
from planner.rules.free_connex import plan_free_connex
from planner.rules.q_hierarchical import plan_q_hierarchical

Rule = Callable[[Definition, Mapping[str, int]], Plan | Refusal | None]

RULES: tuple[Rule, ...] = (plan_q_hierarchical, plan_free_connex, plan_extension, refuse_cyclic)


def plan_view(definition: Definition, cardinalities: Mapping[str, int] | None = None) -> Plan | Refusal:
    """The plan of a view, or why there is none.

    `cardinalities` gives the number of rows by *table* name; a missing one counts as 1. They only choose among
    trees of the same class. Raises ValueError for a malformed definition (see `hypergraph`).
    """
    for rule in RULES:
        decision = rule(definition, cardinalities or {})
        if decision is not None:
            return decision
    raise AssertionError("the last rule answers every query")
