"""A streaming job that is killed and started again: nothing is lost, nothing doubled; what cannot be so is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sqlfront
from tests.spark.killed import follow

pytestmark = pytest.mark.xdist_group("spark")
ROOT = Path(__file__).parents[2]


def run(directory, when, number, *shards):
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "tests.spark.killed", str(directory), when, str(number), *map(str, shards)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def check(spark, directory, deaths, *shards, views=2):
    (directory / "in").mkdir()
    expected: dict[int, int] = {}
    for number in range(4):
        with open(directory / "in" / f"{number}.json", "w") as file:
            for a in range(4):
                file.write(f'{{"a": {a}, "n": {10**number}}}\n' * (a + 1))
                expected[a] = expected.get(a, 0) + 10**number * (a + 1)
    for when, number in deaths:
        done = run(directory, when, number, *shards)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr[-2000:]
    assert follow(spark, str(directory), *shards) == [sorted(expected.items())] * views


def test_a_killed_stream_loses_nothing_and_doubles_nothing(spark, tmp_path):
    check(spark, tmp_path, [("after", 2), ("before", 2)])


@pytest.mark.slow
def test_a_stream_may_be_killed_at_every_batch(spark, tmp_path):
    check(spark, tmp_path, [(when, number) for number in (1, 2) for when in ("before", "after")] * 2)


@pytest.mark.slow
def test_a_killed_stream_of_shards_loses_nothing_and_doubles_nothing(spark, tmp_path):
    check(spark, tmp_path, [("after", 2), ("before", 2)], 2, views=1)


def test_a_batch_that_was_committed_is_ignored_when_it_comes_again(spark, tmp_path, monkeypatch):
    from sqlfront.streaming import take_batch

    with sqlfront.connect(str(tmp_path / "fed.duckdb")) as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT)")
        con._ready()
        table = con._database.change_tables["main", "t"]
        context = spark.sparkContext
        frame = spark.createDataFrame([(1,)], "a BIGINT")
        for query, number in [("q", 0), ("q", 0), ("q", 1), ("q", 1), ("q", 0)]:
            context.setLocalProperty("sql.streaming.queryId", query)
            take_batch(con, table, frame, "auto", "stream", number)
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        context.setLocalProperty("sql.streaming.queryId", "another")
        with pytest.raises(sqlfront.OperationalError, match=r"(?s)another stream has fed change table t.*batch 1"):
            take_batch(con, table, frame, "auto", "stream", 0)
        take_batch(con, table, frame, "auto", "another stream", 0)
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
