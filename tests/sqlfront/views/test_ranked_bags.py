"""The first rows of cyclic queries: ranked trees over the bags that the views keep."""

from __future__ import annotations

import random
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from tests.following import is_query
from tests.slices import parts
from tests.sqlfront.views.test_ranked import steps_read

TABLES = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a"), "u": ("d", "a"), "p": ("c", "d")}
TRIANGLE = "FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"
RING = "FROM r, s, p, u WHERE r.b = s.b AND s.c = p.c AND p.d = u.d AND u.a = r.a"
BOW_TIE = "FROM r, s, t, u, p WHERE r.b = s.b AND s.c = t.c AND t.a = r.a AND u.a = r.a AND p.d = u.d AND p.c = t.c"
SCORE = "r.w + s.w + t.w"
# What is selected, the order, and what is kept of it.
QUERIES = [
    (f"SELECT r.a, s.b, t.c, {SCORE} AS score {TRIANGLE}", "score DESC", "LIMIT 10"),
    (f"SELECT r.a, s.b, t.c, {SCORE} AS score {TRIANGLE}", "score DESC", ""),
    (f"SELECT r.a, s.b, p.c, u.d, r.w - u.w AS more {RING}", "r.w + s.w + p.w + u.w", "LIMIT 7 OFFSET 2"),
    (f"SELECT DISTINCT r.a, r.w {TRIANGLE}", "r.w DESC, r.a", "LIMIT 5"),
    (f"SELECT DISTINCT r.a, t.w {TRIANGLE}", "r.a - t.w::DOUBLE", "LIMIT 5"),
    (
        "SELECT x.a, y.a AS b, x.w + y.w AS score FROM r x, r y, r z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a",
        "x.w + y.w",
        "LIMIT 9",
    ),
    (
        "SELECT r.a, u.d, u.w, r.w AS v FROM r, s, t, u WHERE r.b = s.b AND s.c = t.c AND t.a = r.a AND u.a = r.a",
        "u.w - r.w, s.w",
        "LIMIT 9",
    ),
    (f"SELECT r.a, t.c, p.d, u.w, s.w AS v {BOW_TIE}", "u.w - r.w, s.w", "LIMIT 9"),
]


def connect(rows: int, rng: random.Random) -> Any:
    con = sqlfront.connect(":memory:")
    for table, (one, other) in TABLES.items():
        con.execute(f"CREATE TABLE {table} ({one} BIGINT, {other} BIGINT, w BIGINT NOT NULL)")
        if rows:
            insert(con, table, rows, rng)
    return con


def insert(con: Any, table: str, rows: int, rng: random.Random) -> None:
    values = (f"({rng.randrange(4)}, {rng.randrange(4)}, {rng.randrange(9)})" for _ in range(rows))
    con.execute(f"INSERT INTO {table} VALUES {', '.join(values)}")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_random_streams_against_duckdb(number: int, seed: int) -> None:
    """CHECK compares with DuckDB; at the end nothing is left."""
    rng = random.Random(10 * number + seed)
    con = connect(15 - 15 * seed, rng)
    select, order, limit = QUERIES[number]
    con.execute(f"CREATE MATERIALIZED VIEW v AS {select} ORDER BY {order} {limit}")
    [plan] = con.explain("v").to_dict()["orders"]
    assert plan["strategy"] == "ranked enumeration"
    seen = set()
    for _ in range(20 if limit else 12):
        if rng.random() < 0.6:
            for table in TABLES:
                insert(con, table, 1, rng)
        else:
            con.execute(f"DELETE FROM {rng.choice('rstup')} WHERE w = {rng.randrange(9)}")
        assert is_query(con)
        rows = con.view("v").top(6)
        seen.add(tuple(rows))
        if not limit:
            expected = con.execute(f"{select} ORDER BY {order}, 1, 2, 3 LIMIT 6").fetchall()
            assert rows == expected
    assert len(seen) > 2, seen
    for table in TABLES:
        con.execute(f"DELETE FROM {table}")
    assert con.view("v").count() == 0
    state = con.execute("SHOW STATE FOR v").df()
    assert state["entries"].sum() == 0
    con.close()


