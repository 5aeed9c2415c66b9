"""ORDER BY sums of floating numbers of several tables: in the order of what DuckDB rounds them to, without the join."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from sqlfront.planner.model.cost import RANKED_DISTINCT_DELAY, ROUNDED
from tests.sqlfront.views.test_ranked import check, joined, ranked, steps_read

DOUBLES = [
    *["0.1", "0.2", "0.3", "0.7", "-0.1", "-0.3", "-0.7", "0", "1", "-2.25", "1e300", "-1e300", "1e-300", "'inf'"],
    *["'-inf'", "'nan'", "1e16", "-1e16", "2e18", "-2e18", "5e-324", "1.0000000000000002", "1e308", "-1e308", "NULL"],
]
TENTHS = ["0.1", "0.2", "0.3", "0.7", "-0.1", "-0.2", "-0.3", "-0.7", "NULL"]
PATHS = {
    2: "FROM r JOIN s ON r.b = s.a",
    3: "FROM r JOIN s ON r.b = s.a JOIN t ON s.b = t.a",
    4: "FROM r JOIN s ON r.b = s.a JOIN t ON s.b = t.a JOIN u ON t.b = u.a",
}

# The tables joined, the columns put out, and ORDER BY.
ORDERS = [
    (2, "r.x, s.x AS y", "r.x + s.x"),
    (2, "r.x, s.x AS y", "r.x - s.x DESC, r.i"),
    (2, "r.i, r.f - s.f AS low", "low DESC NULLS LAST"),
    (2, "s.i", "r.i + s.x NULLS FIRST, r.d + s.d DESC"),
    (2, "r.x, s.x AS y", "r.a, (r.x + s.x) / 3 DESC NULLS FIRST, s.d"),
    (3, "r.x, s.x AS y, t.x AS z, r.x + s.x + t.x AS total", "total"),
    (3, "r.x, t.i", "r.x + s.x + t.x DESC"),
    (3, "s.i", "0.3 * (r.x + t.x) - s.x + 0.1, r.x + t.d DESC"),
    (3, "r.i + t.i AS n, s.x", "r.i + t.i + s.x, n DESC"),
    (3, "r.f, s.f AS g, t.f AS h", "r.f + s.f - t.f DESC NULLS LAST"),
    (3, "r.x, s.x AS y, t.x AS z", "-(r.x + (s.x - t.x)), t.x DESC"),
    (4, "r.x, s.x AS y, t.x AS z, u.x AS w", "r.x + s.x + t.x + u.x"),
    (4, "r.i, u.i AS n", "r.x + u.x DESC, s.x + t.x + 1e16"),
]


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


def make_tables(con: Any, names: str = "rstu") -> None:
    for name in names:
        con.execute(f"CREATE TABLE {name} (a INT, b INT, x DOUBLE, f FLOAT, i INT, d DECIMAL(5, 2))")


def change(rng: random.Random, names: str, doubles: list[str]) -> str:
    table = rng.choice(names)
    if rng.random() < 0.15:
        return f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} ORDER BY hash(rowid + x) LIMIT 3)"
    rows = []
    for _ in range(rng.choice([1, 3])):
        single = rng.choice(["0.1", "0.3", "-0.7", "3e38", "-1e-40", "NULL"])
        rest = f"{single}, {rng.choice(['NULL', '0', '1', '-3'])}, {rng.choice(['0.1', '-2.5', 'NULL'])}"
        row = f"({rng.randrange(2)}, {rng.randrange(2)}, {rng.choice(doubles)}, {rest})"
        rows += [row] * rng.choice([1, 1, 1, 2])
    return f"INSERT INTO {table} VALUES {', '.join(rows)}"


@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_random_streams_against_duckdb(con: Any, number: int) -> None:
    """After every change the rows are those of DuckDB's ORDER BY, few or many of them, and the feed follows."""
    rng = random.Random(number)
    tables, columns, order = ORDERS[number]
    doubles = [TENTHS, DOUBLES][number % 2]
    names = "rstu"[:tables]
    make_tables(con)
    for _ in range(6 * tables):
        con.execute(change(rng, names, doubles))
    query = f"SELECT {columns} {PATHS[tables]} ORDER BY {order}"
    limit = rng.choice(["LIMIT 9", "LIMIT 300", "LIMIT 5 OFFSET 2"])
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} {limit}")
    assert con.explain("v").to_dict()["strategy"] == "ranked enumeration"
    ties = ", ".join(str(place + 1) for place in range(columns.count(",") + 1))
    feed, followed, seen = con.view("v").subscribe(), Counter[str](), set()
    for step in range(6):
        con.execute(change(rng, names, doubles) if step < 5 else f"DELETE FROM {rng.choice(names)}")
        wanted = con.session.duck.execute(f"{query}, {ties} {limit}").fetchall()
        assert repr(con.execute("FROM v").fetchall()) == repr(wanted), step
        assert repr(con.view("v").top(3)) == repr(wanted[:3]), step
        while (told := feed.poll()) is not None:
            for row in told.to_pylist():
                followed[repr(tuple(row.values())[:-3])] += 1 if row["_change_type"] == "insert" else -1
        assert +followed == Counter(map(repr, wanted))
        check(con)
        seen.add(repr(wanted))
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert len(seen) > 1


