"""A job of shards that dies in a batch: killed_shards.py DIRECTORY POINT BATCH, for test_exactly_once.py.

POINT is one of `POINTS`, in the order in which a batch passes them. The driver and its Java die at once, by SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sqlfront
from sqlfront.feeds import streaming
from sqlfront.shards.shard_plan import plan_shards
from sqlfront.spark.session import start
from sqlfront.spark.shard_job import ShardProcessor, start_shards
from tests.sqlfront.define.crashing import watch

POINTS = ("planned", "applied", "kept", "taken", "logged")
"""Spark has noted which files the batch has; a shard has applied it, and Spark's state store has not committed that;
the state store has, and DuckDB is about to commit what the shards put out; DuckDB has; Spark has noted that too."""
SELECT = "SELECT n, count(*) AS times FROM (SELECT a, sum(n) AS n FROM t GROUP BY a) g GROUP BY n"
SHARDS = 2


def main(directory: str, point: str, batch: int) -> None:
    session = start(2)
    processes = [session.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]
    here: list[int] = []

    def die_at(passed: str) -> None:
        if passed == point and here[-1:] == [batch]:
            die(processes)

    def at_commit(passed: str, arguments: tuple) -> None:
        if arguments == ("COMMIT",) and threading.current_thread() is not threading.main_thread():
            die_at({"before": "kept", "after": "taken"}[passed])

    take = streaming.take_batch

    def take_batch(*arguments: Any) -> None:
        here.append(arguments[-1])
        die_at("planned")
        take(*arguments)

    class Dying(ShardProcessor):
        def handleInputRows(self, key, rows, timerValues):
            yield from super().handleInputRows(key, rows, timerValues)
            if point == "applied" and self._log.at().number == batch + 1:
                die(processes)

    def wait() -> None:
        while not Path(directory, "checkpoint", "commits", str(batch)).exists():
            time.sleep(0.01)
        die(processes)

    streaming.take_batch = take_batch
    watch(f"{directory}/fed.duckdb", at_commit)
    if point == "logged":
        threading.Thread(target=wait, daemon=True).start()
    follow(session, directory, Dying)


def die(processes: list[int]) -> None:
    for process in processes:
        os.kill(process, signal.SIGKILL)


def follow(spark: Any, directory: str, processor: type[ShardProcessor] = ShardProcessor) -> list[tuple]:
    """Take in what there is, from where the job is; the rows of its view then."""
    with sqlfront.connect(f"{directory}/fed.duckdb") as con:
        con.execute("CREATE CHANGE TABLE IF NOT EXISTS t (a BIGINT, n BIGINT) WITH (retain = false)")
        stream = spark.readStream.schema("a BIGINT, n BIGINT").option("maxFilesPerTrigger", 1).json(f"{directory}/in")
        view = start_shards(con, plan_shards(con.session, SELECT, SHARDS), {"main.t": stream}, "auto", processor)
        query = view.into("v", checkpoint=f"{directory}/checkpoint", trigger={"availableNow": True})
        query.awaitTermination()
        return sorted(con.execute("FROM v").fetchall())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
