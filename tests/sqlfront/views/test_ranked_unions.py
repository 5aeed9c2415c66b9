"""ORDER BY ... LIMIT over UNION and UNION ALL: each branch keeps a ranked tree, and what they find is merged."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from tests.following import take
from tests.slices import parts

TABLES = """
    CREATE TABLE r (a INTEGER, b INTEGER, x INTEGER, s VARCHAR); CREATE TABLE t (b INTEGER, c INTEGER, y INTEGER);
    CREATE TABLE u (k BIGINT, z BIGINT, d DECIMAL(6, 2), s VARCHAR)"""
UNIONS = {  # name: (query, ORDER BY, LIMIT and OFFSET)
    "joins": (
        "SELECT r.a, t.c, r.x + t.y AS total FROM r JOIN t ON r.b = t.b UNION ALL SELECT k, NULL, z FROM u",
        "total DESC NULLS LAST",
        (5, 0),
    ),
    "distinct": ("SELECT r.a, t.c FROM r JOIN t ON r.b = t.b UNION SELECT k, z FROM u", "c DESC, a", (4, 1)),
    "distinct sums": (
        "SELECT r.a, r.x + t.y AS n FROM r JOIN t ON r.b = t.b UNION SELECT r.b, t.c + r.x FROM r JOIN t ON r.a = t.b",
        "n",
        (6, 0),
    ),
    "constants": (
        "SELECT 'r' AS side, s, a FROM r UNION ALL SELECT 'u', s, k FROM u UNION ALL SELECT NULL, 'q', 2 FROM t",
        "s DESC NULLS FIRST, side",
        (7, 2),
    ),
    "columns of one variable": (
        "SELECT r.b, t.b AS again, t.c FROM r JOIN t ON r.b = t.b UNION SELECT a, b, x FROM r",
        "again DESC, 3",
        (5, 0),
    ),
    "weighted": (
        "SELECT 2 * r.x - t.y AS w FROM r JOIN t ON r.b = t.b UNION ALL SELECT d FROM u UNION ALL SELECT x FROM r",
        "w",
        (8, 0),
    ),
    "distinct branch": ("SELECT DISTINCT a, s FROM r UNION ALL SELECT k, s FROM u", "s, a DESC", (6, 3)),
    "no order": ("SELECT a, s FROM r UNION SELECT k, s FROM u", "", (3, 0)),
    "one constant": ("SELECT 1 AS one FROM r UNION SELECT 2 FROM u", "one", (2, 0)),
    "no limit": ("SELECT a FROM r UNION ALL SELECT k FROM u", "a", (None, 2)),
}
DECIMAL = list(UNIONS).index("weighted")  # DuckDB computes its column, so rows do not come one after the other.


def change(choose):
    number, text = lambda: choose.choice(["NULL", "0", "1", "2", "3"]), lambda: choose.choice(["NULL", "'a'", "'b'"])
    return choose.choices(
        [
            f"INSERT INTO r VALUES ({number()}, {number()}, {number()}, {text()})",
            f"INSERT INTO t VALUES ({number()}, {number()}, {number()})",
            f"INSERT INTO u VALUES ({number()}, {number()}, {choose.choice(['1.25', 'NULL', '-2'])}, {text()})",
            f"DELETE FROM r WHERE a = {number()}",
            f"DELETE FROM t WHERE c = {number()}",
            f"DELETE FROM u WHERE s = {text()}",
            f"UPDATE r SET x = {number()} WHERE b = {number()}",
            "INSERT INTO r SELECT * FROM r",
            "BEGIN; DELETE FROM t; INSERT INTO u SELECT 1, 1, 1, 'a' FROM r; ROLLBACK",
        ],
        [24, 24, 16, 8, 6, 6, 8, 2, 3],
    )[0]


def in_order(con, query, order):
    """All rows of a query, sorted by DuckDB."""
    columns = [row[0] for row in con.execute(f"DESCRIBE {query}").fetchall()]
    items = ", ".join([order, *columns] if order else columns)
    return con.execute(f"SELECT * FROM ({query}) ORDER BY {items}").fetchall()


@pytest.mark.parametrize("seed", parts(4))
def test_first_rows_are_those_of_the_union(seed):
    """After every change: all at once, one after the other, in pages, and by the feed; then nothing is left."""
    con = sqlfront.connect()
    con.execute(TABLES)
    for number, (query, order, (rows, skipped)) in enumerate(UNIONS.values()):
        ordered = f" ORDER BY {order}" if order else ""
        limit = f" LIMIT {rows}" if rows is not None else ""
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}{ordered}{limit} OFFSET {skipped}")
        assert con.explain(f"v{number}").plan.strategy == "ranked enumeration of a union", query
    feeds = [con.view(f"v{number}").subscribe(timeout=0) for number in range(len(UNIONS))]
    followed = [Counter() for _ in UNIONS]
    changed, before, choose = Counter(), {}, random.Random(11 + seed)
    for _ in range(14 if seed else 10):
        con.execute(change(choose))
        for number, (query, order, (rows, skipped)) in enumerate(UNIONS.values()):
            view, whole = con.view(f"v{number}"), in_order(con, query, order)
            wanted = whole[skipped:][:rows]
            found = con.execute(f"FROM v{number}").fetchall()
            assert sorted(found, key=repr) == sorted(wanted, key=repr), query
            assert view.top(len(whole) + 1) == wanted, query
            assert view.top(2) == wanted[:2], query
            if number != DECIMAL:
                assert list(view.ordered()) == wanted, query
            assert view.count() == len(wanted)
            if order:
                columns = ", ".join(name for name, _ in view._entry.definition.columns)
                paged = con.execute(f"FROM v{number} ORDER BY {order}, {columns} LIMIT 2 OFFSET 1").fetchall()
                assert paged == wanted[1:3], query
            take(feeds[number], followed[number])
            assert +followed[number] == Counter(wanted), query
            changed[number] += wanted != before.get(number)
            before[number] = wanted
    assert min(changed.values()) > 1, changed
    for number in range(len(UNIONS)):
        assert con.execute(f"CHECK MATERIALIZED VIEW v{number}").fetchall() == []
    con.execute("DELETE FROM r; DELETE FROM t; DELETE FROM u")
    engine = con.session.database.engine
    assert all(not table.live for view in engine.views.values() for table in view.all_tables())
    for number in range(len(UNIONS)):
        con.execute(f"DROP MATERIALIZED VIEW v{number}")
    assert not engine.views and not engine.relations


@pytest.fixture
def con():
    connection = sqlfront.connect()
    connection.execute(TABLES)
    yield connection
    connection.close()


JOINS = "SELECT r.a, t.c, r.x + t.y AS n FROM r JOIN t ON r.b = t.b UNION ALL SELECT k, z, z FROM u"


def test_nothing_of_the_joins_is_stored(con):
    """Memory is that of the tables, and a first row takes as many steps, however many rows the join has."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {JOINS} ORDER BY n DESC LIMIT 10")
    steps = []
    for size in (100, 1000):
        con.execute("DELETE FROM r; DELETE FROM t; DELETE FROM u")
        con.execute(f"INSERT INTO r SELECT i, 0, i, '' FROM range({size}) x(i)")
        con.execute(f"INSERT INTO t SELECT 0, i, i FROM range({size}) x(i)")
        con.execute(f"INSERT INTO u SELECT i, i, 0, '' FROM range({size}) x(i)")
        assert sum(row["rows"] for row in con.view("v").state()) <= 8 * size
        walk = RankedWalk(con.session.database.engine.views["main.v#1"].ranked[0])
        walk.next(10)
        steps.append(walk.steps)
    assert steps[1] <= steps[0] + 20
    assert con.view("v").top(2) == [(999, 999, 1998), (998, 999, 1997)]


