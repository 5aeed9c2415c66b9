"""UNION and UNION ALL of queries: branches that feed one relation, at the top of a view and inside it."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from tests.following import take
from tests.slices import parts

TABLES = """
    CREATE TABLE r (a INTEGER, b INTEGER, s VARCHAR); CREATE TABLE t (a BIGINT, d DECIMAL(6, 2), s VARCHAR);
    CREATE TABLE u (k INTEGER, v DOUBLE, day DATE)"""
VIEWS = {
    "all": "SELECT a, s FROM r UNION ALL SELECT a, s FROM t",
    "distinct": "SELECT a, s FROM r UNION SELECT a, s FROM t",
    "one table": "SELECT a AS x, b FROM r WHERE a > 1 UNION ALL SELECT b, a FROM r WHERE b > 0",
    "mixed": "SELECT a FROM r UNION SELECT k FROM u UNION ALL SELECT d FROM t UNION ALL (SELECT b FROM r UNION FROM "
    "(SELECT a FROM t))",
    "nested": "(SELECT a FROM r UNION ALL SELECT a FROM t) UNION (SELECT k FROM u UNION ALL SELECT b FROM r)",
    "types": "SELECT NULL AS x, 'r' AS w, a FROM r UNION ALL SELECT day, NULL, v FROM u",
    "joins": "SELECT r.a, t.s FROM r JOIN t ON r.a = t.a UNION ALL SELECT r.b, r.s FROM r JOIN u ON r.b = u.k",
    "groups": "SELECT a, count(*) AS n FROM r GROUP BY a UNION ALL SELECT DISTINCT a, 0 FROM t",
    "ordered": "SELECT a, s FROM r UNION ALL SELECT a, s FROM t ORDER BY a DESC, s LIMIT 3 OFFSET 1",
    "ordered distinct": "SELECT a AS x FROM r UNION SELECT k FROM u ORDER BY k LIMIT 2",
    "grouped outside": """
        SELECT a, count(*) AS n, sum(w) AS w, max(s) AS top
        FROM (SELECT a, b AS w, s FROM r UNION ALL SELECT k, 1, NULL FROM u) AS x GROUP BY a""",
    "joined outside": "WITH x AS (SELECT a, s FROM r UNION SELECT a, s FROM t) SELECT * FROM x JOIN u ON u.k = x.a",
    "joined with itself": "WITH x (p, q) AS (SELECT a, b FROM r UNION ALL SELECT k, k FROM u) "
    "SELECT x.p, y.q FROM x JOIN x AS y ON x.q = y.p",
    "in": "SELECT a, b FROM r WHERE a IN (SELECT a FROM t UNION SELECT k FROM u)",
    "row in": "SELECT a, b FROM r WHERE (a, s) IN (SELECT a, s FROM t UNION ALL SELECT k, 'a' FROM u)",
    "exists": "SELECT EXISTS (SELECT a FROM t WHERE d > 2 UNION SELECT k FROM u) AS any_row",
    "intersect": "SELECT a FROM (SELECT a, 1 AS side FROM r UNION SELECT a, 2 FROM t) GROUP BY a HAVING sum(side) = 3",
    "except": "SELECT a FROM (SELECT a, 1 AS side FROM r UNION SELECT a, 2 FROM t) GROUP BY a HAVING sum(side) = 1",
    "no columns": "SELECT 1 AS one FROM r UNION ALL SELECT 2 FROM u",
    "a view": "SELECT x, n FROM (SELECT a AS x, count(*) AS n FROM v0 GROUP BY a) UNION ALL SELECT a, 9 FROM v1",
}


def random_change(choose):
    number, text = lambda: choose.choice(["NULL", "0", "1", "2", "3"]), lambda: choose.choice(["NULL", "'a'", "'b'"])
    return choose.choices(
        [
            f"INSERT INTO r VALUES ({number()}, {number()}, {text()})",
            f"INSERT INTO t VALUES ({number()}, {number()}, {text()})",
            f"INSERT INTO u VALUES ({number()}, {number()}, DATE '2026-01-0{choose.randint(1, 3)}')",
            f"DELETE FROM r WHERE a = {number()}",
            f"DELETE FROM t WHERE s = {text()}",
            f"DELETE FROM u WHERE k = {number()}",
            f"UPDATE r SET a = b, b = NULL WHERE b = {number()}",
            "INSERT INTO r SELECT * FROM r",
            "BEGIN; INSERT INTO r SELECT a, 1, s FROM t; DELETE FROM t; COMMIT",
            "BEGIN; INSERT INTO t SELECT a, 1, s FROM r; DELETE FROM r; ROLLBACK",
        ],
        [24, 24, 16, 8, 6, 6, 8, 2, 3, 3],
    )[0]


@pytest.mark.parametrize("seed", parts(4))
def test_unions_equal_their_queries(seed):
    """After every change, and when all rows are gone; then nothing is left of them."""
    con = sqlfront.connect()
    con.execute(TABLES)
    views = {f"v{number}": query for number, query in enumerate(VIEWS.values())}
    for view, query in views.items():
        con.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        described = con.execute(f"DESCRIBE {query}").fetchall()
        assert con.execute(f"DESCRIBE {view}").fetchall() == described
    feeds = {view: con.view(view).subscribe(timeout=0) for view in ("v0", "v1")}
    followed = {view: Counter() for view in feeds}
    choose = random.Random(5 + seed)
    changes, before = Counter(), {}
    for _ in range(30 if seed else 12):
        con.execute(random_change(choose))
        for view, query in views.items():
            found = sorted(con.execute(f"FROM {view}").fetchall(), key=repr)
            if "LIMIT" in query:
                assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
            else:
                assert found == sorted(con.execute(query).fetchall(), key=repr), query
            changes[view] += found != before.get(view)
            before[view] = found
        for view, feed in feeds.items():
            take(feed, followed[view])
            assert +followed[view] == Counter(before[view]), view
    assert min(changes[view] for view in views if view != "v15") > 0, f"a view hardly ever changed: {changes}"
    con.execute("DELETE FROM r; DELETE FROM t; DELETE FROM u")
    engine = con.session.database.engine
    assert all(table.entries() == 0 for view in engine.views.values() for table in view.tables() if table.keys)
    assert all(store.table.live == 0 for relation in engine.relations.values() for store in relation.stores.values())
    for view in reversed(views):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
        con.execute(f"DROP MATERIALIZED VIEW {view}")
    assert not engine.views and not engine.relations


@pytest.fixture
def con():
    connection = sqlfront.connect()
    connection.execute(TABLES)
    yield connection
    connection.close()


def kept(con, view):
    return {row["node"]: (row["kind"], row["rows"]) for row in con.view(view).state()}


def test_a_row_that_changes_sides_changes_nothing(con):
    """One branch gains in an epoch what the other loses."""
    con.execute("INSERT INTO r VALUES (1, 2, 'x'), (1, 2, 'x')")
    for name, all_ in (("bag", "ALL"), ("set", "")):
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT a, s FROM r UNION {all_} SELECT a, s FROM t")
    feeds = {name: con.view(name).subscribe(snapshot=False, timeout=0) for name in ("bag", "set")}

    def told(name):
        found = [batch.select(["a", "s", "_change_type"]).to_pylist() for batch in feeds[name]]
        return [tuple(row.values()) for rows in found for row in rows]

    con.execute("BEGIN; DELETE FROM r; INSERT INTO t SELECT 1, 2, 'x' FROM range(2); COMMIT")
    assert told("bag") == told("set") == []
    con.execute("INSERT INTO r VALUES (1, NULL, 'x')")
    assert told("bag") == [(1, "x", "insert")] and told("set") == []
    con.execute("BEGIN; DELETE FROM t; DELETE FROM r; INSERT INTO r VALUES (2, 2, NULL); COMMIT")
    assert sorted(told("bag"), key=repr) == [(1, "x", "delete")] * 3 + [(2, None, "insert")]
    assert sorted(told("set"), key=repr) == [(1, "x", "delete"), (2, None, "insert")]
    epoch = con.apply({"r": pytest.importorskip("pyarrow").table({"a": [5], "b": [5], "s": ["y"]})})
    assert {name: change.to_pylist() for name, change in epoch.changes.items()} == {
        name: [{"a": 5, "s": "y", "_weight": 1}] for name in ("bag", "set")
    }


def test_totals_are_there_over_nothing(con):
    query = "SELECT 'r' AS side, count(*) AS n FROM r UNION ALL SELECT 't', sum(a) FROM t"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.execute("FROM v ORDER BY side").fetchall() == [("r", 0), ("t", None)]
    con.execute("INSERT INTO r VALUES (1, 1, ''); INSERT INTO t VALUES (5, 1, '')")
    assert con.execute("FROM v ORDER BY side").fetchall() == [("r", 1), ("t", 5)]
    con.execute("DELETE FROM t; DELETE FROM r")
    assert con.execute("FROM v ORDER BY side").fetchall() == [("r", 0), ("t", None)]


def test_rows_of_a_branch_are_stored_once(con):
    """A branch of one table passes its rows on; one that joins keeps what changes are joined with."""
    con.execute(
        "INSERT INTO r SELECT i, i, 'x' FROM range(100) x(i); INSERT INTO t SELECT i, 0, '' FROM range(50) x(i)"
    )
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, b FROM r WHERE a < 90 UNION ALL SELECT a, -1 FROM t")
    con.execute("INSERT INTO r VALUES (7, 8, 'z')")
    assert kept(con, "v")["branches"] == ("leaf", 141)
    assert kept(con, "v")["r in block 1"] == kept(con, "v")["t in block 2"] == ("passed on", 0)
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a FROM r UNION ALL SELECT r.a FROM r JOIN t USING (a)")
    assert kept(con, "w")["r in block 1"] == ("passed on", 0) and kept(con, "w")["r in block 2"] == ("leaf", 100)
    con.execute("CREATE MATERIALIZED VIEW again AS SELECT a, b FROM r UNION SELECT a, 2 FROM r")
    assert con.view("again").count() == 200 and con.execute("CHECK MATERIALIZED VIEW again").fetchall() == []


def test_a_change_takes_as_many_steps_at_any_size(con):
    """Of a branch that passes rows on and of one that groups, under UNION."""
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, b FROM r UNION SELECT a, count(*) FROM t GROUP BY a")
    steps = []
    for size in (100, 10_000):
        con.execute(f"INSERT INTO r SELECT {size} + i, i, '' FROM range({size}) x(i)")
        con.execute(f"INSERT INTO t SELECT {size} + i, 0, '' FROM range({size}) x(i)")
        before = con.view("v").cost()["steps"]
        con.execute("INSERT INTO r VALUES (-1, 1, ''); INSERT INTO t VALUES (-2, 1, ''); DELETE FROM r WHERE a = -1")
        steps.append(con.view("v").cost()["steps"] - before)
    assert 0 < steps[1] <= 2 * steps[0] < 100


def test_a_table_that_keeps_no_rows_keeps_those_of_its_branch(con):
    """Else a delete of a row that is not there would take another branch's."""
    con.execute("CREATE CHANGE TABLE c (a INTEGER) WITH (retain = false); INSERT INTO r VALUES (1, 1, 'x')")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM c UNION ALL SELECT a FROM r")
    con.apply_row("c", (2,))
    with pytest.raises(sqlfront.IntegrityError, match="more often than it is there"):
        con.apply_row("c", (1,), -1)
    assert sorted(con.execute("FROM v").fetchall()) == [(1,), (2,)]


