"""Orders of a block's rows: terms that rows of the join are compared by part by part, and the same as SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any

from sqlfront.cut.composed_items import SUMMABLE, Composed, Composing, Obstacle
from sqlfront.cut.expressions.scalar_forms import evaluated, is_cast
from sqlfront.cut.expressions.value_types import is_lossless
from sqlfront.cut.join_core import JoinCore
from sqlfront.cut.leaf_columns import Leaves
from sqlfront.cut.rounded_items import read_rounded
from sqlfront.planner.algebra.scalars import Call, Constant, Scalar, columns_of
from sqlfront.planner.algebra.terms import Sort
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.planner.model.query import Mode, Order, Rounding, Term
from sqlfront.sql.keywords import quoted
from sqlfront.storage.codecs.order import is_orderable

STRICT = ("sum", "product", "rounded")
"""The forms of terms whose value is NULL if one of theirs is."""


@dataclass(frozen=True)
class Ordering:
    """One order that a block is asked for: items over the columns of atoms, which tell all rows apart; its label."""

    items: tuple[Sort, ...]
    label: str


@dataclass(frozen=True)
class OrderContext:
    """What an order's terms are made with."""

    con: Any
    core: JoinCore
    leaves: Leaves
    composing: Composing


def completed(
    written: Sequence[Sort], shown: Sequence[Sort], core: JoinCore, mode: Mode, composing: Composing
) -> tuple[list[Sort], int]:
    """The written items, what settles the last of them, and the output columns, each value once; how many settle."""
    items = list(written)
    settled: tuple[Scalar, ...] = ()
    values = [item.value for item in items]
    if items and mode != "group" and len(core.atoms_of(values[-1])) > 1 and values[-1] not in values[:-1]:
        try:
            composed = composing.read(items[-1].value)
        except Obstacle:
            composed = None
        settled = composed.tie_breakers if composed is not None else ()
        items += [Sort(value, items[-1].descending, items[-1].nulls_first) for value in settled]
    unique: dict[str, Sort] = {}
    for item in (*items, *shown):
        unique.setdefault(scalar_sql(item.value), item)
    return list(unique.values()), len(settled)


def bind_orders(
    orderings: Sequence[Ordering],
    mode: Mode,
    places: dict[Scalar, str],
    shown: dict[Scalar, str],
    context: OrderContext,
    spelled: Callable[[list[str]], list[str]],
) -> tuple[Order, ...]:
    """The orders of a block: `places` have each item's text over raw columns, `shown` the output columns' names."""
    found = []
    for ordering in orderings:
        sorting = tuple((places[item.value], direction(item)) for item in ordering.items)
        terms: tuple[Term, ...] = ()
        numbers: dict[Scalar, int] = {}
        obstacle = None
        if mode != "group":
            try:
                terms, numbers = _terms(ordering.items, context)
            except Obstacle as why:
                obstacle = str(why)
        served = _served([item.value for item in ordering.items], shown, spelled)
        compared = tuple((places[i.value], numbers[i.value]) for i in ordering.items if i.value in numbers)
        found.append(Order(terms, sorting, served, ordering.label, (), obstacle, compared))
    return tuple(found)


def direction(item: Sort) -> str:
    return f"{'DESC' if item.descending else 'ASC'} NULLS {'FIRST' if item.nulls_first else 'LAST'}"


def _served(
    values: Sequence[Scalar], shown: dict[Scalar, str], spelled: Callable[[list[str]], list[str]]
) -> tuple[str | None, ...]:
    """Items as a query of the view would write them, in lower case; None where its columns do not give them."""
    from sqlfront.binding.bound_calls import replaced

    texts: list[str | None] = []
    asked: list[int] = []
    for value in values:
        if value in shown:
            texts.append(shown[value].casefold())
            continue
        found = replaced(value, lambda part: Constant(quoted(shown[part]), part.type) if part in shown else None)
        if columns_of(found):
            texts.append(None)
            continue
        asked.append(len(texts))
        texts.append(scalar_sql(found))
    for place, text in zip(asked, spelled([texts[place] or "" for place in asked])):
        texts[place] = text.casefold()
    return tuple(texts)


# Terms ---------------------------------------------------------------------------------------------


def _terms(items: Sequence[Sort], context: OrderContext) -> tuple[tuple[Term, ...], dict[Scalar, int]]:
    """The terms of a list of items, and which of them each item is."""
    core, leaves = context.core, context.leaves
    terms: list[Term] = []
    numbers: dict[Scalar, int] = {}
    compared: dict[str, int] = {}
    settled = 0
    for place, item in enumerate(items):
        value, atoms = item.value, core.atoms_of(item.value)
        if not all(map(core.is_own, columns_of(value))):
            raise Obstacle(f"{core.spelled(value)} is computed when the view is read")
        if place < settled or not atoms:
            continue
        numbers[value] = len(terms)
        if len(atoms) == 1:
            variable = leaves.variable(value)
            kind = leaves.variable_type(variable)
            if value.type.startswith("ENUM") and not kind.startswith("ENUM"):
                raise Obstacle(f"{core.spelled(value)} is an ENUM that joins text, in whose order it is kept")
            if not is_orderable(kind):
                raise Obstacle(f"{kind} has no order that is kept")
            numbers[value] = compared.setdefault(variable, len(terms))
            if compared[variable] == len(terms):
                terms.append(Term(((1, variable),), "value", item.descending, item.nulls_first))
        elif (composed := context.composing.read(value)) is not None:
            terms.append(_composed(composed, item, context))
            settled = place + 1 + len(composed.tie_breakers)
            following = [(scalar_sql(one.value), direction(one)) for one in items[place + 1 : settled]]
            if following != [(scalar_sql(one), direction(item)) for one in composed.tie_breakers]:
                shown, hint = core.spelled(value), "write it out, as the last item of ORDER BY"
                raise Obstacle(f"rows that tie in {shown} are ordered by what comes after it ({hint})")
        elif (rounded := read_rounded(value, core, context.con)) is not None:
            terms.append(_rounded(*rounded, item, context))
        else:
            parts, whole, constant = _codes(_linear(value, context), context)
            terms.append(Term(parts, "sum", item.descending, item.nulls_first, whole, constant))
    return tuple(terms), numbers


