"""Mapped arrays of a snapshot are checked before they are used, and no sooner. Damaged ones are never read."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.snapshots import snapshot_file
from sqlfront.snapshots.snapshot_file import SnapshotFile
from tests.sqlfront.snapshots.test_snapshots import (
    VIEWS,
    WRITES,
    check,
    check_tables,
    copy_of,
    is_adopted,
    manifest,
    rows,
    set_up,
)

FEW = ("joined", "totals", "above", "best", "kept", "passed", "late")
LINE = "views are built from their tables: the snapshot is damaged"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("unchecked") / "data.duckdb")
    set_up(path, {name: VIEWS[name] for name in FEW}, [write for write in WRITES if "INTO e" not in write])
    return path


@pytest.fixture
def path(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of the template, all of whose arrays are mapped but those of dictionaries."""
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)
    copy_of(template, str(tmp_path / "data.duckdb"))
    return str(tmp_path / "data.duckdb")


@pytest.fixture(scope="module")
def expected(template: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The rows of all views, built from the tables."""
    copy = str(tmp_path_factory.mktemp("expected") / "data.duckdb")
    shutil.copy(template, copy)
    with sqlfront.connect(copy, config={"sqlfront_snapshot": "off"}) as con:
        return {name: rows(con, name) for name in FEW}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The arrays that have been checked."""
    names, changed = set[str](), SnapshotFile.changed

    def noted(file: SnapshotFile, mapped: dict[str, int]) -> set[str]:
        names.update(mapped)
        return changed(file, mapped)

    monkeypatch.setattr(SnapshotFile, "changed", noted)
    return names


def mapped(path: str) -> list[str]:
    """The arrays of tables that have bytes."""
    found = SnapshotFile(manifest(path).parent).arrays
    return sorted(name for name, one in found.items() if one.size and not name.startswith("dictionary"))


def damage(path: str, names: Collection[str]) -> None:
    """Turn all bits of some arrays: who follows a link in them leaves the memory of the process."""
    file = SnapshotFile(manifest(path).parent)
    for one in (file.arrays[name] for name in names):
        for _, name, start, size in one.runs():
            with open(file.folder / name, "r+b") as arrays:
                arrays.seek(start)
                words = arrays.read(size)
                arrays.seek(start)
                arrays.write(bytes(byte ^ 255 for byte in words))


def test_what_nobody_reads_is_not_checked(path, checked, expected):
    every = set(mapped(path))
    with sqlfront.connect(path) as con:
        assert checked == set()
        assert rows(con, "best") == expected["best"]
        assert any("view main.best" in name for name in checked)
        assert not any("main.u" in name or "main.k" in name for name in checked)
        before = set(checked)
        rows(con, "best")
        assert checked == before
        assert rows(con, "joined") == expected["joined"]
        assert any("main.u" in name for name in checked) and not any("main.k" in name for name in checked)
        con.execute("INSERT INTO u VALUES (100, 1)")
        assert checked == every
        assert con.session.database.unchecked is None
        check(con)


def test_a_file_that_is_closed_unread_keeps_its_snapshot(path, checked):
    before = manifest(path)
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        con.execute("CHECKPOINT")
    assert manifest(path) == before and checked == set()


def test_who_has_waited_while_damaged_views_were_built_builds_none(path, caplog):
    """A thread comes to the lock after another one has built the views, and changed them."""
    damage(path, mapped(path))
    with sqlfront.connect(path) as con:
        unchecked = con.session.database.unchecked
        con.execute("INSERT INTO u VALUES (100, 1)")
        unchecked.finish()
        assert caplog.text.count(LINE) == 1
        check(con)


def callback(con: sqlfront.Connection) -> None:
    with con.view("totals").subscribe(timeout=0.01) as changes:
        next(iter(changes))


FIRST: dict[str, Callable[[sqlfront.Connection], object]] = {
    "SELECT": lambda con: con.execute("SELECT * FROM totals ORDER BY ALL").fetchall(),
    "look-up": lambda con: con.execute("SELECT n FROM totals WHERE s = 'text 1'").fetchall(),
    "count": lambda con: con.execute("SELECT count(*) FROM joined").fetchall(),
    "first rows": lambda con: con.execute("SELECT * FROM best ORDER BY f DESC, a, s LIMIT 2").fetchall(),
    "get": lambda con: con.view("totals").get("text 1"),
    "contains": lambda con: con.view("joined").contains(("text 1", 0)),
    "top": lambda con: con.view("best").top(3),
    "ordered": lambda con: list(con.view("best").ordered()),
    "state": lambda con: con.view("totals").state(),
    "explain": lambda con: str(con.explain("totals")),
    "subscribe": callback,
    "reader": lambda con: con.execute("FROM joined").to_arrow_reader(10).read_all(),
    "relation": lambda con: con.sql("FROM joined").fetchall(),
    "change table": lambda con: con.execute("SELECT count(name) FROM k").fetchall(),
    "plain view": lambda con: con.execute("CREATE VIEW plain AS FROM totals; FROM plain").fetchall(),
    "PREPARE": lambda con: con.execute("PREPARE p AS FROM totals; EXECUTE p").fetchall(),
    "SHOW STATE": lambda con: con.execute("SHOW STATE").fetchall(),
    "CHECK": lambda con: con.execute("CHECK MATERIALIZED VIEW totals").fetchall(),
    "SUBSCRIBE": lambda con: con.execute("SUBSCRIBE TO totals").fetchall(),
    "INSERT": lambda con: con.execute("INSERT INTO t VALUES (1, 'new', 2)"),
    "INSERT SELECT": lambda con: con.execute("INSERT INTO u SELECT 5, sum(n) FROM above"),
    "UPDATE": lambda con: con.execute("UPDATE t SET f = f + 1 WHERE a = 3"),
    "DELETE by key": lambda con: con.execute("DELETE FROM k WHERE a = 3"),
    "BEGIN": lambda con: con.execute(
        "BEGIN; FROM totals; INSERT INTO t VALUES (3, 'x', 1); UPDATE k SET name = 'y' WHERE a = 2; FROM kept; COMMIT"
    ),
    "ROLLBACK": lambda con: con.execute("BEGIN; DELETE FROM t; FROM totals; ROLLBACK"),
    "executemany": lambda con: con.executemany("INSERT INTO t VALUES (?, ?, ?)", [(1, "a", 2.5), (2, None, 1)]),
    "apply": lambda con: con.apply({"t": pa.table({"a": [4], "s": ["applied"], "f": [2.0]})}),
    "apply_row": lambda con: con.apply_row("p", ("name 1",)),
    "apply_each": lambda con: con.apply_each(pa.table({"name": ["a", "b", "c"]}).to_reader(), table="p", rows=2),
    "CREATE": lambda con: con.execute("CREATE MATERIALIZED VIEW more AS SELECT a, s FROM t WHERE f > 1"),
    "DROP": lambda con: con.execute("DROP MATERIALIZED VIEW kept"),
    "ALTER": lambda con: con.execute("ALTER MATERIALIZED VIEW joined SET (replan = false)"),
    "REFRESH": lambda con: con.execute("REFRESH MATERIALIZED VIEW totals"),
    "index": lambda con: con.execute("CREATE INDEX i ON joined (d)"),
    "a column": lambda con: con.execute("ALTER TABLE t ADD COLUMN more BIGINT"),
    "a table is dropped": lambda con: con.execute("DROP TABLE u CASCADE"),
    "tables are swapped": lambda con: con.execute(
        "CREATE TABLE v AS FROM u LIMIT 9; BEGIN; ALTER TABLE u RENAME TO w; ALTER TABLE v RENAME TO u; COMMIT"
    ),
    "another writer": lambda con: (
        con.session.database.cursor().execute("INSERT INTO t VALUES (6, 'past', 1)"),
        con.execute("FROM totals").fetchall(),
    ),
}


OFTEN = {
    "look-up",
    "change table",
    "subscribe",
    "INSERT",
    "DELETE by key",
    "BEGIN",
    "apply_row",
    "another writer",
    "DROP",
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way in OFTEN else pytest.mark.slow) for way in FIRST])
def test_nothing_is_read_of_what_is_damaged(path, way, caplog):
    """All arrays are damaged; whatever comes first finds it, and all views are right."""
    damage(path, mapped(path))
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        assert caplog.text == ""
        FIRST[way](con)
        assert caplog.text.count(LINE) == 1 and not is_adopted(con)
        check(con)
        check_tables(con)


