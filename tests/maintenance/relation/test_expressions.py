"""Computed items: the program gives the words that DuckDB's values have, or refuses; and views come to depend on it."""

from __future__ import annotations

import datetime
from decimal import Decimal
from functools import cache
from itertools import accumulate

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import sqlfront
from sqlfront.database.loading import Evaluator
from sqlfront.maintenance.epoch import RowFastPath
from sqlfront.maintenance.relation.base_relation import Column, Relation, Rescale
from sqlfront.maintenance.relation.ingest import Ingest
from sqlfront.planner.model.query import LeafColumn
from sqlfront.storage.codecs import bound_tree
from sqlfront.storage.codecs.casting import connect
from sqlfront.storage.codecs.encoding import Dictionaries
from sqlfront.storage.errors import DataError, NotSupportedError
from sqlfront.storage.kernels.programs.expression import BLOCK
from tests.judges import judge
from tests.maintenance.relation.expression_fuzz import COLUMNS, as_batch, batches, expressions
from tests.maintenance.relation.test_ingest import count_calls

KINDS = ("key", "factor", "predicate")
PLAIN = {name: values if type == "VARCHAR" else values[:2] for name, (type, _, values) in COLUMNS.items()}


@cache
def evaluator():
    return Evaluator()


@cache
def declared():
    connection = connect()
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (kind, *_) in COLUMNS.items())})")
    return connection


def relation_of(expression, kind):
    """A relation with one store, which computes the expression; None where DuckDB or that kind of item has no such."""
    try:
        type = declared().execute(f"DESCRIBE SELECT {expression} FROM t").fetchall()[0][1]
    except duckdb.Error:
        return None
    leaf = LeafColumn("v", expression, type, None)
    relation = Relation(
        "t", [Column(name, kind) for name, (kind, *_) in COLUMNS.items()], False, Dictionaries(), evaluator()
    )
    if (kind == "predicate" and type != "BOOLEAN") or (kind == "factor" and not ("INT" in type or "DEC" in type)):
        return None
    try:
        if kind == "predicate":
            relation.open_store([], [], [expression], (), 0)
        else:
            relation.open_store([leaf] * (kind == "key"), [leaf] * (kind == "factor"), (), (), 0)
    except NotSupportedError:
        return None
    return relation


def computed_words(relation, batch):
    """The words that the program gives to its item, None if it refuses."""
    (item,) = [item for item in relation.inputs.values() if item.source is None]
    data = np.empty((batch.num_rows, relation.width), np.int64)
    for other in relation.inputs.values():
        if other.source is not None:
            relation.encode_item(other, batch.column(other.source), data)
    served = relation.computation.run(int(data.ctypes.data), relation.width, len(data))
    return data[:, item.place : item.place + item.words].tolist() if served else None


def expected_words(relation, batch):
    """The words of what DuckDB computes, None if it fails."""
    relation.computation = None
    (item,) = [item for item in relation.inputs.values() if item.source is None]
    while True:
        try:
            data = relation.encode(batch, None)
            return data[:, item.place : item.place + item.words].tolist()
        except Rescale as needed:
            relation.rescale(item, needed.limbs, needed.shift)
            relation.computation = None
        except DataError:
            return None


def check(expression, batch, kind):
    """What became of an expression; where the program serves, its words are those of DuckDB's values."""
    relation = relation_of(expression, kind)
    if relation is None:
        return "not bound"
    if relation.computation is None:
        return "not translated"
    try:
        found = computed_words(relation, batch)
    except DataError:  # The one value that a column cannot hold.
        return "not encoded"
    if found is None:
        return "refused"
    expected = expected_words(relation, batch)
    assert expected is not None, f"{expression} fails in DuckDB"
    assert [(row + [row[0] >> 63] * 2)[: len(expected[0])] for row in found] == expected, expression
    return "served"


@given(expressions(), batches(), st.sampled_from(KINDS))
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_program_computes_what_duckdb_computes(expression, batch, kind):
    event(check(expression, batch, kind))


