"""Random values of nested types as DuckDB SQL, NULLs at every level, and few enough that equal ones recur."""

from __future__ import annotations

from random import Random

from sqlfront.storage.codecs.nested_types import parse_nested
from sqlfront.storage.sql_text import literal, quote

SCALARS = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127", "0"],
    "INTEGER": ["1", "0", "-5"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807", "-9223372036854775807", "1"],
    "UBIGINT": ["0", "18446744073709551615", "9223372036854775808"],
    "HUGEINT": ["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727", "-1", "1"],
    "UHUGEINT": ["0", "340282366920938463463374607431768211455", "7"],
    "DOUBLE": ["0.0", "-0.0", "nan", "-nan", "inf", "-inf", "1.5", "-1.5"],
    "FLOAT": ["0.0", "-0.0", "nan", "0.1"],
    "DECIMAL(9,2)": ["1.50", "-1.50"],
    "DECIMAL(38,10)": ["-123456789012345678901234567.5", "0", "1"],
    "VARCHAR": ["", "a", "ab", "a\x00", "a\x01b", "é", "\x01", "\x00", "NULL", "[1]"],
    "JSON": ["{}", '{"a": 1}'],
    "BLOB": ["", "\\x00", "\\x01\\x02", "\\xFF", "\\x00\\x01"],
    "BIT": ["0", "1", "0101"],
    "BIGNUM": ["0", "-1", "123456789012345678901234567890"],
    "UUID": ["00000000-0000-0000-0000-000000000005", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "DATE": ["2020-02-29", "infinity", "1969-12-31"],
    "TIME": ["24:00:00", "12:00:00.5"],
    "TIME_NS": ["12:00:00.123456789"],
    "TIME WITH TIME ZONE": ["12:00:00+02", "10:00:00+00"],
    "TIMESTAMP": ["2020-02-29 12:34:56.789", "-infinity"],
    "TIMESTAMP_NS": ["2020-02-29 12:34:56.123456789"],
    "TIMESTAMP WITH TIME ZONE": ["2020-02-29 12:34:56+00", "1969-01-01 00:00:00+00"],
    "GEOMETRY": ["POINT(1 2)", "POINT(-1 2)", "POINT EMPTY"],
    "INTERVAL": ["1 month", "30 days", "720 hours", "-1 day", "29 days"],
    "ENUM('b', 'it''s', 'a,)')": ["b", "it's", "a,)"],
}

VARIANTS = [
    "1", "1.0", "-1.50", "true", "0.1::DOUBLE", "'nan'::DOUBLE", "''", "'a' || chr(0)", "'\\x00\\x01\\xFF'::BLOB", "[]",
    "[1, NULL]", "{'a': 1}", "{'b': [{'c': 'x'}], 'a': NULL}", "DATE '2020-02-29'", "TIMESTAMP '2020-02-29 00:00:00'",
    "TIMESTAMP '2020-02-29 12:34:56.789'", "TIMESTAMPTZ '1969-01-01 00:00:00+00'", "TIME '12:00:00.5'",
    "UUID '00000000-0000-0000-0000-000000000005'", "9223372036854775807", "12345678901234567890::DECIMAL(38, 2)",
]  # fmt: skip


def random_value(type: str, random: Random, nulls: float = 0.2) -> str:
    """A value of a type, as DuckDB SQL that has exactly this type."""
    return f"CAST({_value(type, random, nulls)} AS {type})"


def _value(type: str, random: Random, nulls: float) -> str:
    if random.random() < nulls:
        return f"CAST(NULL AS {type})"
    if type == "VARIANT":
        return f"CAST({random.choice(VARIANTS)} AS VARIANT)"
    nested = parse_nested(type)
    if nested is None:
        return f"CAST({literal(random.choice(SCALARS[type]))} AS {type})"
    if nested.family == "UNION":
        name, part = random.choice(list(zip(nested.names, nested.types)))
        return f"CAST(union_value({quote(name)} := {random_value(part, random, nulls)}) AS {type})"
    if nested.family == "MAP":
        keys = list(dict.fromkeys(_value(nested.types[0], random, 0) for _ in range(random.randint(0, 2))))[:1]
        values = [_value(nested.types[1], random, nulls) for _ in keys]
        return f"CAST(MAP([{', '.join(keys)}], [{', '.join(values)}]) AS {type})"
    if nested.family in ("LIST", "ARRAY"):
        count = nested.size or random.choice((0, 1, 1, 2, 3))
        return f"CAST([{', '.join(_value(nested.types[0], random, nulls) for _ in range(count))}] AS {type})"
    fields = [_value(part, random, nulls) for part in nested.types]
    if nested.family == "TUPLE":
        return f"row({', '.join(fields)})"
    return f"{{{', '.join(f'{quote(name)}: {field}' for name, field in zip(nested.names, fields))}}}"
