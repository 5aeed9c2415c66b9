"""First rows of left and anti joins: ranked trees with optional and absent children, against DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sqlfront
from tests.following import take
from tests.outer_queries import OuterQuery, RandomRows, create_tables, ordered_query, rows_of, table_of

QUERIES = {
    "left": ("SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k", "y NULLS FIRST, x DESC"),
    "nulls last": ("SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k", "y DESC NULLS LAST, x"),
    "key": ("SELECT a.k, b.k AS bk, b.y FROM a LEFT JOIN b ON a.k = b.k", "bk NULLS FIRST, k"),
    "own rows": ("SELECT p.x, q.u AS qu FROM a p LEFT JOIN a q ON p.k = q.x", "qu NULLS FIRST, x"),
    "two": ("SELECT b.y, c.z, a.x FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k", "z NULLS FIRST, y DESC"),
    "sum": ("SELECT a.x, b.y, a.x + b.y AS s FROM a LEFT JOIN b ON a.k = b.k", "s DESC NULLS FIRST"),
    "chain": ("SELECT a.x, b.y, c.z FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON b.y = c.k", "z NULLS FIRST, y, x"),
    "group": ("SELECT a.x, b.v, c.z FROM a LEFT JOIN (b JOIN c ON b.y = c.k) ON a.k = b.k", "z DESC NULLS FIRST, v, x"),
    "distinct": ("SELECT DISTINCT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k", "y NULLS FIRST, x"),
    "anti": ("SELECT a.x, a.k FROM a ANTI JOIN b ON a.k = b.k", "x DESC NULLS LAST"),
    "absent group": ("SELECT a.x FROM a WHERE NOT EXISTS (FROM b JOIN c ON b.y = c.k WHERE b.k = a.k)", "x"),
    "full": ("SELECT a.x, b.y FROM a FULL JOIN b ON a.k = b.k", "y NULLS FIRST, x NULLS LAST"),
    "not in": ("SELECT a.x, a.k FROM a WHERE a.k NOT IN (SELECT k FROM b WHERE k = a.k)", "k NULLS FIRST, x"),
}  # fmt: skip


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    create_tables(connection)
    yield connection
    connection.close()


def follow(con: sqlfront.Connection, judges: dict[str, str], rows: RandomRows, steps: int) -> None:
    """Random epochs, some rolled back, and an emptying: all views, what `top` gives of those whose query is in order,
    and what is told of them are right after each, and nothing is stored at the end."""
    feeds = {name: con.view(f'"{name}"').subscribe(timeout=0) for name in judges}
    told = {name: Counter[tuple[Any, ...]]() for name in judges}
    for step in range(1, steps + 1):
        if step % 4 == 0:
            kept = {name: list(own) for name, own in rows.rows.items()}
            con.execute("BEGIN")
            con.apply(rows.epoch())
            compare(con, judges)
            con.execute("ROLLBACK")
            rows.rows = kept
        con.apply(rows.emptying() if step == steps else rows.epoch())
        now = compare(con, judges)
        for name, feed in feeds.items():
            take(feed, told[name])
            assert (+told[name], -told[name]) == (now[name], Counter()), name
    for name, feed in feeds.items():
        feed.close()
        view = con.view(f'"{name}"')
        assert con.execute(f'CHECK MATERIALIZED VIEW "{name}"').fetchall() == []
        assert all(entry["rows"] <= max(view.count(), " IN (" in judges[name]) for entry in view.state()), name


def compare(con: sqlfront.Connection, judges: dict[str, str]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of queries, after comparing their views with them."""
    found = {}
    for name, judge in judges.items():
        rows = con.session.duck.execute(judge).fetchall()
        found[name] = Counter(rows)
        assert rows_of(con, f'FROM "{name}"') == found[name], name
        assert con.view(f'"{name}"').count() == len(rows), name
        if "QUALIFY" not in judge:
            assert con.view(f'"{name}"').top(4) == rows[:4], name
    return found


def is_ranked(con: sqlfront.Connection, view: str) -> bool:
    """Whether first rows are found along a tree with optional or absent children."""
    plan = con.explain(view).to_dict()
    return plan["strategy"] == "ranked enumeration" and " child" in plan["reason"] and "no child" not in plan["reason"]


@pytest.mark.parametrize("names", [list(QUERIES)[:7], list(QUERIES)[7:]], ids=["of_rows", "of_groups"])
def test_first_rows_are_right_after_every_epoch(con: sqlfront.Connection, names: list[str]) -> None:
    rows, judges = RandomRows(random.Random(3)), dict[str, str]()
    for _ in range(3):
        con.apply(rows.epoch())
    for name in names:
        query, order = QUERIES[name]
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query} ORDER BY {order} LIMIT 3')
        assert is_ranked(con, f'"{name}"'), name
        judges[name] = f"FROM ({query}) ORDER BY {order}, ALL LIMIT 3".replace(", ALL", f", {all_columns(con, query)}")
    follow(con, judges, rows, 14)


