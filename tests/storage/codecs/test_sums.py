"""Sums against Python's integers and math.fsum; AVG bit for bit against DuckDB."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sqlfront
from sqlfront.storage.codecs.sums import (
    FactorRange,
    averages,
    combine,
    decode_avg,
    decode_sum,
    encode_factor,
    from_integers,
    to_integers,
)
from sqlfront.storage.errors import DataError

CON = duckdb.connect(config={"threads": 1})
CON.execute("SET arrow_lossless_conversion = true")


def column(sql: str) -> pa.ChunkedArray:
    return CON.sql(sql).to_arrow_table().column(0)


INTEGER_RANGES = {
    "TINYINT": (-(2**7), 2**7 - 1, 1), "UINTEGER": (0, 2**32 - 1, 1), "BIGINT": (-(2**63), 2**63 - 1, 1),
    "UBIGINT": (0, 2**64 - 1, 2), "HUGEINT": (-(2**127), 2**127 - 1, 2), "UHUGEINT": (0, 2**128 - 1, 3),
}  # fmt: skip


@pytest.mark.parametrize("type", INTEGER_RANGES)
def test_integer_factors(type):
    low, high, needed = INTEGER_RANGES[type]
    numbers = [low, high, 0, None, 1, (low + high) // 3]
    texts = pa.table({"x": pa.array([None if n is None else str(n) for n in numbers])})
    CON.register("texts", texts)
    array = column(f"SELECT x::{type} FROM texts")
    for limbs in range(needed, needed + 3):
        factor = encode_factor(array, type, limbs)
        assert factor.shape == (6, limbs)
        assert factor.flags.c_contiguous
        assert factor.dtype == np.int64
        assert to_integers(factor) == [n or 0 for n in numbers]
    for limbs in range(1, needed):
        with pytest.raises(FactorRange) as caught:
            encode_factor(array, type, limbs)
        assert caught.value.limbs == needed
    assert to_integers(encode_factor(array[2:5], type, 1)) == [0, 0, 1]


@pytest.mark.parametrize(("type", "needed"), [("DECIMAL(4,1)", 1), ("DECIMAL(18,3)", 1), ("DECIMAL(38,10)", 2)])
def test_decimal_factors(type, needed):
    width, scale = map(int, type[8:-1].split(","))
    top = "9" * (width - scale) + "." + "9" * scale
    array = column(f"SELECT unnest(['{top}', '-{top}', NULL, '0.5'])::{type}")
    expected = [10**width - 1, 1 - 10**width, 0, 5 * 10 ** (scale - 1)]
    assert to_integers(encode_factor(array, type, 2)) == expected
    assert to_integers(encode_factor(pa.array([3, None]), type, 2)) == [3 * 10**scale, 0]
    if needed > 1:
        with pytest.raises(FactorRange):
            encode_factor(array, type, 1)


def test_boolean_factors_and_empty_columns():
    assert to_integers(encode_factor(pa.array([True, None, False]), "BOOLEAN", 1)) == [1, 0, 0]
    assert to_integers(encode_factor(column("SELECT unnest([true, NULL, false])"), "BOOLEAN", 2)) == [1, 0, 0]
    assert encode_factor(pa.chunked_array([], pa.int64()), "BIGINT", 2).shape == (0, 2)


finite = st.floats(allow_nan=False, allow_infinity=False)
modest = st.integers(-(10**6), 10**6).map(lambda n: n / 64)


def fitted(values: list[float | None], type: str = "DOUBLE") -> tuple[np.ndarray, int]:
    """The factors at the least limbs and shift, found as the engine does: by asking and widening."""
    array = pa.array(values, pa.float64() if type == "DOUBLE" else pa.float32())
    try:
        return encode_factor(array, type, 1, 0), 0
    except FactorRange as need:
        return encode_factor(array, type, need.limbs, need.shift), need.shift


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(finite, modest, st.none()), min_size=1, max_size=10))
def test_float_factors_are_exact(values):
    factor, shift = fitted(values)
    exact = [Fraction(value or 0) * 2**shift for value in values]
    assert to_integers(factor) == exact
    assert shift == 0 or any(value.numerator % 2 for value in exact)
    wider = encode_factor(pa.array(values, pa.float64()), "DOUBLE", factor.shape[1] + 2, shift + 64)
    assert to_integers(wider) == [value * 2**64 for value in exact]


def nearest(exact: Fraction) -> float:
    """Python's division of integers rounds correctly."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(finite, modest), min_size=1, max_size=12))
