"""Shards in Spark's workers: the same views as one engine has, after failures too, and no tree on the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql.functions import spark_partition_id

import sqlfront
import sqlfront.spark
from sqlfront.shards.routes import Router
from sqlfront.shards.shard_plan import plan_shards
from sqlfront.spark.shard_job import PROVIDER, ShardProcessor, spread_keys, start_shards
from tests.spark.test_feeds import NAMES, SPARK_TYPES, TABLES, changes, columns, signed

TOTALS = (
    "SELECT r.b, sum(a) AS total, avg(c) AS mean, count(*) AS n FROM r JOIN s ON r.b = s.b GROUP BY r.b "
    "HAVING count(*) > 1"
)
PER_NUMBER = "SELECT a, sum(c) AS total, max(c) AS most FROM r JOIN s ON r.b = s.b GROUP BY a"
RING = "SELECT count(*) AS n FROM r JOIN s ON r.b = s.b JOIN r AS q ON q.a = s.c JOIN s AS p ON p.b = q.b AND p.c = r.a"
PAIRS = "SELECT r.a, count(*) AS n, sum(c) AS total, max(s.b) AS last FROM r, s GROUP BY r.a HAVING count(c) > 1"
BUSY = (
    "SELECT g.n, count(*) AS times FROM (SELECT b, count(*) AS n FROM s GROUP BY b) g JOIN r ON r.b = g.b GROUP BY g.n"
)
STEPS = 2


@pytest.fixture
def con(tmp_path):
    with sqlfront.connect(str(tmp_path / "driver.duckdb")) as connection:
        for name, types in TABLES.items():
            connection.execute(f"CREATE CHANGE TABLE {name} ({types}) WITH (retain = false, durable = false)")
        yield connection


def give(directory, seed, steps):
    """Files of changes, one a step and table, in the order of the steps."""
    for number in steps:
        for name, rows in changes(seed)[number].items():
            place = directory / name
            place.mkdir(exist_ok=True)
            pyarrow.parquet.write_table(signed(name, rows), place / f"{number}.parquet")
            os.utime(place / f"{number}.parquet", (1_000_000 + number, 1_000_000 + number))


def streams(spark, directory):
    return {
        name: spark.readStream.schema(f"{types}, _weight BIGINT")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(directory / name))
        for name, types in SPARK_TYPES.items()
    }


def run(view, directory, name="v"):
    query = view.into(name, checkpoint=str(directory / "checkpoint"), trigger={"availableNow": True})
    query.awaitTermination()


def expected(query, seed, steps):
    with sqlfront.connect() as one:
        for name, types in TABLES.items():
            one.execute(f"CREATE CHANGE TABLE {name} ({types})")
        for number in steps:
            one.apply({name: signed(name, rows) for name, rows in changes(seed)[number].items()})
        return Counter(one.execute(query).fetchall())


@pytest.mark.parametrize(("query", "shards"), [(TOTALS, 1), (PER_NUMBER, 2), (RING, 4), (PAIRS, 4), (BUSY, 4)])
def test_shards_keep_the_view(spark, con, tmp_path, query, shards):
    give(tmp_path, 5, range(STEPS))
    view = sqlfront.spark.shards(con, query, streams(spark, tmp_path), shards=shards)
    assert view.plan.partitioning.shards == shards
    run(view, tmp_path)
    assert Counter(con.execute("FROM v").fetchall()) == expected(query, 5, range(STEPS))
    if query == PER_NUMBER:
        other = sqlfront.spark.shards(con, query, streams(spark, tmp_path), shards=1)
        with pytest.raises(sqlfront.ProgrammingError, match="another plan"):
            run(other, tmp_path)
        assert Counter(con.execute("FROM v").fetchall()) == expected(query, 5, range(STEPS))
    if query == PAIRS:
        sqlfront.spark.register(spark, con)
        served = spark.read.format("sqlfront").option("view", "v").load().select("a", "n").collect()
        sqlfront.spark.unregister(con)
        assert Counter(map(tuple, served)) == Counter(con.execute("SELECT a, n FROM v").fetchall())
    # The driver holds the rows of the result, and no tree.
    assert con.session.database.views == {}
    assert con.session.database.engine.views == {}
    assert all(con.session.database.engine.relations[f"main.{name}"].stores == {} for name in TABLES)


def test_rows_are_worked_on_in_the_shard_they_are_sent_to(spark, con, tmp_path):
    give(tmp_path, 6, range(STEPS))
    seen = tmp_path / "seen"

    class Watched(ShardProcessor):
        def handleInputRows(self, key, rows, timerValues):
            with open(seen, "a") as file:
                file.write(f"{os.getpid()}\n")
            yield from super().handleInputRows(key, rows, timerValues)

    plan = plan_shards(con.session, TOTALS, 4)
    tables = {f"main.{name}": stream for name, stream in streams(spark, tmp_path).items()}
    view = start_shards(con, plan, tables, "auto", Watched)
    query = (
        view.changes.writeStream.format("memory")
        .queryName("shard_rows")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.table("shard_rows").collect()
    assert len({row["_shard"] for row in rows}) > 1
    assert max(row["_commit_version"] for row in rows) == STEPS
    router = Router(plan)
    for row in rows:
        one = pa.table({**columns("s", [((row["b"], 1), 1)]), "_weight": [1]})
        assert [shard for shard, _, _ in router.route("main.s", one)] == [row["_shard"]]
    assert os.getpid() not in map(int, seen.read_text().split())
    assert con.session.database.engine.views == {}
    spark.catalog.dropTempView("shard_rows")


def test_a_task_that_fails_between_apply_and_commit_is_tried_again(spark, con, tmp_path):
    """The engine has the batch, Spark has not; then the job goes on from its checkpoint, with new rows too."""
    give(tmp_path, 7, range(2))
    failing = tmp_path / "failing"

    class Failing(ShardProcessor):
        def handleInputRows(self, key, rows, timerValues):
            yield from super().handleInputRows(key, rows, timerValues)
            if failing.exists() and self._log.at().number > 1:
                raise RuntimeError("killed before the commit")

    plan = plan_shards(con.session, TOTALS, 2)
    for attempt in range(2):
        failing.touch() if attempt == 0 else failing.unlink()
        tables = {f"main.{name}": stream for name, stream in streams(spark, tmp_path).items()}
        view = start_shards(con, plan, tables, "auto", Failing)
        if attempt == 0:
            with pytest.raises(Exception, match="killed before the commit"):
                run(view, tmp_path)
            give(tmp_path, 7, [2])
    run(view, tmp_path)
    assert Counter(con.execute("FROM v").fetchall()) == expected(TOTALS, 7, range(3))


@pytest.mark.slow
def test_spark_tries_tasks_again_that_fail_or_are_killed_before_the_commit(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(4):
        path = tmp_path / "in" / f"{number}.json"
        path.write_text("".join(f'{{"a": {row % 5}, "n": {number}}}\n' for row in range(20)))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
    command = [sys.executable, str(Path(__file__).with_name("retried.py")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert f"{[(a, 24, 16) for a in range(5)]}\n" in done.stdout, done.stderr
    assert sorted(path.name for path in tmp_path.glob("failed-*")) == ["failed-2", "failed-3"]


@pytest.mark.parametrize(("shards", "partitions"), [(1, 1), (4, 2), (6, 3), (12, 12)])
def test_every_partition_has_equally_many_shards(spark, shards, partitions):
    keys = spread_keys(spark, shards)
    assert len(set(keys)) == shards
    numbers = spark.createDataFrame([(key,) for key in keys], "key INT").repartition(partitions, "key")
    assert set(numbers.groupBy(spark_partition_id()).count().toPandas()["count"]) == {shards // partitions}


def test_what_does_not_fit_is_refused(spark, con, tmp_path):
    give(tmp_path, 5, [0])
    found = streams(spark, tmp_path)
    with pytest.raises(sqlfront.ProgrammingError, match=r"(?s)streams of r.*reads r, s"):
        sqlfront.spark.shards(con, TOTALS, {"r": found["r"]}, shards=2)
    with pytest.raises(sqlfront.ProgrammingError, match="there is no table q"):
        sqlfront.spark.shards(con, TOTALS, {**found, "q": found["r"]}, shards=2)
    still = spark.createDataFrame([(1, "x")], ", ".join(SPARK_TYPES["r"].split(", ")))
    assert NAMES["r"] == tuple(still.columns)
    with pytest.raises(sqlfront.ProgrammingError, match="does not stream"):
        sqlfront.spark.shards(con, TOTALS, {**found, "r": still}, shards=2)
    provider = spark.conf.get(PROVIDER)
    spark.conf.unset(PROVIDER)
    try:
        with pytest.raises(sqlfront.ProgrammingError, match="RocksDB"):
            sqlfront.spark.shards(con, TOTALS, found, shards=2)
    finally:
        spark.conf.set(PROVIDER, provider)