def _composed(composed: Composed, item: Sort, context: OrderContext) -> Term:
    """The term of a greatest, a least or a product; its variables' codes are in one unit."""
    variables = [context.leaves.variable(value) for value in composed.operands]
    kinds = [context.leaves.variable_type(variable) for variable in variables]
    if len({"BIGINT" if kind in SUMMABLE else kind.partition(",")[2] or kind for kind in kinds}) > 1:
        raise Obstacle(f"{context.core.spelled(item.value)} compares columns that join as other types")
    parts = tuple((1, variable) for variable in variables)
    return Term(parts, composed.form, item.descending, item.nulls_first)


def _rounded(parts: Sequence[tuple[Scalar, str]], rounding: Rounding, item: Sort, context: OrderContext) -> Term:
    """The term of a sum of floating numbers."""
    variables = [(context.leaves.variable(value), type_) for value, type_ in parts]
    if any(context.leaves.variable_type(variable) != type_ for variable, type_ in variables):
        raise Obstacle(f"{context.core.spelled(item.value)} adds columns that join as other types")
    added = tuple((1, variable) for variable, _ in variables)
    return Term(added, "rounded", item.descending, item.nulls_first, rounding=rounding)


def _linear(value: Scalar, context: OrderContext) -> list[tuple[Fraction, Scalar | None]]:
    """An exact number as a sum of coefficients times expressions of one table (None: 1). Obstacle if it is none."""
    core = context.core
    atoms, kind = core.atoms_of(value), value.type
    if isinstance(value, Call) and is_cast(value) and is_lossless(value.arguments[0].type, kind):
        return _linear(value.arguments[0], context)
    if kind not in {*SUMMABLE, "HUGEINT"} and not kind.startswith("DECIMAL"):
        raise Obstacle(f"{core.spelled(value)} is no number that is added: it is {kind}")
    if not atoms:
        number: Any = evaluated(context.con, value)
        if number is None:
            raise Obstacle(f"{core.spelled(value)} is NULL")
        return [(Fraction(number), None)]
    if len(atoms) == 1:
        return [(Fraction(1), value)]
    match value:
        case Call(form="{0} + {1}", arguments=(left, right)):
            return [*_linear(left, context), *_linear(right, context)]
        case Call(form="{0} - {1}", arguments=(left, right)):
            return [*_linear(left, context), *_negated(_linear(right, context))]
        case Call(form="-{0}", arguments=(inner,)):
            return _negated(_linear(inner, context))
        case Call(form="{0} * {1}", arguments=(left, right)):
            for factor, other in ((left, right), (right, left)):
                number = evaluated(context.con, factor) if not core.atoms_of(factor) else None
                if isinstance(number, (int, Decimal)):
                    return [(Fraction(number) * c, part) for c, part in _linear(other, context)]
    raise Obstacle(f"{core.spelled(value)} is no sum of one table's columns each")


def _negated(linear: list[tuple[Fraction, Scalar | None]]) -> list[tuple[Fraction, Scalar | None]]:
    return [(-coefficient, part) for coefficient, part in linear]


def _codes(
    linear: Sequence[tuple[Fraction, Scalar | None]], context: OrderContext
) -> tuple[tuple[tuple[int, str], ...], int, int]:
    """The sum over the variables' codes: whole coefficients, by what they have been multiplied, and the constant."""
    total: dict[str, Fraction] = {}
    constant = Fraction(0)
    for coefficient, value in linear:
        if value is None:
            constant += coefficient
            continue
        variable = context.leaves.variable(value)
        kind, shown = context.leaves.variable_type(variable), context.core.spelled(value)
        digits, _, scale = kind.removeprefix("DECIMAL(").removesuffix(")").partition(",")
        if kind.startswith("DECIMAL") and int(digits) > 18:
            raise Obstacle(f"{shown} is {kind}, of which no sums are kept in order: cast it to DECIMAL(18, s)")
        if not kind.startswith("DECIMAL") and kind not in SUMMABLE:
            raise Obstacle(f"{shown} is {kind}, of which no sums are kept in order: cast it to BIGINT")
        unit = Fraction(1, 10 ** int(scale)) if kind.startswith("DECIMAL") else Fraction(1)
        total[variable] = total.get(variable, Fraction(0)) + coefficient * unit
    whole = lcm(constant.denominator, *(c.denominator for c in total.values()))
    parts = tuple((int(c * whole), variable) for variable, c in total.items() if c)
    if any(abs(c) >= 2**60 for c, _ in parts):
        raise Obstacle("its coefficients are too far apart")
    return parts, whole, int(constant * whole)
