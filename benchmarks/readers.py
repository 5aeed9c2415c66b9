"""readers: look-ups of a view by several threads beside a writer, and of a stored copy of its rows in DuckDB.

`python -m benchmarks.readers [--groups 100000] [--readers 4] [--seconds 5]`. Each thread has a cursor of its own and
looks up one group after the other by SQL. The writer inserts one row after the other into the view's table: an epoch of
the view, or an UPDATE of the copy beside the INSERT. Without a writer and without readers, each rate and each time is
that of one side alone.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import harness

LOOK_UP = "SELECT k, n, s FROM v WHERE k = ?"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args(arguments)
    rows = [
        run(side, options.groups, readers, writes, options.seconds)
        for readers, writes in ((options.readers, True), (options.readers, False), (0, True))
        for side in (ours, duckdb_alone)
    ]
    rates = [row["look-ups/s"] for row in rows[:2]]
    alone, beside = rows[4]["write p99 ms"], rows[0]["write p99 ms"]
    notes = [
        f"Beside the writer sqlfront has {rates[0] / rates[1]:.2f} of DuckDB's look-ups. "
        f"The writer's p99 beside readers is {beside / alone:.1f} times that alone.",
        f"Failed reads: {sum(row['failed'] for row in rows)}.",
    ]
    harness.report("readers", f"Look-ups of one of {options.groups:,} groups beside a writer", rows, notes=notes)


def ours(groups: int) -> tuple[Any, Callable[[Any, int], object]]:
    """A view over a table, and what writes."""
    import sqlfront

    con = sqlfront.connect()
    con.execute(f"CREATE TABLE t AS SELECT range AS k, range AS x FROM range({groups})")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k")
    return con, lambda cursor, k: cursor.execute("INSERT INTO t VALUES (?, 1)", [k])


def duckdb_alone(groups: int) -> tuple[Any, Callable[[Any, int], object]]:
    """The view's rows in a table with a key, and what writes."""
    import duckdb

    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT range AS k, range AS x FROM range({groups})")
    con.execute("CREATE TABLE v (k BIGINT PRIMARY KEY, n BIGINT, s HUGEINT)")
    con.execute("INSERT INTO v SELECT k, count(*), sum(x) FROM t GROUP BY k")

    def write(cursor: Any, k: int) -> None:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (?, 1)", [k])
        cursor.execute("UPDATE v SET n = n + 1, s = s + 1 WHERE k = ?", [k])
        cursor.execute("COMMIT")

    return con, write


def run(side: Callable[[int], Any], groups: int, readers: int, writes: bool, seconds: float) -> dict[str, Any]:
    """Look-ups a second of all readers together, and the writer's times."""
    con, write = side(groups)
    start, end = threading.Event(), threading.Event()
    counts, failed, times = [0] * readers, [0], list[float]()

    def read(number: int) -> None:
        cursor, k = con.cursor(), number
        start.wait()
        while not end.is_set():
            k = (k * 48271 + 11) % groups
            try:
                [(found, _, _)] = cursor.execute(LOOK_UP, [k]).fetchall()
                counts[number] += found == k
            except Exception:
                failed[0] += 1

    def change() -> None:
        cursor, k = con.cursor(), 7
        start.wait()
        while not end.is_set():
            k = (k * 16807 + 5) % groups
            began = time.perf_counter()
            write(cursor, k)
            times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    threads += [threading.Thread(target=change)] if writes else []
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    start.set()
    time.sleep(seconds)
    end.set()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    con.close()
    times.sort()
    return {
        "side": "sqlfront" if side is ours else "DuckDB, a stored copy",
        "readers": readers,
        "writer": "yes" if writes else "no",
        "look-ups/s": sum(counts) / took,
        "writes/s": len(times) / took,
        "write p50 ms": 1000 * times[len(times) // 2] if times else None,
        "write p99 ms": 1000 * times[int(len(times) * 0.99)] if times else None,
        "failed": failed[0],
    }


if __name__ == "__main__":
    main()
