"""sqlfront doctor: what a file keeps of its views, and what opening it would build anew."""

from __future__ import annotations

import os

import duckdb
import pytest

import sqlfront
from sqlfront.__main__ import main
from sqlfront.snapshots import snapshot_file


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a BIGINT, at_time TIMESTAMPTZ)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW now AS SELECT a FROM t WHERE at_time > now() - INTERVAL 1 HOUR")
        con.execute("INSERT INTO t SELECT i, now() FROM range(100) x(i)")
    return path


def test_a_sound_file(path, capsys):
    with duckdb.connect(path) as plain:
        plain.execute("INSERT INTO t VALUES (1, now()), (2, now())")
    assert main(["doctor", path]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{path}: 2 materialized views"
    assert 'table "main"."t": 2 captured changes to take in' in told
    assert any(
        line.startswith(f"snapshot {snapshot_file.folder_of(path)}") and "all checks hold" in line for line in told
    )
    assert any(line.startswith("view v: from the snapshot, ") for line in told)
    assert "view now: built anew: it compares columns with the clock" in told
    with sqlfront.connect(path) as con:
        assert con.execute("SELECT count(*), sum(n) FROM v").fetchall() == [(100, 102)]


def test_a_snapshot_that_is_damaged(path, capsys):
    [arrays] = snapshot_file.folder_of(path).glob("*/arrays-*")
    found = bytearray(arrays.read_bytes())
    found[0] ^= 1
    arrays.write_bytes(found)
    assert main(["doctor", path]) == 1
    told = capsys.readouterr().out
    assert "its check does not hold" in told and "view v: built anew" in told


def test_triggers_that_are_gone(path, capsys):
    with duckdb.connect(path) as plain:
        [(name,)] = plain.execute("SELECT trigger_name FROM duckdb_triggers() ORDER BY ALL LIMIT 1").fetchall()
        plain.execute(f'DROP TRIGGER "{name}" ON t')
    assert main(["doctor", path]) == 1
    told = capsys.readouterr().out
    assert 'table "main"."t": changes may have been missed' in told and "view v: built anew" in told


def test_files_without_a_snapshot(path, tmp_path, capsys):
    with sqlfront.connect(path) as con:
        con.execute("DROP MATERIALIZED VIEW now; DROP MATERIALIZED VIEW v")
    assert main(["doctor", path]) == 0
    assert capsys.readouterr().out == f"{path}: 0 materialized views\nsnapshot: none\n"
    plain = str(tmp_path / "plain.duckdb")
    duckdb.connect(plain).close()
    assert main(["doctor", plain]) == 0
    assert capsys.readouterr().out == f"{plain}: no materialized views\n"
    assert main(["doctor", str(tmp_path / "missing")]) == 1
    assert "there is no file" in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "missing")


def test_a_folder_is_told_from_a_missing_file(path, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("no database at all")
    for folder in (tmp_path, snapshot_file.folder_of(path)):
        assert main(["doctor", str(folder)]) == 1
        told = capsys.readouterr().err
        assert f"{folder} is a folder" in told and f"Try: sqlfront doctor {path}\n" in told
    (tmp_path / "empty").mkdir()
    assert main(["doctor", str(tmp_path / "empty")]) == 1
    assert "give the path of a DuckDB database" in capsys.readouterr().err
    duckdb.connect(str(tmp_path / "more.duckdb")).close()
    assert main(["doctor", str(tmp_path)]) == 1
    assert f"{path}, or another of its 2 databases" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["doctor"], ["doctor", "a", "b"], ["doctor", "-c", "SELECT 1"], ["backup", "a"]])
def test_a_missing_argument_makes_no_file(given, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert f"{given[0]} takes FILE" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    with sqlfront.connect(given[0]) as con:
        con.execute("CREATE TABLE t (a INTEGER)")
    assert main([given[0], "-c", "FROM t"]) == 0  # A database of that name is opened.


@pytest.mark.parametrize("given", [["doctor", "--help"], ["backup", "-h"]])
def test_help_tells_of_the_commands(given, capsys):
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 0
    assert "doctor FILE examines" in " ".join(capsys.readouterr().out.split())
