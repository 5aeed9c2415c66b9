"""The worked examples of the papers, with their numbers, from SQL.

Berkholz, Keppeler and Schweikardt 2017, Example 6.1 and Figure 1; Idris et al. 2017, Figure 2 and Example 4.13.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import sqlfront

EXAMPLE = "FROM r AS r1, r AS r2, e AS e1, e AS e2, s WHERE " + " AND ".join(
    f"r1.{c} = {other}.{c}"
    for other, columns in (("r2", "xy"), ("e1", "xy"), ("e2", "x"), ("s", "xyz"))
    for c in columns
)
FULL = f"SELECT r1.x, r1.y, r1.z, r2.z AS z2, e2.y AS y2 {EXAMPLE}"
E = ["ae", "af", "bd", "bg", "bh"]
S = ["aea", "aeb", "afc", "bgb", "bpa"]
R = [*S, "aec", "bga", "bgc", "bpb", "bpc"]
TABLE_1 = [
    "aeaae",
    "aeaaf",
    "aeabe",
    "aeabf",
    "aeace",
    "aeacf",
    "aebae",
    "aebaf",
    "aebbe",
    "aebbf",
    "aebce",
    "aebcf",
    "afcce",
    "afccf",
    "bgbad",
    "bgbag",
    "bgbah",
    "bgbbd",
    "bgbbg",
    "bgbbh",
    "bgbcd",
    "bgbcg",
    "bgbch",
]


@pytest.fixture
def example():
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE r (x VARCHAR, y VARCHAR, z VARCHAR)")
    con.execute("CREATE CHANGE TABLE s (x VARCHAR, y VARCHAR, z VARCHAR); CREATE CHANGE TABLE e (x VARCHAR, y VARCHAR)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {FULL}")
    con.execute(f"CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n {EXAMPLE}")
    for table, rows in (("e", E), ("r", R), ("s", S)):
        for row in rows:
            con.apply_row(table, tuple(row))
    yield con
    con.close()


def words(con):
    return sorted("".join(row) for row in con.execute("FROM v").fetchall())


def test_example_6_1(example):
    """23 rows, Table 1; E(b, p) makes it 38, its delete 23 again, at a number of steps that the rows do not change."""
    assert example.explain("v").to_dict()["shape"] == "q-hierarchical"
    assert words(example) == sorted(TABLE_1) and example.view("v").count() == 23
    before = example.view("v").cost()["steps"]
    example.apply_row("e", ("b", "p"))
    steps = example.view("v").cost()["steps"] - before
    after = words(example)
    assert len(after) == 38 and set(TABLE_1) < set(after)
    assert {word[:3] for word in set(after) - set(TABLE_1)} == {"bgb", "bpa"}
    assert example.execute("FROM n").fetchall() == [(38,)]
    example.apply_row("e", ("b", "p"), -1)
    assert words(example) == sorted(TABLE_1) and example.execute("FROM n").fetchall() == [(23,)]
    for i in range(50):
        example.apply_row("e", ("b", f"q{i}"))
        example.apply_row("r", ("b", f"q{i}", "a"))
    before = example.view("v").cost()["steps"]
    example.apply_row("e", ("b", "p"))
    assert example.view("v").cost()["steps"] - before <= steps + 4


@pytest.mark.parametrize(
    ("columns", "count"),
    [("r1.x", 2), ("r1.x, r1.y", 3), ("r1.x, e2.y", 5), ("r1.x, r1.y, r1.z", 4), ("r1.x, r1.y, r2.z", 7),
     ("r1.x, r1.y, r1.z, r2.z", 10)],
)  # fmt: skip
def test_projections_of_example_6_1(example, columns, count):
    example.execute(f"CREATE MATERIALIZED VIEW p AS SELECT DISTINCT {columns} {EXAMPLE}")
    assert example.explain("p").to_dict()["shape"] == "q-hierarchical"
    assert example.view("p").count() == len(example.execute("FROM p").fetchall()) == count
    assert example.execute("FROM n").fetchall() == [(23,)]


def test_figure_1_with_repeated_variables():
    """R(x4, x1, x2, x1) and R(x5, x3, x2, x1) over E(x1, x2): one row of R may match both."""
    con = sqlfront.connect()
    con.execute(
        "CREATE CHANGE TABLE e (a BIGINT, b BIGINT); CREATE CHANGE TABLE r (p BIGINT, q BIGINT, s BIGINT, t BIGINT)"
    )
    body = "FROM e, r AS r4, r AS r5 WHERE e.a = r4.q AND e.a = r4.t AND e.b = r4.s AND e.b = r5.s AND e.a = r5.t"
    con.execute(f"CREATE MATERIALIZED VIEW d AS SELECT DISTINCT e.a, e.b, r5.q {body}")
    con.execute(f"CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n {body}")
    for table, row, weight, distinct, total in [
        ("e", (1, 2), 1, set(), 0),
        ("r", (4, 1, 2, 1), 1, {(1, 2, 1)}, 1),
        ("r", (7, 9, 2, 1), 1, {(1, 2, 1), (1, 2, 9)}, 2),
        ("r", (8, 1, 2, 1), 1, {(1, 2, 1), (1, 2, 9)}, 6),
        ("r", (4, 1, 2, 1), -1, {(1, 2, 1), (1, 2, 9)}, 2),
        ("r", (8, 1, 2, 1), -1, set(), 0),
        ("e", (1, 2), -1, set(), 0),
        ("r", (7, 9, 2, 1), -1, set(), 0),
    ]:
        con.apply_row(table, row, weight)
        assert set(con.execute("FROM d").fetchall()) == distinct and con.view("d").count() == len(distinct)
        assert con.execute("FROM n").fetchall() == [(total,)]
    engine = con.session.database.engine
    assert all(table.entries() == 0 for view in engine.views.values() for table in view.tables())


def gmr(con, name, columns, rows):
    types = ", ".join(f"{column} BIGINT" for column in columns)
    con.execute(f"CREATE CHANGE TABLE IF NOT EXISTS {name} ({types})")
    data = {column: pa.array([row[i] for row in rows], pa.int64()) for i, column in enumerate(columns)}
    con.apply({name: pa.table({**data, "_weight": pa.array(list(rows.values()), pa.int64())})})


def bag(con, view):
    return Counter(con.execute(f"FROM {view}").fetchall())


def test_the_algebra_of_figure_2():
    """Multiplicities multiply in joins and add up in projections. T's -4 is a change, which here follows an S of 5."""
    con = sqlfront.connect()
    gmr(con, "r", "xyz", {(1, 2, 2): 2, (2, 4, 6): 3, (1, 2, 3): 3})
    gmr(con, "s", "uv", {(4, 5): 5, (2, 3): 4, (1, 4): 2})
    gmr(con, "t", "uv", {(2, 1): 6, (1, 4): 3})
    con.execute("CREATE MATERIALIZED VIEW st AS SELECT u, v FROM s JOIN t USING (u, v)")
    con.execute("CREATE MATERIALIZED VIEW py AS SELECT y FROM r")
    con.execute("CREATE MATERIALIZED VIEW k AS SELECT u, v, count(*) AS n FROM s GROUP BY u, v")
    assert bag(con, "st") == {(1, 4): 6} and bag(con, "py") == {(2,): 5, (4,): 3}
    gmr(con, "s", "uv", {(4, 5): -4, (2, 1): 6, (1, 4): 3})  # S + T
    assert con.execute("FROM k ORDER BY ALL").fetchall() == [(1, 4, 5), (2, 1, 6), (2, 3, 4), (4, 5, 1)]
    gmr(con, "s", "uv", {(4, 5): 4, (2, 1): -6, (1, 4): -3})  # and back, then S - T but for what would be negative
    assert con.execute("FROM k ORDER BY ALL").fetchall() == [(1, 4, 2), (2, 3, 4), (4, 5, 5)]
    gmr(con, "s", "uv", {(4, 5): 4})
    with pytest.raises(sqlfront.IntegrityError):
        gmr(con, "s", "uv", {(1, 4): -3, (2, 1): -6})
    assert con.execute("FROM k ORDER BY ALL").fetchall() == [(1, 4, 2), (2, 3, 4), (4, 5, 9)]


