"""Views bind by name: after renamings, swaps and replacements each view reads the table of its query's name."""

from __future__ import annotations

import random
import threading

import duckdb
import pytest

import sqlfront

VIEWS = {
    "v": "SELECT a, sum(b)::BIGINT AS s FROM t GROUP BY a",
    "w": "SELECT sum(s)::BIGINT AS s FROM v",
    "j": "SELECT u.n, t.b FROM t JOIN u USING (a)",
}


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a, 10 AS b; CREATE TABLE u AS SELECT 1 AS a, 'one' AS n")
        for name, query in VIEWS.items():
            connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        yield connection


def answers(con):
    """The rows of the views, each of which is checked, also by the query that the file has."""
    found = {}
    with con.session.database.cursor() as plain:
        for view in VIEWS:
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
            found[view] = sorted(con.execute(f"FROM {view}").fetchall())
            assert sorted(plain.execute(f"FROM {view}").fetchall()) == found[view]
    return found


def tables_of(con, view):
    return con.session.database.views["main", view].tables


SWAPS = {
    "dbt": "CREATE TABLE t_new AS SELECT 2 AS a, 20 AS b; ALTER TABLE t RENAME TO t_old; "
    "ALTER TABLE t_new RENAME TO t; DROP TABLE t_old",
    "dbt in a transaction": "BEGIN; CREATE TABLE t_new AS SELECT 2 AS a, 20 AS b; ALTER TABLE t RENAME TO t_old; "
    "ALTER TABLE main.t_new RENAME TO T; DROP TABLE t_old; COMMIT",
    "several names": "ALTER TABLE t RENAME TO t1; ALTER TABLE t1 RENAME TO t2; CREATE TABLE t1 (x INTEGER); "
    'CREATE TABLE n AS SELECT 2 AS a, 20 AS b; ALTER TABLE IF EXISTS n RENAME TO "t"',
    "replaced": "CREATE OR REPLACE TABLE t AS SELECT 2 AS a, 20 AS b",
    "replaced by its own rows": "CREATE OR REPLACE TABLE t AS SELECT a + 1 AS a, b * 2 AS b FROM t",
    "replaced by its views": "CREATE OR REPLACE TABLE t AS SELECT a + 1 AS a, s * 2 AS b FROM v",
    "more columns, in another order": "CREATE OR REPLACE TABLE t AS SELECT 'x' AS c, 20 AS b, 2 AS a",
    "created anew": "ALTER TABLE t RENAME TO t_old; CREATE TABLE t (a INTEGER, b INTEGER); "
    "INSERT INTO t VALUES (2, 20)",
    "filled in the transaction": "BEGIN; CREATE OR REPLACE TABLE t (a INTEGER, b INTEGER); "
    "INSERT INTO t VALUES (2, 19); UPDATE t SET b = 20; INSERT INTO u VALUES (2, 'new'); COMMIT; "
    "DELETE FROM u WHERE a = 2",
}


@pytest.mark.parametrize("swap", SWAPS)
def test_a_swap_ends_with_the_view_over_the_table_of_its_name(con, swap):
    con.execute(SWAPS[swap])
    assert answers(con) == {"v": [(2, 20)], "w": [(20,)], "j": []}
    assert {table.lower() for table in tables_of(con, "j")} <= {"main.t", 'main."t"', "main.u"}
    con.execute("INSERT INTO t BY NAME SELECT 1 AS a, 5 AS b; DELETE FROM t WHERE a = 2")
    assert answers(con) == {"v": [(1, 5)], "w": [(5,)], "j": [("one", 5)]}


def test_a_renamed_table_is_followed_until_another_has_the_name(con):
    con.execute("ALTER TABLE t RENAME TO t_old; INSERT INTO t_old VALUES (1, 1)")
    assert answers(con) == {"v": [(1, 11)], "w": [(11,)], "j": [("one", 1), ("one", 10)]}
    with pytest.raises(sqlfront.IntegrityError, match=r"CASCADE is refused(.|\n)*would be dropped: v, w, j"):
        con.execute("DROP TABLE t_old CASCADE")
    con.execute("CREATE SCHEMA s; CREATE TABLE s.t (a INTEGER); CREATE TEMP TABLE t (a INTEGER)")
    assert tables_of(con, "v") == {"main.t_old"}
    con.execute("DROP TABLE temp.t; ALTER TABLE t_old RENAME TO t; CREATE TABLE t_old (x INTEGER)")
    assert tables_of(con, "v") == {"main.t"} and answers(con)["w"] == [(11,)]


