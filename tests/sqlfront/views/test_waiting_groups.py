"""Groups that a ranked view keeps in order wait in their node until the view is read (maintenance/pulled.py)."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.output.node import TreeNode
from tests.slices import parts

VIEWS = {
    "top": "SELECT g, sum(v) AS s FROM t GROUP BY g ORDER BY s DESC NULLS LAST, g LIMIT 3",
    "low": "SELECT g, count(*) AS n, avg(f) AS m FROM t GROUP BY g ORDER BY n, m DESC NULLS FIRST, g LIMIT 2 OFFSET 1",
    "named": "SELECT name, sum(v) AS s FROM t JOIN u USING (k) GROUP BY name ORDER BY s DESC NULLS LAST, name LIMIT 3",
    "each": "SELECT k, g, sum(f) AS s FROM t GROUP BY k, g "
    "QUALIFY row_number() OVER (PARTITION BY k ORDER BY s DESC NULLS LAST, g) <= 2",
}
FLOATS = [0.5, 4096.0, 2.0**-20, -3.25, None]


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t (g VARCHAR, k BIGINT, v BIGINT, f DOUBLE)")
        connection.execute("CREATE TABLE u (k BIGINT PRIMARY KEY, name VARCHAR)")
        for name, query in VIEWS.items():
            connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        yield connection


def waiting(con: Any) -> int:
    """How many groups wait."""
    engine = con.session.database.engine
    nodes = [engine.nodes[name] for name in engine.pulled.nodes]
    return sum(node.view.delta.table.live for node in nodes if isinstance(node, TreeNode) and node.view.delta)


def row(rng: random.Random) -> tuple[Any, ...]:
    group = rng.choice(["a", "b", "c", "", None, "fresh" + str(rng.random())])
    value = rng.choice([None, 1, 5, -7, 2**62, -(2**62)])
    return group, rng.choice([None, 1, 2, 3]), value, rng.choice(FLOATS)


def change(con: Any, rng: random.Random) -> None:
    """One epoch, or several that are taken back."""
    kind = rng.random()
    if kind < 0.5:
        con.apply_row("t", row(rng))
    elif kind < 0.6:
        con.execute(f"INSERT OR REPLACE INTO u VALUES ({rng.randint(1, 3)}, '{rng.choice('xyz')}')")
    elif kind < 0.75:
        con.execute(f"DELETE FROM t WHERE k = {rng.randint(1, 3)} OR g LIKE 'fresh%'")
    elif kind < 0.9:
        con.execute(f"UPDATE t SET v = {rng.randint(0, 9)}, g = 'moved' WHERE k = {rng.randint(1, 3)}")
    else:
        rows = [row(rng) for _ in range(5)]
        con.apply({"t": pa.table(dict(zip("gkvf", map(list, zip(*rows)))))})


def check(con: Any, names: Any = VIEWS) -> None:
    for name in names:
        expected = con.session.duck.execute(VIEWS[name]).fetchall()
        found = con.execute(f"SELECT * FROM {name}").fetchall()
        assert found == expected if "LIMIT" in VIEWS[name] else sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.parametrize("seed", parts(2))
def test_random_changes_between_reads_of_some_views(con: Any, seed: int) -> None:
    """Changes, also those of transactions that read and are rolled back, wait until a view of them is read."""
    rng, most = random.Random(seed), 0
    for _ in range(25):
        inside = rng.random() < 0.3
        if inside:
            con.begin()
        for _ in range(rng.randint(1, 4)):
            change(con, rng)
            if inside and rng.random() < 0.5:
                check(con, rng.sample(list(VIEWS), 1))
        if inside:
            con.execute(rng.choice(["ROLLBACK", "COMMIT"]))
        most = max(most, waiting(con))
        check(con, rng.sample(list(VIEWS), rng.randint(0, 2)))
    check(con)
    assert most > 5 and waiting(con) == 0
    for name in VIEWS:
        assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []
    con.execute("DELETE FROM t")
    con.execute("DELETE FROM u")
    check(con)
    assert all(entry["entries"] == 0 for name in VIEWS for entry in con.view(name).state())


def test_a_row_goes_the_short_way_and_its_group_waits(con: Any) -> None:
    """The work of the order is that of the read: it grows with the groups that changed, not with the changes."""
    con.execute("CREATE CHANGE TABLE c (g BIGINT, v BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT g, sum(v) AS s FROM c GROUP BY g ORDER BY s DESC, g LIMIT 2")
    con.apply({"c": pa.table({"g": range(100), "v": range(100)})})
    assert con.view("w").top(1) == [(99, 99)] and waiting(con) == 0
    engine, view = con.session.database.engine, con.session.database.views["main", "w"].maintained
    before = engine.steps(view)
    assert all(engine.gates["main.c"].run((7, 5), 1) for _ in range(200))
    changed = engine.steps(view)
    assert waiting(con) == 1
    assert con.view("w").top(1) == [(7, 1007)] and waiting(con) == 0
    assert 0 < engine.steps(view) - changed < 100 < changed - before
    work = engine.last_work()[-1]
    assert work.epochs == 0 and [spent.rows_in for spent in work.spent() if spent.rows_in] == [2]


def test_subscribers_and_new_readers_see_what_waited(con: Any) -> None:
    """Who begins to listen, or to read the groups, begins with the present rows, and hears the changes after them."""
    con.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s FROM t GROUP BY g")
    con.execute("CREATE MATERIALIZED VIEW best AS SELECT * FROM sums ORDER BY s DESC NULLS LAST, g LIMIT 2")
    con.apply_row("t", ("a", 1, 1, None))
    con.apply_row("t", ("b", 1, 2, None))
    assert "main.sums#" in "".join(con.session.database.engine.pulled.nodes)
    con.execute("CREATE MATERIALIZED VIEW worst AS SELECT * FROM sums ORDER BY s, g LIMIT 1")
    assert con.execute("SELECT * FROM worst").fetchall() == [("a", 1)]
    con.apply_row("t", ("a", 1, 7, None))
    feed = con.view("best").subscribe(timeout=0)
    snapshot = [(row["g"], int(row["s"])) for table in feed for row in table.to_pylist()]
    assert sorted(snapshot) == [("a", 8), ("b", 2)]
    con.apply_row("t", ("c", 1, 9, None))
    changes = [(r["g"], int(r["s"]), r["_change_type"]) for table in feed for r in table.to_pylist()]
    assert sorted(changes) == [("b", 2, "delete"), ("c", 9, "insert")]
    feed.close()
    con.apply_row("t", ("b", 1, 100, None))
    con.execute("CREATE MATERIALIZED VIEW wide AS SELECT g, s + 1 AS more FROM sums")
    assert sorted(con.execute("SELECT * FROM wide").fetchall()) == [("a", 9), ("b", 103), ("c", 10)]
    con.apply_row("t", ("b", 1, 1, None))
    assert con.execute("SELECT * FROM best").fetchall() == [("b", 103), ("c", 9)]
    assert con.execute("SELECT * FROM worst JOIN wide USING (g)").fetchall() == [("a", 8, 9)]


def test_a_listener_of_the_groups_begins_when_nothing_waits(con: Any) -> None:
    """From then on their changes come with the epochs, and what has waited is not lost."""
    con.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS s FROM t GROUP BY g")
    con.execute("CREATE MATERIALIZED VIEW best AS SELECT * FROM sums ORDER BY s DESC NULLS LAST, g LIMIT 2")
    for number in range(2):
        con.apply_row("t", ("a", 1, 1, None))
        con.apply_row("t", ("b", 1, 2, None))
        pulled = con.session.database.engine.subscribers.pulled
        assert con.session.database.engine.pulled.waits([name for name in pulled if "sums" in name])
        with con.view("sums").subscribe(timeout=0):
            con.apply_row("t", ("a", 1, 5, None))
            assert con.execute("CHECK MATERIALIZED VIEW best").fetchall() == []
        assert con.execute("SELECT * FROM best").fetchall() == [("a", 6 * number + 6), ("b", 2 * number + 2)]
    con.execute("DELETE FROM t")
    assert con.execute("SELECT * FROM best").fetchall() == []


def test_no_more_groups_wait_than_there_is_memory_for(con: Any) -> None:
    con.execute("DROP MATERIALIZED VIEW named")
    con.execute("DROP MATERIALIZED VIEW each")
    con.execute("INSERT INTO t SELECT i, 1, NULL, NULL FROM range(65_534) r(i)")
    assert waiting(con) == 2 * 65_534
    for number in range(3):
        con.apply_row("t", (f"new {number}", 1, 1, None))
    assert waiting(con) == 2
    assert con.view("top").top(1) == [("new 0", 1)]


def test_texts_of_groups_that_wait_are_not_forgotten() -> None:
    """A group that went while it waited has a text that stands nowhere else, neither in a table nor in the order."""
    query = "SELECT sum(v) AS s FROM t GROUP BY g ORDER BY s DESC LIMIT 3"
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE t (g VARCHAR, v BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute("INSERT INTO t SELECT 'old' || i, i FROM range(3000) r(i)")
        assert con.execute("SELECT * FROM v").fetchall() == [(2999,), (2998,), (2997,)]
        con.execute("DELETE FROM t")
        for first in range(0, 12_000, 3000):
            con.execute(f"INSERT INTO t SELECT 'new' || (i + {first}), i FROM range(3000) r(i)")
            con.execute("DELETE FROM t WHERE v < 2998")
        assert con.execute("SELECT * FROM v").fetchall() == con.session.duck.execute(query).fetchall()
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        assert con.session.database.engine.dictionaries.varchar.live() < 8000