def test_float_sums_are_fsum(values):
    factor, shift = fitted(values)
    total = combine([(1, factor[i : i + 1]) for i in range(len(values))])
    exact = sum(map(Fraction, values))
    assert to_integers(total) == [exact * 2**shift]
    expected = nearest(exact)
    if max(map(abs, values)) < 1e300:
        assert expected == math.fsum(values)
    assert decode_sum(total, shift, None, "DOUBLE").to_pylist() == [expected]
    count = np.array([len(values)])
    assert decode_avg(total, shift, 0, count, "DOUBLE").to_pylist() == [expected / len(values)]


@settings(max_examples=300, deadline=None)
@given(st.integers(-(2**190), 2**190), st.integers(0, 1200), st.integers(0, 180))
def test_rounding_to_the_nearest_double(number, shift, drop):
    number >>= drop
    exact = Fraction(number, 2**shift)
    for neighbour in (number, number * 2 + 1, (number >> 54 << 54) + (1 << 53)):
        exact = Fraction(neighbour, 2**shift)
        assert decode_sum(from_integers([neighbour], 4), shift, None, "DOUBLE").to_pylist() == [float(exact)]


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**53), st.integers(1, 2**52), st.booleans(), st.integers(-2, 2), st.sampled_from([0, 3]))
def test_averages_are_rounded_by_way_of_long_doubles(number, divisor, negative, beside, scale):
    """Also where the quotient is next to the middle between two doubles, to which the long double may be rounded."""
    count = max(1, divisor // 10**scale)
    middle = (2 * int(np.float64(number) / count * 2**20) + 1) * count // 2**21 + beside
    numbers = np.array([-one if negative else one for one in (number, min(max(middle, 0), 2**53))])
    counts = np.array([count, count])
    expected = numbers.astype(np.longdouble) / (counts.astype(np.longdouble) * np.longdouble(10.0**scale))
    found = averages(numbers.reshape(-1, 1), 0, scale, counts, "DECIMAL(18,3)" if scale else "BIGINT")
    assert found.tolist() == expected.astype(np.float64).tolist()


@pytest.mark.parametrize(("least", "most"), [(1, 2048), (2048, 2**14), (2**30, 2**52)])
def test_rounding_twice_moves_averages(least, most):
    """A quotient close to the middle between two doubles: the long double is the middle, and then the even one."""
    rng = np.random.default_rng(most)
    numbers, counts = rng.integers(-(2**53), 2**53, 200_000), rng.integers(least, most, 200_000)
    found = averages(numbers.reshape(-1, 1), 0, 0, counts, "BIGINT")
    assert (found == (numbers.astype(np.longdouble) / counts).astype(np.float64)).all()
    moved = int((found != numbers / counts).sum())
    assert moved > 10 if least > 1 and np.finfo(np.longdouble).nmant == 63 else moved == 0


def test_rounding_at_the_edges():
    cases = [
        (1, 1074, 5e-324), (1, 1075, 0.0), (3, 1075, 1e-323), (-1, 1075, -0.0), (2**53 + 1, 0, 2.0**53),
        (2**53 + 3, 0, 2.0**53 + 4), (2**52 - 1, 1074, 2.225073858507201e-308), (2**54 - 1, 1075, math.ldexp(1, -1021)),
        (2**53 - 1, 1075, math.ldexp(1, -1022)), (2**1024 - 2**970, 0, math.inf),
        (2**1024 - 2**970 - 1, 0, 1.7976931348623157e308),
        (-(2**1500), 0, -math.inf), (0, 500, 0.0), (-(2**63), 0, -(2.0**63)), (1, 2000, 0.0),
    ]  # fmt: skip
    for number, shift, expected in cases:
        for limbs in (number.bit_length() // 64 + 1, 30):
            got = decode_sum(from_integers([number], limbs), shift, None, "DOUBLE")[0].as_py()
            assert got == expected, (number, shift)


def test_non_finite_and_float32():
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(DataError):
            encode_factor(pa.array([1.0, bad]), "DOUBLE", 4, 100)
    factor, shift = fitted([0.1, -2.5, None], "FLOAT")
    exact = [Fraction(float(np.float32(v))) * 2**shift for v in (0.1, -2.5, 0)]
    assert to_integers(factor) == exact
    masked = pa.array([1.0, math.nan], mask=np.array([False, True]))
    assert to_integers(encode_factor(masked, "DOUBLE", 1, 0)) == [1, 0]


RESULTS = [
    ("HUGEINT", 2**127 - 1, True), ("HUGEINT", -(2**127), True), ("HUGEINT", 2**127, False),
    ("HUGEINT", -(2**127) - 1, False),
    ("DECIMAL(38,2)", 10**38 - 1, True), ("DECIMAL(38,2)", 1 - 10**38, True), ("DECIMAL(38,2)", 10**38, False),
    ("DECIMAL(38,2)", -(10**38), False), ("DECIMAL(38,0)", 0, True), ("BIGINT", 2**63 - 1, True),
    ("BIGINT", 2**63, False),
    ("BIGINT", -(2**63), True), ("DECIMAL(38,2)", 2**127, False), ("DECIMAL(38,2)", -(2**200), False),
]  # fmt: skip


@pytest.mark.parametrize(("type", "number", "fits"), RESULTS, ids=str)
@pytest.mark.parametrize("extra", [0, 1, 3])
def test_integer_results(type, number, fits, extra):
    limbs = from_integers([7, number, number], number.bit_length() // 64 + 1 + extra)
    present = np.array([1, 1, 0])
    if not fits:
        with pytest.raises(DataError, match="is beyond"):
            decode_sum(limbs, 0, present, type)
        assert decode_sum(limbs, 0, np.array([1, 0, 0]), type).null_count == 2
        return
    CON.register("sums", pa.table({"x": decode_sum(limbs, 0, present, type)}))
    assert CON.execute("DESCRIBE sums").fetchall()[0][1] == type
    scale = int(type[:-1].split(",")[1]) if type.startswith("DECIMAL") else 0
    values = [row[0] for row in CON.execute("SELECT x FROM sums").fetchall()]
    assert values[2] is None
    assert [Fraction(v) * 10**scale for v in values[:2]] == [7, number]


wide = st.integers(-(2**200), 2**200)
number = st.one_of(st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**62, -1]), wide)
coefficient = st.one_of(st.integers(-3, 3), st.sampled_from([10**18, -(10**19), 2**64 - 1, -(2**64), 10**30]))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(0, 4))
def test_combine(data, rows):
    terms = []
    for _ in range(data.draw(st.integers(1, 4))):
        numbers = data.draw(st.lists(number, min_size=rows, max_size=rows))
        least = max((n.bit_length() // 64 + 1 for n in numbers), default=1)
        terms.append((data.draw(coefficient), numbers, least + data.draw(st.integers(0, 1))))
    got = combine([(c, from_integers(numbers, limbs)) for c, numbers, limbs in terms])
    assert got.dtype == np.int64
    assert got.flags.c_contiguous
    assert got.shape[0] == rows
    assert to_integers(got) == [sum(c * numbers[i] for c, numbers, _ in terms) for i in range(rows)]


def test_combine_stays_narrow():
    narrow = from_integers([1, -5, 2**40], 1)
    assert combine([(1, narrow), (-3, narrow)]).shape == (3, 1)
    assert combine([(1, from_integers([2**63 - 1], 1)), (1, from_integers([1], 1))]).shape == (1, 2)
    assert combine([(1, from_integers([2**100, 1], 2)), (-1, from_integers([2**100, 0], 2))]).shape == (2, 1)


AVERAGES = {
    "TINYINT": "hash(i) % 256 - 128", "SMALLINT": "hash(i) % 65536 - 32768", "USMALLINT": "hash(i) % 65536",
    "INTEGER": "hash(i) % 4294967296 - 2147483648", "BIGINT": "hash(i)::HUGEINT - 9223372036854775808",
    "UBIGINT": "hash(i)",
    "HUGEINT": "(hash(i)::HUGEINT - 9223372036854775808) * 1000000007",
    "DECIMAL(4,1)": "(hash(i) % 19999 - 9999) * 0.1",
    "DECIMAL(9,2)": "(hash(i) % 1999999999 - 999999999) * 0.01", "DECIMAL(9,0)": "hash(i) % 1999999999 - 999999999",
    "DECIMAL(18,3)": "((hash(i) % 1999999999999999)::BIGINT - 999999999999999) * 0.001",
    "DECIMAL(30,20)": "(hash(i)::DECIMAL(20,0) - 9223372036854775808::DECIMAL(20,0)) * 0.00000000000000000003",
    "DECIMAL(38,10)": "(hash(i)::DECIMAL(38,0) - 9223372036854775808::DECIMAL(38,0)) * 1000003 * 0.0000000001",
}  # fmt: skip


@pytest.mark.parametrize("type", AVERAGES)
@pytest.mark.parametrize("from_sum", [False, True])
def test_averages_are_duckdbs(type, from_sum):
    source = AVERAGES[type].replace("hash(i) %", "hash(i)::HUGEINT %")
    scale = int(type[:-1].split(",")[1]) if type.startswith("DECIMAL") else 0
    CON.execute(
        f"CREATE OR REPLACE TEMP TABLE samples AS SELECT g, CASE WHEN i % 5 > 0 AND g % 50 > 0 THEN x END AS x "
        f"FROM (SELECT i, (i * 7) // 23 AS g, CAST({source} AS {type}) AS x FROM range(20000) t(i))"
    )
    totals = CON.sql("SELECT g, sum(x) AS s, count(x) AS n FROM samples GROUP BY g ORDER BY g").to_arrow_table()
    sum_type = CON.execute("DESCRIBE SELECT sum(x) FROM samples").fetchall()[0][1]
    limbs, count = encode_factor(totals["s"], sum_type, 2), totals["n"].to_numpy()
    ours = decode_avg(limbs, 0, scale, count, type, from_sum)
    extra = ", sum(x)" if from_sum else ""
    query = f"SELECT avg(x) AS a{extra} FROM samples GROUP BY g ORDER BY g"
    theirs = column(query).combine_chunks()
    assert ours.null_count == theirs.null_count > 0
    assert ours.fill_null(0).to_numpy().tobytes() == theirs.fill_null(0).to_numpy().tobytes()
    everything = combine([(1, limbs[i : i + 1]) for i in range(len(limbs))])
    scalar = decode_avg(everything, 0, scale, np.array([count.sum()]), type, from_sum=True)
    assert scalar.to_pylist() == column("SELECT avg(x) FROM samples").to_pylist()


@pytest.mark.parametrize(
    "type",
    ["TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT", "DECIMAL(4,1)", "DECIMAL(5,1)"],
)
def test_averages_where_double_and_long_double_part(type):
    """Sums and counts whose quotient rounds differently by way of the long double; only large groups have them."""
    rng = np.random.default_rng(1)
    tens = 10 if type.startswith("DECIMAL") else 1
    count, total = rng.integers(2000, 4000, 300_000), rng.integers(0, 127 * 2000, 300_000)
    wide = (total.astype(np.longdouble) / (count * tens)).astype(np.float64)
    parted = np.flatnonzero(wide != total / (count * tens))[:12]
    if np.finfo(np.longdouble).nmant > 52:
        assert len(parted) == 12
    groups = pa.table({"g": parted, "s": total[parted], "n": count[parted]})
    CON.register("parted", groups)
    query = (
        f"SELECT avg(CAST((s // n + (i < s % n)::BIGINT)::DECIMAL(18,1) / {tens} AS {type})) FROM "
        "(SELECT g, s, n, unnest(range(n)) AS i FROM parted) GROUP BY g ORDER BY g"
    )
    ours = decode_avg(total[parted].reshape(-1, 1), 0, int(tens == 10), count[parted], type)
    assert ours.to_pylist() == column(query).to_pylist()


def test_average_beyond_hugeint():
    with pytest.raises(DataError, match="beyond HUGEINT"):
        decode_avg(from_integers([2**127], 3), 0, 0, np.array([1]), "BIGINT")


def test_the_least_bigint_counts_in_sums():
    """Its code would mean NULL, so another one stands for it: also where the column is a key of the view's leaf."""
    least = -(2**63)
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE t (k BIGINT, v BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW s AS SELECT k, sum(v) AS s, count(v) AS n, avg(v) AS a FROM t GROUP BY k")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT v, sum(v) AS s, max(v) AS m FROM t GROUP BY v")
        con.execute(f"INSERT INTO t VALUES (1, {least}), (1, {least}), (1, NULL), (2, 5), (2, {least}), ({least}, 1)")
        con.execute("DELETE FROM t WHERE v = 5")
        assert con.execute("SELECT k, s, n FROM s ORDER BY k").fetchall() == [
            (least, 1, 1), (1, 2 * least, 2), (2, least, 1),
        ]  # fmt: skip
        for view in "sw":
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
