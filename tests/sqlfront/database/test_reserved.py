"""What sqlfront keeps in the database cannot be written by SQL, and lists of tables do not show it."""

import pytest

import sqlfront

LISTS = [
    "SELECT table_name FROM information_schema.tables",
    "SELECT DISTINCT table_name FROM information_schema.columns ORDER BY 1",
    "SELECT view_name FROM duckdb_views() WHERE NOT internal",
    "SELECT name FROM (SELECT * FROM sqlite_master)",
    "SELECT d.view_name, 'duckdb_views()' AS listed_by FROM duckdb_views() AS d",
    "SELECT columns.table_name FROM information_schema.columns",
    "SHOW TABLES",
    "SHOW ALL TABLES",
]
WRITES = [
    "DROP SCHEMA __sqlfront CASCADE",
    'DROP SCHEMA IF EXISTS memory."__SQLFRONT"',
    "DROP TABLE __sqlfront.views",
    "DELETE FROM memory.__sqlfront.views",
    "INSERT INTO __sqlfront.state VALUES (1, 2)",
    "UPDATE __sqlfront.views SET written = ''",
    "TRUNCATE __sqlfront.views",
    "CREATE TABLE __sqlfront.mine (a INT)",
    "CREATE OR REPLACE TEMP VIEW __sqlfront_scan_1 AS SELECT 1",
    "DROP VIEW __sqlfront_scan_1",
    "ALTER TABLE __sqlfront.views ADD COLUMN x INT",
    "PREPARE p AS DELETE FROM __sqlfront.views",
    "MERGE INTO __sqlfront.state USING r ON true WHEN MATCHED THEN DELETE",
    "COPY __sqlfront.views FROM 'nowhere.csv'",
    "USE __sqlfront",
    "SET search_path = 'main,__sqlfront'",
    "SET schema = '__sqlfront'",
    "CREATE MATERIALIZED VIEW __sqlfront.mine AS SELECT a FROM r",
    "CREATE CHANGE TABLE __sqlfront_c (a INT)",
]


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute("CREATE TABLE r (a INT); INSERT INTO r VALUES (1)")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM r; CREATE CHANGE TABLE c (b INT)")
        connection.execute("CREATE MATERIALIZED VIEW w AS SELECT b FROM c")
        yield connection


@pytest.mark.parametrize("query", LISTS)
def test_lists_show_views_and_not_their_scans(con, query):
    con.execute("SELECT a FROM v WHERE a = 1")  # makes a scan of its own
    shown = {value for row in con.execute(query).fetchall() for value in row if isinstance(value, str)}
    assert {"v", "w", "c"} <= shown
    assert not [name for name in shown if "__sqlfront_" in name]
    assert con.execute("SELECT * FROM v, w").fetchall() == []
    assert con.execute("SELECT a FROM v WHERE a = 1").fetchall() == [(1,)]
    con.execute("BEGIN; INSERT INTO r VALUES (2)")
    assert not [row for row in con.execute(query).fetchall() if "__sqlfront_" in str(row)]
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(2,)]
    con.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(1,)]


def test_show_all_tables_leaves_our_schema_out(con):
    rows = con.execute("SHOW ALL TABLES").fetchall()
    assert {row[1] for row in rows} == {"main"}


def test_a_list_joined_with_a_view_works(con):
    query = "SELECT count(*) FROM information_schema.tables, v WHERE table_name = 'v' AND a = 1"
    assert con.execute(query).fetchall() == [(1,)]


def test_another_cursor_reads_on_while_one_lists(con):
    other = con.cursor()
    con.execute(LISTS[0])
    assert other.execute("FROM v").fetchall() == [(1,)]
    assert con.fetchall()


def test_writes_are_refused(con):
    for number, statement in enumerate(WRITES, 2):
        with pytest.raises(sqlfront.ProgrammingError, match=r"(?i)__sqlfront(.|\n)*DROP MATERIALIZED VIEW"):
            con.execute(statement)
        con.execute("INSERT INTO r VALUES (2)")
        assert con.execute("SELECT count(*) FROM v").fetchall() == [(number,)], statement


def test_apply_does_not_write_there_either(con):
    import pyarrow as pa

    with pytest.raises(sqlfront.ProgrammingError, match="kept by sqlfront"):
        con.apply({"__sqlfront.state": pa.table({"epoch": [1], "reserved": [1]})})
    with pytest.raises(sqlfront.ProgrammingError, match="kept by sqlfront"):
        con.apply_row("__sqlfront.state", (1, 1))


def test_names_that_only_look_alike_are_the_users(con):
    con.execute("CREATE TABLE sqlfront_scan_1 (a INT); CREATE TABLE __sqlfrontier (a INT); DROP TABLE __sqlfrontier")
    assert ("sqlfront_scan_1",) in con.execute("SHOW TABLES").fetchall()
