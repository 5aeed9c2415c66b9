"""The limits of a view's query: each works up to it, and is refused beyond it by an error of its own."""

from __future__ import annotations

import re

import pytest

import sqlfront


def brackets(levels):
    return f"SELECT {'abs(' * levels}a{')' * levels} AS x FROM t"


def subqueries(levels):
    return f"SELECT a FROM {'(SELECT a FROM ' * levels}t{')' * levels}"


def branches(count, word="UNION ALL"):
    return f" {word} ".join(f"SELECT a, {number} AS b FROM t" for number in range(count))


def columns(count):
    return f"SELECT {', '.join(f'a AS c{number}' for number in range(count))} FROM t"


def conditions(count, word="AND"):
    return f"SELECT a FROM t WHERE {f' {word} '.join(f'b <> {number}' for number in range(count))}"


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a BIGINT, b BIGINT)")
        con.execute("INSERT INTO t VALUES (1, 1), (2, 5), (2, 2000)")
        yield con


@pytest.mark.parametrize(
    "query",
    [
        brackets(64),
        f"SELECT {'CASE WHEN a > 1 THEN b ELSE ' * 64}0{' END' * 64} AS x FROM t",
        subqueries(64),
        f"SELECT a FROM t WHERE a IN {'(SELECT a FROM t WHERE a IN ' * 8}(SELECT a FROM t){')' * 8}",
        branches(16),
        branches(16, "UNION"),
        " EXCEPT ".join(f"SELECT a FROM t WHERE a <> {number}" for number in range(5, 25)),
        conditions(150),
        conditions(150, "OR"),
        columns(120),
    ],
    ids=range(10),
)
def test_up_to_the_limits_views_are_kept(tmp_path, query):
    with sqlfront.connect(tmp_path / "d") as con:
        con.execute("CREATE TABLE t (a BIGINT, b BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO t VALUES (1, 1), (2, 5), (2, 2000)")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == [] and str(con.explain("v"))
        count = con.execute("SELECT count(*) FROM v").fetchall()
    with sqlfront.connect(tmp_path / "d") as con:
        assert con.execute("SELECT count(*) FROM v").fetchall() == count
        con.execute("DELETE FROM t WHERE b = 5")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        branches(500), branches(500, "UNION"), conditions(1000), conditions(1000, "OR"), columns(1000),
        f"SELECT a FROM t WHERE a IN {'(SELECT a FROM t WHERE a IN ' * 62}(SELECT a FROM t){')' * 62}",
    ],
    ids=range(6),
)  # fmt: skip
def test_at_the_limits_views_are_kept(tmp_path, query):
    test_up_to_the_limits_views_are_kept(tmp_path, query)


@pytest.mark.parametrize(
    ("query", "what", "at"),
    [
        (brackets(65), "An expression nested this deeply", "abs(a)"),
        (brackets(700), "An expression nested this deeply", "abs(abs("),
        (subqueries(65), "A subquery nested this deeply", "SELECT a FROM t"),
        (branches(501), "A query of this many branches", "SELECT a, 500 AS b FROM t"),
        (columns(1001), "A query of this many columns", "a AS c1000"),
    ],
    ids=["brackets", "many brackets", "subqueries", "branches", "columns"],
)
def test_beyond_the_limits_an_error_names_what_where_why_and_a_way_out(con, query, what, at):
    with pytest.raises(sqlfront.NotSupportedError) as refused:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    error = refused.value
    assert what in error.what and error.why and error.hint
    line, carets = error.where.split("\n")
    pointed = line[carets.index("^") : carets.rindex("^") + 1]
    assert pointed.startswith(at[: len(pointed)]) and len(pointed) >= 1, error.where
    assert re.search(r"64|500|1,000", error.why)
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []
    assert con.session.database.engine.relations == {} and con.session.database.engine.nodes == {}


def test_a_join_of_too_many_tables_is_refused(con):
    joins = " ".join(f"JOIN t AS t{number} ON t{number}.a = t{number - 1}.a" for number in range(1, 50))
    with pytest.raises(sqlfront.NotSupportedError, match=r"(?s)many tables.*steps.*materialized view of some"):
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT t0.a FROM t AS t0 {joins}")
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []
