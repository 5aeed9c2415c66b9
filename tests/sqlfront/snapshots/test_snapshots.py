"""A file takes its views from the snapshot when it is opened, or builds them where the snapshot may not fit."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.snapshots import snapshot_file, snapshot_key, unfinished
from sqlfront.storage.kernels.tables.mapped_memory import unmap
from sqlfront.storage.stores.words import words_at
from tests.following import is_query

VIEWS = {
    "joined": "SELECT t.s, u.d FROM t JOIN u USING (a)",
    "totals": "SELECT s, sum(d) AS d, avg(f) AS f, count(*) AS n FROM t JOIN u USING (a) GROUP BY s",
    "best": "SELECT s, a, f FROM t ORDER BY f DESC, a, s LIMIT 5",
    "values_of": "SELECT a, min(s) AS low, max(s) AS high, count(DISTINCT s) AS n FROM t GROUP BY a",
    "missing": "SELECT t.a, t.s, u.d FROM t LEFT JOIN u ON t.a = u.a",
    "above": "SELECT s, n * 2 AS n FROM totals WHERE n > 1",
    "medians": "SELECT a, median(f) AS m, sum(f) AS f FROM t GROUP BY a",
    "numbered": "SELECT a, s, row_number() OVER (PARTITION BY a ORDER BY f, s) AS n FROM t",
    "ranks": "SELECT a, s, dense_rank() OVER w AS n, max(s) OVER w AS m FROM t WINDOW w AS (PARTITION BY a ORDER BY f)",
    "kept": "SELECT k.name, sum(u.d) AS d FROM k JOIN u USING (a) GROUP BY k.name",
    "passed": "SELECT name, count(*) AS n FROM p GROUP BY name",
    "either": "SELECT s AS name FROM t UNION ALL SELECT name FROM k",
    "triangles": "SELECT count(*) AS n FROM e x, e y, e z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a",
    "late": "SELECT s, count(*) AS n FROM t WHERE f > 0 GROUP BY s",
    "alone": "SELECT sum(f) AS f, count(*) AS n FROM t",
}
OPTIONS = {"late": "WITH (apply = 'on read')", "triangles": "WITH (epsilon = 0.5)"}
TABLES = """
    CREATE TABLE t (a BIGINT, s VARCHAR, f DOUBLE);
    CREATE TABLE u (a BIGINT, d DECIMAL(18, 2));
    CREATE TABLE e (a BIGINT, b BIGINT);
    CREATE CHANGE TABLE k (a BIGINT, name VARCHAR, PRIMARY KEY (a));
    CREATE CHANGE TABLE p (name VARCHAR) WITH (retain = false)"""
WRITES = [
    "INSERT INTO t SELECT i % 7, 'text ' || i % 11, i / 8 FROM range(60) x(i)",
    "INSERT INTO u SELECT i % 9, i * 1.25 FROM range(40) x(i)",
    "INSERT INTO e SELECT i % 6, (i * 5 + 1) % 6 FROM range(40) x(i)",
    "INSERT INTO t VALUES (NULL, NULL, NULL), (3, 'größer', 'inf'), (3, 'größer', 1e300), (3, 'x', -1e300)",
    "INSERT INTO k SELECT i, 'name ' || i % 3 FROM range(9) x(i)",
    "INSERT INTO p SELECT 'name ' || i % 3 FROM range(9) x(i)",
    "UPDATE k SET name = 'other' WHERE a = 4",
    "DELETE FROM t WHERE a = 2",
    "UPDATE u SET d = d + 99999999 WHERE a < 4",
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data.duckdb")


def set_up(path: str, views: dict[str, str] = VIEWS, writes: list[str] = WRITES) -> None:
    with sqlfront.connect(path) as con:
        con.execute(TABLES)
        for name, query in views.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} {OPTIONS.get(name, '')} AS {query}")
        for write in writes:
            con.execute(write)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of three views over t and u, with its snapshot."""
    path = str(tmp_path_factory.mktemp("template") / "data.duckdb")
    set_up(path, {name: VIEWS[name] for name in ("joined", "totals", "above")}, WRITES[:4])
    return path


@pytest.fixture
def few(path: str, template: str) -> str:
    """A copy of the template, of which each test has one."""
    copy_of(template, path)
    return path


