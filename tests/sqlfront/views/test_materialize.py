"""WITH (strategy = 'materialize'): every intermediate join is stored, and the view is its query all the same."""

from __future__ import annotations

import random

import pytest

import sqlfront
from tests.following import is_query

TRIANGLE = "SELECT r.a, s.b, t.c FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"
VIEWS = {
    "path": "SELECT r.a, r.b, s.c, t.a AS d FROM r, s, t WHERE r.b = s.b AND s.c = t.c",
    "projected": "SELECT DISTINCT r.a, t.a AS d FROM r, s, t WHERE r.b = s.b AND s.c = t.c",
    "grouped": "SELECT r.a, t.a AS d, SUM(s.c * r.b) AS x, COUNT(*) AS n FROM r, s, t "
    "WHERE r.b = s.b AND s.c = t.c GROUP BY r.a, t.a",
    "scalar": "SELECT COUNT(*) AS n, SUM(r.a * t.a) AS x FROM r, s, t WHERE r.b = s.b AND s.c = t.c",
    "bag": "SELECT r.a FROM r, s WHERE r.b = s.b",
    "star": "SELECT r.b, r.a, s.c, q.b AS e FROM r, s, r AS q, t WHERE r.b = s.b AND q.b = r.b AND t.c = r.b",
    "self-join": "SELECT x.a, z.b FROM r AS x, r AS y, r AS z WHERE x.b = y.a AND y.b = z.a",
    "product": "SELECT r.a, s.c FROM r, s",
    "least": "SELECT r.a, MIN(t.a) AS low, COUNT(DISTINCT s.c) AS n FROM r, s, t "
    "WHERE r.b = s.b AND s.c = t.c GROUP BY r.a",
    "triangle": TRIANGLE,
    "triangles": "SELECT COUNT(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a",
    "square": "SELECT w.a FROM r AS w, r AS x, r AS y, r AS z "
    "WHERE w.b = x.a AND x.b = y.a AND y.b = z.a AND z.b = w.a",
}


@pytest.fixture
def con():
    con = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE r (a BIGINT, b BIGINT)")
    con.execute("CREATE TABLE s (b BIGINT, c BIGINT)")
    con.execute("CREATE TABLE t (c BIGINT, a BIGINT)")
    yield con
    con.close()


def _random_row(choose: random.Random) -> str:
    return ", ".join(str(choose.choice([0, 1, 2, 3, "NULL"])) for _ in range(2))


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_follows_its_query(con, name):
    choose = random.Random(name)
    con.execute("INSERT INTO r VALUES (1, 2), (2, 2); INSERT INTO s VALUES (2, 3)")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (strategy = 'materialize') AS {VIEWS[name]}")
    feed = con.view("v").subscribe()
    for _ in range(8):
        table = choose.choice("rst")
        rows = ", ".join(f"({_random_row(choose)})" for _ in range(4))
        con.execute(f"INSERT INTO {table} VALUES {rows}")
        assert is_query(con)
        table = choose.choice("rst")
        con.execute(f"DELETE FROM {table} WHERE {table}.rowid % 3 = {choose.choice('012')}")
        assert is_query(con)
    rows = con.execute("SELECT * FROM v").fetchall()
    assert con.view("v").count() == len(rows)
    assert all(con.view("v").contains(row) for row in rows[:5])
    feed.close()
    con.execute("DELETE FROM r; DELETE FROM s; DELETE FROM t")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_explain_says_it(con):
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (strategy = 'materialize') AS {VIEWS['path']}")
    plan = con.explain("v").to_dict()
    assert plan["strategy"] == "every join materialized"
    assert plan["cost"] == {
        "preprocessing": "O(N + intermediate results)",
        "update": "O(1 + change of every intermediate result)",
        "delay": "O(1)",
        "space": "O(N + intermediate results)",
    }
    assert "strategy = 'auto'" in plan["suggestion"]
    joins = [(node["variables"], node["form"], node["rows"]) for node in plan["joins"]]
    assert joins == [(["a", "b", "c"], "stored", 0), (["b", "c", "t_a"], "stored", 0)]
    text = "\n".join(" ".join(map(str, row)) for row in con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall())
    assert "every join materialized" in text and "join of r, s  stored; index on c; 0 rows" in text
    assert "join of s, t" in con.explain("v").svg()
    kinds = con.execute("SHOW STATE FOR v").df()["kind"].tolist()
    assert (kinds.count("leaf"), kinds.count("view")) == (3, 4)


