"""steps: the counted steps of a q-hierarchical view do not grow with its tables, not even on a hub key.

`python -m benchmarks.steps` also shows state and result of a full join: the result grows quadratically,
the state does not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness

SIZES = (1_000, 10_000, 100_000, 1_000_000)
CHANGES = 1_000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args(arguments)
    rows = [measure(size, hub) for hub in (False, True) for size in options.sizes]
    harness.report("steps", "Steps per change: SELECT a, SUM(x), COUNT(*) FROM r JOIN s USING (a) GROUP BY a", rows)
    rows = [full_join(size) for size in options.sizes]
    harness.report("full_join", "State and result: SELECT * FROM r JOIN s USING (a), 100 keys", rows)


def measure(size: int, hub: bool) -> dict[str, Any]:
    """Steps and time per single change after `size` rows; the hub key holds half of all rows."""
    con = _tables(size, hub)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, SUM(x) AS x, COUNT(*) AS n FROM r JOIN s USING (a) GROUP BY a")
    random = np.random.default_rng(2)
    keys = [0] * CHANGES if hub else random.integers(max(1, size // 20), size=CHANGES).tolist()
    view = con.view("v")
    before, start = view.cost()["steps"], time.perf_counter()
    for key in keys:
        con.apply_row("r", (key, 1))
        con.apply_row("s", (key, 2))
        con.apply_row("r", (key, 1), weight=-1)
        con.apply_row("s", (key, 2), weight=-1)
    seconds, steps = time.perf_counter() - start, view.cost()["steps"] - before
    con.close()
    changes = 4 * len(keys)
    return {
        "rows": size,
        "keys": "one hub" if hub else "spread",
        "steps/change": steps / changes,
        "us/change": seconds / changes * 1e6,
        "ns/step": seconds / steps * 1e9,
    }


def full_join(size: int) -> dict[str, Any]:
    """State of SELECT * against the size of its result."""
    con = _tables(size, False, keys=100)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, x, y FROM r JOIN s USING (a)")
    view = con.view("v")
    state, count = view.state(), view.count()
    con.close()
    entries, size_bytes = sum(row["entries"] for row in state), sum(row["bytes"] for row in state)
    return {"rows": size, "result rows": count, "state entries": entries, "state MiB": size_bytes / 2**20}


def _tables(size: int, hub: bool, keys: int | None = None) -> Any:
    import pyarrow

    import sqlfront

    con = sqlfront.connect()
    random = np.random.default_rng(1)
    for name, column in (("r", "x"), ("s", "y")):
        con.execute(f"CREATE CHANGE TABLE {name} (a BIGINT, {column} BIGINT) WITH (retain = true)")
        key = random.integers(keys or max(1, size // 20), size=size // 2)
        if hub:
            key[: len(key) // 2] = 0
        con.apply({name: pyarrow.table({"a": key, column: random.integers(1_000_000_000, size=len(key))})})
    return con


if __name__ == "__main__":
    main()