def test_a_union_of_what_has_no_ranked_tree_is_stored(con):
    """EXPLAIN says why; the rows are the same."""
    con.execute("INSERT INTO r VALUES (1, 1, 2, 'a'), (2, 1, 3, NULL); INSERT INTO u VALUES (1, 2, 3, 'a')")
    for query, why in [
        ("SELECT a, count(*) AS n FROM r GROUP BY a UNION ALL SELECT k, z FROM u", "a branch groups"),
        ("SELECT x AS n FROM r UNION ALL SELECT CAST(z AS DOUBLE) FROM u", "n is INTEGER in one branch and DOUBLE"),
        ("SELECT x AS n FROM r, u WHERE r.x < u.z UNION ALL SELECT z FROM u", "it joins by comparisons"),
    ]:
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query} ORDER BY n LIMIT 3")
        assert why in str(con.explain("v")), query
        assert sorted(con.view("v").top(3)) == sorted(con.execute(f"{query} ORDER BY n LIMIT 3").fetchall())


def test_equal_rows_of_branches_follow_each_other(con):
    """However many have been read when the next branch comes to one."""
    con.execute("INSERT INTO r SELECT i // 3, 0, 0, '' FROM range(300) x(i)")
    con.execute("INSERT INTO u SELECT i // 2, 0, 0, '' FROM range(200) x(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a + 0 AS a FROM r UNION SELECT k FROM u ORDER BY a LIMIT 1000")
    for size in (1, 2, 3, 7):
        walk, found = RankedWalk(con.session.database.engine.views["main.v#1"].ranked[0]), []
        while walk.next(size):
            found += walk.words("a")[0].tolist()
        assert found == list(range(100))


