"""Collations made explicit: a term over texts with a collation becomes one that compares keys.

DuckDB keeps a collation in the type of a text and compares by a key of it: lower(x) for NOCASE. Here comparisons,
groups, DISTINCT, orders, MIN and MAX get that key written out, so all below the binder knows plain texts. A text
without a collation has the session's default_collation.

Of several texts that are equal by a collation DuckDB shows any. The least by its bytes is shown here; where several
columns have collations, those of one row. An order by a text is completed by its bytes.

An INTERVAL is compared likewise: its key is `normalized_interval(i)`, as 30 days equal 1 month.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlfront.binding.collated_scalars import CollatedScalars
from sqlfront.binding.collation_types import explicit, united
from sqlfront.binding.environment import Output
from sqlfront.binding.notes import Notes
from sqlfront.planner.algebra.groups_of_set import groups_of_set
from sqlfront.planner.algebra.rewriting import (
    NewColumns,
    copied,
    extended,
    projected,
    rewrite,
    walk_once,
    with_scalars,
)
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Not,
    Ref,
    Scalar,
    cast,
    conjunction,
    function_name,
    substitute,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Common,
    Distinct,
    Join,
    Made,
    Map,
    Scan,
    SetOperation,
    Sort,
    Term,
    Top,
    Unnest,
    Values,
    Window,
    Windowed,
)
from sqlfront.planner.algebra.to_sql import scalar_sql

_COLLATE = "{0} COLLATE "
_LEAST = "min({before}{0}{behind})"
_BYTES = f'{_COLLATE}"binary"'
_ARRAY = re.compile(r"\[\d+\]")
_EXTREMES = ("min", "max")
_QUANTILES = ("quantile_disc", "quantile", "median")
_BEST = ("arg_min", "argmin", "min_by", "arg_max", "argmax", "max_by", "arg_min_null", "arg_max_null")
# What these give does not depend on the collation of their arguments.
_BY_BYTES = frozenset(("count", "first", "last", "any_value", "list", "array_agg", "string_agg", "first_value",
                       "last_value", "nth_value", "lag", "lead"))  # fmt: skip


def without_collations(output: Output, notes: Notes, con: Any, default: str) -> Output:
    """A query over plain texts. The collations of its columns are noted."""
    rewriting = _Rewriting(output.term, CollatedScalars(notes, con, default))
    term = rewrite(output.term, rewriting.change)
    return replace(output, term=term, more=tuple(rewriting.sorts(order, is_total=True) for order in output.more))


def over_tables(term: Term, bound: Term, notes: Notes) -> Term:
    """A term that DuckDB is to compute over the tables: their texts go in without a collation, and come out with it.
    `bound` is the query that it was made of, in which columns still have the collations that are noted."""
    new, scans = NewColumns(term), [part for part in walk_once(bound) if isinstance(part, Scan)]
    collated = {(scan.table, name) for scan in scans for name, column in scan.read if column in notes.collated}

    def change(part: Term) -> Term:
        if not isinstance(part, Scan) or not any((part.table, name) in collated for name, _ in part.read):
            return part
        read = tuple((name, new.like(column)) for name, column in part.read)
        values = (
            Call(_BYTES, (Ref(own),), own.type) if (part.table, name) in collated else Ref(own) for name, own in read
        )
        return Map(replace(part, read=read), tuple(map(Made, part.columns, values)))

    made = []
    for column in term.columns:  # An ARRAY with a collation would come out as a LIST.
        collation = None if _ARRAY.search(column.type) else notes.collated.get(column)
        made.append(Made(new.like(column), explicit(Ref(column), collation)))
    return Map(rewrite(term, change), tuple(made))


class _Rewriting:
    def __init__(self, term: Term, scalars: CollatedScalars) -> None:
        self._scalars, self._new = scalars, NewColumns(term)

    def change(self, term: Term) -> Term:
        """An operator whose inputs are changed already. It keeps its columns."""
        match term:
            case Aggregate():
                return self._aggregate(term)
            case Distinct(on=None):
                return self._distinct(term)
            case Distinct():
                return self._distinct_on(term)
            case SetOperation():
                return self._set_operation(term)
            case Window():
                return self._window(term)
            case Top():
                is_total = term.limit is not None or term.offset is not None
                return replace(term, order=self.sorts(term.order, is_total))
            case Common():
                pairs = zip(term.columns, term.term.columns, strict=False)
                self._scalars.note((new, self._scalars.known.get(old)) for new, old in pairs)
            case Values(columns=columns, rows=rows):
                for row in rows:
                    found = zip(columns, map(self._scalars.of, row), strict=True)
                    self._scalars.note((column, united(self._scalars.known.get(column), one)) for column, one in found)
            case Map(made=made):
                self._scalars.note((one.column, self._scalars.of(one.value)) for one in made)
                for one in made:
                    self._scalars.note_key(one.column, one.value)
            case Unnest(elements=made):
                for one in made:
                    element = self._scalars.of(one.value)
                    self._scalars.note([(one.column, element.parts[0][1] if element is not None else None)])
        return with_scalars(term, self._scalars.explicit)

    def sorts(self, order: Sequence[Sort], is_total: bool) -> tuple[Sort, ...]:
        """An order by keys; if it `is_total`, texts that are equal by their collations are told by their bytes."""
        found, bytes_ = [], []
        for one in order:
            found.append(replace(one, value=self._scalars.key(one.value)))
            if self._scalars.compared(one.value) is not None:
                bytes_.append(replace(one, value=self._scalars.explicit(one.value)))
        return (*found, *(bytes_ if is_total else ()))

    # Groups -----------------------------------------------------------------------------------------

    def _aggregate(self, term: Aggregate) -> Term:
        """Groups by keys, each with the least of its texts, and aggregates of keys where these decide."""
        self._scalars.note((one.column, self._scalars.of_call(one)) for one in term.aggregates)
        if len(term.sets or ()) > 1 and any(map(self._is_told_apart, term.aggregates)):
            return self._by_set(term)
        collated = [column for column in term.groups if self._scalars.compares(column)]
        if not collated and not any(self._scalars.is_collated(part) for one in term.aggregates for part in _parts(one)):
            return term
        below, own, keys = self._keyed(term.input, collated)
        shown: dict[Column, Scalar] = {}
        aggregates = []
        for one in term.aggregates:
            over = _over(one, own)
            made, below = self._told_apart(over, term, keys, below)
            aggregates.append(made if made is not None else self._aggregated(over, shown))
        groups = tuple(keys.get(column, column) for column in term.groups)
        least = self._least([own[column] for column in collated])
        for column, value in zip(collated, least[1]):
            hidden = Call("CASE WHEN {0} IS NOT NULL THEN {1} END", (Ref(keys[column]), value), column.type)
            shown[column] = value if term.sets is None else hidden
        sets = None if term.sets is None else tuple(frozenset(keys.get(one, one) for one in each) for each in term.sets)
        grouping = tuple((bits, tuple(keys.get(one, one) for one in of)) for bits, of in term.grouping)
        grouped = Aggregate(below, groups, (*aggregates, *least[0]), sets, grouping)
        return Map(grouped, tuple(Made(column, shown.get(column, Ref(column))) for column in term.columns))

    def _keyed(self, term: Term, columns: Sequence[Column]) -> tuple[Term, dict[Column, Column], dict[Column, Column]]:
        """A term with some columns under other numbers, and a key for each of these."""
        own = {column: self._new.like(column) for column in columns}
        made = [Made(own.get(column, column), Ref(column)) for column in term.columns]
        keys = {}
        for column in columns:
            self._scalars.note([(own[column], self._scalars.known.get(column))])
            value = self._scalars.key(Ref(column))
            keys[column] = self._new.column(column.name, value.type)
            self._scalars.notes.move(column, keys[column])
            made.append(Made(keys[column], value))
        return (Map(term, tuple(made)) if columns else term), own, keys

    def _least(self, columns: Sequence[Column]) -> tuple[list[Aggregated], list[Scalar]]:
        """The least values of columns, of one row: what aggregates them, and what tells each of the result."""
        if not columns:
            return [], []
        value: Scalar = Ref(columns[0])
        if len(columns) > 1:
            fields = ", ".join(f"v{place} := {{{place}}}" for place in range(len(columns)))
            packed = Call(f"struct_pack({fields})", tuple(map(Ref, columns)), "", can_fail=False)
            [value] = self._scalars.types.typed([packed])
        least = self._new.column(columns[0].name, value.type)
        self._scalars.notes.move(columns[0], least)
        found: list[Scalar] = [Ref(least)]
        if len(columns) > 1:
            found = [_field(Ref(least), f"v{place}", one.type) for place, one in enumerate(columns)]
        return [Aggregated(least, _LEAST, (value,))], found

    def _aggregated(self, one: Aggregated, shown: dict[Column, Scalar]) -> Aggregated:
        """An aggregate over plain texts. `shown` gets its column's value, where that is not the aggregate's own."""
        order = self._argument_order(one.form, one.arguments, one.distinct, one.order)
        called, filter_ = self._called(one, shown), self._scalars.explicit(one.filter)
        return replace(one, column=called[0], form=called[1], arguments=called[2], order=order, filter=filter_)

    def _called(
        self, one: Aggregated | Windowed, shown: dict[Column, Scalar]
    ) -> tuple[Column, str, tuple[Scalar, ...]]:
        """The column that holds what an aggregate or a window function gives, its form and its arguments."""
        column, form, arguments = one.column, one.form, one.arguments
        name, is_collated = function_name(form), any(map(self._scalars.orders, arguments[:1]))
        if name in _EXTREMES and is_collated:
            pair = (self._scalars.explicit(arguments[0]), self._scalars.key(arguments[0]))
            packed = Call("CASE WHEN {0} IS NOT NULL THEN struct_pack(k := {1}, v := {0}) END", pair, "")
            [value] = self._scalars.types.typed([packed])
            listed = len(arguments) > 1
            held = self._new.column(column.name, f"{value.type}[]" if listed else value.type)
            self._scalars.notes.move(column, held)
            shown[column] = _field(Ref(held), "v", column.type)
            if listed:
                shown[column] = Call(
                    "list_transform({0}, LAMBDA e : struct_extract(e, 'v'))", (Ref(held),), column.type
                )
            return held, form, (value, *arguments[1:])
        if name == "histogram" and is_collated and len(arguments) == 1:
            held = self._new.like(column)
            shown[column] = self._sorted_by_key(held, arguments[0])
            return held, form, (self._scalars.explicit(arguments[0]),)
        if name in _BEST:
            return (
                column,
                form,
                (self._scalars.explicit(arguments[0]), self._scalars.key(arguments[1]), *arguments[2:]),
            )
        if name == "count" and one.distinct:
            return column, form, tuple(map(self._scalars.key, arguments))
        if name in _BY_BYTES:
            return column, form, tuple(map(self._scalars.explicit, arguments))
        return column, *self._scalars.written(form, arguments)

    def _sorted_by_key(self, histogram: Column, value: Scalar) -> Scalar:
        """A histogram whose texts stand in the order of their keys, and of their bytes."""
        collation = self._scalars.compared(value)
        assert collation is not None
        key = scalar_sql(self._scalars.texts.key(Constant("e.key", value.type), collation))
        pairs = f"list_transform(map_entries({{0}}), LAMBDA e : struct_pack(k := {key}, e := e))"
        form = f"map_from_entries(list_transform(list_sort({pairs}), LAMBDA e : e.e))"
        return Call(form, (Ref(histogram),), histogram.type, can_fail=False)

    def _argument_order(
        self, form: str, arguments: tuple[Scalar, ...], distinct: bool, order: tuple[Sort, ...]
    ) -> tuple[Sort, ...]:
        """The order in which an aggregate gets its rows: by bytes where it sorts them by a collation itself."""
        texts = [one for one in arguments if not isinstance(one, Constant) and self._scalars.orders(one)]
        if order or distinct or function_name(form) not in _QUANTILES:
            return self.sorts(order, is_total=True)
        return tuple(Sort(self._scalars.explicit(one)) for one in texts)

    def _told_apart(
        self, one: Aggregated, term: Aggregate, keys: dict[Column, Column], below: Term
    ) -> tuple[Aggregated | None, Term]:
        """An aggregate of DISTINCT texts over the least text of each key in its group; None for any other."""
        if not self._is_told_apart(one):
            return None, below
        groups = [Ref(keys.get(column, column)) for column in term.groups]
        functions, arguments = [], []
        for value in one.arguments:
            if isinstance(value, Constant) or self._scalars.compared(value) is None:
                arguments.append(self._scalars.explicit(value))
                continue
            least = self._new.column("least", value.type)
            partition, condition = (*groups, self._scalars.key(value)), self._scalars.explicit(one.filter)
            functions.append(Windowed(least, _LEAST, (self._scalars.explicit(value),), partition, filter=condition))
            arguments.append(explicit(Ref(least), self._scalars.texts.filled(value, self._scalars.of(value))))
        known = dict(zip(one.arguments, arguments, strict=True))
        order = tuple(replace(item, value=known.get(item.value, item.value)) for item in one.order)
        found = replace(one, arguments=tuple(arguments), order=order, filter=self._scalars.explicit(one.filter))
        return found, Window(below, tuple(functions))

    def _is_told_apart(self, one: Aggregated) -> bool:
        """Whether an aggregate gets one of several texts that are equal."""
        is_by_key = function_name(one.form) in ("count", *_EXTREMES)
        return one.distinct and not is_by_key and any(map(self._scalars.compared, one.arguments))

    def _by_set(self, term: Aggregate) -> Term:
        """The groups of each grouping set by themselves: each set has other texts that are equal."""
        known, found = self._scalars.known, list[Term]()
        shared = Common(f"collated sets {self._new.column('', 'BOOLEAN').number}", term.input, term.input.columns)
        for one in term.sets or ():
            whole = bool(term.groups) and not one
            aggregates = tuple(_divided(each) if whole else each for each in term.aggregates)
            groups = groups_of_set(replace(term, input=shared), one, aggregates, self._new)
            copy, columns = copied(groups, self._new)
            self._scalars.note((new, known.get(old)) for old, new in columns.items())
            found.append(rewrite(copy, self.change))
        united_sets = found[0]
        for each in found[1:]:
            united_sets = SetOperation("union", True, united_sets, each, tuple(map(self._new.like, term.columns)))
        return Map(united_sets, tuple(Made(own, Ref(old)) for own, old in zip(term.columns, united_sets.columns)))

    def _distinct(self, term: Distinct) -> Term:
        if not any(map(self._scalars.compares, term.columns)):
            return term
        return self._aggregate(Aggregate(term.input, term.columns, ()))

    def _distinct_on(self, term: Distinct) -> Term:
        order, on = self.sorts(term.order, is_total=True), term.on or ()
        keys = {
            column: self._new.column(column.name, self._scalars.key(Ref(column)).type)
            for column in on
            if self._scalars.compares(column)
        }
        if not keys:
            return replace(term, order=order)
        below = extended(term.input, (Made(key, self._scalars.key(Ref(column))) for column, key in keys.items()))
        return projected(Distinct(below, tuple(keys.get(column, column) for column in on), order), term.columns)

    def _window(self, term: Window) -> Term:
        shown: dict[Column, Scalar] = {}
        functions = []
        for one in term.functions:
            name = function_name(one.form)
            self._scalars.note([(one.column, self._scalars.of_call(one))])
            column, form, arguments = self._called(one, shown)
            found = replace(
                one, column=column, form=form, arguments=arguments,
                partition=tuple(map(self._scalars.key, one.partition)),
                order=self.sorts(one.order, is_total=name == "row_number"), filter=self._scalars.explicit(one.filter),
                argument_order=self._argument_order(one.form, one.arguments, one.distinct, one.argument_order),
            )  # fmt: skip
            functions.append(found)
        window = Window(term.input, tuple(functions))
        if not shown:
            return window
        return Map(window, tuple(Made(column, shown.get(column, Ref(column))) for column in term.columns))

    def _set_operation(self, term: SetOperation) -> Term:
        for column, one, other in zip(term.columns, term.left.columns, term.right.columns, strict=True):
            if one in self._scalars.known or other in self._scalars.known:
                both = self._scalars.known.get(one), self._scalars.known.get(other)
                self._scalars.note([(column, self._scalars.texts.of_union(*both, column.type))])
        if not any(map(self._scalars.compares, term.columns)) or (term.kind == "union" and term.all):
            return term
        if term.kind == "union":
            return self._distinct(Distinct(replace(term, all=True)))
        left, right = self._side(term.left, term), self._side(term.right, term)
        if term.all:
            left, right = self._numbered(left), self._numbered(right)
        else:
            left = self._distinct(Distinct(left))
        compared = [
            Compare("IS NOT DISTINCT FROM", self._scalars.key(Ref(mine)), self._scalars.key(Ref(theirs)))
            for mine, theirs in zip(left.columns, right.columns, strict=True)
        ]
        found = Join("semi" if term.kind == "intersect" else "anti", left, right, conjunction(compared))
        return Map(found, tuple(Made(column, Ref(own)) for column, own in zip(term.columns, left.columns)))

    def _side(self, side: Term, term: SetOperation) -> Term:
        """One side of a set operation, in the types and collations of the whole."""
        made = []
        for column, own in zip(term.columns, side.columns, strict=True):
            new = self._new.like(column)
            self._scalars.note([(new, self._scalars.known.get(column))])
            made.append(Made(new, cast(Ref(own), column.type)))
        return Map(side, tuple(made))

    def _numbered(self, side: Term) -> Term:
        """Each copy of rows that are equal with a number."""
        number, order = self._new.column("copy", "BIGINT"), tuple(Sort(Ref(column)) for column in side.columns)
        partition = tuple(self._scalars.key(Ref(column)) for column in side.columns)
        form = "row_number({before}{behind})"
        return Window(side, (Windowed(number, form, (), partition, order),))


def _parts(one: Aggregated) -> tuple[Scalar, ...]:
    return (*one.arguments, one.filter, *(item.value for item in one.order))


def _over(one: Aggregated, columns: Mapping[Column, Column]) -> Aggregated:
    """An aggregate over other columns."""
    values = {old: Ref(new) for old, new in columns.items()}
    order = tuple(replace(item, value=substitute(item.value, values)) for item in one.order)
    arguments = tuple(substitute(value, values) for value in one.arguments)
    return replace(one, arguments=arguments, order=order, filter=substitute(one.filter, values))


def _divided(one: Aggregated) -> Aggregated:
    """An average over all rows as DuckDB rounds that of a group: it does so under a FILTER."""
    is_average = function_name(one.form) in ("avg", "mean") and one.filter == TRUE
    return replace(one, filter=Not(IsNull(one.arguments[0]))) if is_average else one


def _field(value: Scalar, name: str, type_: str) -> Call:
    return Call(f"struct_extract({{0}}, '{name}')", (value,), type_, strict=True, can_fail=False)