def test_rounding_decides(con: Any) -> None:
    """What is the same number for a human is one of two for DuckDB, whose order it is."""
    con.execute("CREATE TABLE r (x DOUBLE); CREATE TABLE s (y DOUBLE); CREATE TABLE t (z DOUBLE)")
    con.execute("INSERT INTO r VALUES (0.1), (0.3); INSERT INTO s VALUES (0.2); INSERT INTO t VALUES (0.1), (0.3)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT x, y, z FROM r, s, t ORDER BY x + y + z LIMIT 4")
    assert 0.1 + 0.2 + 0.3 > 0.3 + 0.2 + 0.1
    assert con.view("v").top(4) == [(0.1, 0.2, 0.1), (0.3, 0.2, 0.1), (0.1, 0.2, 0.3), (0.3, 0.2, 0.3)]


def test_large_numbers_that_cancel(con: Any) -> None:
    """Far more is rounded than what is left: the row comes early, and is held back."""
    con.execute("CREATE TABLE r (x DOUBLE); CREATE TABLE s (y DOUBLE); CREATE TABLE t (z DOUBLE)")
    con.execute("INSERT INTO r VALUES (1e300), (1e17), (2); INSERT INTO s VALUES (-1e300), (-1e17), (1)")
    con.execute("INSERT INTO t VALUES (0.5), (3)")
    query = "SELECT x, y, z FROM r, s, t ORDER BY x + z + y"
    for way in ("", " DESC"):
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}{way} LIMIT 18")
        assert con.view("v").top(18) == con.session.duck.execute(f"{query}{way}, 1, 2, 3").fetchall()


def test_distinct_rows_come_once(con: Any) -> None:
    rng = random.Random(3)
    make_tables(con)
    for _ in range(30):
        con.execute(change(rng, "rst", DOUBLES))
    query = f"SELECT DISTINCT r.x, t.x AS z, s.i {PATHS[3]} ORDER BY r.x - t.x"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} LIMIT 400")
    told = con.explain("v").to_dict()
    assert told["strategy"] == "ranked enumeration"
    assert told["cost"]["delay"].startswith(str(RANKED_DISTINCT_DELAY)) and told["cost"]["delay"].endswith(ROUNDED)
    seen = set()
    for _ in range(8):
        wanted = con.session.duck.execute(f"{query}, 1, 2, 3 LIMIT 400").fetchall()
        assert repr(con.execute("FROM v").fetchall()) == repr(wanted) and len(wanted) > 20
        seen.add(repr(wanted))
        con.execute(change(rng, "rst", DOUBLES))
    assert len(seen) > 3


