"""Groups by a difference of row numbers become islands, which a running sum of flags numbers.

Whole numbers or days in a row have one `day - row_number() OVER (PARTITION BY p ORDER BY day)`, if no two rows of p
have one day; with `dense_rank()` they may. A run of equal values of s has one `row_number() OVER (PARTITION BY p ORDER
BY t) - row_number() OVER (PARTITION BY p, s ORDER BY t)`, which no other run of the same value has. The difference is
no part of what the rule leaves, so nothing above may read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.column_use import Columns, columns_read
from sqlfront.planner.algebra.neighbours import Place, layers_of, over_rows, place_of
from sqlfront.planner.algebra.rewriting import NewColumns, extended, with_changed
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, keys_of
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    Logic,
    Ref,
    Scalar,
    columns_of,
    conjunction,
    function_name,
    null,
    substitute,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Made,
    Map,
    Term,
    Window,
    Windowed,
    inputs_of,
    scalars_of,
)

_MINUS = "{0} - {1}"
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_STEPS = (*(f"CAST({{0}} AS {type_})" for type_ in _WHOLE), "to_days({0})", "INTERVAL {0} DAY", "(INTERVAL {0} DAY)")
"""What a row number is put into before it is subtracted: equal steps of one."""


def turn_row_numbers_into_islands(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term whose groups by differences of row numbers are islands."""
    new, shared = NewColumns(term), dict[str, Term]()

    def visit(part: Term, needed: Columns) -> Term:
        if isinstance(part, Common):
            if part.name not in shared:
                shared[part.name] = visit(part.term, frozenset(part.term.columns))
            return with_changed(part, (shared[part.name],))
        read = columns_read(part, needed)
        part = with_changed(part, [visit(*one) for one in zip(inputs_of(part), read, strict=True)])
        found = _Numbers(part, facts) if isinstance(part, Aggregate) and part.sets is None else None
        return part if found is None else found.term(needed, new)

    return visit(term, frozenset(term.columns))


@dataclass(frozen=True)
class _Difference:
    """A difference that numbers islands of a place: each begins where the flag is true, over columns of the rows and
    those that are LAGs of `values`."""

    place: Place
    values: Mapping[Column, Scalar]
    flag: Scalar


class _Numbers:
    """An aggregate with the numbers of rows below it, in the `layers` of windows and maps over `rows`."""

    def __init__(self, aggregate: Aggregate, facts: Facts) -> None:
        self._aggregate, self._facts, self._layers = aggregate, facts, layers_of(aggregate.input)
        self._rows = self._layers[0].input if self._layers else aggregate.input
        self._values, self._functions = dict[Column, Scalar](), dict[Column, tuple[str, Place]]()
        for layer in self._layers:
            if isinstance(layer, Map):
                self._values |= {one.column: substitute(one.value, self._values) for one in layer.made}
            else:
                for one in layer.functions:
                    self._functions[one.column] = function_name(one.form), place_of(one, self._values)

    def term(self, needed: Columns, new: NewColumns) -> Term:
        """The aggregate by islands instead of the first such difference that is not needed."""
        aggregate = self._aggregate
        read = needed | columns_of(*scalars_of(aggregate))
        values = {column: self._values.get(column, Ref(column)) for column in aggregate.groups}
        for column, value in values.items():
            others = {one for other, one in values.items() if other != column}
            found = self._difference(value, new) if column not in read else None
            if found is not None and set(found.place.partition) <= others and found.place.reads(self._rows.columns):
                return self._by_islands(column, found, new)
        return aggregate

    def _difference(self, value: Scalar, new: NewColumns) -> _Difference | None:
        if not isinstance(value, Call) or value.form != _MINUS:
            return None
        left, right = value.arguments
        if isinstance(left, Ref) and isinstance(right, Ref) and {left.column, right.column} <= self._functions.keys():
            return self._runs(self._functions[left.column], self._functions[right.column], new)
        while isinstance(right, Call) and right.form in _STEPS:
            [right] = right.arguments
        if not isinstance(right, Ref) or right.column not in self._functions:
            return None
        name, place = self._functions[right.column]
        if left.type not in (*_WHOLE, "DATE") or not place.order or place.order[0].value != left:
            return None
        if place.order[0].descending or columns_of(left) & self._functions.keys():
            return None
        return self._in_a_row(name, place, value, right.column, new)

    def _in_a_row(self, name: str, place: Place, value: Call, number: Column, new: NewColumns) -> _Difference | None:
        """Values in a row: the next one less 1 is the one before less 0."""
        left = value.arguments[0]
        before = new.column("before", left.type)
        one, none = (substitute(value, {number: Constant(text, number.type)}) for text in "10")
        assert isinstance(none, Call)
        differs: Scalar = Compare("IS DISTINCT FROM", one, replace(none, arguments=(Ref(before), none.arguments[1])))
        if name == "dense_rank" and not place.order[1:]:
            differs = conjunction([Compare("IS DISTINCT FROM", left, Ref(before)), differs])
        elif name != "row_number" or not self._is_key((*place.partition, left)):
            return None
        return _Difference(place, {before: left}, differs)

    def _is_key(self, values: Sequence[Scalar]) -> bool:
        """Whether no two rows have the same values."""
        columns = {value.column for value in values if isinstance(value, Ref)}
        return any(key <= columns for key in keys_of(self._rows, self._facts))

    def _runs(self, one: tuple[str, Place], other: tuple[str, Place], new: NewColumns) -> _Difference | None:
        """Runs of equal values: the values by which one number has finer partitions than the other."""
        (name, place), (fine_name, fine) = sorted((one, other), key=lambda found: len(found[1].partition))
        values = [value for value in fine.partition if value not in place.partition]
        if {name, fine_name} != {"row_number"} or place.order != fine.order or not values:
            return None
        if not set(place.partition) <= set(fine.partition):
            return None
        before = {new.column("before", value.type): value for value in values}
        parts = tuple(Compare("IS DISTINCT FROM", value, Ref(column)) for column, value in before.items())
        return _Difference(place, before, parts[0] if len(parts) == 1 else Logic("OR", parts))

    def _by_islands(self, difference: Column, found: _Difference, new: NewColumns) -> Term:
        place, aggregate = found.place, self._aggregate
        begins, number = new.column("begins", "BOOLEAN"), new.column("number", "BIGINT")
        before = tuple(
            Windowed(column, "lag({0})", (value,), place.partition, place.order)
            for column, value in found.values.items()
        )
        flagged = extended(Window(self._rows, before), [Made(begins, found.flag)])
        count = Windowed(number, "count(*)", (), place.partition, place.order, filter=Ref(begins))
        numbered = Window(flagged, (count,))
        rows = over_rows(self._layers, numbered, lambda layer, below: replace(layer, input=below))
        groups = tuple(number if column == difference else column for column in aggregate.groups)
        changed = replace(aggregate, input=rows, groups=groups)
        made = (Made(one, null(one.type) if one == difference else Ref(one)) for one in aggregate.columns)
        return Map(changed, tuple(made))