def test_a_change_is_one_look_up_for_each_stored_join(con):
    """A dimension's row finds the join of all others by its key: no path through the tables between."""
    con.execute(
        "INSERT INTO s SELECT i % 10, i FROM range(1000) AS x(i); INSERT INTO t SELECT i, i FROM range(1000) AS x(i)"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (strategy = 'materialize') AS {VIEWS['path']}")
    before = con.view("v").cost()["steps"]
    con.execute("INSERT INTO r VALUES (1, 3)")
    assert con.view("v").count() == 100
    # 100 rows are listed, written and counted once for the join with s and once for the result.
    assert con.view("v").cost()["steps"] - before < 2 * 100 * (1 + 4) + 50


def test_too_many_joins_are_refused(con):
    spokes = ", ".join(f"s AS s{i}" for i in range(9))
    con.execute(f"CREATE TABLE hub ({', '.join(f'x{i} BIGINT' for i in range(9))})")
    joined = " AND ".join(f"s{i}.b = hub.x{i}" for i in range(9))
    with pytest.raises(sqlfront.NotSupportedError, match=r"(?s)too many joins.*more than 256.*strategy = 'auto'"):
        con.execute(
            "CREATE MATERIALIZED VIEW v WITH (strategy = 'materialize') AS "
            f"SELECT s0.c, s8.c AS d FROM hub, {spokes} WHERE {joined}"
        )
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []


def test_auto_is_the_default(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['path']}")
    con.execute(f"CREATE MATERIALIZED VIEW w WITH (strategy = 'auto') AS {VIEWS['path']}")
    assert con.explain("v").to_dict()["strategy"] == con.explain("w").to_dict()["strategy"] == "dynamic Yannakakis"


def test_other_strategies_are_refused(con):
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)strategy cannot be 'heap'.*'auto', 'materialize'"):
        con.execute("CREATE MATERIALIZED VIEW v WITH (strategy = 'heap') AS SELECT a FROM r")
    assert con.execute("SHOW MATERIALIZED VIEWS").fetchall() == []


def test_a_cyclic_join_has_both_strategies(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {TRIANGLE}")
    con.execute(f"CREATE MATERIALIZED VIEW w WITH (strategy = 'materialize') AS {TRIANGLE}")
    automatic, stored = (con.explain(name).to_dict() for name in "vw")
    assert automatic["shape"] == stored["shape"] == "cyclic"
    assert automatic["strategy"].startswith("bags") and stored["strategy"] == "every join materialized"
    assert automatic["cost"]["update"] == "O(N)"


def test_refresh_takes_an_altered_strategy(con):
    con.execute("INSERT INTO r VALUES (1, 2); INSERT INTO s VALUES (2, 3); INSERT INTO t VALUES (3, 4)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['path']}")
    con.execute("ALTER MATERIALIZED VIEW v SET (strategy = 'materialize')")
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert con.explain("v").to_dict()["strategy"] == "every join materialized"
    assert con.execute("SELECT * FROM v").fetchall() == [(1, 2, 3, 4)]


def test_reopening_keeps_the_strategy(tmp_path):
    path = str(tmp_path / "kept.db")
    con = sqlfront.connect(path)
    con.execute("CREATE TABLE r (a BIGINT, b BIGINT); CREATE TABLE s (b BIGINT, c BIGINT)")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (strategy = 'materialize') AS {VIEWS['bag']}")
    con.close()
    con = sqlfront.connect(path)
    con.execute("INSERT INTO r VALUES (1, 2); INSERT INTO s VALUES (2, 3), (2, 4)")
    assert con.explain("v").to_dict()["strategy"] == "every join materialized"
    assert con.execute("SELECT * FROM v").fetchall() == [(1,), (1,)]
    con.close()
