"""The log of a snapshot: a killed process leaves a file that is opened without a build, if the log fits."""

from __future__ import annotations

import datetime
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.database import durable
from sqlfront.snapshots import contents, saving, snapshot_file, unfinished
from sqlfront.snapshots.snapshot_file import LOG
from sqlfront.storage.outside import epoch_log
from sqlfront.storage.outside.epoch_log import EpochLog
from tests.sqlfront.snapshots.test_snapshots import (
    TABLES,
    VIEWS,
    WRITES,
    check,
    check_tables,
    copy_of,
    is_adopted,
    manifest,
    rows,
)

FEW = ("joined", "totals", "above", "kept", "passed")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data.duckdb")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of few views, with its snapshot."""
    path = str(tmp_path_factory.mktemp("template") / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        for name in FEW:
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
        for write in WRITES[:6]:
            con.execute(write)
    return path


@pytest.fixture
def con(template: str, path: str):
    """A copy of the template, which is open."""
    copy_of(template, path)
    with sqlfront.connect(path) as con:
        con.execute("CHECKPOINT")
        yield con


def killed(path: str, tmp_path: Path, name: str = "killed") -> str:
    """The path of what a process leaves if it is killed now."""
    left = tmp_path / name / "data.duckdb"
    left.parent.mkdir()
    for end in ("", ".wal"):
        if os.path.exists(path + end):
            shutil.copy(path + end, f"{left}{end}")
    shutil.copytree(snapshot_file.folder_of(path), snapshot_file.folder_of(str(left)))
    return str(left)


def check_same(con: sqlfront.Connection, other: sqlfront.Connection) -> None:
    """Two files hold the same rows, and views that are right."""
    for name in FEW:
        assert rows(con, name) == rows(other, name), name
    check(other)
    check_tables(other)


WAYS: dict[str, Callable[[sqlfront.Connection], object]] = {
    "INSERT VALUES": lambda con: con.execute("INSERT INTO t VALUES (1, 'größer', 0.1), (NULL, NULL, NULL)"),
    "executemany": lambda con: con.executemany("INSERT INTO t VALUES (?, ?, ?)", [(2, "a", 1.5), (2, "a", 1e300)]),
    "INSERT SELECT": lambda con: con.execute("INSERT INTO u SELECT i, i / 4 FROM range(50) x(i)"),
    "UPDATE": lambda con: con.execute("UPDATE u SET d = d + 1 WHERE a = 3"),
    "UPDATE of many": lambda con: con.execute("UPDATE t SET f = -f"),
    "DELETE": lambda con: con.execute("DELETE FROM t WHERE a = 2"),
    "MERGE": lambda con: con.execute(
        "MERGE INTO u USING (SELECT 5 AS a, 7 AS d) AS s ON u.a = s.a "
        "WHEN MATCHED THEN UPDATE SET d = s.d WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.d)"
    ),
    "BEGIN": lambda con: con.execute(
        "BEGIN; INSERT INTO t VALUES (3, 'both', 1); DELETE FROM u WHERE a < 3; INSERT INTO k VALUES (77, 'x'); COMMIT"
    ),
    "ROLLBACK": lambda con: con.execute("BEGIN; DELETE FROM t; FROM totals; ROLLBACK"),
    "change table": lambda con: con.execute("INSERT INTO k VALUES (50, 'one'); UPDATE k SET name = 'two' WHERE a = 5"),
    "rows that pass": lambda con: con.execute("INSERT INTO p VALUES ('one'), ('one')"),
    "another writer, not taken in": lambda con: con.session.database.cursor().execute("UPDATE t SET f = 9 WHERE a = 1"),
    "another writer, taken in": lambda con: (
        con.session.database.cursor().execute("INSERT INTO t VALUES (6, 'past', 1); DELETE FROM u WHERE a = 7"),
        con.execute("FROM totals").fetchall(),
    ),
    "apply": lambda con: con.apply({"t": pa.table({"a": [4], "s": ["applied"], "f": [2.0], "_weight": [2]})}),
    "emptying": lambda con: con.execute("DELETE FROM t; DELETE FROM u; DELETE FROM k"),
    "one more": lambda con: con.execute("INSERT INTO t VALUES (1, 'last', 1)"),
}


def test_all_ways_of_writing_are_in_the_log(con, path, tmp_path):
    """After some, what a killed process leaves, and what is left if that one is killed as well."""
    for number, (way, write) in enumerate(WAYS.items()):
        write(con)
        if number % 4 == 3:
            left = killed(path, tmp_path, f"{number}")
            with sqlfront.connect(left) as other:
                assert is_adopted(other), way
                check_same(con, other)
                other.execute("INSERT INTO t VALUES (9, 'after', 3)")
                again = killed(left, tmp_path, f"{number} again")
                if number == 3:
                    with sqlfront.connect(again) as third:
                        assert is_adopted(third), way
                        check_same(other, third)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("write", ["UPDATE t SET f = f + 1 WHERE a = 3", "INSERT INTO t VALUES (3, 'x', 1)"])
def test_the_last_epoch_counts_if_it_was_committed(con, path, tmp_path, monkeypatch, write, committed):
    """A process that is killed between its log and COMMIT, or after it; the tables tell which."""
    left = []
    con.execute("INSERT INTO u VALUES (1, 1)")
    log = durable.log_epoch

    def kill(*given):
        log(*given)
        left.append(killed(path, tmp_path))

    with monkeypatch.context() as patched:
        for module in ("sqlfront.write.returned", "sqlfront.database.transactions"):
            patched.setattr(f"{module}.log_epoch", log if committed else kill)
        before = rows(con, "totals")
        con.execute(write)
    [copy] = left or [killed(path, tmp_path)]
    with sqlfront.connect(copy) as other:
        assert is_adopted(other)
        check(other)
        assert rows(other, "totals") == (rows(con, "totals") if committed else before)
        other.execute("INSERT INTO t VALUES (3, 'again', 1)")
        with sqlfront.connect(killed(copy, tmp_path, "again")) as third:
            assert is_adopted(third), "the epoch that was not committed is not in the log any more"
            check(third)


def test_a_commit_that_fails_is_taken_back(con, path, tmp_path):
    con.execute("CREATE TABLE unique_ones (a BIGINT PRIMARY KEY)")
    con.execute("CREATE MATERIALIZED VIEW ones AS SELECT count(*) AS n FROM unique_ones")
    con.execute("INSERT INTO unique_ones VALUES (1)")
    con.execute("CHECKPOINT")
    [log] = con.session.database.logs
    before = log.size
    with pytest.raises(sqlfront.Error):
        con.execute("INSERT INTO unique_ones VALUES (2), (1)")
    assert log.size == before
    con.execute("INSERT INTO unique_ones VALUES (3)")
    with sqlfront.connect(killed(path, tmp_path)) as other:
        assert is_adopted(other)
        assert rows(other, "ones") == [(2,)]


def unseen(path: str) -> None:
    """Update rows of a table without its triggers, and make these again: their number is as before."""
    with duckdb.connect(path) as plain:
        triggers = plain.execute("SELECT trigger_name, sql FROM duckdb_triggers() WHERE table_name = 't'").fetchall()
        for name, _ in triggers:
            plain.execute(f'DROP TRIGGER "{name}" ON t')
        plain.execute("UPDATE t SET f = f + 1 WHERE a = 3")
        for _, definition in triggers:
            plain.execute(definition)


def spoil(path: str, how: str) -> None:
    [log] = snapshot_file.folder_of(path).glob(f"*/{LOG}")
    whole = log.read_bytes()
    records = epoch_log.records(log)
    ends = [one.end for one in records]
    match how:
        case "the last two epochs are lost":
            log.write_bytes(whole[: ends[-3]])
        case "an epoch has changed":
            log.write_bytes(whole[: ends[0] + 20] + bytes([whole[ends[0] + 20] ^ 1]) + whole[ends[0] + 21 :])
        case "an epoch came twice":
            log.write_bytes(whole + whole[ends[-2] : ends[-1]] * 2)
        case "it is gone":
            log.unlink()
        case "it is empty":
            log.write_bytes(b"")
        case "rows have changed unseen":
            unseen(path)
        case "a view was dropped":
            with duckdb.connect(path) as plain:
                plain.execute("DELETE FROM __sqlfront.views WHERE name = 'above'")


@pytest.mark.parametrize(
    ("how", "why"),
    {
        "the last two epochs are lost": "changed unseen",
        "an epoch has changed": "changed unseen",
        "an epoch came twice": "changed unseen",
        "it is gone": "was not closed",
        "it is empty": "was not closed",
        "rows have changed unseen": "changed unseen",
        "a view was dropped": "altered or dropped",
    }.items(),
)
def test_a_log_that_does_not_fit_is_not_used(con, path, tmp_path, caplog, how, why):
    for number in range(4):
        con.execute(f"UPDATE t SET f = f * 2 WHERE a = {number}")
    left = killed(path, tmp_path)
    spoil(left, how)
    with sqlfront.connect(left) as other:
        assert not is_adopted(other)
        check(other)
    assert why in caplog.text


def test_a_record_that_is_not_whole_was_not_committed(con, path, tmp_path):
    con.execute("INSERT INTO t VALUES (1, 'whole', 1)")
    left = killed(path, tmp_path)
    [log] = snapshot_file.folder_of(left).glob(f"*/{LOG}")
    log.write_bytes(log.read_bytes() + b"\x40\0\0\0\0\0\0\0half a record")
    for _ in range(2):  # The file is closed with the state of the log, though nothing else has changed.
        with sqlfront.connect(left) as other:
            assert is_adopted(other)
            assert rows(other, "totals") == rows(con, "totals")


def test_a_log_that_grows_too_long_is_given_up(con, path, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(contents, "LOG_FROM", 1000)
    monkeypatch.setattr(contents, "LOG_SHARE", 0)
    con.execute("INSERT INTO t VALUES (1, 'first', 1); CHECKPOINT")
    con.execute("INSERT INTO t SELECT i, 'text', i FROM range(1000) x(i)")
    assert not con.session.database.logs[0].holds
    con.execute("INSERT INTO t VALUES (1, 'later', 1)")
    with sqlfront.connect(killed(path, tmp_path)) as other:
        assert not is_adopted(other)
        check_same(con, other)
    con.execute("CHECKPOINT")
    with sqlfront.connect(killed(path, tmp_path, "again")) as other:
        assert is_adopted(other)
        check_same(con, other)


def test_a_log_that_cannot_be_written_fails_no_epoch(con, path, tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        con.execute("INSERT INTO t VALUES (1, 'full', 1)")
    con.execute("INSERT INTO t VALUES (1, 'after', 1)")
    assert not con.session.database.logs[0].holds
    check(con)
    with sqlfront.connect(killed(path, tmp_path)) as other:
        assert not is_adopted(other)
        check_same(con, other)


def test_a_column_that_is_added_for_a_view_ends_the_log(con, path, tmp_path):
    con.execute("CREATE TABLE wide (a BIGINT, b BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW narrow AS SELECT sum(a) AS s FROM wide")
    con.execute("INSERT INTO wide VALUES (1, 2); CHECKPOINT")
    con.execute("ALTER TABLE wide ADD COLUMN c VARCHAR DEFAULT 'x'")
    con.execute("CREATE MATERIALIZED VIEW wider AS SELECT b, c, count(*) AS n FROM wide GROUP BY b, c")
    con.execute("INSERT INTO wide VALUES (3, 4, 'y')")
    assert not con.session.database.logs[0].holds
    with sqlfront.connect(killed(path, tmp_path)) as other:
        assert rows(other, "narrow") == [(4,)]
        assert rows(other, "wider") == [(2, "x", 1), (4, "y", 1)]
        check(other)


def test_values_of_all_kinds_come_back_from_texts(tmp_path):
    relations = {"r": 1}
    values = [
        True, 2**100, -0.0, float("nan"), float("inf"), 0.1, Decimal("-1.50"), Decimal("1E+3"), "'é\0", b"\0'\xff",
        datetime.date(9, 1, 31), datetime.datetime(2026, 1, 31, 23, 59, 59, 999999), UUID(int=5), None,
    ]  # fmt: skip
    types = [
        "BOOLEAN", "HUGEINT", "DOUBLE", "DOUBLE", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", "BIGINT", "VARCHAR", "BLOB",
        "DATE", "TIMESTAMP", "UUID", "INTEGER",
    ]  # fmt: skip
    log = EpochLog(tmp_path / "log", relations, 1 << 20)
    for value in values:
        log.append({"r": ([[value]], [1])})
    log.close()
    with duckdb.connect() as plain:
        for record, value, type_ in zip(epoch_log.records(tmp_path / "log"), values, types, strict=True):
            [part] = record.parts
            [[text]] = part.rows
            [(same,)] = plain.execute(
                f"SELECT ?::{type_}::VARCHAR IS NOT DISTINCT FROM CAST(? AS {type_})::VARCHAR", [value, text]
            ).fetchall()
            assert same, (value, text)


def test_what_is_taken_back_is_not_in_the_log(tmp_path):
    log = EpochLog(tmp_path / "log", {"r": 1}, 1 << 20)
    log.append({"r": ([[1]], [1]), "unknown": ([[1, 2]], [1])})
    with pytest.raises(ZeroDivisionError), ExitStack() as undo:
        log.append({"r": (pa.table({"a": [2, 3]}), None)})
        undo.callback(log.take_back)
        raise ZeroDivisionError
    log.append({"unknown": ([[1, 2]], [1])})
    log.take_back()
    log.append({"r": (pa.table({"a": [4]}), [-2])})
    log.close()
    first, last = epoch_log.records(tmp_path / "log")
    assert [part.relation for part in first.parts] == ["r"] and first.parts[0].rows == [["1"]]
    assert last.parts[0].rows.to_pylist() == [{"a": 4}] and last.parts[0].weights.tolist() == [-2]


def test_epochs_while_a_snapshot_is_written_are_in_both_logs(con, path, tmp_path, monkeypatch):
    """Others commit while the arrays go to disk; killed before the new snapshot has its name, and after."""
    finish = unfinished.Unfinished.finish
    before = manifest(path).parent

    def slowly(self, described):
        con.execute("UPDATE t SET f = f + 1 WHERE a = 4")
        assert len(con.session.database.logs) == 2
        with sqlfront.connect(killed(path, tmp_path, "before")) as other:
            assert is_adopted(other)
            check_same(con, other)
        finish(self, described)
        con.execute("INSERT INTO t VALUES (4, 'between', 1)")
        assert len(list(snapshot_file.folder_of(path).iterdir())) == 2
        with sqlfront.connect(killed(path, tmp_path, "between")) as other:
            assert is_adopted(other)
            check_same(con, other)

    con.execute("INSERT INTO t VALUES (1, 'x', 1)")
    with monkeypatch.context() as patched:
        patched.setattr(unfinished.Unfinished, "finish", slowly)
        saving.save_snapshot(con.session.database)
    assert manifest(path).parent != before
    con.execute("INSERT INTO t VALUES (4, 'after', 1)")
    with sqlfront.connect(killed(path, tmp_path, "after")) as other:
        assert is_adopted(other)
        check_same(con, other)


def test_a_thread_writes_snapshots_that_are_due(path, tmp_path, monkeypatch):
    before = threading.enumerate()
    with sqlfront.connect(path, config={"sqlfront_snapshot": "0.05s"}) as con:
        con.execute("CREATE TABLE t (a BIGINT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
        database = con.session.database
        until(lambda: database.closing.args[0]._revision == database.revision)
        con.execute("INSERT INTO t VALUES (1)")
        first = manifest(path).parent
        time.sleep(0.2)
        assert manifest(path).parent == first, "a short log needs no other snapshot"
        with sqlfront.connect(killed(path, tmp_path)) as other:
            assert is_adopted(other) and rows(other, "v") == [(1,)]
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT a FROM t")
        until(lambda: database.logs[0] and manifest(path).parent != first)
        second = manifest(path).parent
        monkeypatch.setattr(database.logs[0], "_limit", 100)
        con.execute("INSERT INTO t VALUES (2)")
        until(lambda: database.logs[0].holds and manifest(path).parent != second)
        third = manifest(path).parent
        monkeypatch.setattr(EpochLog, "is_short", property(lambda log: log.size < 100_000))
        con.execute("INSERT INTO t FROM range(20_000)")
        until(lambda: manifest(path).parent != third)
        con.execute("INSERT INTO t VALUES (5)")
        with sqlfront.connect(killed(path, tmp_path, "again")) as other:
            assert is_adopted(other) and rows(other, "v") == [(20_003,)] and len(rows(other, "w")) == 20_003
    assert not any(one.name == "sqlfront snapshots" for one in threading.enumerate() if one not in before)


def until(reached: Callable[[], object]) -> None:
    """Wait for another thread."""
    for _ in range(1000):
        with suppress(ValueError):  # There are two snapshots for a moment.
            if reached():
                return
        time.sleep(0.02)
    raise AssertionError("it was not reached")
