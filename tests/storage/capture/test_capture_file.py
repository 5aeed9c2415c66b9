"""Captures in database files that are closed and opened again, and the space they take."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sqlfront.storage.capture import setup
from sqlfront.storage.capture.capture import Capture
from sqlfront.storage.capture.trigger_sql import trigger_ddl
from sqlfront.storage.errors import OperationalError
from tests.storage.capture.captured import T, take


def test_reopening_adopts_the_capture_and_its_leftovers(tmp_path: Path) -> None:
    path = str(tmp_path / "it's a file.db")
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t(a INTEGER, b VARCHAR)")
        database = con.execute("SELECT current_database()").fetchone()[0]
        Capture(database).install(con, {T: ["a"]})
    with duckdb.connect(path) as con:
        for _ in range(30):
            con.execute("FROM t").fetchall()
        con.execute("INSERT INTO t VALUES (1, 'while away')")
    with duckdb.connect(path) as con:
        capture = Capture(database)
        assert capture.open(con) == []
        assert (capture.tables(), capture.columns(T)) == ([T], ("a",))
        for _ in range(60):  # ids of transactions start again: none may be taken for the leftover's
            con.execute("BEGIN")
            assert capture.pending(con, own=True).tables == {}
            assert capture.check(con) is True
            con.execute("ROLLBACK")
        assert take(capture, con, own=False) == {(1,): 1}
        assert capture.check(con) is False


def test_reopening_knows_a_column_that_was_renamed(tmp_path: Path) -> None:
    path = str(tmp_path / "file.db")
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t(a INTEGER)")
        capture = Capture("file")
        capture.install(con, {T: ["a"]})
        capture.follow(con, T, "ALTER TABLE t RENAME a TO z", renamed_columns={"a": "z"})
    with duckdb.connect(path) as con:
        capture = Capture("file")
        assert capture.open(con) == []
        con.execute("INSERT INTO t VALUES (1)")
        assert capture.columns(T) == ("z",)
        assert take(capture, con) == {(1,): 1}


@pytest.mark.parametrize(
    "sabotage",
    [
        "DROP TRIGGER __sqlfront_update ON t",
        "DROP TABLE t; CREATE TABLE t(a INTEGER)",
        "DROP TABLE t",
        "DROP TRIGGER __sqlfront_insert ON t; CREATE TRIGGER __sqlfront_insert AFTER INSERT ON t "
        "REFERENCING NEW TABLE AS n FOR EACH STATEMENT INSERT INTO __sqlfront.delta_1 SELECT 1, 1, 5 FROM n",
    ],
)
def test_reopening_after_sabotage_reports_it(tmp_path: Path, sabotage: str) -> None:
    path = str(tmp_path / "file.db")
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t(a INTEGER)")
        Capture("file").install(con, {T: ["a"]})
        con.execute(sabotage)
    with duckdb.connect(path) as con:
        capture = Capture("file")
        [problem] = capture.open(con)
        assert "cannot be trusted" in str(problem)
        with pytest.raises(OperationalError):
            capture.check(con)
        con.execute("CREATE TABLE IF NOT EXISTS t(a INTEGER)")
        assert capture.install(con, {T: ["a"]}) == {T}
        con.execute("INSERT INTO t VALUES (1)")
        assert take(capture, con) == {(1,): 1}


def test_a_renamed_or_attached_file_is_captured_on(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "one.db")) as con:
        con.execute("CREATE TABLE t(a INTEGER)")
        Capture("one").install(con, {T: ["a"]})
    (tmp_path / "one.db").rename(tmp_path / "two.db")
    with duckdb.connect(str(tmp_path / "two.db")) as con:
        con.execute("INSERT INTO t VALUES (1)")
        con.execute("CREATE SCHEMA s; USE s; UPDATE main.t SET a = 2")
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{tmp_path}/two.db' AS three")
        with pytest.raises(duckdb.CatalogException, match="__sqlfront"):
            con.execute("INSERT INTO three.t VALUES (5)")
        con.execute("USE three; INSERT INTO t VALUES (3)")
    with duckdb.connect(str(tmp_path / "two.db")) as con:
        capture = Capture("two")
        assert capture.open(con) == []
        con.execute("INSERT INTO t VALUES (4)")
        assert take(capture, con) == {(2,): 1, (3,): 1, (4,): 1}


def test_a_body_never_writes_to_another_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with duckdb.connect(str(tmp_path / f"{name}.db")) as con:
            con.execute("CREATE TABLE t(a INTEGER)")
            Capture(name).install(con, {T: ["a"]})
    with duckdb.connect(str(tmp_path / "one.db")) as con:
        con.execute(f"ATTACH '{tmp_path}/two.db'")
        with pytest.raises(duckdb.TransactionException, match="single attached database"):
            con.execute("INSERT INTO two.t VALUES (1)")
        for query in ("FROM two.t", "FROM two.__sqlfront.delta_1", "FROM one.__sqlfront.delta_1"):
            assert con.execute(query).fetchall() == []


def test_triggers_that_name_their_file_are_renewed(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "one.db")) as con:
        con.execute("CREATE TABLE t(a INTEGER)")
        Capture("one").install(con, {T: ["a"]})
        con.execute("INSERT INTO t VALUES (1)")
        [captured] = setup.booked(con, "one")
        setup.drop_triggers(con, "one", [T])  # As they were made before.
        con.execute(";".join(trigger_ddl("one", captured, "one")))
        setup.unbook(con, "one", [captured])
        setup.book(con, "one", "one", {captured: setup.triggers(con, "one", [T])[T]})
    (tmp_path / "one.db").rename(tmp_path / "two.db")
    with duckdb.connect(str(tmp_path / "two.db")) as con:
        with pytest.raises(duckdb.CatalogException, match="one"):
            con.execute("INSERT INTO t VALUES (2)")
        assert Capture("two").open(con) == []
    with duckdb.connect(str(tmp_path / "two.db")) as con:
        con.execute("INSERT INTO t VALUES (2)")
        capture = Capture("two")
        assert capture.open(con) == []
        assert take(capture, con) == {(1,): 1, (2,): 1}


# -- garbage


@pytest.mark.parametrize("path", [":memory:", "file.db"])
def test_the_delta_table_does_not_grow(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlfront.storage.capture.capture.DEAD_ROWS_BEFORE_CHECKPOINT", 64)
    con = duckdb.connect(path if path == ":memory:" else str(tmp_path / path))
    con.execute("CREATE TABLE t(a INTEGER)")
    capture = Capture(con.execute("SELECT current_database()").fetchone()[0])
    capture.install(con, {T: ["a"]})

    def stored() -> int:
        query = "SELECT estimated_size FROM duckdb_tables() WHERE table_name = 'delta_1'"
        return con.execute(query).fetchall()[0][0]

    for value in range(140):
        con.execute("BEGIN")
        con.execute(f"INSERT INTO t VALUES ({value})")
        assert take(capture, con, own=True) == {(value,): 1}
        con.execute("COMMIT")
    assert stored() == 0, "own changes must never reach the delta table"
    raw, most, compactions = con.cursor(), 0, 0
    for value in range(140):
        raw.execute(f"INSERT INTO t VALUES ({value})")
        assert [batch.num_rows for batch in capture.take(con, own=False).values()] == [1]
        compactions += capture.compact(con)
        most = max(most, stored())
    assert compactions == 2
    assert most <= 65
