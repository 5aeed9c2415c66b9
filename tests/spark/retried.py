"""A job of shards of which Spark tries tasks again, for test_shards.py: `python retried.py DIRECTORY`.

In the second batch a task fails, and in the third its worker is killed, when the shard has applied the batch and Spark
has not committed it. Spark's local mode tries a task once unless its master says otherwise, so this has its own.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import sqlfront
from sqlfront.shards.shard_plan import plan_shards
from sqlfront.spark.session import start
from sqlfront.spark.shard_job import ShardProcessor, start_shards

SELECT = "SELECT a, sum(n)::BIGINT AS n, count(*) AS rows FROM t GROUP BY a"


def processor(directory: str) -> type[ShardProcessor]:
    """One that fails in the second batch of the first shard that has one, and is killed in the third."""

    class Failing(ShardProcessor):
        def handleInputRows(self, key, rows, timerValues):
            yield from super().handleInputRows(key, rows, timerValues)
            number = self._log.at().number
            mark = Path(directory, f"failed-{number}")
            if number in (2, 3) and not mark.exists():
                mark.touch()
                if number == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("failed before the commit")

    return Failing


def main(directory: str) -> None:
    spark = start(1, spark__master="local[1,4]")
    with sqlfront.connect(f"{directory}/fed.duckdb") as con:
        con.execute("CREATE CHANGE TABLE t (a BIGINT, n BIGINT) WITH (retain = false)")
        stream = spark.readStream.schema("a BIGINT, n BIGINT").option("maxFilesPerTrigger", 1).json(f"{directory}/in")
        view = start_shards(con, plan_shards(con.session, SELECT, 2), {"main.t": stream}, "auto", processor(directory))
        query = view.into("v", checkpoint=f"{directory}/checkpoint", trigger={"availableNow": True})
        query.awaitTermination()
        print(sorted(con.execute("FROM v").fetchall()))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