def test_unions_survive_reopening_renaming_refresh_and_rollback(tmp_path):
    path = str(tmp_path / "file.db")
    query = "SELECT a, s FROM r UNION ALL (SELECT a, s FROM t ORDER BY a LIMIT 1) UNION SELECT k, NULL FROM u"
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        con.execute(f"CREATE MATERIALIZED VIEW v (x, y) AS {query}")
        con.execute("CREATE MATERIALIZED VIEW w AS FROM v UNION ALL FROM v")
        con.execute("INSERT INTO r VALUES (1, 1, 'a'); INSERT INTO t VALUES (4, 1, 'b'), (3, 1, 'c')")
    with sqlfront.connect(path) as con:
        assert sorted(con.execute("SELECT x, y FROM v").fetchall()) == [(1, "a"), (3, "c")]
        con.execute("ALTER TABLE t RENAME TO tt; ALTER TABLE r RENAME COLUMN s TO label")
        con.execute("BEGIN; DELETE FROM tt WHERE a = 3; INSERT INTO u VALUES (1, 1, NULL)")
        assert sorted(con.execute("FROM w WHERE x > 1").fetchall()) == [(4, "b"), (4, "b")]
        con.execute("ROLLBACK; REFRESH MATERIALIZED VIEW v; INSERT INTO tt VALUES (2, 1, 'd')")
    with sqlfront.connect(path) as con:
        assert sorted(con.execute("FROM v WHERE x = 2").fetchall()) == [(2, "d")]
        query = "SELECT a AS x, label AS y FROM r UNION ALL FROM (SELECT a, s FROM tt)"
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        assert con.view("w").count() == 2 * con.view("v").count() == 8
        con.execute("DELETE FROM r")
        assert con.view("w").contains((2, "d")) and not con.view("w").contains((1, "a"))
        assert all(not con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() for view in "vw")
        with pytest.raises(sqlfront.Error, match="w"):
            con.execute("DROP MATERIALIZED VIEW v")
        con.execute("DROP MATERIALIZED VIEW v CASCADE")
        assert not con.session.database.engine.views and not con.session.database.engine.relations


