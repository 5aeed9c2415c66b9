"""Random SQL expressions over a table of all types, and rows with NULLs and extremes."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

_DAY = datetime.date
_TIME = datetime.datetime

# Column: its type, its Arrow type, its values; the first few are plain, so that not every batch holds an extreme.
COLUMNS = {
    "t": ("TINYINT", pa.int8(), [0, 1, 2, -3, 127, -128]),
    "s": ("SMALLINT", pa.int16(), [0, 1, 5, -7, 32767, -32768]),
    "i": ("INTEGER", pa.int32(), [0, 1, 3, -9, 2**31 - 1, -(2**31)]),
    "b": ("BIGINT", pa.int64(), [0, 1, 4, -11, 2**63 - 1, -(2**63) + 1, -(2**63)]),
    "c": ("BIGINT", pa.int64(), [0, 1, 4, 1000, -(2**62), 2**53 + 1]),
    "ut": ("UTINYINT", pa.uint8(), [0, 1, 2, 255]),
    "ui": ("UINTEGER", pa.uint32(), [0, 1, 6, 2**32 - 1]),
    "ub": ("UBIGINT", pa.uint64(), [0, 1, 6, 2**63, 2**64 - 1]),
    "h": ("HUGEINT", pa.decimal128(38, 0), [*map(Decimal, (0, 1, -5, 2**63 - 1, 2**63, -(2**63), 2**64))]),
    "d4": ("DECIMAL(4,1)", pa.decimal128(4, 1), [Decimal("0.0"), Decimal("1.5"), Decimal("-2.5"), Decimal("999.9")]),
    "d9": ("DECIMAL(9,2)", pa.decimal128(9, 2), [Decimal("0.00"), Decimal("1.50"), Decimal("9999999.99")]),
    "d15": ("DECIMAL(15,2)", pa.decimal128(15, 2), [Decimal("0.05"), Decimal("1.00"), Decimal("-9999999999999.99")]),
    "d18": (
        "DECIMAL(18,4)",
        pa.decimal128(18, 4),
        [Decimal("0.0500"), Decimal("2.0000"), Decimal("99999999999999.9999")],
    ),
    "d30": (
        "DECIMAL(30,3)",
        pa.decimal128(30, 3),
        [Decimal("0.500"), Decimal("-70.250"), Decimal("123456789012345678901234.000")],
    ),
    "f": ("FLOAT", pa.float32(), [0.0, 1.5, -0.0, float("inf"), float("nan"), 0.1]),
    "g": ("DOUBLE", pa.float64(), [0.0, 1.5, -0.0, 0.1, float("-inf"), float("nan"), 1e308, 5e-324]),
    "p": ("BOOLEAN", pa.bool_(), [True, False]),
    "q": ("BOOLEAN", pa.bool_(), [True, False]),
    "d": ("DATE", pa.date32(), [_DAY(1994, 1, 1), _DAY(1996, 2, 29), 2**31 - 1, -(2**31) + 1, -800000, 5, -1, -719529]),
    "e": ("DATE", pa.date32(), [_DAY(1994, 1, 1), _DAY(2000, 12, 31), _DAY(1900, 3, 1), 110_000_000]),
    "ts": (
        "TIMESTAMP",
        pa.timestamp("us"),
        [_TIME(1994, 1, 1), _TIME(1994, 1, 1, 23, 59, 59, 999999), -1, 2**63 - 1, -(2**63) + 1, -(2**61)],
    ),
    "tn": ("TIMESTAMP_NS", pa.timestamp("ns"), [0, 1, -1, 2**62]),
    "tm": ("TIME", pa.time64("us"), [datetime.time(1, 2, 3), datetime.time(0), 86_400_000_000]),
    "x": ("VARCHAR", pa.string(), ["", "a", "A", "a ", "ä", "BUILDING", "12", "-1.5e3", "ẞß İ🦆 e\u0301", "x" * 300]),
    "y": ("VARCHAR", pa.string(), ["a", "b", "BUILDING", "a\0", "1994-02-30", "true", "9223372036854775808"]),
    "en": ("ENUM('u', 'v')", pa.string(), ["u", "v"]),
}
SCHEMA = pa.schema([(name, arrow_type) for name, (_, arrow_type, _) in COLUMNS.items()])

_NUMBERS = ["t", "s", "i", "b", "c", "ut", "ui", "h", "d4", "d9", "d15", "d18", "d30"]
_CONSTANTS = [
    *("0", "1", "-1", "2", "100", "127", "128", "-128", "255", "32767", "2147483647", "2147483648", "0.5", "1.05"),
    *("0.05", "3.14159", "9999.99", "9223372036854775807", "-9223372036854775807", "(-9223372036854775807 - 1)"),
    *("NULL", "CAST(3 AS TINYINT)", "CAST(7 AS UTINYINT)", "CAST(1 AS DECIMAL(18,4))", "170141183460469231731687303"),
]
_DATES = ["DATE '1994-01-01'", "DATE '1994-01-01' + INTERVAL 1 YEAR", "DATE 'infinity'", "DATE '0044-03-15 (BC)'"]
_TIMES = ["TIMESTAMP '1994-01-01 12:00:00'", "TIMESTAMP '-infinity'", "TIMESTAMP '1969-12-31 23:59:59.999999'"]
_PARTS = [
    *("year", "month", "day", "quarter", "hour", "minute", "second", "dayofweek", "weekday", "isodow", "dayofyear"),
    *("week", "decade"),
]
_PERIODS = [
    *("microsecond", "milliseconds", "second", "minute", "HOUR", "days", "week", "month", "quarter", "year", "century"),
]
_WIDTHS = ["'5 minutes'", "'7 days'", "'36 hours'", "'1 month'", "'0.5 seconds'", "'-1 hour'"]
_TEXTS = ["'a'", "'BUILDING'", "''", "'zz'", "'ä'", "NULL", "'a' || 'b'"]
_PATTERNS = [
    "'a%'",
    "'%a'",
    "'%L%'",
    "'%I%D%'",
    "'B%I%G'",
    "'%'",
    "'a'",
    "'a_%'",
    "'%DI%I%'",
    "'%ä%'",
    "'BUILDING%G'",
    "NULL",
    "'%IL%D%ING'",
]
# Of a text and a number.
_TEXT_FUNCTIONS = [
    *(
        "upper({})",
        "lower({})",
        "{} || '!'",
        "'<' || {} || {}",
        "substr({}, 2, {n})",
        "left({}, {n})",
        "right({}, {n})",
    ),
    *(
        "trim({})",
        "ltrim({}, 'ab')",
        "reverse({})",
        "repeat({}, 2)",
        "replace({}, 'a', 'bb')",
        "split_part({}, 'a', {n})",
    ),
    *("regexp_replace({}, '[aeI]', '_', 'g')", "regexp_extract({}, '([a-z]+)', 1)", "lpad({}, 5, '*')", "md5({})"),
    *("translate({}, 'aI', 'e')", "concat({}, NULL, 'z')", "concat_ws('-', {}, 'z')", "strip_accents({})", "{}[{n}]"),
    *("string_split({}, 'a')[{n}]", "nullif({}, 'a')", "coalesce({}, 'none')", "greatest({}, 'b')", "hex({})"),
    *(
        "array_to_string(list_transform(string_split({}, 'I'), lambda w: w || '.'), ',')",
        "format('{{}}-{{}}', {}, {n})",
    ),
    *("CASE WHEN {} LIKE 'B%' THEN 'b' ELSE lower({}) END", "CAST({}::DATE AS VARCHAR)", "TRY({}::INTEGER)::VARCHAR"),
]
_TEXT_NUMBERS = [
    *("length({})", "strlen({})", "instr({}, 'a')", "ascii({})", "unicode({})", "levenshtein({}, 'BUILDING')"),
    *("hash({})", "CAST({} AS INTEGER)", "TRY_CAST({} AS BIGINT)", "TRY_CAST({} AS DECIMAL(5,1))", "bit_length({})"),
    *("CAST({} AS HUGEINT)", "TRY_CAST({} AS DECIMAL(30,3))", "len(string_split({}, 'a'))", "CAST({} AS UBIGINT)"),
]
_TEXT_CONDITIONS = [
    *(
        "regexp_matches({}, '^[a-z]')",
        "{} ILIKE 'b%'",
        "{} LIKE 'a_'",
        "{} SIMILAR TO 'a.*'",
        "{} < 'b'",
        "{} GLOB '*a'",
    ),
    *("CAST({} AS BOOLEAN)", "{} COLLATE nocase = 'building'", "TRY_CAST({} AS DATE) > DATE '1990-01-01'"),
    *("upper({}) IN ('A', 'B')", "contains(lower({}), 'ild')", "TRY_CAST({} AS DOUBLE) > 1.5", "length({}) = {n}"),
]
_FLOATS = ["0.0::DOUBLE", "0.1::DOUBLE", "0.1::FLOAT", "'inf'::DOUBLE", "'nan'::DOUBLE", "-0.0::DOUBLE", "1.5"]


def values(name: str) -> st.SearchStrategy:
    """A column's values: NULL in a sixth, plain ones most of the time."""
    found = COLUMNS[name][2]
    plain = st.sampled_from(found[:2])
    return st.one_of(plain, plain, plain, st.none(), st.sampled_from(found[:4]), st.sampled_from(found))