def rows_of(values, count):
    random = np.random.default_rng(5)
    return as_batch([tuple(found[random.integers(len(found))] for found in values.values()) for _ in range(count)])


@pytest.mark.parametrize("unit", ["day", "month", "year"])
def test_differences_of_infinite_dates_are_left_to_duckdb(unit):
    infinite = [2**31 - 1, -(2**31) + 1, 19_000, None]
    batch = rows_of(PLAIN | {"d": infinite, "e": infinite}, 40)
    for expression in (f"date_diff('{unit}', d, e)", f"date_diff('{unit}', e, d)"):
        assert check(expression, batch, "key") == "refused"


@pytest.mark.parametrize(
    "expression",
    [
        *("d15 * (1 - d15)", "d15 * (1 - d15) * (1 + d9)", "-d4", "t + s", "i - 5", "b * 0", "ut * ui"),
        *("e <= DATE '1998-09-02'", "d15 BETWEEN 0.05 AND 0.07", "e < DATE '1994-01-01' + INTERVAL 1 YEAR", "d < e"),
        *("e < ts", "f < g", "b + i::HUGEINT > 3", "ub = 3", "ub > 0", "g IS DISTINCT FROM 0.1"),
        *("tm > TIME '01:00:00'", "b = i AND p", "s = d4", "f::DOUBLE", "b::INTEGER"),
        *("x = 'BUILDING'", "x <> y", "x IN ('a', 'b', NULL)", "x NOT IN ('a', y)", "x IS NOT DISTINCT FROM y"),
        *("x LIKE 'a%'", "x LIKE '%a'", "y NOT LIKE '%I%D%'", "x LIKE 'B%LD%NG'", "x LIKE '%L%L%'"),
        *("en IS NULL", "h IS NOT NULL AND p", "NOT (p OR q)", "(p AND q) IS NOT TRUE", "p = q", "nullif(b, 4)"),
        *("CASE WHEN x IN ('a', 'A') THEN 1 ELSE 0 END", "CASE i WHEN 0 THEN 5 WHEN 3 THEN 6 END", "if(p, x, y)"),
        *("coalesce(i, b, 7)", "coalesce(x, 'none')", "i::DECIMAL(18,2)", "d9::DECIMAL(18,4)", "contains(y, 'UIL')"),
        *("EXTRACT(year FROM e)", "month(ts)", "day(e)", "CAST(ts AS DATE)", "e::TIMESTAMP", "p::INTEGER", "d15 = b"),
        *("date_diff('day', d, e)", "datediff('month', d, e)", "date_diff('year', ts, e)", "date_diff('day', ts, ts)"),
        *("greatest(i, b, 7)", "least(d15, 1.5)", "greatest(d, e)", "greatest(f, g)", "least(i)"),
        *("g + 1", "i / 2", "g > i", "0.2 * d15::DOUBLE - g", "-g", "d30 > 5", "h * 2 + 1", "0.5 * h", "h::DOUBLE / 7"),
        *("i // 3", "b // 3600", "(-b) // 7", "ui // 2", "h // 5", "epoch_us(ts)", "epoch_us(ts) // 1000000"),
        *("date_trunc('hour', ts)", "date_trunc('months', d)", "date_trunc('week', ts)", "date_trunc('Quarter', e)"),
        *("date_trunc('year', ts)", "date_trunc('second', e)", "date_trunc('day', ts)::DATE", "minute(ts)"),
        *("time_bucket(INTERVAL '5 minutes', ts)", "time_bucket(INTERVAL '7 days', e)", "hour(ts)", "second(ts)"),
        *("time_bucket(INTERVAL '1 hour', ts, TIMESTAMP '2020-01-01 00:10:00')", "date_part('dow', ts)", "isodow(e)"),
        *("quarter(e)", "dayofyear(e)", "ts - INTERVAL '90 minutes'", "e + 30", "d - e", "i % 7", "b % 1000", "abs(i)"),
        *("h = 1", "h <> 18446744073709551616", "0 = h", "NOT (h = -1) AND p", "h = 92233720368547758081"),
        *("lower(x)", "x LIKE '_a'", "x ILIKE 'a%'", "length(x) + i", "CASE WHEN upper(x) = 'A' THEN d15 ELSE 0 END"),
        *("lower(x) = y", "upper(x) = lower(y)", "x < 'b' AND y >= 'a'", "if(p, trim(x), y)", "coalesce(x || '!', y)"),
    ],
)  # fmt: skip
def test_what_is_translated(expression):
    """Plain values, several blocks of them, in slices too."""
    values = PLAIN | {"d": [5, datetime.date(1996, 2, 29)]}
    batch = rows_of({name: [*found, None] for name, found in values.items()}, 3 * BLOCK)
    for kind in ("key", "predicate"):
        for part in (batch, batch.slice(5, 1), batch.slice(BLOCK - 1, 2), batch.slice(0, 0)):
            assert check(expression, part, kind) in ("served", "not bound")
    assert relation_of(expression, "key") is not None


