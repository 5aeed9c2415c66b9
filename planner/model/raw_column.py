"""The raw columns of a view: variables, sums, and what is computed of exact sums before the projection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sqlfront.planner.model.window_functions import WindowValue

Terms = tuple[tuple[int, int], ...]
"""Coefficients, and the numbers of the measures that they multiply."""


class Direction(NamedTuple):
    """In which direction values are sorted."""

    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Moment:
    """The sum, over the rows of a group, of a product of `powers` of an aggregate's arguments: the coefficients times
    the measures in `terms`."""

    powers: tuple[int, ...]
    terms: Terms


@dataclass(frozen=True)
class Rank:
    """A position among values: a `fraction` of the way from the first to the last, rounded down or up; or, discrete,
    that of the first value at which this fraction of them is reached.

    `fraction` is written as DuckDB reads it. `descending` counts from the last value. With `by_distance` the values are
    in the order of their distances from their median.
    """

    fraction: str
    rounded: Literal["down", "up", "discrete"]
    descending: bool = False
    by_distance: bool = False


@dataclass(frozen=True)
class RawColumn:
    """One column of the maintained core, before the final projection.

    kind      value
    variable  the free variable `variable`
    count     sum of the coefficients times the measures in `terms`, a BIGINT
    sum       the same, at decimal `scale`, in `type`; NULL when measure `present` is 0
    avg       the same divided by measure `present`, a DOUBLE; NULL when that is 0
    least     `variable` of the first value that `distinct_sets` keeps for the group; NULL when it keeps none
    greatest  the same of the last; with `first` either is a list of so many values, each as often as it comes about
    list      `variable` of all values in their order, each as often as it comes about, or `once`; without a variable
              how often each comes about. NULL when there is none
    rank      `variable` of the value at `rank` in the order of the values; NULL when there is none
    weight    how far the position of `rank` is beyond the value that it is rounded down to, a DOUBLE from 0 to 1
    first     `variable` of the first value, in its order, that `distinct_sets` keeps for the group; NULL without one
    last      `variable` of the last value; as before
    statistic the function `statistic` of `moments`, a DOUBLE; NULL when measure `present`, the number of rows, is 0
    window    what `window` says, of rows kept in order; an aggregate is `over`, whose measures are those of `Windows`
    A count, sum or avg with a `distinct_sets` is over the distinct values that it keeps (of `variable`).
    `specials` are the terms of three numbers that are above 0 where NaN, +inf and -inf come into a floating sum; of a
    statistic those of the numbers of such values of each floating argument.
    `scale` is the decimal scale of the terms, which their coefficients have aligned; of a moment as often as its powers
    add up to. `from_sum`: DuckDB computes
    this AVG as SUM / COUNT, which differs from its AVG operator in the last bit.
    """

    name: str
    kind: Literal[
        "variable",
        "count",
        "sum",
        "avg",
        "least",
        "greatest",
        "list",
        "rank",
        "weight",
        "first",
        "last",
        "statistic",
        "window",
    ]
    type: str
    variable: str | None = None
    terms: Terms = ()
    present: int | None = None
    scale: int = 0
    specials: tuple[Terms, ...] | None = None
    argument_type: str | None = None
    from_sum: bool = False
    distinct_set: int | None = None
    statistic: str | None = None
    moments: tuple[Moment, ...] = ()
    first: int = 0
    once: bool = False
    rank: Rank | None = None
    window: WindowValue | None = None
    over: RawColumn | None = None

    @property
    def all_terms(self) -> tuple[Terms, ...]:
        """The terms of all that is read from sums."""
        return (self.terms, *(one.terms for one in self.moments), *(self.specials or ()))

    @property
    def is_list(self) -> bool:
        """Whether the column has lists of the values that are kept for a group."""
        return self.kind == "list" or self.first > 0


def positions_of(raw: Iterable[RawColumn]) -> str:
    """What the raw columns are that positions among a group's values decide, for people; empty if there are none."""
    words = {"list": "all values in their order", "rank": "the value at a rank"}
    words |= {end: f"the {end} value in an order" for end in ("first", "last")}
    told = [one for one in raw if one.first or one.kind in words]
    return ", ".join(dict.fromkeys(words.get(one.kind) or f"the {one.kind} {one.first} values" for one in told))


def statistics_of(raw: Iterable[RawColumn]) -> str:
    """The names of the statistics among raw columns, for people; empty if there are none."""
    return ", ".join(dict.fromkeys(one.statistic for one in raw if one.statistic is not None))
