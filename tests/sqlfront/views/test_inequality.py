"""Joins by comparisons end to end: DuckDB after every step, a naive recomputation, the feed, what is undone."""

from __future__ import annotations

import operator
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

import sqlfront
from tests.following import is_query
from tests.slices import parts

TABLES = """
CREATE TABLE r (k INTEGER, x INTEGER, y INTEGER, t VARCHAR, f DOUBLE, d DECIMAL(6, 2), e DATE);
CREATE TABLE s (k INTEGER, z INTEGER, y INTEGER, t VARCHAR, f DOUBLE, d DECIMAL(22, 3), e TIMESTAMP);
CREATE TABLE t (y INTEGER, u INTEGER, v BIGINT);
"""

QUERIES = [
    "SELECT count(*) AS n FROM r, s WHERE r.x < s.z",
    "SELECT r.x, r.y, s.z FROM r, s WHERE r.x < s.z",
    "SELECT r.k, s.z FROM r JOIN s ON r.k = s.k AND r.x <= s.z",
    "SELECT r.k, count(*) AS n, sum(s.y) AS t FROM r, s WHERE r.k = s.k AND r.x <> s.z GROUP BY r.k",
    "SELECT DISTINCT r.y FROM r, s WHERE r.x >= s.z AND r.y < s.y",
    "SELECT a.x, b.x AS w FROM r a, r b WHERE a.x < b.x",
    "SELECT count(*) AS n FROM r a, r b, r c WHERE a.x < b.x AND b.x < c.x",
    "SELECT r.y, max(s.y) AS m, count(DISTINCT s.z) AS c FROM r JOIN s ON r.x BETWEEN s.y AND s.z GROUP BY r.y",
    "SELECT r.x, max(s.z) AS m, count(DISTINCT s.z) AS c FROM r, s WHERE r.x < s.z GROUP BY r.x",
    "SELECT s.z, min(r.x) AS m FROM r, s, t WHERE s.z = t.u AND r.x <= s.z AND r.x > t.v GROUP BY s.z",
    "SELECT r.t, s.t AS u FROM r, s WHERE r.t < s.t",
    "SELECT r.t, count(*) AS n FROM r, s WHERE r.t <> s.t AND r.k = s.k GROUP BY r.t",
    "SELECT r.f, count(*) AS n FROM r, s WHERE r.f < s.f GROUP BY r.f",
    "SELECT r.f, s.f AS g FROM r, s WHERE r.f >= s.f AND r.k = s.k",
    "SELECT r.d, s.z FROM r, s WHERE r.d > s.d",
    "SELECT r.e, count(*) AS n FROM r, s WHERE r.e <= s.e GROUP BY r.e HAVING count(*) > 2",
    "SELECT r.y, s.z, t.u FROM r, s, t WHERE r.k = s.k AND s.y = t.y AND r.x < s.z AND s.z < t.v",
    "SELECT r.y, count(*) AS n FROM r, s, t WHERE r.k = s.k AND s.y = t.y AND t.u = r.x AND r.y < t.v GROUP BY r.y",
    "SELECT r.x, s.z FROM r, s WHERE r.x = s.z AND r.x <= s.z AND r.y < s.z",
    "SELECT r.x, s.y FROM r, s WHERE r.x = s.z AND r.x <> s.z AND r.y < s.y",
    "SELECT r.y, count(*) AS n FROM r, s WHERE r.x = s.z AND r.x >= s.z GROUP BY r.y",
    "SELECT r.x, min(s.z) FILTER (WHERE r.y < s.y) AS m FROM r, s WHERE r.k = s.k GROUP BY r.x",
    "SELECT r.x, s.z FROM r, s WHERE r.x < s.z ORDER BY r.x, s.z DESC LIMIT 3",
    "SELECT DISTINCT r.x, s.z, t.u FROM r, s, t WHERE r.x < s.z AND s.z < t.u",
    "SELECT r.k, sum(r.x * s.y) AS p FROM r, s WHERE r.x + 1 < s.z * 2 GROUP BY r.k",
    "SELECT x, y FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.z > r.x)",
    "SELECT DISTINCT t FROM r WHERE f IN (SELECT f FROM s WHERE r.x >= s.z)",
    "SELECT count(*) AS n FROM r WHERE EXISTS (SELECT 1 FROM s JOIN t USING (y) WHERE r.t <= s.t)",
    "SELECT q.n, s.z FROM (SELECT k, count(*) AS n FROM r GROUP BY k) AS q, s WHERE q.n > s.z",
    "SELECT count(*) AS n FROM r, t WHERE t.v <= r.x AND t.v = r.x",
    "SELECT c.z, b.u, a.k, count(*) AS n FROM r a, t b, s c, t d "
    "WHERE b.u > a.k AND c.k > a.x AND d.y < b.u GROUP BY ALL",
    # Boxes.
    "SELECT r.x, r.y, s.y AS w, s.z FROM r JOIN s ON r.k = s.k AND r.x <= s.z AND s.y <= r.y",
    "SELECT r.k, count(*) AS n, sum(s.y) AS t FROM r, s WHERE r.x < s.z AND r.y > s.y AND r.k = s.k GROUP BY r.k",
    "SELECT a.x, count(*) AS n FROM r a, r b WHERE a.x <= b.y AND b.x <= a.y GROUP BY a.x",
    "SELECT r.d, s.f FROM r, s WHERE r.d < s.d AND r.f >= s.f",
    # Sums of joins by ranges.
    "SELECT r.k, count(*) AS n, sum(s.y) AS t FROM r, s WHERE r.k = s.k AND r.x <= s.z AND s.y <= r.y AND r.x <= r.y "
    "AND s.y < s.z GROUP BY r.k HAVING count(*) > 1",
    "SELECT r.k, count(s.k) AS c, sum(r.d) AS d FROM r, s WHERE r.x BETWEEN s.y AND s.z AND s.y <= s.z GROUP BY r.k",
    "SELECT r.k, count(*) AS n, sum(r.y) FILTER (WHERE s.y > 1) AS t FROM r, s WHERE r.x < s.z - 1 OR r.x > s.z + 1 "
    "GROUP BY r.k",
    "SELECT r.x, s.z FROM r JOIN s ON r.k = s.k AND abs(r.x - s.z) > 1",
    "SELECT r.y, s.z FROM r, s WHERE r.x NOT BETWEEN s.z - 1 AND s.z + 1 ORDER BY ALL LIMIT 3",
    # Differences.
    "SELECT r.k, count(*) AS n FROM r, s WHERE r.k = s.k AND abs(r.x - s.z) <= 1 GROUP BY r.k",
    "SELECT r.x, s.z FROM r, s WHERE r.x + s.z BETWEEN 2 AND 3 AND NOT r.x - s.y > 1",
    "SELECT r.d, s.d AS q FROM r, s WHERE r.d - s.d < 1.5 AND r.x - s.z = 1",
    "SELECT r.e, count(*) AS n FROM r, r AS q WHERE abs(r.e - q.e) <= 1 GROUP BY r.e",
    "SELECT count(*) AS n FROM s, s AS q WHERE s.e - q.e BETWEEN INTERVAL 0 DAYS AND INTERVAL 24 HOURS",
    # Through a third table.
    "SELECT r.y, s.z, t.u FROM s JOIN r ON r.k = s.k JOIN t ON t.y = s.y AND r.x >= t.u AND r.x < t.v",
    "SELECT r.x, sum(s.z * t.v) AS n FROM s JOIN r ON r.k = s.k JOIN t ON t.y = s.y AND r.x BETWEEN t.u AND t.v "
    "GROUP BY r.x",
    # Sums over boxes.
    "SELECT count(*) AS n FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.k = r.k AND s.z >= r.x AND s.y < r.y)",
    "SELECT count(*) AS n, sum(r.d) AS t, sum(s.f) AS f FROM r, s WHERE r.x <= s.z AND r.f > s.f AND r.f < s.f + 9",
    "SELECT r.t, count(*) AS n, sum(s.z) AS z FROM r, s WHERE r.d <= s.d AND s.e > r.e GROUP BY r.t",
    "SELECT b.k, count(*) AS n, sum(a.y) AS y FROM r a, r b WHERE a.k = b.k AND a.x < b.x AND a.y < b.y GROUP BY b.k",
]  # fmt: skip


