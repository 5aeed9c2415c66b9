"""The strategies that divide a query by heavy and light values, each a value from a file of its own."""

from __future__ import annotations

from sqlfront.planner.heavy_light.divided_rings import GROUPED_RING, HUNG_RING, LONG_RING
from sqlfront.planner.heavy_light.hierarchical import HIERARCHICAL
from sqlfront.planner.heavy_light.loomis_whitney import LOOMIS_WHITNEY, SINGLE_TRIANGLES
from sqlfront.planner.heavy_light.path_sum import PATH_SUM
from sqlfront.planner.heavy_light.ring_rows import RING_ROWS
from sqlfront.planner.heavy_light.ring_sum import RING_SUM
from sqlfront.planner.heavy_light.stars import STAR
from sqlfront.planner.heavy_light.triangle_rows import TRIANGLE_ROWS
from sqlfront.planner.heavy_light.triangles import LISTED_TRIANGLES, TRIANGLE_ENDS, TRIANGLE_PAIRS, TRIANGLE_SUM
from sqlfront.planner.model.heavy_light import Strategy, Union
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition

RULES: tuple[Strategy, ...] = (
    HUNG_RING,
    TRIANGLE_SUM,
    TRIANGLE_ENDS,
    TRIANGLE_PAIRS,
    LISTED_TRIANGLES,
    TRIANGLE_ROWS,
    SINGLE_TRIANGLES,
    LOOMIS_WHITNEY,
    PATH_SUM,
    HIERARCHICAL,
    RING_SUM,
    RING_ROWS,
    GROUPED_RING,
    LONG_RING,
    STAR,
)
"""The first strategy that recognises a query divides it."""


def find_union(definition: Definition, plan: Plan, *, single: bool = False, unasked: bool = False) -> Union | None:
    """The division of a query beside its plan; None if none is known, as for joins by comparisons and outer joins.

    `single`: that by one column of each table. `unasked`: only one that is always made.
    """
    if definition.comparisons or definition.outer_atoms:
        return None
    rules = (rule for rule in RULES if rule.single == single and (rule.choice == "always" or not unasked))
    found = (rule.recognise(definition, plan) for rule in rules)
    return next((union for union in found if union is not None), None)


def find_refusal(definition: Definition, plan: Plan, *, single: bool = False) -> tuple[str, str | None] | None:
    """Why a query that nearly has a strategy's shape is not divided, and a hint; None if it resembles none."""
    found = (rule.refusal(definition, plan) for rule in RULES if rule.refusal is not None and rule.single == single)
    return next((refusal for refusal in found if refusal is not None), None)
