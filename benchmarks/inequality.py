"""inequality: as-of joins and windows of time under changes, beside DuckDB running the query again; and the streams of
GCQ1 to GCQ8, of payments, of quotes and of intervals, beside views that store every join.

`python -m benchmarks.inequality [--rows 1000000] [--keys 1000] [--times 200] [--stored 1.0] [--seconds 10]`. Both sides
have the same rows and take the same changes: new rows at the end of time and late ones, single and in batches, and
deletions. DuckDB's inserts are not timed. Both must have the same result at the end. The streams are in
`benchmarks/inequality_streams.py`. `--rows 20000 --times 20 --stored 0.5 --seconds 1` takes minutes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness
from benchmarks.inequality_streams import MOST_CHANGED, MOST_TOLD, STREAMS, Sizes
from benchmarks.inequality_streams import measure as measured

BATCH = 1_000
SECOND = 1_000_000


@dataclass(frozen=True)
class Workload:
    """A query over tables of (id, k, at_time, v). The changes go to each of the tables."""

    name: str
    tables: tuple[str, ...]
    query: str


WORKLOADS = (
    Workload(
        "trades and quotes, ASOF JOIN",
        ("trades", "quotes"),
        "SELECT t.k, count(*) AS n, sum(t.v * q.v) AS s FROM trades t ASOF JOIN quotes q "
        "ON t.k = q.k AND t.at_time >= q.at_time GROUP BY t.k",
    ),
    Workload(
        "trades and quotes, ASOF LEFT JOIN, rows",
        ("trades", "quotes"),
        "SELECT t.id, t.k, t.at_time, t.v * q.v AS s FROM trades t ASOF LEFT JOIN quotes q "
        "ON t.k = q.k AND t.at_time >= q.at_time",
    ),
    Workload(
        "payments of an account within 10 minutes",
        ("payments",),
        "SELECT x.k, count(*) AS n, sum(y.v) AS s FROM payments x JOIN payments y ON x.k = y.k "
        "AND y.at_time > x.at_time - INTERVAL 10 MINUTES AND y.at_time < x.at_time GROUP BY x.k",
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each table")
    parser.add_argument("--keys", type=int, default=1_000, help="symbols, or accounts")
    parser.add_argument("--times", type=int, default=200, help="single changes; their median is reported")
    parser.add_argument("--stored", type=float, default=1.0, help="rows beside stored joins, as a share of the usual")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a subscriber is told of rows")
    parser.add_argument("--parts", nargs="+", choices=("changes", "streams"), default=("changes", "streams"))
    options = parser.parse_args(arguments)
    if "changes" in options.parts:
        _report_changes(options)
    if "streams" in options.parts:
        _report_streams(options)


def _report_changes(options: argparse.Namespace) -> None:
    rows = [row for work in WORKLOADS for row in measure(work, options.rows, options.keys, options.times)]
    notes = [
        f"{options.rows:,} rows of each table, {options.keys:,} keys, one row a second in all.",
        f"Medians of {options.times} epochs of one row and of {max(1, options.times // 20)} of {BATCH:,} rows, in "
        "milliseconds. cpu: processor time. DuckDB's query ran once, on all cores, into Arrow.",
        "steps: counted steps of the view per changed row, the median and the most of any epoch.",
        "late: at a random time among the rows that are there.",
    ]
    harness.report("inequality", "As-of joins and windows of time, a change beside DuckDB", rows, notes=notes)


def _report_streams(options: argparse.Namespace) -> None:
    sizes = Sizes(options.rows, options.stored, options.times, options.seconds)
    notes = [
        "A change is a copy of a random row of each table, which comes or goes: means, without a subscriber. duckdb: "
        "its query ran once on all cores, and only counted its rows.",
        "emitted: rows told to a subscriber by single rows of the second half of the stream, per second of processor "
        f"time. by batches: by epochs of `batch` rows, as many as make {MOST_TOLD:,} rows, at most {MOST_CHANGED:,}.",
        "stored rows: rows of each table with a chain of views that stores every join. There the view is so many times "
        "faster, by processor time, and smaller, in bytes.",
    ]
    rows = [measured(stream, sizes) for stream in STREAMS]
    harness.report("inequality_streams", "Streams of inequality joins, beside stored joins", rows, notes=notes)


def measure(work: Workload, rows: int, keys: int, times: int) -> list[dict[str, Any]]:
    """The rows of the report of one workload."""
    import duckdb

    import sqlfront

    random = np.random.default_rng(7)
    ours, duck = sqlfront.connect(), duckdb.connect()
    for table in work.tables:
        ours.execute(f"CREATE CHANGE TABLE {table} (id BIGINT, k BIGINT, at_time TIMESTAMP, v BIGINT)")
        loaded = made(random, np.arange(rows), np.arange(rows) * SECOND, keys)
        ours.apply({table: loaded})
        duck.execute(f"CREATE TABLE {table} AS FROM loaded")
    started = time.perf_counter()
    ours.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^2)') AS {work.query}")
    built = time.perf_counter() - started
    started = time.perf_counter()
    duck.sql(work.query).to_arrow_table()
    recomputed = 1e3 * (time.perf_counter() - started)
    found, number = [], rows
    for table in work.tables:
        for kind, count, epochs in (
            ("newest", 1, times), ("late", 1, times), ("deleted", 1, times), ("late", BATCH, max(1, times // 20))
        ):  # fmt: skip
            taken: list[tuple[float, float, float]] = []
            for _ in range(epochs):
                at = np.arange(number, number + count) * SECOND
                if kind != "newest":
                    at = random.integers(0, rows, count) * SECOND + 1
                changed = made(random, np.arange(number, number + count), at, keys)
                if kind == "deleted":
                    changed = duck.sql(f"FROM {table} WHERE id = {random.integers(rows)}").to_arrow_table()
                    duck.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM changed)")
                else:
                    duck.execute(f"INSERT INTO {table} FROM changed")
                number += count
                taken.append(_applied(ours, table, changed, -1 if kind == "deleted" else 1))
            ms, cpu, steps = (statistics.median(one) for one in zip(*taken, strict=True))
            found.append(
                {
                    "view": work.name, "change": f"{kind} {count:,} of {table}", "ms": ms, "cpu": cpu, "steps": steps,
                    "most steps": max(one[2] for one in taken), "duckdb": recomputed, "times": recomputed / ms,
                    "build s": built,
                }
            )  # fmt: skip
    kept, expected = (Counter(con.sql(query).fetchall()) for con, query in ((ours, "FROM v"), (duck, work.query)))
    assert kept == expected, f"{work.name}: the view is not its query"
    ours.close()
    duck.close()
    return found


def made(random: np.random.Generator, ids: np.ndarray, at: np.ndarray, keys: int) -> pa.Table:
    """Rows with these numbers and times, of random keys."""
    return pa.table(
        {
            "id": ids,
            "k": random.integers(0, keys, len(ids)),
            "at_time": pa.array(at, pa.timestamp("us")),
            "v": random.integers(1, 100, len(ids)),
        }
    )


def _applied(con: Any, table: str, rows: pa.Table, weight: int) -> tuple[float, float, float]:
    """Milliseconds, of processor time too, and steps per row, of an epoch."""
    weighted = rows.append_column("_weight", pa.array(np.full(rows.num_rows, weight)))
    processor, started = time.process_time(), time.perf_counter()
    epoch = con.apply({table: weighted})
    taken = time.perf_counter() - started, time.process_time() - processor
    return 1e3 * taken[0], 1e3 * taken[1], epoch.steps.get("v", 0) / max(1, rows.num_rows)


if __name__ == "__main__":
    main()