def test_explain_shows_the_branches(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {JOINS} ORDER BY n DESC LIMIT 10")
    shown = str(con.explain("v"))
    assert "Each of the 2 branches of the union keeps a ranked tree" in shown
    assert "r(b, a, x)  sorted by best, per b" in shown and "u(k, z)  sorted by best, per all rows" in shown
    assert "ranked enumeration of a union" in str(con.explain(f"{JOINS} ORDER BY n DESC LIMIT 10"))


def test_views_over_first_rows_of_a_union(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {JOINS} ORDER BY n DESC LIMIT 2")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS rows, sum(n) AS total FROM v")
    con.execute("INSERT INTO u VALUES (1, 5, 0, ''), (2, 7, 0, ''), (3, 6, 0, '')")
    assert con.execute("FROM w").fetchall() == [(2, 13)]
    con.execute("INSERT INTO r VALUES (1, 1, 10, ''); INSERT INTO t VALUES (1, 1, 1); DELETE FROM u WHERE z = 7")
    assert con.execute("FROM w").fetchall() == [(2, 17)]


def test_a_transaction_sees_its_own_first_rows(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {JOINS} ORDER BY n DESC LIMIT 1")
    con.execute("INSERT INTO u VALUES (1, 5, 0, '')")
    con.execute("BEGIN")
    con.execute("INSERT INTO r VALUES (1, 1, 10, ''); INSERT INTO t VALUES (1, 2, 3)")
    assert con.execute("FROM v").fetchall() == [(1, 2, 13)]
    con.execute("ROLLBACK")
    assert con.execute("FROM v").fetchall() == [(1, 5, 5)]


def test_a_union_view_is_there_again(tmp_path):
    path = str(tmp_path / "file.duckdb")
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {JOINS} ORDER BY n DESC LIMIT 2")
        con.execute("INSERT INTO u VALUES (1, 5, 0, ''), (2, 7, 0, ''), (3, 6, 0, '')")
    with sqlfront.connect(path) as con:
        assert con.view("v").top(2) == [(2, 7, 7), (3, 6, 6)]
        con.execute("DELETE FROM u WHERE z = 7; REFRESH MATERIALIZED VIEW v")
        assert con.view("v").top(2) == [(3, 6, 6), (1, 5, 5)]


def test_order_by_a_column_of_a_branch(con):
    """As in DuckDB, a column with its table's name is that of the branch that puts it out."""
    con.execute("INSERT INTO r VALUES (3, 1, 2, 'a'); INSERT INTO u VALUES (1, 2, 3, 'a'), (4, 0, 0, '')")
    for item in ("r.a", "u.k"):
        query = f"SELECT r.a FROM r UNION ALL SELECT u.k FROM u ORDER BY {item} DESC LIMIT 2"
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
        assert con.view("v").top(2) == con.execute(query).fetchall() == [(4,), (3,)]


def test_branches_of_types_that_duckdb_does_not_cast_are_refused(con):
    """Also over empty tables, where DuckDB has not noticed yet."""
    with pytest.raises(sqlfront.ProgrammingError, match=r"cast \(BIGINT -> DATE\)"):
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT k FROM u UNION ALL SELECT DATE '2026-01-01' FROM r")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT s FROM u UNION ALL SELECT DATE '2026-01-01' FROM r")


def test_sums_of_a_branch_that_differ_by_a_constant(con):
    con.execute("INSERT INTO r VALUES (1, 1, 5, 'a'), (2, 1, 7, 'a'); INSERT INTO t VALUES (1, 1, 1), (1, 1, 2)")
    query = "SELECT x + y AS n, x + y + 1 AS m, x + y + 0.5 AS h FROM r JOIN t ON r.b = t.b UNION SELECT k, z, d FROM u"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} ORDER BY m LIMIT 5")
    assert con.explain("v").plan.strategy == "ranked enumeration of a union"
    assert con.view("v").top(5) == con.execute(f"{query} ORDER BY m").fetchall()