def random_row(choose: random.Random, table: str) -> str:
    """A row as SQL; of few values, of which some are NULL, NaN, a signed zero or strings with a common prefix."""

    def number() -> str:
        return choose.choice(["NULL", "0", "1", "2", "3", "4"])

    if table == "t":
        return f"({number()}, {number()}, {number()})"
    text = choose.choice(["NULL", "''", "'a'", "'ab'", "'b'", "'ä'", "'longer than a word'", "'longer than a worx'"])
    real = choose.choice(["NULL", "'nan'", "0.0", "-0.0", "1.5", "'inf'", "-2"])
    decimal = choose.choice(["NULL", "0.5", "-0.5", "2", "2.25"])
    day = choose.choice(["NULL", "'2020-01-01'", "'2020-01-02'", "'2021-05-05'"])
    return f"({choose.choice(['NULL', '0', '1', '0', '1'])}, {number()}, {number()}, {text}, {real}, {decimal}, {day})"


def comparable(row: Any) -> tuple[Any, ...]:
    """A row whose NaN equals another one."""
    return tuple("nan" if value != value else value for value in row)


def replayed(feed: Any) -> Counter[tuple[Any, ...]]:
    """The rows that a feed's changes add up to."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in (row for table in feed for row in table.to_pylist()):
        kind = row.pop("_change_type")
        del row["_commit_version"], row["_commit_timestamp"]
        found[comparable(row.values())] += 1 if kind in ("insert", "update_postimage") else -1
    return Counter({row: count for row, count in found.items() if count})


def make_views(
    con: sqlfront.Connection, choose: random.Random, queries: list[str], strategy: str = "auto"
) -> list[str]:
    """The tables with some rows, and a view v0, v1, ... of each query; their names."""
    con.execute(TABLES)
    for _ in range(6):
        change(con, choose)
    views = [f"v{number}" for number in range(len(queries))]
    for view, query in zip(views, queries, strict=True):
        con.execute(f"CREATE MATERIALIZED VIEW {view} WITH (strategy = '{strategy}') AS {query}")
    return views


def change(con: sqlfront.Connection, choose: random.Random) -> None:
    table = choose.choice("rrsst")
    rows = [random_row(choose, table) for _ in range(choose.choice([1, 7, 9]))]
    con.execute(f"INSERT INTO {table} VALUES {', '.join(rows)}")
    if choose.random() < 0.2:
        con.execute(f"DELETE FROM {table} WHERE y = {choose.randrange(5)}")
    if choose.random() < 0.3:
        con.execute(f"UPDATE r SET x = {choose.choice(['NULL', '3', 'x + 1'])} WHERE y = {choose.randrange(4)}")


def check_tables(con: sqlfront.Connection) -> None:
    """The invariants of everything stored: sorted lists and their trees among them."""
    engine = con.session.database.engine
    stores = [store.table for relation in engine.relations.values() for store in relation.stores.values()]
    for table in [*stores, *(table for view in engine.views.values() for table in view.tables())]:
        table._check()


@pytest.mark.parametrize("part", parts(4))
@pytest.mark.parametrize(("strategy", "queries"), [("auto", QUERIES), ("materialize", QUERIES[2:20:3])])
def test_views_follow_their_tables(strategy: str, queries: list[str], part: int) -> None:
    choose, queries = random.Random(f"{strategy} {part}"), queries[part::4]
    with sqlfront.connect(":memory:") as con:
        views = make_views(con, choose, queries, strategy)
        feeds = [con.view(view).subscribe(timeout=0) for view in views]
        seen: list[set[str]] = [set() for _ in views]
        for _ in range(4):
            change(con, choose)
            for view, query, found in zip(views, queries, seen, strict=True):
                assert is_query(con, view), query
                found.add(str(sorted(con.execute(f"SELECT * FROM {view}").fetchall(), key=str)))
        assert sum(len(found) > 1 for found in seen) >= len(seen) * 0.8
        check_tables(con)
        for view, feed in zip(views, feeds, strict=True):
            assert replayed(feed) == Counter(map(comparable, con.execute(f"SELECT * FROM {view}").fetchall()))
        for table in "rst":
            con.execute(f"DELETE FROM {table}")
        assert all(is_query(con, view) for view in views)
        kept = [table for view in con.session.database.engine.views.values() for table in view.tables()]
        assert all(table.live == 0 for table in kept)


OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "<>": operator.ne}


@pytest.mark.parametrize(("first", "second"), [("<", ">="), ("<=", "<>"), (">", "<"), (">=", "<="), ("<>", ">")])
def test_two_comparisons_of_one_pair_of_tables_naively(first: str, second: str) -> None:
    """A self-join on a key and two comparisons, of change tables with weights, against nested loops."""
    choose = random.Random(first + second)
    query = f"SELECT a.x, b.y, count(*) AS n FROM p a, p b WHERE a.k = b.k AND a.x {first} b.x AND a.y {second} b.y"
    held: Counter[tuple[Any, ...]] = Counter()
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE CHANGE TABLE p (k BIGINT, x BIGINT, y BIGINT) WITH (retain = true)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query} GROUP BY a.x, b.y")
        for _ in range(40):
            row: tuple[Any, ...] = tuple(choose.choice([None, 0, 1, 2, -(2**62)]) for _ in range(3))
            if choose.random() < 0.35 and held:
                row = choose.choice(list(held))
                con.apply_row("p", row, -1)
                held[row] -= 1
                held = +held
            else:
                con.apply_row("p", row)
                held[row] += 1
            expected: Counter[tuple[Any, ...]] = Counter()
            for (k, x, y), m in held.items():
                for (other, z, w), n in held.items():
                    known = k == other and None not in (k, x, y, z, w)
                    if known and OPERATORS[first](x, z) and OPERATORS[second](y, w):
                        expected[x, w] += m * n
            assert {(x, y): n for x, y, n in con.execute("SELECT * FROM v").fetchall()} == expected


def o3(con: sqlfront.Connection) -> None:
    """The worked example of Idris et al. (2020), 2.1, over data with multiplicities."""
    for table, columns in (("r", "x, y"), ("s", "y, z, w"), ("t", "u, v")):
        declared = ", ".join(f"{name} BIGINT" for name in columns.split(", "))
        con.execute(f"CREATE CHANGE TABLE {table} ({declared}) WITH (retain = true)")
    rows = {
        "r": {(1, 2): 1, (3, 2): 2, (5, 4): 1},
        "s": {(2, 2, 1): 1, (2, 4, 3): 1, (4, 5, 0): 1},
        "t": {(2, 7): 1, (2, 8): 3, (4, 7): 1},
    }
    for table, held in rows.items():
        for row, weight in held.items():
            con.apply_row(table, row, weight)


def test_the_worked_example_of_the_paper() -> None:
    with sqlfront.connect(":memory:") as con:
        o3(con)
        con.execute(
            "CREATE MATERIALIZED VIEW v AS "
            "SELECT s.y, s.z, s.w, t.u FROM r, s, t WHERE r.y = s.y AND r.x < s.z AND s.w < t.u"
        )
        feed = con.view("v").subscribe(timeout=0)
        rows = Counter(con.execute("SELECT * FROM v").fetchall())
        assert rows == {(2, 2, 1, 2): 4, (2, 2, 1, 4): 1, (2, 4, 3, 4): 3}
        replayed(feed)
        con.apply_row("r", (4, 4), 2)
        assert replayed(feed) == {(4, 5, 0, 2): 8, (4, 5, 0, 4): 2}
        con.apply_row("s", (2, 4, 3), -1)
        assert replayed(feed) == {(2, 4, 3, 4): -3}
        assert con.view("v").count() == 15
        (kept,) = con.session.database.engine.views.values()
        nodes = [view.table.rows() for view in kept.tree.stored_inner() if view.table]
        held = [{key: values[0] for key, values in rows.items()} for rows in nodes]
        assert {(): 15} in held and {(2, 2, 1): 1, (4, 5, 0): 2} in held  # ρ_∅ and ρ_m
        assert is_query(con)


@pytest.mark.parametrize("query", [QUERIES[0], QUERIES[1], QUERIES[6], QUERIES[14]])
def test_an_epoch_that_fails_is_undone_whole(query: str) -> None:
    choose = random.Random(query)
    with sqlfront.connect(":memory:") as con:
        con.execute(TABLES)
        con.execute("CREATE CHANGE TABLE c (k INTEGER, x INTEGER) WITH (retain = true)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT c.x, s.z FROM c, s WHERE c.x < s.z")
        for _ in range(6):
            change(con, choose)
        con.execute("INSERT INTO c VALUES (1, 1)")
        before = [sorted(con.execute(f"SELECT * FROM {view}").fetchall(), key=str) for view in "vw"]
        con.execute("BEGIN")
        change(con, choose)
        con.execute("INSERT INTO s (k, z, y) VALUES (0, 9, 9)")
        con.execute("ROLLBACK")
        with pytest.raises(sqlfront.Error):
            con.apply_row("c", (7, 0), -1)
        assert [sorted(con.execute(f"SELECT * FROM {view}").fetchall(), key=str) for view in "vw"] == before
        change(con, choose)
        for view in "vw":
            assert is_query(con, view)


def steps_of(con: sqlfront.Connection, table: str, row: tuple[int, ...]) -> int:
    """The steps that inserting a row takes in view v."""
    before = con.view("v").cost()["steps"]
    con.apply_row(table, row)
    return con.view("v").cost()["steps"] - before


@pytest.mark.parametrize(
    ("condition", "table", "row", "met"),
    [
        ("p.a < q.x", "p", (0, -3, 0), 2),
        ("p.a <= q.x", "p", (0, -3, 0), 3),
        ("p.a > q.x", "p", (0, 4, 0), 4),
        ("p.a > q.x", "q", (0, -4, 0), 3),
        # Two bounds of one column; rows beyond both.
        ("q.x BETWEEN p.a AND p.b", "p", (0, 100, 105), 6),
        ("q.x > p.a AND q.x < p.b", "p", (0, 100, 105), 4),
        ("q.x > p.a AND q.x < p.b", "p", (0, 105, 100), 0),
        # Everything passes, which is more than one chunk.
        ("p.a < q.x", "p", (0, -10000, 0), None),
        ("p.a IS DISTINCT FROM q.x", "p", (0, 7, 0), -1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rows", [1000, 5000])
def test_only_the_rows_within_the_bounds_are_met(
    condition: str, table: str, row: tuple[int, ...], met: int | None, rows: int
) -> None:
    """A negative bound counts from the greatest value; `met` is None for all rows and -1 for all but one."""
    row = tuple(rows + value if -10 < value < 0 else value for value in row)
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE CHANGE TABLE p (k BIGINT, a BIGINT, b BIGINT) WITH (retain = true)")
        con.execute("CREATE CHANGE TABLE q (k BIGINT, x BIGINT, y BIGINT) WITH (retain = true)")
        other = "q" if table == "p" else "p"
        con.execute(f"INSERT INTO {other} SELECT 0, (i * 7919) % {rows}, -1 - i FROM range({rows}) AS t(i)")
        # What IS DISTINCT FROM compares is in a bag; here it always differs.
        con.execute(
            f"CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM p, q "
            f"WHERE p.k = q.k AND {condition} AND p.b IS DISTINCT FROM q.y"
        )
        expected = rows if met is None else rows - 1 if met < 0 else met
        steps = steps_of(con, table, row)
        assert con.execute("SELECT n FROM v").fetchall() == [(expected,)]
        assert expected <= steps <= 5 * expected + 60
        assert ("sorted by x" in str(con.explain("v"))) == (met != -1)


def test_a_change_meets_its_key_not_the_table() -> None:
    """Beside an equality the steps of a change depend on the rows of its key alone."""
    seen = []
    for keys in (10, 1000):
        with sqlfront.connect(":memory:") as con:
            con.execute("CREATE CHANGE TABLE p (k BIGINT, x BIGINT) WITH (retain = true)")
            con.execute("CREATE CHANGE TABLE q (k BIGINT, z BIGINT) WITH (retain = true)")
            con.execute(f"INSERT INTO q SELECT i % {keys}, i // {keys} FROM range({8 * keys}) AS rows(i)")
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM p, q WHERE p.k = q.k AND p.x <> q.z")
            seen.append(steps_of(con, "p", (3, 4)))
            assert con.execute("SELECT n FROM v").fetchall() == [(7,)]
    assert max(seen) < min(seen) + 5 < 60


def test_views_share_a_store_that_is_sorted_for_one_of_them() -> None:
    """The columns are the same, so is the store: it has the order that the first view asks for."""
    choose = random.Random(5)
    body = "a.x, b.y, a.y AS ay, b.x AS bx FROM p a, p b WHERE a.k = b.k AND"
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE p (k INTEGER, x INTEGER, y INTEGER)")
        con.execute("INSERT INTO p SELECT i % 3, i % 7, i % 5 FROM range(20) AS t(i)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT DISTINCT {body} a.x < b.x AND a.y <> b.y")
        con.execute(f"CREATE MATERIALIZED VIEW w AS SELECT DISTINCT {body} a.y < b.y AND a.x <> b.x")
        con.execute(f"CREATE MATERIALIZED VIEW both AS SELECT {body} a.y <= b.y AND a.x > b.x")
        (relation,) = con.session.database.engine.relations.values()
        found = [store.order for store in relation.stores.values()]
        # A box needs its own order, as it is walked, and each side of it other extremes.
        assert found == [(("k",), (("x", 0),)), *2 * [(("k",), (("y", 0),))]]
        for _ in range(8):
            values = [choose.choice(["NULL", *"01234"]) for _ in range(9)]
            con.execute(f"INSERT INTO p VALUES {', '.join(f'(1, {a}, {b})' for a, b in pairwise(values))}")
            con.execute(f"DELETE FROM p WHERE x = {choose.randrange(5)} AND y > {choose.randrange(5)}")
            for view in ("v", "w", "both"):
                assert is_query(con, view)
        check_tables(con)
        con.execute("DROP MATERIALIZED VIEW v")
        con.execute("INSERT INTO p VALUES (1, 2, 3), (1, 3, 2)")
        for view in ("w", "both"):
            assert is_query(con, view)


@pytest.mark.parametrize(
    "condition", ["r.k = s.k AND r.x <> s.y", "r.x <> s.y", "r.k = s.k AND r.x < s.y AND r.a > s.b"]
)
def test_a_feed_stops_at_a_comparison_of_two_sides_that_are_put_out(condition: str) -> None:
    """Each change of one side meets rows of the other that fail the comparison."""
    choose = random.Random(condition)
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE r (k INT, x INT, a INT); CREATE TABLE s (k INT, y INT, b INT)")
        query = f"SELECT r.k, r.x, r.a, s.k AS sk, s.y, s.b FROM r JOIN s ON {condition}"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        feed = con.view("v").subscribe(timeout=0)
        for _ in range(14):
            values = f"{choose.randrange(2)}, {choose.randrange(3)}, {choose.randrange(3)}"
            con.execute(f"INSERT INTO {choose.choice('rs')} VALUES ({values})")
            if choose.random() < 0.2:
                con.execute(f"DELETE FROM {choose.choice('rs')} WHERE k = 1")
        assert replayed(feed) == Counter(con.execute(query).fetchall()) != Counter()
