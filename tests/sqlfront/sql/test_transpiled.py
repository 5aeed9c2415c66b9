"""Statements in the dialects of other systems become DuckDB's, or are refused."""

from __future__ import annotations

import pytest

import sqlfront
from sqlfront.errors import NotSupportedError, ProgrammingError
from sqlfront.sql.dialects import dialects, transpiled

SALES = "CREATE TABLE sales (shop VARCHAR, price INTEGER, sold DATE)"
ROWS = "INSERT INTO sales VALUES ('a', 1, '2026-01-01'), ('a', NULL, '2026-01-02'), ('b', 5, '2026-02-01')"


@pytest.mark.parametrize(
    ("dialect", "sql", "text"),
    [
        ("spark", "SELECT `a` FROM t ORDER BY a", 'SELECT "a" FROM t ORDER BY a NULLS FIRST'),
        ("Spark", 'SELECT "x" FROM t', "SELECT 'x' FROM t"),
        (
            "bigquery",
            "SELECT SAFE_DIVIDE(a, b) FROM `d.t`",
            'SELECT CASE WHEN b <> 0 THEN a / b ELSE NULL END FROM "d"."t"',
        ),
        ("snowflake", "SELECT IFF(a > 1, 1, 0) FROM t", "SELECT CASE WHEN a > 1 THEN 1 ELSE 0 END FROM t"),
        ("postgres", "SELECT a::text FROM t", "SELECT CAST(a AS TEXT) FROM t"),
        ("mysql", "SELECT `a` FROM t LIMIT 2, 3", 'SELECT "a" FROM t LIMIT 3 OFFSET 2'),
        ("tsql", "SELECT TOP 5 [a b] FROM t", 'SELECT "a b" FROM t LIMIT 5'),
        ("oracle", "SELECT NVL(a, 1) FROM t", "SELECT COALESCE(a, 1) FROM t"),
        ("duckdb", "SELECT a ** 2 FROM t", "SELECT a ** 2 FROM t"),
        (None, "any text", "any text"),
    ],
)
def test_a_statement_is_translated(dialect, sql, text):
    assert transpiled(sql, dialect) == text


@pytest.mark.parametrize(
    ("dialect", "sql", "text"),
    [
        (
            "spark",
            "CREATE MATERIALIZED VIEW `by a` WITH (epsilon = 0.5) AS SELECT `a`, 'x' AS y FROM t",
            'CREATE MATERIALIZED VIEW "by a" WITH (epsilon = 0.5) AS SELECT "a", \'x\' AS y FROM t',
        ),
        (
            "tsql",
            "CREATE MATERIALIZED VIEW [v 1] AS SELECT [a] FROM t",
            'CREATE MATERIALIZED VIEW "v 1" AS SELECT "a" FROM t',
        ),
        ("mysql", "EXPLAIN (MATERIALIZED) SELECT `a` FROM t", 'EXPLAIN (MATERIALIZED) SELECT "a" FROM t'),
        ("bigquery", "DROP MATERIALIZED VIEW IF EXISTS `v` CASCADE", 'DROP MATERIALIZED VIEW IF EXISTS "v" CASCADE'),
        ("snowflake", 'REFRESH MATERIALIZED VIEW "v"', 'REFRESH MATERIALIZED VIEW "v"'),
        ("postgres", "SHOW STATE FOR v", "SHOW STATE FOR v"),
    ],
)
def test_a_statement_of_ours_is_translated_by_its_parts(dialect, sql, text):
    assert transpiled(sql, dialect) == text


@pytest.mark.parametrize(
    ("dialect", "query"),
    [
        ("spark", 'SELECT `shop`, max(price) AS m FROM sales WHERE shop <> "c" GROUP BY shop'),
        ("postgres", "SELECT shop, max(price) AS m FROM sales WHERE shop !~~ 'c' GROUP BY shop"),
        ("bigquery", "SELECT shop, MAX(price) AS m FROM `sales` WHERE shop != 'c' GROUP BY shop"),
        ("snowflake", "SELECT shop, MAX(price) m FROM sales WHERE NOT shop IN ('c') GROUP BY shop"),
        ("tsql", "SELECT [shop], MAX([price]) AS m FROM [sales] WHERE shop <> 'c' GROUP BY [shop]"),
    ],
)
def test_a_view_is_made_and_kept_in_any_dialect(dialect, query):
    with sqlfront.connect() as con:
        con.execute(SALES)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}", dialect=dialect)
        con.execute(ROWS)
        assert sorted(con.execute("SELECT * FROM v").fetchall()) == [("a", 1), ("b", 5)]
        assert sorted(con.execute("SELECT * FROM v", dialect=dialect).fetchall()) == [("a", 1), ("b", 5)]


def test_an_unknown_dialect_is_refused_with_the_list():
    with pytest.raises(NotSupportedError, match=r"'klingon' is not supported[^$]*bigquery[^$]*postgres[^$]*spark"):
        transpiled("SELECT 1", "klingon")
    assert {"spark", "postgres", "snowflake", "bigquery", "mysql", "duckdb"} <= set(dialects())


@pytest.mark.parametrize(
    ("dialect", "sql", "why"),
    [
        ("postgres", "SELECT a FROM t ORDER BY a FETCH FIRST 5 ROWS WITH TIES", "WITH TIES"),
        ("postgres", "SELECT a FROM t FOR UPDATE", "FOR UPDATE"),
        ("bigquery", "SELECT APPROX_TOP_COUNT(a, 3) FROM t", "APPROX_TOP_K"),
    ],
)
def test_what_duckdb_lacks_is_refused(dialect, sql, why):
    with pytest.raises(NotSupportedError, match=f"DuckDB has no words[^$]*{why}"):
        transpiled(sql, dialect)


def test_what_is_no_statement_is_a_syntax_error():
    with pytest.raises(ProgrammingError, match="no statement of spark") as caught:
        transpiled("CREATE MATERIALIZED VIEW v AS SELECT (a FROM t", "spark")
    assert caught.value.where == "line 1: SELECT (a FROM t"
    assert "\x1b" not in str(caught.value)
    with pytest.raises(ProgrammingError, match="no statement of spark"):
        transpiled("SELECT 'a", "spark")
    with pytest.raises(ProgrammingError, match="one statement at a time"):
        transpiled("SELECT 1; SELECT 2", "mysql")
