"""Aggregates become measures, sums over the join of products of leaf factors; those that are no sums, distinct
values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import lcm
from typing import Any

from sqlfront.binding.notes import Notes
from sqlfront.cut.expressions.over_simpler import over_simpler
from sqlfront.cut.expressions.polynomials import ONE, Monomial, Polynomial, multiplied, scaled
from sqlfront.cut.expressions.scalar_forms import ADD, SUBTRACT, call, is_cast, row_values
from sqlfront.cut.expressions.special_values import Specials, is_finite
from sqlfront.cut.expressions.value_types import decimal_parts, is_exact_number
from sqlfront.cut.factors import Measures, Multiply, are_alike, as_doubles, exactly, in_full, in_one_type
from sqlfront.cut.join_core import JoinCore
from sqlfront.cut.kept_values import Extremum, KeptValues
from sqlfront.cut.leaf_columns import Leaves, named
from sqlfront.cut.over_ordered import LISTED, OverOrdered
from sqlfront.cut.products import Expander, is_floating
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Constant,
    Scalar,
    cast,
    columns_of,
    conjuncts,
    function_name,
)
from sqlfront.planner.algebra.terms import Aggregated
from sqlfront.planner.model.query import Measure, RawColumn
from sqlfront.planner.model.raw_column import Moment, Terms
from sqlfront.storage.codecs.moments import MOMENTS
from sqlfront.storage.codecs.order import is_orderable
from sqlfront.storage.errors import NotSupportedError

COUNTS = ("count", "count_star")
SUMS = ("sum", "count_if", "countif")
AVERAGES = ("avg", "mean")
LEAST = ("min", "bool_and", "arg_min", "argmin", "min_by")
GREATEST = ("max", "bool_or", "arg_max", "argmax", "max_by")
MOST_VALUES = 1_000_000
"""DuckDB's own bound of the numbers of values that MIN(x, n) takes."""
MOST_TERMS = 32
"""The most products that a moment of an expression over several tables is multiplied out into."""


@dataclass(frozen=True)
class _Argument:
    """An argument of a statistic, and its value and presence multiplied out."""

    number: Scalar
    value: Polynomial
    presence: Polynomial


class SummedArguments:
    """Which averages DuckDB computes as SUM / COUNT: those without FILTER, if there is no GROUP BY or the query
    also has an unfiltered SUM or COUNT of the same argument (up to integer casts and added constants, which
    its optimizer takes out of sums)."""

    def __init__(self, aggregates: Sequence[Aggregated], scalar: bool) -> None:
        self._scalar = scalar
        plain = [one for one in aggregates if one.filter == TRUE and not one.distinct]
        self._summed = {
            _bare(one.arguments[0]) for one in plain if function_name(one.form) in ("sum", "count") and one.arguments
        }

    def averages_by_sum(self, average: Aggregated) -> bool:
        return average.filter == TRUE and (self._scalar or _bare(average.arguments[0]) in self._summed)


def _bare(value: Scalar) -> Scalar:
    while isinstance(value, Call) and (_is_whole_cast(value) or _adds_constant(value)):
        value = value.arguments[0]
    return value


def _is_whole_cast(value: Call) -> bool:
    return is_cast(value) and "INT" in value.type


def _adds_constant(value: Call) -> bool:
    return value.form in (ADD, SUBTRACT) and not columns_of(value.arguments[1])


