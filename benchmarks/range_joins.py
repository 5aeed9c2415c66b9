"""range_joins: the inequality joins of Idris et al. (2020), overlapping intervals and histories: steps and memory.

`python -m benchmarks.range_joins [--rows 30000] [--intervals 100000] [--stored 600] [--times 30]`. Changes are single
rows at the least, a middle and the greatest place of each table, and copies of random ones. Memory is beside that of a
view `WITH (strategy = 'materialize')` over `--stored` rows of each table, which stores every join: it grows with the
square of them, or faster. Both views over these rows have the rows of the query in DuckDB.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness

Columns = dict[str, np.ndarray]
KEYS = 192


@dataclass(frozen=True)
class Workload:
    """A query over tables, and what makes their first rows: columns for so many rows of each; the view's strategy."""

    name: str
    query: str
    tables: Callable[[np.random.Generator, int], dict[str, Columns]]
    strategy: str = "auto"


def numbers(random: np.random.Generator, rows: int, names: str, keyed: bool = False) -> Columns:
    """Columns of random numbers below the number of rows; the last of a keyed table is one of KEYS keys."""
    found = {name: random.integers(0, rows, rows) for name in names}
    return found | ({"k": random.integers(0, KEYS, rows)} if keyed else {})


def plain(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    return {table: numbers(random, rows, names) for table, names in (("r", "abc"), ("s", "def"), ("t", "ghi"))}


def keyed(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    return {"r": numbers(random, rows, "abc"), "s": numbers(random, rows, "def", True)} | {
        "t": numbers(random, rows, "ghi", True)
    }


def intervals(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    """Intervals. Each overlaps some twenty others."""
    found = {}
    for table in "xy":
        start = random.integers(0, 10 * rows, rows)
        found[table] = {"id": np.arange(rows), "s": start, "e": start + random.integers(1, 200, rows)}
    return found


def history(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    """Items of orders, and twelve prices of each product, one after the other."""
    orders, products = max(1, rows // 4), max(1, rows // 100)
    start = np.tile(np.arange(12) * 30, products)
    return {
        "orders": {"id": np.arange(orders), "day": random.integers(0, 360, orders)},
        "items": {"id": random.integers(0, orders, rows), "product": random.integers(0, products, rows),
                  "amount": random.integers(1, 9, rows)},
        "prices": {"product": np.repeat(np.arange(products), 12), "start": start, "stop": start + 30,
                   "price": random.integers(1, 99, 12 * products)},
    }  # fmt: skip


def points(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    """Points and rectangles. A rectangle has some twenty points."""
    side = max(1, int(rows * (20 / max(1, rows)) ** 0.5))
    corner = numbers(random, rows, "xy")
    ends = {f"{name}2": corner[name] + random.integers(0, 2 * side, rows) for name in "xy"}
    return {"p": numbers(random, rows, "xy"), "q": {"x1": corner["x"], "y1": corner["y"]} | ends}


CHAIN, KEYED = "FROM r, s, t WHERE a < d AND d < g", "FROM r, s, t WHERE a < d AND d < g AND s.k = t.k"
OVERLAP = "FROM x JOIN y ON y.s <= x.e AND x.s <= y.e"
INSIDE = "FROM p JOIN q ON p.x BETWEEN q.x1 AND q.x2 AND p.y BETWEEN q.y1 AND q.y2 AND q.x1 <= q.x2 AND q.y1 <= q.y2"
PRICED = (
    "FROM items i JOIN orders o ON o.id = i.id "
    "JOIN prices p ON p.product = i.product AND o.day >= p.start AND o.day < p.stop"
)
PAPER = (
    Workload("GCQ1", "SELECT r.*, s.* FROM r, s WHERE a < d", plain),
    Workload("GCQ2", "SELECT r.*, s.*, t.* FROM r, s, t WHERE a < d AND e < g", plain),
    Workload("GCQ3", f"SELECT r.*, s.*, t.* {CHAIN}", plain),
    Workload("GCQ4", f"SELECT a, b, c, d, e, f, g, h, i, s.k {KEYED}", keyed),
    Workload("GCQ5", f"SELECT a, b, d, e, f, g, h {CHAIN}", plain),
    Workload("GCQ6", f"SELECT d, e, f, g, h, s.k {KEYED}", keyed),
    Workload("GCQ7", f"SELECT b, c, e, f, h, i {CHAIN}", plain),
    Workload("GCQ8", f"SELECT b, c, e, f, h, i {KEYED}", keyed),
)
DISTINCT = (
    Workload("GCQ5 DISTINCT", f"SELECT DISTINCT a, b, d, e, f, g, h {CHAIN}", plain),
    Workload("GCQ7 DISTINCT", f"SELECT DISTINCT b, c, e, f, h, i {CHAIN}", plain),
    Workload("GCQ8 DISTINCT", f"SELECT DISTINCT b, c, e, f, h, i {KEYED}", keyed, "linear space"),
)
"""All have O(N) entries. GCQ8 is not free-connex: its rows are found in turn, at a delay of O(N)."""
OWN = (
    Workload("overlaps, rows", f"SELECT x.id, x.s, x.e, y.id AS other {OVERLAP}", intervals),
    Workload("overlaps, count", f"SELECT count(*) AS n {OVERLAP}", intervals),
    Workload("overlaps, ordered ends", f"SELECT count(*) AS n {OVERLAP} AND x.s <= x.e AND y.s <= y.e", intervals),
    Workload("dominance", "SELECT count(*) AS n, sum(q.x1) AS x FROM p JOIN q ON p.x < q.x1 AND p.y < q.y1", points),
    Workload(
        "close points", "SELECT count(*) AS n FROM p JOIN q ON abs(p.x - q.x1) < 99 AND abs(p.y - q.y1) < 99", points
    ),
    Workload("points in rectangles", f"SELECT count(*) AS n {INSIDE}", points),
    Workload("history, rows", f"SELECT o.id, o.day, i.product, i.amount * p.price AS cents {PRICED}", history),
    Workload("history, sums", f"SELECT o.day, sum(i.amount * p.price) AS cents {PRICED} GROUP BY o.day", history),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000, help="rows of each table of GCQ1 to GCQ8")
    parser.add_argument("--intervals", type=int, default=100_000, help="rows of each table of intervals; items")
    parser.add_argument("--stored", type=int, default=600, help="rows of each table with every join stored")
    parser.add_argument("--times", type=int, default=30, help="random changes of each table")
    options = parser.parse_args(arguments)
    sizes = [(work, options.rows) for work in (*PAPER, *DISTINCT)] + [(work, options.intervals) for work in OWN]
    rows = [measure(work, size, min(options.stored, size), options.times) for work, size in sizes]
    notes = [
        f"GCQ: {options.rows:,} rows of each table, k one of {KEYS}. The others: {options.intervals:,}.",
        "steps: counted steps of one inserted row, by table; the median of copies of random rows and of the least, a "
        "middle and the greatest, and the most.",
        "entries/row: rows of tables and of their indexes, beside the tables' rows. bytes/row: memory with what sums "
        "over boxes have, beside them.",
        f"stored: entries/row with every join stored, of {options.stored:,} rows a table.",
    ]
    harness.report("range_joins", "Joins by ranges and boxes: steps and memory", rows, notes=notes)


def measure(work: Workload, rows: int, few: int, times: int) -> dict[str, Any]:
    """The row of the report of one workload."""
    con, loaded = opened(work, rows)
    held = sum(len(next(iter(columns.values()))) for columns in loaded.values())
    result = con.view("v").count() if work.strategy == "auto" else None  # Counting rows in turn takes as long as them.
    found = {"view": work.name, "rows": held, "result": result, "entries/row": entries(con) / held}
    found["bytes/row"] = sum(con.execute("SHOW STATE").to_arrow_table().to_pydict()["bytes"]) / held
    random = np.random.default_rng(11)
    taken: dict[str, list[int]] = {}
    for table, columns in loaded.items():
        ends = [[int(choose(values)) for values in columns.values()] for choose in (np.min, np.median, np.max)]
        chosen = random.integers(0, len(next(iter(columns.values()))), times)
        others = [[int(values[place]) for values in columns.values()] for place in chosen]
        taken[table] = [_steps(con, table, row) for row in (*ends, *others)]
    found["steps"] = ", ".join(f"{table} {statistics.median(steps):.0f}" for table, steps in taken.items())
    found["most"] = ", ".join(f"{table} {max(steps):,}" for table, steps in taken.items())
    con.close()
    found["stored"] = checked(work, few)
    return found


def opened(work: Workload, rows: int, strategy: str | None = None) -> tuple[Any, dict[str, Columns]]:
    """A database with the tables and the view v, of another strategy if that is given, and the tables' first rows."""
    import sqlfront

    con, loaded = sqlfront.connect(), work.tables(np.random.default_rng(7), rows)
    for table, columns in loaded.items():
        con.execute(f"CREATE CHANGE TABLE {table} ({', '.join(f'{name} BIGINT' for name in columns)})")
        con.apply({table: pa.table(columns)})
    strategy = strategy or work.strategy
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (strategy = '{strategy}', at_worst = 'O(N^9)') AS {work.query}")
    return con, loaded


def checked(work: Workload, rows: int) -> float:
    """Entries a row with every join stored, of a view that is compared with DuckDB's answer, as ours is."""
    import duckdb

    found = []
    for strategy in ("materialize", None):
        con, loaded = opened(work, rows, strategy)
        with duckdb.connect() as duck:
            for table, columns in loaded.items():
                duck.register("made", pa.table(columns))
                duck.execute(f"CREATE TABLE {table} AS FROM made")
            counted = f"SELECT count(*), sum(hash(COLUMNS(*))::HUGEINT) FROM ({work.query})"
            kept = con.execute("SELECT count(*), sum(hash(COLUMNS(*))::HUGEINT) FROM v").fetchall()
            assert Counter(kept) == Counter(duck.sql(counted).fetchall()), f"{work.name}: the view is not its query"
        held = sum(len(next(iter(columns.values()))) for columns in loaded.values())
        found.append(entries(con) / held)
        con.close()
    return found[0]


def entries(con: Any) -> int:
    return sum(con.execute("SHOW STATE").to_arrow_table().to_pydict()["entries"])


def _steps(con: Any, table: str, row: list[int]) -> int:
    """The steps of one inserted row, which is taken back."""
    before = con.view("v").cost()["steps"]
    con.apply_row(table, tuple(row))
    found: int = con.view("v").cost()["steps"] - before
    con.apply_row(table, tuple(row), -1)
    return found


if __name__ == "__main__":
    main()
