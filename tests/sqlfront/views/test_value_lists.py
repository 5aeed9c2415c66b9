"""MIN and MAX with a number of values: the first of a group's sorted values, each as often as it comes about."""

from __future__ import annotations

import random

import pytest

import sqlfront
from tests.following import is_query
from tests.outer_queries import RandomRows, create_tables, rows_of

QUERIES = {
    "both ends": "SELECT k, min(x, 2) AS m, max(x, 3) AS n FROM a GROUP BY k",
    "one row": "SELECT min(x, 3) AS m, max(u, 2) AS n, count(*) AS c FROM a",
    "a join": "SELECT a.k, min(a.x, 4) AS m, max(b.y, 2) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k",
    "its own rows": "SELECT p.k, max(q.x, 3) AS m FROM a p JOIN a q ON p.k = q.u GROUP BY p.k",
    "a product": "SELECT x.u, y.v, min(x.x, 2) AS m FROM a x, b y GROUP BY x.u, y.v",
    "beside distinct values": (
        "SELECT b.v, max(a.x, 5) AS n, max(a.x) AS o, count(DISTINCT a.x) AS d FROM a JOIN b USING (k) GROUP BY b.v"
    ),
    "missing rows": "SELECT a.k, max(b.y, 2) AS m, count(*) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k",
    "filters": "SELECT k, max(x, 2) FILTER (WHERE u > 1) AS f FROM a GROUP BY k HAVING len(min(x + 1, 9)) > 1",
    "types": (
        "SELECT k, max(x::VARCHAR, 2) AS m, min(x::DOUBLE, 3) AS d, max(x::DECIMAL(9, 2), 2) AS e, max(x > 1, 2) AS b, "
        "min(DATE '2020-01-01' + x, 2) AS t FROM a GROUP BY k"
    ),
}
BY_DUCKDB = {
    "ties": "SELECT k, arg_min(u, x, 2) AS m FROM a WHERE u = x GROUP BY k",
    "distinct": "SELECT k, min(DISTINCT x, 2) AS m FROM a GROUP BY k",
}


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        create_tables(connection)
        yield connection


def check(con, queries):
    for name, query in queries.items():
        expected = con.session.duck.execute(f"SELECT COLUMNS(*)::VARCHAR FROM ({query}) ORDER BY ALL").fetchall()
        for view in (name, f"over {name}"):
            assert sorted(rows_of(con, f'SELECT COLUMNS(*)::VARCHAR FROM "{view}"').elements(), key=repr) == sorted(
                expected, key=repr
            ), view


def test_lists_are_right_after_every_epoch(con):
    """A view over each follows its changes."""
    queries, rows = QUERIES | BY_DUCKDB, RandomRows(random.Random(4))
    for name, query in queries.items():
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query}')
        con.execute(f'CREATE MATERIALIZED VIEW "over {name}" AS FROM "{name}"')
        assert ("rows of the touched groups" in con.explain(f'"{name}"').to_dict()["cost"]["update"]) == (
            name in BY_DUCKDB
        )
    for step in range(1, 8):
        if step % 4 == 0:
            kept = {table: list(own) for table, own in rows.rows.items()}
            con.execute("BEGIN")
            con.apply(rows.epoch())
            check(con, queries)
            con.execute("ROLLBACK")
            rows.rows = kept
        con.apply(rows.emptying() if step == 7 else rows.epoch())
        check(con, queries)
    for name in queries:
        assert is_query(con, name)


@pytest.mark.parametrize("size", [1_000, 20_000])
def test_steps_are_those_of_the_tree_and_of_the_list(con, size):
    con.execute(f"INSERT INTO a SELECT 0, hash(i) % 1000, i FROM range({size}) t(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, min(x, 3) AS m, max(u, 2) AS n FROM a GROUP BY k")
    view = con.view("v")
    before = view.cost()
    con.execute("INSERT INTO a VALUES (0, -1, -1)")
    middle = view.cost()
    assert middle["steps"] - before["steps"] < 150
    assert con.execute("SELECT m[1], n FROM v").fetchall() == [(-1, [size - 1, size - 2])]
    assert view.cost()["read_steps"] - middle["read_steps"] < 60


def test_a_number_that_is_no_constant_is_left_to_duckdb(con):
    for number in ("k", "0 + k"):
        assert "touches" in con.explain(f"SELECT k, max(x, {number}) AS m FROM a GROUP BY k").to_dict()["reason"]
