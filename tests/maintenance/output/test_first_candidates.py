"""First rows of views that are sorted when they are read: the same as DuckDB's, though most rows are not decoded."""

from __future__ import annotations

import random

import pytest

import sqlfront
from sqlfront.maintenance.output import first_candidates

ORDERS = [
    "s DESC, name DESC LIMIT 4",
    "s NULLS FIRST, g DESC LIMIT 3 OFFSET 5",
    "name, s LIMIT 4",
    "g % 2, s LIMIT 5",
    "s, g LIMIT 6 OFFSET 2",
    "g DESC, s DESC NULLS LAST LIMIT 7",
    "s LIMIT 0",
]


@pytest.mark.parametrize("alike", [0, 16])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.k AS g, name, sum(x * y) AS s FROM t JOIN u USING (j) JOIN n ON n.k = t.k GROUP BY t.k, name",
        "SELECT t.k AS g, name, x AS s FROM t JOIN u USING (j) JOIN n ON n.k = t.k WHERE t.k < u.y + 3",
    ],
)
def test_the_first_rows_are_duckdbs(monkeypatch: pytest.MonkeyPatch, query: str, order: str, alike: int) -> None:
    rng, con, decoded = random.Random(3), sqlfront.connect(), list[int]()
    con.execute("CREATE TABLE t (k INTEGER, j INTEGER, x INTEGER); CREATE TABLE u (j INTEGER, y INTEGER)")
    con.execute("CREATE TABLE n (k INTEGER, name VARCHAR)")
    con.execute("INSERT INTO n SELECT i, 'name ' || i // 2 FROM range(12) r(i)")
    raw_batch = first_candidates.raw_batch

    def counted(view, source, rows, repeat=None, **options):
        if not options:
            decoded.append(rows)
        return raw_batch(view, source, rows, repeat, **options)

    monkeypatch.setattr(first_candidates, "raw_batch", counted)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} ORDER BY {order}")
    monkeypatch.setattr(first_candidates, "MANY_ALIKE", alike)
    monkeypatch.setattr(first_candidates, "BATCH", 7)
    for _ in range(12):
        con.execute(
            "INSERT INTO t VALUES (?, ?, ?)", [rng.randrange(12), rng.randrange(4), rng.choice([None, 1, 2, 5])]
        )
        con.execute("INSERT INTO u VALUES (?, ?)", [rng.randrange(4), rng.randrange(-3, 4)])
        every = ", ".join(str(place) for place in range(1, 4))
        judge = f"{query} ORDER BY {order.replace(' LIMIT', f', {every} LIMIT')}"
        expected = con.execute(judge).fetchall()
        assert sorted(map(repr, con.execute("FROM v").fetchall())) == sorted(map(repr, expected))
        assert _arrow_rows(con, "FROM v") == _arrow_rows(con, judge)
    rows = con.execute(f"SELECT count(*) FROM ({query})").fetchall()[0][0]
    assert "x AS s" not in query or order != ORDERS[0] or decoded[-1] < rows


def test_an_aggregate_without_groups_has_its_row_over_no_rows() -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (s VARCHAR, y INTEGER)")
    query = "SELECT count(y) AS n, max(s) AS last FROM t ORDER BY n LIMIT 2"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for change in ("SELECT 1", "INSERT INTO t VALUES ('a', 2), ('b', NULL)", "DELETE FROM t"):
        con.execute(change)
        assert con.execute("FROM v").fetchall() == con.execute(query).fetchall()
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_rows_that_having_leaves_out_are_not_among_the_first() -> None:
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (k INTEGER, j INTEGER, x INTEGER); CREATE TABLE u (j INTEGER, y INTEGER)")
    query = (
        "SELECT k, sum(x * y) AS s FROM t JOIN u USING (j) GROUP BY k HAVING sum(x * y) % 3 = 0 "
        "ORDER BY s DESC, k LIMIT 3"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO u SELECT i, i + 1 FROM range(4) r(i)")
    con.execute("INSERT INTO t SELECT i % 20, i % 4, i FROM range(100) r(i)")
    assert con.execute("FROM v").fetchall() == con.execute(query).fetchall()
    assert _arrow_rows(con, "FROM v") == _arrow_rows(con, query)


@pytest.mark.parametrize("name", ["name DESC", "name"])
def test_equal_numbers_before_texts(name: str) -> None:
    con = sqlfront.connect()
    con.execute(
        "CREATE TABLE c (c INTEGER PRIMARY KEY); CREATE TABLE o (c INTEGER, k INTEGER PRIMARY KEY, name VARCHAR)"
    )
    con.execute("CREATE TABLE l (k INTEGER, x INTEGER, n INTEGER, PRIMARY KEY (k, n))")
    query = (
        "SELECT o.k, name, sum(x) AS s FROM c JOIN o USING (c) JOIN l USING (k) GROUP BY o.k, name "
        f"ORDER BY s DESC, {name} LIMIT 5"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert "sorted when read" in str(con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall())
    con.execute("INSERT INTO c VALUES (0); INSERT INTO o SELECT 0, i, 'name ' || i * 7 % 10 FROM range(10) r(i)")
    con.execute("INSERT INTO l SELECT i, i // 4, 1 FROM range(10) r(i)")
    assert _arrow_rows(con, "FROM v") == _arrow_rows(con, query)


@pytest.mark.parametrize("order", ["s DESC, name LIMIT 4", "s DESC, name DESC LIMIT 3 OFFSET 2", "s, name LIMIT 5"])
def test_rows_that_tie_at_the_limit_are_all_candidates(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """The text behind the number decides among them, wherever they are in the view."""
    con = sqlfront.connect()
    con.execute("CREATE TABLE t (k INTEGER, x INTEGER); CREATE TABLE n (k INTEGER, name VARCHAR)")
    query = f"SELECT x AS s, name FROM t JOIN n ON n.k < t.k ORDER BY {order}"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert "sorted when read" in str(con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall())
    monkeypatch.setattr(first_candidates, "MANY_ALIKE", 0)
    con.execute("INSERT INTO n SELECT i, 'name ' || i * 7 % 20 FROM range(20) r(i)")
    con.execute("INSERT INTO t VALUES (25, 1), (24, 1), (23, 0), (22, 2), (1, 2)")
    for _ in range(4):
        assert _arrow_rows(con, "FROM v") == _arrow_rows(con, query)
        con.execute("DELETE FROM t WHERE x = (SELECT max(x) FROM t)")


def _arrow_rows(con: sqlfront.Connection, query: str) -> list[dict[str, object]]:
    return list(con.execute(query).to_arrow_table().to_pylist())
