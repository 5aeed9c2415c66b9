"""The number of distinct tuples that several nodes hold together: exact after every change, in O(1), without a walk."""

from __future__ import annotations

import random

import pytest

import sqlfront
from sqlfront.maintenance.output.output import Reader

VIEWS = {
    "q-tree": "SELECT DISTINCT r.a, r.b, s.c FROM r, s WHERE r.b = s.b",
    "filtered": "SELECT DISTINCT r.a, r.b, s.c FROM r, s, t WHERE r.b = s.b AND t.c = r.b",
    "grouped": "SELECT r.a, r.b, s.c, COUNT(*) AS n, SUM(t.d) AS x FROM r, s, t "
    "WHERE r.b = s.b AND t.c = r.b GROUP BY r.a, r.b, s.c",
    "product": "SELECT DISTINCT r.a, s.c FROM r, s",
    "path": "SELECT DISTINCT r.a, r.b, s.c, t.d FROM r, s, t WHERE r.b = s.b AND s.c = t.c",
    "self-join": "SELECT DISTINCT x.a, x.b, y.a AS a2 FROM r AS x, r AS y WHERE x.b = y.b",
    "three of one": "SELECT DISTINCT x.a, x.b, y.a AS a2, z.a AS a3 FROM r AS x, r AS y, r AS z "
    "WHERE x.b = y.b AND z.b = x.b",
}


@pytest.fixture
def con():
    con = sqlfront.connect(":memory:")
    con.execute("CREATE TABLE r (a BIGINT, b BIGINT); CREATE TABLE s (b BIGINT, c BIGINT)")
    con.execute("CREATE TABLE t (c BIGINT, d DOUBLE)")
    yield con
    con.close()


def _tables(con, name):
    """The tables of the number that is kept, if one is."""
    tuple_count = con.view(name)._entry.maintained.tuple_count
    return [] if tuple_count is None else tuple_count.tables()


@pytest.mark.parametrize("name", VIEWS)
def test_the_number_follows_the_tables(con, name):
    choose = random.Random(name)

    def rows() -> str:
        values = [", ".join(str(choose.choice([0, 1, 2, 3, "NULL"])) for _ in range(2)) for _ in range(3)]
        return ", ".join(f"({row})" for row in values)

    con.execute(f"INSERT INTO r VALUES {rows()}; INSERT INTO s VALUES {rows()}; INSERT INTO t VALUES {rows()}")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")
    seen = set()
    for _ in range(40):
        table = choose.choice("rst")
        if choose.random() < 0.6:
            con.execute(f"INSERT INTO {table} VALUES {rows()}")
        else:
            con.execute(f"DELETE FROM {table} WHERE rowid % 4 = {choose.randrange(4)}")
        expected = con.execute(f"SELECT count(*) FROM ({VIEWS[name]})").fetchone()[0]
        assert con.view("v").count() == expected
        assert con.execute("SELECT count(*) AS n FROM v").fetchone()[0] == expected
        seen.add(expected)
    assert len(seen) > 5
    con.execute("DELETE FROM r; DELETE FROM s; DELETE FROM t")
    assert con.view("v").count() == 0
    assert [table.live for table in _tables(con, "v")] == [0] * len(_tables(con, "v"))


