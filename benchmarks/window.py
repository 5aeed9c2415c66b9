"""window: ever new strings slide through a view; memory stays that of the window.

`python -m benchmarks.window [--strings 10000000] [--width 10000]`
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import harness


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strings", type=int, default=10_000_000)
    parser.add_argument("--width", type=int, default=10_000)
    options = parser.parse_args(arguments)
    rows = slide(options.strings, options.width)
    title = f"{options.strings:,} distinct strings through a window of {options.width:,}"
    path = harness.report("window", title, rows)
    growth = rows[-1]["resident MiB"] - rows[0]["resident MiB"]
    with open(path, "a") as file:
        file.write(f"\n- Resident growth from a tenth of the stream to its end: {growth:.1f} MiB.\n")


def slide(strings: int, width: int) -> list[dict[str, Any]]:
    """Ten readings over the stream."""
    import pyarrow

    import sqlfront

    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE events (word VARCHAR, size BIGINT) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT word, SUM(size) AS size FROM events GROUP BY word")

    def window(number: int) -> Any:
        words = pyarrow.array(
            [f"event number {number * width + place}, quite unlike all others" for place in range(width)]
        )
        return pyarrow.table({"word": words, "size": pyarrow.array(range(width), pyarrow.int64())})

    def weighted(rows: Any, weight: int) -> Any:
        return rows.append_column("_weight", pyarrow.array([weight] * len(rows), pyarrow.int64()))

    steps = strings // width
    last, seconds, readings = None, 0.0, []
    for number in range(steps):
        rows = window(number)
        both = [weighted(rows, 1)] + ([weighted(last, -1)] if last is not None else [])
        changes = pyarrow.concat_tables(both)
        start = time.perf_counter()
        con.apply({"events": changes})
        seconds += time.perf_counter() - start
        last = rows
        if (number + 1) % max(1, steps // 10) == 0:
            live = con.view("v").count()
            stated = sum(con.execute("SHOW STATE").to_arrow_table()["bytes"].to_pylist())
            readings.append(
                {
                    "strings so far": (number + 1) * width,
                    "live": live,
                    "resident MiB": harness.resident() / 2**20,
                    "SHOW STATE MiB": stated / 2**20,
                    "changes/s": round((2 * number + 1) * width / seconds),
                }
            )
    con.close()
    return readings


if __name__ == "__main__":
    main()