def batches(largest: int = 4) -> st.SearchStrategy[pa.RecordBatch]:
    """Record batches of the table."""
    row = st.tuples(*map(values, COLUMNS))
    return st.lists(row, min_size=1, max_size=largest).map(as_batch)


def as_batch(rows: list[tuple]) -> pa.RecordBatch:
    columns = []
    for number, field in enumerate(SCHEMA):
        column = [row[number] for row in rows]
        if pa.types.is_temporal(field.type):
            wide = pa.int32() if field.type == pa.date32() else pa.int64()
            whole = [value if value is None or isinstance(value, int) else _code(value, field.type) for value in column]
            columns.append(pa.array(whole, wide).view(field.type))
        else:
            columns.append(pa.array(column, field.type))
    return pa.record_batch(columns, schema=SCHEMA)


def _code(value: object, arrow_type: pa.DataType) -> int:
    return pa.scalar(value, arrow_type).value


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """SQL of any type; DuckDB may refuse it."""
    return draw(st.sampled_from([_number, _boolean, _boolean, _boolean, _date, _text, _float]))(draw, depth)


def _pick(draw: st.DrawFn, *choices: str) -> str:
    return draw(st.sampled_from(choices))


def _number(draw: st.DrawFn, depth: int) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return _pick(draw, *_NUMBERS, *_NUMBERS, *_CONSTANTS, "h", "d30", "ub")
    a, b = _number(draw, depth - 1), _number(draw, depth - 1)
    kind = draw(st.integers(0, 16))
    if kind > 14:
        return _of_text(draw, depth, _TEXT_NUMBERS)
    if kind == 12:
        return f"({a} {_pick(draw, '//', '%')} {_pick(draw, '1', '7', '3600', '0', '-2', b)})"
    if kind == 14:
        return f"abs({a})"
    if kind == 13:
        return f"epoch_us({_moment(draw, depth - 1)})"
    if kind < 4:
        return f"({a} {_pick(draw, '+', '-', '*', '*')} {b})"
    if kind == 10:
        return f"{_pick(draw, 'greatest', 'least')}({a}, {b})"
    if kind == 11:
        unit = _pick(draw, "day", "month", "year", "hour")
        return f"date_diff('{unit}', {_moment(draw, depth - 1)}, {_moment(draw, depth - 1)})"
    if kind == 4:
        return f"(-{a})"
    if kind == 5:
        types = (
            "TINYINT",
            "SMALLINT",
            "INTEGER",
            "BIGINT",
            "UINTEGER",
            "DECIMAL(15,2)",
            "DECIMAL(18,4)",
            "DECIMAL(5,0)",
        )
        return f"{_pick(draw, 'CAST', 'TRY_CAST')}({a} AS {_pick(draw, *types, 'HUGEINT', 'DECIMAL(30,3)')})"
    if kind == 6:
        return f"coalesce({a}, {b})"
    if kind == 7:
        return f"{_pick(draw, *_PARTS)}({_moment(draw, depth - 1)})"
    if kind == 8:
        return f"CASE {a} WHEN {b} THEN {_number(draw, depth - 1)} WHEN 1 THEN {_number(draw, 0)} END"
    return f"CASE WHEN {_boolean(draw, depth - 1)} THEN {a} ELSE {b} END"


