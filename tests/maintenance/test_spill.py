"""Spilled state: views in files are the views in memory, and a full disk refuses a change and leaves all as it was."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at
from tests.sqlfront.snapshots.test_snapshots import check_tables

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files are spilled to on Linux")
PAGE_OUT, NOW = 21, 4
"""MADV_PAGEOUT and MS_SYNC of Linux."""
SETUP = """
CREATE TABLE r (a BIGINT, b BIGINT, s VARCHAR);
CREATE TABLE q (a BIGINT, c DOUBLE);
CREATE MATERIALIZED VIEW grouped AS SELECT a % 5 AS g, s, sum(b) AS t, max(b) AS m, median(b) AS q FROM r GROUP BY ALL;
CREATE MATERIALIZED VIEW joined AS SELECT r.a, b, c FROM r JOIN q ON r.a = q.a;
CREATE MATERIALIZED VIEW cycle AS
    SELECT count(*) AS n FROM r AS x, r AS y, r AS z WHERE x.a = y.b AND y.a = z.b AND z.a = x.b;
CREATE MATERIALIZED VIEW best AS SELECT a, b FROM r ORDER BY b DESC, a LIMIT 7;
CREATE MATERIALIZED VIEW numbered AS SELECT a, b, sum(b) OVER (PARTITION BY a % 3 ORDER BY b, a) AS t FROM r;
CREATE MATERIALIZED VIEW texts AS SELECT a % 4 AS g, string_agg(s, ',' ORDER BY s) AS l FROM r GROUP BY g;
"""  # fmt: skip
VIEWS = ("grouped", "joined", "cycle", "best", "numbered", "texts")


@pytest.fixture
def con(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlfront.Connection]:
    """All arrays but the very smallest are spilled."""
    monkeypatch.setattr("sqlfront.storage.stores.spill.LEAST", 256)
    with sqlfront.connect(config={"sqlfront_spill": tmp_path}) as con:
        con.execute(SETUP)
        yield con


def check(con: sqlfront.Connection) -> None:
    for view in VIEWS:
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
    check_tables(con)


def insert(rows: range) -> str:
    return f"INSERT INTO r SELECT i, i * 7 % 50, 'text ' || i % 90 FROM range({rows.start}, {rows.stop}) x(i)"


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_random_changes_of_spilled_views(con: sqlfront.Connection, seed: int) -> None:
    rng, engine = random.Random(str(seed)), con.session.database.engine
    for _ in range(25):
        first = rng.randrange(60)
        if rng.random() < 0.4:
            sum(map(evict, tables_of(con)))
        con.execute(
            rng.choice(
                [
                    insert(range(first, first + rng.randrange(1, 80))),
                    f"INSERT INTO q SELECT i % 60, i / 7 FROM range({first}, {first + 40}) x(i)",
                    f"DELETE FROM r WHERE a % 9 = {first % 9}",
                    f"UPDATE r SET b = b % 1000 + 2**62::BIGINT, s = NULL WHERE a = {first}",
                    f"UPDATE q SET a = a + 1 WHERE a < {first}",
                    f"BEGIN; DELETE FROM r WHERE b < {first}; DELETE FROM q; ROLLBACK",
                ]
            )
        )
        if rng.random() < 0.1:
            check(con)
    assert engine.spilled() > engine.memory() / 2
    check(con)
    con.execute("DELETE FROM r; DELETE FROM q")
    check(con)
    assert [row for row in con.execute("SHOW STATE").fetchall() if row[3]] == [] and engine.memory() < 200_000


def test_files_have_no_names_and_go_with_their_arrays(con: sqlfront.Connection, tmp_path: Path) -> None:
    con.execute(insert(range(2000)))
    assert os.listdir(tmp_path) == []
    mapped = Path("/proc/self/maps").read_text().count(str(tmp_path))
    assert mapped > 10
    state = con.execute("SHOW STATE").to_arrow_table().to_pylist()
    engine = con.session.database.engine
    assert 0 <= engine.memory() - sum(row["bytes"] for row in state) < 5000  # No row tells of an empty dictionary.
    assert 0 <= engine.spilled() - sum(row["spilled"] for row in state) < 5000
    assert engine.spilled() > engine.memory() / 2
    gc.disable()  # Views are part of cycles, and sessions know them still.
    try:
        for view in VIEWS:
            con.execute(f"DROP MATERIALIZED VIEW {view}")
        assert Path("/proc/self/maps").read_text().count(str(tmp_path)) <= 5  # The empty dictionary.
    finally:
        gc.enable()


def test_the_budget_is_for_what_is_not_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlfront.storage.stores.spill.LEAST", 1 << 14)
    with sqlfront.connect(config={"sqlfront_spill": tmp_path, "sqlfront_memory": "1MB"}) as con:
        con.execute("CREATE TABLE r (a BIGINT, b BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS s FROM r GROUP BY a")
        for first in range(0, 50_000, 5000):
            con.execute(f"INSERT INTO r SELECT i, i FROM range({first}, {first + 5000}) x(i)")
        assert con.session.database.engine.memory() > 2e6
        [(told,)] = [row[1:] for row in con.execute("EXPLAIN MATERIALIZED VIEW v").fetchall() if row[0] == "spilled"]
        spilled = sum(row[-1] for row in con.execute("SHOW STATE FOR v").fetchall())
        assert spilled > 1e6
        assert told.startswith(f"{spilled:,} bytes of its stores are in files")
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    with sqlfront.connect(config={"sqlfront_memory": "1MB"}) as con:
        con.execute("CREATE TABLE r (a BIGINT, b BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS s FROM r GROUP BY a")
        with pytest.raises(sqlfront.OperationalError, match="sqlfront_memory"):
            for first in range(0, 50_000, 5000):
                con.execute(f"INSERT INTO r SELECT i, i FROM range({first}, {first + 5000}) x(i)")


@pytest.mark.parametrize("given", ["/no/such/directory", "", 5, __file__])
def test_the_directory_is_checked(given: object) -> None:
    with pytest.raises(sqlfront.InterfaceError, match=r"(?s)config\['sqlfront_spill'\]"):
        sqlfront.connect(config={"sqlfront_spill": given})


FULL = """
import resource, sys, sqlfront
from sqlfront.storage.stores import spill
from tests.maintenance.test_spill import SETUP, check, insert
spill.LEAST = 256
with sqlfront.connect(config={"sqlfront_spill": sys.argv[1]}) as con:
    con.execute(SETUP)
    con.execute(insert(range(200)))
    con.execute("INSERT INTO q SELECT i, i FROM range(900) x(i)")
    before = sorted(con.execute("FROM grouped").fetchall()), con.execute("SELECT count(*) FROM r").fetchall()
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, resource.RLIM_INFINITY))
    refused = 0
    for text in (insert(range(500, 9000)), "INSERT INTO q SELECT i, i FROM range(900, 9000) x(i)",
                 "CREATE MATERIALIZED VIEW more AS SELECT a + 1 AS a, sum(c) AS s FROM q GROUP BY ALL"):
        for _ in range(2):
            try:
                con.execute(text)
            except sqlfront.OperationalError as error:
                where = f"finds no room in the spill directory {sys.argv[1]}"
                refused += where in str(error) and "too large" in str(error)
            else:
                print(text)
        check(con)
    assert (sorted(con.execute("FROM grouped").fetchall()), con.execute("SELECT count(*) FROM r").fetchall()) == before
    con.execute("DELETE FROM r WHERE a % 2 = 0")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    con.execute(insert(range(500, 1500)))
    check(con)
    print(refused)
