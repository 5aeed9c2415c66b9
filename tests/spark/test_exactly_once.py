"""A streaming job that is killed and started again: nothing is lost, nothing doubled; what cannot be so is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sqlfront
from tests.spark import killed_shards
from tests.spark.killed import follow

ROOT = Path(__file__).parents[2]


def run(module, directory, when, number):
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", f"tests.spark.{module}", str(directory), when, str(number)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def give(directory, batches):
    """A file for each batch; what each `a` adds up to in the end."""
    (directory / "in").mkdir()
    expected: dict[int, int] = {}
    for number in range(batches):
        path = directory / "in" / f"{number}.json"
        path.write_text("".join(f'{{"a": {a}, "n": {10**number}}}\n' * (a + 1) for a in range(4)))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
        for a in range(4):
            expected[a] = expected.get(a, 0) + 10**number * (a + 1)
    return expected


def check(spark, directory, deaths, batches=4):
    expected = give(directory, batches)
    for when, number in deaths:
        done = run("killed", directory, when, number)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr[-2000:]
    assert follow(spark, str(directory)) == [sorted(expected.items())] * 2


@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=pytest.mark.slow)])
def test_a_killed_stream_loses_nothing_and_doubles_nothing(spark, tmp_path, when):
    check(spark, tmp_path, [(when, 2)], batches=3)


@pytest.mark.slow
def test_a_stream_may_be_killed_at_every_batch(spark, tmp_path):
    check(spark, tmp_path, [(when, number) for number in (1, 2) for when in ("before", "after")] * 2)


@pytest.mark.slow
def test_a_job_of_shards_may_be_killed_between_any_two_steps(spark, tmp_path):
    """Each death is in another batch: where Spark and DuckDB are then says that it was at that point."""
    expected = give(tmp_path, len(killed_shards.POINTS) + 1)
    found = {}
    for batch, point in enumerate(killed_shards.POINTS):
        done = run("killed_shards", tmp_path, point, batch)
        assert done.returncode == -signal.SIGKILL, (point, done.stdout + done.stderr[-2000:])
        noted = [(tmp_path / "checkpoint" / kind / str(batch)).exists() for kind in ("offsets", "commits")]
        found[point] = (*noted, versions(tmp_path) == [batch + 1] * killed_shards.SHARDS, taken(tmp_path) == batch)
    assert found == {
        # Spark has planned the batch, and committed it; its state store has the batch, and so has DuckDB.
        "planned": (True, False, False, False),
        "applied": (True, False, False, False),
        "kept": (True, False, True, False),
        "taken": (True, False, True, True),
        "logged": (True, True, True, True),
    }
    assert killed_shards.follow(spark, str(tmp_path)) == [(expected[a], 1) for a in range(4)]


def versions(directory):
    """The last version of the state of each partition that Spark's state store has committed."""
    parts = [path for path in (directory / "checkpoint" / "state" / "0").glob("*") if path.name.isdigit()]
    numbers = [[int(path.name.split(".")[0].split("_")[0]) for path in part.glob("[0-9]*.*")] for part in parts]
    return [max(own, default=0) for own in numbers]


def taken(directory):
    """The last batch that DuckDB has committed; -1 for none."""
    with sqlfront.connect(str(directory / "fed.duckdb")) as con:
        return max((offset["batch"] for offset in con.session.database.offsets.values()), default=-1)


def test_a_batch_that_was_committed_is_ignored_when_it_comes_again(spark, tmp_path, monkeypatch):
    from sqlfront.feeds.streaming import take_batch

    with sqlfront.connect(str(tmp_path / "fed.duckdb")) as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT)")
        con.session.ready()
        table = con.session.database.change_tables["main", "t"]
        context = spark.sparkContext
        frame = spark.createDataFrame([(1,)], "a BIGINT")
        for query, number in [("q", 0), ("q", 0), ("q", 1), ("q", 1), ("q", 0)]:
            context.setLocalProperty("sql.streaming.queryId", query)
            take_batch(con.session, table, frame, "auto", "stream", number)
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        context.setLocalProperty("sql.streaming.queryId", "another")
        with pytest.raises(sqlfront.OperationalError, match=r"(?s)another stream has fed change table t.*batch 1"):
            take_batch(con.session, table, frame, "auto", "stream", 0)
        take_batch(con.session, table, frame, "auto", "another stream", 0)
        context.setLocalProperty("sql.streaming.queryId", None)
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_streams_into_what_is_not_durable_are_refused(spark, tmp_path):
    stream = spark.readStream.format("rate").load().selectExpr("value AS a")
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT)")
        with pytest.raises(sqlfront.NotSupportedError, match="not durable"):
            con.register_changes("t", stream, checkpoint=str(tmp_path / "c"))
    with sqlfront.connect(str(tmp_path / "fed.duckdb")) as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT)")
        with pytest.raises(sqlfront.NotSupportedError, match="without a checkpoint"):
            con.register_changes("t", stream)
