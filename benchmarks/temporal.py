"""temporal: the last hour of events, kept by ticks of a second, as the window holds more and more events.

`python -m benchmarks.temporal` counts the steps of each tick for each event that it moves, and takes the time beside
DuckDB, which runs the query again at each tick. Each window of one hour holds that many events; as many wait for a
later hour. A second view counts the events of each of 100 users in the same hour.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import harness

SIZES = (10_000, 100_000, 1_000_000)
TICKS = 300
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
VIEWS = {
    "events": "SELECT id, ts FROM e WHERE ts > {now} - INTERVAL 1 HOUR AND ts <= {now}",
    "users": "SELECT u, count(*) AS n FROM e WHERE ts > {now} - INTERVAL 1 HOUR AND ts <= {now} GROUP BY u",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--ticks", type=int, default=TICKS)
    options = parser.parse_args(arguments)
    rows = [measure(name, size, options.ticks) for name in VIEWS for size in options.sizes]
    notes = [f"{options.ticks} ticks of a second over a window of one hour; each side ends with the same rows."]
    harness.report("temporal", "Ticks of a second: the events of the last hour", rows, notes=notes)


def measure(name: str, size: int, ticks: int) -> dict[str, Any]:
    """Steps and time of ticks where the window of one hour holds `size` events, and as many come later."""
    import duckdb

    import sqlfront

    query = VIEWS[name]
    con, duck = sqlfront.connect(), duckdb.connect()
    columns = "e (id BIGINT, u BIGINT, ts TIMESTAMPTZ)"
    con.execute(f"CREATE CHANGE TABLE {columns}")
    duck.execute(f"CREATE TABLE {columns}")
    for side in (con, duck):
        side.execute(f"INSERT INTO e SELECT i, i % 100, ?::TIMESTAMPTZ + i * INTERVAL 1 HOUR / {size} "
                     f"FROM range({2 * size}) t(i)", [START])  # fmt: skip
    now = START + datetime.timedelta(hours=1)
    con.advance_time(now)
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (clock = 'manual') AS {query.format(now='now()')}")
    view, moved = con.view("v"), 0
    before, start = view.cost()["steps"], time.perf_counter()
    for _ in range(ticks):
        now += datetime.timedelta(seconds=1)
        con.advance_time(now)
    seconds, steps = time.perf_counter() - start, view.cost()["steps"] - before
    ends = [f"TIMESTAMPTZ '{one.isoformat()}'" for one in (now - datetime.timedelta(seconds=ticks), now)]
    for shift in ("", " - INTERVAL 1 HOUR"):
        between = f"ts > {ends[0]}{shift} AND ts <= {ends[1]}{shift}"
        moved += duck.execute(f"SELECT count(*) FROM e WHERE {between}").fetchall()[0][0]
    text = query.format(now=ends[1])
    started = time.perf_counter()
    expected = duck.execute(text).fetchall()
    again = time.perf_counter() - started
    assert sorted(view.rows()) == sorted(expected)
    con.close()
    return {
        "view": name,
        "events in the window": size,
        "moved/tick": moved / ticks,
        "steps/moved": steps / moved,
        "ms/tick": seconds / ticks * 1e3,
        "us/moved": seconds / moved * 1e6,
        "ms DuckDB again": again * 1e3,
    }


if __name__ == "__main__":
    main()
