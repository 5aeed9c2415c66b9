"""Islands: groups of rows that follow one another in an order, as a running sum of flags numbers them.

`sum(flag) OVER (PARTITION BY p ORDER BY o)` never falls along the order if no flag is negative. So the rows of a
partition with one sum follow one another, and are an island: a session, a run of equal values. The flag may read the
rows around its row, by LAG and LEAD over the same partition and order. Neither the names nor the number of the query
blocks matter: maps between the windows are looked through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.neighbours import Layers, Place, layers_of, over_rows, place_of, reach_of
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Constant,
    Ref,
    Scalar,
    columns_of,
    function_name,
    is_null_where,
    substitute,
)
from sqlfront.planner.algebra.terms import Aggregate, Map, Term, Window, Windowed, scalars_of

COUNTS = ("count", "count_star", "count_if", "countif")
_RUNNING = ("UNBOUNDED PRECEDING", "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
_DIGITS = 6
"""A flag has so few that a running sum fits BIGINT."""

Values = Mapping[Column, Scalar]


@dataclass(frozen=True)
class Islands:
    """The groups of an `aggregate` that are islands.

    `layers` are the windows and maps between the rows and the aggregate, the lowest first. The window `numbering`
    numbers the islands of each partition of `place`, which reads the rows; `number` is the group that has its value,
    `keys` are the groups that have the partition's. The `before` rows before a row and the `after` rows after it decide
    its flag.
    """

    aggregate: Aggregate
    layers: Layers
    numbering: Windowed
    place: Place
    keys: tuple[Column, ...]
    number: Column
    before: int
    after: int

    @property
    def rows(self) -> Term:
        """The rows whose groups the islands are."""
        return self.layers[0].input

    @property
    def by_rows(self) -> bool:
        """Whether each row has a number of its own; else rows that tie in the order have one."""
        return self.numbering.frame.upper().startswith("ROWS")

    def on(self, rows: Term) -> Islands:
        """The same islands of other rows."""
        layers, found = list[Map | Window](), rows
        for layer in self.layers:
            found = replace(layer, input=found)
            layers.append(found)
        return replace(self, aggregate=replace(self.aggregate, input=found), layers=tuple(layers))

    def over(
        self, rows: Term, change: Callable[[Windowed], Windowed], numbered: Callable[[Term], Term] = lambda term: term
    ) -> Term:
        """The layers over other rows, whose columns all pass through them, with changed windows. `numbered` chooses
        the rows that are numbered."""

        def windowed(layer: Window, below: Term) -> Term:
            shown = numbered(below) if self.numbering in layer.functions else below
            return Window(shown, tuple(map(change, layer.functions)))

        return over_rows(self.layers, rows, windowed)


def islands_of(term: Aggregate) -> Islands | None:
    """What an aggregate has as groups, if these are islands."""
    if term.sets is not None:
        return None
    layers, values, reaches = layers_of(term.input), dict[Column, Scalar](), [(0, 0)]
    place: Place | None = None
    numbering: Windowed | None = None
    for layer in layers:
        if isinstance(layer, Map):
            values |= {one.column: substitute(one.value, values) for one in layer.made}
            continue
        places = [place_of(one, values) for one in layer.functions]
        place = place or places[0]
        if numbering is not None or not all(place.is_like(one) for one in places):
            return None
        reach = reach_of(layer.functions)
        if reach is not None:
            reaches.append(reach)
        elif len(layer.functions) == 1 and _numbers(layer.functions[0], values):
            [numbering] = layer.functions
        else:
            return None
    if place is None or numbering is None or not place.reads(layers[0].input.columns):
        return None
    reach = sum(before for before, _ in reaches), sum(after for _, after in reaches)
    return _grouped(term, layers, numbering, place, values, reach)


def _numbers(one: Windowed, values: Values) -> bool:
    """Whether a function is a running sum, or count, that never falls."""
    frame = one.frame.upper().removesuffix(" EXCLUDE NO OTHERS")
    runs = not frame or frame.partition(" ")[2] in _RUNNING
    if not runs or one.distinct or one.argument_order:
        return False
    name = function_name(one.form)
    return name in COUNTS or (name == "sum" and _is_flag(substitute(one.arguments[0], values)))


def _is_flag(value: Scalar) -> bool:
    """Whether an expression is surely a small whole number, none of them negative, or NULL."""
    if value.type == "BOOLEAN" or is_null_where(value, frozenset()):
        return True
    if isinstance(value, Constant):
        return value.sql.isdigit() and len(value.sql) <= _DIGITS
    if not isinstance(value, Call):
        return False
    name, arguments = function_name(value.form), value.arguments
    if value.form.startswith("CASE WHEN "):
        return all(map(_is_flag, (*arguments[1::2], *arguments[len(arguments) - len(arguments) % 2 :])))
    if name in ("if", "coalesce", "ifnull"):
        return all(map(_is_flag, arguments[1:] if name == "if" else arguments))
    return value.form.startswith(("CAST({0} AS ", "TRY_CAST({0} AS ")) and _is_flag(arguments[0])


def _grouped(
    term: Aggregate,
    layers: Layers,
    numbering: Windowed,
    place: Place,
    values: Values,
    reach: tuple[int, int],
) -> Islands | None:
    """The islands that are groups of an aggregate; None if it puts some of them together, or reads their number."""
    groups = {values.get(column, Ref(column)): column for column in term.groups}
    number = groups.get(Ref(numbering.column))
    keys = [groups[value] for value in place.partition if value in groups]
    read = [value for value in groups if value != Ref(numbering.column)]
    read += [substitute(value, values) for value in scalars_of(term)]
    if number is None or len(keys) < len(place.partition) or len(groups) < len(term.groups):
        return None
    if numbering.column in columns_of(*read):
        return None
    return Islands(term, layers, numbering, place, tuple(keys), number, *reach)
