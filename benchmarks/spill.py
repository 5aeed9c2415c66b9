"""spill: a view in temporary files, in a process with less memory than it takes, beside the same view in memory.

`python -m benchmarks.spill [--keys 3000000] [--batches 60] [--times 3] [--directory DIR]`. A process keeps sums by key
of events that are not retained. First each key gets an event. Then batches of 10,000 events come, 90 % of them for a
tenth of the keys. Before the first event the process enters a memory-limited control group. The group has a `times`th
part of the state, and what the process takes beside the state. The other side has no limit and no spill. At the end the
view is compared with sums by numpy. Linux with control groups, as root.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks import harness

COLUMNS = 12
"""Columns that are summed up."""
SUMS = ", ".join(f"sum(c{number})::BIGINT AS s{number}" for number in range(COLUMNS))
BATCH = 10_000
GROUPS = Path("/sys/fs/cgroup")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=3_000_000)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--times", type=float, default=3.0)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.side:
        print(json.dumps(run(options)))
        return
    memory = side(options, "memory", 0)
    beside = memory["resident"] - memory["base"] - memory["state"]
    limit = int(beside + memory["state"] / options.times)
    spilled = side(options, "spill", limit)
    rows = [{"side": name} | found for name, found in (("in memory", memory), ("spilled", spilled))]
    notes = [
        f"The control group had {limit / 1e6:,.0f} MB: {beside / 1e6:,.0f} MB for the process, and one of "
        f"{options.times:g} parts of the state.",
        f"Spilled, the view takes {spilled['changes/s'] / memory['changes/s']:.2f} of the changes per second.",
    ]
    title = f"Sums by {options.keys:,} keys, {options.batches} batches of {BATCH:,} events"
    harness.report("spill", title, rows, notes=notes)


def side(options: argparse.Namespace, name: str, limit: int) -> dict[str, Any]:
    """One side in a process of its own."""
    passed = [f"--{key}={getattr(options, key)}" for key in ("keys", "batches", "directory")]
    command = [sys.executable, "-m", "benchmarks.spill", *passed, f"--side={name}", f"--limit={limit}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The changes per second of one side, its sizes, and whether its views are right."""
    import numpy as np

    import sqlfront

    config = {"sqlfront_spill": options.directory} if options.side == "spill" else {}
    con = sqlfront.connect(config={"sqlfront_progress": False, "threads": 1} | config)
    columns = ", ".join(f"c{number} BIGINT" for number in range(COLUMNS))
    con.execute(f"CREATE CHANGE TABLE t (k BIGINT, {columns}) WITH (retain = false)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT k, {SUMS} FROM t GROUP BY k")
    for weight in (1, -1):
        con.apply({"t": events(np.arange(BATCH), weight)})
    harness.release()
    base = harness.resident()
    with limited(options.limit) if options.limit else nullcontext():
        seconds, counts = changed(con, options.keys, options.batches)
        engine, resident = con.session.database.engine, harness.resident()
    found = con.execute("SELECT k, s0 FROM v ORDER BY k").to_arrow_table()
    keys = np.arange(options.keys)
    return {
        "changes/s": options.batches * BATCH / seconds,
        "state": engine.memory(),
        "in files": engine.spilled(),
        "resident": resident,
        "base": base,
        "right": bool(np.array_equal(found["s0"], counts * (keys % 1000))),
    }


def changed(con: Any, keys: int, batches: int) -> tuple[float, Any]:
    """Fill the view and change it; the seconds of the changes, and the number of events of each key."""
    import numpy as np

    random, counts = np.random.default_rng(1), np.ones(keys, np.int64)
    for first in range(0, keys, BATCH):
        con.apply({"t": events(np.arange(first, min(first + BATCH, keys)))})
    seconds = 0.0
    for _ in range(batches):
        often = random.random(BATCH) < 0.9
        met = np.where(often, random.integers(0, keys // 10, BATCH), random.integers(0, keys, BATCH))
        batch, started = events(met), time.perf_counter()
        con.apply({"t": batch})
        seconds += time.perf_counter() - started
        np.add.at(counts, met, 1)
    return seconds, counts


def events(keys: Any, weight: int = 1) -> Any:
    """An event for each of the keys. Its values go by the key."""
    import numpy as np
    import pyarrow as pa

    values = {f"c{number}": keys % (1000 + number) for number in range(COLUMNS)}
    return pa.table({"k": keys} | values | {"_weight": np.full(len(keys), weight)})


@contextmanager
def limited(count: int) -> Iterator[None]:
    """Within a control group below its own, this process gets so many more bytes of memory, page cache included."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        is_first = controllers == "memory"
        if is_first or (controllers == "" and (GROUPS / "cgroup.controllers").exists()):
            parent = (GROUPS / "memory" if is_first else GROUPS) / path.lstrip("/")
            break
    else:
        raise SystemExit("no control group for memory")
    group = parent / f"sqlfront-spill-{os.getpid()}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(count))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


if __name__ == "__main__":
    main()