def test_a_transaction_keeps_its_epoch_over_a_build(path, expected, caplog):
    """Only arrays of k's views are damaged. A transaction has read another view when a write finds them."""
    damage(path, [name for name in mapped(path) if "main.k" in name])
    with sqlfront.connect(path) as con, con.cursor() as other:
        con.execute("BEGIN")
        assert rows(con, "totals") == expected["totals"]
        reading = other.execute("FROM joined").to_arrow_reader(7)
        writer = con.cursor()
        writer.execute("INSERT INTO t VALUES (3, 'after', 8)")
        assert caplog.text.count(LINE) == 1
        assert reading.read_all().num_rows == len(expected["joined"])
        for _ in range(2):
            for name in ("totals", "joined", "above", "kept"):
                assert rows(con, name) == expected[name], name
            writer.execute("DELETE FROM u WHERE a = 3; DELETE FROM k WHERE a < 5")
        con.execute("ROLLBACK")
        check(con)
        check_tables(con)


def test_every_change_of_the_state_checks_before(path, caplog):
    damage(path, mapped(path))
    with sqlfront.connect(path) as con:
        con.session.database.engine.apply_row("main.p", ("name 1",))
        assert caplog.text.count(LINE) == 1
        check(con)
        check_tables(con)


def test_all_goes_when_all_rows_go(path):
    damage(path, [name for name in mapped(path) if "main.t" in name])
    with sqlfront.connect(path) as con:
        con.execute("FROM totals").fetchall()
        for table in "tuk":
            con.execute(f"DELETE FROM {table}")
        con.execute("DROP MATERIALIZED VIEW passed")
        check(con)
        for dictionary in con.session.database.engine.dictionaries:
            dictionary.sweep()
            assert dictionary.live() == 0