def copy_of(path: str, copy: str) -> None:
    """Copy a file with its snapshot."""
    Path(copy).parent.mkdir(exist_ok=True)
    shutil.copy(path, copy)
    shutil.copytree(snapshot_file.folder_of(path), snapshot_file.folder_of(copy))


def is_adopted(con: sqlfront.Connection) -> bool:
    """Whether nothing was read from tables when the file was opened."""
    return con.session.database.snapshot is not None


def check(con: sqlfront.Connection) -> None:
    """Every view is its query over the present rows."""
    database = con.session.database
    for entry in database.views.values():
        con.execute(f"FROM {entry.name}").fetchall()
        if "p" not in {table.rpartition(".")[2].strip('"') for table in entry.tables}:
            assert is_query(con, entry.name.name), entry.name


def check_tables(con: sqlfront.Connection) -> None:
    """All tables and dictionaries keep their invariants."""
    database = con.session.database
    for relation in database.engine.relations.values():
        for store in relation.stores.values():
            store.table._check()
    for view in database.engine.views.values():
        for table in (table for member in view.members for table in member.all_tables()):
            table._check()
    for dictionary in database.engine.dictionaries:
        dictionary.sweep()
        dictionary._check()


def rows(con: sqlfront.Connection, view: str) -> list:
    return sorted(con.execute(f"FROM {view}").fetchall(), key=repr)


def manifest(path: str) -> Path:
    [found] = snapshot_file.folder_of(path).glob("*/manifest")
    return found


@pytest.mark.parametrize("mapped_from", [1, 1 << 40])
def test_every_kind_of_view_comes_back_and_goes_on(path, mapped_from, monkeypatch):
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", mapped_from)
    set_up(path)
    with sqlfront.connect(path, config={"sqlfront_snapshot": "off"}) as con:
        assert not is_adopted(con)
        expected = {name: rows(con, name) for name in VIEWS}
    steps = [
        [
            "INSERT INTO t SELECT i % 5, 'text ' || i % 13, i FROM range(30) x(i)",
            "INSERT INTO p VALUES ('new')",
            "DELETE FROM u WHERE a > 5",
            "INSERT INTO e VALUES (1, 2), (2, 3), (3, 1), (1, 1)",
            "DELETE FROM k WHERE a = 1",
        ],
        ["DELETE FROM t", "DELETE FROM u", "DELETE FROM e", "DELETE FROM k", *WRITES[:2]],
    ]
    for writes in steps:
        with sqlfront.connect(path) as con:
            assert is_adopted(con)
            assert {name: rows(con, name) for name in VIEWS} == expected
            for write in writes:
                con.execute(write)
            check(con)
            check_tables(con)
            expected = {name: rows(con, name) for name in VIEWS}


def test_changes_by_others_are_taken_in(few):
    with duckdb.connect(few) as plain:
        plain.execute(
            "INSERT INTO t VALUES (1, 'plain', 2.5); DELETE FROM u WHERE a = 3; UPDATE u SET d = 0 WHERE a = 1"
        )
    with sqlfront.connect(few) as con:
        assert is_adopted(con)
        check(con)
        assert con.execute("SELECT n FROM totals WHERE s = 'plain'").fetchall()
    with sqlfront.connect(few) as con:
        assert is_adopted(con)
        check(con)


def test_a_file_that_is_only_read_keeps_its_snapshot(few):
    before = manifest(few)
    for _ in range(2):
        with sqlfront.connect(few) as con:
            assert is_adopted(con)
            rows(con, "above")
    assert manifest(few) == before
    with sqlfront.connect(few, read_only=True) as con:
        assert rows(con, "above")
    with sqlfront.connect(few) as con:
        con.execute("INSERT INTO t VALUES (1, 'again', 1)")
    assert manifest(few) != before


