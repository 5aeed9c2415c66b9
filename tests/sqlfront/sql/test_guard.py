"""The guard tells nearly-equal queries apart, and takes two spellings of one query for one."""

from __future__ import annotations

import time

import duckdb
import pyarrow as pa
import pytest

from sqlfront.sql import guard
from sqlfront.sql.guard import check_same_meaning
from sqlfront.storage.errors import InternalError, NotSupportedError, ProgrammingError

TABLES = """
CREATE TABLE r (a INTEGER, b INTEGER, c VARCHAR, l INTEGER[], d DECIMAL(10, 2), "A b" INTEGER);
CREATE TABLE s (a INTEGER, b INTEGER);
CREATE TABLE t (a INTEGER, b INTEGER);
CREATE MACRO double(x) AS x * 2;
CREATE VIEW w AS SELECT a FROM r;
"""
RECURSIVE = "WITH RECURSIVE t(n) AS (SELECT 1 UNION{} SELECT n + 1 FROM t WHERE n < 3) SELECT n FROM t"
WINDOW = "SELECT sum(a) OVER (ORDER BY b {}) FROM r"
DIFFERENT = [
    ("SELECT a FROM r ORDER BY a NULLS FIRST", "SELECT a FROM r ORDER BY a NULLS LAST"),
    ("SELECT a FROM r ORDER BY a", "SELECT a FROM r ORDER BY a NULLS FIRST"),
    ("SELECT a FROM r ORDER BY a", "SELECT a FROM r ORDER BY a DESC"),
    ("SELECT a FROM r ORDER BY a, b", "SELECT a FROM r ORDER BY b, a"),
    ("SELECT list(a ORDER BY b) FROM r", "SELECT list(a ORDER BY b DESC) FROM r"),
    (RECURSIVE.format(""), RECURSIVE.format(" ALL")),
    ("SELECT a FROM r UNION SELECT a FROM s", "SELECT a FROM r UNION ALL SELECT a FROM s"),
    ("SELECT a FROM r EXCEPT SELECT a FROM s", "SELECT a FROM r EXCEPT ALL SELECT a FROM s"),
    ("SELECT a FROM r EXCEPT SELECT a FROM s", "SELECT a FROM r INTERSECT SELECT a FROM s"),
    ("SELECT a, b FROM r UNION SELECT b, a FROM s", "SELECT a, b FROM r UNION BY NAME SELECT b, a FROM s"),
    ("SELECT a FROM r WHERE a IN (1, 2)", "SELECT a FROM r WHERE a NOT IN (1, 2)"),
    ("SELECT a FROM r WHERE a IN (SELECT a FROM s)", "SELECT a FROM r WHERE a NOT IN (SELECT a FROM s)"),
    ("SELECT a FROM r WHERE a IN (1, 2)", "SELECT a FROM r WHERE a IN (1, 2, NULL)"),
    ("SELECT a + 1 FROM r", "SELECT a + 1.0 FROM r"),
    ("SELECT 1", "SELECT 1.0"),
    ("SELECT 1.0", "SELECT 1e0"),
    ("SELECT 1.0", "SELECT 1.00"),
    ("SELECT 1", "SELECT '1'"),
    ("SELECT * FROM r JOIN s ON r.a = s.a", "SELECT * FROM r LEFT JOIN s ON r.a = s.a"),
    ("SELECT * FROM r RIGHT JOIN s ON r.a = s.a", "SELECT * FROM r FULL JOIN s ON r.a = s.a"),
    ("SELECT r.a FROM r SEMI JOIN s ON r.a = s.a", "SELECT r.a FROM r ANTI JOIN s ON r.a = s.a"),
    ("SELECT r.a FROM r JOIN s USING (a)", "SELECT r.a FROM r SEMI JOIN s USING (a)"),
    ("SELECT * FROM r ASOF JOIN s ON r.a >= s.a", "SELECT * FROM r JOIN s ON r.a >= s.a"),
    ("SELECT * FROM r POSITIONAL JOIN s", "SELECT * FROM r CROSS JOIN s"),
    ("SELECT r.a FROM r, s", "SELECT s.a FROM r, s"),
    ("SELECT a AS x FROM r", "SELECT a AS y FROM r"),
    ("SELECT a AS x FROM r", 'SELECT a AS "X" FROM r'),
    ("SELECT a FROM r", "SELECT a AS b FROM r"),
    ("SELECT DISTINCT a FROM r", "SELECT a FROM r"),
    ("SELECT DISTINCT ON (a) a, b FROM r", "SELECT DISTINCT ON (b) a, b FROM r"),
    ("SELECT count(DISTINCT a) FROM r", "SELECT count(a) FROM r"),
    ("SELECT count(*) FROM r", "SELECT count(a) FROM r"),
    ("SELECT sum(a) FILTER (WHERE b > 1) FROM r", "SELECT sum(a) FROM r"),
    ("SELECT sum(a) FILTER (WHERE b > 1) FROM r", "SELECT sum(a) FILTER (WHERE b >= 1) FROM r"),
    (WINDOW.format(""), WINDOW.format("ROWS UNBOUNDED PRECEDING")),
    (WINDOW.format("ROWS 1 PRECEDING"), WINDOW.format("ROWS 2 PRECEDING")),
    (WINDOW.format("ROWS 1 PRECEDING"), WINDOW.format("RANGE 1 PRECEDING")),
    (WINDOW.format("ROWS 1 PRECEDING"), WINDOW.format("ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING")),
    (WINDOW.format("ROWS 1 PRECEDING"), WINDOW.format("ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES")),
    (WINDOW.format(""), "SELECT sum(a) OVER (PARTITION BY b) FROM r"),
    ("SELECT first_value(a) OVER (ORDER BY b) FROM r", "SELECT first_value(a IGNORE NULLS) OVER (ORDER BY b) FROM r"),
    ("SELECT a FROM r WHERE a IS NULL", "SELECT a FROM r WHERE a IS NOT NULL"),
    ("SELECT a FROM r WHERE NOT a IS NULL", "SELECT a FROM r WHERE a IS NULL"),
    ("SELECT a FROM r WHERE a = b", "SELECT a FROM r WHERE a IS NOT DISTINCT FROM b"),
    ("SELECT a FROM r WHERE a = 1 OR a = 2 AND b = 3", "SELECT a FROM r WHERE (a = 1 OR a = 2) AND b = 3"),
    ("SELECT a - (b - 1) FROM r", "SELECT a - b - 1 FROM r"),
    ("SELECT a / b FROM r", "SELECT a // b FROM r"),
    ("SELECT c FROM r WHERE c LIKE 'a%'", "SELECT c FROM r WHERE c ILIKE 'a%'"),
    ("SELECT c FROM r WHERE c LIKE 'a%'", "SELECT c FROM r WHERE c LIKE 'a%' ESCAPE '$'"),
    ("SELECT a::BIGINT FROM r", "SELECT a::SMALLINT FROM r"),
    ("SELECT CAST(c AS INTEGER) FROM r", "SELECT TRY_CAST(c AS INTEGER) FROM r"),
    ("SELECT CASE WHEN a = 1 THEN 1 END FROM r", "SELECT CASE WHEN a = 1 THEN 1 ELSE 0 END FROM r"),
    ("SELECT a FROM r LIMIT 5", "SELECT a FROM r LIMIT 5 OFFSET 1"),
    ("SELECT a FROM r LIMIT 5", "SELECT a FROM r LIMIT 5%"),
    ("SELECT a, sum(b) FROM r GROUP BY a", "SELECT a, sum(b) FROM r GROUP BY ROLLUP (a)"),
    ("SELECT a, sum(b) FROM r GROUP BY a HAVING sum(b) > 1", "SELECT a, sum(b) FROM r GROUP BY a HAVING sum(b) < 1"),
    ("SELECT l[1] FROM r", "SELECT l[2] FROM r"),
    ("SELECT l[1:2] FROM r", "SELECT l[1:3] FROM r"),
    ("SELECT c COLLATE nocase = 'a' FROM r", "SELECT c = 'a' FROM r"),
    ("SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s)", "SELECT a FROM r WHERE NOT EXISTS (SELECT 1 FROM s)"),
    ("SELECT a = ANY (SELECT a FROM s) FROM r", "SELECT a = ALL (SELECT a FROM s) FROM r"),
    ("SELECT a FROM r", "SELECT a FROM w"),
    ("SELECT a FROM s", "SELECT a FROM t"),
    ("SELECT s.a FROM s, t", "SELECT s.a FROM t, s"),
    ("SELECT list(a) FROM r", "SELECT max(a) FROM r"),
]
EQUAL = [
    ("SELECT a FROM r WHERE a NOT IN (1, 2)", "SELECT a FROM r WHERE NOT (a IN (1, 2))"),
    ("SELECT a FROM r WHERE a IS NOT NULL", "SELECT a FROM r WHERE NOT (a IS NULL)"),
    ("SELECT list(a) AS x FROM r", "SELECT array_agg(a) AS x FROM r"),
    ("SELECT a ** 2 AS x FROM r", "SELECT a ^ 2 AS x FROM r"),
    ("SELECT a FROM r WHERE epoch(now()) > a", "SELECT a FROM r WHERE (epoch(now())) > a"),
    ("SELECT a FROM r ORDER BY a", "SELECT a FROM r ORDER BY a ASC NULLS LAST"),
    ("FROM r", "SELECT * FROM r"),
    ("SELECT double(a) FROM r -- x", "SELECT double(a)\nFROM r"),
    ("SELECT a FROM r WHERE a = 1 AND b = 2 AND a < b", "SELECT a FROM r WHERE a = 1 AND (b = 2 AND a < b)"),
]


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as con:
        con.execute(TABLES)
        yield con