def test_a_table_that_is_followed_is_not_dropped_in_the_transaction(con):
    con.execute("BEGIN; ALTER TABLE t RENAME TO t_old")
    with pytest.raises(sqlfront.NotSupportedError, match="cannot be dropped in a transaction"):
        con.execute("DROP TABLE t_old")
    con.execute("CREATE TABLE t AS SELECT 2 AS a, 20 AS b; DROP TABLE t_old; COMMIT")
    assert answers(con)["v"] == [(2, 20)]


def test_names_are_remembered_in_the_file(tmp_path):
    path = tmp_path / "data.duckdb"
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a; CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
        con.execute("ALTER TABLE t RENAME TO t_old")
    with sqlfront.connect(path) as con:
        assert con.execute("FROM v").fetchall() == [(1,)]
        con.execute("CREATE TABLE t AS SELECT 2 AS a; DROP TABLE t_old")
        assert con.execute("FROM v").fetchall() == [(2,)]
    with duckdb.connect(str(path)) as plain:
        assert plain.execute("FROM v").fetchall() == [(2,)]
        plain.execute("INSERT INTO t VALUES (3)")
    with sqlfront.connect(path) as con:
        assert sorted(con.execute("FROM v").fetchall()) == [(2,), (3,)]


def test_two_tables_change_their_names(con):
    con.execute("CREATE TABLE x AS SELECT 3 AS a, 30 AS b; CREATE MATERIALIZED VIEW z AS SELECT b FROM x")
    con.execute("BEGIN; ALTER TABLE t RENAME TO old; ALTER TABLE x RENAME TO t; ALTER TABLE old RENAME TO x; COMMIT")
    assert answers(con)["v"] == [(3, 30)] and con.execute("FROM z").fetchall() == [(10,)]
    con.execute("INSERT INTO x VALUES (1, 1); INSERT INTO t VALUES (4, 40)")
    assert answers(con)["w"] == [(70,)] and sorted(con.execute("FROM z").fetchall()) == [(1,), (10,)]


MISFITS = {
    "a column is gone": ("CREATE OR REPLACE TABLE t AS SELECT 1 AS a", "v reads(.|\n)*no column b"),
    "a type does not fit": ("CREATE OR REPLACE TABLE t (a INTEGER, b VARCHAR)", "v reads(.|\n)*sum"),
    "by a swap": (
        "CREATE TABLE n (a INTEGER[], b INTEGER); ALTER TABLE t RENAME TO t_old; ALTER TABLE n RENAME TO t",
        "is refused(.|\n)*j reads",
    ),
    "by a table": (
        "ALTER TABLE t RENAME TO t_old; CREATE TABLE t (b INTEGER)",
        "CREATE TABLE t is refused(.|\n)*column a",
    ),
    "a row has no value": (
        "DROP MATERIALIZED VIEW v CASCADE; CREATE MATERIALIZED VIEW v AS SELECT CAST(b AS INTEGER) AS s FROM t; "
        "CREATE MATERIALIZED VIEW w AS SELECT sum(s)::BIGINT AS s FROM v; "
        "CREATE OR REPLACE TABLE t AS SELECT 1 AS a, 'x' AS b",
        "is refused(.|\n)*v reads",
    ),
}


@pytest.mark.parametrize("misfit", MISFITS)
@pytest.mark.parametrize("transaction", [False, True])
def test_what_does_not_fit_is_refused_and_nothing_has_changed(con, misfit, transaction):
    text, why = MISFITS[misfit]
    *steps, last = text.split("; ")
    for step in steps:
        con.execute(step)
    before, tables = answers(con), con.execute("SHOW TABLES").fetchall()
    with pytest.raises(sqlfront.IntegrityError, match=why):
        con.execute(f"BEGIN; INSERT INTO u VALUES (2, 'two'); {last}; COMMIT" if transaction else last)
    if con.session.transaction is not None:
        con.execute("ROLLBACK")
    assert answers(con) == before and con.execute("SHOW TABLES").fetchall() == tables
    name = "t_old" if ("t_old",) in tables else "t"
    con.execute(f"INSERT INTO {name} (a, b) VALUES (1, 1)")
    assert answers(con) != before


def test_a_transaction_reads_no_view_whose_table_it_has_replaced(con):
    con.execute("CREATE MATERIALIZED VIEW other AS SELECT a FROM u")
    con.execute("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 5 AS a, 50 AS b; INSERT INTO u VALUES (5, 'five')")
    assert sorted(con.execute("FROM other").fetchall()) == [(1,), (5,)]
    other = con.cursor()
    assert other.execute("FROM v").fetchall() == [(1, 10)]
    with pytest.raises(sqlfront.StaleRead, match="COMMIT first"):
        con.execute("FROM w").fetchall()
    con.execute("ROLLBACK")
    assert answers(con)["v"] == [(1, 10)]
    con.execute("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 5 AS a, 50 AS b; INSERT INTO u VALUES (5, 'five'); COMMIT")
    assert other.execute("FROM j").fetchall() == [("five", 50)] and answers(con)["v"] == [(5, 50)]


