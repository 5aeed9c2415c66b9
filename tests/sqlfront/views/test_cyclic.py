"""Cyclic joins end to end: triangles, rings, cliques and bow-ties over one table and several."""

from __future__ import annotations

import random

import pytest

import sqlfront
from sqlfront.maintenance.tree.symmetric_delta import symmetric_terms
from tests.following import is_query

EDGES = "CREATE TABLE e (src INTEGER, dst INTEGER, w INTEGER)"
RING = "FROM e a JOIN e b ON a.dst = b.src JOIN e c ON b.dst = c.src AND c.dst = a.src"

RING_OF_4 = "FROM e a, e b, e c, e d WHERE a.dst = b.src AND b.dst = c.src AND c.dst = d.src AND d.dst = a.src"


@pytest.fixture
def con():
    with sqlfront.connect(":memory:") as connection:
        connection.execute(EDGES)
        yield connection


def churn(con: sqlfront.Connection, seed: int, epochs: int = 12) -> None:
    """Epochs of random inserts and deletes of few vertices' edges, loops and copies among them."""
    choose = random.Random(seed)
    for _ in range(epochs):
        rows = [
            (choose.randrange(5), choose.randrange(5), choose.randrange(-2, 3)) for _ in range(choose.choice([1, 9]))
        ]
        con.execute(f"INSERT INTO e VALUES {', '.join(map(str, rows))}")
        if choose.random() < 0.6:
            con.execute(f"DELETE FROM e WHERE src = {choose.randrange(5)} AND dst < {choose.randrange(5)}")
        assert is_query(con)


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        (f"SELECT count(*) AS n {RING}", 3),
        (f"SELECT count(*) AS n, sum(a.w * b.w * c.w) AS s {RING}", 3),
        (f"SELECT count(*) AS n {RING} WHERE a.w > 0 AND b.w > 0 AND c.w > 0", 3),
        (f"SELECT count(*) AS n {RING_OF_4}", 5),
        # One atom is told apart: by what is summed, by a filter, by the output, by the direction of an edge.
        (f"SELECT count(*) AS n, sum(a.w) AS s {RING}", 0),
        (f"SELECT sum(a.w) AS x, sum(b.w) AS y, sum(c.w) AS z {RING}", 0),
        (f"SELECT count(*) AS n {RING} WHERE a.w > 0", 0),
        (f"SELECT a.src, count(*) AS n {RING} GROUP BY a.src", 0),
        ("SELECT count(*) AS n FROM e a, e b, e c WHERE a.dst = b.src AND b.dst = c.dst AND c.src = a.src", 0),
    ],
)  # fmt: skip
def test_a_self_join_that_looks_the_same_from_each_atom_keeps_one_store(con, query, terms):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    (view,) = con.session.database.engine.views.values()
    assert len(symmetric_terms(view.tree) or ()) == terms
    assert len({id(source.store) for source in view.sources.values()}) == (1 if terms else 2)
    assert ("looks the same from a, b" in str(con.explain("v"))) == bool(terms)
    churn(con, seed=terms)
    con.execute("DELETE FROM e")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT count(*) AS n, sum(a.w * b.w * c.w) AS s {RING}",
        f"SELECT count(*) AS n {RING_OF_4}",
        f"SELECT count(*) AS n {RING} AND a.src = a.w AND b.src = b.w AND c.src = c.w",
    ],
)
def test_single_changes_of_a_symmetric_view(query, loops):
    """A row joins itself if it is a loop, and else not: its change is met once then."""
    choose = random.Random(3)
    con = sqlfront.connect(":memory:")
    con.execute("CREATE CHANGE TABLE e (src BIGINT, dst BIGINT, w BIGINT) WITH (retain = true)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    bag: list[tuple[int, int, int]] = []
    for number in range(90):
        if bag and choose.random() < 0.4:
            con.apply_row("e", bag.pop(choose.randrange(len(bag))), -1)
        else:
            source, target = choose.randrange(4), choose.randrange(4)
            bag.append((source, source if loops and choose.random() < 0.3 else target, choose.randrange(4)))
            con.apply_row("e", bag[-1])
        if number % 6 == 5:
            assert is_query(con)
    con.close()


def test_the_change_feed_of_a_symmetric_view_is_exact(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n {RING}")
    feed = con.view("v").subscribe(timeout=0)
    churn(con, seed=3)
    counts = [row["n"] for table in feed for row in table.to_pylist() if row["_change_type"] != "update_preimage"]
    assert len(counts) > 4 and counts[-1] == con.execute("SELECT n FROM v").fetchone()[0]


def test_an_epoch_of_a_symmetric_view_is_undone_whole(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n {RING}")
    con.execute("INSERT INTO e VALUES (1, 2, 1), (2, 3, 1), (1, 1, 1)")
    before = con.execute("SELECT n FROM v").fetchall()
    con.execute("BEGIN")
    con.execute("INSERT INTO e VALUES (3, 1, 1), (2, 2, 5)")
    assert con.execute("SELECT n FROM v").fetchall() != before
    con.execute("ROLLBACK")
    assert con.execute("SELECT n FROM v").fetchall() == before
    con.execute("INSERT INTO e VALUES (3, 1, 1)")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_sums_of_a_symmetric_view_may_outgrow_a_word():
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE e (src INTEGER, dst INTEGER, w HUGEINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT sum(a.w * b.w * c.w) AS s {RING}")
        con.execute(f"INSERT INTO e VALUES (1, 2, {2**40}), (2, 3, {2**41}), (3, 1, {-(2**42)})")
        assert con.execute("SELECT s FROM v").fetchall() == [(-3 * 2**123,)]
        con.execute("DELETE FROM e WHERE src = 2")
        assert con.execute("SELECT s FROM v").fetchall() == [(None,)]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT a.src AS x, a.dst AS y, b.dst AS z {RING}",
        f"SELECT DISTINCT a.src AS x {RING}",
        f"SELECT a.src AS x, a.dst AS y, sum(c.w) AS s, max(b.w) AS m {RING} GROUP BY a.src, a.dst",
        f"SELECT a.src AS x, a.w AS w, count(*) AS n {RING} GROUP BY ALL",
        f"SELECT a.src AS x, a.dst AS y, a.w AS w, count(*) AS n, sum(b.w) AS s {RING} GROUP BY ALL",
        f"SELECT a.src AS x, d.w AS w {RING} JOIN e d ON d.src = c.src",
        # A four-cycle, a bow-tie, a clique, a five-cycle, two triangles apart.
        f"SELECT count(*) AS n, sum(a.w * c.w) AS s {RING_OF_4}",
        "SELECT a.src AS x, count(*) AS n FROM e a, e b, e c, e d, e f, e g WHERE a.dst = b.src AND b.dst = c.src "
        "AND c.dst = a.src AND d.src = a.src AND d.dst = f.src AND f.dst = g.src AND g.dst = d.src GROUP BY a.src",
        "SELECT count(*) AS n FROM e ab, e ac, e ad, e bc, e bd, e cd WHERE ab.src = ac.src AND ac.src = ad.src "
        "AND ab.dst = bc.src AND bc.src = bd.src AND ac.dst = bc.dst AND bc.dst = cd.src AND ad.dst = bd.dst "
        "AND bd.dst = cd.dst",
        "SELECT a.src AS x, count(*) AS n FROM e a, e b, e c, e d, e f WHERE a.dst = b.src AND b.dst = c.src "
        "AND c.dst = d.src AND d.dst = f.src AND f.dst = a.src GROUP BY a.src",
    ],
)  # fmt: skip
def test_cyclic_views_follow_their_table(con, query):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.explain("v").to_dict()["shape"] == "cyclic"
    churn(con, seed=len(query), epochs=8)
    con.execute("DELETE FROM e")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize("query", [
    f"SELECT a.src, a.dst, a.w, count(*) AS n {RING} GROUP BY ALL", f"SELECT DISTINCT a.src, a.dst, a.w {RING}",
])  # fmt: skip
def test_what_is_kept_by_edge_and_weight_is_no_more_than_the_edges(con, query):
    """All pairs of edges in and out of a hub are paths of two, of which no edge closes many."""
    con.execute("INSERT INTO e SELECT 0, i, 1 FROM range(300) x(i) UNION ALL SELECT i, 0, 2 FROM range(300) x(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO e VALUES (3, 4, 7), (3, 4, 8)")
    assert con.explain("v").to_dict()["cost"]["space"] == "O(N)"
    assert sum(row["entries"] for row in con.view("v").state()) < 20 * 602
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == [] and con.view("v").count() > 3


def test_a_loomis_whitney_join_binds_one_variable_from_three_sides():
    with sqlfront.connect(":memory:") as con:
        for name in "rstu":
            con.execute(f"CREATE TABLE {name} (x INTEGER, y INTEGER, z INTEGER)")
        con.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT r.x AS a, r.y AS b, r.z AS c, s.z AS d FROM r, s, t, u WHERE "
            "r.y = s.x AND r.z = s.y AND s.y = t.x AND s.z = t.y AND t.z = r.x "
            "AND t.y = u.x AND u.y = r.x AND u.z = r.y"
        )
        choose = random.Random(1)
        for _ in range(6):
            for name in "rstu":
                rows = [tuple(choose.randrange(3) for _ in range(3)) for _ in range(6)]
                con.execute(f"INSERT INTO {name} VALUES {', '.join(map(str, rows))}")
            con.execute(f"DELETE FROM {choose.choice('rstu')} WHERE x = {choose.randrange(3)}")
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        assert con.view("v").count() > 0
