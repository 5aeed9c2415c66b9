"""A streaming job that dies at a COMMIT: killed.py DIRECTORY before|after|never N [SHARDS], for test_exactly_once.py.

`before N` dies when it is about to commit its N-th batch, `after N` when DuckDB has committed it and Spark does not
know yet. Prints what the view holds when it has come to the end of its input. With so many SHARDS the view is kept by
Spark's workers, whose state is committed with the batch.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import sqlfront
import sqlfront.spark
from sqlfront.spark.session import start
from tests.sqlfront.crashing import watch


def main(directory: str, when: str, number: int, shards: int = 0) -> None:
    path, left = f"{directory}/fed.duckdb", [number]

    def step(at: str, arguments: tuple) -> None:
        in_a_batch = threading.current_thread() is not threading.main_thread()
        if at == when and arguments == ("COMMIT",) and in_a_batch:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    watch(path, step)
    con = sqlfront.connect(path)
    if not con.execute("SHOW CHANGE TABLES").fetchall():
        con.execute("CREATE CHANGE TABLE kept (a BIGINT, n BIGINT)")
        con.execute("CREATE CHANGE TABLE passing (a BIGINT, n BIGINT) WITH (retain = false)")
        for name in ("kept", "passing"):
            con.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT a, sum(n)::BIGINT AS n FROM {name} GROUP BY a")
    spark = start(2)
    stream = spark.readStream.schema("a BIGINT, n BIGINT").option("maxFilesPerTrigger", 1).json(f"{directory}/in")
    if shards:
        con.execute("CREATE CHANGE TABLE IF NOT EXISTS spread (a BIGINT, n BIGINT) WITH (retain = false)")
        select = "SELECT a, sum(n)::BIGINT AS n FROM spread GROUP BY a"
        view = sqlfront.spark.shards(con, select, {"spread": stream}, shards=shards)
        view.into("of_spread", checkpoint=f"{directory}/checkpoint", trigger={"availableNow": True}).awaitTermination()
        print(sorted(con.execute("FROM of_spread").fetchall()), flush=True)
        con.close()
        return
    for name in ("kept", "passing"):
        query = con.register_changes(
            name, stream, checkpoint=f"{directory}/checkpoint-{name}", trigger={"availableNow": True}
        )
        query.awaitTermination()
    for name in ("kept", "passing"):
        print(sorted(con.execute(f"FROM of_{name}").fetchall()), flush=True)
    con.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(int, sys.argv[4:]))
