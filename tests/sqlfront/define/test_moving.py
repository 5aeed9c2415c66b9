"""Drops and copies of what views read: no view vanishes, or reads the rows of another database."""

from __future__ import annotations

import shutil

import pytest

import sqlfront


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a, 10 AS b")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b)::BIGINT AS s FROM t GROUP BY a")
        yield connection


def names(con):
    return [row[0] for row in con.execute("SHOW MATERIALIZED VIEWS").fetchall()]


def test_a_drop_with_cascade_names_the_views_that_go(con):
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT sum(s) AS s FROM v")
    assert con.execute("DROP TABLE t CASCADE").fetchall() == [("v",), ("w",)]
    assert names(con) == []


def test_an_export_is_imported_into_an_empty_database_alone(con, tmp_path):
    con.execute("CREATE VIEW early AS SELECT a FROM v; CREATE SCHEMA sc; CREATE VIEW sc.late AS SELECT a FROM early")
    for statement in (
        f"EXPORT DATABASE '{tmp_path}/x'",
        f"export /* all */ database '{tmp_path}/x'",
        f"""EXPORT DATABASE -- mine
        "Memory" TO '{tmp_path}/x' (FORMAT parquet)""",
    ):
        con.execute(statement)
    for statement in (
        f"IMPORT DATABASE '{tmp_path}/x'",
        f"PRAGMA import_database('{tmp_path}/x')",
        f"import database $${tmp_path}/x$$",
    ):
        with pytest.raises(sqlfront.IntegrityError, match="has had, its own"):
            con.execute(statement)
        with sqlfront.connect() as other:
            with pytest.raises(sqlfront.NotSupportedError, match="inside a transaction"):
                other.execute(f"BEGIN; {statement}")
            other.execute(f"ROLLBACK; {statement}")
            assert names(other) == ["v"] and other.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
            other.execute("INSERT INTO t VALUES (1, 1)")
            assert other.execute("FROM v").fetchall() == [(1, 11)]
            assert other.execute("FROM sc.late").fetchall() == [(1,)]
    with pytest.raises(sqlfront.Error, match="nowhere"):
        con.execute(f"IMPORT DATABASE '{tmp_path}/nowhere'")
    assert names(con) == ["v"]


def test_an_export_without_views_is_duckdbs(con, tmp_path):
    con.execute("SET VARIABLE remark = 'export database memory'")
    con.execute(f"ATTACH ':memory:' AS o; CREATE TABLE o.p AS SELECT 1 AS a; EXPORT DATABASE o TO '{tmp_path}/x'")
    con.execute(f"ATTACH ':memory:' AS i; USE i; IMPORT DATABASE '{tmp_path}/x'; USE memory")
    assert con.execute("FROM i.p").fetchall() == [(1,)]
    assert con.execute("FROM v").fetchall() == [(1, 10)]


def test_the_open_database_is_neither_copied_nor_detached(con, tmp_path):
    with sqlfront.connect(tmp_path / "data.duckdb") as file:
        file.execute("CREATE TABLE r AS SELECT 1 AS a; CREATE CHANGE TABLE c (a BIGINT); INSERT INTO c VALUES (7)")
    con.execute(f"ATTACH ':memory:' AS o; ATTACH '{tmp_path}/data.duckdb' AS f")
    for statement, what in (
        ("COPY FROM DATABASE memory TO o", "live in it: v"),
        ("COPY FROM DATABASE memory TO o (SCHEMA)", "live in it: v"),
        ("COPY FROM DATABASE f TO memory", "live in it: c"),
        ("USE o; DETACH memory", "DETACH is refused"),
        ('DETACH DATABASE IF EXISTS "memory"', "DETACH is refused"),
    ):
        with pytest.raises(sqlfront.IntegrityError, match=what):
            con.execute(statement)
    con.execute("COPY FROM DATABASE f TO o")
    assert con.execute("FROM o.c").fetchall() == con.execute("FROM f.c").fetchall() == [(7,)]
    con.execute("USE memory; DETACH f; CREATE TABLE o.p (a INTEGER)")
    con.execute("ATTACH ':memory:' AS q; COPY FROM DATABASE o TO q; DETACH o")
    con.execute("INSERT INTO t VALUES (1, 1)")
    assert con.execute("FROM v").fetchall() == [(1, 11)]


def test_a_view_of_an_attached_file_never_reads_ours(tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        with sqlfront.connect(tmp_path / f"{name}.db") as con:
            con.execute(f"CREATE TABLE t (a INT); INSERT INTO t VALUES ({value})")
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
    for _ in range(2):
        with sqlfront.connect(tmp_path / "one.db") as con:
            con.execute(f"ATTACH '{tmp_path / 'two.db'}' AS o")
            assert con.execute("SELECT * FROM o.v").fetchall() == [(2, 1)]
            assert con.execute("SELECT * FROM o.t").fetchall() == [(2,)]
            assert con.execute("SELECT * FROM v").fetchall() == [(1, 1)]


def test_a_copy_of_the_open_file_is_not_attached(tmp_path):
    with sqlfront.connect(tmp_path / "one.db") as con:
        con.execute("CREATE TABLE t (a INT); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
    shutil.copy(tmp_path / "one.db", tmp_path / "copy.db")
    with sqlfront.connect(tmp_path / "one.db") as con:
        with pytest.raises(sqlfront.IntegrityError, match="copy of the database"):
            con.execute(f"ATTACH '{tmp_path / 'copy.db'}' AS o")
        with pytest.raises(sqlfront.Error):
            con.execute("SELECT * FROM o.v")
        con.execute("INSERT INTO t VALUES (1)")
        assert con.execute("SELECT * FROM v").fetchall() == [(1, 1)]
