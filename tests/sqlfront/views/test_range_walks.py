"""Joins by comparisons that are enumerated, not stored: ranges of sorted lists, walked without dead ends."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from math import log2

import pytest

import sqlfront
from sqlfront.maintenance.tree.walk import Walk
from tests.following import is_query
from tests.slices import parts
from tests.sqlfront.views.test_inequality import change, check_tables, comparable, make_views, replayed, steps_of

ENUMERATED = [
    "SELECT r.x, r.y, s.z, s.y AS w FROM r, s WHERE r.x < s.z",
    "SELECT r.k, r.t, s.t AS u, s.y FROM r, s WHERE r.k = s.k AND r.t >= s.t",
    "SELECT r.x, s.z, count(*) AS n, sum(r.y + s.y) AS t FROM r, s WHERE r.x <= s.z GROUP BY r.x, s.z",
    "SELECT DISTINCT r.x, r.k, s.z FROM r, s WHERE r.x > s.z AND r.k = s.k",
    "SELECT a.x, a.y, b.x AS z, b.y AS w FROM r a, r b WHERE a.x < b.x",
    "SELECT r.x, s.y, s.z FROM r, s WHERE r.x BETWEEN s.y AND s.z",
    "SELECT r.x, s.z, t.u, sum(r.y) AS y FROM r, s, t WHERE r.x < s.z AND s.z <= t.u GROUP BY r.x, s.z, t.u",
    "SELECT DISTINCT r.x, s.z, t.u FROM r, s, t WHERE r.x < s.z AND r.x <= t.u",
    "SELECT r.f, s.f AS g, s.d FROM r, s WHERE r.f < s.f",
    "SELECT s.y, s.z, t.u, count(*) AS n FROM r, s, t WHERE r.y = s.y AND r.x < s.z AND s.y < t.u GROUP BY ALL",
    "SELECT r.x, r.y, s.z, t.u FROM r, s, t WHERE r.x < s.z AND s.k = t.v",
    "SELECT r.x, r.k, s.z, t.u FROM r, s, t WHERE r.k = t.v AND s.y = t.y AND r.x >= s.z",
    "SELECT r.x, s.z, t.u FROM r, s, t WHERE r.x < s.z AND t.u = 1",
    "SELECT DISTINCT r.y, r.x FROM r, s WHERE r.x < s.z + 1 AND r.k = s.k",
]  # fmt: skip


@pytest.mark.parametrize("part", parts(2))
def test_enumerated_views_follow_their_tables(part: int) -> None:
    """Both sides are put out: all of the view, a look-up by either side, its first rows, and whether it has a row."""
    choose, own = random.Random(8 + part), [ENUMERATED[0], *ENUMERATED[1 + part :: 2]]
    with sqlfront.connect(":memory:") as con:
        views = make_views(con, choose, own)
        for view, query in zip(views, own, strict=True):
            found = con.explain(view).to_dict()
            assert "sums over ranges" in found["strategy"] and found["cost"]["space"] == "O(N)", query
        con.execute("CREATE MATERIALIZED VIEW above AS SELECT z, count(*) AS n, sum(w) AS t FROM v0 GROUP BY z")
        feeds = [con.view(view).subscribe(timeout=0) for view in (*views, "above")]
        for _ in range(3):
            change(con, choose)
            for view in (*views, "above"):
                assert is_query(con, view), view
        check_tables(con)
        for view, feed in zip((*views, "above"), feeds, strict=True):
            rows = con.execute(f"SELECT * FROM {view}").fetchall()
            assert replayed(feed) == Counter(map(comparable, rows)), view
            assert con.view(view).count() == len(rows) == con.execute(f"SELECT count(*) FROM {view}").fetchone()[0]
            assert len(con.execute(f"SELECT * FROM {view} LIMIT 3").fetchall()) == min(3, len(rows))
        for view, query in zip(views, own, strict=True):
            names = [column[0] for column in con.execute(f"SELECT * FROM {view}").description]
            for name in names[:3]:
                value = con.execute(f"SELECT min({name}) FROM {view}").fetchone()[0]
                found, expected = (
                    Counter(
                        map(comparable, con.execute(f"SELECT * FROM {source} WHERE {name} = $1", [value]).fetchall())
                    )
                    for source in (view, f"({query})")
                )
                assert found == expected, (query, name)
        con.execute("INSERT INTO r (x, y) VALUES (3, 77)")
        con.execute("INSERT INTO s (z, y) VALUES (3, 88), (4, 88)")
        assert con.view("v0").contains((3, 77, 4, 88)) and not con.view("v0").contains((3, 77, 3, 88))
        for table in "rst":
            con.execute(f"DELETE FROM {table}")
        assert all(is_query(con, view) for view in views)
        assert all(table.live == 0 for view in con.session.database.engine.views.values() for table in view.tables())


def test_pairs_are_enumerated_not_stored() -> None:
    """Half of a million pairs: the nodes have as many rows as the tables, the first rows come after few steps, and a
    change of either side takes a logarithm, as nobody is told of its rows."""
    rows = 1000
    with sqlfront.connect(":memory:") as con:
        for table in "rs":
            con.execute(f"CREATE CHANGE TABLE {table} (k BIGINT, x BIGINT, v BIGINT) WITH (retain = true)")
            con.execute(f"INSERT INTO {table} SELECT 0, (i * 7919) % {rows}, i FROM range({rows}) AS t(i)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT r.x, r.v, s.x AS y, s.v AS w FROM r, s WHERE r.x < s.x")
        assert con.view("v").count() == rows * (rows - 1) // 2
        (view,) = con.session.database.engine.views.values()
        assert sum(table.live for table in view.tables()) == 1
        assert len(con.execute("SELECT * FROM v").fetchall()) == rows * (rows - 1) // 2
        walk = Walk(view.tree, None, ["x"])
        steps = []
        while walk.next(100):
            steps.append(walk.steps)
        assert len(steps) == rows * (rows - 1) // 200
        assert max(later - before for before, later in pairwise([0, *steps])) < 100 * 2 * log2(rows)
        assert max(steps_of(con, table, (0, rows // 2, 5)) for table in "rs") < 20 * log2(rows)
        before = con.view("v").cost()["read_steps"]
        assert con.execute("SELECT x FROM v WHERE y = 1").fetchall() == [(0,)]
        assert con.execute(f"SELECT y FROM v WHERE x = {rows - 2}").fetchall() == [(rows - 1,)]
        assert con.view("v").cost()["read_steps"] - before < 20 * log2(rows)


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("key", ["", "r.k = s.k AND "])
def test_a_walk_meets_no_row_without_partners(operator: str, key: str) -> None:
    """All but some of the first or the last rows of a list have no partner: neither all rows nor those of a value of
    either side, nor whether a row is there, read them."""
    rows, few = 20_000, 3
    with sqlfront.connect(":memory:") as con:
        for table in "rs":
            con.execute(f"CREATE CHANGE TABLE {table} (k BIGINT, x BIGINT, v BIGINT) WITH (retain = true)")
        con.execute(f"INSERT INTO r SELECT 1, (i * 7919) % {rows}, i FROM range({rows}) AS t(i)")
        query = f"SELECT r.x, r.v, s.x AS y, s.v AS w FROM r, s WHERE {key}r.x {operator} s.x"
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        edge = few if operator[0] == "<" else rows - 1 - few
        for step in range(-rows, 1, rows // 100) if operator[0] == "<" else range(rows - 1, 2 * rows, rows // 100):
            con.apply_row("s", (1, step, 0))
        con.apply_row("s", (1, edge, 1))
        if key:
            con.apply_row("s", (2, rows // 2, 2))
        (view,) = con.session.database.engine.views.values()
        wanted = con.execute(query).fetchall()
        assert len(wanted) in (few, few + 1, few + 2)
        walk = Walk(view.tree, None, ["x"])
        assert walk.next(100) == len(wanted) and walk.next(100) == 0
        assert walk.steps < 10 * log2(rows)
        assert Counter(con.execute("FROM v").fetchall()) == Counter(wanted)
        inside = max(wanted) if operator[0] == ">" else min(wanted)
        before = con.view("v").cost()
        for condition in (f"x = {inside[0]}", f"y = {inside[2]}", f"x = {rows // 2}", f"y = {-rows}"):
            found = con.execute(f"SELECT * FROM v WHERE {condition}").fetchall()
            assert Counter(found) == Counter(con.execute(f"SELECT * FROM ({query}) WHERE {condition}").fetchall())
        assert con.view("v").contains(inside) and not con.view("v").contains((rows // 2, 0, edge, 1))
        after = con.view("v").cost()
        assert after["read_steps"] - before["read_steps"] < 60 * log2(rows)
