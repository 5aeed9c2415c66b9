"""windows: window functions kept in order, beside DuckDB computing the query again.

`python -m benchmarks.windows [--rows 1000000] [--times 200] [--inserts 100000]`. The view has a running SUM, RANK, LAG
and a moving AVG over one partition, and over 10,000. Single rows are inserted and deleted by apply_row, in the middle
of the order. Then the last ten rows are read, one partition, or everything; and everything after many single inserts.
DuckDB holds the same rows in a table of its own and answers the view's query, with the same filter or order, in the
same process. (`window` measures strings that pass through a view.)
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from benchmarks import harness

PARTITIONS = (1, 10_000)
COLUMNS = "id BIGINT, k BIGINT, ts BIGINT, x BIGINT"
WINDOWS = """
    sum(x) OVER (PARTITION BY k ORDER BY ts) AS total,
    rank() OVER (PARTITION BY k ORDER BY ts) AS place,
    lag(x) OVER (PARTITION BY k ORDER BY ts, id) AS before,
    avg(x) OVER (PARTITION BY k ORDER BY ts, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean"""
QUERY = f"SELECT id, k, ts, x, {WINDOWS} FROM t"
LAST = "ORDER BY ts DESC, id DESC"
STORED = "SELECT * FROM stored"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=200, help="changes with a read of ten rows; others a tenth of it")
    parser.add_argument("--inserts", type=int, default=100_000, help="single inserts before everything is read again")
    parser.add_argument("--duckdb", type=int, default=3, help="how often DuckDB computes each query")
    options = parser.parse_args(arguments)
    rows = [row for count in PARTITIONS for row in measure(options.rows, count, options)]
    few = max(3, options.times // 40)
    notes = [
        f"{options.rows:,} rows. Medians in milliseconds: of {options.times} changes with a read of ten "
        f"rows or one partition, of {few} reads of everything, of {options.duckdb} of DuckDB's.",
        "change: one row inserted or deleted by apply_row in the middle of the order. by SQL: SELECT ... ORDER BY ts "
        "DESC, id DESC LIMIT 10 on the view; by view.top: the view has this order.",
        "everything: fetched as Arrow. Beside it: DuckDB's recomputation, and DuckDB reading a table of the rows.",
        f"inserts: everything, after {options.inserts:,} single inserts in the middle of the order.",
    ]
    harness.report("windows", "Window functions under changes", rows, notes=notes)


def measure(rows: int, partitions: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of one number of partitions."""
    import sqlfront

    times, repeats = options.times, options.duckdb
    con, rng = sqlfront.connect(), random.Random(0)
    source = f"SELECT i AS id, hash(i) % {partitions} AS k, i * 10 AS ts, i % 1000 AS x FROM range({rows}) r(i)"
    con.execute(f"CREATE CHANGE TABLE t ({COLUMNS}, PRIMARY KEY (id))")
    con.execute(f"INSERT INTO t {source}")
    started = time.perf_counter()
    con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY} {LAST}")
    built = time.perf_counter() - started
    duck = duckdb.connect()
    duck.execute(f"CREATE TABLE t AS {source}")
    duck.execute(f"CREATE TABLE stored AS {QUERY}")
    view, held = con.view("v"), list[tuple[int, ...]]()

    def insert() -> tuple[int, ...]:
        place = rng.randrange(rows)
        row = rows + rng.randrange(10**12), place % partitions, place * 10 + 5, rng.randrange(1000)
        con.apply_row("t", row)
        return row

    def change() -> None:
        if held and rng.random() < 0.5:
            con.apply_row("t", held.pop(), weight=-1)
        else:
            held.append(insert())

    def everything() -> Any:
        return con.sql("SELECT * FROM v").to_arrow_table()

    def one_partition() -> str:
        return f"WHERE k = {rng.randrange(partitions)}"

    few, whole = times if partitions > 1 else max(3, times // 40), max(3, times // 40)
    reads: list[tuple[str, int, Callable[[], Any], str]] = [
        ("change alone", times, lambda: None, ""),
        ("last ten rows by view.top", times, lambda: view.top(10), f"{QUERY} {LAST} LIMIT 10"),
        ("last ten rows by SQL", times, lambda: con.execute(f"SELECT * FROM v {LAST} LIMIT 10").fetchall(),
         f"{QUERY} {LAST} LIMIT 10"),
        ("one partition", few, lambda: con.sql(f"SELECT * FROM v {one_partition()}").to_arrow_table(),
         f"SELECT * FROM ({QUERY}) {one_partition()}"),
        ("everything", whole, everything, QUERY),
    ]  # fmt: skip
    found = []
    for name, count, read, query in reads:
        read()
        own = statistics.median(timed(change, read) for _ in range(count))
        row = {"partitions": partitions, "change and": name, "sqlfront ms": 1e3 * own}
        if query:
            other = statistics.median(timed(lambda query=query: asked(duck, query)) for _ in range(repeats))
            row |= {"DuckDB ms": 1e3 * other, "times": other / own}
        if name == "everything":
            row |= beside_stored(duck, own, repeats)
        found.append(row)
    for _ in range(options.inserts):
        insert()
    duck.register("present", everything())
    duck.execute("CREATE OR REPLACE TABLE stored AS SELECT * REPLACE (total::HUGEINT AS total) FROM present")
    own = statistics.median(timed(everything) for _ in range(whole))
    row = {"partitions": partitions, "change and": "everything, after inserts", "sqlfront ms": 1e3 * own}
    found.append(row | beside_stored(duck, own, repeats))
    found[0]["built s"] = built
    con.close()
    return found


def beside_stored(duck: duckdb.DuckDBPyConnection, own: float, repeats: int) -> dict[str, float]:
    """How long DuckDB reads the stored rows, and our speed as a share of DuckDB's."""
    stored = statistics.median(timed(lambda: asked(duck, STORED)) for _ in range(repeats))
    return {"stored table ms": 1e3 * stored, "of its speed": stored / own}


def timed(*calls: Callable[[], Any]) -> float:
    started = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - started


def asked(duck: duckdb.DuckDBPyConnection, query: str) -> Any:
    return duck.sql(query).to_arrow_table()


if __name__ == "__main__":
    main()
