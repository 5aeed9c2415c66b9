"""sqlfront backup: a copy of a file opens with the views of the file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import sqlfront
from sqlfront.__main__ import main
from sqlfront.snapshots import backup, snapshot_file
from tests.sqlfront.snapshots.test_log import killed
from tests.sqlfront.snapshots.test_snapshots import check, is_adopted, rows


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute(
            "CREATE TABLE t (a BIGINT); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a"
        )
        con.execute("INSERT INTO t SELECT i % 10 FROM range(100) x(i)")
    return path


def test_a_copy_has_its_views_without_a_build(path, tmp_path, capsys):
    target = str(tmp_path / "copy.duckdb")
    assert main(["backup", path, target]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:3] == [str(snapshot_file.folder_of(target)), target, f"{target}: 1 materialized view"]
    for one in (path, target):
        with sqlfront.connect(one) as con:
            assert is_adopted(con) and con.execute("SELECT sum(n) FROM v").fetchall() == [(100,)]
            con.execute("INSERT INTO t VALUES (7)")


def test_a_copy_of_what_a_killed_process_left(path, tmp_path, capsys):
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO t VALUES (7), (8)")
        con.execute("MERGE INTO t USING (SELECT 3 AS a) AS s ON t.a = s.a WHEN MATCHED THEN DELETE")
        left, expected = killed(path, tmp_path), rows(con, "v")
    target = str(tmp_path / "copy.duckdb")
    assert main(["backup", left, target]) == 0
    told = capsys.readouterr().out
    assert f"{target}.wal\n" in told and "log: 2 epochs since" in told and "view v: from the snapshot" in told
    with sqlfront.connect(target) as con:
        assert is_adopted(con) and rows(con, "v") == expected
        check(con)


def test_nothing_is_made_where_something_is_in_the_way(path, tmp_path, capsys, monkeypatch):
    target = tmp_path / "copy.duckdb"
    (tmp_path / "copy.duckdb.wal").write_text("of another file")
    assert main(["backup", path, str(target)]) == 1
    assert "exists already" in capsys.readouterr().err and not target.exists()
    (tmp_path / "copy.duckdb.wal").unlink()
    assert main(["backup", str(tmp_path / "missing"), str(target)]) == 1
    assert "there is no file" in capsys.readouterr().err

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        assert main(["backup", path, str(target)]) == 1
    assert "No space left" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["data.duckdb", "data.duckdb.sqlfront"]


def test_a_file_that_another_process_writes_is_not_copied(path, tmp_path):
    program = "import duckdb, sys; con = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(sqlfront.Error, match="lock"):
            backup.back_up(path, str(tmp_path / "copy.duckdb"))
        other.communicate("")
    assert not (tmp_path / "copy.duckdb").exists()
