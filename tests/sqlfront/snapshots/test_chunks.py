"""A second snapshot writes the chunks that have changed, and no state is lost with the files that it shares."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pytest

import sqlfront
from sqlfront.snapshots import chunks, snapshot_file, unfinished
from sqlfront.snapshots.snapshot_file import SnapshotFile
from sqlfront.snapshots.unfinished import Unfinished
from sqlfront.storage.kernels.tables.mapped_memory import unmap
from sqlfront.storage.stores.words import words_at
from tests.sqlfront.snapshots.test_snapshots import check, check_tables, copy_of, is_adopted, manifest, rows

CHUNK = chunks.PAGE
VIEWS = {
    "totals": "SELECT a, sum(b) AS b, count(*) AS n FROM t GROUP BY a",
    "sorted_ones": "SELECT a, b, s FROM t ORDER BY b DESC, a, s LIMIT 20",
    "joined": "SELECT t.s, u.c FROM t JOIN u USING (a)",
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", CHUNK)
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)


def written(folder: Path, name: str, arrays: dict[str, np.ndarray], former: SnapshotFile | None = None) -> SnapshotFile:
    made = Unfinished(folder, name, arrays, former)
    made.finish({})
    return SnapshotFile(folder / name)


def check_arrays(file: SnapshotFile, arrays: dict[str, np.ndarray]) -> None:
    """Arrays are read, and mapped, as they are; a change of the memory changes no file."""
    assert file.arrays.keys() == arrays.keys()
    for _ in range(2):
        for name, array in arrays.items():
            found = np.empty_like(array)
            file.read(name, found)
            assert np.array_equal(found, array)
            if address := file.mapped(name, array.nbytes):
                words = words_at(address, len(array))
                assert np.array_equal(words, array) and file.changed({name: address}) == set()
                words[:] = 7
                unmap(address, array.nbytes)


def size_of(file: SnapshotFile) -> int:
    """The bytes that a snapshot has written itself."""
    return file.files[unfinished.file_of(file.folder.name)]


@pytest.mark.parametrize("threads", [True, False])
def test_chunks_that_have_not_changed_are_shared(
    tmp_path: Path, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not threads:
        monkeypatch.setattr(chunks.threading, "main_thread", chunks.threading.Thread)  # A program that ends.
    random, per = np.random.default_rng(1), CHUNK // 8
    arrays = {
        "one": random.integers(0, 1 << 60, 40 * per + 3),
        "two": random.integers(0, 9, 5),
        "none": np.empty(0, int),
    }
    file = written(tmp_path, "1", arrays)
    check_arrays(file, arrays)
    assert size_of(file) >= 40 * CHUNK and list(file.files) == ["arrays-1"]
    for number in range(2, 44):
        former, before = file, {name: array.copy() for name, array in arrays.items()}
        changed = random.integers(0, 40, 2)
        arrays["one"][changed * per + random.integers(0, per, 2)] += 1
        if number % 7 == 0:
            arrays["one"] = np.append(arrays["one"], random.integers(0, 9, per // 3))
        if number % 13 == 0:
            arrays["two"], arrays[f"new {number}"] = arrays["two"][:-1], random.integers(0, 9, 2 * per)
        file = written(tmp_path, f"{number:x}", arrays, former)
        check_arrays(former, before)
        snapshot_file.remove_others(tmp_path, f"{number:x}")
        check_arrays(file, arrays)
        own = sum(array.nbytes for array in arrays.values())
        assert sum(file.files.values()) <= 2 * own + 4 * CHUNK * len(arrays)
        assert len(file.files) <= unfinished._MOST_FILES + 1
    assert min(len(file.files), len(list(file.folder.iterdir())) - 1) > 3


def test_a_changed_row_writes_its_chunks(tmp_path: Path) -> None:
    per = CHUNK // 8
    arrays = {"rows": np.arange(100 * per), "slots": np.arange(50 * per)}
    first = written(tmp_path, "a", arrays)
    arrays["rows"][70 * per + 5] = 0
    second = written(tmp_path, "b", arrays, first)
    assert size_of(second) == CHUNK
    assert [one[1:] for one in second.arrays["rows"].runs()] == [
        ("arrays-a", 0, 70 * CHUNK), ("arrays-b", 0, CHUNK), ("arrays-a", 71 * CHUNK, 29 * CHUNK),
    ]  # fmt: skip
    assert size_of(written(tmp_path, "c", arrays, second)) == 0


def test_a_file_of_which_little_is_needed_is_left(tmp_path: Path) -> None:
    arrays = {"rows": np.arange(100 * CHUNK // 8)}
    first = written(tmp_path, "a", arrays)
    arrays["rows"][: len(arrays["rows"]) * 6 // 10] += 1
    second = written(tmp_path, "b", arrays, first)
    assert list(second.files) == ["arrays-b"] and size_of(second) == 100 * CHUNK
    check_arrays(second, arrays)


def test_too_many_pieces_are_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "_MOST_PIECES", 10)
    per = CHUNK // 8
    arrays = {"rows": np.arange(100 * per)}
    first = written(tmp_path, "a", arrays)
    arrays["rows"][:: 4 * per] = 1
    assert list(written(tmp_path, "b", arrays, first).files) == ["arrays-b"]


def test_a_system_without_links_has_all_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("no links here")

    arrays = {"rows": np.arange(100 * CHUNK // 8)}
    first = written(tmp_path, "a", arrays)
    monkeypatch.setattr(os, "link", refused)
    second = written(tmp_path, "b", arrays, first)
    assert list(second.files) == ["arrays-b"]
    check_arrays(second, arrays)


def test_chunks_of_another_size_are_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {"rows": np.arange(100 * CHUNK // 8)}
    first = written(tmp_path, "a", arrays)
    monkeypatch.setattr(chunks, "CHUNK", 2 * CHUNK)
    second = written(tmp_path, "b", arrays, first)
    assert list(second.files) == ["arrays-b"]
    check_arrays(first, arrays)
    check_arrays(second, arrays)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with a snapshot of some hundred chunks."""
    path = str(tmp_path / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE t (a BIGINT, b BIGINT, s VARCHAR); CREATE TABLE u (a BIGINT, c BIGINT)")
        con.execute("INSERT INTO t SELECT i % 3000, i * 7, 'text ' || i % 11 FROM range(12000) x(i)")
        con.execute("INSERT INTO u SELECT i, i FROM range(4000) x(i)")
        for name, query in VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return path


def present(path: str) -> SnapshotFile:
    return SnapshotFile(manifest(path).parent)


def test_closing_after_few_changes_writes_few_chunks(path: str, tmp_path: Path) -> None:
    whole = present(path)
    for number in range(3):
        with sqlfront.connect(path) as con:
            assert is_adopted(con)
            con.execute(f"INSERT INTO t VALUES ({number}, {number}, 'new')")
            con.execute(f"DELETE FROM u WHERE a = {100 + number}")
            if number % 2:
                con.execute("CHECKPOINT")
            check(con)
        found = present(path)
        assert size_of(found) < size_of(whole) / 3 and len(found.files) > 1
        copy_of(path, str(tmp_path / f"{number}" / "data.duckdb"))
    for number in range(3):  # Whatever has become of the files since.
        with sqlfront.connect(str(tmp_path / f"{number}" / "data.duckdb")) as con:
            assert is_adopted(con)
            check(con)
            if number == 2:
                check_tables(con)
            assert len(con.execute("FROM t WHERE s = 'new'").fetchall()) == number + 1


def test_a_shared_file_that_is_damaged_or_gone_is_found(path: str, tmp_path: Path) -> None:
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO t VALUES (1, 1, 'new')")
    [shared] = [name for name in present(path).files if name != unfinished.file_of(present(path).folder.name)]
    for how in ("gone", "truncated", "damaged"):
        copy = str(tmp_path / how / "data.duckdb")
        copy_of(path, copy)
        file = present(copy).folder / shared
        if how == "gone":
            file.unlink()
        elif how == "truncated":
            os.truncate(file, file.stat().st_size - 1)
        else:
            file.write_bytes(bytes(byte ^ 255 for byte in file.read_bytes()))
        with sqlfront.connect(copy) as con:
            assert sum(n for _, _, n in rows(con, "totals")) == 12001
            assert not is_adopted(con)
            check(con)
        assert len(present(copy).files) == 1, "nothing of it is shared on"
        with sqlfront.connect(copy) as con:
            assert is_adopted(con)
            check(con)


def test_the_folder_may_be_deleted_while_the_file_is_open(path: str) -> None:
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO t VALUES (1, 1, 'new')")
        for one in present(path).folder.iterdir():
            one.unlink()
    with duckdb.connect(path) as plain:
        assert plain.execute("SELECT count(*) FROM t WHERE s = 'new'").fetchall() == [(1,)]
    with sqlfront.connect(path) as con:
        assert is_adopted(con)
        check(con)
