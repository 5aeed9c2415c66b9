"""Every kind of DML on captured tables, with every kind of data: views are DuckDB's own answer, at every moment."""

from __future__ import annotations

import signal

import pandas as pd
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.engine import Engine

QUERY = "SELECT r.b, count(*) AS n, sum(r.a) AS s FROM r JOIN s ON r.b = s.b GROUP BY r.b"
ROWS = "SELECT r.a, r.b, s.c FROM r JOIN s ON r.b = s.b"


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        con.execute("""
            CREATE TABLE r(a BIGINT PRIMARY KEY, b BIGINT);
            CREATE TABLE s(b BIGINT, c VARCHAR);
            INSERT INTO r VALUES (1, 10), (2, 10), (3, 20), (4, NULL);
            INSERT INTO s VALUES (10, 'x'), (10, 'x'), (20, NULL), (30, 'z');
        """)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
        con.execute(f"CREATE MATERIALIZED VIEW w AS {ROWS}")
        yield con


def rows(con, query):
    return sorted(con.execute(query).fetchall(), key=repr)


def state(con):
    return rows(con, "SELECT * FROM v"), rows(con, "SELECT * FROM w")


def agree(con):
    """The views, which must be what DuckDB computes in the same transaction."""
    found = state(con)
    assert found == (rows(con, QUERY), rows(con, ROWS))
    return found


WRITES = {
    "values": "INSERT INTO r VALUES (5, 10), (6, 30)",
    "by name": "INSERT INTO r BY NAME SELECT 20 AS b, 7 AS a",
    "select": "INSERT INTO r SELECT a + 100, b FROM r",
    "from a view": "INSERT INTO s SELECT n, 'n' FROM v",
    "default": "INSERT INTO s(b) VALUES (10)",
    "nothing": "INSERT INTO r VALUES (1, 30), (8, 30) ON CONFLICT DO NOTHING",
    "upsert": "INSERT INTO r VALUES (1, 30), (9, 30) ON CONFLICT (a) DO UPDATE SET b = excluded.b",
    "replace": "INSERT OR REPLACE INTO r VALUES (2, 30), (9, 30)",
    "update": "UPDATE r SET b = 30 WHERE a <= 2",
    "update key": "UPDATE r SET a = a + 1",
    "update from": "UPDATE s SET c = 'new' FROM r WHERE r.b = s.b AND r.a = 3",
    "update from a view": "UPDATE r SET b = v.n FROM v WHERE v.b = r.b",
    "delete": "DELETE FROM r WHERE b = 10",
    "delete using": "DELETE FROM s USING r WHERE r.b = s.b AND r.a = 1",
    "delete all": "DELETE FROM s",
    "truncate": "TRUNCATE r",
    "merge": "MERGE INTO r USING (VALUES (1, 20), (50, 10)) AS n(a, b) ON r.a = n.a "
    "WHEN MATCHED THEN UPDATE SET b = n.b WHEN NOT MATCHED THEN INSERT VALUES (n.a, n.b)",
    "merge delete": "MERGE INTO r USING (SELECT 1 AS a) AS n ON r.a = n.a WHEN MATCHED THEN DELETE",
    "with": "WITH n AS (SELECT 60 AS a, 10 AS b) INSERT INTO r SELECT * FROM n",
    "returning": "INSERT INTO s VALUES (10, 'r') RETURNING b, c",
    "no rows": "DELETE FROM r WHERE a = -1",
}


@pytest.mark.parametrize("sql", WRITES.values(), ids=WRITES)
def test_dml(con, sql):
    before, other, database = agree(con), con.cursor(), con.session.database
    epoch = database.engine.epoch
    for end in ("ROLLBACK", "COMMIT"):
        con.execute("BEGIN; INSERT INTO s VALUES (20, 'inside')")
        con.execute(sql)
        inside = agree(con)
        assert inside != before
        assert state(other) == before
        con.execute(end)
        assert agree(con) == agree(other) == (inside if end == "COMMIT" else before)
        assert database.engine.epoch == epoch + (end == "COMMIT")
    con.execute("DELETE FROM r; DELETE FROM s")
    con.execute("INSERT INTO r VALUES (1, 10), (2, 10), (3, 20); INSERT INTO s VALUES (10, 'x'), (20, NULL)")
    before, epoch = agree(con), database.engine.epoch
    con.execute(sql)
    after = agree(con)
    assert agree(other) == after
    assert database.engine.epoch == epoch + 1 or after == before


def test_results_of_writes(con):
    assert con.execute("INSERT INTO s VALUES (1, 'a'), (2, 'b')").fetchall() == [(2,)]
    assert con.execute("DELETE FROM s WHERE b < 3").fetchall() == [(2,)]
    huge = "(b + 170141183460469231731687303715884105697)::HUGEINT"
    assert con.execute(f"UPDATE r SET b = 30 WHERE a = 1 RETURNING a, {huge}").fetchall() == [(1, 2**127 - 1)]
    con.begin()
    assert sorted(con.execute("DELETE FROM r WHERE a < 3 RETURNING a").fetchall()) == [(1,), (2,)]
    con.rollback()