def test_branches_over_unions(con):
    """These are stored and feed the branches that read them."""
    query = """
        SELECT n.a, t.c FROM (SELECT a, b FROM r UNION ALL SELECT k, k FROM u) n JOIN t ON n.b = t.b
        UNION ALL (SELECT a, b FROM r UNION SELECT k, z FROM u)"""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} ORDER BY 1 DESC, 2 LIMIT 4")
    assert con.explain("v").plan.strategy == "ranked enumeration of a union"
    con.execute("INSERT INTO r VALUES (1, 1, 5, 'a'), (2, 1, 7, 'a'); INSERT INTO t VALUES (1, 1, 1), (2, 1, 2)")
    con.execute("INSERT INTO u VALUES (2, 1, 0, 'a'), (2, 1, 0, 'b'), (3, 1, 0, 'b')")
    assert con.view("v").top(4) == con.execute(f"SELECT * FROM ({query}) ORDER BY 1 DESC, 2 LIMIT 4").fetchall()
    con.execute("DELETE FROM u; DELETE FROM t WHERE b = 2")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    con.execute("DROP MATERIALIZED VIEW v")
    assert not con.session.database.engine.views and not con.session.database.engine.relations


def test_a_sum_that_does_not_fit_its_type(con):
    """As in DuckDB it has no value: the reader is told."""
    query = "SELECT x + y AS n FROM r JOIN t ON r.b = t.b UNION ALL SELECT x FROM r"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} LIMIT 9")
    con.execute("INSERT INTO r VALUES (1, 1, 2147483647, 'a'); INSERT INTO t VALUES (1, 1, 0)")
    assert con.view("v").top(3) == [(2147483647,), (2147483647,)]
    con.execute("INSERT INTO t VALUES (1, 1, 1)")
    for read in (con.view("v").rows, lambda: con.view("v").top(9), lambda: list(con.view("v").ordered())):
        with pytest.raises(sqlfront.DataError, match="does not fit its type"):
            read()
    con.execute("DELETE FROM t WHERE y = 1")
    assert con.view("v").top(3) == [(2147483647,), (2147483647,)]


def test_first_rows_of_constants_over_a_join(con):
    """Nothing tells these rows apart."""
    joined = "r JOIN t ON r.b = t.b"
    queries = [
        f"SELECT 'j' AS s FROM {joined} UNION ALL SELECT s FROM u",
        f"SELECT 'j' AS s FROM {joined} UNION SELECT s FROM u",
        f"SELECT DISTINCT 1 FROM {joined}",
        f"SELECT 1 FROM {joined}",
    ]
    for number, query in enumerate(queries):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query} LIMIT 9")
    for change in [
        "INSERT INTO r VALUES (1, 1, 5, 'a'), (2, 2, 7, 'a'); INSERT INTO u VALUES (1, 1, 1, 'k')",
        "INSERT INTO t VALUES (1, 1, 1), (1, 1, 1), (2, 3, 4)",
        "DELETE FROM t WHERE b = 1; INSERT INTO r VALUES (1, 1, 5, 'a')",
    ]:
        con.execute(change)
        for number, query in enumerate(queries):
            assert sorted(con.execute(f"FROM v{number}").fetchall()) == sorted(con.execute(query).fetchall()), query
    con.execute("DELETE FROM r; DELETE FROM t; DELETE FROM u")
    assert all(not table.live for view in con.session.database.engine.views.values() for table in view.all_tables())


def test_a_dropped_view_lets_go_of_its_constants(con):
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT 'r' AS k, a FROM r UNION ALL SELECT 'u', k FROM u ORDER BY 1 LIMIT 3"
    )
    dictionaries = con.session.database.engine.dictionaries
    assert sum(dictionary.pinned for dictionary in dictionaries) == 2
    con.execute("DROP MATERIALIZED VIEW v")
    assert all(dictionary.live() == dictionary.pinned == 0 for dictionary in dictionaries)
