"""A database file is closed and opened again: what comes back, what is lost, and what says so."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest

import sqlfront


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "data.duckdb")


def setup(path):
    con = sqlfront.connect(path)
    con.execute("CREATE TABLE t (a BIGINT, b VARCHAR)")
    con.execute("CREATE TABLE u (a BIGINT, d DECIMAL(9, 2))")
    con.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    con.execute("INSERT INTO u VALUES (1, 1.5), (1, 2.5)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT b, sum(d) AS s FROM t JOIN u ON t.a = u.a GROUP BY b")
    con.execute("CREATE SCHEMA s")
    con.execute("CREATE MATERIALIZED VIEW s.w (k) AS SELECT a FROM t WHERE b <> 'y'")
    return con


def rows(con, query):
    return sorted(con.execute(query).fetchall(), key=str)


def test_views_come_back_with_what_plain_duckdb_wrote_in_between(path):
    with setup(path) as con:
        before = rows(con, "FROM v"), rows(con, "FROM s.w")
    with sqlfront.connect(path) as con:
        assert (rows(con, "FROM v"), rows(con, "FROM s.w")) == before
        assert [c[0] for c in con.execute("FROM s.w").description] == ["k"]
        con.execute("INSERT INTO u VALUES (2, 7)")
        assert rows(con, "SELECT b, s::INTEGER FROM v") == [("x", 4), ("y", 7)]
    with duckdb.connect(path) as plain:
        assert plain.execute("SELECT count(*) FROM u").fetchall() == [(3,)]
        plain.execute("INSERT INTO t VALUES (1, 'z')")
        plain.execute("DELETE FROM u WHERE a = 2")
    with sqlfront.connect(path) as con:
        assert rows(con, "SELECT b, s::INTEGER FROM v") == [("x", 4), ("z", 4)]
        assert rows(con, "FROM s.w") == [(1,), (1,)]
        con.execute("INSERT INTO t VALUES (1, 'z')")
        assert rows(con, "SELECT b, s::INTEGER FROM v") == [("x", 4), ("z", 8)]
        for view in ("v", "s.w"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []


def test_the_last_connection_lets_another_process_in(path):
    con = setup(path)
    other = con.cursor()
    con.close()
    assert rows(other, "SELECT count(*) FROM t") == [(2,)]
    other.close()
    code = f"import duckdb; print(duckdb.connect({path!r}).execute('SELECT count(*) FROM t').fetchall())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[(2,)]\n", done.stderr


def test_two_connects_share_one_engine_and_must_agree_on_the_config(path):
    one = setup(path)
    two = sqlfront.connect(path)
    two.execute("INSERT INTO t VALUES (5, 'five')")
    assert rows(one, "FROM s.w") == [(1,), (5,)]
    with pytest.raises(sqlfront.OperationalError, match="another config"):
        sqlfront.connect(path, config={"threads": 1})
    one.close()
    assert rows(two, "FROM s.w") == [(1,), (5,)]
    two.close()
    sqlfront.connect(path, config={"threads": 1}).close()


def test_epoch_numbers_are_never_used_again(path):
    data = {"t": pa.table({"a": [9], "b": ["q"]})}
    with setup(path) as con:
        con.cursor().close()
        last = con.apply(data).number
        assert con.apply(data).number == last + 1
    with sqlfront.connect(path) as con:
        assert con.apply(data).number > last + 1


def test_epoch_numbers_survive_a_crash(path):
    code = f"""
import os, sqlfront
con = sqlfront.connect({path!r})
con.execute("CREATE CHANGE TABLE c (a BIGINT)")
for i in range(100):
    number = con.apply_row("c", (i,))
print(number, flush=True)
os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = int(done.stdout)
    with sqlfront.connect(path) as con:
        con.execute("TRUNCATE c")
        assert con.apply_row("c", (1,)) > last >= 100


