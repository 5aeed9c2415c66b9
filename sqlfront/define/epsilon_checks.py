"""The options about heavy and light values: to which views they apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlfront.define.epsilon import OPTIONS
from sqlfront.planner.heavy_light.strategies import find_refusal, find_union
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.wording import spell_comparison
from sqlfront.storage.errors import ProgrammingError


def check_epsilon(name: str, definition: Definition, plan: Plan, options: Mapping[str, Any]) -> None:
    """ProgrammingError when epsilon, reads or partition is given for a view, called `name`, whose values cannot be told
    apart, or not so."""
    for option in OPTIONS:
        if option in options:
            _check_option(option, name, definition, plan)


def _check_option(option: str, name: str, definition: Definition, plan: Plan) -> None:
    if plan.joins:
        raise _refused(option, name, "every join is stored (strategy = 'materialize')")
    if plan.turns is not None:
        raise _refused(option, name, "only rows of single tables are stored (strategy = 'linear space')")
    single = option == "partition"
    if (plan.union is not None and not single) or find_union(definition, plan, single=single) is not None:
        return
    if definition.derived:
        block = f"create the block as a materialized view of its own WITH ({option} = ...), and read that"
        raise _refused(option, name, "its query reads a block, which is kept as a view of its own", block)
    if definition.comparisons:
        compared = " and ".join(spell_comparison(definition, test) for test in definition.comparisons)
        raise _refused(option, name, f"its query compares {compared} across tables, and parts are joined by equalities")
    refusal = find_refusal(definition, plan, single=single)
    if refusal is not None:
        raise _refused(option, name, *refusal)
    why = "its query is no join of three tables of which each two share a column of their own, nor one of the others"
    raise _refused(option, name, why)


def refuse_materialized(name: str, options: Mapping[str, Any]) -> None:
    """ProgrammingError when a view's options ask both for heavy and light values and to store every join."""
    for option in OPTIONS:
        if option in options and options.get("strategy") == "materialize":
            why = "strategy = 'materialize' stores every join"
            raise _refused(option, name, why, "create the view anew with one of the two")


def _refused(option: str, name: str, why: str, hint: str | None = None) -> ProgrammingError:
    views = "sums over all triangles" if option == "partition" else "views over triangles, and the others"
    return ProgrammingError(
        f"option {option} does not apply to materialized view {name}",
        why=f"{why}; {option} is for {views} that the documentation lists",
        hint=hint or "leave the option out",
    )