def _real(draw: st.DrawFn, depth: int) -> str:
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return _pick(draw, "g", "g", *_FLOATS, f"CAST({_number(draw, 0)} AS DOUBLE)")
    return f"({_real(draw, depth - 1)} {_pick(draw, '+', '-', '*', '/')} {_real(draw, depth - 1)})"


def _boolean(draw: st.DrawFn, depth: int) -> str:
    if depth == 0:
        return _pick(draw, "p", "q", "true", "false", "NULL", "p", "q")
    kind = draw(st.integers(0, 12))
    if kind > 10:
        return f"({_of_text(draw, depth, _TEXT_CONDITIONS)})"
    if kind == 10:
        return f"({_text(draw, depth - 1)} {_pick(draw, 'LIKE', 'NOT LIKE')} {_pick(draw, *_PATTERNS)})"
    if kind < 3:
        a, b = _pair(draw, depth - 1)
        return f"({a} {_pick(draw, '=', '<>', '<', '<=', '>', '>=', 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM')} {b})"
    if kind == 3:
        a, b = _pair(draw, depth - 1)
        return f"({a} {_pick(draw, 'IN', 'NOT IN')} ({b}, {_pair(draw, 0)[1]}, {b}))"
    if kind == 4:
        a, b = _pair(draw, depth - 1)
        return f"({a} {_pick(draw, 'BETWEEN', 'NOT BETWEEN')} {b} AND {a})"
    if kind == 5:
        return f"({_pick(draw, *COLUMNS, _pair(draw, depth - 1)[0])} IS {_pick(draw, '', 'NOT ')}NULL)"
    if kind == 6:
        return f"(NOT {_boolean(draw, depth - 1)})"
    if kind == 7:
        return f"({_boolean(draw, depth - 1)} IS {_pick(draw, 'TRUE', 'NOT TRUE', 'FALSE')})"
    return f"({_boolean(draw, depth - 1)} {_pick(draw, 'AND', 'OR')} {_boolean(draw, depth - 1)})"