"""  # fmt: skip


def test_a_full_disk_refuses_a_change_and_leaves_all_as_it_was(tmp_path: Path) -> None:
    """The system refuses the room as it does on a full disk, with another error."""
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True)
    assert done.stdout == "6\n", done.stderr


def test_a_directory_that_goes_away_refuses_a_change(con: sqlfront.Connection, tmp_path: Path) -> None:
    con.execute(insert(range(100)))
    tmp_path.rmdir()
    with pytest.raises(sqlfront.OperationalError, match=os.strerror(errno.EIO)):
        con.execute(insert(range(100, 3000)))
    check(con)
    con.execute("DELETE FROM r")
    check(con)
    tmp_path.mkdir()


def test_a_file_is_opened_again_with_a_spill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlfront.storage.stores.spill.LEAST", 256)
    path, config = tmp_path / "data.duckdb", {"sqlfront_spill": tmp_path}
    for first in (0, 3000):
        with sqlfront.connect(path, config=config) as con:
            if first == 0:
                con.execute(SETUP)
            con.execute(insert(range(first, first + 3000)))
            assert con.session.database.engine.spilled() > 100_000
            for view in VIEWS:
                assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
    with sqlfront.connect(path) as con:
        assert con.execute("SELECT sum(t) FROM grouped").fetchall() == con.execute("SELECT sum(b) FROM r").fetchall()
        assert con.session.database.engine.spilled() == 0


def tables_of(con: sqlfront.Connection) -> list[Table]:
    return list({id(table): table for table in con.session.database.engine._all_tables()}.values())


def evict(table: Table) -> int:
    """Write a table's spilled arrays, and let the system forget their pages; how many it has forgotten."""
    system, evicted = ctypes.CDLL(None, use_errno=True), 0
    for part, mapped in ((at.SLOTS, at.SLOTS_MAPPED), (at.ROWS, at.ROWS_MAPPED)):
        address, size = ctypes.c_void_p(int(table.header[part])), int(table.header[mapped]) // 8 * 8
        if size == 0:
            continue
        pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        assert system.msync(address, ctypes.c_size_t(size), NOW) == 0
        system.madvise(address, ctypes.c_size_t(size), PAGE_OUT)
        assert system.mincore(address, ctypes.c_size_t(size), pages) == 0
        evicted += sum(page & 1 == 0 for page in pages)
    return evicted + sum(map(evict, table.groups))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, sum(b) AS s, sum(c) AS t, sum(d) AS u FROM big GROUP BY a",
        "SELECT x.a, x.b, big.c, big.d FROM x JOIN big ON x.a = big.a",
    ],
)
def test_a_batch_waits_for_many_pages_at_a_time(tmp_path: Path, query: str) -> None:
    """Pages that are read ahead are no major faults: another reader is waited for."""
    keys, changed = 60_000, 2000
    with sqlfront.connect(config={"sqlfront_spill": tmp_path, "threads": 1, "sqlfront_progress": False}) as con:
        con.execute("CREATE CHANGE TABLE big (a BIGINT, b BIGINT, c BIGINT, d BIGINT)")
        con.execute("CREATE CHANGE TABLE x (a BIGINT, b BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute(f"INSERT INTO big SELECT i, i, i, i FROM range({keys}) t(i)")
        con.execute("INSERT INTO x VALUES (1, 1)")
        target = "big" if "GROUP" in query else "x"
        row = "i * 29, 1, 1, 1" if target == "big" else "i * 29, 1"
        change = f"INSERT INTO {target} SELECT {row} FROM range({changed}) t(i)"
        con.execute(change)
        evicted = sum(map(evict, tables_of(con)))
        if evicted < 500:
            pytest.skip("the file system of the spill keeps its pages in memory")
        con.session.database.engine.write_buffers.give_up()  # As for a view that has a subscriber.
        before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        con.execute(change)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before
        assert faults < 0.2 * evicted, (faults, evicted)
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_rows_that_change_often_are_gathered(tmp_path: Path) -> None:
    """A tenth of the keys, anywhere, changes again and again, beside a few of the others."""
    rng, keys = random.Random(5), 40_000
    often = rng.sample(range(keys), keys // 10)
    with sqlfront.connect(config={"sqlfront_spill": tmp_path, "threads": 1, "sqlfront_progress": False}) as con:
        con.execute("CREATE CHANGE TABLE big (a BIGINT, b BIGINT) WITH (retain = false)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS s, sum(b + 1) AS t FROM big GROUP BY a")
        con.execute(f"INSERT INTO big SELECT i, i FROM range({keys}) t(i)")
        (table,) = (table for table in tables_of(con) if table.live == keys)
        con.session.database.engine.write_buffers.give_up()  # As for a view that has a subscriber.
        for _ in range(16):
            if sum(map(evict, tables_of(con))) < 200:
                pytest.skip("the file system of the spill keeps its pages in memory")
            changed = rng.choices(often, k=1800) + rng.choices(range(keys), k=200)
            con.apply({"big": pa.table({"a": changed, "b": [1] * 2000, "_weight": [1] * 2000})})
        rows = words_at(table.header[at.ROWS], table.used * table.width).reshape(table.used, table.width)
        assert np.isin(rows[: table.used // 4, 0], often).sum() > 0.8 * len(often)
        check_tables(con)
        assert con.execute("SELECT count(*), sum(s) FROM v").fetchall() == [(keys, keys * (keys - 1) // 2 + 32_000)]
        assert con.execute(f"SELECT t - s FROM v WHERE a = {often[0]}").fetchone() > (1,)