def test_a_change_costs_a_constant_in_a_q_tree(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['filtered']}")
    costs = []
    for size in (1_000, 32_000):
        for table in "rst":
            con.execute(f"INSERT INTO {table} SELECT i % 100, i FROM range({size}) AS x(i)")
        con.execute("UPDATE r SET a = b, b = a")
        before = con.view("v").cost()["steps"]
        for key in range(20):
            con.apply_row("t", (key, 0.5))
        costs.append(con.view("v").cost()["steps"] - before)
        assert con.view("v").count() == 100 * (size // 100) ** 2
        con.execute("DELETE FROM r; DELETE FROM s; DELETE FROM t")
    assert max(costs) <= 1.1 * min(costs)


def test_a_change_pays_for_the_number_in_a_q_tree_only(con):
    """Elsewhere it is counted when it is asked for, once after a change, and counting is a read."""
    con.execute("CREATE TABLE u (d BIGINT, e BIGINT)")
    steps = {}
    for size in (20, 80):
        for table in "rsu":
            con.execute(f"INSERT INTO {table} SELECT i, j FROM range({size}) AS x(i), range({size}) AS y(j)")
        con.execute(
            "CREATE OR REPLACE MATERIALIZED VIEW v AS "
            "SELECT DISTINCT r.a, r.b, s.c, u.e FROM r, s, u WHERE r.b = s.b AND s.c = u.d"
        )
        view = con.view("v")
        before = view.cost()["steps"]
        for table in "rsu":
            con.apply_row(table, (3, size + 5))
            con.apply_row(table, (size + 6, 3))
            con.apply_row(table, (size + 6, 3), -1)
            con.apply_row(table, (3, size + 5), -1)
        steps[size] = view.cost()["steps"] - before
        read = view.cost()["read_steps"]
        assert view.count() == size**4
        counted = view.cost()["read_steps"] - read
        assert counted >= size and view.count() == size**4
        assert view.cost()["read_steps"] - read == counted + 1
        assert view.cost()["steps"] - before == steps[size]
        assert con.explain("v").to_dict()["tasks"]["count"]["here"].endswith("O(N)")
        con.execute("DELETE FROM r; DELETE FROM s; DELETE FROM u")
    assert steps[80] <= 4.4 * steps[20] and steps[80] <= 26 * 80


@pytest.mark.parametrize("name", ["q-tree", "path"])
def test_the_number_in_transactions_after_undo_and_after_rebuilds(con, name):
    counts = []

    def count(cursor=con):
        expected = cursor.execute(f"SELECT count(*) FROM ({VIEWS[name]})").fetchone()[0]
        assert cursor.view("v").count() == expected == cursor.execute("SELECT count(*) FROM v").fetchone()[0]
        counts.append(expected)

    con.execute("INSERT INTO r VALUES (1, 1), (2, 1); INSERT INTO s VALUES (1, 5); INSERT INTO t VALUES (5, 1)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")
    count()
    con.execute("BEGIN; INSERT INTO r VALUES (3, 1), (4, 1)")
    count()
    con.execute("DELETE FROM s")
    count()
    con.execute("ROLLBACK")
    count()
    con.execute("BEGIN; INSERT INTO r VALUES (7, 1); COMMIT")
    count()
    con.execute("REFRESH MATERIALIZED VIEW v")
    count()
    con.execute("UPDATE r SET b = 2 WHERE a = 7")
    count()
    with pytest.raises(sqlfront.Error):
        con.execute("INSERT INTO s VALUES (2, 5), (2, 'x')")
    count()
    assert counts == [2, 4, 0, 2, 3, 3, 2, 2]


def test_a_number_that_is_not_kept_may_be_beyond_64_bits_too(con):
    for i in range(5):
        con.execute(f"CREATE TABLE c{i} (a BIGINT, b BIGINT); INSERT INTO c{i} SELECT 0, i FROM range(0) AS x(i)")
        con.execute(f"INSERT INTO c{i} SELECT 0, j FROM range(8000) AS x(j)")
    tables = ", ".join(f"c{i}" for i in range(5))
    joined = " AND ".join(f"c{i}.a = c0.a" for i in range(1, 5))
    columns = ", ".join(f"c{i}.b AS b{i}" for i in range(5))
    con.execute("INSERT INTO s VALUES (9, 9); INSERT INTO r VALUES (0, 9)")
    con.execute(
        f"CREATE MATERIALIZED VIEW v AS SELECT DISTINCT c0.a, {columns}, r.b AS k, s.c AS l "
        f"FROM {tables}, r, s WHERE {joined} AND r.a = c0.a AND r.b = s.b"
    )
    assert con.view("v")._entry.maintained.tuple_count is None
    assert con.view("v").count() == 8000**5


def test_a_number_beyond_64_bits_is_kept(con):
    """The count widens, as sums do; what does not fit SQL's BIGINT is told when it is read."""
    con.execute("CREATE TABLE big (k BIGINT, a BIGINT)")
    names = [f"x{i}" for i in range(7)]
    columns = ", ".join(f"{name}.a AS {name}" for name in names)
    joined = " AND ".join(f"{name}.k = x0.k" for name in names[1:])
    tables = ", ".join(f"big AS {name}" for name in names)
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT DISTINCT x0.k, {columns} FROM {tables} WHERE {joined}")
    con.execute("INSERT INTO big SELECT 1, i FROM range(1000) AS r(i)")
    assert con.view("v").count() == 1000**7
    con.execute("DELETE FROM big WHERE a > 1")
    assert con.view("v").count() == 2**7


def test_a_failing_epoch_leaves_the_number(con):
    con.execute("INSERT INTO r VALUES (1, 1), (2, 1); INSERT INTO s VALUES (1, 5)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['q-tree']}")
    with pytest.raises(sqlfront.Error):
        con.execute("BEGIN; INSERT INTO s VALUES (1, 6), (1, 7); SELECT no_such_column FROM v")
    con.execute("ROLLBACK")
    assert con.view("v").count() == 2
    con.execute("BEGIN; INSERT INTO s VALUES (1, 6), (1, 7)")
    assert con.execute("SELECT count(*) FROM v").fetchone() == (6,)
    con.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM v").fetchone() == (2,)


@pytest.mark.parametrize(
    ("query", "column", "plain"),
    [
        ("SELECT count(*) FROM v", "count_star()", True),
        ("select COUNT ( * ) AS n from main.v AS w;", "n", True),
        ('SELECT count(*) "How many" FROM "v" w', "How many", True),
        ("SELECT count(*) FROM v WHERE a > 0", "count_star()", False),
        ("SELECT count(*) FROM v LIMIT 1", "count_star()", False),
        ("SELECT count(*) + 0 AS n FROM v", "n", False),
        ("SELECT count(*) FROM v GROUP BY a HAVING a = 1", "count_star()", False),
    ],
)
def test_counting_in_sql(con, monkeypatch, query, column, plain):
    con.execute("INSERT INTO r VALUES (1, 1), (1, 1); INSERT INTO s VALUES (1, 5)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['q-tree']}")
    scans = []

    def counting(self):
        scans.append(self)
        return iterate(self)

    iterate = Reader.__iter__
    monkeypatch.setattr(Reader, "__iter__", counting)
    assert con.execute(query).fetchall() == [(1,)]
    assert con.description[0][0] == column
    assert bool(scans) != plain
