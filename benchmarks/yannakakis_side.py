"""One side of `benchmarks.yannakakis` over one query's streams, in a process of its own: prints its figures as JSON.

`python -m benchmarks.yannakakis_side SIDE WORKLOAD.json BUDGET`, BUDGET in bytes: a side that grows beyond it, measured
after each epoch, stops. Seconds are the process's processor time, so that neighbours on the machine do not count.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import release, resident
from benchmarks.tpch_stream import PHASES, Workload, read_workload

SINGLE, READ = 400, 1_000_000
SAMPLES = {"insert": 3, "delete": 1}


@dataclass
class Figures:
    """What a side measured. `seconds` per phase are those of the epochs; `epochs` are those it came through.

    `peak` is the most memory during the inserts, above that before the first; `state` what SHOW STATE says after them.
    `single` are seconds per change of one row; `read` result rows per second; `rows` per phase the size of the result,
    `answer` the result itself unless it is a full join's. `refused` says why the view cannot be made.
    """

    side: str
    seconds: dict[str, float] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    peak: int = 0
    state: int | None = None
    single: float | None = None
    read: float | None = None
    rows: dict[str, int] = field(default_factory=dict)
    answer: dict[str, list[str]] = field(default_factory=dict)
    out_of_budget: bool = False
    shape: str = ""
    update: str = ""
    refused: str | None = None


def main() -> None:
    side, path, budget = sys.argv[1:]
    figures = run_side(side, read_workload(Path(path)), int(budget))
    json.dump(asdict(figures), sys.stdout)


def run_side(side: str, work: Workload, budget: int) -> Figures:
    """Run a side in this process."""
    return run_duckdb(work, budget) if side == "duckdb" else run_sqlfront(work, budget, side)


def run_sqlfront(work: Workload, budget: int, strategy: str) -> Figures:
    """Change tables of which only the view is kept, epochs through con.apply, single changes through con.apply_row."""
    import sqlfront

    figures = Figures(strategy)
    con = sqlfront.connect(":memory:", config={"threads": "1"})
    for statement in work.ddl(plain=False):
        con.execute(statement)
    options = f"strategy = '{strategy}', updates = '{work.updates()}'"
    try:
        con.execute(f"CREATE MATERIALIZED VIEW answer WITH ({options}) AS {work.sql}")
    except sqlfront.NotSupportedError as error:
        figures.refused = str(error)
        return figures
    con.apply(work.preload())
    plan = con.explain("answer").to_dict()
    figures.shape, figures.update = plan["shape"], plan["cost"]["update"]
    memory = _Memory(budget)
    for phase in PHASES:
        _apply(con.apply, work.phase(phase), phase, memory, figures)
        if figures.out_of_budget:
            break
        figures.rows[phase] = con.view("answer").count()
        if not work.full:
            figures.answer[phase] = normal(con.execute("SELECT * FROM answer").fetchall())
        if phase == "insert":
            state = con.execute("SHOW STATE").df()
            figures.state = int(state["bytes"].sum())
            figures.single = _single_changes(con, work)
            figures.read = _read(con)
    return figures


def _apply(
    apply: Callable[[dict[str, Any]], Any],
    epochs: Iterator[dict[str, Any]],
    phase: str,
    memory: _Memory,
    figures: Figures,
) -> None:
    figures.seconds[phase] = 0.0
    for number, changes in enumerate(epochs, 1):
        start = time.process_time()
        apply(changes)
        figures.seconds[phase] += time.process_time() - start
        figures.epochs[phase] = number
        if memory.exceeded():
            figures.out_of_budget = True
            break
    if phase == "insert":
        figures.peak = memory.peak()


def _single_changes(con: Any, work: Workload) -> float:
    """Seconds per change: rows of the delete phase go one by one and come back. The mean, as one may be expensive."""
    changes = []
    for epoch in work.phase("delete"):
        for table, batch in epoch.items():
            rows = zip(*(batch.column(name).to_pylist() for name in batch.schema.names if name != "_weight"))
            changes += [(table, row) for row in rows]
        if len(changes) >= SINGLE:
            break
    changes = changes[: SINGLE // 2]
    for weight in (-1, 1):  # Warm.
        con.apply_row(*changes[0], weight)
    start = time.process_time()
    for weight in (-1, 1):
        for table, row in changes:
            con.apply_row(table, row, weight)
    return (time.process_time() - start) / (2 * len(changes))


def _read(con: Any) -> float:
    """Rows per second from the view to Arrow, of its first rows."""
    rows, start = 0, time.process_time()
    reader = con.sql("SELECT * FROM answer").to_arrow_reader()
    for batch in reader:
        rows += batch.num_rows
        if rows >= READ:
            break
    reader.close()
    return rows / (time.process_time() - start)


def run_duckdb(work: Workload, budget: int) -> Figures:
    """The tables follow the changes; the query is run anew after a few epochs, the others are charged the mean."""
    import duckdb

    figures = Figures("duckdb")
    con = duckdb.connect(config={"threads": "1"})
    for statement in work.ddl(plain=True):
        con.execute(statement)

    def apply(changes: dict[str, Any]) -> None:
        con.execute("BEGIN")
        for table, batch in changes.items():
            con.register("batch", batch)
            if "_weight" not in batch.schema.names:
                con.execute(f"INSERT INTO {table} SELECT * FROM batch")
                continue
            # By whole rows: below scale factor 0.01 dbgen repeats keys of partsupp.
            names = [name for name in batch.schema.names if name != "_weight"]
            same = " AND ".join(f"{table}.{name} = batch.{name}" for name in names)
            con.execute(f"DELETE FROM {table} USING batch WHERE {same}")
        con.execute("COMMIT")

    apply(work.preload())
    memory = _Memory(budget)
    for phase in PHASES:
        every = max(1, work.epochs[phase] // SAMPLES[phase])
        recomputed: list[float] = []
        figures.seconds[phase] = 0.0
        for number, changes in enumerate(work.phase(phase), 1):
            start = time.process_time()
            apply(changes)
            figures.seconds[phase] += time.process_time() - start
            if number % every == 0:
                recomputed.append(_recompute(con, work.sql))
        figures.epochs[phase] = work.epochs[phase]
        figures.seconds[phase] += work.epochs[phase] * sum(recomputed) / len(recomputed)
        if phase == "insert":
            figures.peak = memory.peak()
        counting = f"SELECT count(*) FROM ({work.sql})"
        figures.rows[phase] = con.execute(counting).fetchall()[0][0]
        if not work.full:
            figures.answer[phase] = normal(con.execute(work.sql).fetchall())
        if phase == "insert":
            figures.single = _recompute(con, counting if work.full else work.sql)
    return figures


def _recompute(con: Any, sql: str) -> float:
    """Seconds to run a query and pass over its rows."""
    start = time.process_time()
    for batch in con.sql(sql).to_arrow_reader():
        del batch
    return time.process_time() - start


def normal(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as sorted text; a mean may differ in the last digits."""
    return sorted(
        " | ".join(f"{value:.9g}" if isinstance(value, float) else str(value) for value in row) for row in rows
    )


class _Memory:
    """The memory of this process above what it is now. The peak is the system's own record where it can be reset."""

    def __init__(self, budget: int) -> None:
        release()
        self._start, self._budget, self._most = resident(), budget, 0
        self._reset = Path("/proc/self/clear_refs")
        if self._reset.exists():
            self._reset.write_text("5")

    def exceeded(self) -> bool:
        self._most = max(self._most, resident() - self._start)
        return self._most > self._budget

    def peak(self) -> int:
        if self._reset.exists():
            status = Path("/proc/self/status").read_text()
            recorded = int(status.partition("VmHWM:")[2].split()[0]) * 1024 - self._start
            self._most = max(self._most, recorded)
        return self._most


if __name__ == "__main__":
    main()
