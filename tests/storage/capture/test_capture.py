"""Capture on DuckDB tables: set-up, transactions, bypassing writers, integrity, garbage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlfront.storage.capture.capture import Capture, QualifiedName
from sqlfront.storage.capture.prepared import ask
from sqlfront.storage.capture.trigger_sql import Captured, pending_query
from sqlfront.storage.errors import NotSupportedError, OperationalError, ProgrammingError
from tests.storage.capture.captured import T, take

# -- set-up


def test_columns_may_be_spelled_in_any_case(con: Any) -> None:
    con.execute('CREATE TABLE spelled (a INT, "B" INT)')
    capture = Capture("memory")
    assert capture.install(con, {QualifiedName("main", "spelled"): ["a", "B"]})
    con.execute("INSERT INTO spelled VALUES (1, 2)")
    assert not capture.install(con, {QualifiedName("main", "spelled"): ["A", "b"]})


class Counting:
    """A connection that counts the calls of its `execute`."""

    def __init__(self, con: Any) -> None:
        self.con, self.calls = con, 0

    def execute(self, *arguments: Any) -> Any:
        self.calls += 1
        return self.con.execute(*arguments)


def test_few_questions_capture_a_table_and_trust_many(con: Any) -> None:
    tables = [QualifiedName("main", f"t{number}") for number in range(5)]
    for table in tables:
        con.execute(f"CREATE TABLE {table} (a INT, b INT)")
    counting = Counting(con)
    Capture("memory").install(counting, {table: ["a"] for table in tables})
    assert counting.calls == 9
    counting.calls, capture = 0, Capture("memory")
    assert capture.open(counting) == [] and capture.tables() == tables
    assert counting.calls == 8


def test_triggers_that_an_unknown_capture_has_left_go(con: Any) -> None:
    con.execute("CREATE TABLE log (n INT)")
    con.execute("CREATE TRIGGER __sqlfront_insert AFTER INSERT ON t FOR EACH STATEMENT INSERT INTO log VALUES (1)")
    capture = Capture("memory")
    assert capture.install(con, {T: ["a"]}) == {T}
    con.execute("INSERT INTO t VALUES (1, 'x')")
    assert take(capture, con) == {(1,): 1}


def test_install_is_idempotent_and_widens(con: Any) -> None:
    capture = Capture("memory")
    assert capture.install(con, {T: ["A"]}) == {T}
    assert not capture.install(con, {T: ["a"]})
    assert capture.columns(T) == ("a",)
    con.execute("INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(OperationalError, match="cannot be widened"):
        capture.install(con, {T: ["b"]})
    assert take(capture, con) == {(1,): 1}
    assert capture.install(con, {T: ["b"]}) == {T}
    con.execute("INSERT INTO t VALUES (2, 'y')")
    assert take(capture, con) == {(2, "y"): 1}
    assert capture.tables() == [T]


def test_a_table_without_needed_columns_is_captured_by_multiplicity(con: Any) -> None:
    capture = Capture("memory")
    capture.install(con, {T: []})
    con.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    con.execute("DELETE FROM t WHERE a = 1")
    assert take(capture, con) == {(): 1}


def test_uninstall_leaves_nothing(con: Any, capture: Capture) -> None:
    con.execute("INSERT INTO t VALUES (1, 'x')")
    capture.uninstall(con, [T])
    assert con.execute("SELECT count(*) FROM duckdb_triggers()").fetchone() == (0,)
    assert con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = '__sqlfront'").fetchall() == [
        ("captures",)
    ]
    assert capture.check(con) is False
    capture.uninstall(con, [T])
    con.execute("DROP TABLE t")
    capture.uninstall(con, [T])


@pytest.mark.parametrize(
    ("prepare", "table", "columns", "error"),
    [
        ("", QualifiedName("main", "absent"), ["a"], ProgrammingError),
        ("", T, ["zz"], ProgrammingError),
        ("CREATE VIEW v AS FROM t", QualifiedName("main", "v"), ["a"], ProgrammingError),
        ("CREATE TEMP TABLE u(a INT)", QualifiedName("main", "u"), ["a"], ProgrammingError),
        ("CREATE TABLE w(_weight INT)", QualifiedName("main", "w"), ["_weight"], NotSupportedError),
        ("CREATE SCHEMA __sqlfront", QualifiedName("__sqlfront", "t"), [], NotSupportedError),
    ],
)
def test_what_cannot_be_captured_is_refused(con: Any, prepare: str, table: Any, columns: Any, error: Any) -> None:
    con.execute(prepare or "SELECT 1")
    with pytest.raises(error):
        Capture("memory").install(con, {table: columns})
    assert con.execute("SELECT count(*) FROM duckdb_triggers()").fetchone() == (0,)


@pytest.mark.parametrize("path", [":memory:", "file.db"])
@pytest.mark.parametrize("write", ["INSERT INTO t VALUES (9)", "DELETE FROM t", "UPDATE t SET a = a + 1"])
@pytest.mark.parametrize("first", ["write", "read"])
def test_a_transaction_older_than_the_triggers_cannot_write_past_them(
    tmp_path: Path, path: str, write: str, first: str
) -> None:
    con = duckdb.connect(path if path == ":memory:" else str(tmp_path / path))
    con.execute("CREATE TABLE t(a INTEGER); INSERT INTO t VALUES (1); CREATE TABLE other(x INTEGER)")
    old, capture = con.cursor(), Capture(con.execute("SELECT current_database()").fetchone()[0])
    old.execute("BEGIN")
    old.execute(write if first == "write" else "FROM other").fetchall()
    with pytest.raises(OperationalError, match="another transaction is in the way"):
        capture.install(con, {T: ["a"]}, patience=0.02)
    assert capture.tables() == []
    old.execute(write)
    old.execute("COMMIT")
    assert capture.install(con, {T: ["a"]}) == {T}
    con.execute("INSERT INTO t VALUES (5)")
    assert take(capture, con) == {(5,): 1}


def test_an_older_transaction_fails_when_the_capture_is_widened(con: Any) -> None:
    capture, old = Capture("memory"), con.cursor()
    capture.install(con, {T: ["a"]})
    old.execute("BEGIN")
    old.execute("INSERT INTO t VALUES (1, 'x')")
    capture.install(con, {T: ["a", "b"]})
    with pytest.raises(duckdb.TransactionException, match="conflict"):
        old.execute("COMMIT")
    assert con.execute("FROM t").fetchall() == []
    assert capture.check(con) is False


def test_install_inside_a_transaction_goes_with_it(con: Any) -> None:
    capture = Capture("memory")
    con.execute("BEGIN")
    capture.install(con, {T: ["a"]}, in_transaction=True)
    con.execute("ROLLBACK")
    capture.reload(con)
    assert capture.tables() == []
    con.execute("BEGIN")
    capture.install(con, {T: ["a"]}, in_transaction=True)
    con.execute("COMMIT")
    capture.settle(con, [T])
    capture.reload(con)
    assert capture.tables() == [T]
    assert capture.check(con) is False


# -- writers


def test_a_writer_whose_default_database_is_another(con: Any, capture: Capture) -> None:
    raw = con.cursor()
    raw.execute("ATTACH ':memory:' AS other; USE other")
    raw.execute("BEGIN")
    raw.execute("INSERT INTO memory.main.t VALUES (1, 'x')")
    assert not capture.check(raw)
    raw.execute("COMMIT")
    assert capture.check(raw)
    assert take(capture, con) == {(1, "x"): 1}


def test_every_way_in(con: Any, capture: Capture) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2], "b": ["p", "q"]})
    con.execute("INSERT INTO t FROM frame")
    con.append("t", frame)
    con.execute("WITH w AS (INSERT INTO t VALUES (7, 'cte') RETURNING a) FROM w").fetchall()
    con.execute("EXPLAIN ANALYZE INSERT INTO t VALUES (8, 'explained')").fetchall()
    con.execute("PREPARE p AS INSERT INTO t VALUES ($1, 'prepared')")
    con.execute("EXECUTE p(9)")
    assert take(capture, con) == {
        (1, "p"): 2, (2, "q"): 2, (7, "cte"): 1, (8, "explained"): 1, (9, "prepared"): 1,
    }  # fmt: skip
    con.execute("TRUNCATE t")
    assert sum(take(capture, con).values()) == -7


def test_a_connection_keeps_a_bounded_number_of_queries_prepared(con: Any) -> None:
    assert [ask(con, f"SELECT {i}") for i in range(150)] == [[(i,)] for i in range(150)]
    assert con.execute("SELECT count(*) FROM duckdb_prepared_statements()").fetchall() == [(0,)]
    for i in range(150):
        assert [ask(con, f"SELECT {i}") for _ in range(3)] == [[(i,)]] * 3
    assert con.execute("SELECT count(*) FROM duckdb_prepared_statements()").fetchall() == [(100,)]


def test_many_tables_are_watched_at_once(con: Any, capture: Capture) -> None:
    for i in range(4):
        con.execute(f"CREATE TABLE t{i}(a INTEGER)")
        capture.install(con, {QualifiedName("main", f"t{i}"): ["a"]})
    for i in (3, 0):
        assert not capture.check(con)
        con.execute(f"INSERT INTO t{i} VALUES ({i})")
        assert capture.check(con)
        assert capture.check(con)
        assert take(capture, con) == {(i,): 1}
        assert not capture.check(con), "consumed rows leave dead ones behind, which are no changes"
        assert not capture.check(con)
    con.execute("DROP TABLE t2")
    with pytest.raises(OperationalError, match="t2"):
        capture.check(con)


def test_triggers_of_the_users_are_seen_through(con: Any, capture: Capture) -> None:
    con.execute("CREATE TABLE log(a INTEGER)")
    con.execute(
        "CREATE TRIGGER mine AFTER INSERT ON log REFERENCING NEW TABLE AS n FOR EACH STATEMENT "
        "INSERT INTO t SELECT a, 'by trigger' FROM n"
    )
    con.execute("INSERT INTO log VALUES (4)")
    assert take(capture, con) == {(4, "by trigger"): 1}


SCALARS = {
    "BOOLEAN": "true", "TINYINT": "-128", "UBIGINT": "18446744073709551615",
    "HUGEINT": "-170141183460469231731687303715884105728", "DECIMAL(38, 5)": "123456789012345678901234567890123.45678",
    "DOUBLE": "'nan'", "FLOAT": "-0.0", "DATE": "'infinity'", "TIME": "'23:59:59.999999'",
    "TIMESTAMP": "'2020-01-01 00:00:00.000001'", "TIMESTAMPTZ": "'2020-01-01 12:00:00+02'",
    "TIMESTAMP_NS": "'2020-01-01 00:00:00.000000001'", "INTERVAL": "INTERVAL '1 month 3 days'",
    "UUID": "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "BLOB": "'\\x00\\xFF'::BLOB", "BIT": "'0101'",
    "ENUM('sad', 'it''s')": "'it''s'", "VARCHAR": "'é\"'''", "INTEGER[]": "[1, NULL]",
    "STRUCT(x INTEGER, y VARCHAR)": "{'x': 1, 'y': NULL}", "MAP(VARCHAR, INTEGER)": "MAP {'k': 1}", "UHUGEINT": "7",
}  # fmt: skip


@pytest.mark.parametrize("kind", SCALARS)
def test_types_keep_their_values(kind: str) -> None:
    con, capture = duckdb.connect(), Capture("memory")
    con.execute(f"CREATE TABLE t(k INTEGER PRIMARY KEY, v {kind})")
    capture.install(con, {T: ["k", "v"]})
    con.execute(f"INSERT INTO t VALUES (1, {SCALARS[kind]}), (2, NULL)")
    capture.run_upsert_or_merge(con, T, f"INSERT OR REPLACE INTO t VALUES (2, {SCALARS[kind]}), (1, NULL)")
    images = f"({pending_query(capture.database, Captured(T, 1, ('k', 'v')), None)})"
    [(found,)] = con.execute(f"SELECT typeof(v) FROM {images} LIMIT 1").fetchall()
    assert con.execute(f"SELECT typeof(NULL::{kind})").fetchone() == (found,)
    expected = con.execute(f"SELECT CAST({SCALARS[kind]} AS {kind})::VARCHAR").fetchone()[0]
    rows = con.execute(f"SELECT k, v::VARCHAR, sum(_weight)::INT FROM {images} GROUP BY ALL HAVING sum(_weight) <> 0")
    assert sorted(rows.fetchall(), key=str) == sorted([(1, None, 1), (2, expected, 1)], key=str)
    assert capture.pending(con).tables[T].num_rows == 6


# -- integrity


@pytest.mark.parametrize(
    "sabotage",
    [
        "DROP TRIGGER __sqlfront_insert ON t",
        "DROP TABLE t",
        "DROP TABLE t; CREATE TABLE t(a INTEGER, b VARCHAR)",
        "CREATE OR REPLACE TABLE t AS SELECT 1 AS a, 'x' AS b",
        "DROP SCHEMA __sqlfront CASCADE",
    ],
)
def test_a_broken_capture_raises(con: Any, capture: Capture, sabotage: str) -> None:
    capture.verify(con)
    con.execute(sabotage)
    with pytest.raises(OperationalError, match="cannot be trusted") as caught:
        capture.check(con)
    assert "REFRESH MATERIALIZED VIEW" in str(caught.value)
    assert ("schema __sqlfront" if "SCHEMA" in sabotage else 'table "main"."t"') in str(caught.value)
    with pytest.raises(OperationalError):
        capture.verify(con, [T])


def test_a_trigger_made_again_by_hand_is_not_trusted(con: Any, capture: Capture) -> None:
    query = "SELECT sql FROM duckdb_triggers() WHERE trigger_name = '__sqlfront_insert'"
    [(definition,)] = con.execute(query).fetchall()
    con.execute("DROP TRIGGER __sqlfront_insert ON t")
    con.execute("INSERT INTO t VALUES (1, 'unseen')")
    con.execute(definition)
    with pytest.raises(OperationalError, match="cannot be trusted"):
        capture.check(con)
    assert capture.install(con, {T: ["a"]}) == {T}  # what REFRESH does before it rebuilds
    assert capture.check(con) is False
    con.execute("INSERT INTO t VALUES (2, 'seen')")
    assert take(capture, con) == {(2,): 1}


def test_sabotage_that_is_rolled_back_does_no_harm(con: Any, capture: Capture) -> None:
    con.execute("BEGIN")
    con.execute("DROP TABLE t")
    with pytest.raises(OperationalError):
        capture.check(con)
    con.execute("ROLLBACK")
    assert capture.check(con) is False


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME a TO z",
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE t ALTER a TYPE BIGINT",
        "ALTER TABLE t ALTER a SET NOT NULL",
        "DROP TABLE __sqlfront.delta_1",
        "INSERT OR REPLACE INTO k VALUES (1)",
        "MERGE INTO t USING t s ON false WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_duckdb_itself_refuses_what_would_bypass_the_triggers(con: Any, capture: Capture, statement: str) -> None:
    con.execute("CREATE TABLE k(a INTEGER PRIMARY KEY)")
    capture.install(con, {QualifiedName("main", "k"): ["a"]})
    with pytest.raises((duckdb.DependencyException, duckdb.NotImplementedException)):
        con.execute(statement)
