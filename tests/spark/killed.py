"""A streaming job that dies at a COMMIT: killed.py DIRECTORY before|after N, for test_exactly_once.py.

`before N` dies when it is about to commit its N-th batch, `after N` when DuckDB has committed it and Spark does not
know yet.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import sqlfront
from sqlfront.spark.session import start
from tests.sqlfront.define.crashing import watch

NAMES = ("kept", "passing")


def main(directory: str, when: str, number: int) -> None:
    path, left = f"{directory}/fed.duckdb", [number]

    def step(at: str, arguments: tuple) -> None:
        in_a_batch = threading.current_thread() is not threading.main_thread()
        if at == when and arguments == ("COMMIT",) and in_a_batch:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    watch(path, step)
    follow(start(2), directory)


def follow(spark: Any, directory: str) -> list[list[tuple]]:
    """Take in what there is, from where the job is; the rows of its views then."""
    with sqlfront.connect(f"{directory}/fed.duckdb") as con:
        if not con.execute("SHOW CHANGE TABLES").fetchall():
            make_tables(con)
        stream = spark.readStream.schema("a BIGINT, n BIGINT").option("maxFilesPerTrigger", 1).json(f"{directory}/in")
        trigger = {"availableNow": True}
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
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