def test_what_others_commit_meanwhile_is_not_missed(con):
    other = con.cursor()
    con.execute("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 5 AS a, 50 AS b")
    other.execute("INSERT INTO u VALUES (5, 'five')")
    with pytest.raises(sqlfront.StaleRead, match="u changed"):
        con.execute("COMMIT")
    assert answers(other)["v"] == [(1, 10)]
    con.execute("CREATE OR REPLACE TABLE t AS SELECT 5 AS a, 50 AS b")
    assert answers(other)["j"] == [("five", 50)]


def test_handles_and_subscribers(con):
    view, feed = con.view("v"), con.view("v").subscribe(snapshot=False, timeout=0)
    con.execute("ALTER TABLE t RENAME TO t_old; INSERT INTO t_old VALUES (7, 7)")
    assert view.count() == 2 and [len(table) for table in feed] == [1]
    con.execute("CREATE TABLE t AS SELECT 1 AS a, 1 AS b")
    assert view.rows() == [(1, 1)]
    with pytest.raises(sqlfront.OperationalError, match="another table has taken the place"):
        list(feed)
    again = con.view("v").subscribe(snapshot=False, timeout=0)
    con.execute("INSERT INTO t VALUES (8, 8)")
    assert [len(table) for table in again] == [1]


def test_a_temporary_table_is_not_taken_for_the_views_table(con):
    con.execute("CREATE TEMP TABLE u (a INTEGER, n VARCHAR)")
    with pytest.raises(sqlfront.NotSupportedError, match="temporary table u"):
        con.execute("CREATE OR REPLACE TABLE t AS SELECT 5 AS a, 50 AS b")
    con.execute("DROP TABLE temp.u; CREATE OR REPLACE TABLE t AS SELECT 5 AS a, 50 AS b")
    assert answers(con)["v"] == [(5, 50)]


def test_views_over_change_tables_without_rows_are_not_rebuilt(con):
    con.execute("CREATE CHANGE TABLE c (a INTEGER) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW over_c AS SELECT t.b FROM t, c WHERE t.a = c.a; INSERT INTO c VALUES (1)")
    with pytest.raises(sqlfront.IntegrityError, match="keeps no rows"):
        con.execute("CREATE OR REPLACE TABLE t AS SELECT 1 AS a, 50 AS b")
    assert con.execute("FROM over_c").fetchall() == [(10,)]


def test_writers_of_another_thread_see_whole_swaps(con):
    stop, seen = threading.Event(), set()

    def read(cursor):
        while not stop.is_set():
            seen.add(tuple(cursor.execute("SELECT s FROM w").fetchone()))

    reader = threading.Thread(target=read, args=(con.cursor(),))
    reader.start()
    for number in range(6):
        con.execute(f"CREATE OR REPLACE TABLE t AS SELECT 1 AS a, {number * 100} AS b")
    stop.set()
    reader.join()
    assert seen <= {(10,), *((number * 100,) for number in range(6))}


@pytest.mark.parametrize("seed", range(3))
def test_random_renamings_keep_views_by_name(con, seed):
    random_ = random.Random(seed)
    con.execute("CREATE TABLE x AS SELECT 1 AS a, 3 AS b; CREATE TABLE y AS SELECT 2 AS a, 4 AS b")
    names = ["t", "x", "y", "z", "free", "f1", "f2"]
    for step in range(15):
        there = [
            name
            for name in names
            if con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [name]).fetchall()
        ]
        one, free = random_.choice(there), random_.choice([name for name in names if name not in there])
        statement = random_.choice(
            [
                f"ALTER TABLE {one} RENAME TO {free}",
                f"CREATE OR REPLACE TABLE {one} AS SELECT {step} % 3 AS a, {step} AS b",
                f"CREATE TABLE IF NOT EXISTS {free} AS SELECT 1 AS a, {step} AS b",
                f"INSERT INTO {one} VALUES (1, {step})",
                f"DELETE FROM {one} WHERE a = 1",
                f"DROP TABLE {one}",
            ]
        )
        begin, end = random_.choice([("", ""), ("BEGIN; ", "; COMMIT"), ("BEGIN; ", "; ROLLBACK")])
        try:
            con.execute(f"{begin}{statement}{end}")
        except sqlfront.Error as error:
            assert "DROP" in statement, error
            if con.session.transaction is not None:
                con.execute("ROLLBACK")
        assert con.execute("CHECK MATERIALIZED VIEW j").fetchall() == []
        named = bool(
            con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 't' AND schema_name = 'main'").fetchall()
        )
        assert ("main.t" in tables_of(con, "v")) == named, statement
    answers(con)
