"""subscribe: one row of a dimension changes millions of rows of a view; who subscribes pays, who does not does not.

`python -m benchmarks.subscribe [--facts 20000000]`. The view is a q-hierarchical join of facts with a dimension
of one row, so that inserting or deleting that row changes as many rows of the view as there are facts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import harness

VIEW = "SELECT k, name, x FROM facts JOIN dimension USING (k)"
BATCH = 1_000_000
FEW = 1_000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, nargs="+", default=[1_000, 100_000, 2_000_000, 20_000_000])
    parser.add_argument("--told", type=int, default=2_000_000, help="the most facts with which a subscriber is told")
    options = parser.parse_args(arguments)
    rows = [row for facts in options.facts for row in measure(facts, options.told)]
    notes = [
        "A change is one row of the dimension, inserted or deleted: medians, over 2,000 changes without a subscriber.",
        "single row: apply_row of one fact, which changes one row of the view.",
        f"A subscriber is told of at most {options.told:,} rows at a time here: its Arrow tables take memory, "
        "some 300 bytes a row while they are made and held.",
    ]
    title = f"A dimension row updated over many facts: {VIEW}"
    harness.report("subscribe", title, rows, notes=notes)


def measure(facts: int, most: int) -> list[dict[str, Any]]:
    """One row of the report without a subscriber, and one with, unless there are too many facts."""
    con = load(facts)
    view, found = con.view("v"), []
    alone = {"facts": facts, "subscriber": "none"} | dimension(con, view, FEW) | single(con, FEW)
    assert view.count() == facts
    found.append(alone)
    if facts <= most:
        with view.subscribe(snapshot=False) as feed:
            before = harness.resident()
            told = {"facts": facts, "subscriber": "one"} | dimension(con, view, 2 if facts > FEW else 20, feed)
            told["MiB more"] = max(0, harness.resident() - before) / 2**20
            found.append(told | single(con, FEW))
    con.close()
    return found


def load(facts: int, query: str = VIEW) -> Any:
    """The tables and the view of a query, with all facts on one key."""
    import pyarrow

    import sqlfront

    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE facts (k BIGINT, x BIGINT) WITH (retain = false)")
    con.execute("CREATE CHANGE TABLE dimension (k BIGINT, name BIGINT) WITH (retain = false)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.explain("v").to_dict()["shape"] == "q-hierarchical"
    for first in range(0, facts, BATCH):
        x = np.arange(first, min(facts, first + BATCH), dtype=np.int64)
        con.apply({"facts": pyarrow.table({"k": np.zeros(len(x), np.int64), "x": x})})
    con.apply_row("dimension", (0, 0))
    return con


def dimension(con: Any, view: Any, changes: int, feed: Any = None) -> dict[str, Any]:
    """Delete and insert the dimension's row; with a feed, read each change."""
    seconds, steps, told = [], [], 0
    for _ in range(changes):
        for weight in (-1, 1):
            before, start = view.cost()["steps"], time.perf_counter()
            con.apply_row("dimension", (0, 0), weight)
            if feed is not None:
                told += feed.poll().num_rows
            seconds.append(time.perf_counter() - start)
            steps.append(view.cost()["steps"] - before)
    row = {"us/change": statistics.median(seconds) * 1e6, "steps/change": int(statistics.median(steps))}
    return row | ({"told M rows/s": told / sum(seconds) / 1e6} if feed is not None else {})


def single(con: Any, changes: int) -> dict[str, Any]:
    """Changes of one row of the view."""
    seconds = []
    for number in range(changes):
        for weight in (1, -1):
            start = time.perf_counter()
            con.apply_row("facts", (0, -1 - number), weight)
            seconds.append(time.perf_counter() - start)
    return {"us/single row": statistics.median(seconds) * 1e6}


if __name__ == "__main__":
    main()