@pytest.mark.parametrize(
    "expression",
    [
        "x < y",
        "x || y",
        "lower(x) || y",
        "x::BLOB",
        "string_split(x, 'I')",
        "sqrt(g)",
        "g // 2",
        "i // b",
        "i % -3",
        "week(e)",
        "date_trunc('century', ts)",
        "date_trunc(x, ts)",
        "time_bucket(INTERVAL '1 month', ts)",
        "ts + INTERVAL '1 month'",
        "i // 0",
        "i // -2",
        "epoch_us(e)",
        "d18::INTEGER",
        "en = 'u'",
        "f + f",
    ],
)
def test_what_is_left_to_duckdb(expression):
    assert check(expression, rows_of(PLAIN, 3), "key") == "not translated"


@pytest.mark.parametrize(
    ("expression", "column", "value", "fails"),
    [
        ("t + t", "t", 100, True),
        ("-t", "t", -128, True),
        ("ut - 2", "ut", 1, True),
        ("b + 1", "b", 2**63 - 1, True),
        ("b - 1", "b", -(2**63) + 1, False),
        ("c * c", "c", 2**32, True),
        ("b IS NULL", "b", -(2**63), False),
        ("b::INTEGER", "b", 2**31, True),
        ("d18 * d18", "d18", Decimal("99999999.0000"), True),
        ("b::DECIMAL(18,2)", "b", 10**16, True),
        ("year(d)", "d", 2**31 - 1, False),
        ("CAST(ts AS DATE)", "ts", 2**63 - 1, False),
        ("e::TIMESTAMP", "e", 2**31 - 1, False),
        ("epoch_us(ts)", "ts", 2**63 - 1, False),
        ("date_trunc('hour', ts)", "ts", 2**63 - 1, False),
        ("date_trunc('year', e)", "e", 2**31 - 1, False),
        ("ts + INTERVAL '1 hour'", "ts", 2**63 - 2, True),
        ("e + 5", "e", 2**31 - 2, True),
        ("abs(t)", "t", -128, True),
        ("b // 3", "b", -(2**63), False),
        ("g * 1e308", "g", 1e10, False),
        ("1 / (g - 1e10)", "g", 1e10, False),
        ("c::DOUBLE / 3", "c", 2**53 + 1, False),
        ("h + 0", "h", Decimal(2) ** 63, False),
    ],
)
def test_what_cannot_be_computed_exactly_is_refused(expression, column, value, fails):
    """Also when the value comes in the last block; whether there is a value, DuckDB says."""
    good = rows_of(PLAIN | {column: PLAIN[column][:1], "d": [3], "ut": [2]}, BLOCK + 2)
    bad = rows_of(PLAIN | {column: [value], "d": [3], "ut": [2]} | {column: [value]}, 1)
    batch = pa.Table.from_batches([good, bad]).combine_chunks().to_batches()[0]
    assert check(expression, good, "key") == "served"
    assert check(expression, batch, "key") == "refused"
    assert (expected_words(relation_of(expression, "key"), batch) is None) == fails


