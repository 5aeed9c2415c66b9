"""The cost classes of the strategies. N is the number of rows in the view's tables."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction

from sqlfront.planner.model.bound import (
    BLOCK_ROWS,
    BOXES_MET,
    CONSTANT_BOUND,
    EXTENDED_CHANGE,
    EXTENDED_RESULT,
    INTERMEDIATE_CHANGE,
    INTERMEDIATE_RESULTS,
    LATER_ISLANDS,
    LINEAR_BOUND,
    LOGARITHMIC_BOUND,
    RANGES_MET,
    RESULT,
    RESULT_CHANGE,
    SORTED_ROWS,
    TO_THE_FIRST,
    TOUCHED_ISLANDS,
    TOUCHED_ROWS,
    Bound,
    Term,
)


@dataclass(frozen=True)
class Cost:
    """The asymptotic cost of a view."""

    preprocessing: Bound
    update: Bound
    delay: Bound
    space: Bound

    def to_dict(self) -> dict[str, str]:
        """The bounds in words, by name."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}

    def is_within(self, other: Cost) -> bool:
        """Whether no bound is above that of another cost."""
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return all(mine == theirs or mine < theirs for mine, theirs in pairs)


CONSTANT = Cost(preprocessing=LINEAR_BOUND, update=CONSTANT_BOUND, delay=CONSTANT_BOUND, space=LINEAR_BOUND)
"""Berkholz, Keppeler and Schweikardt 2017, Theorem 3.2: q-hierarchical; or every step fixed by a declared key."""

LINEAR = replace(CONSTANT, update=LINEAR_BOUND)
"""Idris et al. 2017: free-connex acyclic. The update's N is met only when one key holds all rows."""

AMORTISED = replace(CONSTANT, update=Bound(amortised=True))
"""Free-connex, every step fixed by a declared key or ended by a foreign key (Wang and Yi 2020)."""

PROJECTED = Cost(
    preprocessing=LINEAR_BOUND.plus(EXTENDED_RESULT),
    update=LINEAR_BOUND.plus(EXTENDED_CHANGE),
    delay=CONSTANT_BOUND,
    space=LINEAR_BOUND.plus(RESULT),
)
"""Idris et al. 2017, section 5.1: the free-connex extension, and its projection kept as rows."""

PROJECTED_CONSTANT = replace(PROJECTED, update=CONSTANT_BOUND.plus(EXTENDED_CHANGE))
"""The same when every step of the extension's tree looks up one row: only the change itself is left to pay."""

PROJECTED_AMORTISED = replace(PROJECTED, update=replace(PROJECTED_CONSTANT.update, amortised=True))
"""The same with foreign keys."""

RANGES = replace(CONSTANT, preprocessing=LINEAR_BOUND.in_order(), update=LINEAR_BOUND.in_order())
"""Idris et al. 2020: one comparison per edge of a free-connex tree. The update's N is met only where a change of one
side has to reach rows of the other."""

RANGES_LOGARITHMIC = replace(RANGES, update=LOGARITHMIC_BOUND)
"""The same where every change is joined with one sum over a range, or one row, at each node."""

BOXES = replace(RANGES, preprocessing=Bound(Fraction(2)).in_order())
"""The same where rows lie within two bounds at once: to count what each row meets is to list it."""

BOX_SUMS = Cost(
    preprocessing=replace(LINEAR_BOUND, logs=2),
    update=Bound(logs=2, amortised=True),
    delay=CONSTANT_BOUND,
    space=LINEAR_BOUND.in_order(),
)
"""The same where every change is joined with one sum over such a box, or a range, or one row, at each node: the
logarithmic method (Bentley and Saxe 1980) over wavelet trees (Chazelle 1988)."""

RANKED = replace(RANGES, delay=LOGARITHMIC_BOUND)
"""Deep, Hu and Koutris 2022, Theorem 19, kept under changes; the update's N is met only when one key holds all rows and
the best of a group with that key changes."""

RANKED_LOGARITHMIC = replace(RANKED, update=LOGARITHMIC_BOUND)
"""The same when every step to a parent meets one row."""

RANKED_DISTINCT_DELAY = replace(LINEAR_BOUND.in_order(), remark=", O(log N) where rows do not repeat")
"""Deep, Hu and Koutris 2022, Theorem 24: a row of the projection is come to once for each row of the join at worst."""

ROUNDED = ", times the rows whose sums are as near as they are rounded"
"""What a delay is multiplied by where rows are held back until a bound of those that follow is behind them (Fagin,
Lotem and Naor 2003): all rows at worst, whose sums tie but for rounding."""

SORTED = Cost(
    preprocessing=CONSTANT_BOUND,
    update=CONSTANT_BOUND,
    delay=replace(CONSTANT_BOUND.plus(SORTED_ROWS), remark=TO_THE_FIRST),
    space=CONSTANT_BOUND,
)
"""Nothing is kept for the order: the rows are sorted when they are read."""

BLOCK_SORTED = Bound(terms=(Term(BLOCK_ROWS, logs=1),))
"""The rows of a block are sorted at each epoch."""

MATERIALIZED = Cost(
    preprocessing=LINEAR_BOUND.plus(INTERMEDIATE_RESULTS),
    update=CONSTANT_BOUND.plus(INTERMEDIATE_CHANGE),
    delay=CONSTANT_BOUND,
    space=LINEAR_BOUND.plus(INTERMEDIATE_RESULTS),
)
"""Koch et al. 2014: every intermediate join is stored; the result is the last of them."""


TOUCHED = replace(CONSTANT, update=CONSTANT_BOUND.plus(TOUCHED_ROWS))
"""Groups that DuckDB computes from their rows: those that a change touches."""

TOUCHED_WHOLE = replace(CONSTANT, update=LINEAR_BOUND)
"""The same where all rows are one group."""

TIMED = RANGES_LOGARITHMIC
"""Rows that wait in the order of what the clock is compared with. A tick takes as much, and a step for each row that it
moves."""


NEAREST = replace(RANGES, update=LOGARITHMIC_BOUND.plus(RESULT_CHANGE))
"""An as-of join over two sides in order: look-ups in a search tree, and the rows whose nearest row changes."""

EXTREMES = replace(RANGES, update=replace(LOGARITHMIC_BOUND, terms=(Term(RANGES_MET, logs=1),)))
"""Extremes within ranges of sides in order: a search along subtree extremes for each row whose range has the row."""

EXTREMES_IN_BOXES = replace(
    EXTREMES, update=replace(EXTREMES.update, terms=(*EXTREMES.update.terms, Term(BOXES_MET, logs=1)))
)
"""The same within bounds of two columns: at worst a search meets all rows of its box."""

ISLANDS = replace(RANGES, update=LOGARITHMIC_BOUND.plus(TOUCHED_ISLANDS))
"""Islands of rows in order: look-ups in search trees, and the rows of the islands that a change touches."""

NUMBERED_ISLANDS = replace(ISLANDS, update=LOGARITHMIC_BOUND.plus(TOUCHED_ISLANDS, LATER_ISLANDS))
"""The same where the number of each island is put out."""


def bag_cost(width: Fraction, update: Fraction, space: Fraction) -> Cost:
    """The cost of a tree over bags by its exponents: building it, one change, and what is stored."""
    return Cost(preprocessing=Bound(width), update=Bound(update), delay=CONSTANT_BOUND, space=Bound(space))
