"""How often rows come about: of which views it counts, and where the number of distinct rows is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlfront.planner.model.plan import Plan
    from sqlfront.planner.model.query import Definition


def ignores_multiplicity(definition: Definition) -> bool:
    """Whether the view depends only on which rows the join has, not on how often."""
    return (
        definition.mode == "set"
        or definition.boolean
        or (
            definition.mode == "group"
            and all(column.kind == "variable" or column.distinct_set is not None for column in definition.raw)
        )
    )


def is_spread(definition: Definition, plan: Plan) -> bool:
    """Whether a view's distinct tuples are held by several nodes, so that no table's size is their number."""
    return definition.mode != "bag" and plan.keeps_rows_apart
