"""skew: streams whose changes meet other groups from phase to phase: steps a change, by fixed plans and by replanning.

`python -m benchmarks.skew` first counts the steps of changes that meet a large group without a result: the workloads
W2, W3 and W6 of Veldhuizen 2013 (dead contexts, and an edge between two hubs of a triangle). Then it lets the
distribution change under way: each phase changes other rows, as often as the tables have rows and 2,000 times more:
the planner waits for so many changes between two plans. Views with fixed plans keep them from the start, and one view
is left to the planner. The cost of a phase is the mean of its last 1,000 changes. All is counted in steps, so the
machine need not be quiet.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import harness

LEAST = 1_000
"""Changes before the planner may have seen enough."""


@dataclass(frozen=True)
class Workload:
    """Tables with their columns and first rows, a query, the options of fixed plans, and phases: the toggled rows."""

    query: str
    tables: Mapping[str, tuple[Sequence[str], np.ndarray]]
    fixed: Mapping[str, str]
    phases: Mapping[str, Sequence[tuple[str, tuple[int, ...]]]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=(1_000, 10_000, 100_000))
    parser.add_argument("--rows", type=int, default=2_000)
    options = parser.parse_args(arguments)
    rows = [dead(name, size) for name in DEAD for size in options.sizes]
    harness.report("skew_dead", "skew: changes that meet large groups in vain, steps a change", rows)
    rows = [row for name in SHIFTING for row in shifting(name, options.rows)]
    notes = ["the last 1,000 changes of a phase; `of the best` divides the planner's by the least of the fixed plans"]
    harness.report("skew", "skew: a distribution that changes under way, steps a change", rows, notes=notes)


# Large groups in vain ----------------------------------------------------------------------------


def dead_contexts(size: int) -> Workload:
    """W2: R has even values, S odd ones with one partner; T with that partner comes and goes."""
    even, odd = 2 * np.arange(size), 2 * np.arange(size) + 1
    tables = {"r": (("x",), columns(even)), "s": (("x", "y"), columns(odd, 7)), "t": (("y",), columns([1]))}
    query = "SELECT count(*) AS n FROM r, s, t WHERE r.x = s.x AND s.y = t.y"
    return Workload(query, tables, {}, {"t": [("t", (7,))]})


def deeper(size: int) -> Workload:
    """W3: S and T have interleaved values, and U comes and goes."""
    tables = {
        "r": (("x",), columns(np.arange(size))),
        "s": (("x", "y"), columns(np.arange(size), 2 * np.arange(size))),
        "t": (("y", "z"), columns(2 * np.arange(size) + 1, 7)),
        "u": (("z",), columns([1])),
    }
    query = "SELECT count(*) AS n FROM r, s, t, u WHERE r.x = s.x AND s.y = t.y AND t.z = u.z"
    return Workload(query, tables, {}, {"u": [("u", (7,))]})


def hub_edge(size: int, output: str = "r.a, r.b, s.c", groups: str = "") -> Workload:
    """W6: two hubs whose neighbours are apart; the edge between them comes and goes."""
    near, far = np.arange(size), np.arange(size) + 10 * size
    tables = {
        "r": (("a", "b"), columns(near, near + 1)),
        "s": (("b", "c"), columns(-1, near)),
        "t": (("c", "a"), columns(far, -1)),
    }
    query = f"SELECT {output} FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a {groups}"
    return Workload(query, tables, {}, {"r": [("r", (-1, -1))]})


def grouped_hub_edge(size: int) -> Workload:
    """The same, counted by one corner."""
    return hub_edge(size, "r.a, count(*) AS n", "GROUP BY r.a")


DEAD = {
    "W2 dead contexts": dead_contexts,
    "W3 deeper": deeper,
    "W6 hub edge, rows": hub_edge,
    "W6 hub edge, GROUP BY a": grouped_hub_edge,
}


def dead(name: str, size: int) -> dict[str, Any]:
    """Steps a change before and after the planner has seen 1,000 changes."""
    work = DEAD[name](size)
    [toggled] = work.phases.values()
    found: dict[str, Any] = {"workload": name, "rows": sum(len(rows) for _, rows in work.tables.values())}
    with opened(work, {"v": ""}) as con:
        found["first changes"] = steps(con, toggled, 2)["v"]
        steps(con, toggled, LEAST + 300)
        found["after 1,000 changes"] = steps(con, toggled, 100)["v"]
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    return found


# A distribution that changes ---------------------------------------------------------------------


def chain(size: int) -> Workload:
    """Three tables in a row. Changes are of one end, at a hub of the middle, of the other end, and of single values."""
    middle = np.concatenate([columns(-1, np.arange(size)), columns(np.arange(size), -1)])
    tables = {
        "r": (("a", "b"), columns(np.arange(size), np.arange(size))),
        "s": (("b", "c"), middle),
        "t": (("c", "d"), columns(np.arange(size), np.arange(size))),
    }
    phases = {
        "left hub": [("r", (0, -1))],
        "right hub": [("t", (-1, 0))],
        "spread": [("r", (1, value)) for value in range(50)],
        "left hub again": [("r", (0, -1))],
    }
    query = "SELECT count(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c"
    fixed = {"tree for r": "updates = 'r: 1000'", "tree for t": "updates = 't: 1000'", "epsilon 0.5": "epsilon = 0.5"}
    return Workload(query, tables, fixed, phases)


def triangle(size: int) -> Workload:
    """Triangles: changes of single edges, then of the edge between two hubs, then of single edges again."""
    work = hub_edge(size)
    phases = {
        "spread": [("r", (value, value + 1)) for value in range(50)],
        "hub": [("r", (-1, -1))],
        "spread again": [("r", (value, value + 2)) for value in range(50)],
    }
    fixed = {"one tree": "replan = false", "epsilon 0.5": "epsilon = 0.5"}
    return Workload(work.query, work.tables, fixed, phases)


SHIFTING = {"chain of three": chain, "triangle": triangle}


def shifting(name: str, size: int) -> list[dict[str, Any]]:
    """A line for each phase: the steps a change by each fixed plan, and by the planner's own choice."""
    work = SHIFTING[name](size)
    changes = sum(len(rows) for _, rows in work.tables.values()) + LEAST
    found: list[dict[str, Any]] = [{"workload": name, "phase": phase} for phase in work.phases]
    for plan, options in (work.fixed | {"planner": ""}).items():
        with opened(work, {"v": options}) as con:
            for line, rows in zip(found, work.phases.values(), strict=True):
                steps(con, rows, changes)
                line[plan] = steps(con, rows, LEAST)["v"]
            assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
    return [line | {"of the best": line["planner"] / min(line[plan] for plan in work.fixed)} for line in found]


