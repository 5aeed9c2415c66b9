"""How the distinct rows of a join are found in turn, as plan data (see `rules/distinct_in_turn.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from sqlfront.planner.model.query import Comparison


@dataclass(frozen=True)
class Range:
    """The rows of one atom that join a row of another: equal in the variables `by`, with a value of `variable` within
    the bounds that `tests` set, one below and one above at most (`variable` None: no test)."""

    by: tuple[str, ...]
    variable: str | None = None
    tests: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class Extreme:
    """Of the rows of an atom that differ in `variable` alone, the one with the greatest value, or the least, serves."""

    variable: str
    greatest: bool


@dataclass(frozen=True)
class Partner:
    """Another atom, whose rows join those of the outer atom, or, if `inner`, of the inner one. `shown` are the
    variables that it alone puts out; without any it only filters."""

    atom: str
    inner: bool
    range: Range
    shown: tuple[str, ...]
    extreme: Extreme | None


@dataclass(frozen=True)
class Turns:
    """Distinct rows by outer groups: a group is the rows of atom `outer_atom` with the same values of the variables
    `outer`. Rows of `inner_atom` join them by the `range`, and put out the variables `inner` besides. `extreme` is that
    of the outer rows. Of inner rows that show the same in a group, the one with the `best` value joins all that any of
    them joins.
    """

    outer_atom: str
    inner_atom: str
    outer: tuple[str, ...]
    inner: tuple[str, ...]
    range: Range
    extreme: Extreme | None
    best: Extreme | None
    partners: tuple[Partner, ...] = ()