# Whole views ---------------------------------------------------------------------------------------

TABLE = "k BIGINT, p DECIMAL(15,2), q DECIMAL(15,2), s VARCHAR, d DATE, t TINYINT"
ARROW = [pa.int64(), pa.decimal128(15, 2), pa.decimal128(15, 2), pa.string(), pa.date32(), pa.int8()]
VIEWS = {
    "prices": "SELECT s, SUM(p * (1 - q)) AS total, SUM(p * (1 - q) * (1 + q)) AS charge, COUNT(*) AS n FROM t "
    "WHERE d <= DATE '1998-09-02' GROUP BY s",
    "years": "SELECT year(d) AS y, SUM(CASE WHEN s IN ('a', 'b') OR s LIKE '%x%' THEN 1 ELSE 0 END) AS n FROM t "
    "WHERE q BETWEEN 0.05 AND 0.07 OR d IS NULL GROUP BY ALL",
    "labels": "SELECT CASE WHEN k > 5 THEN 'large' ELSE s END AS label, COUNT(*) AS n, SUM(k - 1) AS m FROM t "
    "GROUP BY ALL",
}  # fmt: skip


@pytest.fixture
def con():
    con = sqlfront.connect()
    con.execute(f"CREATE CHANGE TABLE t ({TABLE}) WITH (retain = true)")
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    yield con
    con.close()


def some_rows(random, count):
    def row():
        day = datetime.date(1998, 8, 30) + datetime.timedelta(days=int(random.integers(8)))
        text = None if random.random() < 0.1 else str(random.choice(["a", "b", "c", "x", "axa", "large"]))
        price, share = Decimal(int(random.integers(-5000, 5000))) / 100, Decimal(int(random.integers(0, 11))) / 100
        key = None if random.random() < 0.1 else int(random.integers(10))
        return key, price, share, text, None if random.random() < 0.1 else day, int(random.integers(100))

    return [row() for _ in range(count)]


def changes(rows, weight=1, types=ARROW):
    columns = [pa.array(column, type) for column, type in zip(zip(*rows, strict=True), types, strict=True)]
    weights = pa.array([weight] * len(rows), pa.int64())
    return pa.record_batch([*columns, weights], names=["k", "p", "q", "s", "d", "t", "_weight"])


def check_views(con, rows):
    """Every view is DuckDB's result over the rows."""
    with judge() as own:
        own.execute(f"CREATE TABLE t ({TABLE})")
        if rows:
            own.register("rows", pa.Table.from_batches([changes(rows)]).drop_columns("_weight"))
            own.execute("INSERT INTO t FROM rows")
        for name, query in VIEWS.items():
            assert sorted(con.execute(f"FROM {name}").fetchall(), key=repr) == sorted(
                own.execute(query).fetchall(), key=repr
            )


def test_single_rows_take_the_short_way(con, monkeypatch):
    served = count_calls(monkeypatch, RowFastPath, "run")
    random = np.random.default_rng(7)
    rows = []
    for number, row in enumerate(some_rows(random, 200)):
        con.apply_row("t", row)
        rows.append(row)
        if number % 3 == 2:
            con.apply_row("t", rows.pop(0), -1)
        if number % 40 == 0:
            check_views(con, rows)
    check_views(con, rows)
    assert all(served)


def test_batches_take_the_short_way(monkeypatch):
    con = sqlfront.connect()
    con.execute(f"CREATE CHANGE TABLE t ({TABLE.replace('TINYINT', 'INTEGER')}) WITH (retain = false)")
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    served = count_calls(monkeypatch, Ingest, "pack")
    random, integer = np.random.default_rng(8), [*ARROW[:-1], pa.int32()]
    rows = []
    for number in range(12):
        fresh = some_rows(random, 150)
        con.apply({"t": changes(fresh, 1, integer)})
        rows += fresh
        if number % 3 == 2:
            con.apply({"t": changes(rows[:100], -1, integer)})
            del rows[:100]
        check_views(con, rows)
    assert sum(served) > 8


