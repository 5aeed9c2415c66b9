"""The planner's entry: the first rule that knows the query's shape decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.distinct_plans import add_distinct_sets
from sqlfront.planner.passes.orders import add_orders
from sqlfront.planner.passes.window_plans import add_windows
from sqlfront.planner.rules.cyclic import plan_cyclic
from sqlfront.planner.rules.distinct_in_turn import plan_in_turn
from sqlfront.planner.rules.extension import plan_extension
from sqlfront.planner.rules.free_connex import plan_free_connex
from sqlfront.planner.rules.inequality import plan_inequality
from sqlfront.planner.rules.materialize import materialize_joins
from sqlfront.planner.rules.q_hierarchical import plan_q_hierarchical
from sqlfront.planner.rules.range_sums import plan_range_sums
from sqlfront.planner.search.join_tree import Weights

Rule = Callable[[Definition, Weights], Plan | None]

RULES: tuple[Rule, ...] = (
    plan_range_sums,
    plan_inequality,
    plan_q_hierarchical,
    plan_free_connex,
    plan_extension,
    plan_cyclic,
)
IN_LITTLE_SPACE: tuple[Rule, ...] = (plan_range_sums, plan_in_turn, *RULES[1:])
WITH_OUTER_ATOMS: tuple[Rule, ...] = (plan_q_hierarchical, plan_free_connex, plan_extension)
"""The rules whose trees may have optional and absent children."""


def plan_view(
    definition: Definition, weights: Weights | None = None, *, materialize: bool = False, saves_space: bool = False
) -> Plan:
    """The plan of a view; with `materialize` every intermediate join is stored, if it `saves_space` no rows of several
    tables are where they can be found in turn.

    `weights` says by *table* name how often tables change, relative to each other; a missing one counts as 1, constant
    rows as 0. They only choose among trees of the same class. Raises ValueError for a malformed definition (see
    `hypergraph`), TooManyJoins when there are too many to store.
    """
    given = weights or {}
    rates = {atom.table: 0 if atom.is_constant else given.get(atom.table, 1) for atom in definition.atoms}
    changing = {atom.table for atom in definition.changing_atoms}
    rules = IN_LITTLE_SPACE if saves_space else RULES
    for rule in WITH_OUTER_ATOMS if definition.outer_atoms else rules:
        plan = rule(definition, rates)
        if plan is not None:
            if materialize:
                plan = materialize_joins(definition, plan)
            plan = replace(plan, weights=tuple((table, rate) for table, rate in rates.items() if table in changing))
            plan = add_windows(add_orders(plan, definition, rates), definition)
            return add_distinct_sets(plan, definition, partial(plan_view, weights=weights, materialize=materialize))
    raise AssertionError("the last rule answers every query; one with outer atoms has been asked about before")


def outer_obstacle(definition: Definition) -> str | None:
    """Why no tree, or of first rows no ranked tree, has the optional and absent atoms of a definition as children of
    its nodes; None if one has."""
    if definition.comparisons:
        return "its block joins by comparisons"
    kept = [one.definition for one in definition.distinct_sets]
    if any(atom.within is not None for one in kept for atom in one.atoms):
        return "values are kept beside a group of missing rows"  # No path carries these rows to values that are kept.
    plans = [next(filter(None, (rule(one, {}) for rule in WITH_OUTER_ATOMS)), None) for one in (definition, *kept)]
    if plans[0] is None or None in plans:
        return "no tree has its key at a node of required tables"
    if definition.limit is None:
        return None
    orders = add_orders(plans[0], definition, {}).orders
    return orders[0].obstacle if orders else None
