"""Statements of Spark's keep their meaning, or are refused by name, with a caret; no Spark is needed to tell."""

from __future__ import annotations

import datetime

import pytest

import sqlfront
from sqlfront.errors import NotSupportedError
from sqlfront.sql.spark_meaning import rules

TABLE = "CREATE TABLE t (i INTEGER, x DOUBLE, m DECIMAL(8, 2), s VARCHAR, d DATE)"
ROWS = "INSERT INTO t VALUES (7, 2.7, 2.50, 'äß', '2024-01-31'), (NULL, -2.7, -2.50, '12', '2024-02-25')"


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        con.execute(TABLE)
        yield con


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("CAST(x AS INT)", [-2, 2]),
        ("CAST(m AS BIGINT)", [-2, 2]),
        ("dayofweek(date_add(d, 1))", [2, 5]),
        ("add_months(d, 1)", [datetime.date(2024, 2, 29), datetime.date(2024, 3, 25)]),
        ("trunc(d, 'MM')", [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]),
        ("substring(s, 0, 1)", ["1", "ä"]),
        ("upper(s)", ["12", "ÄSS"]),
        ("s LIKE '_\\\\_'", [False, False]),
        ("coalesce(CAST(x AS INT) + i, 0)", [0, 9]),
        ("pmod(CAST(x AS INT), 5)", [2, 3]),
    ],
)
def test_a_view_is_translated(con, expression, rows):
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {expression} AS c FROM t", dialect="spark")
    con.execute(ROWS)
    assert sorted(value for (value,) in con.execute("FROM v").fetchall()) == rows
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_sums_of_integers_are_bigint(con):
    query = "SELECT d, sum(i) AS n, count_if(i > 1) AS c, sum(i) OVER (ORDER BY d) AS w FROM t GROUP BY d, i"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}", dialect="spark")
    assert [kind for _, kind, *_ in con.execute("DESCRIBE v").fetchall()] == ["DATE", "BIGINT", "BIGINT", "BIGINT"]


@pytest.mark.parametrize(
    ("query", "place", "why"),
    [
        ("SELECT foo(i) FROM t", "foo", "no counterpart in DuckDB that is known to be equal"),
        ("SELECT i, first(i)\nFROM t GROUP BY i", "first", "min_by"),
        ("SELECT CAST(x AS STRING) FROM t", "x", "1.0E10"),
        ("SELECT i FROM t WHERE s = 12", "s = 12", "write a CAST"),
        ("SELECT round(x, 1) FROM t", "round", "CAST to DECIMAL"),
        ("SELECT round(y, 1) FROM absent", "round", "cannot be told"),
        ("SELECT regexp_replace(s, '\\\\d', '') FROM t", "regexp_replace", "RE2"),
        ("SELECT d - d AS n FROM t", "d - d", "- of date and date has no counterpart"),
    ],
)
def test_what_is_not_known_to_be_equal_is_refused(con, query, place, why):
    with pytest.raises(NotSupportedError, match="Spark's") as caught:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}", dialect="spark")
    line, marks = caught.value.where.split("\n")
    start = marks.index("^")
    assert line[start : start + marks.count("^")].startswith(place[0]), caught.value.where
    assert why in str(caught.value) and "DuckDB's dialect" in str(caught.value)
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []


def test_rules_are_well_formed():
    kinds = {"*", "int", "decimal", "double", "string", "date", "timestamp", "boolean", "null", "interval", "time"}
    for name, ways in rules().items():
        for wanted, how in ways:
            assert how and {kind for pair in wanted for kind in pair.split("/")} <= kinds, name


def test_tables_of_one_name_must_agree_on_a_type(con):
    con.execute("CREATE SCHEMA other; CREATE TABLE other.t (x VARCHAR, i INTEGER)")
    with pytest.raises(NotSupportedError, match="type of its first value"):
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT CAST(x AS INT) AS c FROM t", dialect="spark")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT i + 1 AS c FROM t", dialect="spark")
