"""Disks that are full: what needs room is refused by name or logged, nothing is lost, and the file opens again.

Each disk is a small tmpfs, which only root may mount.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlfront
from sqlfront.storage.outside.change_log import ChangeLog
from tests.sqlfront.snapshots.test_snapshots import check, is_adopted

VIEWS = ("by_k", "by_c", "joined")
SETUP = """
CREATE TABLE t (k BIGINT, x BIGINT, s VARCHAR);
CREATE CHANGE TABLE c (k BIGINT, x BIGINT);
CREATE MATERIALIZED VIEW by_k AS SELECT k, sum(x) AS s, max(s) AS m, count(*) AS n FROM t GROUP BY k;
CREATE MATERIALIZED VIEW by_c AS SELECT k, sum(x) AS s FROM c GROUP BY k;
CREATE MATERIALIZED VIEW joined AS SELECT t.s, c.x FROM t JOIN c ON t.k = c.k WHERE t.k < 50;
INSERT INTO t SELECT i % 3000, i, 'text ' || i FROM range(20000) r(i);
INSERT INTO c SELECT i % 3000, i FROM range(20000) r(i);
CHECKPOINT;
"""
NO_ROOM = "(?i)no space left"


class Disk:
    """A mounted tmpfs that can be filled."""

    def __init__(self, path: Path) -> None:
        self.path, self._filling = path, path / "filling"

    def fill(self, left: int = 0) -> None:
        """Leave so many bytes."""
        self.free()
        state = os.statvfs(self.path)
        self._filling.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - left)))

    def free(self) -> None:
        self._filling.unlink(missing_ok=True)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[Path], Disk]]:
    """Mounts a disk in the place of a directory."""
    places: list[Path] = []

    def mount(path: Path) -> Disk:
        path.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(path)]
        if (
            sys.platform != "linux"
            or not shutil.which("mount")
            or subprocess.run(command, capture_output=True).returncode
        ):
            pytest.skip("nothing may be mounted here")
        places.append(path)
        return Disk(path)

    yield mount
    for path in places:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def opened(path: Path) -> sqlfront.Connection:
    return sqlfront.connect(path, config={"sqlfront_snapshot": "300s", "sqlfront_progress": False})


def contents(con: sqlfront.Connection) -> dict[str, Any]:
    """The rows of all tables and views; each view is that of its query."""
    check(con)
    return {name: Counter(con.execute(f"FROM {name}").fetchall()) for name in ("t", "c", *VIEWS)}


def open_files(directory: Path) -> list[str]:
    """What of a directory this process has open."""
    files = [
        os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if name.isdecimal()
        if os.path.islink(f"/proc/self/fd/{name}")
    ]
    return [file for file in files if file.startswith(f"{directory}/")]


def refused(con: sqlfront.Connection, text: str) -> bool:
    """Whether a statement is refused for want of room, and then changes nothing."""
    before = contents(con)
    try:
        con.execute(text)
    except sqlfront.OperationalError as error:
        assert "No space left" in str(error)
        assert contents(con) == before
        return True
    return False


@pytest.mark.parametrize("left", [0, 4096, 200_000])
def test_epochs_and_checkpoints_of_a_full_disk(
    mounted: Callable[[Path], Disk], tmp_path: Path, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = mounted(tmp_path / "disk")
    path = disk.path / "data.duckdb"
    con = opened(path)
    con.execute(SETUP)
    disk.fill(left)
    rows = "FROM range(20000) r(i)"
    assert refused(con, f"INSERT INTO t SELECT i, i, 'more ' || i {rows}")
    assert refused(con, f"INSERT INTO c SELECT i, i {rows}")
    assert refused(con, f"BEGIN; INSERT INTO c SELECT i, i {rows}; INSERT INTO t SELECT i, i, 'x' {rows}; COMMIT")
    refused(con, "INSERT INTO c VALUES (1, 2)")
    refused(con, "DELETE FROM t WHERE k = 3")
    assert refused(con, "CHECKPOINT") or left
    before = contents(con)
    disk.fill()
    con.close()
    assert "Could not write" in caplog.text or "No space left" in caplog.text
    disk.fill()
    try:
        with opened(path) as con:
            assert contents(con) == before
    except sqlfront.OperationalError as error:
        assert "No space left" in str(error)
    assert open_files(disk.path) == []
    disk.free()
    for adopted in (False, True):
        with opened(path) as con:
            assert contents(con) == before
            assert is_adopted(con) or not adopted
            con.execute("INSERT INTO t VALUES (7, 7, 'new'); DELETE FROM t WHERE s = 'new'")
    assert not [name for name in os.listdir(f"{path}.sqlfront") if name.startswith("unfinished")]


def test_a_full_disk_of_snapshots_fails_no_epoch(
    mounted: Callable[[Path], Disk], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sqlfront")
    path = tmp_path / "data.duckdb"
    disk = mounted(Path(f"{path}.sqlfront"))
    with opened(path) as con:
        con.execute(SETUP)
        assert "the log of" not in caplog.text and "could be written" not in caplog.text
        disk.fill()
        con.execute("INSERT INTO t SELECT i, i, 'more ' || i FROM range(20000) r(i); INSERT INTO c VALUES (1, 2)")
        assert "the log of the snapshot ends" in caplog.text
        con.execute("CHECKPOINT")
        assert "no snapshot could be written" in caplog.text and "No space left" in caplog.text
        before = contents(con)
    for _ in range(2):
        with opened(path) as con:
            assert not is_adopted(con) and contents(con) == before
    disk.free()
    opened(path).close()
    with opened(path) as con:
        assert is_adopted(con) and contents(con) == before


def test_a_full_disk_of_spilled_state_refuses_a_change(
    mounted: Callable[[Path], Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlfront.storage.stores.spill.LEAST", 4096)
    disk = mounted(tmp_path / "disk")
    with sqlfront.connect(config={"sqlfront_spill": disk.path}) as con:
        con.execute(SETUP)
        before = contents(con)
        assert con.session.database.engine.spilled() > 1_000_000
        disk.fill()
        for _ in range(2):
            with pytest.raises(sqlfront.OperationalError, match=r"(?s)finds no room in the spill directory.*No space"):
                con.execute("INSERT INTO t SELECT i, i, 'more ' || i FROM range(100000) r(i)")
            assert contents(con) == before
        con.execute("UPDATE t SET x = x + 1")  # It needs no further room.
        disk.free()
        con.execute("INSERT INTO t SELECT i, i, 'more ' || i FROM range(100000) r(i)")
        contents(con)


def test_a_log_that_cannot_be_compacted_fails_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The epoch is committed before."""

    def full(*_: object) -> None:
        raise duckdb.IOException("No space left on device")

    with opened(tmp_path / "data.duckdb") as con:
        con.execute(SETUP)
        monkeypatch.setattr(ChangeLog, "wants_compaction", lambda *_, now: True)
        with monkeypatch.context() as patched:
            patched.setattr(ChangeLog, "compact", full)
            con.execute("INSERT INTO c VALUES (1, 2)")
            assert "a log of a change table stays as long as it is: " in caplog.text
            with pytest.raises(sqlfront.OperationalError, match=NO_ROOM):
                con.execute("CHECKPOINT")
        before = contents(con)
        assert (1, 2) in before["c"]
    with opened(tmp_path / "data.duckdb") as con:
        assert contents(con) == before
