"""SUM(CASE ...) over columns of several tables that may be NULL: NULL where no row of the group has a value."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront

QUERIES = {
    "another table decides": "sum(CASE WHEN t.c = 1 THEN r.a ELSE 0 END)",
    "no branch otherwise": "sum(CASE WHEN t.c = 1 THEN r.a END)",
    "three branches": "sum(CASE WHEN t.c = 1 THEN r.a * t.d WHEN t.c > 2 THEN r.d ELSE t.d END)",
    "within a filter": "sum(CASE WHEN t.c = 1 THEN r.a ELSE t.d END) FILTER (WHERE r.a <> 2)",
    "both tables decide": "sum(CASE WHEN t.c = 1 AND r.a = 2 THEN r.d ELSE t.d END)",
    "a ratio": "round(100.00 * sum(CASE WHEN t.c = 1 THEN r.a * (1 - r.d) ELSE 0 END) / sum(r.a * (1 - r.d)), 6)",
    "never a value in one branch": "sum(CASE WHEN t.c = 1 THEN CASE WHEN r.a > 1 THEN NULL END ELSE r.a END)",
    "nothing but zeros": "sum(CASE WHEN t.c = 1 THEN CASE WHEN r.a > 1 THEN 0 END WHEN r.a = 2 THEN 0 END)",
    "terms that cancel": "sum(r.a * t.c - t.c * r.a) + sum(r.d * t.d - t.d * r.d) + sum(r.f * t.f - t.f * r.f)",
    "variance of terms that cancel": "var_pop(r.a * t.c - t.c * r.a)",
    "of doubles": "round(sum(CASE WHEN t.c = 1 THEN r.f * t.f ELSE t.f END), 6)",
    "twice": "sum(CASE WHEN t.c = 1 THEN r.a ELSE t.d END) + count(CASE WHEN t.c = 1 THEN r.a ELSE t.d END)",
}


def _row(rng: random.Random) -> str:
    key, first, second = rng.randrange(3), rng.choice(["NULL", "0", "1", "2"]), rng.choice(["NULL", "1", "2", "3"])
    return f"({key}, {first}, {second}, {rng.choice(['NULL', '0.5', '-2.25'])}, {rng.choice(['NULL', '1.5', '-3'])})"


@pytest.mark.parametrize("tables", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("name", QUERIES)
def test_rows_without_a_value_do_not_count(name: str, tables: str) -> None:
    rng = random.Random(name)
    with sqlfront.connect() as con:
        for table in "rt":
            con.execute(f"CREATE TABLE {table} (k INT, a INT, c INT, d DECIMAL(9, 2), f DOUBLE)")
        queries = {
            "whole": f"SELECT {QUERIES[name]} AS s FROM r {tables} t ON r.k = t.k",
            "grouped": f"SELECT r.k, {QUERIES[name]} AS s FROM r {tables} t ON r.k = t.k GROUP BY r.k",
        }
        for view, query in queries.items():
            con.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        for turn in range(26):
            table = rng.choice("rt")
            if turn % 13 == 12:
                con.execute(f"DELETE FROM {table}")
            elif rng.random() < 0.3:
                con.execute(f"DELETE FROM {table} WHERE hash(a, c, d, {turn}) % 3 = 0")
            else:
                con.execute(f"INSERT INTO {table} VALUES {_row(rng)}, {_row(rng)}")
            for view, query in queries.items():
                expected = con.session.duck.execute(query).fetchall()
                found = con.execute(f"FROM {view}").fetchall()
                assert Counter(map(str, found)) == Counter(map(str, expected)), (turn, view)  # NaN is no NaN.


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "both tables decide"])
def test_a_change_costs_a_few_steps_however_many_rows_there_are(name: str) -> None:
    steps = []
    for rows in (10, 1000):
        con = sqlfront.connect()
        con.execute("CREATE CHANGE TABLE r (k INT, a INT, d DECIMAL(9, 2), f DOUBLE)")
        con.execute("CREATE CHANGE TABLE t (k INT, c INT, d DECIMAL(9, 2), f DOUBLE)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {QUERIES[name]} AS s FROM r JOIN t USING (k)")
        con.execute(f"INSERT INTO r SELECT 1, i % 3, i % 9, i % 5 FROM range({rows}) AS x(i)")
        con.execute(f"INSERT INTO t SELECT 1, i % 4, i % 7, i % 5 FROM range({rows}) AS x(i)")
        before = con.view("v").cost()["steps"]
        con.execute("INSERT INTO t VALUES (1, 1, 3, 4)")
        steps.append(con.view("v").cost()["steps"] - before)
        con.close()
    assert steps[0] == steps[1] < 40, steps


def test_a_branch_that_is_no_value_may_fail() -> None:
    """error() has no type, as NULL has none."""
    query = "SELECT sum(CASE WHEN t.c = 1 THEN CASE WHEN r.a = 77 THEN error('77') END ELSE r.a END) AS s FROM r, t"
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER); CREATE TABLE t (c INTEGER)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO t VALUES (1), (2); INSERT INTO r VALUES (1), (3)")
        with pytest.raises(sqlfront.DataError, match="77"):
            con.execute("INSERT INTO r VALUES (77)")
        assert con.execute("FROM v").fetchall() == con.session.duck.execute(query).fetchall() == [(4,)]
