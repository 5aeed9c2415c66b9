"""Extrema of expressions over several tables: from the first row of each group, without computing the join."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import sqlfront
from sqlfront.binding.ties import without_ties
from sqlfront.maintenance.output.top_change import NotedGroups
from sqlfront.storage.stores.table import Table
from tests.following import take
from tests.rewriting import rewritten

TABLES = """
    CREATE TABLE r (a INTEGER, b INTEGER, x INTEGER, d DECIMAL(8, 2));
    CREATE TABLE s (b BIGINT, c INTEGER, y INTEGER, p UINTEGER NOT NULL)"""
OVER = "FROM r JOIN s ON r.b = s.b"
VIEWS = {
    "grouped": "SELECT a, max(r.x + s.y) AS best, count(*) AS n, min(r.x) AS m FROM r JOIN s ON r.b = s.b GROUP BY a",
    "alone": "SELECT max(r.x + s.y) AS most, min(r.x - s.y) AS least FROM r JOIN s ON r.b = s.b",
    "by the joined column": "SELECT r.b, min(r.d + 2 * s.y) AS m FROM r JOIN s ON r.b = s.b GROUP BY r.b",
    "by columns of both": "SELECT a, c, max(x + y) + 1 AS m FROM r JOIN s ON r.b = s.b GROUP BY a, c",
    "filtered": "SELECT a, max(x + y) FILTER (WHERE x > 0) AS m, sum(x) AS t FROM r JOIN s ON r.b = s.b GROUP BY a",
    "having": "SELECT a FROM r JOIN s ON r.b = s.b GROUP BY a HAVING max(x + y) > 3",
    "greatest": "SELECT a, max(greatest(x, y)) AS m FROM r JOIN s ON r.b = s.b GROUP BY a",
    "sorted": "SELECT a, max(x * y) AS m, min(x || 's' || y) AS t FROM r JOIN s ON r.b = s.b GROUP BY a",
    "itself": "SELECT q.a, min(p.x - q.x) AS m FROM r AS p JOIN r AS q ON p.b = q.b GROUP BY q.a",
    "inside": "SELECT m, count(*) FROM (SELECT a, max(x + y) AS m FROM r JOIN s ON r.b = s.b GROUP BY a) GROUP BY m",
    "argument": f"SELECT c, arg_max(x, x + y), count(*) AS n, arg_min(d, x - y) AS d, min(x) AS m {OVER} GROUP BY c",
    "arguments over both": f"SELECT a, arg_min(x - y, x + 2 * y), max_by(x + y, c) AS m {OVER} GROUP BY a",
    "arguments alone": f"SELECT max_by(c, x + y) AS c, min_by(x - y, d) AS d, arg_min(a, x + a + y) {OVER}",
    "arguments filtered": f"SELECT c, arg_min(y, x + y) FILTER (WHERE x > 0) AS m {OVER} GROUP BY c",
    "arguments sorted": f"SELECT a, arg_min(x || 's' || y, x * y), arg_max(greatest(x, y), c) AS m {OVER} GROUP BY a",
    "argument of the greatest": f"SELECT a, arg_min(y, greatest(x, y)), arg_max(x, p + x * 2) {OVER} GROUP BY a",
    "argument of itself": "SELECT q.a, arg_min(p.d, p.x - q.x) FROM r AS p JOIN r AS q ON p.b = q.b GROUP BY q.a",
    "truth": f"SELECT a, bool_and(x < y), bool_or(x < y) AS m {OVER} GROUP BY a",
}


def change(choose):
    def number():
        return choose.choice(["NULL", "0", "1", "2", "3"])

    return choose.choices(
        [
            f"INSERT INTO r VALUES ({number()}, {number()}, {number()}, {number()})",
            f"INSERT INTO s VALUES ({number()}, {number()}, {number()}, 1)",
            f"DELETE FROM r WHERE x = {number()}",
            f"DELETE FROM s WHERE y = {number()} AND c = {number()}",
            f"UPDATE r SET x = {number()} WHERE b = {number()}",
            "INSERT INTO r SELECT * FROM r",
            "DELETE FROM r WHERE x = (SELECT max(x) FROM r)",
            "BEGIN; DELETE FROM s; INSERT INTO r VALUES (1, 1, 9, 9); ROLLBACK",
        ],
        [24, 24, 6, 6, 8, 2, 6, 3],
    )[0]


def test_extrema_are_those_of_the_query():
    """After every change, and by the feed; when all rows are gone nothing is left."""
    con = sqlfront.connect()
    con.execute(TABLES)
    for number, query in enumerate(VIEWS.values()):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        assert con.execute(f"DESCRIBE v{number}").fetchall() == con.execute(f"DESCRIBE {query}").fetchall()
    feeds = [con.view(f"v{number}").subscribe(timeout=0) for number in range(len(VIEWS))]
    followed = [Counter() for _ in VIEWS]
    changed, before, choose = Counter(), {}, random.Random(8)
    con.execute("INSERT INTO r SELECT i % 3, i % 2, i % 4, i FROM range(5) x(i)")
    con.execute("INSERT INTO s SELECT i % 2, 0, i, 1 FROM range(3) x(i)")
    for _ in range(7):
        con.execute(change(choose))
        for number, query in enumerate(VIEWS.values()):
            found = Counter(con.execute(f"FROM v{number}").fetchall())
            assert found == Counter(con.execute(rewritten(query, without_ties)).fetchall()), query
            take(feeds[number], followed[number])
            assert +followed[number] == found, query
            changed[number] += found != before.get(number)
            before[number] = found
    assert min(changed.values()) > 1, changed
    con.execute("DELETE FROM r; DELETE FROM s")
    for number in range(len(VIEWS)):
        assert con.execute(f"CHECK MATERIALIZED VIEW v{number}").fetchall() == []
        con.execute(f"DROP MATERIALIZED VIEW v{number}")
    engine = con.session.database.engine
    assert not engine.views and not engine.relations


@pytest.fixture
def con():
    connection = sqlfront.connect()
    connection.execute(TABLES)
    yield connection
    connection.close()


def test_nothing_of_the_join_is_stored(con):
    """Of a million rows of the join the groups' first are kept."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped']}")
    con.execute("INSERT INTO r SELECT i % 4, 0, i, 0 FROM range(1000) x(i)")
    con.execute("INSERT INTO s SELECT 0, 0, i, 1 FROM range(1000) x(i)")
    assert sorted(con.execute("FROM v").fetchall())[0] == (0, 996 + 999, 250_000, 0)
    assert sum(row["rows"] for row in con.view("v").state()) < 10_000
    con.execute("DELETE FROM s WHERE y > 990; DELETE FROM r WHERE x = 996")
    assert sorted(con.execute("FROM v").fetchall())[0] == (0, 992 + 990, 249 * 991, 0)


