"""Which types' codes are in DuckDB's order, and how ordered groups compare their words."""

from __future__ import annotations

from sqlfront.storage.codecs.codec import RESERVED_HIGH, Codec
from sqlfront.storage.codecs.nested_types import parse_nested, scalar_types
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.kernels.layout import (
    ORDER_BYTES,
    ORDER_DESCENDING,
    ORDER_HIGH,
    ORDER_LOW_WORD,
    ORDER_NULLS_LAST,
    ORDER_WORD,
    RESERVED_LOW,
)

_WORDS = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER", "FLOAT", "DOUBLE", "DATE", "TIME",
    "TIME_NS", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS",
}  # fmt: skip
_SIGNED = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_STRINGS = ("VARCHAR", "JSON", "BLOB", "GEOMETRY")
_NAMED = ("DECIMAL", "ENUM")
_LOW, _HIGH = ("BIGINT", "HUGEINT", "DECIMAL"), ("UBIGINT", "UHUGEINT", "UUID")
_PAIRED = (*_LOW, *_HIGH)

Places = list[tuple[int, int, int]]


def is_orderable(type_: str) -> bool:
    """Whether ordered groups can compare values of a DuckDB type."""
    families = {name.partition("(")[0] for name in scalar_types(type_)}
    return not has_loose_intervals(type_) and families <= {*_WORDS, *_STRINGS, *_NAMED, *_PAIRED, "INTERVAL", "VARIANT"}


def has_loose_intervals(type_: str) -> bool:
    """Whether a type has intervals that DuckDB orders by how they are written: those in a MAP or a UNION."""
    return "INTERVAL" in type_ and ("MAP(" in type_ or "UNION(" in type_)


def has_same_codes(one: str, other: str) -> bool:
    """Whether a value that two DuckDB types have has the same code in both, compared in the same order."""
    scales = [type_.partition(",")[2] for type_ in (one, other) if is_narrow_decimal(type_)]
    return one == other or {one, other} <= _SIGNED or (len(scales) == 2 and scales[0] == scales[1])


def is_narrow_decimal(type_: str) -> bool:
    """Whether a DuckDB type is a DECIMAL of one word."""
    family, _, digits = type_.partition("(")
    return family == "DECIMAL" and int(digits.partition(",")[0]) <= 18


def equality_places(codec: Codec, place: int) -> Places:
    """How to tell whether the words of two values that start at key word `place` differ."""
    return [(place + word, ORDER_WORD, 0) for word in range(codec.words)]


def directed_places(codec: Codec, place: int, direction: tuple[bool, bool]) -> Places:
    """`order_places`, descending, and with NULLs first, if the direction says so."""
    flags = direction_flags(direction)
    return [(word, kind | flags, operand) for word, kind, operand in order_places(codec, place)]


def direction_flags(direction: tuple[bool, bool]) -> int:
    """The flags of an order that descends, and has NULLs first, if the direction says so."""
    descending, nulls_first = direction
    return (ORDER_DESCENDING if descending else 0) | (0 if nulls_first else ORDER_NULLS_LAST)


def order_places(codec: Codec, place: int) -> Places:
    """How to compare the words of a value that starts at key word `place`: (place, kind, operand) for each.

    NotSupportedError, with the type's name, where the order of codes is not DuckDB's order of values.
    """
    family = codec.type.partition("(")[0]
    is_nested = (parse_nested(codec.type) is not None or family == "VARIANT") and is_orderable(codec.type)
    if (is_nested or family in _STRINGS) and codec.dictionary is not None:
        return [(place, ORDER_BYTES, codec.dictionary.state)]
    if family in _WORDS or (family in _NAMED and codec.words == 1):
        return [(place, ORDER_WORD, 0)]
    if family == "INTERVAL":
        return [(place, ORDER_WORD, 0), (place + 1, ORDER_WORD, 0)]
    if family in _LOW:
        first = (place, ORDER_WORD, RESERVED_LOW)
    elif family in _HIGH:
        first = (place, ORDER_HIGH, RESERVED_HIGH)
    else:
        raise NotSupportedError(
            f"{codec.type} cannot be ordered in a materialized view",
            why="the words that stand for its values are not in the order in which DuckDB compares them",
            hint="cast it to a number, a timestamp or VARCHAR",
        )
    return [first, (place + 1, ORDER_LOW_WORD, 0)][: codec.words]
