"""Aggregates that a group's sorted values tell: lists, texts, histograms, quantiles, first, last and most frequent
values.

The values are those of KeptValues, with how often each comes about. Their order is completed by the arguments, so a
list has one order whatever the rows are: rows that tie beyond these add the same element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sqlfront.binding.session_settings import settings_of
from sqlfront.cut.expressions.scalar_forms import call, evaluated, is_not_null
from sqlfront.cut.expressions.value_types import INTEGER_BITS
from sqlfront.cut.kept_values import Kept, KeptValues
from sqlfront.cut.leaf_columns import named
from sqlfront.planner.algebra.scalars import Constant, Scalar, cast, columns_of, conjunction, function_name
from sqlfront.planner.algebra.terms import Aggregated, Sort
from sqlfront.planner.algebra.total_orders import FIRSTS
from sqlfront.planner.model.query import Direction, RawColumn
from sqlfront.planner.model.raw_column import Rank
from sqlfront.storage.codecs.interpolation import (
    distance_type,
    interpolated,
    interpolated_type,
    median_distance,
)
from sqlfront.storage.codecs.nested_types import parse_nested
from sqlfront.storage.codecs.order import is_orderable

LISTED = {
    *INTEGER_BITS, "BOOLEAN", "DECIMAL", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS",
    "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "VARCHAR", "JSON", "BLOB", "UUID", "ENUM",
} - {"HUGEINT", "UHUGEINT"}  # fmt: skip
"""Types with one spelling of each value, whose values Arrow holds inside lists as it holds them outside."""
_CONTINUOUS, _DISCRETE = ("quantile_cont", "percentile_cont"), ("quantile_disc", "quantile", "percentile_disc")
_FINEST = 2**20
"""A fraction of so many parts, or fewer, times a number of rows is exact as a DOUBLE."""
_LISTS, _TEXTS = ("list", "array_agg"), ("string_agg", "group_concat", "listagg")


class OverOrdered:
    """Reads aggregates from sorted values. `add` makes a raw column from its kind, its type and its other fields.
    `is_simple` tells whether a value is computed from one table's row and compares as it is."""

    def __init__(
        self,
        con: Any,
        kept: KeptValues,
        add: Callable[..., RawColumn],
        is_simple: Callable[[Scalar], bool],
    ) -> None:
        self._con, self._kept, self._add, self._is_simple = con, kept, add, is_simple

    def value(self, aggregate: Aggregated) -> Scalar | None:
        """The aggregate's value over raw columns; None if it is another one, or its values cannot be sorted."""
        name, arguments = function_name(aggregate.form), aggregate.arguments
        read = (*arguments, *(one.value for one in aggregate.order))
        if not all(self._is_simple(value) for value in read if columns_of(value)):
            return None
        if name in _LISTS and columns_of(arguments[0]):
            return self._list(aggregate)
        if name in _TEXTS and columns_of(arguments[0]):
            return self._text(aggregate)
        if name in FIRSTS and aggregate.order:
            return self._first(aggregate)
        if name == "histogram" and len(arguments) == 1 and not aggregate.distinct and not aggregate.order:
            return self._histogram(aggregate)
        if name == "mode" and len(arguments) == 1 and not aggregate.distinct and not aggregate.order:
            return self._mode(aggregate)
        return self._deviation(aggregate) if name == "mad" else self._quantile(aggregate)

    def _list(self, aggregate: Aggregated) -> Scalar | None:
        """All values in their order, NULLs too."""
        [value] = aggregate.arguments
        if not _is_listed(value.type):
            return None
        found = self._in_order(aggregate, counted=not aggregate.distinct)
        return None if found is None else self._elements(*found, once=aggregate.distinct)

    def _first(self, aggregate: Aggregated) -> Scalar | None:
        """The first value in the order, or the last. NULL is a value, but not to ANY_VALUE."""
        name, [value] = function_name(aggregate.form), aggregate.arguments
        if name == "any_value":
            aggregate = replace(aggregate, filter=conjunction((aggregate.filter, is_not_null(value))))
        found = self._in_order(aggregate, counted=False) if columns_of(value) else None
        if found is None:
            return None
        kept, place = found
        fields = {"variable": kept.argument[place], "distinct_set": kept.number}
        raw = self._add("last" if name == "last" else "first", kept.type(place), **fields)
        return cast(named(raw.name, raw.type), aggregate.column.type)

    def _in_order(self, aggregate: Aggregated, *, counted: bool) -> tuple[Kept, int] | None:
        """The values of an aggregate's order, completed by its argument, and the place of the argument among them; None
        if they cannot be sorted."""
        [value] = aggregate.arguments
        order = dict[Scalar, Sort]()
        for one in (*aggregate.order, Sort(value)):
            if columns_of(one.value):
                order.setdefault(one.value, one)
        if aggregate.distinct and order.keys() != {value}:
            return None
        if not all(is_orderable(one.type) for one in order):
            return None
        directions = [Direction(one.descending, one.nulls_first) for one in order.values()]
        kept = self._kept.keep(aggregate, list(order), nulls=True, ordered=True, counted=counted, directions=directions)
        return (kept, list(order).index(value)) if self._has(kept, list(order)) else None

    def _text(self, aggregate: Aggregated) -> Scalar | None:
        """All texts in their order, joined."""
        value, *rest = aggregate.arguments
        separator = rest[0] if rest else Constant("','", "VARCHAR")
        if value.type == "JSON":
            value = cast(value, "VARCHAR")
        if value.type != "VARCHAR" or columns_of(separator) or separator.type != "VARCHAR":
            return None
        texts = self._list(
            replace(aggregate, arguments=(value,), filter=conjunction((aggregate.filter, is_not_null(value))))
        )
        return None if texts is None else call("array_to_string({0}, {1})", "VARCHAR", texts, separator)

    def _histogram(self, aggregate: Aggregated) -> Scalar | None:
        if settings_of(self._con)["default_order"] != "ASCENDING":  # DuckDB sorts the keys so.
            return None
        kept = self._sorted(aggregate, aggregate.arguments[0])
        if kept is None or not _is_listed(kept.type(0)):
            return None
        values = cast(self._elements(kept, 0, once=True), f"{aggregate.arguments[0].type}[]")
        raw = self._add("list", "BIGINT[]", distinct_set=kept.number, once=True)
        form = "CASE WHEN {0} IS NOT NULL THEN map({0}, CAST({1} AS UBIGINT[])) END"
        return call(form, aggregate.column.type, values, named(raw.name, raw.type))

    def _mode(self, aggregate: Aggregated) -> Scalar | None:
        """The first value in the order of how often they come about, from the greatest down, and then of themselves."""
        [value] = aggregate.arguments
        if not is_orderable(value.type) or not columns_of(value):
            return None
        kept = self._kept.keep_counts(aggregate, value)
        if not self._has(kept, [None, value]):
            return None
        raw = self._add("first", kept.type(1), variable=kept.argument[1], distinct_set=kept.number)
        return cast(named(raw.name, raw.type), aggregate.column.type)

    def _quantile(self, aggregate: Aggregated) -> Scalar | None:
        quantile = _quantile_of(aggregate, self._con)
        if quantile is None or not columns_of(quantile.value):
            return None
        kept = self._sorted(aggregate, quantile.value, ranked=True)
        if kept is None:
            return None

        def at(fraction: Any) -> Scalar:
            fields = {"distinct_set": kept.number}
            ranks = quantile.ranks(fraction)
            raw = [self._add("rank", kept.type(0), variable=kept.argument[0], rank=one, **fields) for one in ranks]
            found = [cast(named(one.name, one.type), quantile.value.type) for one in raw]
            if len(found) == 1:
                return found[0]
            weight = self._add("weight", "DOUBLE", rank=ranks[0], **fields)
            return call(interpolated(quantile.value.type), quantile.type, *found, named(weight.name, weight.type))

        values = [at(fraction) for fraction in quantile.fractions]
        if not quantile.is_list:
            return values[0]
        items = ", ".join(f"{{{number}}}" for number in range(len(values)))
        form = f"CASE WHEN {{0}} IS NOT NULL THEN [{items}] END"
        return call(form, aggregate.column.type, *values)

    def _deviation(self, aggregate: Aggregated) -> Scalar | None:
        """The median of the distances from the median."""
        [value] = aggregate.arguments
        between_type = interpolated_type(value.type)
        if between_type is None or distance_type(value.type) != aggregate.column.type:
            return None
        if aggregate.distinct or aggregate.order:
            return None
        kept = self._sorted(aggregate, value, ranked=True)
        if kept is None:
            return None
        of, fields = {"variable": kept.argument[0]}, {"distinct_set": kept.number}
        ranks = [Rank("0.5", side, by_distance=far) for far in (False, True) for side in ("down", "up")]
        raw = [self._add("rank", kept.type(0), rank=rank, **of, **fields) for rank in ranks]
        low, high, near, far = (cast(named(one.name, one.type), value.type) for one in raw)
        weight = self._add("weight", "DOUBLE", rank=ranks[0], **fields)
        between = low, high, named(weight.name, weight.type)
        median = call(interpolated(value.type), between_type, *between)
        return call(median_distance(value.type), aggregate.column.type, *between, median, near, far)

    def _sorted(self, aggregate: Aggregated, value: Scalar, *, ranked: bool = False) -> Kept | None:
        """The values of an argument, ascending, without NULL; None if they cannot be sorted."""
        if not columns_of(value) or not is_orderable(value.type):
            return None
        plain = replace(aggregate, arguments=(value,), order=())
        kept = self._kept.keep(plain, [value], ordered=True, counted=True, ranked=ranked)
        return kept if self._has(kept, [value]) else None

    def _elements(self, kept: Kept, place: int, *, once: bool) -> Scalar:
        fields = {"variable": kept.argument[place], "distinct_set": kept.number, "once": once}
        raw = self._add("list", f"{kept.type(place)}[]", **fields)
        return named(raw.name, raw.type)

    @staticmethod
    def _has(kept: Kept, values: Sequence[Scalar | None]) -> bool:
        """Whether kept values are in the order of these, of which ENUMs that join texts are not."""
        types = (kept.type(place) for place in range(len(values)))
        return all(value is None or not value.type.startswith("ENUM") or own == value.type
                   for own, value in zip(types, values, strict=True))  # fmt: skip