@pytest.mark.parametrize("retain", ["true", "false"])
def test_a_change_table_is_lost_until_it_is_fed_again(path, retain):
    with setup(path) as con:
        con.execute(f"CREATE CHANGE TABLE c (a BIGINT, n INTEGER DEFAULT 1) WITH (retain = {retain}, durable = false)")
        con.execute("CREATE MATERIALIZED VIEW x AS SELECT b, sum(n) AS n FROM t JOIN c ON t.a = c.a GROUP BY b")
        epoch = con.apply_row("c", (1, 5))
        assert rows(con, "FROM x") == [("x", 5)]
    con = sqlfront.connect(path)
    refused = ["FROM x", "SELECT * FROM v JOIN x USING (b)", "FROM c", "INSERT INTO c VALUES (1, 1)"]
    for query in refused:
        with pytest.raises(sqlfront.Error, match=rf"(?s)lost at epoch {epoch}.*TRUNCATE c") as raised:
            con.execute(query)
        assert isinstance(raised.value, sqlfront.OperationalError)
    for change in (lambda: con.apply({"c": pa.table({"a": [1]})}), lambda: con.apply_row("c", (1, 1))):
        with pytest.raises(sqlfront.OperationalError, match="lost at epoch"):
            change()
    with pytest.raises(sqlfront.OperationalError, match="lost at epoch"):
        con.view("x").count()
    assert con.execute("SHOW CHANGE TABLES").fetchall()[0][-1] == f"lost at epoch {epoch}"
    assert rows(con, "SELECT b FROM v") == [("x",)]
    con.execute("TRUNCATE c")
    con.execute("INSERT INTO c (a) VALUES (2)")
    assert con.apply_row("c", (2, 6)) > epoch
    assert rows(con, "FROM x") == [("y", 7)]
    assert con.execute("SHOW CHANGE TABLES").fetchall()[0][-1] == "ready"
    con.close()


def test_a_view_that_cannot_be_rebuilt_says_so_until_refresh(path, capsys):
    setup(path).close()
    with duckdb.connect(path) as plain:
        for name in plain.execute("SELECT trigger_name FROM duckdb_triggers() WHERE table_name = 'u'").fetchall():
            plain.execute(f'DROP TRIGGER "{name[0]}" ON u')
        plain.execute("CREATE TABLE kept AS FROM u")
        plain.execute("DROP TABLE u")
    with sqlfront.connect(path) as con:
        assert "materialized view v could not be rebuilt" in capsys.readouterr().err
        for read in (lambda: con.execute("SELECT * FROM v WHERE s > 1").fetchall(), lambda: con.view("v").rows()):
            with pytest.raises(
                sqlfront.OperationalError, match=r"(?s)v cannot be trusted.*REFRESH MATERIALIZED VIEW v"
            ):
                read()
        assert rows(con, "FROM s.w") == [(1,)]
        assert [row[0] for row in rows(con, "SHOW MATERIALIZED VIEWS")] == ["s.w", "v"]
        with pytest.raises(sqlfront.Error):
            con.execute("REFRESH MATERIALIZED VIEW v")
        with pytest.raises(sqlfront.ProgrammingError, match="materialized view"):
            con.execute("INSERT INTO v VALUES (1, 2)")
        con.execute("CREATE TABLE u AS FROM kept")
        con.execute("REFRESH MATERIALIZED VIEW v")
        con.execute("INSERT INTO u VALUES (2, 3)")
        assert rows(con, "SELECT b, s::INTEGER FROM v") == [("x", 4), ("y", 3)]
    with sqlfront.connect(path) as con:
        assert rows(con, "SELECT b, s::INTEGER FROM v") == [("x", 4), ("y", 3)]


def test_a_view_that_cannot_be_rebuilt_can_be_dropped_or_replaced(path):
    setup(path).close()
    with duckdb.connect(path) as plain:
        for name, table in plain.execute("SELECT trigger_name, table_name FROM duckdb_triggers()").fetchall():
            plain.execute(f'DROP TRIGGER "{name}" ON {table}')
        plain.execute("DROP TABLE t")
    with sqlfront.connect(path) as con:
        con.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT a FROM u")
        assert rows(con, "FROM v") == [(1,), (1,)]
        con.execute("DROP MATERIALIZED VIEW s.w")
        assert [row[0] for row in rows(con, "SHOW MATERIALIZED VIEWS")] == ["v"]


