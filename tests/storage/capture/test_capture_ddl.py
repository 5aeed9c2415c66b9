"""DDL on captured tables: what it means for the capture, and following it."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
import sqlglot

from sqlfront.storage.capture.capture import Capture, QualifiedName
from sqlfront.storage.capture.ddl_effects import classify

T = QualifiedName("main", "t")

VERDICTS = {
    "ALTER TABLE t ADD COLUMN z INT DEFAULT 5": "transparent",
    "ALTER TABLE t ALTER a SET DEFAULT 5": "transparent",
    "ALTER TABLE t ALTER a DROP DEFAULT": "transparent",
    "COMMENT ON COLUMN t.a IS 'x'": "transparent",
    "CREATE UNIQUE INDEX i ON t(a)": "transparent",
    "CREATE TABLE IF NOT EXISTS t(a INT)": "transparent",
    "TRUNCATE t": "transparent",
    "ALTER TABLE t ALTER a SET NOT NULL": "follow",
    "ALTER TABLE t ALTER a DROP NOT NULL": "follow",
    "ALTER TABLE t ADD PRIMARY KEY (a)": "follow",
    "ALTER TABLE t DROP COLUMN spare": "follow",
    "ALTER TABLE t DROP spare": "follow",
    "ALTER TABLE t ALTER spare TYPE VARCHAR": "follow",
    "ALTER TABLE t RENAME TO u": "follow",
    "ALTER TABLE t RENAME COLUMN a TO z": "follow",
    "ALTER TABLE t RENAME a TO z": "follow",
    "ALTER TABLE t ALTER A TYPE VARCHAR": "refuse",
    "ALTER TABLE t DROP COLUMN a": "refuse",
    "ALTER TABLE t DROP IF EXISTS a CASCADE": "refuse",
    "ALTER TABLE t SET (x = 1)": "refuse",
    "DROP TABLE t": "refuse",
    "DROP SCHEMA main CASCADE": "refuse",
    "DROP TRIGGER __sqlfront_insert ON t": "refuse",
    "CREATE OR REPLACE TABLE t AS SELECT 1 AS a": "refuse",
}


@pytest.mark.parametrize("statement", VERDICTS)
def test_verdicts(statement: str) -> None:
    verdict = classify(sqlglot.parse_one(statement, dialect="duckdb"), ["a", "b"])
    assert verdict.action == VERDICTS[statement], verdict


@pytest.fixture
def con() -> Any:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t(a INTEGER, b VARCHAR, spare INTEGER)")
    connection.execute("INSERT INTO t VALUES (1, 'x', 0)")
    yield connection
    connection.close()


HANDLED = [
    text for text, v in VERDICTS.items() if v != "refuse" and not text.startswith("COMMENT") and "TO u" not in text
]


@pytest.mark.parametrize("statement", HANDLED)
def test_the_capture_goes_on(con: Any, statement: str) -> None:
    capture = Capture("memory")
    capture.install(con, {T: ["b", "a"]})
    verdict = classify(sqlglot.parse_one(statement, dialect="duckdb"), capture.columns(T))
    if verdict.action == "follow":
        columns = dict([verdict.renamed_column]) if verdict.renamed_column else None
        capture.follow(con, T, statement, renamed_columns=columns)
    else:
        con.execute(statement)
        con.execute("BEGIN")
        capture.consume(con, capture.pending(con))
        con.execute("COMMIT")
    assert capture.check(con) is False
    first = capture.columns(T)[0]
    con.execute(f"INSERT INTO {T}({first}) VALUES (7)")
    [batch] = capture.pending(con).tables.values()
    assert batch.to_pydict() == {first: [7], "b": [None], "_weight": [1]}
    assert first == ("z" if "TO z" in statement else "a")


def test_following_keeps_unread_changes(con: Any) -> None:
    capture = Capture("memory")
    capture.install(con, {T: ["a"]})
    con.execute("INSERT INTO t VALUES (2, 'y', 0)")
    capture.follow(con, T, "ALTER TABLE t RENAME a TO z", renamed_columns={"a": "z"})
    assert capture.check(con) is True
    assert capture.pending(con).tables[T].to_pydict() == {"z": [2], "_weight": [1]}


def test_a_refused_alter_leaves_the_capture_in_place(con: Any) -> None:
    capture = Capture("memory")
    capture.install(con, {T: ["a"]})
    con.execute("INSERT INTO t VALUES (NULL, 'y', 0)")
    with pytest.raises(duckdb.Error):
        capture.follow(con, T, "ALTER TABLE t ALTER a SET NOT NULL")
    assert capture.check(con) is True
    con.execute("DELETE FROM t")
    assert capture.pending(con).tables[T].num_rows == 3
