"""quantiles: one row into a large group with median, p95 and p99, beside DuckDB computing the query again.

`python -m benchmarks.quantiles [--rows 1000000] [--times 100]`. One process; the two sides alternate. A look-up reads
the group's row by SQL after each change, so an answer is as fresh as DuckDB's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import harness

COLUMNS = "service BIGINT, ms BIGINT"
QUERY = "SELECT service, median(ms) AS p50, quantile_cont(ms, [0.95, 0.99]) AS tail FROM {} GROUP BY service"
SIZES = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the largest group")
    parser.add_argument("--times", type=int, default=100, help="changes of one row; their median is reported")
    options = parser.parse_args(arguments)
    sizes = [max(1, options.rows // 10**place) for place in reversed(range(SIZES))]
    rows = [measure(size, options.times) for size in sizes]
    notes = [
        f"Medians of {options.times} changes of one row, each with a look-up of the group's row by SQL.",
        "DuckDB inserts the same row and computes the query over all rows. cpu: processor time of this process.",
        "steps: rows of tables and nodes of search trees that a change and its look-up visit.",
    ]
    harness.report("quantiles", "Quantiles of one group, in milliseconds", rows, notes=notes)


def measure(size: int, times: int) -> dict[str, Any]:
    """A row of the report: changes of a group of so many rows."""
    import duckdb

    import sqlfront

    chance = np.random.default_rng(7)
    with sqlfront.connect() as ours, duckdb.connect() as theirs:
        for con in (ours, theirs):
            con.execute(f"CREATE {'CHANGE ' if con is ours else ''}TABLE calls ({COLUMNS})")
        theirs.execute("INSERT INTO calls SELECT 1, hash(i) % 100000 FROM range(?) r(i)", [size])
        ours.apply({"calls": theirs.sql("FROM calls").to_arrow_table()})
        ours.execute(f"CREATE MATERIALIZED VIEW latency AS {QUERY.format('calls')}")
        view, steps = ours.view("latency"), list[int]()
        taken: dict[str, list[tuple[float, float]]] = {"change": [], "look-up": [], "DuckDB": []}
        for _ in range(times):
            row, before = (1, int(chance.integers(0, 100_000))), view.cost()
            taken["change"].append(_timed(ours.apply_row, "calls", row)[0])
            used, found = _timed(_looked_up, ours)
            taken["look-up"].append(used)
            after = view.cost()
            steps.append(sum(after[part] - before[part] for part in ("steps", "read_steps")))
            theirs.execute("INSERT INTO calls VALUES (?, ?)", row)
            used, expected = _timed(_computed, theirs)
            taken["DuckDB"].append(used)
            assert found == expected, (found, expected)
    medians = {name: [1e3 * statistics.median(one) for one in zip(*own, strict=True)] for name, own in taken.items()}
    (change, cpu), (read, read_cpu), (alone, alone_cpu) = medians.values()
    return {
        "rows": size,
        "change": change,
        "look-up": read,
        "DuckDB": alone,
        "times": alone / (change + read),
        "cpu": cpu + read_cpu,
        "cpu DuckDB": alone_cpu,
        "steps": statistics.median(steps),
    }


def _timed(call: Callable[..., Any], *arguments: object) -> tuple[tuple[float, float], Any]:
    """The seconds and the processor seconds of a call, and what it returns."""
    started, used = time.perf_counter(), time.process_time()
    found = call(*arguments)
    return (time.perf_counter() - started, time.process_time() - used), found


def _looked_up(con: Any) -> Any:
    return con.execute("FROM latency WHERE service = 1").fetchall()


def _computed(con: Any) -> Any:
    return con.execute(QUERY.format("calls")).fetchall()


if __name__ == "__main__":
    main()
