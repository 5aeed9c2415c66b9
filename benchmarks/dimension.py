"""dimension: one row of a dimension comes and goes under a LEFT JOIN of millions of facts.

`python -m benchmarks.dimension [--facts 20000000] [--told 2000000]`. All facts refer to the one row. Without a
subscriber a change takes a constant number of steps; a subscriber is told of two rows for each fact, the one that goes
and the one that comes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks import harness
from benchmarks.subscribe import FEW, dimension, load, single

VIEW = "SELECT f.k, name, x FROM facts f LEFT JOIN dimension d ON f.k = d.k"
MOST_STEPS, LEAST_TOLD = 100, 5.0
"""What is promised: steps of a change without a subscriber, millions of changelog rows a second with one."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, nargs="+", default=[1_000, 2_000_000, 20_000_000])
    parser.add_argument("--told", type=int, default=2_000_000, help="the most facts with which a subscriber is told")
    options = parser.parse_args(arguments)
    rows = [row for facts in options.facts for row in measure(facts, facts <= options.told)]
    notes = [
        "A change is the dimension's row, inserted or deleted; single row: apply_row of one fact.",
        f"Promised: at most {MOST_STEPS} steps without a subscriber; at least {LEAST_TOLD:g} M rows/s told.",
    ]
    harness.report("dimension", f"A dimension row under many facts: {VIEW}", rows, notes=notes)


def measure(facts: int, is_told: bool) -> list[dict[str, Any]]:
    """A row of the report without a subscriber; with `is_told` another with one."""
    con = load(facts, VIEW)
    view = con.view("v")
    assert view.count() == facts
    found = [{"facts": facts, "subscriber": "none"} | dimension(con, view, FEW) | single(con, FEW)]
    if is_told:
        with view.subscribe(snapshot=False) as feed:
            told = dimension(con, view, 2 if facts > FEW else 20, feed)
            found.append({"facts": facts, "subscriber": "one"} | told | single(con, FEW))
    con.close()
    return found


if __name__ == "__main__":
    main()