@pytest.fixture(scope="module", params=["tables", "objects of this process"])
def either(request, con):
    """A connection with the tables, or with objects of the same names and columns, whose scans have no plan."""
    if request.param == "tables":
        yield con
        return
    with duckdb.connect() as other:
        for name in "rst":
            other.register(name, con.execute(f"FROM {name}").to_arrow_table())
        other.execute("CREATE MACRO double(x) AS x * 2; CREATE TEMP VIEW w AS SELECT a FROM r")
        yield other


@pytest.mark.parametrize(("written", "printed"), DIFFERENT)
def test_nearly_equal_queries_are_told_apart(either, written, printed):
    check_same_meaning(either, written, written)
    check_same_meaning(either, printed, printed)
    with pytest.raises(InternalError) as caught:
        check_same_meaning(either, written, printed)
    assert written in str(caught.value) and "plans them differently" in str(caught.value)


@pytest.mark.parametrize(("written", "printed"), EQUAL)
def test_two_spellings_of_one_query_are_equal(either, written, printed):
    check_same_meaning(either, written, printed)


def test_aliases_that_came_since_they_were_read_count(con, monkeypatch):
    monkeypatch.setattr(guard, "_aliases", {"abs": "abs"})
    check_same_meaning(con, "SELECT list(a) AS x FROM r", "SELECT array_agg(a) AS x FROM r")
    assert len(guard._aliases) > 1


