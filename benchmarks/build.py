"""build: ten million rows into the view of w1, how fast and into how much memory.

`python -m benchmarks.build [--rows 10000000]` runs three ways to get there, each in a fresh process:
streamed into an existing view, a view created over retained change tables, and a view created over
DuckDB tables. Resident growth is measured from outside, SHOW STATE's bytes are what the engine says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness

VIEW = "SELECT c_id, SUM(price) AS total, COUNT(*) AS n FROM orders JOIN items USING (o_id) GROUP BY c_id"
WAYS = ("streamed", "retained", "duckdb")
STREAM_BATCH = 1_000_000
REPEATS = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one, options.rows)))
        return
    rows = [_best(way, options.rows) for way in options.ways]
    notes = [
        f"The best of {REPEATS} runs.",
        "Each view equals DuckDB's recomputation.",
        "build M rows/s: the time of con.apply (streamed) or of CREATE MATERIALIZED VIEW (the others).",
        "SHOW STATE counts retained rows and dictionaries too; an entry is a row of a table or of an index.",
    ]
    harness.report("build", f"Bulk build of {options.rows:,} rows: {VIEW}", rows, notes=notes)


def _best(way: str, rows: int) -> dict[str, Any]:
    return min((_in_fresh_process(way, rows) for _ in range(REPEATS)), key=lambda row: row["build s"])


def _in_fresh_process(way: str, rows: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.build", "--rows", str(rows), "--one", way]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(way: str, count: int) -> dict[str, Any]:
    """One way, in this process."""
    import sqlfront

    tables = data(count)
    _warm()
    con = sqlfront.connect()
    harness.release()
    before = harness.resident()
    if way == "duckdb":
        for name in tables:
            con.register("rows", tables[name])
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
        harness.release()
        before = harness.resident()
    else:
        retained = str(way == "retained").lower()
        con.execute(f"CREATE CHANGE TABLE orders (o_id BIGINT, c_id BIGINT) WITH (retain = {retained})")
        con.execute(f"CREATE CHANGE TABLE items (i_id BIGINT, o_id BIGINT, price BIGINT) WITH (retain = {retained})")
    if way == "retained":
        _stream(con, tables)
    start = time.perf_counter()
    con.execute(f"CREATE MATERIALIZED VIEW answer AS {VIEW}")
    seconds = _stream(con, tables) if way == "streamed" else time.perf_counter() - start
    harness.release()
    growth = harness.resident() - before
    _compare(con, tables)
    state = con.execute("SHOW STATE").to_arrow_table().to_pydict()
    stated, entries = sum(state["bytes"]), sum(state["entries"])
    con.close()
    return {
        "way": way,
        "build s": seconds,
        "build M rows/s": count / seconds / 1e6,
        "resident MiB": growth / 2**20,
        "SHOW STATE MiB": stated / 2**20,
        "stated / resident": stated / growth,
        "bytes per entry": stated / entries,
    }


def data(count: int) -> dict[str, Any]:
    """A quarter orders, the rest items, in random order, as Arrow."""
    import pyarrow

    random = np.random.default_rng(7)
    orders, items = count // 4, count - count // 4
    key = random.permutation(orders)
    return {
        "items": pyarrow.table(
            {
                "i_id": np.arange(items),
                "o_id": random.integers(orders, size=items),
                "price": random.integers(1, 10_000, size=items),
            }
        ),
        "orders": pyarrow.table({"o_id": key, "c_id": random.integers(max(1, orders // 10), size=orders)}),
    }


def _stream(con: Any, tables: dict[str, Any]) -> float:
    start = time.perf_counter()
    for name, rows in tables.items():
        for first in range(0, len(rows), STREAM_BATCH):
            con.apply({name: rows.slice(first, STREAM_BATCH)})
    return time.perf_counter() - start


def _warm() -> None:
    """Load the kernels, so that neither their time nor their memory is counted."""
    import sqlfront

    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE a (k BIGINT, x BIGINT)")
    con.execute("CREATE CHANGE TABLE b (k BIGINT, g BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, SUM(x) AS x FROM a JOIN b USING (k) GROUP BY g")
    con.execute("INSERT INTO a VALUES (1, 2)")
    con.execute("SELECT * FROM v").fetchall()
    con.close()


def _compare(con: Any, tables: dict[str, Any]) -> None:
    import duckdb

    judge = duckdb.connect()
    for name, rows in tables.items():
        judge.register(name, rows)
    judge.register("answer", con.sql("SELECT * FROM answer").to_arrow_table())
    for pair in (("answer", f"({VIEW})"), (f"({VIEW})", "answer")):
        differing = judge.execute("SELECT COUNT(*) FROM (FROM {} EXCEPT ALL FROM {})".format(*pair)).fetchall()[0][0]
        if differing:
            raise SystemExit(f"{differing} rows of the view differ from DuckDB's")


if __name__ == "__main__":
    main()
