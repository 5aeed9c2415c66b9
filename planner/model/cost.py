"""The cost classes of the strategies. N is the number of rows in the view's tables."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from sqlfront.planner.model.plan import Cost

CONSTANT = Cost(preprocessing="O(N)", update="O(1)", delay="O(1)", space="O(N)")
"""Berkholz, Keppeler and Schweikardt 2017, Theorem 3.2: q-hierarchical; or every step fixed by a declared key."""

LINEAR = Cost(preprocessing="O(N)", update="O(N)", delay="O(1)", space="O(N)")
"""Idris et al. 2017: free-connex acyclic. The update's N is met only when one key holds all rows."""

AMORTISED = replace(CONSTANT, update="O(1) amortised")
"""Free-connex, every step fixed by a declared key or ended by a foreign key (Wang and Yi 2020)."""

PROJECTED = Cost(
    preprocessing="O(N + extended result)",
    update="O(N + change of the extended result)",
    delay="O(1)",
    space="O(N + result)",
)
"""Idris et al. 2017, section 5.1: the free-connex extension, and its projection kept as rows."""

PROJECTED_CONSTANT = replace(PROJECTED, update="O(1 + change of the extended result)")
"""The same when every step of the extension's tree looks up one row: only the change itself is left to pay."""

PROJECTED_AMORTISED = replace(PROJECTED, update="O(1 + change of the extended result) amortised")
"""The same with foreign keys."""

RANGES = Cost(preprocessing="O(N log N)", update="O(N log N)", delay="O(1)", space="O(N)")
"""Idris et al. 2020: one comparison per edge of a free-connex tree. The update's N is met only where a change of one
side has to reach rows of the other."""

RANGES_LOGARITHMIC = replace(RANGES, update="O(log N)")
"""The same where every change is joined with one sum over a range, or one row, at each node."""

RANKED = Cost(preprocessing="O(N log N)", update="O(N log N)", delay="O(log N)", space="O(N)")
"""Deep, Hu and Koutris 2022, Theorem 19, kept under changes; the update's N is met only when one key holds all rows and
the best of a group with that key changes."""

RANKED_LOGARITHMIC = replace(RANKED, update="O(log N)")
"""The same when every step to a parent meets one row."""

RANKED_DISTINCT_DELAY = "O(N log N), O(log N) where rows do not repeat"
"""Deep, Hu and Koutris 2022, Theorem 24: a row of the projection is come to once for each row of the join at worst."""

ROUNDED = ", times the rows whose sums are as near as they are rounded"
"""What a delay is multiplied by where rows are held back until a bound of those that follow is behind them (Fagin,
Lotem and Naor 2003): all rows at worst, whose sums tie but for rounding."""

SORTED = Cost(preprocessing="O(1)", update="O(1)", delay="O(rows log rows) to the first", space="O(1)")
"""Nothing is kept for the order: the rows are sorted when they are read."""

MATERIALIZED = Cost(
    preprocessing="O(N + intermediate results)",
    update="O(1 + change of every intermediate result)",
    delay="O(1)",
    space="O(N + intermediate results)",
)
"""Koch et al. 2014: every intermediate join is stored; the result is the last of them."""


TOUCHED = Cost(preprocessing="O(N)", update="O(rows of the touched groups)", delay="O(1)", space="O(N)")
"""Groups that DuckDB computes from their rows: those that a change touches, before it and after it."""

TOUCHED_WHOLE = replace(TOUCHED, update="O(N)")
"""The same where all rows are one group."""


_POWER = re.compile(r"1|log N|N(\^([\d.]+|\([\d/]+\)))?")


def bag_cost(width: Fraction, update: Fraction, space: Fraction) -> Cost:
    """The cost of a tree over bags by its exponents: building it, one change, and what is stored."""
    return Cost(preprocessing=power_cost(width), update=power_cost(update), delay="O(1)", space=power_cost(space))


def leading_power(cost: str) -> str:
    """The power of N that a cost starts with: "N" of "O(N + result)", "1" of "O(1) amortised"; or "log N"."""
    found = _POWER.match(cost, len("O("))
    if found is None:
        raise ValueError(f"no power of N at the start of {cost}")
    return found[0]


def exponent(power: str) -> Fraction:
    """The exponent of a power of N: 3/2 of "N^1.5", 0 of "1" and of "log N"."""
    base, _, raised = power.partition("^")
    return Fraction(raised.strip("()") or int(base == "N"))


def power_cost(raised: Fraction) -> str:
    """O(1), O(N), O(N^1.5), O(N^(4/3))."""
    if raised in (0, 1):
        return "O(N)" if raised else "O(1)"
    decimal = f"{float(raised):.6g}"
    return f"O(N^{decimal})" if Fraction(decimal) == raised else f"O(N^({raised}))"
