"""yannakakis: the TPC-H streams of Idris et al. (2017) into view trees, and into trees with every join materialized.

`python -m benchmarks.yannakakis` streams the first two thirds of each table, all rows in random order, then deletes a
tenth, in epochs of 1,000 rows: FQ1 to FQ4 (full joins) and the aggregate queries. Sides: sqlfront, sqlfront WITH
(strategy = 'materialize'), DuckDB recomputing after each epoch, Pathway where it is installed. Each side runs in a
process of its own, one thread, and stops when it outgrows the memory budget. The results of all sides are compared. A
full join whose baseline stays within the budget runs again, beside the baseline alone, at a larger scale.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.sides import PEERS
from benchmarks.tpch_stream import DELETED, KEYS, PHASES, SIZE, Workload, queries, write_workload
from benchmarks.yannakakis_side import SAMPLES, SINGLE, Figures

AUTO, BASELINE, DUCKDB, PATHWAY = "auto", "materialize", "duckdb", "pathway"
SIDES = (AUTO, BASELINE, DUCKDB, PATHWAY)
EXPRESSED = ("FQ1", "FQ2", "FQ3", "FQ4", "Q1", "Q3", "Q6")
"""The queries that benchmarks/pathway_tpch.py has."""
PATIENCE = 300
"""Seconds that Pathway may take for a query."""
PLAIN = ("Q1", "Q3", "Q6")
TIME, MEMORY, LARGE, PARITY, FAIR, RECOMPUTE, ENOUGH = 4.0, 5.0, 10, 1.2, 1.5, 190, 1_000_000
MIB = 2**20

Runs = dict[str, Figures]
"""The figures of one query by side."""

Case = tuple[float, Workload, Runs]
"""A query at a scale factor."""


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    cases: list[Case] = []
    for name in options.queries:
        full = name.startswith("FQ")
        scale = options.scale if full else options.aggregates_scale
        cases.append(measure(name, scale, options.sides, options.memory_budget))
        base = cases[-1][2].get(BASELINE)
        if full and base is not None and not base.out_of_budget:
            cases.append(measure(name, options.large_scale, (AUTO, BASELINE), options.memory_budget))
    write(cases, options)


def measure(name: str, scale: float, sides: Sequence[str], budget: float) -> Case:
    """Write the streams of a query, run the sides on them, compare the results."""
    with tempfile.TemporaryDirectory() as directory:
        work = write_workload(name, scale, Path(directory))
        print(f"{name} at scale factor {scale:g}: {work.streamed:,} rows", flush=True)
        able = [side for side in sides if side != PATHWAY or (PEERS.exists() and name in EXPRESSED)]
        runs = {side: run(side, work, budget) for side in able}
    compare(name, runs)
    return scale, work, runs


def run(side: str, work: Workload, budget: float) -> Figures:
    """Run a side in a process of its own."""
    path, most = str(work.save()), str(int(budget * 2**30))
    command = [sys.executable, "-m", "benchmarks.yannakakis_side", side, path, most]
    if side == PATHWAY:
        keys = json.dumps({table: columns.split(", ") for table, columns in KEYS.items()})
        command = [str(PEERS), str(Path(__file__).with_name("pathway_tpch.py")), path, keys, most, str(PATIENCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{side} on {work.name} failed:\n{done.stderr}")
    figures = Figures(**json.loads(done.stdout))
    print(f"  {side:12} {_status(figures, work)}", flush=True)
    return figures


def compare(name: str, runs: Runs) -> None:
    """Fail unless all sides that came to the end of a phase have the same result there."""
    for phase in PHASES:
        there = [run for run in runs.values() if phase in run.rows]
        for run in there[1:]:
            first = there[0]
            same = phase not in first.answer or phase not in run.answer or run.answer[phase] == first.answer[phase]
            if run.rows[phase] != first.rows[phase] or not same:
                raise SystemExit(f"{run.side} and {first.side} disagree on {name} after the {phase}s")


def write(cases: Sequence[Case], options: argparse.Namespace) -> None:
    """The table, the notes and the verdicts."""
    rows = [_row(case, run) for case in cases for run in case[2].values() if not run.refused]
    refused = {work.name: run.refused for _, work, runs in cases for run in runs.values() if run.side == AUTO}
    notes = [
        "First two thirds of each table of dbgen (nation whole, loaded before), all rows in random order; then one row "
        f"in {DELETED} deleted; epochs of {SIZE:,} rows. FQs at scale factor {options.scale:g}, aggregates at "
        f"{options.aggregates_scale:g}; the paper's are 0.5 and 2, inserts only, one row at a time.",
        "Seconds are processor time of one thread, of the epochs alone. x: this side's over auto's.",
        "peak MiB, during the inserts, is above what the process had before the first epoch. Budget: "
        f"{options.memory_budget:g} GiB; a side beyond it was stopped after the given share of the inserts. FQs whose "
        f"baseline stays within it at {options.scale:g} run again at {options.large_scale:g}.",
        f"us/change: changes of one row, the mean of {SINGLE}; DuckDB: one recomputation (for the FQs, of COUNT(*)).",
        f"DuckDB recomputes {SAMPLES['insert']} times during the inserts, evenly spaced, and once at the end of the "
        "deletes; the seconds charge the mean of these to every epoch.",
        "Paper, DYN against DBToaster: FQ1-FQ5 4.3x time and 5.4x memory in the mean, Q1, Q3 and Q6 equal memory, Q13' "
        "up to 100x time; 190x against re-running after each change.",
        *(f"{name} is refused: {' '.join(reason.split())}" for name, reason in refused.items() if reason),
        f"Pathway: {', '.join(EXPRESSED)} by its own API, stopped after {PATIENCE} s a query; full joins are counted, "
        "not kept; the processor time of all its threads.",
        "The results of all sides are equal after each phase; of Pathway's, the numbers of rows.",
    ]
    title = "yannakakis: view trees, every join materialized, and recomputation on TPC-H streams"
    harness.report(options.report, title, rows, notes=[*notes, *verdicts(cases, options.memory_budget)])


def _row(case: Case, run: Figures) -> dict[str, Any]:
    scale, work, runs = case
    base = runs.get(AUTO)
    return {
        "query": work.name,
        "SF": scale,
        "side": run.side,
        "inserted": work.streamed,
        "result rows": run.rows.get("insert"),
        "update": run.update or None,
        "through": f"{_share(run, work):.0%}",
        "insert s": run.seconds.get("insert"),
        "rows/s": round(_rate(run, work)),
        "x time": _rate(base, work) / _rate(run, work) if base and not base.refused else None,
        "delete s": run.seconds.get("delete"),
        "peak MiB": run.peak // MIB,
        "x memory": run.peak / base.peak if base and base.peak else None,
        "state MiB": run.state / MIB if run.state is not None else None,
        "us/change": run.single * 1e6 if run.single else None,
        "read M rows/s": run.read / 1e6 if run.read else None,
    }


def verdicts(cases: Sequence[Case], budget: float) -> list[str]:
    """What is promised, and whether this run kept it."""
    lines = []
    for scale, work, runs in cases:
        auto, base, duck = (runs.get(side) for side in (AUTO, BASELINE, DUCKDB))
        if auto is None or auto.refused:
            continue
        if base is not None:
            lines += _beside_baseline(f"{work.name} at {scale:g}", work, auto, base, budget)
        if duck is not None and duck.single and auto.single and work.streamed >= ENOUGH:
            ratio = duck.single / auto.single
            lines.append(
                f"{work.name}, one change among {work.streamed:,} rows: {ratio:,.0f}x recomputation, {RECOMPUTE}x "
                f"promised: {_word(ratio >= RECOMPUTE)}."
            )
    return lines


def _beside_baseline(name: str, work: Workload, auto: Figures, base: Figures, budget: float) -> list[str]:
    lines = []
    time, memory = _rate(auto, work) / _rate(base, work), base.peak / auto.peak
    if work.full:
        stopped = f", stopped beyond {budget:g} GiB after {_share(base, work):.0%}" if base.out_of_budget else ""
        kept = base.out_of_budget or time >= TIME
        lines.append(f"{name}: {time:.1f}x the time{stopped}; {TIME:g}x or out of budget promised: {_word(kept)}.")
        if auto.rows["insert"] >= LARGE * work.streamed:
            sign = "> " if base.out_of_budget else ""
            kept = memory >= MEMORY
            lines.append(f"{name}: {sign}{memory:.1f}x the memory, {MEMORY:g}x promised: {_word(kept)}.")
    elif work.name in PLAIN and base.state and auto.state:
        state = auto.state / base.state
        lines.append(f"{name}: {state:.2f}x the baseline's state, {PARITY:g}x allowed: {_word(state <= PARITY)}.")
        lines.append(f"{name}: baseline {time:.2f}x the time, {FAIR:g}x allowed: {_word(time <= FAIR)}.")
    return lines


def _word(kept: bool) -> str:
    return "kept" if kept else "MISSED"


def _share(run: Figures, work: Workload) -> float:
    return run.epochs.get("insert", 0) / work.epochs["insert"]


def _rate(run: Figures, work: Workload) -> float:
    """Inserted rows per second, as far as the side came."""
    return _share(run, work) * work.streamed / run.seconds["insert"]


def _status(run: Figures, work: Workload) -> str:
    if run.refused:
        return f"refused: {run.refused.splitlines()[0]}"
    stopped = f", stopped after {_share(run, work):.0%}" if run.out_of_budget else ""
    return f"{run.seconds['insert']:8.2f} s, {run.peak / MIB:8,.0f} MiB{stopped}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", nargs="+", choices=queries(), default=list(queries()))
    parser.add_argument("--scale", type=float, default=0.25, help="TPC-H scale factor of the full joins")
    parser.add_argument("--large-scale", type=float, default=1.0, help="of those whose baseline fits the budget")
    parser.add_argument("--aggregates-scale", type=float, default=0.25, help="of the aggregate queries")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--report", default="yannakakis", help="the name of the table in benchmarks/results")
    parser.add_argument("--memory-budget", type=float, default=5.0, help="GiB")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