def test_texts_with_one_parse_tree_are_not_planned(con, monkeypatch):
    monkeypatch.setattr(guard, "_PLAN", "no function at all(?)")
    check_same_meaning(con, "SELECT a+1 AS x, b FROM r -- more", "SELECT (a + 1) AS x, b\nFROM r")
    with pytest.raises(duckdb.ParserException):
        check_same_meaning(con, "SELECT a + 1 AS x FROM r", "SELECT a + 2 AS x FROM r")


def test_the_settings_of_the_session_decide(con):
    plain, nulls = "SELECT a FROM r ORDER BY a", "SELECT a FROM r ORDER BY a NULLS FIRST"
    with con.cursor() as other:
        other.execute("SET default_null_order = 'nulls_first'")
        check_same_meaning(other, plain, nulls)
        with pytest.raises(InternalError):
            check_same_meaning(other, plain, "SELECT a FROM r ORDER BY a NULLS LAST")


def test_a_printed_text_that_duckdb_refuses_is_an_internal_error(con):
    with pytest.raises(InternalError, match="refuses what was printed"):
        check_same_meaning(con, "SELECT a FROM r", "SELECT nothing FROM r")


def test_what_has_no_serialised_plan_is_refused_by_name(con):
    pivot = "PIVOT r ON a USING sum(b)"
    with pytest.raises(NotSupportedError, match=r"^PIVOT has no plan") as caught:
        check_same_meaning(con, pivot, pivot)
    assert str(caught.value.where).splitlines()[1].endswith(" ^^^^^") and "IN (...)" in str(caught.value)
    with con.cursor() as other:
        other.register("numbers", pa.table({"a": [1]}))
        check_same_meaning(other, "FROM numbers", "SELECT * FROM numbers")  # Their parse trees are equal.
        check_same_meaning(other, "FROM numbers", "SELECT a FROM numbers")
        with pytest.raises(NotSupportedError, match=r"(?s)this query has no plan.*query tables instead"):
            check_same_meaning(other, "FROM temp.numbers", "SELECT a FROM temp.numbers")


def test_what_duckdb_refuses_is_the_users_error_at_its_place(con):
    sql = "SELECT 'é',\n  nowhere FROM r"
    with pytest.raises(ProgrammingError, match="nowhere") as caught:
        check_same_meaning(con, sql, "SELECT 'é', a FROM r")
    assert caught.value.where == "line 2, column 3:   nowhere FROM r\n                    ^^^^^^^"


def test_the_guard_costs_milliseconds(con):
    sql = "SELECT r.a, sum(s.b) FROM r JOIN s USING (a) WHERE c = 'x' GROUP BY r.a"
    times = []
    for _ in range(20):
        begin = time.process_time()
        check_same_meaning(con, sql, sql)
        times.append(time.process_time() - begin)
    assert min(times) < 0.005