def test_what_ties_in_an_argument_is_the_least_or_the_greatest(con):
    """As with arguments of one table; a row with a NULL in either does not count."""
    query = f"SELECT c, arg_min(d, x + y), arg_max(d, x + y), arg_min(x - y, x + y) AS m {OVER} GROUP BY c"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO s VALUES (1, 0, 5, 1), (1, 0, 4, 1)")
    con.execute("INSERT INTO r VALUES (1, 1, 1, 7), (1, 1, 2, 3), (1, 1, 0, NULL), (1, 1, NULL, 1), (1, 1, 1, 2)")
    assert con.execute("FROM v").fetchall() == [(0, 2, 3, -4)]
    assert [type(con.session.database.engine.views[f"main.v#1/{n}"].changes) for n in (1, 2, 3)] == [NotedGroups] * 3
    con.execute("DELETE FROM r WHERE x > 0")
    assert con.execute("FROM v").fetchall() == [(0, None, None, -4)]
    con.execute("DELETE FROM r WHERE x = 0")
    assert con.execute("FROM v").fetchall() == [(0, None, None, None)]
    con.execute("INSERT INTO r VALUES (1, 1, 9, 1)")
    assert con.execute("FROM v").fetchall() == [(0, 1, 1, 5)]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert "The values of d at the min of x + y are kept per group" in con.explain("v").to_dict()["reason"]


def test_an_argument_that_is_an_enum_joined_to_text_is_compared_as_an_enum(con):
    con.execute("CREATE TABLE m (x INTEGER, e ENUM ('z', 'a', 'k')); CREATE TABLE t (y INTEGER, e VARCHAR)")
    con.execute("INSERT INTO m VALUES (1, 'z'), (1, 'a'), (1, 'k'); INSERT INTO t VALUES (1, 'z'), (1, 'a'), (1, 'k')")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT arg_min(m.e, x + y), arg_max(m.e, x + y) AS k FROM m, t WHERE m.e = t.e"
    )
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT m.e, y FROM m JOIN t ON m.e = t.e ORDER BY m.e LIMIT 2")
    assert con.execute("FROM v").fetchall() == [("z", "k")]
    assert con.execute("FROM w").fetchall() == [("z", 1), ("a", 1)]
    assert "is an ENUM that joins text" in con.explain("w").to_dict()["orders"][0]["reason"]


