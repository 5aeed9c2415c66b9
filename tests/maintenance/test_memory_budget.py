"""The budget of memory: what exceeds it is refused with nothing changed, and what is given back may be taken again."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from tests.sqlfront.snapshots.test_snapshots import check_tables


@pytest.fixture
def con():
    with sqlfront.connect(config={"sqlfront_memory": "4MB"}) as con:
        con.execute("CREATE TABLE t (a BIGINT, b BIGINT, s VARCHAR)")
        con.execute("CREATE CHANGE TABLE c (a BIGINT, b BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS s, min(b) AS low FROM t GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT a, b FROM c")
        yield con


def memory(con) -> int:
    return con.session.database.engine.memory()


def check(con) -> None:
    for view in ("v", "w"):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
    check_tables(con)


def test_a_large_epoch_is_refused_and_undone(con):
    con.execute("INSERT INTO t SELECT i, i, 'x' FROM range(1000) x(i)")
    before, rows = memory(con), con.execute("SELECT count(*) FROM t").fetchall()
    for _ in range(3):
        with pytest.raises(sqlfront.OperationalError, match=r"(?s)the change would .* MiB.*sqlfront_memory is 3.8 MiB"):
            con.execute("INSERT INTO t SELECT i, i, 'x' FROM range(200_000) x(i)")
        assert con.execute("SELECT count(*) FROM t").fetchall() == rows
        assert memory(con) < before + 100_000
        check(con)
    con.execute("INSERT INTO t SELECT i, i, 'x' FROM range(1000, 10_000) x(i)")
    before = memory(con)
    with pytest.raises(sqlfront.OperationalError, match="sqlfront_memory"):
        con.execute("INSERT INTO t SELECT i, i, 'x' FROM range(10_000, 20_000) x(i)")
    assert memory(con) <= 1.05 * before
    check(con)


def test_many_small_epochs_stop_at_the_budget_and_deletes_go_on(con):
    number = 0
    with pytest.raises(sqlfront.OperationalError, match="sqlfront_memory"):
        for number in range(200):
            con.execute(f"INSERT INTO t SELECT i, i, 'x' FROM range({number}000, {number + 1}000) x(i)")
            assert memory(con) <= 4_000_000
    assert number > 10
    full = memory(con)
    assert full > 2_000_000
    check(con)
    con.session.database.engine.memory_budget = 1_000_000
    con.execute("DELETE FROM t WHERE a = 3")
    con.execute("DELETE FROM t WHERE a % 10 < 9")
    con.session.database.engine.memory_budget = 4_000_000
    con.execute("DELETE FROM t WHERE a < 100_000")
    assert memory(con) < full / 2
    con.execute("INSERT INTO t SELECT i, i, 'x' FROM range(5000) x(i)")
    check(con)


def test_rows_by_the_short_ways_stop_at_the_budget(con):
    con.session.database.engine.memory_budget = 1_500_000
    for rows in range(100_000):
        try:
            con.apply_row("c", (rows, rows))
        except sqlfront.OperationalError as error:
            assert "sqlfront_memory" in str(error)
            break
    else:
        raise AssertionError("all rows found room")
    assert rows > 5000 and memory(con) <= 1_500_000
    assert con.execute("SELECT count(*) FROM w").fetchall() == [(rows,)]
    con.apply_row("c", (0, 0), -1)
    check(con)


def test_an_epoch_is_refused_long_before_its_end(con):
    """Part by part: what is taken while it runs stays near the budget, and all parts are undone."""
    con.execute("INSERT INTO c SELECT i, i FROM range(1000) x(i)")
    engine = con.session.database.engine
    most, run = 0, engine._run_programs

    def watched(stage):
        nonlocal most
        flags = run(stage)
        most = max(most, memory(con))
        return flags

    engine._run_programs = watched
    before, counted = con.execute("FROM w").fetchall(), memory(con)
    batch = pa.table({"a": np.arange(500_000), "b": np.arange(500_000)})
    for _ in range(2):
        with pytest.raises(sqlfront.OperationalError, match=r"(?s)the change would .* MiB.*sqlfront_memory is 3.8 MiB"):
            con.apply({"c": batch.slice(0, 100_000)})
        assert most < 6_000_000
    with pytest.raises(sqlfront.OperationalError, match="sqlfront_memory"):
        con.apply({"c": batch})  # The encoded rows alone take more.
    assert most < 6_000_000 and memory(con) < counted + 100_000
    assert con.execute("FROM w").fetchall() == before
    check(con)


def test_an_epoch_in_parts_is_the_whole_epoch(con):
    """Wider sums, negative counts and rows that cancel are found as in one run."""
    con.session.database.engine.memory_budget = 1e9
    con.execute("CREATE MATERIALIZED VIEW sums AS SELECT a % 10 AS g, sum(b) AS s, count(*) AS n FROM c GROUP BY ALL")
    great = pa.table({"a": np.arange(20_000), "b": np.full(20_000, 2**62)})
    epoch = con.apply({"c": great})
    assert epoch.rows == {"c": 20_000}
    assert con.execute("SELECT sum(s) = 20000 * 2::HUGEINT**62, sum(n) FROM sums").fetchall() == [(True, 20_000)]
    check(con)
    weights = np.r_[np.full(20_000, 1), np.full(20_000, -1)]
    both = pa.concat_tables([pa.table({"a": np.arange(20_000) + 50_000, "b": great["b"]}), great])
    con.apply({"c": both.append_column("_weight", pa.array(weights))})
    before = con.execute("FROM w").fetchall()
    with pytest.raises(sqlfront.IntegrityError):
        con.apply({"c": both.append_column("_weight", pa.array(weights))})
    assert con.execute("FROM w").fetchall() == before
    con.apply({"c": both.append_column("_weight", pa.array(-weights))})
    con.apply({"c": great.append_column("_weight", pa.array(np.full(20_000, -1)))})
    assert con.execute("FROM sums").fetchall() == con.execute("FROM w").fetchall() == []
    check(con)


def test_a_build_is_refused_long_before_its_end(con):
    con.session.database.engine.memory_budget = 60e6
    con.execute("INSERT INTO c SELECT i, i FROM range(300_000) x(i)")
    engine, most = con.session.database.engine, 0
    counted, checked = memory(con), engine.check_filling
    engine.memory_budget = counted + 2e6

    def watched(parts=()):
        nonlocal most
        most = max(most, memory(con))
        checked(parts)

    engine.check_filling = watched
    with pytest.raises(sqlfront.OperationalError, match=r"(?s)materialized view x would let .*sqlfront_memory is"):
        con.execute("CREATE MATERIALIZED VIEW x AS SELECT a, b + 1 AS b, count(*) AS n FROM c GROUP BY ALL")
    assert counted < most < counted + 8e6
    assert memory(con) <= counted
    con.execute("DELETE FROM c WHERE a > 10")
    check(con)


def test_readers_lose_their_epoch_before_an_epoch_is_refused(con):
    con.execute("CREATE MATERIALIZED VIEW f AS SELECT a % 3 AS g, sum(b::DOUBLE) AS s FROM c GROUP BY g")
    con.execute("INSERT INTO c SELECT i, i FROM range(10_000) x(i)")
    reader, engine = con.cursor(), con.session.database.engine
    kept = engine.kept
    reader.execute("BEGIN")
    before = reader.execute("FROM f").fetchall()
    for _ in range(3):
        con.execute("UPDATE c SET b = b + 1 WHERE a < 5000")
    assert reader.execute("FROM f").fetchall() == before
    [row] = [row for row in con.execute("SHOW STATE").fetchall() if row[2] == "for readers"]
    assert row[3] >= 10_000 and row[5] == kept.bytes() > 100_000 and "changes since epoch" in row[1]
    engine.memory_budget, engine._uncounted = memory(con) - kept.bytes() + 50_000, 0
    con.execute("UPDATE c SET b = b + 1 WHERE a > 9990")
    assert kept.bytes() == 0
    with pytest.raises(sqlfront.StaleRead, match=r"(?s)of \d+ epochs since take .*beyond sqlfront_memory"):
        reader.execute("FROM f").fetchall()
    reader.rollback()
    reader.execute("BEGIN")
    reader.execute("FROM f").fetchall()
    engine.memory_budget = math.inf
    con.execute("UPDATE c SET b = b + 1")
    assert kept.bytes() > 0
    reader.rollback()
    assert kept.bytes() == 0, "the changes go with their last reader"
    check(con)


def test_a_view_that_finds_no_room_is_not_built(con):
    con.execute("DROP MATERIALIZED VIEW v")
    con.execute("INSERT INTO t SELECT i, i, 'x' || i FROM range(300_000) x(i)")
    before = memory(con)
    with pytest.raises(sqlfront.OperationalError, match="materialized view large would let"):
        con.execute("CREATE MATERIALIZED VIEW large AS SELECT a, s, count(*) AS n FROM t GROUP BY a, s")
    assert memory(con) <= before + 500_000  # Dictionaries keep room for the words that they had.
    con.execute("CREATE MATERIALIZED VIEW small AS SELECT a % 10 AS a, count(*) AS n FROM t GROUP BY ALL")
    assert con.execute("SELECT sum(n) FROM small").fetchall() == [(300_000,)]


def test_a_view_that_finds_no_room_when_its_file_is_opened_says_so(tmp_path, capsys):
    path = str(tmp_path / "data.duckdb")
    with sqlfront.connect(path) as con:
        con.execute(
            "CREATE TABLE t (a BIGINT); CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a"
        )
        con.execute("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n FROM t WHERE a < 10")
        con.execute("INSERT INTO t FROM range(200_000)")
    with sqlfront.connect(path, config={"sqlfront_memory": "2MB"}) as con:
        assert con.execute("FROM total").fetchall() == [(10,)]
        with pytest.raises(sqlfront.Error, match=r"(?s)could not be rebuilt.*MiB of memory"):
            con.execute("FROM v").fetchall()
    with sqlfront.connect(path) as con:
        assert con.execute("SELECT count(*) FROM v").fetchall() == [(200_000,)]


@pytest.mark.parametrize("wrong", ["much", 5, "5 potatoes", None])
def test_a_size_is_written_as_duckdbs(wrong):
    with pytest.raises(sqlfront.InterfaceError, match="500MB"):
        sqlfront.connect(config={"sqlfront_memory": wrong})


RESIDENT = """
import sqlfront
from benchmarks.harness import release, resident
con = sqlfront.connect(config={"sqlfront_progress": False, "threads": 1})
con.execute("CREATE CHANGE TABLE c (a BIGINT, b BIGINT, s VARCHAR)")
con.execute("CREATE CHANGE TABLE d (a BIGINT, x BIGINT)")
for name, query in {
    "tree": "SELECT a, s, sum(b) AS n, max(b) AS m FROM c GROUP BY a, s",
    "order": "SELECT a, b FROM c ORDER BY b, a LIMIT 10",
    "joined": "SELECT d.x, c.b FROM c JOIN d ON c.a = d.a",
    "windows": "SELECT a, b, sum(b) OVER (PARTITION BY a % 100 ORDER BY b) AS t FROM c",
    "quantiles": "SELECT a % 100 AS g, quantile_cont(b, 0.5) AS m, count(DISTINCT s) AS n FROM c GROUP BY ALL",
    "touched": "SELECT a // 10 AS g, string_agg(s, ',') AS t FROM c GROUP BY ALL",
}.items():
    con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
def fill(rows):
    for first in range(0, rows, rows // 8):
        con.execute(f"INSERT INTO c SELECT i, i * 7, 'text ' || i FROM range({first}, {first + rows // 8}) x(i)")
    con.execute("INSERT INTO d SELECT a, b FROM c WHERE a % 3 = 0")
def state():
    release()
    return sum(row[5] for row in con.execute("SHOW STATE").fetchall()), resident()
fill(20_000)
con.execute("DELETE FROM c; DELETE FROM d")
told, before = state()
fill(ROWS)
more, after = state()
print((more - told) / (after - before), con.session.database.engine.memory() / more)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the resident memory")
@pytest.mark.parametrize("rows", [200_000, 1_000_000])
def test_show_state_adds_up_to_what_is_resident(rows):
    program = RESIDENT.replace("ROWS", str(rows))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    told, counted = map(float, done.stdout.split())
    assert 0.9 <= told <= 1.1 and 0.99 <= counted <= 1.01
