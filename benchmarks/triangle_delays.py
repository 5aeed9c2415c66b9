"""triangle_delays: the longest wait between rows of a view of triangles, in counted steps, where waiting is longest.

`python -m benchmarks.triangle_delays` builds, at each N and epsilon, graphs in which every output row is found in as
many ways as its parts allow: a row (a, b) by each heavy c, a row (a) by each heavy pair (b, c). It reads the view with
one, two and three output columns in batches of WINDOW rows, from before the first to after the last, and takes the
batch with the most steps for each of its rows. Theory gives the delay an exponent of 2 min(epsilon, 1 - epsilon),
min(epsilon, 1 - epsilon) and 0 (Kara et al. 2020, Theorem 3): the steps are compared with that power of N. Their slope
is that of these sizes only: a block of few values is rounded to whole ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.triangle_costs import EPSILONS, JOIN, OUTPUTS, Points, built, slope

SIZES = (1_000, 3_162, 10_000, 31_623, 100_000)
WINDOW = 64
MOST = 8
POWER = {1: 2, 2: 1, 3: 0}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    panels = [_delays(columns, options.sizes, rows, notes) for columns in OUTPUTS]
    harness.plot_lines("triangle_delays", panels)
    harness.report("triangle_delays", "triangle_delays: R(a, b), S(b, c), T(c, a) read by epsilon", rows, notes=notes)


def block(columns: int, epsilon: float, size: int) -> dict[str, np.ndarray]:
    """All pairs of few values and many, so that the few are heavy and the many light: of b and c with a, for one output
    column, of b with c and two values of a for more. About size / 2 rows; those that are left meet nothing."""
    rows = size // 2
    many = min(int(size**epsilon) + 1, rows // 4)
    few = max(1, min(int(size**epsilon) - 1, rows // (3 * many)))
    a, b, c = (many, few, few) if columns == 1 else (2, many, few)
    tables = {"r": _pairs(a, b), "s": _pairs(b, c), "t": _pairs(c, a)}
    rest = -1 - np.arange(max(0, rows - sum(map(len, tables.values()))))
    tables["r"] = np.concatenate([tables["r"], np.stack([rest, rest], axis=1)])
    return tables


def longest_wait(con: Any) -> float:
    """Steps per row of the batch that has the most, what follows the last row being counted to it."""
    from sqlfront.maintenance.output.output import Reader

    walk = Reader(con.session.database.view(con.session.duck, ("v",)).maintained)._walk
    most, before, rows = 0.0, 0, walk.next(WINDOW)
    while rows:
        steps, read = walk.steps, rows
        rows = walk.next(WINDOW)
        most = max(most, ((steps if rows else walk.steps) - before) / read)
        before = steps
    return most


def _delays(columns: int, sizes: Sequence[int], rows: list[dict[str, Any]], notes: list[str]) -> harness.Panel:
    lines: dict[str, Points] = {}
    query = f"SELECT {OUTPUTS[columns]}, count(*) AS n {JOIN} GROUP BY ALL"
    for epsilon in EPSILONS:
        points = lines[f"epsilon = {epsilon:g}"] = []
        for size in sizes:
            con = built(block(columns, epsilon, size), query, f"WITH (epsilon = {epsilon})")
            points.append((size, max(1.0, longest_wait(con))))
            con.close()
        found, wanted = slope(points), POWER[columns] * min(epsilon, 1 - epsilon)
        most = max(count / size**wanted for size, count in points)
        steps = {f"N = {size:,.0f}": count for size, count in points}
        rows.append({"output": OUTPUTS[columns], "epsilon": epsilon, "stated": wanted, "slope": found, **steps})
        word = "kept" if most <= MOST else "MISSED"
        notes.append(f"{OUTPUTS[columns]}, epsilon = {epsilon:g}: at most {most:.2f} N^{wanted:g} steps a row: {word}.")
    return f"delay of {OUTPUTS[columns]}", "N", "most steps per row", lines


def _pairs(first: int, second: int) -> np.ndarray:
    one, other = np.divmod(np.arange(first * second), second)
    return np.stack([one, other], axis=1)


if __name__ == "__main__":
    main()