class Aggregates:
    """Binds aggregates; equal ones share a raw column, equal sums a measure, equal factors a leaf column."""

    def __init__(
        self, con: Any, core: JoinCore, leaves: Leaves, kept: KeptValues, notes: Notes, summed: SummedArguments
    ) -> None:
        self._core, self._leaves, self._notes, self._summed, self._kept = core, leaves, notes, summed, kept
        self._expander = Expander(con, core, leaves.never_null, notes)
        self._measures = Measures(leaves, self._expander.first_atom)
        self._raw: dict[object, RawColumn] = {}
        self._counted: dict[str, RawColumn] = {}
        self._ordered = OverOrdered(con, kept, self._add, self._is_simple)

    @property
    def measures(self) -> tuple[Measure, ...]:
        return self._measures.all

    @property
    def raw(self) -> tuple[RawColumn, ...]:
        return tuple(self._raw.values())

    def value(self, aggregate: Aggregated) -> Scalar:
        """The aggregate's value, as read from the raw columns that hold it. Raises NotSupportedError."""
        found = over_simpler(aggregate, self.value, self._is_simple)
        if found is None and not self._core.outer:
            found = self._ordered.value(aggregate)
        return self._read(aggregate) if found is None else found

    def _is_simple(self, value: Scalar) -> bool:
        """Whether an expression has the value of one table's row, and its text compares as it is."""
        return len(self._core.atoms_of(value)) == 1 and not columns_of(value) & self._notes.collated.keys()

    def _read(self, aggregate: Aggregated) -> Scalar:
        """The aggregate's value as its own raw column."""
        same = replace(aggregate, column=_ANY)
        known = self._raw.get(same)
        if known is None:
            known = self._raw[same] = self._bind(aggregate)
        found = cast(named(known.name, known.type), aggregate.column.type)
        if (rows := self._counted.get(known.name)) is None:
            return found
        return call("CASE WHEN {0} > 0 THEN {1} END", aggregate.column.type, named(rows.name, rows.type), found)

    def _add(self, kind: Any, type_: str, **fields: Any) -> RawColumn:
        """A raw column of kept values; equal ones are one."""
        identity = (kind, type_, *fields.items())
        if identity not in self._raw:
            name = self._leaves.unused_name(f"{kind}_{len(self._raw) + 1}")
            self._raw[identity] = RawColumn(name, kind, type_, **fields)
        return self._raw[identity]

    def count_rows(self) -> int:
        """The measure that counts the rows of the join."""
        return self._measures.measure(ONE[0], in_full)

    def _bind(self, aggregate: Aggregated) -> RawColumn:
        self._check(aggregate)
        name = function_name(aggregate.form)
        if name in (*LEAST, *GREATEST):
            return self._extremum(aggregate, "least" if name in LEAST else "greatest")
        if name in MOMENTS:
            return self._statistic(aggregate, name)
        kind = "count" if name in COUNTS else "avg" if name in AVERAGES else "sum"
        if aggregate.distinct:
            return self._distinct(aggregate, kind)
        return self._count(aggregate, kind) if kind == "count" else self._sum(aggregate, kind)

    def _refusal(self, what: str, aggregate: Aggregated, why: str, hint: str) -> NotSupportedError:
        return self._notes.refusal(what, self._notes.place(aggregate.column), why, hint)

    def _check(self, aggregate: Aggregated) -> None:
        name = function_name(aggregate.form)
        if name not in (*COUNTS, *AVERAGES, *SUMS, *LEAST, *GREATEST, *MOMENTS):
            why = "it is made neither of sums over rows, to which a change can be added, nor of the first in an order"
            hint = (
                "use COUNT, SUM, AVG, STDDEV, MIN or MAX, or keep the rows in the view and aggregate when you read it"
            )
            raise self._refusal(f"The aggregate {name}", aggregate, why, hint)
        if aggregate.distinct and name in ("count_if", "countif"):
            hint = "leave DISTINCT out, or use bool_or"
            raise self._refusal(f"{name}(DISTINCT ...)", aggregate, "it can only be 0 or 1", hint)
        if aggregate.order:
            why = "its result does not depend on an order"
            raise self._refusal(f"ORDER BY inside {name}", aggregate, why, "leave it out")

    def _count(self, aggregate: Aggregated, kind: str) -> RawColumn:
        rows: Polynomial = ONE
        if aggregate.arguments:
            rows = self._expander.presence(aggregate.arguments[0])
        return self._column(aggregate, "count", terms=self._counts(self._filtered(aggregate, rows)))

    def _counts(self, rows: Polynomial) -> Terms:
        """The terms of a number of rows."""
        terms = tuple((int(one.coefficient), self._measures.measure(one, in_full)) for one in rows)
        return terms or ((0, self.count_rows()),)

    def _sum(self, aggregate: Aggregated, kind: str) -> RawColumn:
        argument_type = aggregate.arguments[0].type
        argument = self._number(aggregate.arguments[0], kind, aggregate)
        floating = is_floating(argument_type)
        found = self._expander.expand(argument, floating)
        value, presence = self._filtered(aggregate, found.value), self._filtered(aggregate, found.presence)
        counted = self._add("count", "BIGINT", terms=self._counts(presence)) if kind == "sum" and presence[1:] else None
        present = self._presence(presence, aggregate) if counted is None else self.count_rows()
        scale = 0 if floating else (decimal_parts(argument_type) or (0, 0))[1]
        column = self._column(
            aggregate,
            kind,
            terms=self._terms(value, scale, as_doubles if floating else in_full, aggregate),
            present=present,
            scale=scale,
            specials=self._specials(aggregate, found.specials),
            argument_type=argument_type,
            from_sum=kind == "avg" and self._summed.averages_by_sum(aggregate),
        )
        if counted is not None:
            self._counted[column.name] = counted
        return column

    def _specials(self, aggregate: Aggregated, specials: Specials) -> tuple[Terms, ...] | None:
        """The terms of numbers that are above 0 where NaN, +inf and -inf come into a sum."""
        if not specials:
            return None
        counts = (self._filtered(aggregate, one) for one in (specials.nan, specials.plus, specials.minus))
        return tuple(self._counts(scaled(one, lcm(*(term.coefficient.denominator for term in one)))) for one in counts)

    def _statistic(self, aggregate: Aggregated, name: str) -> RawColumn:
        """A statistic of exact moments. A moment is over the rows where its own arguments are finite; those where they
        are not are counted."""
        if aggregate.distinct:
            why = "its sums are over rows, not over values"
            raise self._refusal(f"{name}(DISTINCT ...)", aggregate, why, "select the distinct values in a subquery")
        values = in_one_type([self._number(value, "statistic", aggregate) for value in aggregate.arguments])
        floating = values[0].type == "DOUBLE"
        arguments = [self._floating(value, aggregate) if floating else self._exact(value) for value in values]
        scale = (decimal_parts(arguments[0].number.type) or (0, 0))[1]
        rows = self._filtered(aggregate, reduce(multiplied, (one.presence for one in arguments)))

        def moment(powers: tuple[int, ...]) -> Moment:
            pairs = zip(arguments, powers, strict=True)
            factors = [factor for one, power in pairs for factor in [one.value] * power or [one.presence]]
            product = self._filtered(aggregate, reduce(multiplied, factors))
            self._check_product(product, aggregate)
            return Moment(powers, self._terms(product, scale * sum(powers), exactly, aggregate))

        def outside(one: _Argument) -> Terms:
            [row] = rows
            is_wild = call("NOT isfinite({0})", "BOOLEAN", one.number)
            return self._counts((row.where((self._core.atoms_of(one.number)[0], is_wild)),))

        return self._column(
            aggregate,
            "statistic",
            present=self._presence(rows, aggregate),
            scale=scale,
            specials=tuple(map(outside, arguments)) if floating else None,
            statistic=name,
            moments=tuple(map(moment, MOMENTS[name])),
        )

    def _exact(self, value: Scalar) -> _Argument:
        found = self._expander.expand(value, False)
        return _Argument(value, found.value, found.presence)

    def _floating(self, number: Scalar, aggregate: Aggregated) -> _Argument:
        """A DOUBLE, summed where it is finite."""
        atoms = self._core.atoms_of(number)
        if len(atoms) != 1:
            why = "its powers are kept as products of one-table sums, which rounded arithmetic does not follow"
            hint = "compute it from one table's columns"
            raise self._refusal("This statistic of several tables or none", aggregate, why, hint)
        written = number.arguments[0] if isinstance(number, Call) and is_cast(number) else number
        _, presence = self._expander.leaf(written)
        one = Monomial(Fraction(1), ((atoms[0], number),), presence[0].guarding)
        return _Argument(number, (one.where((atoms[0], is_finite(number))),), presence)

    def _check_product(self, product: Polynomial, aggregate: Aggregated) -> None:
        alike = all(
            are_alike([value for owner, value in one.values if owner == atom])
            for one in product
            for atom in {owner for owner, _ in one.values}
        )
        if not alike or len(product) > MOST_TERMS:
            why = f"its powers are more than {MOST_TERMS} products" if alike else "it multiplies decimals of two types"
            raise self._refusal("This statistic", aggregate, why, "compute its argument from one table's columns")

    def _distinct(self, aggregate: Aggregated, kind: str) -> RawColumn:
        """COUNT, SUM or AVG of the distinct values that a view of distinct values keeps; those of a row may have
        NULLs."""
        argument = aggregate.arguments[0]
        if kind == "count":
            parts = row_values(argument)
            kept = self._kept.keep(aggregate, parts or (argument,), nulls=bool(parts))
            return self._column(aggregate, kind, distinct_set=kept.number)
        argument = self._number(argument, kind, aggregate)
        kept = self._kept.keep(aggregate, [argument])
        type_, own = kept.type(0), argument.type
        if type_ != own and decimal_parts(type_):
            why = f"it joins columns of type {type_}, and DuckDB adds it up as {own}"
            raise self._refusal("This sum", aggregate, why, "cast the columns to one type")
        scale = (decimal_parts(own) or (0, 0))[1]
        fields = {"variable": kept.argument[0], "scale": scale, "argument_type": own, "distinct_set": kept.number}
        return self._column(aggregate, kind, **fields)

    def _extremum(self, aggregate: Aggregated, kind: Extremum) -> RawColumn:
        """MIN(x) is the first of the values x; ARG_MIN(p, q) is p of the first of the values (q, p)."""
        name, operands = function_name(aggregate.form), list(aggregate.arguments)
        expected = 1 if name in ("min", "max", "bool_and", "bool_or") else 2
        if len(operands) != expected:
            return self._list(aggregate, kind)
        if name.startswith("bool_") and operands[0].type != "BOOLEAN":
            operands = [cast(operands[0], "BOOLEAN")]
        argument = operands[::-1]
        kept = self._kept.keep(aggregate, argument, extremum=kind)
        for position, value in enumerate(argument):
            self._check_order(kept.type(position), value, aggregate)
        field = self._column(aggregate, kind, variable=kept.argument[-1], distinct_set=kept.number)
        return replace(field, type=kept.type(len(argument) - 1))

    def _list(self, aggregate: Aggregated, kind: Extremum) -> RawColumn:
        """MIN(x, n): the first n of the values x, each as often as it comes about."""
        (value, number), name = aggregate.arguments[-2:], function_name(aggregate.form)
        why = None
        if len(aggregate.arguments) > 2:
            why = "DuckDB leaves the order of rows that tie open"
        elif not (isinstance(number, Constant) and number.sql.isdigit() and 0 < int(number.sql) < MOST_VALUES):
            why = f"its number is no constant from 1 to {MOST_VALUES - 1:,}"
        elif aggregate.distinct or self._core.outer or len(self._core.atoms_of(value)) != 1:
            why = "its copies are no sum over rows of one table that are always there"
        elif columns_of(value) & self._notes.collated.keys():
            why = "its texts have a collation"
        else:
            kept = self._kept.keep(aggregate, [value], extremum=kind, counted=True)
            if kept.type(0).partition("(")[0] not in LISTED:
                why = f"a list of {kept.type(0)} is not made of the values kept"
        if why is not None:
            raise self._refusal(f"{name} of the first n", aggregate, why, f"use {name} without a number")
        assert isinstance(number, Constant)
        self._check_order(kept.type(0), value, aggregate)
        field = self._column(aggregate, kind, variable=kept.argument[0], distinct_set=kept.number)
        return replace(field, type=f"{kept.type(0)}[]", first=int(number.sql))

    def _check_order(self, kept: str, value: Scalar, aggregate: Aggregated) -> None:
        """Refuse types whose codes are in another order than the values."""
        own = value.type
        joined_to_text = own.startswith("ENUM") and kept != own
        if joined_to_text or not is_orderable(own):
            why = "the codes under which its values are kept are not in their order"
            what = f"{function_name(aggregate.form)} over {'an ENUM joined to text' if joined_to_text else own}"
            raise self._refusal(what, aggregate, why, "cast it to a number or to VARCHAR")

    def _number(self, argument: Scalar, kind: str, aggregate: Aggregated) -> Scalar:
        """An argument that DuckDB sums; BOOLEAN as INTEGER."""
        if argument.type == "BOOLEAN" and kind == "sum":  # COUNT_IF is this sum: a HUGEINT, NULL without rows
            return cast(argument, "INTEGER")
        if not is_exact_number(argument.type) and not is_floating(argument.type):
            what = f"{kind} of {argument.type}"
            raise self._refusal(what, aggregate, "only numbers are summed", "cast it to a number")
        return argument

    def _column(self, aggregate: Aggregated, kind: Any, **fields: Any) -> RawColumn:
        name = self._leaves.unused_name(f"{kind}_{len(self._raw) + 1}")
        return RawColumn(name, kind, aggregate.column.type, **fields)

    def _filtered(self, aggregate: Aggregated, polynomial: Polynomial) -> Polynomial:
        if not conjuncts(aggregate.filter):
            return polynomial
        indicator = self._expander.indicator(aggregate.filter)
        return tuple(indicator.times(one) for one in polynomial)

    def _presence(self, presence: Polynomial, aggregate: Aggregated) -> int:
        if len(presence) == 1 and presence[0].coefficient == 1 and not presence[0].values:
            return self._measures.measure(presence[0], in_full)
        if not presence:
            raise self._refusal("A sum of NULL", aggregate, "it is always NULL", "write NULL")
        what = "An average or statistic whose CASE branches are NULL in different rows"
        why = "the number of non-NULL values must itself be a product of one-table counts"
        hint = "declare the columns NOT NULL, use coalesce(column, 0), or write FILTER (WHERE ...) instead of CASE"
        raise self._refusal(what, aggregate, why, hint)

    def _terms(self, polynomial: Polynomial, scale: int, multiply: Multiply, aggregate: Aggregated) -> Terms:
        """The coefficients and measures of a polynomial, brought to a decimal scale: one of 0 if all terms cancel."""
        terms = tuple(
            (self._coefficient(one, scale, multiply, aggregate), self._measures.measure(one, multiply))
            for one in polynomial
        )
        return terms or ((0, self.count_rows()),)

    def _coefficient(self, monomial: Monomial, scale: int, multiply: Multiply, aggregate: Aggregated) -> int:
        """The integer that brings a term's product to the decimal scale of the result; DOUBLE factors have none."""
        scales = 0
        for atom, value in () if multiply is as_doubles else monomial.values:
            parts = decimal_parts(value.type) if atom else None
            scales += parts[1] if parts else 0
        coefficient = monomial.coefficient * Fraction(10) ** (scale - scales)
        if coefficient.denominator != 1:
            why = "a term has more decimal digits than the result type"
            raise self._refusal("This sum", aggregate, why, "cast the columns to wider decimals")
        return int(coefficient)


_ANY = Column(0, "", "")
