"""All rows of triangles with further columns of their tables, by heavy and light parts: right after every step."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from benchmarks.triangle_costs import slope, tight
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.triangle_rows import triangle_rows
from tests.planner.notation import parse_definition

THREE = "FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"
ONE = "FROM e r JOIN e s ON r.b = s.a JOIN e t ON s.b = t.a AND t.b = r.a"
QUERIES = [
    f"SELECT r.a, r.b, s.c, r.w AS x, s.w AS y, t.w AS z {THREE}",
    f"SELECT DISTINCT s.c, r.a, r.b, t.w {THREE}",
    f"SELECT t.w, r.a, r.b, s.c, count(*) AS n, sum(r.w) AS x {THREE} GROUP BY ALL",
    f"SELECT r.w AS x, s.c {THREE} AND t.w > 0",
    f"SELECT r.*, s.*, t.* {ONE}",
    f"SELECT r.a, r.b, t.a AS c, r.w + s.w + t.w AS total {ONE} ORDER BY total DESC, r.a LIMIT 7",
]


@pytest.fixture
def con():
    with sqlfront.connect(":memory:") as connection:
        for name, (x, y) in {"r": "ab", "s": "bc", "t": "ca", "e": "ab"}.items():
            connection.execute(f"CREATE CHANGE TABLE {name} ({x} BIGINT, {y} BIGINT, w BIGINT) WITH (retain = true)")
        yield connection


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("epsilon", [0, pytest.param(0.25, marks=pytest.mark.slow), 0.5, 1])
def test_random_streams(con, query, epsilon):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {query}")
    maintained = con.session.database.view(con.session.duck, ["v"]).maintained
    assert len(maintained.plan.union.part_trees) == 5
    choose, found, columns = random.Random(len(query)), 0, [name for name, _ in maintained.definition.columns]
    tables = "rst" if THREE in query else "e"
    for step in range(4):
        for name in tables:
            # 0 is a hub on both sides, heavy at epsilon = 0.5; some values, and some rows, come again.
            values = [*[0] * 8, *range(6), *range(6), *range(30), None]
            rows = [
                (choose.choice(values), choose.choice(values), choose.randrange(3))
                for _ in range(2 if step % 3 else 40)
            ]
            con.execute(f"INSERT INTO {name} VALUES {', '.join(map(str, rows)).replace('None', 'NULL')}")
            if step % 2:
                con.execute(f"DELETE FROM {name} WHERE w = {choose.randrange(3)}")
        maintained.balance._check()
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        rows = con.execute("FROM v").fetchall()
        assert con.view("v").count() == len(rows)
        for row in rows[:3]:
            assert con.view("v").contains(row)
            where = " AND ".join(f"{column} = {value}" for column, value in zip(columns, row, strict=True))
            assert con.execute(f"SELECT count(*) FROM v WHERE {where}").fetchone()[0] == rows.count(row)
        found += len(rows)
    assert found > 12
    for name in tables:
        con.execute(f"DELETE FROM {name}")
    assert con.execute("FROM v").fetchall() == [] and not maintained.balance.size


@pytest.mark.parametrize("text", [
    "R(a,b,x), S(b,c), T(c,a) -> a,x", "R(a,b), S(b,c), T(c,a) -> *", "R(a,b,x), S(b,c), T(c,d) -> *",
    "R(a,b,x), S(b,c), T(c,a,x) -> *", "R(a,b,x), S(b,c), T(c,d), U(d,a) -> *", "R(a,b,x), S(b,c), T(c,a) ->",
])  # fmt: skip
def test_other_queries_have_no_such_strategy(text):
    definition = parse_definition(text)
    assert triangle_rows(definition, plan_view(definition)) is None


def test_what_is_not_listed_whole_is_refused_by_its_columns(con):
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)epsilon does not apply .*triangles by w, which joins no"):
        con.execute(
            f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS SELECT r.a, r.w, count(*) {THREE} GROUP BY ALL"
        )


def test_explain_says_what_it_costs(con):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.25) AS {QUERIES[0]}")
    explained = con.explain("v").to_dict()
    assert explained["cost"] == {
        "preprocessing": "O(N^1.5)", "update": "O(N^0.75) amortised", "delay": "O(1)", "space": "O(N^1.5)",
    }  # fmt: skip
    assert "5 part trees" in explained["reason"] and "no two have a row in common" in explained["reason"]


@pytest.mark.parametrize("epsilon", [0.5, 0.75])
def test_an_update_costs_what_is_stated(epsilon):
    """A row that is there already with another w costs no more."""
    points = []
    for size in (1_000, 4_000, 16_000):
        with sqlfront.connect() as con:
            for name, rows in tight(epsilon, size).items():
                x, y = {"r": "ab", "s": "bc", "t": "ca"}[name]
                con.execute(f"CREATE CHANGE TABLE {name} ({x} BIGINT, {y} BIGINT, w BIGINT) WITH (retain = true)")
                one, other = (np.ascontiguousarray(column) for column in rows.T)
                con.apply({name: pa.table({x: one, y: other, "w": 0 * one})})
            con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {QUERIES[0]}")
            con.apply_row("r", (0, 0, 1))
            steps = []
            for weight in (1, -1) * 3:
                before = con.view("v").cost()["steps"]
                con.apply_row("r", (0, 0, 2), weight)
                steps.append(con.view("v").cost()["steps"] - before)
            points.append((size, sorted(steps)[3]))
    assert abs(slope(points) - max(epsilon, 1 - epsilon)) < 0.07
