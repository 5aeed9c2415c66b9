"""spill: views in temporary files, in a process with less memory than they take, beside the same views in memory.

`python -m benchmarks.spill [--rows 3000000] [--batches 60] [--times 3] [--directory DIR]`. A process keeps two views
over `rows` rows. Then batches of 10,000 changed rows come, of which 90 % are of 10 % of the keys. Before the first row
it enters a memory-limited control group. The group has a `times`th part of the state, and what the process takes beside
the state. The other side has no limit and no spill. At the end the views are compared with DuckDB's answers. Linux with
control groups, as root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

VIEWS = {
    "sums": "SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k",
    "best": "SELECT g, max(x) AS m FROM (SELECT k % 1000 AS g, x FROM t) GROUP BY g",
}
BATCH = 10_000
GROUPS = Path("/sys/fs/cgroup")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
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
        f"Spilled, the views take {spilled['changes/s'] / memory['changes/s']:.2f} of the changes per second.",
    ]
    title = f"Views over {options.rows:,} rows, {options.batches} batches of {BATCH:,} changes"
    harness.report("spill", title, rows, notes=notes)


def side(options: argparse.Namespace, name: str, limit: int) -> dict[str, Any]:
    """One side in a process of its own."""
    passed = [f"--{key}={getattr(options, key)}" for key in ("rows", "batches", "directory")]
    command = [sys.executable, "-m", "benchmarks.spill", *passed, f"--side={name}", f"--limit={limit}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The changes per second of one side, its sizes, and whether its views are right."""
    import numpy as np
    import pyarrow as pa

    import sqlfront

    config = {"sqlfront_spill": options.directory} if options.side == "spill" else {}
    con = sqlfront.connect(config={"sqlfront_progress": False, "threads": 1} | config)
    con.execute("CREATE CHANGE TABLE t (k BIGINT, x BIGINT)")
    for name, query in VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    con.apply({"t": pa.table({"k": [1], "x": [1], "_weight": [1]})})
    con.apply({"t": pa.table({"k": [1], "x": [1], "_weight": [-1]})})
    harness.release()
    base = harness.resident()
    if options.limit:
        limited(options.limit)
    random = np.random.default_rng(1)
    held = {"k": np.empty(0, np.int64), "x": np.empty(0, np.int64)}
    for first in range(0, options.rows, BATCH):
        fresh = {"k": np.arange(first, first + BATCH) * 7919 % options.rows, "x": random.integers(0, 1000, BATCH)}
        con.apply({"t": pa.table(fresh)})
        held = {name: np.r_[held[name], fresh[name]] for name in held}
    started = time.perf_counter()
    for _ in range(options.batches):
        con.apply({"t": batch(random, held, options.rows)})
    seconds = time.perf_counter() - started
    engine, resident = con.session.database.engine, harness.resident()
    con.register("rows_now", pa.table(held))
    return {
        "changes/s": options.batches * BATCH / seconds,
        "state": engine.memory(),
        "in files": engine.spilled(),
        "resident": resident,
        "base": base,
        "right": all(
            digest(con, query.replace("FROM t", "FROM rows_now")) == digest(con, f"FROM {name}")
            for name, query in VIEWS.items()
        ),
    }


def digest(con: Any, query: str) -> list[Any]:
    """The number of rows of a query, and a hash of them in any order."""
    return con.execute(f"SELECT count(*), sum(hash(v)::HUGEINT) FROM ({query}) AS v").fetchall()


def batch(random: Any, held: dict[str, Any], keys: int) -> Any:
    """Rows that get another value, 90 % of them of the first tenth of the rows; `held` are the rows afterwards."""
    import numpy as np
    import pyarrow as pa

    count = BATCH // 2
    often = random.random(count) < 0.9
    places = np.unique(np.where(often, random.integers(0, keys // 10, count), random.integers(0, keys, count)))
    former = {name: values[places] for name, values in held.items()}
    held["x"][places] += random.integers(1, 10, len(places))
    both = {name: np.r_[former[name], held[name][places]] for name in held}
    return pa.table(both | {"_weight": np.repeat([-1, 1], len(places))})


def limited(count: int) -> None:
    """Put this process into a control group below its own that has so many bytes of memory, and its page cache."""
    import atexit
    import os

    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory" or (controllers == "" and (GROUPS / "cgroup.controllers").exists()):
            first = controllers == "memory"
            parent = (GROUPS / "memory" if first else GROUPS) / path.lstrip("/")
            group = parent / f"sqlfront-spill-{os.getpid()}"
            group.mkdir()
            (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(count))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            atexit.register(left, parent, group)
            return
    raise SystemExit("no control group for memory")


def left(parent: Path, group: Path) -> None:
    """Leave a control group, and remove it."""
    import os

    (parent / "cgroup.procs").write_text(str(os.getpid()))
    group.rmdir()


if __name__ == "__main__":
    main()
