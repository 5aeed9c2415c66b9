"""A streaming job that dies at a COMMIT: killed.py DIRECTORY before|after|never N, run by test_exactly_once.py.

`before N` dies when it is about to commit its N-th batch, `after N` when DuckDB has committed it and Spark does not
know yet. Prints what the view holds when it has come to the end of its input.
"""

from __future__ import annotations

import os
import signal
import sys

import sqlfront
from sqlfront.spark.session import start
from tests.sqlfront.crashing import watch


def main(directory: str, when: str, number: int) -> None:
    path, left = f"{directory}/fed.duckdb", [number]

    def step(at: str, arguments: tuple) -> None:
        if at == when and arguments == ("COMMIT",) and streaming:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    streaming = False
    watch(path, step)
    con = sqlfront.connect(path)
    if not con.execute("SHOW CHANGE TABLES").fetchall():
        con.execute("CREATE CHANGE TABLE kept (a BIGINT, n BIGINT)")
        con.execute("CREATE CHANGE TABLE passing (a BIGINT, n BIGINT) WITH (retain = false)")
        for name in ("kept", "passing"):
            con.execute(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT a, sum(n)::BIGINT AS n FROM {name} GROUP BY a")
    spark = start(2)
    stream = spark.readStream.schema("a BIGINT, n BIGINT").option("maxFilesPerTrigger", 1).json(f"{directory}/in")
    streaming = True
    for name in ("kept", "passing"):
        query = con.register_changes(
            name, stream, checkpoint=f"{directory}/checkpoint-{name}", trigger={"availableNow": True}
        )
        query.awaitTermination()
    for name in ("kept", "passing"):
        print(sorted(con.execute(f"FROM of_{name}").fetchall()), flush=True)
    con.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