def test_a_union_that_cannot_be_built_leaves_nothing_behind(con):
    con.execute("INSERT INTO r VALUES (1, 1, 'a')")
    with pytest.raises(sqlfront.Error, match="cannot be built"):
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t UNION ALL SELECT CAST(s AS BIGINT) FROM r")
    assert not con.session.database.engine.views and not con.session.database.engine.relations
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t UNION ALL SELECT a FROM r")
    with pytest.raises(sqlfront.Error, match="cannot take a row of t"):
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT k FROM u UNION ALL SELECT CAST(s AS INT) FROM t")
        con.execute("INSERT INTO t VALUES (2, 1, 'a')")
    assert con.execute("FROM v").fetchall() == [(1,)] and con.execute("FROM w").fetchall() == []


def test_explain_says_what_is_kept(con):
    query = "SELECT a FROM r UNION ALL SELECT sum(a) FROM t GROUP BY s UNION ALL SELECT a FROM r JOIN t USING (a)"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} ORDER BY a LIMIT 3")
    for text in (con.explain("v"), con.explain(query)):
        reason = text.to_dict()["reason"]
        assert "union 1 stores the rows of its 3 branches, O(their number)" in reason
        assert "rows over r passed on and not stored (q-hierarchical, O(1) per change)" in reason
        assert "rows over r, t kept as a view of its own (q-hierarchical, O(1) per change)" in reason
        assert "branches(a) of union 1" in str(text) and "r(a)  passed on, not stored" in str(text)
        assert [*text.to_dict()["blocks"]] == ["block 1", "block 2", "block 3"]
    assert con.explain("v").to_dict()["orders"][0]["strategy"] == "ranked enumeration"
    rows = con.execute("EXPLAIN MATERIALIZED VIEW v WITH (shards = 4)").fetchall()
    assert next(value for name, value in rows if name == "shards").startswith("4 of 4: a of branch 1")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT a FROM r UNION ALL SELECT a, b FROM r", r"number of result columns\n.*a, b FROM r\n +\^\^\^\^\n*\Z"),
        ("FROM r UNION ALL SELECT a FROM r", r"number of result columns"),
    ],
)
def test_what_is_refused(con, query, message):
    with pytest.raises(sqlfront.Error, match=message):
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert not con.session.database.engine.relations
