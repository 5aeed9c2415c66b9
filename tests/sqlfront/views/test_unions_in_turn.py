"""UNION ALL and OR of ranges whose branches are read one after the other: the union stores no row."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import sqlfront
from tests.following import is_query

TABLES = "CREATE TABLE r (id BIGINT, x BIGINT, s VARCHAR); CREATE TABLE t (id BIGINT, y BIGINT, s VARCHAR)"
QUERIES = {
    "an OR of ranges": "SELECT r.id, t.id AS other, r.s FROM r, t WHERE r.x < t.y - 2 OR r.x > t.y + 2",
    "computed columns": "SELECT r.id + t.id AS n, upper(r.s) AS s, 'a; x' AS a, 5 AS b FROM r, t "
                        "WHERE abs(r.x - t.y) > 2",
    "branches that share rows": "SELECT r.id, t.s FROM r JOIN t ON r.x < t.y UNION ALL "
                                "SELECT r.id, t.s FROM r JOIN t ON r.x > t.y - 3",
    "a branch without ranges": "SELECT r.id, r.s FROM r JOIN t ON r.x < t.y UNION ALL SELECT id, s FROM t UNION ALL "
                               "SELECT x, s FROM r WHERE id < 3",
    "one column twice": "SELECT r.id, r.id AS again, t.id AS o FROM r JOIN t ON r.x < t.y UNION ALL "
                        "SELECT r.id, t.id, t.id FROM r JOIN t ON r.x < t.y",
}  # fmt: skip
STORED = {
    "distinct rows": "SELECT r.id FROM r JOIN t ON r.x < t.y UNION SELECT id FROM t",
    "a computed branch": "SELECT r.id + t.id FROM r JOIN t ON r.x < t.y UNION ALL SELECT id FROM t",
    "two types": "SELECT r.id FROM r JOIN t ON r.x < t.y UNION ALL SELECT CAST(id AS INTEGER) FROM t",
    "groups": "SELECT id, count(*) FROM (SELECT r.id FROM r JOIN t ON r.x < t.y UNION ALL SELECT id FROM t) GROUP BY 1",
    "first rows": "SELECT r.id FROM r JOIN t ON r.x < t.y UNION ALL (SELECT id FROM t ORDER BY id LIMIT 1)",
    "a limit": "SELECT * FROM (SELECT r.id, t.s FROM r JOIN t ON r.x < t.y UNION ALL SELECT id, s FROM t) LIMIT 3",
    "equalities alone": "SELECT r.id FROM r JOIN t ON r.x = t.y UNION ALL SELECT id FROM t",
}
STORES_NONE = "so the union stores no row"


def change(con: Any, rng: Random) -> None:
    table, column = rng.choice((("r", "x"), ("t", "y")))
    kind = rng.random()
    if kind < 0.6:
        text = rng.choice(("NULL", "'a'", "'b'"))
        row = f"({rng.randint(0, 3)}, {rng.choice(('NULL', *range(9)))}, {text})"
        con.execute(f"INSERT INTO {table} VALUES {row}, {row}")
    elif kind < 0.8:
        con.execute(f"DELETE FROM {table} WHERE {column} = {rng.randint(0, 8)}")
    else:
        con.execute(f"UPDATE {table} SET {column} = {column} + {rng.choice((1, -2))} WHERE id = {rng.randint(0, 3)}")


def told(feed: Any, copied: dict[tuple[Any, ...], int]) -> bool:
    """Add the changes that a feed tells to copied rows; whether a row went and came in one change."""
    cancels = False
    while (found := feed.poll()) is not None:
        signs: dict[tuple[Any, ...], set[int]] = {}
        for row in found.to_pylist():
            *values, kind, version, _ = row.values()
            sign = 1 if kind in ("insert", "update_postimage") else -1
            signs.setdefault((*values, version), set()).add(sign)
            copied[(*values,)] = copied.get((*values,), 0) + sign
        cancels |= any(len(one) > 1 for one in signs.values())
    return cancels


@pytest.mark.parametrize("name", QUERIES)
def test_branches_are_read_in_place_of_their_union(name: str) -> None:
    query, rng = QUERIES[name], Random(name)
    with sqlfront.connect(":memory:") as con:
        con.execute(f"{TABLES}; INSERT INTO r VALUES (1, 1, 'a'), (2, 7, 'b')")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}; CREATE MATERIALIZED VIEW w AS SELECT * FROM v")
        con.execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM v")
        assert STORES_NONE in con.explain("v").to_dict()["reason"]
        feed, copied, states = con.view("v").subscribe(snapshot=True), dict[tuple[Any, ...], int](), set[str]()
        for number in range(30):
            change(con, rng)
            if number % 7 == 0:
                con.execute("BEGIN")
                change(con, rng)
                rows = [sorted(map(str, con.execute(text).fetchall())) for text in ("FROM v", query)]
                assert rows[0] == rows[1]
                con.execute("ROLLBACK")
            assert all(is_query(con, view) for view in "vwn")
            rows = con.execute("FROM v").fetchall()
            assert con.view("v").count() == len(rows) == con.execute("FROM n").fetchall()[0][0]
            for row in rows[:3]:
                assert con.view("v").contains(row)
                first = con.execute("SELECT * FROM v WHERE #1 IS NOT DISTINCT FROM ?", [row[0]]).fetchall()
                assert sorted(map(str, first)) == sorted(str(one) for one in rows if one[0] == row[0])
            if rows:
                assert not con.view("v").contains([99, *rows[0][1:]])
            assert not told(feed, copied)
            assert sorted(map(str, rows)) == sorted(str(row) for row, count in copied.items() for _ in range(count))
            states.add(str(sorted(map(str, rows))))
        assert len(states) > 12
        feed.close()
        con.execute("DELETE FROM r; DELETE FROM t; DROP MATERIALIZED VIEW n; DROP MATERIALIZED VIEW w")
        assert sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist()) == 0
        con.execute("DROP MATERIALIZED VIEW v")
        assert not con.session.database.engine.views and not con.session.database.engine.nodes


@pytest.mark.parametrize("name", STORED)
def test_other_unions_store_their_rows(name: str) -> None:
    with sqlfront.connect(":memory:") as con:
        con.execute(f"{TABLES}; INSERT INTO r VALUES (1, 1, 'a'), (2, 7, 'b'); INSERT INTO t VALUES (3, 4, 'c')")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {STORED[name]}")
        assert STORES_NONE not in con.explain("v").to_dict()["reason"]
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


@pytest.mark.parametrize("name", QUERIES)
def test_a_union_may_be_stored(name: str) -> None:
    with sqlfront.connect(":memory:") as con:
        con.execute(f"{TABLES}; INSERT INTO r VALUES (1, 1, 'a'), (2, 7, 'b'); INSERT INTO t VALUES (3, 4, 'c')")
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (strategy = 'materialize') AS {QUERIES[name]}")
        assert STORES_NONE not in con.explain("v").to_dict()["reason"]
        con.execute("INSERT INTO r SELECT i, i, 'c' FROM range(9) AS t(i); DELETE FROM t WHERE y < 2")
        assert con.view("v").count() > 2 and not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
        assert dict(con.execute("EXPLAIN MATERIALIZED VIEW v WITH (shards = 4)").fetchall())["shards"]


def test_a_union_in_turn_survives_reopening_renaming_and_refresh(tmp_path: Any) -> None:
    path, query = str(tmp_path / "file.db"), QUERIES["an OR of ranges"]
    with sqlfront.connect(path) as con:
        con.execute(f"{TABLES}; CREATE MATERIALIZED VIEW v AS {query}; CREATE MATERIALIZED VIEW w AS SELECT id FROM v")
        con.execute("INSERT INTO r SELECT i % 4, i % 9, 'a' FROM range(20) AS t(i); INSERT INTO t SELECT * FROM r")
        before = sorted(con.execute("FROM v").fetchall())
    for number in range(2):
        with sqlfront.connect(path) as con:
            assert sorted(con.execute("FROM v").fetchall()) == before and len(before) > 50
            con.execute("BEGIN; DELETE FROM r WHERE id < 2")
            assert con.view("v").count() < len(before)
            con.execute("ROLLBACK")
            con.execute("REFRESH MATERIALIZED VIEW v" if number else "ALTER TABLE t RENAME TO tt")
            con.execute("INSERT INTO r VALUES (9, 0, 'z'); DELETE FROM r WHERE id = 9")
            con.execute(f"INSERT INTO tt VALUES ({7 + number}, 40, 'q')")
            assert all(not con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() for view in "vw")
            before = sorted(con.execute("FROM v").fetchall())


def test_branches_of_views_of_many_rows_store_none_of_them() -> None:
    with sqlfront.connect(":memory:") as con:
        con.execute(f"{TABLES}; INSERT INTO r SELECT i, i, 'a' FROM range(1000) AS t(i); INSERT INTO t FROM r")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERIES['an OR of ranges']}")
        entries = sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist())
        assert con.view("v").count() == 995_006 and entries < 16_000
        steps = con.view("v").cost()["steps"]
        con.execute("INSERT INTO r VALUES (1, 500, 'b')")
        assert con.view("v").cost()["steps"] - steps < 12_000
        assert con.execute("SELECT count(*) FROM v WHERE s = 'b'").fetchall() == [(995,)]
