"""Epochs and transactions: who sees what, what COMMIT and ROLLBACK leave, interrupts, threads, bypassing writers."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.database import scans

SETUP = """
CREATE TABLE a(k BIGINT, x BIGINT);
CREATE TABLE b(k BIGINT, y BIGINT);
INSERT INTO a VALUES (1, 1), (1, 2), (2, 3);
INSERT INTO b VALUES (1, 10), (2, 20);
CREATE MATERIALIZED VIEW v AS SELECT k, sum(x * y) AS s, count(*) AS n FROM a JOIN b USING (k) GROUP BY k;
"""
QUERY = "SELECT * FROM v ORDER BY k"
ROWS = [(1, 30, 2), (2, 60, 1)]


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute(SETUP)
        yield connection


def rows(con):
    return con.execute(QUERY).fetchall()


def check(con):
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


WRITES = (
    "INSERT INTO a VALUES (1, 5), (7, 7)",
    "INSERT INTO a SELECT k, x + 100 FROM a",
    "UPDATE a SET x = x + 1 WHERE k = 1",
    "DELETE FROM a WHERE x = 2",
    "TRUNCATE a",
    "MERGE INTO a USING (SELECT 2 AS k, 50 AS x UNION ALL SELECT 1, 60) AS s ON a.k = s.k AND a.k = 2 "
    "WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.x)",
    "INSERT INTO a SELECT k, n FROM v",
    "DELETE FROM a WHERE k IN (SELECT k FROM v WHERE n = 2)",
    "UPDATE a SET x = (SELECT max(n) FROM v)",
)


@pytest.mark.parametrize("sql", WRITES)
def test_writes_in_autocommit_and_in_a_transaction(con, sql):
    other = con.cursor()
    con.execute("BEGIN")
    con.execute(sql)
    inside = rows(con)
    check(con)
    assert inside != ROWS or sql.startswith("UPDATE a SET x = (")
    assert rows(other) == ROWS
    con.execute("ROLLBACK")
    assert rows(con) == ROWS
    con.execute("BEGIN")
    con.execute(sql)
    con.execute("COMMIT")
    assert rows(con) == rows(other) == inside
    check(con)
    again = sqlfront.connect()
    again.execute(SETUP)
    again.execute(sql)
    assert rows(again) == inside


def test_upserts(con):
    con.execute("CREATE TABLE u(id BIGINT PRIMARY KEY, k BIGINT, x BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k, sum(x) AS s FROM u GROUP BY k")
    con.execute("INSERT INTO u VALUES (1, 1, 1), (2, 1, 2)")
    con.execute("INSERT INTO u VALUES (2, 1, 20), (3, 2, 3) ON CONFLICT (id) DO UPDATE SET x = excluded.x")
    con.execute("INSERT OR REPLACE INTO u VALUES (1, 2, 100)")
    con.execute("INSERT INTO u VALUES (1, 5, 5) ON CONFLICT DO NOTHING")
    assert con.execute("SELECT * FROM w ORDER BY k").fetchall() == [(1, 20), (2, 103)]
    con.executemany("INSERT OR REPLACE INTO u VALUES (?, ?, ?)", [(1, 1, 1), (9, 9, 9)])
    assert con.execute("SELECT * FROM w ORDER BY k").fetchall() == [(1, 21), (2, 3), (9, 9)]
    con.execute("BEGIN; INSERT OR REPLACE INTO u VALUES (9, 1, 1)")
    assert con.execute("SELECT * FROM w ORDER BY k").fetchall() == [(1, 22), (2, 3)]
    con.execute("ROLLBACK")
    assert con.execute("SELECT * FROM w ORDER BY k").fetchall() == [(1, 21), (2, 3), (9, 9)]


def test_copy_and_ctas(con, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("k,x\n1,100\n2,200\n")
    con.execute(f"COPY a FROM '{path}'")
    assert rows(con) == [(1, 1030, 3), (2, 4060, 2)]
    con.execute(f"COPY (SELECT * FROM v) TO '{tmp_path / 'v.csv'}'")
    assert (tmp_path / "v.csv").read_text().split()[0] == "k,s,n"
    con.execute("CREATE TABLE copied AS SELECT * FROM v")
    assert con.execute("SELECT count(*) FROM copied").fetchall() == [(2,)]


def test_several_statements_join_one_epoch(con):
    before = con.session.database.engine.epoch
    con.execute("BEGIN; INSERT INTO a VALUES (1, 9); DELETE FROM b WHERE k = 2; UPDATE a SET x = 0; COMMIT")
    assert con.session.database.engine.epoch == before + 1
    assert rows(con) == [(1, 0, 3)]
    con.execute("BEGIN; COMMIT")
    assert con.session.database.engine.epoch == before + 1


def test_failing_statement_aborts_the_transaction(con):
    con.execute("BEGIN; INSERT INTO a VALUES (1, 9)")
    with pytest.raises(sqlfront.DataError):
        con.execute("INSERT INTO a VALUES ('x', 1)")
    with pytest.raises(sqlfront.Error, match="aborted"):
        rows(con)
    with pytest.raises(sqlfront.OperationalError, match="rolled back instead of committed"):
        con.execute("COMMIT")
    assert rows(con) == ROWS
    con.execute("BEGIN; INSERT INTO a VALUES (1, 9)")
    with pytest.raises(sqlfront.DataError):
        con.execute("INSERT INTO a VALUES ('x', 1)")
    con.execute("ROLLBACK")
    assert rows(con) == ROWS


def test_aborted_transactions_apply_no_changes_of_change_tables(con):
    con.execute("CREATE CHANGE TABLE c(k BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k FROM c")
    con.begin()
    con.apply({"c": pa.table({"k": [1]})})
    with pytest.raises(sqlfront.Error):
        con.execute("SELECT error('x')")
    with pytest.raises(sqlfront.Error):
        con.commit()
    assert con.execute("SELECT * FROM w").fetchall() == []


def test_refused_commit_leaves_views(con):
    con.execute("CREATE TABLE p(k BIGINT PRIMARY KEY, x BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT sum(x) AS s, count(*) AS n FROM p")
    other = con.cursor()
    con.execute("BEGIN; INSERT INTO p VALUES (1, 1)")
    other.execute("BEGIN; INSERT INTO p VALUES (1, 2), (2, 2)")
    assert other.execute("SELECT * FROM w").fetchall() == [(4, 2)]
    con.execute("COMMIT")
    epoch = con.session.database.engine.epoch
    with pytest.raises(sqlfront.Error, match="PRIMARY KEY"):
        other.execute("COMMIT")
    assert con.session.database.engine.epoch == epoch
    for cursor in (con, other):
        assert cursor.execute("SELECT * FROM w").fetchall() == [(1, 1)]
        assert cursor.execute("CHECK MATERIALIZED VIEW w").fetchall() == []
    other.execute("INSERT INTO p VALUES (2, 2)")
    assert con.execute("SELECT * FROM w").fetchall() == [(3, 2)]


def test_write_conflict(con):
    other = con.cursor()
    con.execute("BEGIN; UPDATE a SET x = 100 WHERE k = 2")
    with pytest.raises(sqlfront.Error, match=r"[Cc]onflict"):
        other.execute("UPDATE a SET x = 200 WHERE k = 2")
    con.execute("COMMIT")
    assert rows(other) == [(1, 30, 2), (2, 2000, 1)]


def test_reading_in_a_transaction_keeps_types(con):
    con.execute("BEGIN; INSERT INTO a VALUES (2, 1)")
    assert con.execute("SELECT s, uuid() IS NULL FROM v WHERE k = 2").fetchall() == [(80, False)]
    assert isinstance(con.execute("SELECT s FROM v WHERE k = 2").fetchone()[0], int)
    assert con.execute("DESCRIBE v").fetchall()[1][:2] == ("s", "HUGEINT")
    assert con.execute("SELECT s FROM v").fetchmany(1) == [(30,)]
    con.execute("ROLLBACK")
    schema = con.execute("SELECT 1::HUGEINT AS h").to_arrow_table().schema
    assert (
        schema.field("h").type == con.session.duck.sql("SELECT 1::HUGEINT AS h").to_arrow_table().schema.field("h").type
    )


def test_views_behind_views_and_prepared_statements_in_a_transaction(con):
    con.execute("CREATE VIEW dv AS SELECT k, n FROM v")
    con.execute("PREPARE p AS SELECT n FROM v WHERE k = ?")
    con.execute("BEGIN; INSERT INTO a VALUES (2, 1)")
    assert con.execute("SELECT n FROM dv WHERE k = 2").fetchall() == [(2,)]
    assert con.execute("EXECUTE p(2)").fetchall() == [(2,)]
    con.execute("ROLLBACK")
    assert con.execute("EXECUTE p(2)").fetchall() == [(1,)]


def test_prepared_writes_are_followed(con):
    con.execute("PREPARE p AS INSERT INTO a VALUES (?, ?)")
    con.execute("EXECUTE p(2, 1)")
    assert rows(con) == [(1, 30, 2), (2, 80, 2)]
    con.execute("BEGIN; EXECUTE p(2, 2)")
    assert rows(con) == [(1, 30, 2), (2, 120, 3)]
    con.execute("ROLLBACK")
    assert rows(con) == [(1, 30, 2), (2, 80, 2)]


PREPARED = {
    "INSERT INTO a VALUES (?, ?)": "(2, 1)",
    "INSERT INTO a SELECT k, ? FROM b": "(5)",
    "INSERT INTO a SELECT k, s FROM v WHERE k < ?": "(9)",
    "INSERT INTO a VALUES (?, 9) RETURNING k": "(1)",
    "UPDATE a SET x = x + ? WHERE k = 1": "(7)",
    "DELETE FROM a WHERE k = ?": "(1)",
    "TRUNCATE a": "",
}


@pytest.mark.parametrize("where", ["autocommit", "COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("sql", PREPARED)
def test_every_form_of_prepared_write_is_followed(con, sql, where):
    before = rows(con)
    con.execute(f"PREPARE p AS {sql}")
    if where != "autocommit":
        con.execute("BEGIN")
    con.execute(f"EXECUTE p{PREPARED[sql]}")
    after = rows(con)
    assert after != before
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    if where != "autocommit":
        con.execute(where)
    assert rows(con) == (before if where == "ROLLBACK" else after)
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize("begin", ["", "BEGIN; "])
def test_prepared_upserts_are_refused(con, begin):
    con.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, x INTEGER)")
    con.execute("PREPARE early AS INSERT OR REPLACE INTO t VALUES (?, ?)")
    con.execute("EXECUTE early(1, 10)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k, x FROM t")
    con.execute("CREATE CHANGE TABLE ct (k INTEGER)")
    for statement, why in {
        "PREPARE p AS INSERT OR REPLACE INTO t VALUES (?, ?)": "PREPARE of an upsert into t",
        "PREPARE p AS INSERT INTO t VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET x = 3": "PREPARE of an upsert into t",
        "PREPARE p AS MERGE INTO t USING b ON t.k = b.k WHEN MATCHED THEN DELETE": "preparable",
        "EXECUTE early(1, 11)": "(?s)upsert or MERGE into a table that views read.*con.execute",
        "PREPARE p AS INSERT INTO ct VALUES (?)": "change table ct",
        "PREPARE p AS INSERT INTO w VALUES (?)": "w is a materialized view",
    }.items():
        with pytest.raises(sqlfront.Error, match=why):
            con.execute(f"{begin}{statement}")
        con.rollback()
        assert con.execute("FROM w").fetchall() == [(1, 10)]
    con.execute("PREPARE p AS INSERT INTO t VALUES (?, ?) ON CONFLICT DO NOTHING")
    con.execute("EXECUTE p(1, 99); EXECUTE p(2, 20)")
    assert con.execute("FROM w").fetchall() == [(1, 10), (2, 20)]


@pytest.mark.parametrize("scope", ["SESSION", "GLOBAL"])
@pytest.mark.parametrize("lossless", [True, False])
def test_a_users_lossless_setting_outlives_our_own_reads(con, scope, lossless):
    def found():
        return con.execute("SELECT current_setting('arrow_lossless_conversion')").fetchall()

    con.execute("INSERT INTO a VALUES (2, 1)")
    con.execute(f"SET {'GLOBAL' if scope == 'SESSION' else 'SESSION'} arrow_lossless_conversion = {not lossless}")
    con.execute("RESET SESSION arrow_lossless_conversion")
    con.execute(f"SET {scope} arrow_lossless_conversion = {lossless}")
    for statement in ("INSERT INTO a VALUES (2, 1)", "BEGIN; DELETE FROM a WHERE x = 1; FROM v; COMMIT", "FROM v"):
        con.execute(statement)
        assert found() == [(lossless,)]
    con.execute("BEGIN; INSERT INTO a VALUES (3, 1)")
    with pytest.raises(sqlfront.Error):
        con.execute("INSERT INTO a VALUES ('no number', 1) RETURNING k")
    con.execute("ROLLBACK")
    assert found() == [(lossless,)]
    con.execute("RESET GLOBAL arrow_lossless_conversion; RESET SESSION arrow_lossless_conversion")
    con.execute("INSERT INTO a VALUES (2, 1)")
    assert found() == [(False,)]


def test_an_aborted_transaction_can_be_rolled_back_after_others_have_made_views(con):
    con.execute("BEGIN")
    with pytest.raises(sqlfront.Error):
        con.execute("SELECT nosuch")
    con.cursor().execute("CREATE MATERIALIZED VIEW w AS SELECT k FROM b")
    with pytest.raises(sqlfront.Error):
        con.execute("FROM w")
    con.execute("ROLLBACK")
    assert len(con.execute("FROM w").fetchall()) == len(con.execute("FROM b").fetchall())


def test_raw_writers_are_caught_up(con):
    raw = con.session.database.root.cursor()
    raw.execute("INSERT INTO a VALUES (2, 1)")
    assert rows(con) == [(1, 30, 2), (2, 80, 2)]
    raw.execute("BEGIN; DELETE FROM a WHERE k = 2")
    assert rows(con) == [(1, 30, 2), (2, 80, 2)]
    raw.execute("COMMIT")
    assert rows(con) == [(1, 30, 2)]
    raw.execute("INSERT INTO a VALUES (2, 7)")
    con.execute("BEGIN; DELETE FROM a WHERE k = 2")
    assert rows(con) == [(1, 30, 2)]
    con.execute("COMMIT")
    assert rows(con) == [(1, 30, 2)]
    raw.execute("UPDATE b SET y = 1")
    con.execute("INSERT INTO a VALUES (1, 1)")
    assert rows(con) == [(1, 4, 3)]
    check(con)


def test_dropped_triggers_are_noticed_and_refresh_heals(con):
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k, count(*) AS n FROM a GROUP BY k")
    con.execute("CREATE MATERIALIZED VIEW only_b AS SELECT count(*) AS n FROM b")
    raw = con.session.database.root.cursor()
    for name in ("insert", "delete", "update"):
        raw.execute(f"DROP TRIGGER __sqlfront_{name} ON a")
    raw.execute("INSERT INTO a VALUES (2, 1)")
    for view in ("v", "w"):
        with pytest.raises(sqlfront.OperationalError, match=f"{view}.*cannot be trusted(.|\n)*REFRESH"):
            con.execute(f"SELECT * FROM {view}").fetchall()
    assert con.execute("SELECT * FROM only_b").fetchall() == [(2,)]
    assert con.execute("SELECT 1").fetchall() == [(1,)]
    con.execute("INSERT INTO b VALUES (3, 3)")
    assert con.execute("SELECT * FROM only_b").fetchall() == [(3,)]
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert rows(con) == [(1, 30, 2), (2, 80, 2)]
    con.execute("INSERT INTO a VALUES (2, 2)")
    assert rows(con) == [(1, 30, 2), (2, 120, 3)]
    con.execute("REFRESH MATERIALIZED VIEW w")
    assert con.execute("SELECT * FROM w ORDER BY k").fetchall() == [(1, 2), (2, 3)]
    con.execute("DELETE FROM a")
    assert rows(con) == []
    assert con.execute("SELECT * FROM w").fetchall() == []


def test_two_threads_see_whole_epochs(con):
    con.execute("CREATE CHANGE TABLE c(x BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT sum(x) AS s, count(*) AS n FROM c")
    con.execute("CREATE MATERIALIZED VIEW t AS SELECT sum(x) AS s FROM a")
    con.execute("CREATE TABLE other(x BIGINT)")
    stop, problems, reads = threading.Event(), [], [0]

    def read():
        cursor = con.cursor()
        while not stop.is_set():
            try:
                s, n = cursor.execute("SELECT * FROM w").fetchone()
                left, right = cursor.execute("SELECT (SELECT s FROM w), (SELECT s FROM w)").fetchall()[0]
                t, real = cursor.execute("SELECT (SELECT s FROM t), (SELECT sum(x) FROM a)").fetchall()[0]
                reads[0] += 1
                if (s or 0) != 5 * n or n % 10 or left != right or t != real:
                    problems.append((s, n, left, right, t, real))
            except BaseException as error:
                problems.append(error)
                return

    def write():
        cursor = con.cursor()
        while not stop.is_set():
            try:
                cursor.execute("BEGIN; INSERT INTO a VALUES (2, 1); INSERT INTO a VALUES (2, 2)")
                cursor.execute("SELECT * FROM v").fetchall()
                cursor.execute("COMMIT")
                cursor.execute("INSERT INTO other SELECT n FROM v")
            except BaseException as error:
                problems.append(error)
                return

    threads = [threading.Thread(target=read), threading.Thread(target=read), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        con.apply({"c": pa.record_batch({"x": pa.array([0, 10] * 5, pa.int64())})})
        con.execute("SELECT count(*) FROM v").fetchall()
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert problems == []
    assert reads[0] > 5
    check(con)


def test_interrupting_a_statement(con):
    timer = threading.Timer(0.3, con.interrupt)
    timer.start()
    with pytest.raises(sqlfront.OperationalError, match=r"[Ii]nterrupt"):
        con.execute("INSERT INTO a SELECT 1, r.range FROM range(100000) r, range(100000) s")
    timer.join()
    assert rows(con) == ROWS
    con.execute("INSERT INTO a VALUES (1, 1)")
    assert rows(con) == [(1, 40, 3), ROWS[1]]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_scans_of_before_a_transaction_stay_bound(end, monkeypatch):
    """Only those that were bound within it are bound again, and none is lost by its end."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE t (a BIGINT)")
        for name in "vwx":
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT a, count(*) AS n FROM t GROUP BY a")
        con.execute("SELECT max(n) FROM v").fetchall()
        bound, replace = [], scans.replace_projection
        monkeypatch.setattr(scans, "replace_projection", lambda *given: bound.append(given[1]) or replace(*given))
        con.execute(f"BEGIN; INSERT INTO t VALUES (1); {end}")
        rows = [(1,)] if end == "COMMIT" else [(None,)]
        assert [con.execute(f"SELECT max(n) FROM {name}").fetchall() for name in "vwx"] == [rows] * 3
        assert bound == []
        with con.cursor() as other:
            con.execute("BEGIN; INSERT INTO t VALUES (1)")
            other.execute("CREATE MATERIALIZED VIEW y AS SELECT count(*) AS n FROM (VALUES (1), (2)) AS r(a)")
            bound.clear()
            con.execute("SELECT max(n) FROM v").fetchall()
            assert len(bound) == 1
            con.execute(end)
        assert con.execute("SELECT max(n) FROM y").fetchall() == [(2,)]
        assert len(bound) > 1
