"""A view kept in another file or table: equal to the view after every write, whatever was missed, and written once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.storage.outside.sinks import DeltaSink, DuckDBSink, ParquetSink, Sink

SINKS: dict[str, type[Sink]] = {"duckdb": DuckDBSink, "parquet": ParquetSink, "delta": DeltaSink}


@pytest.fixture(params=SINKS)
def format(request):
    if request.param == "delta":
        pytest.importorskip("deltalake", reason="not installed (script/test installs it)")
    return request.param


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT, s VARCHAR)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT s, a FROM t WHERE a > 0")
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT s, sum(a) AS total FROM t GROUP BY s")
        yield con


def held(path, format, table):
    """The rows that a reader finds, who knows nothing of us."""
    with duckdb.connect(str(path) if format == "duckdb" else ":memory:") as con:
        if format == "delta":
            import deltalake

            con.register(table, deltalake.DeltaTable(str(path)).to_pyarrow_dataset())
        elif format == "parquet":
            con.execute(f"CREATE VIEW {table} AS FROM read_parquet('{path}/current/*.parquet')")
        return Counter(con.execute(f"FROM {table}").fetchall())


def wanted(con, view):
    return Counter(con.execute(f"FROM {view}").fetchall())


@pytest.mark.parametrize("view", ["v", "w"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_copy_is_the_view_after_every_write(con, tmp_path, format, view, seed):
    rng, rows, path = random.Random(seed), [], tmp_path / "copy"
    for _ in range(3):
        with con.view(view).copy_to(str(path), format=format) as copy:
            for _ in range(3):
                change(con, rng, rows)
                written(copy, con)
                if format != "duckdb":  # Whose file is ours while it is open.
                    assert held(path, format, view) == wanted(con, view)
        assert held(path, format, view) == wanted(con, view)
        change(con, rng, rows)  # Nobody copies this one: the next copy finds the difference.


def written(copy, con):
    """Wait until a copy has followed to the last epoch, which has changed its view."""
    until = time.monotonic() + 30
    while copy.version < con.session.database.engine.epoch and copy.error is None and time.monotonic() < until:
        time.sleep(0.01)
    assert copy.version == con.session.database.engine.epoch and copy.error is None


def change(con, rng, rows):
    """Insert and delete rows, equal ones and NULLs among them; each view changes."""
    new = [(rng.choice([-1, 1, 2, None]), rng.choice(["x", "y", None])) for _ in range(5)] + [(len(rows) + 3, "x")]
    gone = rng.sample(rows, min(3, len(rows)))
    weights = [1] * len(new) + [-1] * len(gone)
    a, s = zip(*new, *gone, strict=True)
    con.apply({"t": pa.table({"a": pa.array(a, pa.int64()), "s": pa.array(s, pa.string()), "_weight": weights})})
    for row in gone:
        rows.remove(row)
    rows += new


KILLED = """
import os, signal, sys, sqlfront
from sqlfront.storage.outside.sinks import Sink
con = sqlfront.connect("db.duckdb")
with con.view("v").copy_to("copy", format=sys.argv[1]):
    Sink._expect = lambda sink, found: os.kill(os.getpid(), signal.SIGKILL)
    con.execute("DELETE FROM t WHERE a < 3")
"""


def test_a_process_that_is_killed_between_rows_and_commit(tmp_path, format, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sqlfront.connect("db.duckdb") as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT, s VARCHAR)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT s, a FROM t WHERE a > 0")
        con.execute("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, NULL), (3, 'y'), (3, 'y')")
        con.view("v").copy_to("copy", format=format).close()
    before = held("copy", format, "v")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = subprocess.run([sys.executable, "-c", KILLED, format], env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert held("copy", format, "v") == before
    with sqlfront.connect("db.duckdb") as con:
        con.view("v").copy_to("copy", format=format).close()
        assert held("copy", format, "v") == wanted(con, "v") == {("y", 3): 2}


def test_a_write_that_dies_is_made_once(con, tmp_path, format, monkeypatch):
    """Between its commit and our knowing of it; DuckDB's is the end of a transaction, which is rolled back here."""
    path, commit = tmp_path / "copy", SINKS[format]._commit
    con.execute("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, 'y')")
    con.view("v").copy_to(str(path), format=format).close()
    before = held(path, format, "v")

    def dies(sink, version):
        commit(sink, version)
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(SINKS[format], "_commit", dies)
        copy = con.view("v").copy_to(str(path), format=format)
        con.apply({"t": pa.table({"a": [2, 1, 5, 5], "s": ["y", "x", None, None], "_weight": [-1, 1, 1, 1]})})
        with pytest.raises(RuntimeError, match="killed"):
            copy.close()
    assert held(path, format, "v") == (before if format == "duckdb" else wanted(con, "v"))
    with con.view("v").copy_to(str(path), format=format) as copy:
        assert copy.version == con.session.database.engine.epoch
    assert held(path, format, "v") == wanted(con, "v") == {("x", 1): 4, (None, 5): 2}