def test_a_read_only_file_shows_its_views_and_takes_no_writes(path):
    with setup(path) as con:
        con.execute("CREATE CHANGE TABLE c (a BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW x AS SELECT a FROM c")
    with duckdb.connect(path) as plain:
        plain.execute("INSERT INTO u VALUES (2, 9)")
    con = sqlfront.connect(path, config={"access_mode": "READ_ONLY"})
    expected = [("x", 4), ("y", 9)]
    writes = [
        "INSERT INTO t VALUES (9, 'x')", "UPDATE t SET a = 1", "DELETE FROM t", "TRUNCATE t", "DROP TABLE t CASCADE",
        "ALTER TABLE t ADD COLUMN x INTEGER", "ALTER TABLE t RENAME TO z", "TRUNCATE c", "INSERT INTO c VALUES (1)",
        "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE", "CREATE TABLE z (a INTEGER)",
        "CREATE MATERIALIZED VIEW z AS SELECT a FROM t", "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT a FROM t",
        "DROP MATERIALIZED VIEW v", "REFRESH MATERIALIZED VIEW v", "CREATE CHANGE TABLE z (a INTEGER)",
        "DROP CHANGE TABLE c",
    ]  # fmt: skip
    for write in writes:
        with pytest.raises(sqlfront.Error, match=r"read-only|open for writing"):
            con.execute(write)
        assert rows(con, "SELECT b, s::INTEGER FROM v") == expected
    with pytest.raises(sqlfront.Error, match="read-only"):
        con.apply({"t": pa.table({"a": [1], "b": ["q"]})})
    with pytest.raises(sqlfront.Error, match="read-only"):
        con.apply_row("c", (1,))
    assert con.execute("SELECT s::INTEGER FROM v WHERE b = 'y'").fetchall() == [(9,)]
    assert con.view("v").count() == 2 and con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    con.execute("CREATE TEMP TABLE kept AS FROM v")
    con.execute("BEGIN; INSERT INTO kept FROM v")
    assert rows(con, "SELECT b, s::INTEGER FROM v") == expected
    con.execute("COMMIT")
    assert rows(con, "SELECT count(*) FROM kept") == [(4,)]
    con.close()
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO u VALUES (1, 1)")
        assert rows(con, "SELECT b, s::INTEGER FROM v") == [("x", 5), ("y", 9)]


def test_a_file_that_was_renamed_or_attached_goes_on(tmp_path, path):
    setup(path).close()
    (tmp_path / "data.duckdb").rename(tmp_path / "moved.duckdb")
    with duckdb.connect(str(tmp_path / "moved.duckdb")) as plain:
        plain.execute("INSERT INTO u VALUES (2, 7)")
    with duckdb.connect() as plain:
        plain.execute(f"ATTACH '{tmp_path}/moved.duckdb' AS alias; USE alias; INSERT INTO u VALUES (1, 1)")
    with sqlfront.connect(tmp_path / "moved.duckdb") as con:
        assert rows(con, "SELECT b, s::INTEGER FROM v") == [("x", 5), ("y", 7)]
        con.execute("DELETE FROM u WHERE a = 2")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_every_write_is_captured_while_another_database_is_the_current_one(path):
    with setup(path) as con:
        con.execute('ATTACH \':memory:\' AS "an other"; CREATE TABLE "an other".news AS SELECT 2 AS a, 3 AS d')
        con.execute("PREPARE p AS INSERT INTO data.u VALUES (2, 1)")
        con.execute('USE "an other"')
        before = con.execute("SELECT current_setting('search_path')").fetchall()
        con.execute("INSERT INTO data.u FROM news; INSERT INTO data.main.u VALUES (2, 4); UPDATE data.t SET b = 'w'")
        con.execute("EXPLAIN ANALYZE INSERT INTO data.u VALUES (2, 2)")
        con.executemany("INSERT INTO data.u VALUES (?, ?)", [(2, 5), (2, 6)])
        con.apply({"data.main.u": pa.table({"a": [2], "d": [9]})})
        con.execute("EXECUTE p")
        assert rows(con, "SELECT s::INTEGER FROM data.v") == [(34,)]
        con.execute("BEGIN; INSERT INTO data.u VALUES (2, 100)")
        with pytest.raises(sqlfront.Error):
            con.execute("INSERT INTO data.u VALUES ('no number', 1)")
        con.execute("ROLLBACK")
        with pytest.raises(sqlfront.Error):
            con.execute("INSERT INTO data.u VALUES ('no number', 1)")
        assert con.execute("SELECT current_setting('search_path')").fetchall() == before
        with pytest.raises(sqlfront.Error, match="does not exist"):
            con.execute("FROM u")
        con.execute("USE data; DELETE FROM u WHERE a = 2 AND d = 9")
        assert rows(con, "SELECT s::INTEGER FROM v") == [(25,)]
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