def test_an_overflow_is_duckdbs_error_and_changes_nothing(con):
    con.execute("CREATE MATERIALIZED VIEW sums AS SELECT s, SUM(t + t) AS n FROM t GROUP BY s")
    good, bad = (1, Decimal(1), Decimal(0), "a", None, 60), (1, Decimal(1), Decimal(0), "a", None, 100)
    con.apply_row("t", good)
    for attempt in (lambda: con.apply_row("t", bad), lambda: con.apply({"t": changes([good, bad])})):
        with pytest.raises(sqlfront.DataError, match=r"Overflow in addition of INT8 \(100 \+ 100\)"):
            attempt()
        assert con.execute("FROM sums").fetchall() == [("a", 120)]
        check_views(con, [good])


def test_text_constants_outlive_sweeps_and_go_with_their_views(con):
    """They keep their codes though no row has them."""
    varchar = con.session.database.engine.dictionaries.varchar
    assert varchar.live() == varchar.pinned == 3
    for text in ("one", "two", "a", "b"):
        row = (1, Decimal(1), Decimal("0.05"), text, datetime.date(1998, 1, 1), 1)
        con.apply_row("t", row)
        check_views(con, [row])
        con.apply_row("t", row, -1)
        varchar.sweep()
        assert varchar.live() == varchar.pinned == 3
    for name in VIEWS:
        con.execute(f"DROP MATERIALIZED VIEW {name}")
    assert varchar.live() == varchar.pinned == 0


def test_a_column_may_be_named_like_an_expression():
    con = sqlfront.connect()
    con.execute('CREATE CHANGE TABLE u (a INTEGER, "(a + 1)" INTEGER)')
    con.execute('CREATE MATERIALIZED VIEW w AS SELECT a + 1 AS x, "(a + 1)" AS y, COUNT(*) AS n FROM u GROUP BY ALL')
    con.apply_row("u", (1, 50))
    assert con.execute("FROM w").fetchall() == [(2, 50, 1)]


@pytest.mark.parametrize("sizes", [(9, 427), (2048, 9, 2048, 5), (1, 1, 5000)])
@pytest.mark.parametrize("guard", ["", "coalesce(k, 0) + "])
def test_values_come_in_the_order_of_the_rows(sizes, guard):
    """DuckDB's own plan of IN with many constants puts small batches behind others."""
    ends = list(accumulate(sizes))
    batches = [pa.record_batch({"k": range(end - size, end)}) for end, size in zip(ends, sizes, strict=True)]
    one_in = f"k IN ({', '.join(map(str, range(0, 2000, 3)))})"
    expressions = [f"{guard}k", f"{guard}CAST({one_in} AS INTEGER)"]
    for filters in (None, {}):
        found = evaluator()(pa.Table.from_batches(batches), {"k": "BIGINT"}, expressions, filters)
        factor = 2 if guard else 1
        assert found.column(0).to_pylist() == [factor * k for k in range(ends[-1])]
        kept = [k % 3 == 0 and k < 2000 for k in range(ends[-1])]
        assert found.column(1).to_pylist() == [kept + (k if guard else 0) for k, kept in enumerate(kept)]


def test_all_expressions_are_bound_by_one_question(monkeypatch):
    asked = count_calls(monkeypatch, bound_tree, "_together")
    texts = ["a + 1", "a = 3", "a * a"]
    whole = bound_tree.bind({"a": "BIGINT"}, texts)
    assert len(asked) == 1 and [one.type for one in whole] == ["BIGINT", "BOOLEAN", "BIGINT"]
    assert bound_tree.bind({"a": "BIGINT"}, [*texts, "no_function(a)"]) == [*whole, None]
