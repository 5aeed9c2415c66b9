"""Codecs against DuckDB: values come back with their exact type, and codes are equal when DuckDB says values are."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.storage.codecs.codec import RESERVED_HIGH
from sqlfront.storage.codecs.dictionary import Dictionaries
from sqlfront.storage.codecs.encoding import codec_for
from sqlfront.storage.errors import DataError, NotSupportedError
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW
from sqlfront.storage.sql_text import exact
from tests.slices import LETTERS, examples

CON = duckdb.connect(config={"threads": 1})
CON.execute("SET arrow_lossless_conversion = true; SET TimeZone = 'UTC'")


def integers(bits: int, signed: bool):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = st.sampled_from([low, low + 1, 0, 1, high - 1, high, (low + high) // 2 + 1])
    small = st.integers(max(low, -3), min(high, 3))
    return st.one_of(edges, small, st.integers(low, high)).map(str)


def decimals(width: int, scale: int):
    top = 10**width - 1
    numbers = st.one_of(st.sampled_from([0, 1, -1, top, -top]), st.integers(-top, top), st.integers(-9, 9))
    return numbers.map(lambda number: fixed_point(number, scale))


def fixed_point(number: int, scale: int) -> str:
    digits = str(abs(number)).zfill(scale + 1)
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return "-" + text if number < 0 else text


def floats(width: int):
    special = st.sampled_from(["0.0", "-0.0", "nan", "-nan", "inf", "-inf", "1.0", "-1.0"])
    return st.one_of(special, st.floats(width=width).map(repr))


def stamps(start: str, end: str, digits: int):
    first, last = datetime.datetime.fromisoformat(start), datetime.datetime.fromisoformat(end)
    moments = st.datetimes(first, last).map(lambda m: f"{m:%Y-%m-%d %H:%M:%S}".zfill(19))
    fraction = st.integers(0, 10**digits - 1).map(lambda f: f".{f:0{digits}}" if digits else "")
    edges = st.sampled_from(["infinity", "-infinity", "1970-01-01", "1969-12-31 23:59:59"])
    return st.one_of(edges, st.tuples(moments, fraction).map("".join))


def intervals():
    part = st.integers(-70, 70)
    parts = st.tuples(part, part, st.integers(-(3 * 10**11), 3 * 10**11))
    free = parts.map(lambda p: f"{p[0]} months {p[1]} days {p[2]} microseconds")
    alike = st.sampled_from(
        ["1 month", "30 days", "720 hours", "-1 month 60 days", "1 month -1 day", "29 days", "0 days"]
    )
    return st.one_of(alike, free)


WORDS = ["", "a", "b", "ab", "a\x00", "a\x00b", "é", "日本語", "x" * 200, "12345678", "123456789", "NULL"]
clock = st.times().map(lambda t: t.isoformat())
TYPES = {
    "BOOLEAN": st.sampled_from(["true", "false"]),
    "TINYINT": integers(8, True),
    "SMALLINT": integers(16, True),
    "INTEGER": integers(32, True),
    "BIGINT": integers(64, True),
    "HUGEINT": integers(128, True),
    "UTINYINT": integers(8, False),
    "USMALLINT": integers(16, False),
    "UINTEGER": integers(32, False),
    "UBIGINT": integers(64, False),
    "UHUGEINT": integers(128, False),
    "FLOAT": floats(32),
    "DOUBLE": floats(64),
    "DECIMAL(4,1)": decimals(4, 1),
    "DECIMAL(9,2)": decimals(9, 2),
    "DECIMAL(18,3)": decimals(18, 3),
    "DECIMAL(19,0)": decimals(19, 0),
    "DECIMAL(38,10)": decimals(38, 10),
    "VARCHAR": st.one_of(st.sampled_from(WORDS), st.text(LETTERS, max_size=20)),
    "BLOB": st.one_of(
        st.sampled_from(["", "a", "\\x00", "\\xFF"]),
        st.binary(max_size=9).map(lambda b: "".join(f"\\x{c:02X}" for c in b)),
    ),
    "BIT": st.text("01", min_size=1, max_size=20),
    "BIGNUM": st.one_of(st.integers(-3, 3), st.integers(-(10**60), 10**60)).map(str),
    "JSON": st.sampled_from(["{}", '{"a": 1}', '{"a":1}', "[]", "null", '"é"', "3"]),
    "UUID": st.one_of(st.sampled_from([UUID(int=0), UUID(int=2**128 - 1), UUID(int=2**127)]), st.uuids()).map(str),
    "DATE": st.one_of(st.sampled_from(["infinity", "-infinity", "1970-01-01"]), st.dates().map(str)),
    "TIME": st.one_of(st.just("24:00:00"), clock),
    "TIME_NS": clock,
    "TIME WITH TIME ZONE": st.tuples(clock, st.sampled_from(["+00", "+02", "-11:30", "+15:59"])).map("".join),
    "TIMESTAMP": stamps("0001-01-01", "9999-01-01", 6),
    "TIMESTAMP_S": stamps("0001-01-01", "9999-01-01", 0),
    "TIMESTAMP_MS": stamps("0001-01-01", "9999-01-01", 3),
    "TIMESTAMP_NS": stamps("1700-01-01", "2200-01-01", 9),
    "TIMESTAMP WITH TIME ZONE": stamps("0001-01-01", "9999-01-01", 6),
    "TIMESTAMPTZ_NS": stamps("1700-01-01", "2200-01-01", 6),
    "INTERVAL": intervals(),
    "ENUM('a', 'it''s', 'b,)', '')": st.sampled_from(["a", "it's", "b,)", ""]),
}


def typed(type: str, texts: list[str | None]) -> pa.ChunkedArray:
    """The values as DuckDB exports them."""
    CON.register("texts", pa.table({"i": range(len(texts)), "x": pa.array(texts, pa.string())}))
    return CON.sql(f"SELECT CAST(x AS {type}) AS x FROM texts ORDER BY i").to_arrow_table().column(0)


@pytest.mark.parametrize("type", TYPES)
@examples(4)
@given(data=st.data())
def test_roundtrip_and_equality(type, data):
    texts = data.draw(st.lists(st.one_of(st.none(), TYPES[type]), min_size=1, max_size=12))
    column = typed(type, texts)
    codec = codec_for(type, Dictionaries())
    words = codec.encode(column)
    assert len(words) == codec.words
    assert all(w.dtype == np.int64 and w.flags.c_contiguous and w.flags.writeable for w in words)
    decoded = codec.decode(words)
    back = pa.table([decoded], schema=pa.schema([codec.arrow_field('x "y"')]))
    CON.register("given", pa.table({"i": range(len(texts)), "x": column}))
    CON.register("back", back.append_column("i", pa.array(range(len(texts)))))
    quoted = codec.cast_sql('x "y"')
    described = CON.execute(f"DESCRIBE SELECT {quoted} AS x FROM back").fetchall()[0]
    assert described[1] == type
    different = CON.execute(
        f"SELECT given.x::VARCHAR, {quoted}::VARCHAR FROM given JOIN back USING (i) "
        f"WHERE {exact('given.x', type)} IS DISTINCT FROM {exact(quoted, type)}"
    ).fetchall()
    assert different == []
    same = " IS NOT DISTINCT FROM ".join(exact(f"{side}.x", type) for side in "ab")
    pairs = CON.execute(f"SELECT a.i, b.i, {same} FROM given a, given b ORDER BY a.i, b.i").fetchall()
    for i, j, equal in pairs:
        assert all(w[i] == w[j] for w in words) == equal, (texts[i], texts[j])
    assert [int(w) == NULL_CODE for w in words[0]] == column.is_null().to_pylist()
    assert all(np.array_equal(a, b) for a, b in zip(codec.find(column), words, strict=True))


@pytest.mark.parametrize("type", TYPES)
def test_slices_and_chunks(type):
    texts = sample(type, 40)
    column = typed(type, texts).combine_chunks()
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    codec = codec_for(type, Dictionaries())
    whole = codec.encode(array)
    for start, length in ((0, 0), (3, 17), (9, 31), (39, 1)):
        for word, part in zip(whole, codec.encode(array.slice(start, length)), strict=True):
            assert np.array_equal(word[start : start + length], part)
    chunked = pa.chunked_array([array.slice(0, 13), array.slice(13, 0), array.slice(13)])
    assert all(np.array_equal(a, b) for a, b in zip(whole, codec.encode(chunked), strict=True))
    assert codec.encode(pa.chunked_array([], array.type))[0].shape == (0,)
    assert len(codec.decode([np.empty(0, np.int64)] * codec.words)) == 0


def sample(type: str, count: int) -> list[str | None]:
    """Some values of a type, every third a NULL; the same in every run."""
    few = SAMPLES.get(type.split("(")[0], ["1", "0", "7"])
    return [None if i % 3 == 1 else few[i * 7 % len(few)] for i in range(count)]


SAMPLES = {
    "BOOLEAN": ["true", "false"],
    "JSON": ["{}", "[]"],
    "DECIMAL": ["1.5", "-2", "0"],
    "VARCHAR": WORDS,
    "BIT": ["0", "1", "01"],
    "UUID": [str(UUID(int=i)) for i in (0, 5, 2**128 - 1)],
    "DATE": ["2020-02-29", "infinity"],
    "TIME": ["12:00:00", "24:00:00"],
    "TIME_NS": ["12:00:00.123456789"],
    "TIME WITH TIME ZONE": ["12:00:00+02", "10:00:00+00"],
    "INTERVAL": ["1 month", "-3 days 2 hours"],
    "ENUM": ["a", "it's", "", "b,)"],
    **{
        f"TIMESTAMP{s}": ["2020-02-29 12:34:56", "-infinity"]
        for s in ("", "_S", "_MS", "_NS", " WITH TIME ZONE", "TZ_NS")
    },
}


VALUES = [
    ("BIGINT", 5), ("BIGINT", -(2**63)), ("BIGINT", True), ("BIGINT", "17"), ("BIGINT", 2.0), ("INTEGER", -7),
    ("UBIGINT", 0), ("UBIGINT", 2**64 - 1), ("UBIGINT", 2**63), ("HUGEINT", -(2**127)), ("HUGEINT", 2**100),
    ("UHUGEINT", 2**128 - 1), ("UHUGEINT", 0), ("BOOLEAN", True), ("BOOLEAN", 0),
    ("DECIMAL(9,2)", Decimal("1.5")), ("DECIMAL(9,2)", Decimal("-1.505")), ("DECIMAL(9,2)", 3), ("DECIMAL(9,2)", 1.25),
    ("DECIMAL(38,10)", Decimal("-123456789012345678901234567.5")), ("DOUBLE", -0.0), ("DOUBLE", float("nan")),
    ("DOUBLE", float("-inf")), ("DOUBLE", 3), ("FLOAT", 0.1), ("VARCHAR", "héllo"), ("VARCHAR", 5), ("BLOB", b"\x00x"),
    ("BLOB", bytearray(b"q")), ("UUID", UUID(int=2**127 + 3)), ("UUID", str(UUID(int=77))),
    ("DATE", datetime.date(2020, 2, 29)), ("DATE", datetime.date.max), ("DATE", "2021-01-01"),
    ("TIMESTAMP", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)), ("TIMESTAMP", datetime.datetime.max),
    ("TIMESTAMP", datetime.date(2020, 1, 1)), ("TIMESTAMP_S", datetime.datetime(2020, 1, 1, 5)),
    ("TIME", datetime.time(1, 2, 3, 4)), ("INTERVAL", datetime.timedelta(days=31, hours=1)), ("JSON", '{"a": 1}'),
    ("ENUM('x', 'y')", "y"), ("BIT", "0101"),
    ("TIMESTAMP WITH TIME ZONE", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
]  # fmt: skip


@pytest.mark.parametrize(("type", "value"), [*VALUES, *((type, None) for type in TYPES)], ids=str)
def test_one_value_has_the_codes_of_its_column(type, value):
    codec = codec_for(type, Dictionaries())
    cast = CON.sql(f"SELECT CAST(? AS {type}) AS x", params=[value]).to_arrow_table().column(0)
    expected = tuple(int(word[0]) for word in codec.encode(cast))
    assert codec.encode_value(value) == expected
    assert codec.find_value(value) == expected


def test_find_value_does_not_insert():
    codec = codec_for("VARCHAR", Dictionaries())
    assert codec.find_value("new") is None
    assert codec.dictionary.live() == 0
    code = codec.encode_value("new")
    assert codec.find_value("new") == code
    assert codec.find(pa.array(["new", "other", None]))[0].tolist() == [code[0], -1, NULL_CODE]
    json = codec_for("JSON", Dictionaries())
    assert json.find_value("{}") is None
    assert json.dictionary.live() == 0


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("BIGINT", 2**63), ("TINYINT", 128), ("UINTEGER", -1), ("INTEGER", "x"), ("DECIMAL(4,1)", Decimal(1000)),
        ("UUID", "nope"), ("DATE", "2020-13-01"), ("VARCHAR", "\ud800"), ("ENUM('a')", "b"), ("UHUGEINT", -1),
    ],
)  # fmt: skip
def test_values_that_do_not_fit(type, value):
    with pytest.raises(DataError):
        codec_for(type, Dictionaries()).encode_value(value)


@pytest.mark.parametrize(
    ("type", "array"),
    [
        ("TINYINT", pa.array([1, 128])),
        ("BIGINT", pa.array(["1", "x"])),
        ("UBIGINT", pa.array([-1])),
        ("DECIMAL(4,1)", pa.array([Decimal("1000.0")])),
        ("ENUM('a')", pa.array(["a", "b"])),
        ("TIMESTAMP", pa.array([-(2**63)], pa.timestamp("us"))),
        ("BOOLEAN", pa.array(["maybe"])),
    ],
)
def test_columns_that_do_not_fit(type, array):
    with pytest.raises(DataError):
        codec_for(type, Dictionaries()).encode(array)


INPUTS = [
    ("BIGINT", pa.array([1, None, 3], pa.int8())), ("BIGINT", pa.array([1, 2**63 - 1], pa.uint64())),
    ("BIGINT", pa.array([1.0, 2.5, 3.5])), ("BIGINT", pa.array(["1", None])), ("BIGINT", pa.array([True, None])),
    ("INTEGER", pa.array([5, None], pa.int64())), ("UBIGINT", pa.array([0, 7], pa.int32())),
    ("DECIMAL(9,2)", pa.array([Decimal("1.25"), None])), ("DECIMAL(9,2)", pa.array([Decimal("1.255")])),
    ("DECIMAL(9,2)", pa.array([Decimal("1.2")], pa.decimal32(5, 1))), ("DECIMAL(9,2)", pa.array([3, None])),
    ("DECIMAL(9,2)", pa.array([1.005, 2.675])), ("DECIMAL(38,2)", pa.array([Decimal("5.1")], pa.decimal64(9, 2))),
    ("HUGEINT", pa.array([5, None, -5])), ("UHUGEINT", pa.array([5, None])), ("HUGEINT", pa.array([Decimal(7)])),
    ("DOUBLE", pa.array([1.5, None], pa.float32())), ("DOUBLE", pa.array([1, 2**62])), ("FLOAT", pa.array([0.1, None])),
    ("VARCHAR", pa.array(["a", None, ""], pa.large_string())), ("VARCHAR", pa.array(["a", None], pa.string_view())),
    ("VARCHAR", pa.array(["a", None, "b", "a"]).dictionary_encode()), ("VARCHAR", pa.array([1, None])),
    ("VARCHAR", pa.array(["a", "b", None] * 9).dictionary_encode().slice(3, 2)), ("VARCHAR", pa.nulls(3)),
    ("BLOB", pa.array([b"a", None], pa.large_binary())), ("BLOB", pa.array([b"ab", None], pa.binary(2))),
    ("DATE", pa.array([0, 86400000], pa.date64())), ("DATE", pa.array(["2020-01-01"])),
    ("TIMESTAMP", pa.array([5, None], pa.timestamp("s"))), ("TIMESTAMP", pa.array([1500], pa.timestamp("ns"))),
    ("TIMESTAMP_S", pa.array([1500000, None], pa.timestamp("us"))), ("TIME", pa.array([5], pa.time32("s"))),
    ("UUID", pa.array([str(UUID(int=9)), None])), ("BOOLEAN", pa.array([1, 0, None])),
    ("INTERVAL", pa.array([5], pa.duration("s"))),
    ("ENUM('b', 'a')", pa.array(["a", None, "b"])), ("ENUM('b', 'a')", pa.array(["a", None, "b"]).dictionary_encode()),
    ("ENUM('b', 'a')", pa.array(["a", None, "b"]).dictionary_encode().slice(1, 1)), ("JSON", pa.array(["{}", None])),
]  # fmt: skip


@pytest.mark.parametrize(("type", "array"), INPUTS, ids=str)
def test_other_arrow_types_are_cast_as_duckdb_does(type, array):
    codec = codec_for(type, Dictionaries())
    CON.register("given", pa.table({"i": range(len(array)), "x": array}))
    cast = CON.sql(f"SELECT CAST(x AS {type}) AS x FROM given ORDER BY i").to_arrow_table().column(0)
    for got, expected in zip(codec.encode(array), codec.encode(cast), strict=True):
        assert got.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("BIGINT", RESERVED_LOW),
        ("UBIGINT", RESERVED_HIGH + 2**63 - 1),
        ("HUGEINT", RESERVED_LOW * 2**64 + 5),
        ("UHUGEINT", (RESERVED_HIGH + 2**63 - 1) * 2**64),
        ("UUID", UUID(int=(RESERVED_HIGH + 2**63 - 1) * 2**64)),
    ],
)
def test_the_reserved_value_is_refused(type, value):
    codec = codec_for(type, Dictionaries())
    with pytest.raises(DataError, match="keeps for itself"):
        codec.encode_value(value)
    with pytest.raises(DataError, match="keeps for itself"):
        codec.encode(typed(type, [None, str(value)]))


def test_values_under_null_do_not_matter():
    values = np.array([RESERVED_LOW, NULL_CODE, 5, NULL_CODE])
    array = pa.array(values, mask=np.array([True, True, False, False]))
    assert array.buffers()[1].size == 32
    hidden = pa.Array.from_buffers(pa.int64(), 4, [array.buffers()[0], pa.py_buffer(values)])
    codes = codec_for("BIGINT", Dictionaries()).encode(hidden)[0]
    assert codes.tolist() == [NULL_CODE, NULL_CODE, 5, RESERVED_LOW]
    stamps = pa.Array.from_buffers(pa.timestamp("us"), 4, [array.buffers()[0], pa.py_buffer(values // 2)])
    assert codec_for("TIMESTAMP", Dictionaries()).encode(stamps)[0].tolist()[:3] == [NULL_CODE, NULL_CODE, 2]


def test_intervals_in_a_map_come_back_with_one_sign():
    shown = {
        "720 hours": "1 month",
        "-1 day 1 hour": "-23:00:00",
        "-1 day -1 hour": "-1 days -01:00:00",
        "1 month -1 day": "29 days",
        "-45 days": "-1 months -15 days",
        "400 days": "13 months 10 days",
    }
    codec = codec_for("MAP(INTEGER, INTERVAL)", Dictionaries())
    given = typed("MAP(INTEGER, INTERVAL)", [f"{{1={one}}}" for one in shown])
    expected = typed("INTERVAL", list(shown.values())).combine_chunks()
    assert [one[0][1] for one in codec.decode(codec.encode(given)).to_pylist()] == expected.to_pylist()


def test_intervals_are_in_the_order_of_their_lengths_and_come_back_as_they_are():
    rng, most = random.Random(1), (2**63 - 1) // 1000
    micros = (0, 1, -1, 86_400_000_000, -86_400_000_000, 10**12, most, -most)
    days = (0, 30, -30, 61, -100, 2**31 - 1, -(2**31))
    rows = [(rng.choice((0, 1, -1, 40, -(10**7), 10**7)), rng.choice(days), rng.choice(micros)) for _ in range(500)]
    given = pa.array([None, *((m, d, u * 1000) for m, d, u in rows)], pa.month_day_nano_interval())
    codec = codec_for("INTERVAL", Dictionaries())
    words = codec.encode(given)
    assert codec.decode(words).to_pylist() == given.to_pylist()
    codes = zip(*(word[1:].tolist() for word in words), strict=True)
    lengths = [((m * 30 + d) * 86_400_000_000 + u, m) for m, d, u in rows]
    ordered = [length for _, length in sorted(zip(codes, lengths, strict=True))]
    assert ordered == sorted(lengths)


def test_intervals_that_have_no_normal_form_are_refused():
    longest = pa.array([(2**31 - 1, 29, 0), (-(2**31), 0, 0)], pa.month_day_nano_interval())
    codec = codec_for("INTERVAL", Dictionaries())
    assert codec.decode(codec.encode(longest)).to_pylist() == longest.to_pylist()
    for beyond in ((2**31 - 1, 30, 0), (-(2**31), 0, -1000)):
        with pytest.raises(DataError, match="longer than 178,956,970 years"):
            codec.encode(pa.array([beyond], pa.month_day_nano_interval()))


def test_codes_keep_the_order_of_numbers():
    for type, numbers in (
        ("DOUBLE", ["-inf", "-1e308", "-1", "-5e-324", "0", "5e-324", "1", "inf", "nan"]),
        ("UBIGINT", ["0", "1", str(2**63 - 1), str(2**63), str(2**64 - 2)]),
        ("INTERVAL", ["-2 months", "-1 day", "0 days", "1 hour", "29 days", "1 month"]),
        ("HUGEINT", [str(-(2**126)), "-1", "0", str(2**64), str(2**127 - 1)]),
    ):
        words = codec_for(type, Dictionaries()).encode(typed(type, numbers))
        unsigned = [word if i == 0 else word.view(np.uint64) for i, word in enumerate(words)]
        keys = list(zip(*(word.tolist() for word in unsigned), strict=True))
        assert keys == sorted(keys)
        assert len(set(keys)) == len(keys)


def test_types_without_codes_are_refused():
    with pytest.raises(NotSupportedError, match="NOSUCH"):
        codec_for("NOSUCH", Dictionaries())


def test_null_type():
    codec = codec_for('"NULL"', Dictionaries())
    words = codec.encode(pa.nulls(2))
    assert words[0].tolist() == [NULL_CODE] * 2
    assert codec.decode(words).null_count == 2
    assert codec.encode_value(None) == (NULL_CODE,)
