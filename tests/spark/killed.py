"""A streaming job that dies at a COMMIT: killed.py DIRECTORY before|after N [SHARDS], for test_exactly_once.py.

`before N` dies when it is about to commit its N-th batch, `after N` when DuckDB has committed it and Spark does not
know yet. With so many SHARDS the view is kept by Spark's workers, whose state is committed with the batch.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import sqlfront
import sqlfront.spark
from sqlfront.spark.session import start
from tests.sqlfront.crashing import watch

NAMES = ("kept", "passing")


def main(directory: str, when: str, number: int, shards: int = 0) -> None:
    path, left = f"{directory}/fed.duckdb", [number]

    def step(at: str, arguments: tuple) -> None:
        in_a_batch = threading.current_thread() is not threading.main_thread()
        if at == when and arguments == ("COMMIT",) and in_a_batch:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    watch(path, step)
    follow(start(2), directory, shards)


def follow(spark: Any, directory: str, shards: int = 0) -> list[list[tuple]]:
    """Take in what there is, from where the job is; the rows of its views then."""
    with sqlfront.connect(f"{directory}/fed.duckdb") as con:
        if not con.execute("SHOW CHANGE TABLES").fetchall():
            make_tables(con)
        stream = spark.readStream.schema("a BIGINT, n BIGINT").option("maxFilesPerTrigger", 1).json(f"{directory}/in")
        trigger = {"availableNow": True}
        if shards:
            con.execute("CREATE CHANGE TABLE IF NOT EXISTS spread (a BIGINT, n BIGINT) WITH (retain = false)")
            select = "SELECT a, sum(n)::BIGINT AS n FROM spread GROUP BY a"
            view = sqlfront.spark.shards(con, select, {"spread": stream}, shards=shards)
            view.into("of_spread", checkpoint=f"{directory}/checkpoint", trigger=trigger).awaitTermination()
            return [sorted(con.execute("FROM of_spread").fetchall())]
        for name in NAMES:
            query = con.register_changes(name, stream, checkpoint=f"{directory}/checkpoint-{name}", trigger=trigger)
            query.awaitTermination()
        return [sorted(con.execute(f"FROM of_{name}").fetchall()) for name in NAMES]


def make_tables(con: sqlfront.Connection) -> None:
    con.execute("CREATE CHANGE TABLE kept (a BIGINT, n BIGINT)")
    con.execute("CREATE CHANGE TABLE passing (a BIGINT, n BIGINT) WITH (retain = false)")
    for name in NAMES:
        con.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT a, sum(n)::BIGINT AS n FROM {name} GROUP BY a")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:]))