def test_parameters_and_executemany(con):
    epoch = con.session.database.engine.epoch
    con.executemany("INSERT INTO r VALUES (?, ?)", [(i, 10 * (i % 4)) for i in range(100, 150)])
    assert con.session.database.engine.epoch == epoch + 1
    agree(con)
    con.execute("UPDATE r SET b = $b WHERE a = $a", {"a": 100, "b": 30})
    con.executemany("DELETE FROM r WHERE a = ?", [[101], [102]])
    con.executemany("INSERT INTO r VALUES (?, ?) ON CONFLICT (a) DO UPDATE SET b = excluded.b", [[1, 30], [500, 30]])
    before = agree(con)
    with pytest.raises(sqlfront.IntegrityError):
        con.executemany("INSERT INTO r VALUES (?, ?)", [(900, 10), (901, 10), (900, 10)])
    assert agree(con) == before
    con.begin()
    con.executemany("INSERT INTO r VALUES (?, ?)", [(900, 10), (901, 10)])
    assert agree(con) != before
    con.commit()
    agree(con)


def test_copy_and_create_table_as_in_a_transaction(con, tmp_path):
    path, other = tmp_path / "s.csv", con.cursor()
    con.execute(f"COPY (SELECT b, c FROM w) TO '{path}' (HEADER)")
    con.begin().execute(f"COPY s FROM '{path}' (HEADER)")
    con.execute("CREATE TABLE t AS SELECT * FROM v")
    assert rows(con, "SELECT * FROM t") == agree(con)[0]
    assert state(other) != state(con)
    con.rollback()
    assert agree(con) == state(other)


def test_python_objects_of_the_users_frame(con):
    """Also under names of variables of ours: DuckDB looks into the user's frame only."""
    for name in ("frame", "text", "params", "connection", "statement", "session", "rows", "dml"):
        names = {"con": con, name: pd.DataFrame({"a": [700, 701], "b": [10, 30]})}
        for begin, end in (("", ""), ("BEGIN;", "COMMIT;")):
            use_python_object(con, names, name, begin, end)


def use_python_object(con, names, name, begin, end):
    exec(
        f"""
con.execute('''{begin}
    INSERT INTO r SELECT * FROM "{name}";
    UPDATE r SET b = 20 WHERE a IN (SELECT a FROM "{name}");
    INSERT OR REPLACE INTO r SELECT * FROM "{name}";''')
result = con.execute('SELECT * FROM v WHERE b IN (SELECT b FROM "{name}") ORDER BY b').fetchall()
assert con.sql('SELECT count(*) FROM "{name}"').fetchall() == [(2,)]
con.execute('''DELETE FROM r WHERE a IN (SELECT a FROM "{name}");{end}''')
""",
        names,
    )
    assert names["result"] == [(10, 6, 2 * 703), (30, 1, 701)]
    agree(con)


def test_a_variable_of_ours_is_no_table(con):
    for name in ("statement", "params", "connection", "dml"):
        with pytest.raises(sqlfront.ProgrammingError, match="does not exist"):
            con.execute(f"SELECT * FROM {name}")


def test_a_failed_statement_changes_nothing(con):
    before = agree(con)
    with pytest.raises(sqlfront.IntegrityError):
        con.execute("INSERT INTO r VALUES (800, 10), (1, 10)")
    with pytest.raises(sqlfront.DataError):
        con.execute("INSERT INTO r SELECT a + 1000, CAST(a || 'x' AS BIGINT) FROM r")
    assert agree(con) == before


@pytest.mark.parametrize("then", ["COMMIT", "ROLLBACK", "SELECT * FROM v", "INSERT INTO s VALUES (20, 'late')"])
def test_an_aborted_transaction(con, then):
    before = agree(con)
    con.begin().execute("INSERT INTO s VALUES (20, 'lost')")
    with pytest.raises(sqlfront.IntegrityError):
        con.execute("INSERT INTO r VALUES (1, 10)")
    if then == "ROLLBACK":
        con.execute(then)
    else:
        with pytest.raises(sqlfront.Error):
            con.execute(then)
    con.rollback()
    assert agree(con) == before
    con.execute("INSERT INTO s VALUES (20, 'after')")
    assert agree(con) != before


def test_transactions_of_two_cursors_do_not_mix(con):
    one, two = con.cursor(), con.cursor()
    one.begin().execute("INSERT INTO s VALUES (10, 'one')")
    two.begin().execute("INSERT INTO s VALUES (20, 'two')")
    assert (20, 1, 3) in state(one)[0]
    assert (20, 2, 6) in state(two)[0]
    agree(con)
    two.commit()
    one.commit()
    assert (20, 2, 6) in agree(con)[0]
    assert (10, 6, 9) in agree(con)[0]