def test_a_change_reads_the_first_rows_that_change(con, monkeypatch):
    """Not those of the other groups, however many there are; nor is anything read when a first row stays."""
    con.execute("INSERT INTO r SELECT i, i % 100, i, 0 FROM range(2000) x(i)")
    con.execute("INSERT INTO s SELECT i % 100, 0, i, 1 FROM range(200) x(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped']}")
    assert isinstance(con.session.database.engine.views["main.v#1/1"].changes, NotedGroups)
    read = []

    def changed_best(table):
        found = original(table)
        read.append(sum(map(len, found)))
        return found

    original = Table.changed_best
    monkeypatch.setattr(Table, "changed_best", changed_best)
    for change, rows in [
        ("INSERT INTO r VALUES (7, 7, 9, 0)", 2),
        ("INSERT INTO r VALUES (7, 7, 8, 0)", 0),
        ("DELETE FROM r WHERE a = 7 AND x = 9", 2),
        ("UPDATE r SET x = 5000 WHERE a = 8", 2),
        ("DELETE FROM r WHERE a = 9", 1),
        ("BEGIN; DELETE FROM r; ROLLBACK", None),
        ("INSERT INTO r VALUES (3, 3, NULL, 0)", 0),
        ("DELETE FROM s WHERE y = 105", 40),
    ]:
        con.execute(change)
        assert rows in (None, *read[-1:]), change
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == [], change


def test_a_group_of_nulls_has_null(con):
    con.execute("INSERT INTO r VALUES (1, 1, NULL, 0), (2, 1, 5, 0), (NULL, 1, 7, 0)")
    con.execute("INSERT INTO s VALUES (1, 0, 1, 1)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped']}")
    con.execute(f"CREATE MATERIALIZED VIEW w AS {VIEWS['alone']}")
    assert sorted(con.execute("FROM v").fetchall(), key=repr) == [(1, None, 1, None), (2, 6, 1, 5), (None, 8, 1, 7)]
    con.execute("DELETE FROM r WHERE x IS NOT NULL")
    assert con.execute("FROM v").fetchall() == [(1, None, 1, None)]
    assert con.execute("FROM w").fetchall() == [(None, None)]
    con.execute("DELETE FROM r")
    assert con.execute("FROM v").fetchall() == []
    assert con.execute("FROM w").fetchall() == [(None, None)]


def test_explain_tells_how(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped']}")
    reason = con.explain("v").to_dict()["reason"]
    assert "the block of first rows of each group over r, s is kept as a view of its own" in reason
    assert "its first rows by r.x + s.y DESC are read" in reason
    assert "The values of the max of r.x + s.y are kept per group" in reason


def test_a_first_row_that_changes_twice_in_an_epoch(con):
    """By the changes of both tables: what is told is from before the first one to after the last."""
    con.execute("INSERT INTO r SELECT i, i, i, 0 FROM range(4) x(i)")
    con.execute("INSERT INTO s SELECT i, 0, 10 * i, 1 FROM range(4) x(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped']}")
    feed = con.view("v").subscribe(snapshot=False, timeout=0)
    con.execute("BEGIN; UPDATE r SET x = 7 WHERE a > 0; INSERT INTO s VALUES (2, 0, 99, 1), (3, 0, 0, 1); COMMIT")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    told = [row for batch in feed for row in zip(*batch.select(["a", "best", "_change_type"]).to_pydict().values())]
    assert sorted(row for row in told if row[2] == "update_postimage") == [
        (1, 17, "update_postimage"),
        (2, 106, "update_postimage"),
        (3, 37, "update_postimage"),
    ]
    con.execute("DELETE FROM r; DELETE FROM s; INSERT INTO s VALUES (0, 0, 0, 1), (1, 0, 0, 1), (2, 0, 0, 1)")
    con.execute(
        "INSERT INTO r VALUES (0, 0, 90, 0), (0, 1, 1, 0), (9, 1, 1, 0), (5, 0, 90, 0), (5, 1, 1, 0), (2, 2, 7, 0)"
    )
    con.execute("INSERT INTO s VALUES (1, 0, 5, 1)")  # The first rows of two groups stay, that between them goes.
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    con.execute("BEGIN; UPDATE r SET x = 100 WHERE a = 2; DELETE FROM s WHERE b = 2; COMMIT")
    con.execute("INSERT INTO s VALUES (2, 0, 1, 1)")
    assert con.execute("SELECT best FROM v WHERE a = 2").fetchall() == [(101,)]


def test_an_extremum_beyond_its_type_is_refused(con):
    """As in DuckDB it has no value; nothing of the change stays."""
    con.execute("INSERT INTO r VALUES (1, 1, 2147483647, 0), (2, 2, 5, 0); INSERT INTO s VALUES (1, 0, 0, 1)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped']}")
    assert isinstance(con.session.database.engine.views["main.v#1/1"].changes, NotedGroups)
    with pytest.raises(sqlfront.DataError, match="does not fit its type"):
        con.execute("INSERT INTO s VALUES (2, 0, 0, 1), (1, 0, 1, 1)")
    assert con.execute("FROM v").fetchall() == [(1, 2147483647, 1, 2147483647)]
    assert con.execute("SELECT count(*) FROM s").fetchall() == [(1,)]
    con.execute("INSERT INTO s VALUES (2, 0, 0, 1), (1, 0, -1, 1)")
    con.execute("DELETE FROM s WHERE y = 0 AND b = 1")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