def _pair(draw: st.DrawFn, depth: int) -> tuple[str, str]:
    """Two expressions to compare."""
    make = draw(st.sampled_from([_number, _number, _number, _date, _time, _text, _float, _boolean]))
    return make(draw, depth), make(draw, depth)


def _date(draw: st.DrawFn, depth: int) -> str:
    if depth and draw(st.integers(0, 3)) == 0:
        kind = draw(st.integers(0, 2))
        if kind == 0:
            return f"CAST({_time(draw, depth - 1)} AS DATE)"
        if kind == 1:
            return f"({_date(draw, depth - 1)} {_pick(draw, '+', '-')} {_pick(draw, '1', 'i', 'INTERVAL 1 DAY', 'e')})"
        return f"CASE WHEN {_boolean(draw, depth - 1)} THEN {_date(draw, depth - 1)} END"
    return _pick(draw, "d", "e", *_DATES)


def _time(draw: st.DrawFn, depth: int) -> str:
    if depth and draw(st.booleans()):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            return f"CAST({_date(draw, depth - 1)} AS TIMESTAMP)"
        if kind == 1:
            return f"date_trunc('{_pick(draw, *_PERIODS)}', {_moment(draw, depth - 1)})"
        if kind == 2:
            origin = draw(st.sampled_from(["", ", TIMESTAMP '2020-01-01 00:00:01'"]))
            return f"time_bucket(INTERVAL {_pick(draw, *_WIDTHS)}, {_moment(draw, depth - 1)}{origin})"
        return f"({_time(draw, depth - 1)} {_pick(draw, '+', '-')} INTERVAL {_pick(draw, *_WIDTHS)})"
    return _pick(draw, "ts", "ts", "d", "tn", "tm", *_TIMES)


def _moment(draw: st.DrawFn, depth: int) -> str:
    return (_date if draw(st.booleans()) else _time)(draw, depth)


def _text(draw: st.DrawFn, depth: int) -> str:
    if depth and draw(st.integers(0, 3)) == 0:
        return f"coalesce(CASE WHEN {_boolean(draw, depth - 1)} THEN {_text(draw, 0)} END, {_text(draw, 0)})"
    if depth and draw(st.integers(0, 2)) == 0:
        return _of_text(draw, depth, _TEXT_FUNCTIONS)
    return _pick(draw, "x", "y", "x", "y", "lower(x)", "en", *_TEXTS)


def _of_text(draw: st.DrawFn, depth: int, functions: list[str]) -> str:
    """A function of one text."""
    text = _text(draw, depth - 1)
    return (
        _pick(draw, *functions)
        .replace("{n}", str(draw(st.integers(0, 3))))
        .replace("{}", text)
        .replace("{{", "{")
        .replace("}}", "}")
    )


def _float(draw: st.DrawFn, depth: int) -> str:
    if depth and draw(st.integers(0, 3)) == 0:
        return _real(draw, depth)
    return _pick(draw, "f", "g", "g", *_FLOATS)
