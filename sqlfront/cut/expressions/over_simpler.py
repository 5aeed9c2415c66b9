"""Aggregates as expressions over simpler ones: BOOL_AND over two counts, BIT_OR over one a bit, REGR_AVGX over AVG.

The simpler ones are sums over rows, so a change costs O(1) where the first value in an order costs O(log N).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlfront.cut.expressions.scalar_forms import call, is_not_null
from sqlfront.cut.expressions.value_types import INTEGER_BITS, decimal_parts
from sqlfront.planner.algebra.scalars import Compare, Constant, Not, Scalar, cast, conjunction, function_name
from sqlfront.planner.algebra.terms import Aggregated
from sqlfront.planner.algebra.total_orders import FIRSTS
from sqlfront.storage.codecs.order import is_orderable

Value = Callable[[Aggregated], Scalar]
_TRUTHS, _BITS = ("bool_and", "bool_or"), ("bit_and", "bit_or", "bit_xor")
_ALIASES = {"kahan_sum": "sum", "fsum": "sum", "sumkahan": "sum", "favg": "avg"}
_WIDEST, _LONGEST = 64, 18
"""The bits of whole numbers, and the digits of decimals, of which an epoch's rows have a sum in DuckDB's type."""


def over_simpler(aggregate: Aggregated, value: Value, is_simple: Callable[[Scalar], bool]) -> Scalar | None:
    """The aggregate's value over the `value` of simpler aggregates; None if it is simple, or none of these. `is_simple`
    tells whether an argument is computed from one table's row."""
    name, arguments = function_name(aggregate.form), aggregate.arguments
    if aggregate.order or not arguments or not all(map(is_simple, arguments)):
        return None
    if name in _TRUTHS and arguments[0].type == "BOOLEAN":
        return _truth(name, _Simpler(aggregate, value))
    if name in _BITS and 0 < _bits_of(arguments[0].type) <= _WIDEST:
        if name == "bit_xor" and aggregate.distinct:
            return None
        return _bits(name, _Simpler(aggregate, value))
    if name in FIRSTS and is_orderable(arguments[0].type):
        return _any(name, _Simpler(aggregate, value))
    if name in _ALIASES:
        simpler = replace(
            aggregate, form=f"{_ALIASES[name]}({{before}}{{0}}{{behind}})", arguments=(cast(arguments[0], "DOUBLE"),)
        )
        return value(simpler)
    if name in ("regr_count", "regr_avgx", "regr_avgy") and not aggregate.distinct:
        return _of_pairs(name, _Simpler(aggregate, value))
    return None


class _Simpler:
    """Makes aggregates over the rows of another; DISTINCT makes no difference to them."""

    def __init__(self, aggregate: Aggregated, value: Value) -> None:
        self.arguments, self.type = aggregate.arguments, aggregate.column.type
        self._aggregate, self._value = aggregate, value

    def count(self, *conditions: Scalar) -> Scalar:
        """The number of rows that meet these conditions too."""
        return self.of("count", "BIGINT", (), *conditions)

    def of(self, name: str, type_: str, arguments: tuple[Scalar, ...], *conditions: Scalar) -> Scalar:
        """An aggregate over the rows that meet these conditions too."""
        form = f"{name}({{before}}{{0}}{{behind}})" if arguments else f"{name}({{before}}{{behind}})"
        column, kept = replace(self._aggregate.column, type=type_), conjunction((self._aggregate.filter, *conditions))
        return self._value(Aggregated(column, form, arguments, filter=kept))


def _truth(name: str, simpler: _Simpler) -> Scalar:
    """Whether no value is false; whether some value is true."""
    (value,) = simpler.arguments
    test, deciding = ("= 0", simpler.count(Not(value))) if name == "bool_and" else ("> 0", simpler.count(value))
    return call(f"CASE WHEN {{0}} > 0 THEN {{1}} {test} END", simpler.type, simpler.count(is_not_null(value)), deciding)


def _bits(name: str, simpler: _Simpler) -> Scalar:
    """The bits that all, some, or an odd number of the values have."""
    (value,) = simpler.arguments
    present = simpler.count(is_not_null(value))
    test = {"bit_and": "{0} = {1}", "bit_or": "{0} > 0", "bit_xor": "{0} % 2 = 1"}[name]
    zero, bits = _number(0, value.type), []
    for mask, has_bit in _by_bit(value, zero):
        form = f"CASE WHEN {test} THEN {{2}} ELSE {{3}} END"
        bits.append(call(form, value.type, simpler.count(has_bit), present, mask, zero))
    joined = " | ".join(f"{{{number}}}" for number in range(1, len(bits) + 1))
    return call(f"CASE WHEN {{0}} > 0 THEN {joined} END", value.type, present, *bits)


def _by_bit(value: Scalar, zero: Scalar) -> Iterator[tuple[Scalar, Scalar]]:
    """Each bit of a type of whole numbers, and whether a value has it; the sign is the last."""
    signed, bits = INTEGER_BITS[value.type]
    for place in range(bits):
        mask = _number(2**place, value.type)
        yield mask, Compare("<>", call("({0} & {1})", value.type, value, mask), zero)
    if signed:
        yield _number(-(2**bits), value.type), Compare("<", value, zero)


def _bits_of(type_: str) -> int:
    """The bits of a type of whole numbers; 0 for another."""
    return INTEGER_BITS[type_][1] if type_ in INTEGER_BITS else 0


def _number(number: int, type_: str) -> Constant:
    return Constant(f"CAST({number} AS {type_})", type_)


def _any(name: str, simpler: _Simpler) -> Scalar:
    """The first value, or the last, in the order that completes an aggregate without one: ascending, NULL last."""
    (value,) = simpler.arguments
    if name != "last":
        return simpler.of("min", simpler.type, (value,))
    rows, present = simpler.count(), simpler.count(is_not_null(value))
    return call(
        "CASE WHEN {0} = {1} THEN {2} END", simpler.type, rows, present, simpler.of("max", simpler.type, (value,))
    )


def _of_pairs(name: str, simpler: _Simpler) -> Scalar:
    """Of the pairs without a NULL: how many there are, and the average of y or x."""
    y, x = simpler.arguments
    if name == "regr_count":
        return cast(simpler.count(is_not_null(y), is_not_null(x)), simpler.type)
    mean, other = (x, y) if name == "regr_avgx" else (y, x)
    decimal = decimal_parts(mean.type)
    if _bits_of(mean.type) > _WIDEST or (decimal is not None and decimal[0] > _LONGEST):
        mean = cast(mean, "DOUBLE")  # The sum may be beyond the type in which DuckDB's AVG adds it up.
    return simpler.of("avg", "DOUBLE", (mean,), is_not_null(other))