def test_what_is_written_is_not_written_again(con, tmp_path, format, monkeypatch):
    path, writes, commit = tmp_path / "copy", [], SINKS[format]._commit

    def counted(sink, version):
        writes.append(version)
        commit(sink, version)

    monkeypatch.setattr(SINKS[format], "_commit", counted)
    con.execute("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    for _ in range(3):
        con.view("v").copy_to(str(path), format=format).close()
    assert writes == [con.session.database.engine.epoch]


def test_types_that_others_do_not_have(con, tmp_path, format):
    con.execute(
        "CREATE CHANGE TABLE k (h HUGEINT, u UUID, x DOUBLE, d DATE, t TIMESTAMP, z TIMESTAMPTZ, n DECIMAL(9, 2))"
    )
    con.execute("CREATE MATERIALIZED VIEW kinds AS FROM k")
    row = (
        "(-5, '00000000-0000-0000-0000-000000000007', 'NaN', '2024-02-29', '2024-02-29 01:02:03.456789', "
        "'2024-02-29 01:02:03+02', 1.25)"
    )
    path = tmp_path / "copy"
    with con.view("kinds").copy_to(str(path), format=format) as copy:
        con.execute(f"INSERT INTO k VALUES {row}, {row}, (NULL, NULL, NULL, NULL, NULL, NULL, NULL)")
        written(copy, con)
        con.execute("DELETE FROM k WHERE h IS NULL")
        con.apply({"k": con.sql("SELECT *, -1 AS _weight FROM k LIMIT 1").to_arrow_table()})
    casts = "h, u, x" if format == "duckdb" else "h::DECIMAL(38, 0), u::VARCHAR, x"
    [expected] = con.execute(f"SELECT {casts}, d, t, z, n FROM kinds").fetchall()
    [found] = held(path, format, "kinds").elements()
    assert repr(found) == repr(expected)


def test_an_interval_that_is_spelled_anew_reaches_the_copy(con, tmp_path, format):
    path = tmp_path / "copy"
    con.execute("CREATE TABLE spans (k INT, i INTERVAL)")
    con.execute("INSERT INTO spans VALUES (1, '30 days'), (1, '30 days'), (1, '1 month')")
    con.execute("CREATE MATERIALIZED VIEW x AS SELECT k, i FROM spans")
    with con.view("x").copy_to(str(path), format=format) as copy:
        written(copy, con)
        con.execute("BEGIN; DELETE FROM spans WHERE i::VARCHAR = '30 days'")
        con.execute("INSERT INTO spans VALUES (1, '1 month'), (1, '1 month'), (1, '720 hours'); COMMIT")
    if format == "duckdb":
        with duckdb.connect(str(path)) as plain:
            rows = plain.execute("SELECT i::VARCHAR FROM x").fetchall()
    else:
        rows = [row[1:] for row in held(path, format, "x").elements()]
    assert sorted(rows) == [("1 month",)] * 3 + [("720:00:00",)]


def test_rows_that_someone_else_has_taken_are_missed(con, tmp_path):
    con.execute("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (2, 'y')")
    copy = con.view("v").copy_to(str(tmp_path / "copy"))
    with duckdb.connect(str(tmp_path / "copy")) as other:
        other.execute("DELETE FROM v WHERE a = 1")
    con.execute("DELETE FROM t WHERE a = 1")
    with pytest.raises(sqlfront.OperationalError, match=r"(?s)does not hold.*someone else.*copy the view there again"):
        copy.close()
    con.view("v").copy_to(str(tmp_path / "copy")).close()
    assert held(tmp_path / "copy", "duckdb", "v") == {("y", 2): 1}


def test_a_copy_that_cannot_be_kept_is_refused(con, tmp_path, format):
    path = tmp_path / "copy"
    con.view("w").copy_to(str(path), "v" if format == "duckdb" else None, format=format).close()
    with pytest.raises(sqlfront.ProgrammingError, match="other columns"):
        con.view("v").copy_to(str(path), format=format)
    if format != "duckdb":
        with pytest.raises(sqlfront.ProgrammingError, match="no table 'x'"):
            con.view("v").copy_to(str(path), "x", format=format)


def test_what_there_is_no_writing_to(con, tmp_path, monkeypatch):
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)no format 'csv'.*parquet"):
        con.view("v").copy_to(str(tmp_path / "copy"), format="csv")
    with pytest.raises(sqlfront.OperationalError, match="cannot be kept"):
        con.view("v").copy_to(str(tmp_path / "nosuch" / "copy.duckdb"))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(sqlfront.NotSupportedError, match=r"(?s)deltalake is not installed.*pip install"):
        con.view("v").copy_to(str(tmp_path / "copy"), format="delta")
    copy = con.view("w").copy_to(str(tmp_path / "copy.duckdb"))
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as other:
        other.execute("DROP TABLE w")
    con.execute("INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(duckdb.Error, match="w"):
        copy.close()