def _is_listed(type_: str) -> bool:
    """Whether lists of a type's values are made of the values kept; of STRUCTs and lists, whether those of their parts
    are."""
    nested = parse_nested(type_)
    if nested is None:
        return type_.partition("(")[0] in LISTED
    return nested.family in ("STRUCT", "LIST") and all(map(_is_listed, nested.types))


@dataclass(frozen=True)
class _Quantile:
    """Quantiles of `value` at fractions: values at ranks, or between two. `type` is that of a quantile."""

    value: Scalar
    fractions: tuple[Any, ...]
    continuous: bool
    descending: bool
    is_list: bool
    type: str

    def ranks(self, fraction: Any) -> tuple[Rank, ...]:
        """The ranks of the values that a fraction lies between, or of the one that it chooses."""
        if not self.continuous:
            return (Rank(str(Fraction(fraction)), "discrete", self.descending),)
        words = repr(float(fraction))
        return Rank(words, "down", self.descending), Rank(words, "up", self.descending)


def _quantile_of(aggregate: Aggregated, con: Any) -> _Quantile | None:
    """The quantile that an aggregate is; None if it is none, or one whose values do not tell it."""
    name, type_, written = function_name(aggregate.form), aggregate.column.type, _written(aggregate)
    if aggregate.distinct or written is None:
        return None
    value, fraction, descending = written
    is_list = fraction.type.endswith("]")
    fractions: Any = evaluated(con, fraction)
    fractions, kind = (fractions, type_[:-2]) if is_list else ([fractions], type_)
    between = interpolated_type(value.type)
    continuous = name in _CONTINUOUS or (name == "median" and between is not None)
    if not is_orderable(value.type) or (between if continuous else value.type) != kind:
        return None
    if not fractions or not all(one is not None and 0 <= one <= 1 for one in fractions):
        return None
    if not continuous and not all(map(_is_exact, fractions)):
        return None
    return _Quantile(value, tuple(fractions), continuous, descending, is_list, kind)


def _written(aggregate: Aggregated) -> tuple[Scalar, Scalar, bool] | None:
    """The value, the constant fractions, and whether they count from the greatest; None if it is no quantile, or has
    another order."""
    name, arguments, order = function_name(aggregate.form), aggregate.arguments, aggregate.order
    if name == "median" and not order:
        return arguments[0], Constant("0.5", "DECIMAL(2,1)"), False
    if name not in (*_CONTINUOUS, *_DISCRETE) or columns_of(arguments[-1]):
        return None
    if "WITHIN GROUP" in aggregate.form:
        return (order[0].value, arguments[0], order[0].descending) if len(order) == 1 == len(arguments) else None
    return None if order else (arguments[0], arguments[1], False)


def _is_exact(fraction: Any) -> bool:
    """Whether a discrete rank at a fraction does not depend on how a product is rounded."""
    return not isinstance(fraction, float) or Fraction(fraction).denominator <= _FINEST