def test_branches_of_a_union_are_merged_by_what_is_rounded(con: Any) -> None:
    rng = random.Random(4)
    make_tables(con)
    for _ in range(30):
        con.execute(change(rng, "rst", TENTHS))
    for kind in ("UNION ALL", "UNION"):
        query = f"SELECT r.i, r.x + s.x AS n {PATHS[2]} {kind} SELECT i, x FROM t ORDER BY n DESC, i"
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query} LIMIT 30")
        assert con.explain("v").plan.strategy == "ranked enumeration of a union"
        for _ in range(4):
            con.execute(change(rng, "rst", DOUBLES))
            assert repr(con.execute("FROM v").fetchall()) == repr(
                con.session.duck.execute(f"{query} LIMIT 30").fetchall()
            )


def test_the_part_trees_of_a_ring_are_merged(con: Any) -> None:
    rng = random.Random(5)
    for table in "rstu":
        con.execute(f"CREATE TABLE {table} (a INT, b INT, x DOUBLE)")
        rows = [f"({rng.randrange(4)}, {rng.randrange(4)}, {rng.choice(TENTHS)})" for _ in range(25)]
        con.execute(f"INSERT INTO {table} VALUES {', '.join(rows)}")
    query = (
        "SELECT r.x, s.x AS y, t.x AS z, u.x AS w FROM r, s, t, u "
        "WHERE r.b = s.a AND s.b = t.a AND t.b = u.a AND u.b = r.a ORDER BY r.x + s.x + t.x + u.x"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {query} LIMIT 50")
    assert con.explain("v").to_dict()["orders"][0]["strategy"] == "ranked enumeration"
    seen = set()
    for step in range(8):
        rows = con.execute("FROM v").fetchall()
        assert rows == con.session.duck.execute(f"{query}, 1, 2, 3, 4 LIMIT 50").fetchall()
        seen.add(str(rows))
        table = "rstu"[step % 4]
        con.execute(f"DELETE FROM {table} WHERE a = {step % 3} AND b = {rng.randrange(4)}")
        con.execute(f"INSERT INTO {table} VALUES ({rng.randrange(4)}, {rng.randrange(4)}, {rng.choice(TENTHS)})")
    assert len(seen) > 4


def test_a_self_join_adds_a_shared_number_twice(con: Any) -> None:
    con.execute("CREATE TABLE e (k INT, x DOUBLE); INSERT INTO e VALUES (1, 0.1), (1, 0.7), (1, -0.2), (2, 1e16)")
    query = "SELECT p.x, q.x AS y FROM e p JOIN e q USING (k) ORDER BY p.x + q.x + p.x DESC"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} LIMIT 9")
    assert con.execute("FROM v").fetchall() == con.session.duck.execute(f"{query}, 1, 2 LIMIT 9").fetchall()


def test_the_first_of_all_and_of_groups(con: Any) -> None:
    """A group's rows are held back until none of its own can come before them."""
    rng = random.Random(6)
    make_tables(con)
    for _ in range(20):
        con.execute(change(rng, "rs", DOUBLES))
    queries = {
        "a": f"SELECT min(r.x + s.x) AS least, max(r.x - s.x) AS most {PATHS[2]}",
        "b": f"SELECT r.a, max(r.x + s.x) AS most {PATHS[2]} GROUP BY r.a",
        "c": f"SELECT r.a, r.x, s.x AS y {PATHS[2]} "
        "QUALIFY row_number() OVER (PARTITION BY r.a ORDER BY r.x + s.x DESC, r.x, s.x) <= 2",
    }
    for name, query in queries.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    assert con.explain("c").to_dict()["orders"][0]["strategy"] == "ranked enumeration"
    for _ in range(8):
        con.execute(change(rng, "rs", DOUBLES))
        for name, query in queries.items():
            found, wanted = con.execute(f"FROM {name}").fetchall(), con.session.duck.execute(query).fetchall()
            assert Counter(map(repr, found)) == Counter(map(repr, wanted)), name
    for name in queries:
        assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []


def test_the_rest_of_a_group_is_not_read(con: Any) -> None:
    """Two rows of each of three groups that have 900 rows, or 14 400."""
    steps = []
    for size in (30, 120):
        for name in "rs":
            con.execute(f"CREATE OR REPLACE TABLE {name} (g INT, x DOUBLE)")
            con.execute(f"INSERT INTO {name} SELECT i % 3, sin(i * 7.0) FROM range({3 * size}) t(i)")
        query = "SELECT r.g, r.x, s.x AS y FROM r JOIN s USING (g)"
        window = "row_number() OVER (PARTITION BY r.g ORDER BY r.x + s.x{}) <= 2"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query} QUALIFY {window.format('')}")
        settled = con.session.duck.execute(f"{query} QUALIFY {window.format(', r.x, s.x')}").fetchall()
        assert Counter(con.execute("FROM v").fetchall()) == Counter(settled)
        walk = RankedWalk(ranked(con, "v"))
        while walk.next():
            pass
        steps.append(walk.steps)
        con.execute("DROP MATERIALIZED VIEW v")
    assert steps[1] <= 2 * steps[0] < 2000, steps


SORTED = {
    "r.x * s.x + t.x": "no sum of one table's columns each",
    "r.x + sqrt(s.x + t.x)": "no sum of one table's columns each",
    "r.d + s.d + t.x": "in it is DECIMAL(6,2) over several tables: cast its numbers to DOUBLE",
    "(r.x + s.x)::INT + t.x": "no sum of one table's columns each",
    "(r.x + s.x) * 0 + t.x": "no sum of one table's columns each",
    "1e9 * (1e9 * (r.x + s.x)) + t.x": "its coefficients are too far apart",
    "r.x + s.x + 'inf'": "is no finite number",
}


@pytest.mark.parametrize("order", SORTED)
def test_what_is_sorted_says_why(con: Any, order: str) -> None:
    make_tables(con)
    for table in "rst":
        con.execute(f"INSERT INTO {table} SELECT 1, 1, range / 10, 0, 0, range / 10 FROM range(3)")
    query = f"SELECT r.x, s.x AS y, t.x AS z {PATHS[3]} ORDER BY {order}"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} LIMIT 5")
    [told] = con.explain("v").to_dict()["orders"]
    assert told["strategy"] == "sorted when read" and SORTED[order] in told["reason"]
    assert con.execute("FROM v").fetchall() == con.session.duck.execute(f"{query}, 1, 2, 3 LIMIT 5").fetchall()


FLOATING = "r.w - s.w + t.w DESC"


@pytest.mark.parametrize(
    "values", ["sin({} % 1000000)", "({} % 1000000) / 1e5", "{} % 3"], ids=["any", "decimals", "few"]
)
def test_reads_do_not_feel_the_size_of_the_join(values: str) -> None:
    """Neither where all sums differ, nor where, of numbers with few digits, thousands of rows tie."""
    reads = []
    for groups in (400, 90):
        with joined(groups, FLOATING, "DOUBLE", values) as con:
            assert ranked(con, "v").order.terms
            reads.append([steps_read(con, "v", k) for k in (10, 100, 1000)])
    for small, large in zip(*reads, strict=True):
        assert large <= 3 * small, reads


def test_a_walk_holds_a_few_rows_back(con: Any) -> None:
    """It ends once, gives no more than it is asked for, and fetches little ahead."""
    with joined(90, FLOATING, "DOUBLE", "sin({} % 1000000)") as con:
        walk = RankedWalk(ranked(con, "v"))
        assert [0 < walk.next(7) <= 7 for _ in range(20)] == [True] * 20
        steps = walk.steps
        assert steps <= 2 * steps_read(con, "v", 160)