def test_each_group_of_a_bag() -> None:
    rng = random.Random(5)
    con = connect(25, rng)
    settled = f"{SCORE} DESC, r.a, s.b, t.c"
    query = f"SELECT r.a, s.b, t.c {TRIANGLE} QUALIFY row_number() OVER (PARTITION BY r.a ORDER BY {settled}) <= 2"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.explain("v").to_dict()["strategy"] == "ranked enumeration"
    for _ in range(6):
        insert(con, rng.choice("rst"), 3, rng)
        con.execute(f"DELETE FROM {rng.choice('rst')} WHERE w = {rng.randrange(9)}")
        expected = con.execute(f"SELECT * FROM ({query}) ORDER BY ALL").fetchall()
        assert con.execute("SELECT * FROM v ORDER BY ALL").fetchall() == expected
    con.close()


def test_the_first_rows_of_many_triangles_cost_few_steps() -> None:
    """Of n^3 triangles the first ten are read in steps that do not grow with n."""
    steps = []
    for n in (6, 12, 24):
        con = connect(0, random.Random(0))
        for table in "rst":
            con.execute(f"INSERT INTO {table} SELECT i, j, (i * 7 + j * 3) % 11 FROM range({n}) a(i), range({n}) b(j)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES[0][0]} ORDER BY score DESC LIMIT 10")
        steps.append(steps_read(con, "v", 10))
        con.close()
    assert max(steps) <= 2 * min(steps), steps


@pytest.mark.parametrize("seed", parts(4))
def test_distinct_rows_of_rings_in_part_trees(seed: int) -> None:
    """Pieces may have an output row in common, which is shown once."""
    rng = random.Random(8 + seed)
    con = connect(0, rng)
    queries = {
        "opposite": (f"SELECT DISTINCT r.a, p.c, r.w {RING}", "r.a + p.c DESC", 0.4),
        "cast": (f"SELECT DISTINCT r.a, u.w {RING}", "r.a + 0.1::DOUBLE * u.w", 0.5),
        "one": (f"SELECT DISTINCT u.d {RING}", "u.d DESC NULLS LAST", 0.3),
    }
    for name, (select, order, epsilon) in queries.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (epsilon = {epsilon}) AS {select} ORDER BY {order} LIMIT 9")
    views, repeated = list(con.session.database.engine.views.values()), 0
    for _ in range(10 if seed else 8):
        for table in "rspu":
            insert(con, table, 2, rng)
        con.execute(f"DELETE FROM {rng.choice('rspu')} WHERE w = {rng.randrange(9)}")
        for view, (name, (select, order, _)) in zip(views, queries.items(), strict=True):
            view.balance._check()
            ties = ", ".join(str(place + 1) for place in range(select.count(",", 0, select.index(" FROM ")) + 1))
            everything = con.execute(f"{select} ORDER BY {order}, {ties}").fetchall()
            assert con.view(name).top(9) == everything[:9]
            repeated += sum(map(rows_of, view.ranked[0].trees())) > len(everything)
    assert repeated > 2
    con.close()


def rows_of(tree: Any) -> int:
    """How many rows a ranked tree finds."""
    walk = RankedWalk(tree)
    return sum(iter(walk.next, 0))


def test_parts_in_the_place_of_bags() -> None:
    """Where values are told apart by weight there are no bags, and the rows are sorted when they are read."""
    con = connect(15, random.Random(3))
    con.execute(
        f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS SELECT r.a, s.b, t.c {TRIANGLE} ORDER BY r.a, s.b LIMIT 4"
    )
    [plan] = con.explain("v").to_dict()["orders"]
    assert plan["strategy"] == "sorted when read" and "heavy and light" in plan["reason"]
    insert(con, "r", 5, random.Random(4))
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    con.close()