def spoil(path: str, how: str, other: str) -> None:
    """Make a snapshot one that must not be used."""
    folder = manifest(path).parent
    [arrays] = folder.glob("arrays-*")
    if how == "truncated":
        os.truncate(arrays, arrays.stat().st_size - 4096)
    elif how == "a bit flips":
        found = bytearray(arrays.read_bytes())
        found[len(found) // 2] ^= 1
        arrays.write_bytes(found)
    elif how == "the manifest is altered":
        manifest(path).write_text(manifest(path).read_text().replace('"epoch"', '"epoxh"'))
    elif how == "of an earlier layout":
        found = json.loads(manifest(path).read_text().partition("\n")[2])
        text = json.dumps({name: one for name, one in found.items() if name not in ("layout", "files", "chunk")})
        manifest(path).write_text(f"{unfinished.hash_of(text)}\n{text}")
    elif how == "the manifest is gone":
        manifest(path).unlink()
    elif how == "the snapshot is gone":
        shutil.rmtree(folder)
    elif how == "the arrays are gone":
        arrays.unlink()
    elif how == "foreign":
        set_up(other, {"v": VIEWS["joined"]}, [])
        shutil.rmtree(folder)
        shutil.copytree(manifest(other).parent, folder)
    elif how == "older":
        kept = folder.parent.parent / "kept"
        shutil.copytree(folder, kept)
        with sqlfront.connect(path) as con:
            con.execute("INSERT INTO t VALUES (1, 'newer', 1)")
        now = manifest(path).parent
        shutil.rmtree(now)
        shutil.copytree(kept, now.parent / folder.name)
    else:
        by_duckdb(path, how)


def by_duckdb(path: str, how: str) -> None:
    """What another program may do to the file."""
    with duckdb.connect(path) as plain:
        if how == "a table is replaced":
            plain.execute("CREATE OR REPLACE TABLE t AS SELECT a, s, f + 1 AS f FROM t")
        elif how == "a table loses its triggers":
            [(name,)] = plain.execute(
                "SELECT trigger_name FROM duckdb_triggers() WHERE table_name = 't' ORDER BY ALL LIMIT 1"
            ).fetchall()
            plain.execute(f'DROP TRIGGER "{name}" ON t')
            plain.execute("INSERT INTO t VALUES (1, 'unseen', 1)")
        elif how == "rows come unseen":
            triggers = plain.execute(
                "SELECT trigger_name, sql FROM duckdb_triggers() WHERE table_name = 't'"
            ).fetchall()
            for name, _ in triggers:
                plain.execute(f'DROP TRIGGER "{name}" ON t')
            plain.execute("INSERT INTO t VALUES (1, 'unseen', 1)")
            for _, definition in triggers:
                plain.execute(definition)
        elif how == "a view's definition changes":
            plain.execute("UPDATE __sqlfront.views SET query = replace(query, '* 2', '* 3') WHERE name = 'above'")
        else:
            raise AssertionError(how)


SPOILED = {
    "truncated": "bytes instead of",
    "a bit flips": "its check does not hold",
    "the manifest is altered": "its hash does not hold",
    "of an earlier layout": "another release",
    "the manifest is gone": "cannot be read",
    "the arrays are gone": "cannot be read",
    "the snapshot is gone": "it is not there",
    "foreign": "another file",
    "older": "it is not there",
    "a table is replaced": "may have been missed",
    "a table loses its triggers": "may have been missed",
    "rows come unseen": "changed unseen",
    "a view's definition changes": "above has been altered",
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_snapshot_that_may_not_fit_is_not_used(few, how, caplog, tmp_path):
    spoil(few, how, str(tmp_path / "other.duckdb"))
    with sqlfront.connect(few) as con:
        assert not is_adopted(con)
        [line] = [one.getMessage() for one in caplog.records if one.name == "sqlfront"]
        assert few in line and "built from their tables" in line
        assert SPOILED[how] in line
        check(con)


def test_every_mapped_array_is_checked(few, monkeypatch):
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)
    [arrays] = manifest(few).parent.glob("arrays-*")
    whole = arrays.read_bytes()
    file = snapshot_file.SnapshotFile(arrays.parent)
    tables = {name: one for name, one in file.arrays.items() if not name.startswith("dictionary") and one.size}
    for name, one in tables.items():
        start = one.chunks[0][1]
        for place in (start, start + one.size - 1):
            arrays.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            address = file.mapped(name, one.size)
            assert file.changed({name: address}) == {name}
            unmap(address, one.size)
        arrays.write_bytes(whole)
        address = file.mapped(name, one.size)
        assert file.changed({name: address}) == set()
        assert words_at(address, one.size // 8).tobytes() == whole[start : start + one.size]
        unmap(address, one.size)
    assert len(tables) > 5


def test_another_release_builds_views_anew(few, caplog, monkeypatch):
    found = snapshot_key.key_of

    def key_of(*given):
        return found(*given) | {"code": "other"}

    monkeypatch.setattr("sqlfront.snapshots.adopting.key_of", key_of)
    with sqlfront.connect(few) as con:
        assert not is_adopted(con)
        check(con)
    assert snapshot_key.MEANINGS["code"] in caplog.text


def test_a_restored_copy_of_an_older_file_is_not_given_the_newer_state(few, tmp_path):
    shutil.copy(few, tmp_path / "backup")
    with sqlfront.connect(few) as con:
        con.execute("DELETE FROM t WHERE a < 4")
    shutil.copy(tmp_path / "backup", few)
    with sqlfront.connect(few) as con:
        assert not is_adopted(con)
        check(con)


def test_views_are_planned_by_the_same_weights(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a BIGINT, b BIGINT); CREATE TABLE u (b BIGINT, c BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT t.a, u.c FROM t JOIN u USING (b)")
        con.execute(
            "INSERT INTO t SELECT i, i % 10 FROM range(3000) x(i); INSERT INTO u SELECT i, i FROM range(10) x(i)"
        )
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        check(con)


ENDS = {
    "a write, and the process dies": """con.execute("INSERT INTO t VALUES (1, 'lost?', 1)"); os._exit(9)""",
    "CHECKPOINT, and the process dies": "con.execute('CHECKPOINT'); os._exit(9)",
    "a write, and the program ends": "con.execute('DELETE FROM t WHERE a = 1')",
}


def test_no_end_of_a_process_leaves_an_old_state(few, tmp_path, caplog):
    """Processes that are forked, so as to load the kernels once."""
    program = "import os, sys, sqlfront; sqlfront.Connection\n"
    for number, code in enumerate(ENDS.values()):
        copy_of(few, str(tmp_path / f"{number}" / "data.duckdb"))
        code = f"con = sqlfront.connect({str(tmp_path / f'{number}' / 'data.duckdb')!r}); {code}; sys.exit()"
        program += f"if not os.fork():\n    {code}\nos.wait()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for number, end in enumerate(ENDS):
        with sqlfront.connect(str(tmp_path / f"{number}" / "data.duckdb")) as con:
            assert is_adopted(con), end
            check(con)
    assert caplog.text == ""


def test_it_can_be_turned_off(path, caplog):
    with sqlfront.connect(path, config={"sqlfront_snapshot": "off"}) as con:
        con.execute("CREATE TABLE t (a BIGINT); CREATE MATERIALIZED VIEW v AS SELECT sum(a) AS s FROM t")
        con.execute("INSERT INTO t VALUES (1); CHECKPOINT")
    assert not snapshot_file.folder_of(path).exists()
    with sqlfront.connect(path) as con:
        assert not is_adopted(con) and rows(con, "v") == [(1,)]
    assert manifest(path).exists()
    assert caplog.text == ""
    with pytest.raises(sqlfront.InterfaceError, match='"on", "off" or a time'):
        sqlfront.connect(path, config={"sqlfront_snapshot": "perhaps"})
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        con.execute("DROP MATERIALIZED VIEW v")
    assert not snapshot_file.folder_of(path).exists()


def test_what_cannot_be_kept_is_built_and_said(path, caplog):
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a BIGINT, at_time TIMESTAMPTZ)")
        con.execute("CREATE CHANGE TABLE c (a BIGINT) WITH (durable = false)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW now AS SELECT a, at_time FROM t WHERE at_time > now() - INTERVAL 1 HOUR")
        con.execute("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM now")
        con.execute("CREATE MATERIALIZED VIEW lost AS SELECT t.a FROM t JOIN c USING (a)")
        con.execute("INSERT INTO t VALUES (1, now()), (2, now() - INTERVAL 1 DAY)")
        with caplog.at_level(logging.INFO, "sqlfront"):
            con.execute("CHECKPOINT")
    assert "view now is not in the snapshot: it compares columns with the clock" in caplog.text
    assert "view above is not in the snapshot: it reads view now" in caplog.text
    assert "view lost is not in the snapshot: change table c is not durable" in caplog.text
    with duckdb.connect(path) as plain:
        plain.execute("INSERT INTO t VALUES (1, now())")
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        assert (rows(con, "v"), rows(con, "above")) == ([(1, 2), (2, 1)], [(2,)])
        with pytest.raises(sqlfront.Error, match="lost at epoch"):
            con.execute("FROM lost")
        con.execute("INSERT INTO t VALUES (1, now())")
        assert (rows(con, "v"), rows(con, "above")) == ([(1, 3), (2, 1)], [(3,)])
        for dictionary in con.session.database.engine.dictionaries:
            dictionary._check()


def test_words_of_views_that_are_left_out_are_forgotten(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (s VARCHAR, at_time TIMESTAMPTZ); CREATE TABLE w (s VARCHAR)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT s, count(*) AS n FROM w GROUP BY s")
        con.execute("CREATE MATERIALIZED VIEW now AS SELECT s FROM t WHERE at_time > now() - INTERVAL 1 HOUR")
        con.execute("INSERT INTO t SELECT 'word ' || i, now() FROM range(50) x(i)")
        con.execute("INSERT INTO w SELECT 'word ' || i FROM range(20) x(i)")
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        words = con.session.database.engine.dictionaries.varchar
        con.execute("DELETE FROM t")
        words.sweep()
        assert words.live() == 20
        con.execute("DELETE FROM w")
        words.sweep()
        assert words.live() == 0


def test_another_working_directory_is_no_other_file(few, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with sqlfront.connect("data.duckdb") as con:
        con.execute("INSERT INTO t VALUES (1, 'x', 1)")
        monkeypatch.chdir(tmp_path / "elsewhere")
    with sqlfront.connect(few) as con:
        assert is_adopted(con)


def test_no_snapshot_is_written_of_views_that_may_have_missed_changes(few, caplog):
    with sqlfront.connect(few) as con:
        plain = con.session.database.cursor()
        [(name, text)] = plain.execute(
            "SELECT trigger_name, sql FROM duckdb_triggers() WHERE table_name = 't' AND trigger_name LIKE '%update'"
        ).fetchall()
        plain.execute(f'DROP TRIGGER "{name}" ON t')
        plain.execute("UPDATE t SET f = f + 1")
        plain.execute(text)
    assert "no snapshot could be written: view cannot be trusted" in caplog.text
    with sqlfront.connect(few) as con:
        assert not is_adopted(con)
        check(con)


def test_an_interrupted_snapshot_leaves_a_closed_file(few, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    con, before = sqlfront.connect(few), manifest(few).parent
    con.execute("INSERT INTO t VALUES (1, 'x', 1)")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(unfinished, "_sync_folder", interrupted)
        con.close()
    [kept] = snapshot_file.folder_of(few).iterdir()
    assert kept == before, "what was begun is gone"
    with sqlfront.connect(few) as con:
        assert is_adopted(con), "by the snapshot of before and its log"
        check(con)


def test_a_folder_that_cannot_be_written_is_said(few, caplog):
    folder = snapshot_file.folder_of(few)
    shutil.rmtree(folder)
    folder.write_text("a file in its place")
    with sqlfront.connect(few) as con:
        con.execute("INSERT INTO t VALUES (1, 'x', 1)")
    assert "no snapshot could be written" in caplog.text
    with sqlfront.connect(few) as con:
        assert not is_adopted(con)
        check(con)


def test_readers_of_changes_know_the_rows_that_came_back(path):
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a BIGINT, b BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW first AS SELECT a, b FROM t ORDER BY b, a LIMIT 2")
        con.execute("CREATE MATERIALIZED VIEW over_first AS SELECT sum(b) AS s, count(*) AS n FROM first")
        con.execute("INSERT INTO t VALUES (1, 5), (2, 6), (3, 7)")
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        con.execute("INSERT INTO t VALUES (4, 1)")
        assert rows(con, "over_first") == [(6, 2)]


def test_epochs_go_on_after_a_snapshot(few):
    with sqlfront.connect(few) as con:
        last = con.apply({"u": pa.table({"a": [1], "d": pa.array([1], pa.decimal128(18, 2))})}).number
    with sqlfront.connect(few) as con:
        assert is_adopted(con)
        assert con.apply({"u": pa.table({"a": [1], "d": pa.array([1], pa.decimal128(18, 2))})}).number == last + 1
    assert json.loads(manifest(few).read_text().partition("\n")[2])["epoch"] == last + 1