def all_columns(con: sqlfront.Connection, query: str) -> str:
    """The columns of a query, which settle ties."""
    return ", ".join(name for name, *_ in con.session.duck.execute(f"DESCRIBE {query}").fetchall())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_random_first_rows(con: sqlfront.Connection, seed: int) -> None:
    chance = random.Random(seed)
    rows, (query, judge) = RandomRows(chance), ordered_query(OuterQuery(chance))
    con.apply(rows.epoch())
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    follow(con, {"v": judge}, rows, 12)


def test_first_rows_of_each_group(con: sqlfront.Connection) -> None:
    query = "SELECT a.k, a.x, b.y FROM a LEFT JOIN b ON a.k = b.k"
    clause = "QUALIFY row_number() OVER (PARTITION BY a.k ORDER BY b.y DESC NULLS FIRST, a.x) = 1"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} {clause}")
    con.execute("CREATE MATERIALIZED VIEW over AS SELECT y, count(*) AS n FROM v GROUP BY y")
    assert is_ranked(con, "v")
    judge = f"{query} {clause}"
    judges = {"v": judge, "over": f"SELECT y, count(*) AS n FROM ({judge}) GROUP BY y"}
    follow(con, judges, RandomRows(random.Random(4)), 10)


def test_groups_of_rows_that_may_be_missing_are_no_children(con: sqlfront.Connection) -> None:
    clause = "QUALIFY row_number() OVER (PARTITION BY b.y ORDER BY x) = 1"
    query = f"SELECT a.x, b.y FROM a LEFT JOIN b ON a.k = b.k {clause}"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert "columns of PARTITION BY are of rows that may be missing" in con.explain("v").to_dict()["reason"]
    follow(con, {"v": query}, RandomRows(random.Random(6)), 6)


def test_missing_rows_count_as_null_in_composed_orders(con: sqlfront.Connection) -> None:
    """No column is NULL in its table."""
    con.execute("CREATE TABLE d (k INTEGER NOT NULL, y INTEGER NOT NULL); CREATE TABLE e (k INTEGER NOT NULL)")
    query = "SELECT e.k, greatest(e.k, d.y) AS g FROM e {} JOIN d ON e.k = d.k ORDER BY g LIMIT 3"
    assert con.explain(query.format("INNER")).to_dict()["strategy"] == "ranked enumeration"
    left = query.format("LEFT")
    key = "SELECT greatest(a.k, e.k) AS g FROM a JOIN e ON a.x = e.k LEFT JOIN d ON a.k = d.k ORDER BY g LIMIT 3"
    for text in (left, key):
        assert "NULL in a GREATEST is not in its place" in con.explain(text).to_dict()["reason"]


def test_missing_rows_have_copies_as_wide_as_others(con: sqlfront.Connection) -> None:
    con.execute("CREATE CHANGE TABLE d (k INTEGER, y INTEGER) WITH (retain = false)")
    query = "SELECT x, d.y FROM a LEFT JOIN d USING (k) LEFT JOIN b USING (k) ORDER BY d.y NULLS FIRST, x LIMIT 3"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO a VALUES (1, 7, 0), (2, 8, 0)")
    assert con.view("v").top(3) == [(7, None), (8, None)]
    many = 2**63 - 1
    for weight, first in ((many, [(8, None), (7, 2), (7, 2)]), (many, None), (-many, [(8, None), (7, 2), (7, 2)])):
        con.apply({"d": pa.table({"k": [1], "y": [2], "_weight": [weight]})})
        assert first is None or con.view("v").top(3) == first
    con.apply({"d": pa.table({"k": [1], "y": [2], "_weight": [-many]})})
    assert con.view("v").top(3) == [(7, None), (8, None)]


@pytest.mark.parametrize("kind", ["LEFT", "ANTI"])
def test_steps_of_first_rows_do_not_grow(con: sqlfront.Connection, kind: str) -> None:
    """A hub's first and last partner cost O(log N): its rows are not ranked again."""
    steps = {}
    for size in (1_000, 32_000):
        con.execute("DELETE FROM a; DELETE FROM b; DROP MATERIALIZED VIEW IF EXISTS v")
        con.execute(f"INSERT INTO a SELECT CASE WHEN i % 2 = 0 THEN -1 ELSE i END, i, 0 FROM range({size}) t(i)")
        con.execute(f"INSERT INTO b SELECT 3 * i, i, 0 FROM range({size // 3}) t(i)")
        shown = "a.x, b.y" if kind == "LEFT" else "a.x"
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {shown} FROM a {kind} JOIN b USING (k) ORDER BY ALL LIMIT 9")
        view, changes = con.view("v"), [((-1, 1, 0), 1), ((-1, 1, 0), -1), ((1, 4, 0), 1), ((1, 4, 0), -1)]
        before = view.cost()["steps"]
        for row, weight in changes:
            con.apply({"b": table_of("b", [(row, weight)])})
        steps[size] = view.cost()["steps"] - before
    assert steps[32_000] <= 1.5 * steps[1_000] <= 600, steps
