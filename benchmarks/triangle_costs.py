"""triangle_costs: what epsilon trades, in counted steps, and how views of triangles are read.

`python -m benchmarks.triangle_costs` counts, on instances built in bulk at each N: the steps of a change whose lists
are as long as its epsilon allows, beside the exponent max(epsilon, 1 - epsilon) that theory gives (Kara et al. 2020,
Theorem 3); those between two stars, which are constant where values are told apart; the rows kept at epsilon = 1/2
where single partitions would keep N^1.5. It then counts and times reading the view of triangles with one, two and three
output columns, row by row.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.triangles import power_law

SIZES = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
EPSILONS = (0, 0.25, 0.5, 0.75, 1)
JOIN = "FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"
OUTPUTS = {1: "r.a", 2: "r.a, r.b", 3: "r.a, r.b, s.c"}
COLUMNS = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a")}
Points = list[tuple[float, float]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--reads", type=int, nargs="+", default=(3_000, 30_000, 300_000))
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    read: list[dict[str, Any]] = []
    notes: list[str] = []
    panels = [
        _changes("tight lists", tight, options.sizes, rows, notes, lambda epsilon: max(epsilon, 1 - epsilon)),
        _changes("two stars", two_stars, options.sizes, rows, notes, lambda epsilon: int(epsilon in (0, 1))),
        _space(options.sizes, rows, notes),
    ]
    harness.plot_lines("triangle_costs", panels)
    harness.report("triangle_costs", "triangle_costs: R(a, b), S(b, c), T(c, a) by epsilon", rows, notes=notes)
    harness.plot_lines("triangle_reads", [_reads(options.reads, read)])
    harness.report("triangle_reads", "triangle_reads: a power-law graph as R, S and T, grouped by its corners", read)


def tight(epsilon: float, size: int) -> dict[str, np.ndarray]:
    """Of about size / 2 rows, two values whose lists are as long as may be: light ones, of just under N^epsilon rows;
    or heavy ones, of N^(1 - epsilon) heavy partners. The rest of the rows meets nothing."""
    threshold = size**epsilon
    if 0.5 <= epsilon < 1:
        partners, width = math.ceil(threshold) - 1, 1
    else:
        width = math.floor(threshold) + 1 if epsilon < 0.5 else 1
        partners = size // 2 // (width + 1)
    c = np.arange(partners)
    s = np.stack([np.zeros_like(c), c], axis=1)
    t = np.stack([np.repeat(c, width), np.tile(np.arange(width), partners)], axis=1)
    rest = -1 - np.arange(max(0, size // 2 - len(s) - len(t)))
    return {"r": np.stack([rest, rest], axis=1), "s": s, "t": t}


def two_stars(epsilon: float, size: int) -> dict[str, np.ndarray]:
    """S = {0} x C and T = C x {0}."""
    c = np.arange(size // 2)
    return {"s": np.stack([0 * c, c], axis=1), "t": np.stack([c, 0 * c], axis=1)}


def wide(size: int) -> dict[str, np.ndarray]:
    """R of k by 5k values, each of the 5k with k partners of its own in S: a single partition would keep 5k^3 pairs."""
    k = max(1, math.isqrt(size // 10))
    a, b = np.divmod(np.arange(5 * k * k), 5 * k)
    own, c = np.divmod(np.arange(5 * k * k), k)
    return {"r": np.stack([a, b], axis=1), "s": np.stack([own, own * k + c], axis=1)}


def built(tables: dict[str, np.ndarray], query: str, options: str = "") -> Any:
    """A connection with the rows and a view v of the query."""
    import pyarrow

    import sqlfront

    con = sqlfront.connect()
    for name, (x, y) in COLUMNS.items():
        con.execute(f"CREATE CHANGE TABLE {name} ({x} BIGINT, {y} BIGINT) WITH (retain = true)")
        if name in tables:
            one, other = (np.ascontiguousarray(column) for column in tables[name].T)
            con.apply({name: pyarrow.table({x: one, y: other})})
    con.execute(f"CREATE MATERIALIZED VIEW v {options} AS {query}")
    return con


def slope(points: Points) -> float:
    """The exponent of a line through the points on logarithmic axes."""
    return float(np.polyfit(*np.log(np.array(points)).T, 1)[0])


def _changes(
    name: str, instance: Any, sizes: Sequence[int], rows: list[dict[str, Any]], notes: list[str], stated: Any
) -> harness.Panel:
    lines: dict[str, Points] = {}
    for epsilon in EPSILONS:
        points = lines[f"epsilon = {epsilon:g}"] = []
        for size in sizes:
            con = built(instance(epsilon, size), f"SELECT count(*) AS n {JOIN}", f"WITH (epsilon = {epsilon})")
            points.append((size, _toggled(con)))
            con.close()
        found, wanted = slope(points), stated(epsilon)
        kept = "kept" if abs(found - wanted) <= 0.05 else "MISSED"
        steps = {f"N = {size:,.0f}": count for size, count in points}
        rows.append({"instance": name, "view": "count", "epsilon": epsilon, "slope": found, "stated": wanted, **steps})
        notes.append(f"{name}, epsilon = {epsilon:g}: slope {found:.3f}, {wanted:g} stated: {kept}.")
    return name, "N", "steps per change", lines


def _toggled(con: Any) -> float:
    """The median steps of inserting and deleting R(0, 0)."""
    view, steps = con.view("v"), []
    for weight in (1, -1) * 5:
        before = view.cost()["steps"]
        con.apply_row("r", (0, 0), weight)
        steps.append(view.cost()["steps"] - before)
    return float(median(steps))


def _space(sizes: Sequence[int], rows: list[dict[str, Any]], notes: list[str]) -> harness.Panel:
    lines: dict[str, Points] = {}
    for name, instance in (("wide", wide), ("tight lists", lambda size: tight(0.5, size))):
        points = lines[name] = []
        for size in sizes:
            tables = instance(size)
            con = built(tables, f"SELECT count(*) AS n {JOIN}", "WITH (epsilon = 0.5)")
            kept = sum(row["entries"] for row in con.view("v").state())
            points.append((sum(map(len, tables.values())), kept))
            con.close()
        found = slope(points)
        entries = {f"N = {size:,.0f}": kept for size, (_, kept) in zip(sizes, points, strict=True)}
        rows.append(
            {"instance": f"{name}: rows kept", "view": "count", "epsilon": 0.5, "slope": found, "stated": 1, **entries}
        )
        notes.append(
            f"{name}: rows kept at epsilon = 0.5, slope {found:.3f}, 1 stated: {'kept' if found < 1.05 else 'MISSED'}."
        )
    return "memory at epsilon = 0.5", "rows of the tables", "rows kept", lines


def _reads(sizes: Sequence[int], rows: list[dict[str, Any]]) -> harness.Panel:
    """Steps per row, and the time to the first batch and per row, of a power-law graph read as R, S and T alike."""
    lines: dict[str, Points] = {}
    for count, columns in OUTPUTS.items():
        for epsilon in (None, *EPSILONS):
            points: Points = []
            for size in sizes:
                con = _output(size, columns, epsilon)
                if con is None:
                    break
                read, first, each = _timed(con)
                steps = _stepped(con)
                strategy = con.explain("v").to_dict()["strategy"]
                con.close()
                points.append((size, steps))
                rows.append(
                    {
                        "output": f"{columns}, count(*)", "strategy": strategy, "N": size, "rows": read,
                        "steps/row": steps, "us to first batch": first, "us/row": each,
                    }
                )  # fmt: skip
            if points:
                lines[f"{count} columns, " + ("as planned" if epsilon is None else f"epsilon = {epsilon:g}")] = points
    return "reading", "N", "steps per row", lines


def _output(size: int, columns: str, epsilon: float | None) -> Any:
    """The view with output columns, or None where epsilon is not for it."""
    import sqlfront

    edges = power_law(size // 3, max(10, size // 30), 0.5, 1)
    query = f"SELECT {columns}, count(*) AS n {JOIN} GROUP BY ALL"
    try:
        return built(dict.fromkeys(COLUMNS, edges), query, f"WITH (epsilon = {epsilon})" if epsilon is not None else "")
    except sqlfront.ProgrammingError:
        return None


def _timed(con: Any) -> tuple[int, float, float]:
    """Rows, us until the first batch is there, and us per row: the least of three reads."""
    best = (0, math.inf, math.inf)
    for _ in range(3):
        start = time.perf_counter()
        reader = con.execute("FROM v").to_arrow_reader(1024)
        count = first = 0
        for batch in reader:
            first = first or time.perf_counter() - start
            count += len(batch)
        whole = time.perf_counter() - start
        best = (count, min(best[1], first * 1e6), min(best[2], whole / max(1, count) * 1e6))
    return best


def _stepped(con: Any) -> float:
    """Elementary steps per row of a whole read."""
    from sqlfront.maintenance.output.output import Reader

    reader = Reader(con.session.database.view(con.session.duck, ("v",)).maintained)
    rows = sum(batch.num_rows for batch in reader)
    return reader.steps / max(1, rows)


if __name__ == "__main__":
    main()