def test_readers_of_changes_that_know_rows_read_no_damaged_ones(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)
    path = str(tmp_path / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a BIGINT, b BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW first AS SELECT a, b FROM t ORDER BY b, a LIMIT 2")
        con.execute("CREATE MATERIALIZED VIEW over_first AS SELECT sum(b) AS s, count(*) AS n FROM first")
        con.execute("INSERT INTO t VALUES (1, 5), (2, 6), (3, 7)")
    damage(path, [name for name in mapped(path) if "view main.first" in name])
    with sqlfront.connect(path) as con:
        assert "the snapshot is damaged" in caplog.text and not is_adopted(con)
        con.execute("INSERT INTO t VALUES (4, 1)")
        assert rows(con, "over_first") == [(6, 2)]


def test_a_view_that_cannot_be_built_is_given_up_alone(path, caplog):
    damage(path, mapped(path))
    with sqlfront.connect(path) as con:
        database = con.session.database
        entry = next(entry for entry in database.views.values() if entry.name.name == "totals")
        entry.select = entry.select.replace("sum(", "gone(")
        assert rows(con, "joined")
        assert LINE in caplog.text
        for view in ("totals", "above"):
            with pytest.raises(sqlfront.OperationalError, match=f"{view} cannot be trusted"):
                con.execute(f"FROM {view}")
        entry.select = entry.select.replace("gone(", "sum(")
        con.execute("REFRESH MATERIALIZED VIEW totals; REFRESH MATERIALIZED VIEW above")
        check(con)


def test_a_killed_process_leaves_nothing_unchecked_that_its_log_changes(path, caplog):
    from tests.sqlfront.snapshots.test_log import killed

    con = sqlfront.connect(path)
    con.execute("CHECKPOINT; INSERT INTO t VALUES (1, 'in the log', 1)")
    left = killed(path, Path(path).parent)
    con.close()
    damage(left, mapped(left)[:3])
    with sqlfront.connect(left) as con:
        assert "built from their tables" in caplog.text and not is_adopted(con)
        check(con)


class Damaged:
    """A run: some arrays are damaged, statements come in random order from two connections, one of which may be in a
    transaction, and in the end the views are those of the tables."""

    STATEMENTS = (
        "FROM totals", "FROM kept", "SELECT n FROM totals WHERE s = 'text 3'", "FROM best", "FROM late", "FROM passed",
        "SELECT count(*) FROM joined", "SELECT count(*) FROM k", "FROM above",
        "INSERT INTO t VALUES (3, 'text 3', 4.5), (1, 'new', NULL)", "DELETE FROM t WHERE a = 4", "DELETE FROM u",
        "UPDATE k SET name = 'renamed' WHERE a = 6", "INSERT INTO p VALUES ('name 9')", "UPDATE u SET d = d / 2",
        "BEGIN", "BEGIN", "COMMIT", "ROLLBACK", "SHOW STATE", "INSERT INTO k VALUES (50, 'fifty')", "CHECKPOINT",
    )  # fmt: skip

    def __init__(self, seed: int, path: str) -> None:
        self.random, self.path = random.Random(seed), path

    def run(self) -> None:
        names = mapped(self.path)
        damage(self.path, self.random.sample(names, self.random.choice([1, 1, 2, 5])))
        with sqlfront.connect(self.path) as con:
            assert is_adopted(con)
            self.write(con)
            check(con)
            check_tables(con)
            con.execute("DELETE FROM t; DELETE FROM u; DELETE FROM k")
            check(con)

    def write(self, con: sqlfront.Connection) -> None:
        cursors = con, con.cursor()
        held: dict[int, list[Any]] = {}
        for _ in range(12):
            number = self.random.randrange(2)
            try:
                cursors[number].execute(self.random.choice(self.STATEMENTS))
            except (sqlfront.ProgrammingError, sqlfront.OperationalError):  # BEGIN in a transaction, and such.
                cursors[number].rollback()
            transaction = cursors[number].session.transaction
            if transaction is None or transaction.touched():
                held.pop(number, None)
            elif self.random.random() < 0.5:
                found = rows(cursors[number], "totals")
                assert held.setdefault(number, found) == found
        for cursor in cursors:
            cursor.rollback()
        cursors[1].close()


def damaged(seeds: range, template: str, folder: Path) -> None:
    for seed in seeds:
        path = str(folder / f"{seed}" / "data.duckdb")
        copy_of(template, path)
        Damaged(seed, path).run()


def test_damaged_arrays_at_random(template, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)
    damaged(range(3), template, tmp_path)


@pytest.mark.slow
def test_damaged_arrays_at_random_at_length(template, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)
    damaged(range(100, 400), template, tmp_path)
