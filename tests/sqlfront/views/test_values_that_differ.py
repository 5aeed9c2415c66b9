"""Rows of a join whose values differ, `a.id <> b.id`: no pair is stored, and only rows that change are met."""

from __future__ import annotations

import random
from math import log2
from typing import Any

import pytest

import sqlfront
from tests.following import is_query
from tests.sqlfront.views.test_inequality import check_tables, steps_of

PAIRS = {
    "of a key": "SELECT a.i, b.i AS other FROM t a JOIN t b ON a.k = b.k AND a.i <> b.i",
    "of two tables": "SELECT a.i, b.i AS other FROM t a JOIN u b ON a.k = b.k AND NOT a.i = b.i",
    "hardly any": "SELECT a.i, b.i AS other FROM t a JOIN t b ON a.h = b.h AND a.city <> b.city",
    "within a bound": "SELECT a.i, b.i AS other FROM t a JOIN u b ON a.k = b.k AND a.i < b.i AND a.h <> b.h",
}
VALUES = {
    "BIGINT": ["-1", "0", "1"],
    "VARCHAR": ["''", "'a'", "'B'", "'ä'"],
    "DOUBLE": ["'nan'", "'-inf'", "0.5"],
    "DATE": ["'2020-01-01'", "'infinity'"],
    "DECIMAL(9,2)": ["0.25", "-3"],
    "UUID": ["'ffffffff-0000-0000-0000-000000000000'", "'7fffffff-0000-0000-0000-000000000000'"],
}


def opened(rows: int) -> sqlfront.Connection:
    """Tables with 10 rows of each k. All rows have one h and one city, but for one in a hundred."""
    con = sqlfront.connect(":memory:")
    for table in "tu":
        con.execute(f"CREATE CHANGE TABLE {table} (i BIGINT, k BIGINT, h BIGINT, city VARCHAR) WITH (retain = true)")
        con.execute(f"INSERT INTO {table} SELECT i, i // 10, i // 500, "
                    f"CASE WHEN i % 100 = 0 THEN 'Ulm' ELSE 'Bonn' END FROM range({rows}) AS r(i)")  # fmt: skip
    return con


@pytest.mark.parametrize("name", PAIRS)
def test_no_pair_is_stored_and_rows_that_are_equal_are_not_met(name: str) -> None:
    found = []
    for rows in (1000, 8000):
        with opened(rows) as con:
            con.execute(f"CREATE MATERIALIZED VIEW v AS {PAIRS[name]}")
            state = con.execute("SHOW STATE FOR v").to_arrow_table().to_pydict()
            assert sum(state["entries"]) < 8 * rows
            changed = (rows // 2 + 3, rows // 20, rows // 1000, "Bonn")
            before = con.view("v").count()
            found.append(steps_of(con, "t", changed))
            told = con.view("v").count() - before
            assert found[-1] < 8 * (told + 4) * log2(rows)
            assert is_query(con, "v")
    assert found[1] < 2 * found[0]


def test_explain_says_how_rows_that_differ_are_found() -> None:
    with opened(100) as con:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {PAIRS['of a key']}")
        plan = con.explain("v").to_dict()
        assert "pairs whose values differ are those with the less one on one side" in plan["reason"]
        con.execute("CREATE MATERIALIZED VIEW n AS SELECT k, count(*) AS n FROM t a JOIN u b USING (k) "
                    "WHERE a.i <> b.i GROUP BY k")  # fmt: skip
        assert "less those whose values are equal" in con.explain("n").to_dict()["reason"]


@pytest.mark.parametrize("kind", VALUES)
def test_rows_that_differ_are_those_of_the_query(kind: str) -> None:
    choose = random.Random(kind)
    with sqlfront.connect(":memory:") as con:
        for table in "tu":
            con.execute(f"CREATE TABLE {table} (k INTEGER, v {kind}, w {kind})")
        both = "a.k = b.k AND a.v <> b.v"
        con.execute(f"CREATE MATERIALIZED VIEW one AS SELECT a.k, a.v, b.v AS bv FROM t a JOIN t b ON {both}")
        con.execute(f"CREATE MATERIALIZED VIEW two AS SELECT a.v, b.w FROM t a JOIN u b ON {both} AND a.w <> b.w")
        con.execute("CREATE MATERIALIZED VIEW three AS SELECT a.v, b.w FROM t a JOIN u b ON a.v <> b.v AND a.w <= b.w")
        for step in range(12):
            change(con, choose, VALUES[kind])
            if step % 3 == 2:
                assert all(is_query(con, view) for view in ("one", "two", "three"))
        check_tables(con)


def change(con: Any, choose: random.Random, values: list[str]) -> None:
    table = choose.choice("tu")
    if choose.random() < 0.3:
        con.execute(f"DELETE FROM {table} WHERE k = {choose.randrange(3)} AND v IS NOT DISTINCT FROM {values[-1]}")
    rows = [(choose.choice(["0", "1", "NULL"]), *choose.choices(["NULL", *values], k=2)) for _ in range(3)]
    con.execute(f"INSERT INTO {table} VALUES {', '.join(f'({k}, {v}, {w})' for k, v, w in rows)}")
