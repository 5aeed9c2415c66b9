"""scaling: what is sent to up to 1,000 shards, and how even they are when keys follow a power law.

`python -m benchmarks.scaling [--rows 100000]`. No shard runs: the planner's partitioning and the router of the real
ones say where every row goes. A key's probability is that of its rank to the power of -s.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness

SHARDS = (1, 10, 100, 1000)
POWERS = (0.0, 0.5, 1.0, 1.5)
TABLES = {
    "orders": "o BIGINT, c BIGINT",
    "items": "o BIGINT, p BIGINT",
    "products": "p BIGINT, kind BIGINT",
    "follows": "x BIGINT, y BIGINT",
}
QUERIES = {
    "orders and items, by order": "SELECT o, count(*) AS n FROM orders JOIN items USING (o) GROUP BY o",
    "orders, items and products": (
        "SELECT c, kind, count(*) AS n FROM orders JOIN items USING (o) JOIN products USING (p) GROUP BY c, kind"
    ),
    "orders by products": "SELECT c, kind, count(*) AS n FROM orders CROSS JOIN products GROUP BY c, kind",
    "orders and their items' number": (
        "SELECT c, sum(n) AS n FROM orders JOIN (SELECT o, count(*) AS n FROM items GROUP BY o) g USING (o) GROUP BY c"
    ),
    "items of the best products": (
        "SELECT o, f.kind FROM items JOIN (SELECT p, kind FROM products ORDER BY kind, p LIMIT 100) f USING (p)"
    ),
    "triangles of followers": (
        "SELECT count(*) AS n FROM follows a, follows b, follows c WHERE a.y = b.x AND b.y = c.x AND c.y = a.x"
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = simulate(parser.parse_args(arguments).rows)
    notes = [
        "copies: shards that a row is sent to, the mean over all rows; expected: rows per shard, by the planner.",
        "s = ...: rows of the fullest shard over those of the mean one, keys drawn with this power.",
    ]
    harness.report("scaling", "Replication and skew of shards", rows, notes=notes)


def simulate(rows: int, counts: Sequence[int] = SHARDS) -> list[dict[str, Any]]:
    """One line per query and number of shards."""
    import sqlfront

    with sqlfront.connect() as con:
        for table, columns in TABLES.items():
            con.execute(f"CREATE CHANGE TABLE {table} ({columns}) WITH (retain = false)")
        return [_line(con, name, shards, rows) for name in QUERIES for shards in counts]


def _line(con: Any, name: str, shards: int, rows: int) -> dict[str, Any]:
    from sqlfront.shards.shard_plan import plan_shards

    plan = plan_shards(con.session, QUERIES[name], shards, {table: _rows(table, rows) for table in TABLES})
    spread = plan.partitioning
    line = {"query": name, "shards": shards, "used": spread.shards}
    line["grid"] = " and ".join(" x ".join(str(one.shares) for one in grid.dimensions) or "1" for grid in spread.grids)
    total = sum(size for _, size in spread.sizes)
    for power in POWERS:
        loads = _loads(plan, rows, power)
        line.setdefault("copies", float(loads.sum() / total))
        line.setdefault("expected", float(spread.load))
        line[f"s = {power}"] = float(loads.max() / loads.mean())
    return line


def _loads(plan: Any, rows: int, power: float) -> np.ndarray:
    """The rows of each shard."""
    import pyarrow

    from sqlfront.shards.routes import Router

    router, loads = Router(plan), np.zeros(plan.partitioning.shards)
    for number, (table, columns) in enumerate(plan.tables):
        draw, count = np.random.default_rng(number), _rows(table.removeprefix("main."), rows)
        keys = {column.name: _keys(draw, count, power) for column in columns}
        changes = pyarrow.table({**keys, "_weight": np.ones(count, np.int64)})
        for shard, _, routed in router.route(table, changes):
            loads[shard] += routed.num_rows
    return loads


def _keys(draw: np.random.Generator, count: int, power: float) -> np.ndarray:
    """Ranks of as many values as there are rows, the first ones the most frequent."""
    weights = np.arange(1, count + 1, dtype=float) ** -power
    return draw.choice(count, size=count, p=weights / weights.sum())


def _rows(table: str, rows: int) -> int:
    return rows // 100 if table == "products" else rows


if __name__ == "__main__":
    main()