def test_example_4_13_and_its_change():
    """R(x,y,z), S(x,y,u), T(y,v,w), U(y,v,p); S += {(1,5,9) -> 2} adds 12 tuples' worth of rows, 24 in all."""
    con = sqlfront.connect()
    gmr(con, "r", "xyz", {(1, 5, 6): 1, (1, 5, 7): 1, (2, 5, 6): 1, (3, 8, 1): 2})
    gmr(con, "s", "xyu", {(2, 5, 1): 3, (3, 8, 4): 1})
    gmr(con, "t", "yvw", {(5, 1, 1): 1, (5, 1, 2): 1, (5, 2, 1): 2, (9, 1, 1): 1})
    gmr(con, "u", "yvp", {(5, 1, 1): 1, (5, 2, 7): 1, (5, 2, 8): 1})
    con.execute(
        "CREATE MATERIALIZED VIEW q AS SELECT r.x, r.y, r.z, s.u, t.v, t.w, u.p FROM r, s, t, u "
        "WHERE r.x = s.x AND r.y = s.y AND r.y = t.y AND t.y = u.y AND t.v = u.v"
    )
    before = {
        (2, 5, 6, 1, 1, 1, 1): 3, (2, 5, 6, 1, 1, 2, 1): 3, (2, 5, 6, 1, 2, 1, 7): 6, (2, 5, 6, 1, 2, 1, 8): 6,
    }  # fmt: skip
    assert bag(con, "q") == before and con.view("q").count() == 18
    with con.view("q").subscribe(snapshot=False) as changes:
        gmr(con, "s", "xyu", {(1, 5, 9): 2})
        told = Counter(tuple(row.values())[:7] for row in changes.poll().to_pylist())
    change = {
        (1, 5, z, 9, *tail): n
        for z in (6, 7)
        for tail, n in (((1, 1, 1), 2), ((1, 2, 1), 2), ((2, 1, 7), 4), ((2, 1, 8), 4))
    }
    assert told == change and bag(con, "q") == before | change and con.view("q").count() == 42
