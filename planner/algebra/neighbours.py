"""Window functions that read a few rows around a row: LAG and LEAD, and frames of so many ROWS; and where they stand.

Windows and the maps between them are *layers* over their rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.rewriting import passed
from sqlfront.planner.algebra.scalars import TRUE, Column, Constant, Scalar, columns_of, function_name, substitute
from sqlfront.planner.algebra.terms import Map, Sort, Term, Window, Windowed

FARTHEST = 64
"""Functions of rows farther away are left to DuckDB, which computes the partition."""
_FRAME = re.compile(r"ROWS (?:BETWEEN (.+?) AND (.+?)|(.+?))(?: EXCLUDE .+)?", re.IGNORECASE)
_BOUND = re.compile(r"(?:(\d+) (PRECEDING|FOLLOWING)|CURRENT ROW)", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """The rows of each `partition` in an `order`."""

    partition: tuple[Scalar, ...]
    order: tuple[Sort, ...]

    def is_like(self, other: Place) -> bool:
        """Whether both are the same rows in the same order."""
        return set(self.partition) == set(other.partition) and self.order == other.order

    def reads(self, columns: Iterable[Column]) -> bool:
        """Whether there is an order, and these columns alone decide it."""
        return bool(self.order) and columns_of(*self.partition, *(one.value for one in self.order)) <= frozenset(
            columns
        )


Layers = tuple[Map | Window, ...]


def layers_of(term: Term) -> Layers:
    """The windows and maps that a term begins with, the lowest first."""
    found: list[Map | Window] = []
    while isinstance(term, Map | Window):
        found.append(term)
        term = term.input
    return tuple(reversed(found))


def over_rows(layers: Layers, rows: Term, windowed: Callable[[Window, Term], Term]) -> Term:
    """Layers over other rows, whose columns all pass through them. `windowed` puts a window over a term."""
    found = rows
    for layer in layers:
        if isinstance(layer, Window):
            found = windowed(layer, found)
        else:
            made = {one.column for one in layer.made}
            found = Map(found, (*layer.made, *passed(one for one in found.columns if one not in made)))
    return found


@dataclass(frozen=True)
class Neighbours:
    """A `window` whose functions read, of the rows of a `place`, the `before` rows before each row and the `after` rows
    after it."""

    window: Window
    place: Place
    before: int
    after: int

    @property
    def rows(self) -> Term:
        """The rows below."""
        return self.window.input


def neighbours_of(term: Window) -> Neighbours | None:
    """What rows a window reads, if these are a few around each row in one order."""
    reach, places = reach_of(term.functions), [place_of(one, {}) for one in term.functions]
    if reach is None or not all(places[0].is_like(one) for one in places) or not places[0].reads(term.input.columns):
        return None
    return Neighbours(term, places[0], *reach)


def place_of(one: Windowed, values: Mapping[Column, Scalar]) -> Place:
    """The place of a window function's rows, with the values of columns put in."""
    partition = dict.fromkeys(substitute(value, values) for value in one.partition)
    return Place(tuple(partition), tuple(replace(item, value=substitute(item.value, values)) for item in one.order))


def reach_of(functions: Iterable[Windowed]) -> tuple[int, int] | None:
    """How many rows before a row, and how many after it, these functions read at most; None if one may read any."""
    found = [_reach(one) for one in functions]
    if None in found:
        return None
    known = [one for one in found if one is not None]
    return max((before for before, _ in known), default=0), max((after for _, after in known), default=0)


def _reach(one: Windowed) -> tuple[int, int] | None:
    name = function_name(one.form)
    if name not in ("lag", "lead"):
        return _framed(one.frame)
    if one.frame or one.argument_order or one.distinct or one.filter != TRUE or " NULLS" in one.form:
        return None
    distance = one.arguments[1] if one.arguments[1:] else Constant("1", "INTEGER")
    if not isinstance(distance, Constant) or not distance.sql.isdigit() or int(distance.sql) > FARTHEST:
        return None
    return (int(distance.sql), 0) if name == "lag" else (0, int(distance.sql))


def _framed(frame: str) -> tuple[int, int] | None:
    """The reach of a frame of ROWS."""
    found = _FRAME.fullmatch(frame)
    if found is None:
        return None
    start, end, alone = found.groups()
    bounds = [_BOUND.fullmatch(text) for text in (start or alone, end or "CURRENT ROW")]
    before = after = 0
    for bound in bounds:
        if bound is None or (bound[1] is not None and int(bound[1]) > FARTHEST):
            return None
        if bound[1] is not None and bound[2].upper() == "PRECEDING":
            before = max(before, int(bound[1]))
        elif bound[1] is not None:
            after = max(after, int(bound[1]))
    return before, after