def test_commit_refused_after_a_conflicting_update(con):
    one, two = con.cursor(), con.cursor()
    two.begin().execute("INSERT INTO s VALUES (30, 'two')")
    one.execute("UPDATE r SET b = 20 WHERE a = 1")
    with pytest.raises(sqlfront.Error):
        two.execute("UPDATE r SET b = 30 WHERE a = 1")
    with pytest.raises(sqlfront.Error):
        two.commit()
    assert agree(one) == agree(two) == agree(con)
    assert (30, "two") not in rows(con, "SELECT b, c FROM s")


def test_change_tables_join_the_transaction(con):
    con.execute("CREATE CHANGE TABLE t(a BIGINT, b BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW x AS SELECT t.a, s.c FROM t JOIN s ON t.b = s.b")
    other = con.cursor()
    con.begin()
    con.apply({"t": pa.table({"a": [1, 2], "b": [10, 30]})})
    con.apply_row("t", (3, 30))
    con.execute("INSERT INTO t VALUES (4, 30); INSERT INTO s VALUES (30, 'y'); UPDATE t SET a = a + 10 WHERE a > 2")
    expected = [(1, "x"), (1, "x"), (13, "y"), (13, "z"), (14, "y"), (14, "z"), (2, "y"), (2, "z")]
    assert rows(con, "SELECT * FROM x") == sorted(expected, key=repr)
    assert rows(con, "SELECT a FROM t") == [(1,), (13,), (14,), (2,)]
    assert rows(other, "SELECT * FROM x") == rows(other, "SELECT * FROM t") == []
    con.commit()
    assert rows(other, "SELECT * FROM x") == sorted(expected, key=repr)
    con.begin().apply_row("t", (99, 10), -1)
    with pytest.raises(sqlfront.IntegrityError, match="deleted more often"):
        con.commit()
    assert rows(other, "SELECT * FROM x") == sorted(expected, key=repr)


def test_apply_on_tables_is_one_epoch(con):
    before, epoch = agree(con), con.session.database.engine.epoch
    con.apply(
        {"r": pa.table({"a": [1, 90], "b": [10, 20], "_weight": [-1, 1]}), "s": pa.table({"b": [20], "c": ["n"]})}
    )
    after = agree(con)
    assert after != before
    assert con.session.database.engine.epoch == epoch + 1
    with pytest.raises(sqlfront.IntegrityError):
        con.apply({"s": pa.table({"b": [20, 10], "c": ["n", "x"], "_weight": [-2, -1]})})
    assert agree(con) == after


def test_python_transactions(con):
    before = agree(con)
    con.begin().execute("DELETE FROM r")
    con.rollback()
    assert con.rollback() is con.commit() is con
    assert agree(con) == before
    other = con.cursor()
    other.begin().execute("DELETE FROM r")
    other.close()
    assert agree(con) == before
    with pytest.raises(sqlfront.InterfaceError):
        other.execute("SELECT 1")
    with pytest.raises(sqlfront.NotSupportedError):
        con.begin().execute("CREATE MATERIALIZED VIEW x AS SELECT a FROM r")
    con.rollback()
    with pytest.raises(sqlfront.Error, match="transaction"):
        con.execute("BEGIN; BEGIN")
    con.rollback()
    assert agree(con) == before


@pytest.mark.parametrize("sql", ["UPDATE r SET b = 20", "COMMIT", "SELECT * FROM v"])
def test_interrupt_during_an_epoch(con, monkeypatch, sql):
    """Ctrl-C while an epoch is applied (in autocommit, at COMMIT, for a read): all of it is taken back."""
    before, apply = agree(con), Engine._apply

    def interrupted(engine, encoded, began):
        applied = apply(engine, encoded, began)
        signal.raise_signal(signal.SIGINT)
        return applied

    if not sql.startswith("UPDATE"):
        con.begin().execute("INSERT INTO s VALUES (10, 'x')")
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "_apply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            con.execute(sql)
    con.rollback()
    assert agree(con) == before
    con.execute("UPDATE r SET b = 20")
    assert agree(con) == agree(con.cursor()) != before


def test_computed_keys_are_those_of_their_rows(con):
    """DuckDB's own plan of IN with many constants would put the few rows of the first vector behind the others."""
    odd = ", ".join(f"'{number}'" for number in range(11, 30, 2))
    con.execute("INSERT INTO s SELECT range, range::VARCHAR FROM range(100, 5000)")
    con.execute(f"CREATE MATERIALIZED VIEW chosen AS SELECT c, substring(c FROM 1 FOR 2) IN ({odd}) AS odd FROM s")
    con.execute("UPDATE s SET c = '12' || c WHERE b < 109 OR b > 3000")
    assert con.execute("CHECK MATERIALIZED VIEW chosen").fetchall() == []