# Inside ------------------------------------------------------------------------------------------


def columns(*values: Any) -> np.ndarray:
    """Rows of columns, the single numbers repeated."""
    return np.stack([np.asarray(column, np.int64) for column in np.broadcast_arrays(*values)], axis=1)


def opened(work: Workload, views: Mapping[str, str]) -> Any:
    """A connection with the views made and the tables filled."""
    import pyarrow as pa

    import sqlfront

    con = sqlfront.connect(":memory:")
    for table, (names, _) in work.tables.items():
        con.execute(f"CREATE CHANGE TABLE {table} ({', '.join(f'{name} BIGINT' for name in names)})")
    for view, options in views.items():
        con.execute(f"CREATE MATERIALIZED VIEW {view} {f'WITH ({options}) ' if options else ''}AS {work.query}")
    for table, (names, rows) in work.tables.items():
        con.apply({table: pa.table({name: rows[:, place].copy() for place, name in enumerate(names)})})
    return con


def steps(con: Any, rows: Sequence[tuple[str, tuple[int, ...]]], changes: int) -> dict[str, float]:
    """The steps of a change in each view, while rows come one after the other, and go at once."""
    engine = con.session.database.engine
    views = {entry.name.name: entry.maintained for entry in con.session.database.views.values()}
    before = {name: engine.steps(view) for name, view in views.items()}
    for number in range(changes // 2):
        table, row = rows[number % len(rows)]
        con.apply_row(table, row)
        con.apply_row(table, row, weight=-1)
    return {name: (engine.steps(view) - before[name]) / (changes // 2 * 2) for name, view in views.items()}


if __name__ == "__main__":
    main()
