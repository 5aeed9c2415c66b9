"""`strategy = 'linear space'`: a view takes O(N) entries, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlfront.planner.model.plan import Plan
from sqlfront.storage.errors import NotSupportedError

STRATEGY = "linear space"


def saves_space(options: Mapping[str, Any]) -> bool:
    """Whether a view is to take O(N) entries, by its options."""
    return bool(options.get("strategy") == STRATEGY)


def takes_linear_space(plan: Plan) -> bool:
    """Whether a view takes O(N) entries, its blocks included."""
    space = plan.stated_cost.space
    return space.power <= 1 and not space.terms


def check_linear_space(plan: Plan) -> None:
    """NotSupportedError for the plan of a view that is to take O(N) entries, and takes more."""
    if takes_linear_space(plan):
        return
    part = plan.decided_by["space"] or "the view itself"
    raise NotSupportedError(
        f"strategy = '{STRATEGY}' has no plan for this query",
        why=f"{part} takes {plan.stated_cost.space}: of joins that are not free-connex only DISTINCT rows as the "
        "query's result are found in turn, without ORDER BY and LIMIT, where one of the tables that are joined by "
        "columns left out has all output columns that another one lacks",
        hint="leave the option out: strategy = 'auto' stores combinations of rows; or put out the columns that join",
    )
