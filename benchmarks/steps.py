"""steps: the counted steps of a q-hierarchical view do not grow with its tables, not even on a hub key.

`python -m benchmarks.steps` also shows state and result of a join of all rows: the result grows quadratically, the
state does not. And it counts the steps of outer joins and set operations, of a hub's first and last partner
too.
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
HUB = -1
OUTER = {
    "LEFT": "SELECT r.a, r.x, s.y FROM r LEFT JOIN s ON r.a = s.a",
    "FULL": "SELECT r.a, r.x, s.y FROM r FULL JOIN s ON r.a = s.a",
    "ANTI": "SELECT r.a, r.x FROM r ANTI JOIN s ON r.a = s.a",
    "LEFT of a join": "SELECT r.a, r.x, s.y FROM r LEFT JOIN (s JOIN s AS t ON s.a = t.a) ON r.a = s.a",
    "IN": "SELECT r.x, r.a IN (SELECT a FROM s) AS found FROM r",
    "LEFT, NULL equals NULL": "SELECT r.a, r.x, s.y FROM r LEFT JOIN s ON r.a IS NOT DISTINCT FROM s.a",
    "LEFT, first rows": "SELECT r.a, r.x, s.y FROM r LEFT JOIN s USING (a) ORDER BY s.y NULLS FIRST, r.x LIMIT 10",
    "ANTI, first rows": "SELECT r.a, r.x FROM r ANTI JOIN s USING (a) ORDER BY r.x DESC LIMIT 10",
    "LEFT by two tables": (
        "SELECT r.x, u.y FROM r JOIN (SELECT a, y FROM s WHERE a <> -1) AS t ON r.a = t.a "
        "LEFT JOIN s AS u ON u.a = r.x AND u.y = t.y"
    ),
    "EXCEPT ALL": "SELECT a FROM r EXCEPT ALL SELECT a FROM s",
    "INTERSECT ALL": "SELECT a FROM r INTERSECT ALL SELECT a FROM s",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args(arguments)
    rows = [measure(size, hub) for hub in (False, True) for size in options.sizes]
    harness.report("steps", "Steps per change: SELECT a, SUM(x), COUNT(*) FROM r JOIN s USING (a) GROUP BY a", rows)
    rows = [full_join(size) for size in options.sizes]
    harness.report("full_join", "State and result: SELECT * FROM r JOIN s USING (a), 100 keys", rows)
    rows = [row for size in options.sizes for row in outer_joins(size)]
    notes = ["Half of the rows of r are on a hub key, of which s has no row but the one that comes and goes."]
    harness.report("outer_steps", "Steps per change: outer joins and set operations of r and s", rows, notes=notes)


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


def outer_joins(size: int) -> list[dict[str, Any]]:
    """Steps per single change of spread keys, and of a hub's first and last partner, for each outer join."""
    import pyarrow

    con = _tables(size, False)
    hub = np.full(size // 2, HUB)
    con.apply({"r": pyarrow.table({"a": hub, "x": np.arange(len(hub))})})
    for number, query in enumerate(OUTER.values()):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    views = [con.view(f"v{number}") for number in range(len(OUTER))]
    keys = np.random.default_rng(2).integers(max(1, size // 20), size=CHANGES // 10).tolist()

    def steps(changes: Sequence[tuple[str, int, int]]) -> list[float]:
        before = [view.cost()["steps"] for view in views]
        for table, key, weight in changes:
            con.apply_row(table, (key, 1), weight)
        return [(view.cost()["steps"] - old) / len(changes) for view, old in zip(views, before, strict=True)]

    spread = steps([(table, key, weight) for key in keys for table in "rs" for weight in (1, -1)])
    partners = steps([("s", HUB, 1)]), steps([("s", HUB, -1)])
    con.close()
    return [
        {"rows": size, "join": kind, "steps/change": mean, "hub's first partner": first, "hub's last partner": last}
        for kind, mean, first, last in zip(OUTER, spread, *partners, strict=True)
    ]


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
