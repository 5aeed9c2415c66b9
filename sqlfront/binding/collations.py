"""Collations made explicit: a term over texts with a collation becomes one that compares keys.

DuckDB keeps a collation in the type of a text and compares by a key of it: lower(x) for NOCASE. Here comparisons,
groups, DISTINCT, orders, MIN and MAX get that key written out, so all below the binder knows plain texts. What DuckDB
computes of a text by its collation, LIKE for instance, gets COLLATE written out.

Of several texts that are equal by a collation DuckDB shows any. The least by its bytes is shown here; where several
columns have collations, those of one row. An order by a text is completed by its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlfront.binding.collation_types import Collation, TextTypes, explicit, united
from sqlfront.binding.environment import Output
from sqlfront.binding.notes import Notes
from sqlfront.binding.scalar_types import BETWEEN, Types
from sqlfront.planner.algebra.rewriting import NewColumns, extended, projected, rewrite, walk_once, with_scalars
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    IsNull,
    Logic,
    Not,
    Ref,
    Scalar,
    cast,
    columns_of,
    conjunction,
    function_name,
    parts_of,
    substitute,
    walk,
    with_parts,
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
_EXTREMES = ("min", "max")
_BEST = ("arg_min", "argmin", "min_by", "arg_max", "argmax", "max_by", "arg_min_null", "arg_max_null")
# What these give does not depend on the collation of their arguments.
_BY_BYTES = frozenset(("count", "first", "last", "any_value", "list", "array_agg", "string_agg", "first_value",
                       "last_value", "nth_value", "lag", "lead"))  # fmt: skip


def without_collations(output: Output, notes: Notes, con: Any) -> Output:
    """A query over plain texts. The collations of its columns are noted."""
    rewriting = _Rewriting(output.term, notes, con)
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

    made = [Made(new.like(column), explicit(Ref(column), notes.collated.get(column))) for column in term.columns]
    return Map(rewrite(term, change), tuple(made))


class _Rewriting:
    def __init__(self, term: Term, notes: Notes, con: Any) -> None:
        self._notes, self._known = notes, notes.collated
        self._texts, self._types, self._new = TextTypes(con), Types(con), NewColumns(term)
        self._asked: dict[Scalar, Collation | None] = {}

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
                self._note((new, self._known.get(old)) for new, old in pairs)
            case Values(columns=columns, rows=rows):
                for row in rows:
                    found = zip(columns, map(self._collation, row), strict=True)
                    self._note((column, united(self._known.get(column), one)) for column, one in found)
            case Map(made=made):
                self._note((one.column, self._collation(one.value)) for one in made)
            case Unnest(elements=made):
                for one in made:
                    element = self._collation(one.value)
                    self._note([(one.column, element.parts[0][1] if element is not None else None)])
        return with_scalars(term, self.explicit)

    def sorts(self, order: Sequence[Sort], is_total: bool) -> tuple[Sort, ...]:
        """An order by keys; if it `is_total`, texts that are equal by their collations are told by their bytes."""
        found, bytes_ = [], []
        for one in order:
            found.append(replace(one, value=self._key(one.value)))
            if self._collation(one.value) is not None:
                bytes_.append(replace(one, value=self.explicit(one.value)))
        return (*found, *(bytes_ if is_total else ()))

    def explicit(self, scalar: Scalar) -> Scalar:
        """An expression whose comparisons are those of keys. It has no collation itself."""
        if not self._reads_collations(scalar):
            return scalar
        match scalar:
            case Compare(left=left, right=right):
                return self._compared(scalar, left, right)
            case Call(form=form, arguments=(inner,)) if form.startswith(_COLLATE):
                return self.explicit(inner)
            case Call(form=form, arguments=arguments):
                found = self._known_call(form, arguments)
                if found is not None:
                    return found
                written = replace(scalar, arguments=tuple(map(self._written, arguments)))
                is_text = scalar.type == "VARCHAR" and self._collation(scalar) is not None
                return Call(_BYTES, (written,), scalar.type, scalar.strict, can_fail=False) if is_text else written
            case Logic() | Not() | IsNull():
                return with_parts(scalar, [self.explicit(part) for part in parts_of(scalar)])
        return scalar

    def _compared(self, scalar: Compare, left: Scalar, right: Scalar) -> Scalar:
        collation = united(self._collation(left), self._collation(right))
        if collation is None:
            return replace(scalar, left=self.explicit(left), right=self.explicit(right))
        if left.type == right.type:
            found: Scalar = replace(scalar, left=self._key(left, collation), right=self._key(right, collation))
        else:  # DuckDB casts a side first.
            sides = (self._written(left), self._written(right))
            found = Call(f"{{0}} {scalar.operator} {{1}}", sides, "BOOLEAN", can_fail=True)
        self._notes.move(scalar, found)
        return found

    def _known_call(self, form: str, arguments: tuple[Scalar, ...]) -> Scalar | None:
        """BETWEEN and IN over keys."""
        collation = None
        for one in arguments:
            collation = united(collation, self._collation(one)) if one.type == arguments[0].type else None
        is_listed = form.startswith("{0} IN ({1}") and len(arguments) > 1
        if collation is None or not (form == BETWEEN or is_listed) or len({one.type for one in arguments}) > 1:
            return None
        keys = tuple(self._key(one, collation) for one in arguments)
        if form == BETWEEN:
            return Logic("AND", (Compare(">=", keys[0], keys[1]), Compare("<=", keys[0], keys[2])))
        return Call(form, keys, "BOOLEAN", can_fail=False)

    def _written(self, scalar: Scalar) -> Scalar:
        """An expression with its collation written out, for what DuckDB computes of it."""
        if isinstance(scalar, Ref):
            return explicit(scalar, self._known.get(scalar.column))
        if isinstance(scalar, Call) and self._known_call(scalar.form, scalar.arguments) is None:
            return replace(scalar, arguments=tuple(map(self._written, scalar.arguments)))
        return self.explicit(scalar)

    def _key(self, value: Scalar, collation: Collation | None = None) -> Scalar:
        """What DuckDB compares in place of a value; the value itself if it has no collation."""
        collation = collation or self._collation(value)
        if collation is None:
            return self.explicit(value)
        [key] = self._types.typed([self._texts.key(self.explicit(value), collation)])
        self._notes.move(value, key)
        return key

    # Groups -----------------------------------------------------------------------------------------

    def _aggregate(self, term: Aggregate) -> Term:
        """Groups by keys, each with the least of its texts, and aggregates of keys where these decide."""
        self._note((one.column, self._called(one)) for one in term.aggregates)
        collated = [column for column in term.groups if column in self._known]
        if not collated and not any(self._reads_collations(part) for one in term.aggregates for part in _parts(one)):
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
            self._known[own[column]] = self._known[column]
            value = self._key(Ref(column))
            keys[column] = self._new.column(column.name, value.type)
            self._notes.move(column, keys[column])
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
            [value] = self._types.typed([packed])
        least = self._new.column(columns[0].name, value.type)
        self._notes.move(columns[0], least)
        found: list[Scalar] = [Ref(least)]
        if len(columns) > 1:
            found = [_field(Ref(least), f"v{place}", one.type) for place, one in enumerate(columns)]
        return [Aggregated(least, _LEAST, (value,))], found

    def _aggregated(self, one: Aggregated, shown: dict[Column, Scalar]) -> Aggregated:
        """An aggregate over plain texts. `shown` gets its column's value, where that is not the aggregate's own."""
        order = self.sorts(one.order, is_total=True)
        arguments, column = self._arguments(one.form, one.arguments, one.distinct, one.column, shown)
        return replace(one, column=column, arguments=arguments, order=order, filter=self.explicit(one.filter))

    def _arguments(
        self, form: str, arguments: tuple[Scalar, ...], distinct: bool, column: Column, shown: dict[Column, Scalar]
    ) -> tuple[tuple[Scalar, ...], Column]:
        """The arguments of an aggregate or a window function, and the column that holds what it gives."""
        name, collations = function_name(form), [self._collation(one) for one in arguments]
        if name in _EXTREMES and collations[0] is not None:
            pair = (self.explicit(arguments[0]), self._key(arguments[0], collations[0]))
            packed = Call("CASE WHEN {0} IS NOT NULL THEN struct_pack(k := {1}, v := {0}) END", pair, "")
            [value] = self._types.typed([packed])
            listed = len(arguments) > 1
            held = self._new.column(column.name, f"{value.type}[]" if listed else value.type)
            self._notes.move(column, held)
            shown[column] = _field(Ref(held), "v", column.type)
            if listed:
                shown[column] = Call(
                    "list_transform({0}, LAMBDA e : struct_extract(e, 'v'))", (Ref(held),), column.type
                )
            return (value, *arguments[1:]), held
        if name in _BEST:
            return (self.explicit(arguments[0]), self._key(arguments[1]), *arguments[2:]), column
        if name == "count" and distinct:
            return tuple(map(self._key, arguments)), column
        change = self.explicit if name in _BY_BYTES else self._written
        return tuple(map(change, arguments)), column

    def _told_apart(
        self, one: Aggregated, term: Aggregate, keys: dict[Column, Column], below: Term
    ) -> tuple[Aggregated | None, Term]:
        """An aggregate of DISTINCT texts over the least text of each key in its group; None for any other."""
        name = function_name(one.form)
        if not one.distinct or name in ("count", *_EXTREMES) or not any(map(self._collation, one.arguments)):
            return None, below
        if term.sets is not None:
            self._refuse_distinct(one.column)
        groups = [Ref(keys.get(column, column)) for column in term.groups]
        functions, arguments = [], []
        for value in one.arguments:
            collation = self._collation(value)
            if collation is None:
                arguments.append(self.explicit(value))
                continue
            least = self._new.column("least", value.type)
            partition, condition = (*groups, self._key(value)), self.explicit(one.filter)
            functions.append(Windowed(least, _LEAST, (self.explicit(value),), partition, filter=condition))
            arguments.append(explicit(Ref(least), collation))
        known = dict(zip(one.arguments, arguments, strict=True))
        order = tuple(replace(item, value=known.get(item.value, item.value)) for item in one.order)
        found = replace(one, arguments=tuple(arguments), order=order, filter=self.explicit(one.filter))
        return found, Window(below, tuple(functions))

    def _refuse_distinct(self, column: Column) -> None:
        why = "of texts that are equal by the collation it keeps any, for each frame or grouping set another"
        hint = 'take the collation away with COLLATE "binary"'
        what = "An aggregate of DISTINCT texts with a collation, in a window or over grouping sets,"
        raise self._notes.refusal(what, self._notes.place(column), why, hint)

    def _distinct(self, term: Distinct) -> Term:
        if not any(column in self._known for column in term.columns):
            return term
        return self._aggregate(Aggregate(term.input, term.columns, ()))

    def _distinct_on(self, term: Distinct) -> Term:
        order, on = self.sorts(term.order, is_total=True), term.on or ()
        keys = {
            column: self._new.column(column.name, self._key(Ref(column)).type) for column in on if column in self._known
        }
        if not keys:
            return replace(term, order=order)
        below = extended(term.input, (Made(key, self._key(Ref(column))) for column, key in keys.items()))
        return projected(Distinct(below, tuple(keys.get(column, column) for column in on), order), term.columns)

    def _window(self, term: Window) -> Term:
        shown: dict[Column, Scalar] = {}
        functions = []
        for one in term.functions:
            name = function_name(one.form)
            collation = self._called(one)
            if one.distinct and name not in ("count", *_EXTREMES) and any(map(self._collation, one.arguments)):
                self._refuse_distinct(one.column)
            self._note([(one.column, collation)])
            arguments, column = self._arguments(one.form, one.arguments, one.distinct, one.column, shown)
            found = replace(
                one, column=column, arguments=arguments, partition=tuple(map(self._key, one.partition)),
                order=self.sorts(one.order, is_total=name == "row_number"), filter=self.explicit(one.filter),
                argument_order=self.sorts(one.argument_order, is_total=True),
            )  # fmt: skip
            functions.append(found)
        window = Window(term.input, tuple(functions))
        if not shown:
            return window
        return Map(window, tuple(Made(column, shown.get(column, Ref(column))) for column in term.columns))

    def _set_operation(self, term: SetOperation) -> Term:
        for column, one, other in zip(term.columns, term.left.columns, term.right.columns, strict=True):
            if one in self._known or other in self._known:
                both = self._known.get(one), self._known.get(other)
                self._note([(column, self._texts.of_union(*both, column.type))])
        if not any(column in self._known for column in term.columns) or (term.kind == "union" and term.all):
            return term
        if term.kind == "union":
            return self._distinct(Distinct(replace(term, all=True)))
        left, right = self._side(term.left, term), self._side(term.right, term)
        if term.all:
            left, right = self._numbered(left), self._numbered(right)
        else:
            left = self._distinct(Distinct(left))
        compared = [
            Compare("IS NOT DISTINCT FROM", self._key(Ref(mine)), self._key(Ref(theirs)))
            for mine, theirs in zip(left.columns, right.columns, strict=True)
        ]
        found = Join("semi" if term.kind == "intersect" else "anti", left, right, conjunction(compared))
        return Map(found, tuple(Made(column, Ref(own)) for column, own in zip(term.columns, left.columns)))

    def _side(self, side: Term, term: SetOperation) -> Term:
        """One side of a set operation, in the types and collations of the whole."""
        made = []
        for column, own in zip(term.columns, side.columns, strict=True):
            new = self._new.like(column)
            self._note([(new, self._known.get(column))])
            made.append(Made(new, cast(Ref(own), column.type)))
        return Map(side, tuple(made))

    def _numbered(self, side: Term) -> Term:
        """Each copy of rows that are equal with a number."""
        number, order = self._new.column("copy", "BIGINT"), tuple(Sort(Ref(column)) for column in side.columns)
        partition = tuple(self._key(Ref(column)) for column in side.columns)
        form = "row_number({before}{behind})"
        return Window(side, (Windowed(number, form, (), partition, order),))

    # Collations -------------------------------------------------------------------------------------

    def _called(self, one: Aggregated | Windowed) -> Collation | None:
        """The collation of what an aggregate or a window function gives."""
        if not any(map(self._reads_collations, one.arguments)):
            return None
        text = one.form.format(*map(scalar_sql, map(self._written, one.arguments)), before="", behind="")
        over = " OVER ()" if isinstance(one, Windowed) else ""
        return self._texts.of(text + over, columns_of(*one.arguments))

    def _collation(self, scalar: Scalar) -> Collation | None:
        if isinstance(scalar, Ref):
            return self._known.get(scalar.column)
        if not self._reads_collations(scalar) or scalar.type == "BOOLEAN":
            return None
        if scalar not in self._asked:
            text, columns = scalar_sql(self._written(scalar)), columns_of(scalar)
            self._asked[scalar] = self._texts.of(text, columns)
        return self._asked[scalar]

    def _reads_collations(self, scalar: Scalar) -> bool:
        return any(
            (isinstance(part, Ref) and part.column in self._known)
            or (isinstance(part, Call) and part.form.startswith(_COLLATE))
            for part in walk(scalar)
        )

    def _note(self, found: Iterable[tuple[Column, Collation | None]]) -> None:
        self._known.update((column, collation) for column, collation in found if collation is not None)


def _parts(one: Aggregated) -> tuple[Scalar, ...]:
    return (*one.arguments, one.filter, *(item.value for item in one.order))


def _over(one: Aggregated, columns: Mapping[Column, Column]) -> Aggregated:
    """An aggregate over other columns."""
    values = {old: Ref(new) for old, new in columns.items()}
    order = tuple(replace(item, value=substitute(item.value, values)) for item in one.order)
    arguments = tuple(substitute(value, values) for value in one.arguments)
    return replace(one, arguments=arguments, order=order, filter=substitute(one.filter, values))


def _field(value: Scalar, name: str, type_: str) -> Call:
    return Call(f"struct_extract({{0}}, '{name}')", (value,), type_, strict=True, can_fail=False)
