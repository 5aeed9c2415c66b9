"""Window functions in a plan: what the orders cost in which their rows are kept, and what reading them takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlfront.planner.model.bound import (
    CONSTANT_BOUND,
    FRAME_ROWS,
    LINEAR_BOUND,
    LOGARITHMIC_BOUND,
    Bound,
    worst,
)
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.model.window_functions import RankBound, WindowValue
from sqlfront.planner.model.window_reach import reaches
from sqlfront.planner.theory.wording import enumerate_words


def add_windows(plan: Plan, definition: Definition) -> Plan:
    """`plan` with the orders of the definition's window functions."""
    windows = definition.windows
    if windows is None:
        return plan
    cost, orders = plan.cost, [order.label for order in windows.orders]
    update, building = worst([cost.update, LOGARITHMIC_BOUND]), cost.preprocessing.in_order()
    one_scan = len(orders) == 1 and not windows.qualified
    delay = cost.delay if one_scan else worst([cost.delay, LOGARITHMIC_BOUND])
    functions = [raw.window for raw in definition.raw if raw.window is not None]
    known = enumerate_words(["sums", *_summaries(functions)])
    kept = f"The rows are kept in order {enumerate_words(orders)}, with {known} below each row of the order's tree."
    told = f"Who reads the changes is told {reached_rows(definition)} rows for a changed row, O(log N) each."
    read = "A scan goes through each partition once; one row's values are found in O(log N)."
    notes = [kept, *_filter(definition), read, told]
    return replace(
        plan,
        cost=replace(cost, update=update, preprocessing=building, delay=delay),
        reason=" ".join((plan.reason, *notes)),
    )


def reached_rows(definition: Definition) -> Bound:
    """The rows whose window functions have other values after a row of theirs has changed."""
    found, windows = reaches(definition), definition.windows
    is_short = windows is not None and len(found) == 1 and any(_counts(bound) for bound in windows.qualified)
    if is_short or all(reach.counts_rows for reach in found):
        return CONSTANT_BOUND
    return CONSTANT_BOUND.plus(FRAME_ROWS) if all(reach.is_bounded for reach in found) else LINEAR_BOUND


def _counts(bound: RankBound) -> bool:
    """Whether a bound leaves so many rows of a partition."""
    return bound.value.function == "row_number" and bound.operator in ("<", "<=")


def _summaries(functions: list[WindowValue]) -> Iterator[str]:
    """What rows know besides sums of the rows below them."""
    if any(one.function in ("min", "max") for one in functions):
        yield "extremes"
    if any(one.counts_peers for one in functions):
        yield "numbers of groups of peers"


def _filter(definition: Definition) -> list[str]:
    """What QUALIFY does to reads."""
    if definition.having is None or definition.windows is None:
        return []
    if definition.windows.qualified:
        return ["QUALIFY leaves rows by their ranks: only these are found, O(log N) each."]
    return ["QUALIFY leaves out rows as they are read: a read goes through all rows."]
