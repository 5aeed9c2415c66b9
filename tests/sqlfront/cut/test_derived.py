"""Query blocks that group or are DISTINCT, IN (SELECT ...) and EXISTS: views of their own inside a view."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from tests.following import is_query
from tests.slices import parts

TABLES = "CREATE TABLE o (ok BIGINT, ck INTEGER, pr VARCHAR); CREATE TABLE l (ok BIGINT, q BIGINT, cd DATE, rd DATE)"
VIEWS = {
    "groups of groups": """
        SELECT c_count, count(*) AS n
        FROM (SELECT ck, count(ok) AS c_count FROM o GROUP BY ck) AS c GROUP BY c_count""",
    "grouped IN": """
        SELECT o.ck, o.ok, sum(q) AS s FROM o JOIN l USING (ok)
        WHERE o.ok IN (SELECT ok FROM l GROUP BY ok HAVING sum(q) > 8) GROUP BY o.ck, o.ok""",
    "grouped IN, not distinct": "SELECT ok, pr FROM o WHERE ck IN (SELECT count(*) FROM l GROUP BY ok)",
    "correlated EXISTS": """
        SELECT pr, count(*) AS n FROM o
        WHERE ck < 3 AND EXISTS (SELECT * FROM l WHERE l.ok = o.ok AND cd < rd) GROUP BY pr""",
    "correlated IN": "SELECT pr FROM o WHERE ck IN (SELECT q FROM l WHERE l.ok = o.ok)",
    "EXISTS in a subquery": """
        SELECT count(*) AS n FROM (SELECT * FROM o WHERE EXISTS (FROM l WHERE l.ok = o.ok AND l.q = o.ck)) AS x""",
    "CTE": """
        WITH x AS (SELECT DISTINCT ok, cd FROM l)
        SELECT o.pr, count(*) AS n FROM x JOIN o ON x.ok = o.ok GROUP BY o.pr""",
    "CTE read twice": """
        WITH x AS (SELECT ok, sum(q) AS s FROM l GROUP BY ok) SELECT a.ok, b.ok AS other FROM x a JOIN x b USING (s)""",
    "row IN": "SELECT ok, ck FROM o WHERE (ok, ck) IN (SELECT ok, q FROM l)",
    "three levels": """
        SELECT m, count(*) AS k FROM (
            SELECT n, sum(c_count) AS m FROM (
                SELECT ck, pr, count(*) AS c_count, min(ok) AS n FROM o GROUP BY ck, pr) GROUP BY n) GROUP BY m""",
    "scalar inside": "SELECT o.pr, t.n FROM o JOIN (SELECT count(*) AS n FROM l WHERE q = 1) AS t ON o.ck = t.n",
    "HAVING inside": "SELECT sum(n) AS t FROM (SELECT ok, count(*) AS n FROM l GROUP BY ok HAVING count(*) > 1)",
    "beside its own table": """
        SELECT l.ok, l.q
        FROM l JOIN (SELECT ok, max(q) AS best FROM l GROUP BY ok) AS m ON l.ok = m.ok AND l.q = m.best""",
}


def random_change(choose):
    day = f"DATE '2026-01-0{choose.randint(1, 4)}'"
    return choose.choices(
        [
            f"INSERT INTO o VALUES ({choose.randint(0, 5)}, {choose.randint(0, 3)}, '{choose.choice('abc')}')",
            f"INSERT INTO l VALUES ({choose.randint(0, 5)}, {choose.randint(0, 5)}, {day}, DATE '2026-01-03')",
            f"DELETE FROM o WHERE ok = {choose.randint(0, 5)}",
            f"DELETE FROM l WHERE q = {choose.randint(0, 5)}",
            f"UPDATE l SET ok = NULL WHERE cd = {day}",
            f"UPDATE o SET ck = ck + 1, pr = NULL WHERE ok = {choose.randint(0, 5)}",
        ],
        [40, 35, 8, 8, 4, 5],
    )[0]


@pytest.mark.parametrize("seed", parts(4))
def test_views_over_blocks_equal_their_queries(seed):
    """After every change, and when all rows are gone; then nothing is left of them."""
    con = sqlfront.connect()
    con.execute(TABLES)
    views = {f"v{number}": query for number, query in enumerate(VIEWS.values())}
    for view, query in views.items():
        con.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
    choose = random.Random(3 + seed)
    changes, before = Counter(), {}
    for _ in range(60 if seed else 27):
        con.execute(random_change(choose))
        for view, query in views.items():
            found = sorted(con.execute(f"FROM {view}").fetchall(), key=repr)
            assert found == sorted(con.execute(query).fetchall(), key=repr), query
            changes[view] += found != before.get(view)
            before[view] = found
    assert min(changes[view] for view in views) > 1, f"a view hardly ever changed: {changes}"
    con.execute("DELETE FROM o; DELETE FROM l")
    engine = con.session.database.engine
    assert all(table.entries() == 0 for view in engine.views.values() for table in view.tables() if table.keys)
    for view in views:
        assert is_query(con, view)
        con.execute(f"DROP MATERIALIZED VIEW {view}")
    assert not engine.views and not engine.relations


def test_blocks_survive_reopening_refresh_and_rollback(tmp_path):
    path = str(tmp_path / "file.db")
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped IN']}")
        con.execute("INSERT INTO o VALUES (1, 1, 'a'); INSERT INTO l VALUES (1, 5, NULL, NULL), (1, 4, NULL, NULL)")
    with sqlfront.connect(path) as con:
        assert con.execute("FROM v").fetchall() == [(1, 1, 9)]
        con.execute("BEGIN; DELETE FROM l WHERE q = 4")
        assert con.execute("FROM v").fetchall() == []
        con.execute("ROLLBACK")
        con.execute("REFRESH MATERIALIZED VIEW v")
        con.execute("INSERT INTO l VALUES (1, 1, NULL, NULL)")
        assert con.execute("FROM v").fetchall() == [(1, 1, 10)]


def test_a_view_that_cannot_be_built_leaves_no_block_behind():
    """The block is fine; the query around it divides by zero while it is built."""
    con = sqlfront.connect()
    con.execute(f"{TABLES}; INSERT INTO l VALUES (1, 0, NULL, NULL)")
    query = "SELECT x.ok, sum(x.s // 0 :: BIGINT + CAST('x' AS BIGINT)) AS b FROM"
    with pytest.raises(sqlfront.Error):
        con.execute(
            f"CREATE MATERIALIZED VIEW v AS {query} (SELECT ok, sum(q) AS s FROM l GROUP BY ok) x GROUP BY x.ok"
        )
    engine = con.session.database.engine
    assert not engine.views and not engine.relations
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT ok FROM l")


def test_explain_names_the_blocks():
    con = sqlfront.connect()
    con.execute(TABLES)
    reason = con.explain(VIEWS["grouped IN"]).to_dict()["reason"]
    assert "the block of groups over l is kept as a view of its own (q-hierarchical, O(1) per change)" in reason


def test_state_and_cost_count_the_blocks():
    con = sqlfront.connect()
    con.execute(TABLES)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['groups of groups']}")
    con.execute("INSERT INTO o SELECT i, i % 100, NULL FROM range(1000) t(i)")
    nodes = {row["node"]: row for row in con.view("v").state()}
    assert nodes["o in block 1"]["rows"] == 100 and nodes["c"]["rows"] == 1
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall()[0][5] == sum(row["bytes"] for row in nodes.values())
    assert con.view("v").cost()["steps"] >= 1000


def test_blocks_that_are_kept_alike_are_told_once() -> None:
    with sqlfront.connect() as con:
        con.execute(
            "CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (a INTEGER, b INTEGER); CREATE TABLE q (b INTEGER)"
        )
        two = "a IN (SELECT a FROM s WHERE b > 1) AND b IN (SELECT b FROM s WHERE a > 1)"
        reason = con.explain(f"SELECT a FROM r WHERE {two} AND a IN (SELECT b FROM q)").to_dict()["reason"]
        assert reason.count("of distinct rows over s") == reason.count("2 blocks of distinct rows over s") == 1
        assert reason.count("the block of distinct rows over q is kept") == 1


@pytest.mark.parametrize("condition", [
    "(r.a, r.b) = (s.a, s.b)", "(r.a, (r.b, r.c)) = (s.a, (s.b, s.c))", "((r.a, r.b), 1) = ((s.a, s.b), 1)",
    "(r.a, s.b) = (s.a, r.b)",
])  # fmt: skip
def test_rows_with_nulls_at_the_same_places_are_joined(condition: str) -> None:
    with sqlfront.connect() as con:
        for table in "rs":
            con.execute(f"CREATE TABLE {table} (a INTEGER, b INTEGER, c INTEGER)")
        query = f"SELECT r.c, s.c AS d FROM r JOIN s ON {condition}"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO r VALUES (1, NULL, 1), (NULL, NULL, 2), (1, 2, 3), (NULL, 2, NULL), (2, 2, 5)")
        con.execute("INSERT INTO s FROM r WHERE c IS DISTINCT FROM 5")
        joined = sorted(con.session.duck.execute(query).fetchall(), key=repr)
        assert sorted(con.execute("FROM v").fetchall(), key=repr) == joined and len(joined) == 4


def test_rows_are_equal_as_duckdb_has_it() -> None:
    """NULL equals NULL within a row, so values of one table that meet there do; those that join have a value."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (a INTEGER NOT NULL, b INTEGER, c INTEGER)")
        query = "SELECT r.b, s.b AS sb FROM r JOIN s ON (r.a, s.b, (s.b, 1)) = (s.a, s.c, (s.c, 1))"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO r VALUES (1, 7), (NULL, 8)")
        con.execute("INSERT INTO s VALUES (1, NULL, NULL), (1, 2, 2), (1, 2, NULL)")
        assert sorted(con.execute("FROM v").fetchall(), key=repr) == [(7, 2), (7, None)]
        assert is_query(con)
