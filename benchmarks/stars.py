"""stars: the distinct ends of a star in order, by epsilon: what is stored, and the longest wait between rows.

`python -m benchmarks.stars` reads SELECT DISTINCT x.a, y.a FROM e x JOIN e y USING (b) ORDER BY the sum, all of it, row
by row, over a power-law graph; the first line is the view without epsilon. It counts steps and rows, so it needs no
quiet machine; theory bounds the stored rows by (N / delta)^2 and the wait by delta times log N, delta = N^epsilon being
from how many rows on an end is heavy (Deep, Hu and Koutris 2022, Theorem 25 and its figure 8.7).

`--whole` reads all rows in no order, over the graph with its columns swapped, so that the shared column has hubs. At
most N^(1+epsilon) rows are stored, a change takes N^epsilon steps, and a row waits for N^(1-epsilon) steps (Kara,
Nikolic, Olteanu and Zhang 2020).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness

EPSILONS = (None, 1, 0.75, 0.6, 0.5, 0.4, 0.25, 0)
QUERY = "SELECT DISTINCT x.a, y.a AS z FROM e x JOIN e y USING (b) ORDER BY x.a + y.a LIMIT 1000000000"
WHOLE = "SELECT DISTINCT x.a, y.a AS z FROM e x JOIN e y USING (b)"
CHANGES = 200


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=15_000)
    parser.add_argument("--whole", action="store_true", help="all rows, over hubs in the middle")
    options = parser.parse_args(arguments)
    edges = hubs(options.edges)
    if options.whole:
        report_whole(edges[:, ::-1])
        return
    rows = [measured(edges, epsilon) for epsilon in EPSILONS]
    assert len({row["rows read"] for row in rows}) == 1, rows
    notes = [
        f"{len(edges):,} edges; waits are steps between two rows of one ranked tree, its end included; all rows are "
        "read as Python tuples; changes are of random edges"
    ]
    title = "stars: " + QUERY.replace(" LIMIT 1000000000", "")
    harness.report("stars", title, rows, notes=notes)


def report_whole(edges: np.ndarray) -> None:
    rows = [measured_whole(edges, epsilon) for epsilon in EPSILONS]
    assert len({row["rows read"] for row in rows}) == 1, rows
    notes = [
        f"{len(edges):,} edges; waits are steps between two rows; changes are of random edges, and then of the hub"
    ]
    harness.report("star_rows", f"stars, whole: {WHOLE}", rows, notes=notes)


def hubs(edges: int) -> np.ndarray:
    """Distinct edges (a, b) whose ends a are drawn by a power law, and b evenly."""
    rng = np.random.default_rng(1)
    ends = (rng.pareto(0.8, 4 * edges) * 3).astype(np.int64) % max(4, edges // 2)
    pairs = np.unique(np.stack([ends, rng.integers(0, max(4, edges // 8), 4 * edges)], axis=1), axis=0)
    return rng.permutation(pairs)[:edges]


def filled(con: Any, edges: np.ndarray, query: str, epsilon: float | None) -> Any:
    """A view of the query over the edges, as the engine has it."""
    import pyarrow as pa

    con.execute("CREATE CHANGE TABLE e (a BIGINT, b BIGINT) WITH (retain = false)")
    given = f"WITH (epsilon = {epsilon}) " if epsilon is not None else ""
    con.execute(f"CREATE MATERIALIZED VIEW v {given}AS {query}")
    con.apply({"e": pa.table({"a": edges[:, 0].copy(), "b": edges[:, 1].copy()})})
    [view] = con.session.database.engine.views.values()
    return view


def measured(edges: np.ndarray, epsilon: float | None) -> dict[str, Any]:
    """A view over the edges, read and changed; all of it in steps but for the seconds."""
    import sqlfront
    from sqlfront.maintenance.ranked.cursor import RankedWalk

    with sqlfront.connect(":memory:") as con:
        view = filled(con, edges, QUERY, epsilon)
        part_trees = view.balance.part_trees.trees if view.balance is not None else []
        stored = sum(
            table.live for part_tree in part_trees for table in (one.table for one in part_tree.tree.stored_inner())
        )
        start = time.perf_counter()
        read = len(con.view("v").top(10**9))
        seconds = time.perf_counter() - start
        waits = max(longest_wait(RankedWalk(tree)) for tree in view.ranked[0].trees())
        steps = []
        for row in np.random.default_rng(2).permutation(edges)[:CHANGES].tolist():
            for weight in (-1, 1):
                steps.append(_steps_of(con, row, weight))
    return {
        "epsilon": "none" if epsilon is None else epsilon,
        "delta": len(edges) ** (1.0 if epsilon is None else epsilon),
        "rows stored": stored,
        "longest wait, steps": waits,
        "all rows, s": seconds,
        "rows read": read,
        "change, steps p50": float(np.median(steps)),
        "change, steps p99": float(np.percentile(steps, 99)),
    }


def measured_whole(edges: np.ndarray, epsilon: float | None) -> dict[str, Any]:
    """A view of all rows, read and changed; all of it in steps but for the seconds."""
    import sqlfront
    from sqlfront.maintenance.output.reading import read

    with sqlfront.connect(":memory:") as con:
        view = filled(con, edges, WHOLE, epsilon)
        start = time.perf_counter()
        count = con.execute("FROM v").to_arrow_table().num_rows
        seconds = time.perf_counter() - start
        stored = con.execute("SHOW STATE FOR v").df()
        hub = int(np.bincount(edges[:, 1]).argmax())
        changes = [*np.random.default_rng(2).permutation(edges)[:CHANGES].tolist(), [-1, hub]]
        steps = [_steps_of(con, row, weight) for row in changes for weight in ((-1, 1) if row[0] >= 0 else (1, -1))]
        wait = longest_wait(read(view))
    return {
        "epsilon": "none" if epsilon is None else epsilon,
        "threshold": len(edges) ** (1.0 if epsilon is None else epsilon),
        "rows stored": int(stored[stored["view"] == "v"]["entries"].sum()),
        "longest wait, steps": wait,
        "all rows, s": seconds,
        "rows read": count,
        "change, steps p50": float(np.median(steps[:-2])),
        "change, steps p99": float(np.percentile(steps[:-2], 99)),
        "change of the hub, steps": max(steps[-2:]),
    }


def _steps_of(con: Any, row: list[int], weight: int) -> int:
    before = con.view("v").cost()["steps"]
    con.apply_row("e", tuple(row), weight)
    return int(con.view("v").cost()["steps"] - before)


def longest_wait(walk: Any) -> int:
    """The most steps from one row to the next or to the end."""
    most = before = 0
    while walk.next(1):
        most, before = max(most, walk.steps - before), walk.steps
    return int(max(most, walk.steps - before))


if __name__ == "__main__":
    main()
