"""Encoding: which codec a DuckDB type has.

BOOLEAN, integers, DATE, TIME, TIMESTAMP    the number itself (UBIGINT shifted by -2^63 + 1)
DECIMAL                                     the scaled integer, two words above 18 digits
HUGEINT, UHUGEINT, UUID                     two words
FLOAT, DOUBLE                               the bits in an order-preserving form, one zero, one NaN
INTERVAL                                    its length, then its months and days, two words
VARCHAR, JSON, BLOB, BIT, BIGNUM, GEOMETRY  an id in a dictionary
LIST, ARRAY, STRUCT, TUPLE, MAP, UNION      an id in the dictionary of BLOB, of a byte string in DuckDB's order
ENUM                                        the position among its values
"""

from __future__ import annotations

import pyarrow as pa

from sqlfront.storage.codecs.casting import Caster
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.dictionary import Dictionaries
from sqlfront.storage.codecs.dictionary_codec import (
    BytesCodec,
    EnumCodec,
    GeometryCodec,
    NestedCodec,
    NullCodec,
    TextCodec,
)
from sqlfront.storage.codecs.fixed import (
    BooleanCodec,
    DecimalCodec,
    FloatCodec,
    IntegerCodec,
    TimeCodec,
    TimeZoneTimeCodec,
    date_code,
    time_code,
    timestamp_code,
)
from sqlfront.storage.codecs.nested_bytes import Layout, Strings, Words, layout_of
from sqlfront.storage.codecs.nested_types import LOOSE_VARIANTS, NestedType, has_loose_variants, parse_nested
from sqlfront.storage.codecs.types import ScalarType, parse_type
from sqlfront.storage.codecs.wide import IntervalCodec, NormalIntervalCodec, UuidCodec, WideCodec, WideDecimalCodec
from sqlfront.storage.errors import NotSupportedError

_INTEGERS = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
}
_TIMES = {
    "DATE": (pa.date32(), date_code),
    "TIME": (pa.time64("us"), time_code),
    "TIME_NS": (pa.time64("ns"), None),
    "TIMESTAMP": (pa.timestamp("us"), timestamp_code),
    "TIMESTAMP_S": (pa.timestamp("s"), None),
    "TIMESTAMP_MS": (pa.timestamp("ms"), None),
    "TIMESTAMP_NS": (pa.timestamp("ns"), None),
    "TIMESTAMP WITH TIME ZONE": (pa.timestamp("us", "UTC"), None),
    "TIMESTAMPTZ_NS": (pa.timestamp("ns", "UTC"), None),
}


def codec_for(type: str, dictionaries: Dictionaries) -> Codec:
    """The codec of a DuckDB type, named as DESCRIBE does. NotSupportedError for types that have none."""
    if (nested := parse_nested(type)) is not None:
        if has_loose_variants(type):
            raise NotSupportedError(
                f"columns of type {type} cannot be kept in a materialized view",
                why=LOOSE_VARIANTS,
                hint="select its parts",
            )
        return NestedCodec(nested.name, _layout(nested, dictionaries), dictionaries.caster, dictionaries.blob)
    if type.strip() == "VARIANT":
        return NestedCodec("VARIANT", _variants(dictionaries), dictionaries.caster, dictionaries.blob)
    scalar, caster = parse_type(type), dictionaries.caster
    family = scalar.family
    if family in _INTEGERS:
        return IntegerCodec(family, _INTEGERS[family], caster)
    if family in _TIMES:
        arrow_type, from_python = _TIMES[family]
        return TimeCodec(family, arrow_type, caster, from_python)
    if family == "DECIMAL":
        return DecimalCodec(scalar, caster) if scalar.width <= 18 else WideDecimalCodec(scalar, caster)
    if family == "GEOMETRY":
        return GeometryCodec(scalar.name, pa.large_binary(), caster, dictionaries.blob)
    if family in ("VARCHAR", "JSON", "BLOB", "BIT", "BIGNUM"):
        return _dictionary_codec(family, dictionaries)
    return _other_codec(scalar, caster)


def _layout(nested: NestedType, dictionaries: Dictionaries, is_normal: bool = False) -> Layout:
    """The layout of a nested type's byte strings. DuckDB's key for a MAP or a UNION is its value: intervals in them, or
    in a type that `is_normal`, have one form."""
    is_normal |= nested.family in ("MAP", "UNION")
    held: list[Layout] = []
    for type in (*(("UTINYINT",) if nested.family == "UNION" else ()), *nested.types):
        inner = parse_nested(type)
        if inner is not None:
            held.append(_layout(inner, dictionaries, is_normal))
            continue
        if type == "VARIANT":
            held.append(_variants(dictionaries))
            continue
        if type == "INTERVAL" and is_normal:
            codec: Codec = NormalIntervalCodec(type, pa.month_day_nano_interval(), dictionaries.caster)
        else:
            codec = codec_for(type, dictionaries)
        held.append(Words(codec) if codec.dictionary is None else Strings(codec))
    return layout_of(nested, held)


def _variants(dictionaries: Dictionaries) -> Layout:
    from sqlfront.storage.codecs.variant_bytes import Variants

    return Variants(codec_for("BLOB", dictionaries))


def _dictionary_codec(family: str, dictionaries: Dictionaries) -> Codec:
    caster = dictionaries.caster
    if family == "VARCHAR":
        return TextCodec(family, pa.large_string(), caster, dictionaries.varchar)
    if family == "JSON":
        return TextCodec(family, pa.json_(pa.large_string()), caster, dictionaries.varchar)
    binary = pa.large_binary()
    arrow_type = binary if family == "BLOB" else pa.opaque(binary, family.lower(), "DuckDB")
    return BytesCodec(family, arrow_type, caster, dictionaries.blob)


def _other_codec(scalar: ScalarType, caster: Caster) -> Codec:
    family = scalar.family
    if family == "BOOLEAN":
        return BooleanCodec(family, pa.bool_(), caster)
    if family in ("FLOAT", "DOUBLE"):
        return FloatCodec(family, pa.float64() if family == "DOUBLE" else pa.float32(), caster)
    if family in ("HUGEINT", "UHUGEINT"):
        return WideCodec(family, _opaque_bytes(16, family), caster, signed=family == "HUGEINT")
    if family == "UUID":
        return UuidCodec(family, caster)
    if family == "INTERVAL":
        return IntervalCodec(family, pa.month_day_nano_interval(), caster)
    if family == "TIME WITH TIME ZONE":
        return TimeZoneTimeCodec(family, _opaque_bytes(8, "time_tz"), caster)
    if family == "ENUM":
        return EnumCodec(scalar, caster)
    assert family == '"NULL"', family
    return NullCodec(family, pa.null(), caster)


def _opaque_bytes(width: int, name: str) -> pa.DataType:
    """DuckDB's Arrow extension type over `width` bytes."""
    return pa.opaque(pa.binary(width), name.lower(), "DuckDB")
