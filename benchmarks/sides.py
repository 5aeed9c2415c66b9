"""The sides of the w1 family: each loads the same rows, takes the same batches and gives the final view.

A side reports the seconds of the batches alone. Encoding Python tuples into what the side's own API
takes (Arrow batches for sqlfront and DuckDB, tuples for SQLite, JSON for Pathway) is not timed.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.workloads import Row, Table, Workload

PEERS = Path(os.environ.get("SQLFRONT_PEERS") or Path(__file__).parent.parent / ".venv-peers" / "bin" / "python")
Change = tuple[int, Row, int]


class Missing(Exception):
    """A peer that is not installed here."""


@dataclass
class Run:
    """`seconds` per batch, for the first batches of `size` changes; `rows` is the view after all changes.

    `steps` are the elementary steps that the side counts itself, if it does.
    """

    side: str
    size: int
    seconds: list[float]
    rows: list[Row]
    load: float
    notes: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None

    @property
    def rate(self) -> float:
        """Changes per second."""
        return self.size * len(self.seconds) / sum(self.seconds)

    @property
    def median(self) -> float:
        """Seconds of the median batch."""
        return sorted(self.seconds)[len(self.seconds) // 2]


def run_sqlite(work: Workload, size: int) -> Run:
    """Hand-written triggers keep the answer in a table; one transaction per batch, in memory."""
    con = sqlite3.connect(":memory:", isolation_level=None, cached_statements=64)
    for table in work.tables:
        (key, _), *rest = table.columns
        columns = [f"{key} INTEGER PRIMARY KEY", *(f"{name} {_sqlite_type(kind)}" for name, kind in rest)]
        con.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")
    con.executescript(work.triggers)
    inserts = [f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(table.columns))})" for table in work.tables]
    deletes = [f"DELETE FROM {table.name} WHERE {table.columns[0][0]} = ?" for table in work.tables]
    start = time.perf_counter()
    con.execute("BEGIN")
    for sql, rows in zip(inserts, work.initial):
        con.executemany(sql, rows)
    con.execute("COMMIT")
    load = time.perf_counter() - start
    con.execute("ANALYZE")
    seconds = []
    for batch in work.batches(size):
        statements = _sqlite_statements(batch, inserts, deletes)
        start = time.perf_counter()
        if size == 1:
            con.execute(statements[0][0], statements[0][1][0])
        else:
            con.execute("BEGIN")
            for sql, rows in statements:
                con.executemany(sql, rows)
            con.execute("COMMIT")
        seconds.append(time.perf_counter() - start)
    rows = con.execute("SELECT * FROM answer").fetchall()
    return Run("sqlite triggers", size, seconds, rows, load, {"version": sqlite3.sqlite_version})


def _sqlite_type(kind: str) -> str:
    return {"BIGINT": "INTEGER", "VARCHAR": "TEXT"}[kind]


def _sqlite_statements(batch: Sequence[Change], inserts: list[str], deletes: list[str]) -> list[tuple[str, list[Row]]]:
    """A batch as few executemany calls: keys are never used again, so all inserts may go before all deletes."""
    statements = []
    for number, (insert, delete) in enumerate(zip(inserts, deletes)):
        statements.append((insert, [row for table, row, weight in batch if table == number and weight > 0]))
        statements.append((delete, [row[:1] for table, row, weight in batch if table == number and weight < 0]))
    statements.sort(key=lambda statement: statement[0].startswith("DELETE"))
    return [statement for statement in statements if statement[1]]


def run_duckdb(work: Workload, size: int, *, most: int = 200) -> Run:
    """The base tables follow the changes; the query is run again after each batch. At most `most` batches are timed."""
    import duckdb
    import pyarrow

    con = duckdb.connect(":memory:")
    for table in work.tables:
        con.execute(f"CREATE TABLE {table.name} ({', '.join(f'{name} {kind}' for name, kind in table.columns)})")

    def change(batch: Sequence[Change], *, recompute: bool) -> float:
        arrow = duckdb_batches(work.tables, batch)
        start = time.perf_counter()
        con.execute("BEGIN")
        for table, inserted, deleted in arrow:
            if inserted is not None:
                con.register("batch", inserted)
                con.execute(f"INSERT INTO {table.name} SELECT * FROM batch")
            if deleted is not None:
                key = table.columns[0][0]
                con.register("batch", deleted)
                con.execute(f"DELETE FROM {table.name} USING batch WHERE {table.name}.{key} = batch.{key}")
        con.execute("COMMIT")
        if recompute:
            con.sql(work.view).to_arrow_table()
        return time.perf_counter() - start

    load = change([(number, row, 1) for number, rows in enumerate(work.initial) for row in rows], recompute=True)
    batches = list(work.batches(size))
    seconds = [change(batch, recompute=True) for batch in batches[:most]]
    rest = [change_ for batch in batches[most:] for change_ in batch]
    if rest:
        change(rest, recompute=False)
    notes = {"version": duckdb.__version__, "pyarrow": pyarrow.__version__, "batches timed": len(seconds)}
    return Run("duckdb recompute", size, seconds, con.execute(work.view).fetchall(), load, notes)


def duckdb_batches(tables: Sequence[Table], batch: Sequence[Change]) -> list[tuple[Table, Any, Any]]:
    """Per table: the inserted rows and the deleted keys, as Arrow, or None."""
    found = []
    for number, table in enumerate(tables):
        inserted = [row for changed, row, weight in batch if changed == number and weight > 0]
        deleted = [row[:1] for changed, row, weight in batch if changed == number and weight < 0]
        found.append((table, arrow_batch(table, inserted), arrow_batch(table, deleted)))
    return found


def arrow_batch(table: Table, rows: Sequence[Row], weights: Sequence[int] | None = None) -> Any:
    """Rows (or their first columns) as one Arrow record batch, with `_weight` if weights are given; None if empty."""
    import pyarrow

    if not rows:
        return None
    types = {"BIGINT": pyarrow.int64(), "VARCHAR": pyarrow.string()}
    columns = table.columns[: len(rows[0])]
    arrays = [pyarrow.array(values, types[kind]) for (_, kind), values in zip(columns, zip(*rows))]
    names = [name for name, _ in columns]
    if weights is not None:
        arrays.append(pyarrow.array(weights, pyarrow.int64()))
        names.append("_weight")
    return pyarrow.record_batch(arrays, names=names)


def run_sqlfront(work: Workload, size: int, *, retain: bool, keyed: bool = False) -> Run:
    """Change tables and one view; batches through con.apply, single changes through con.apply_row."""
    import sqlfront

    con = sqlfront.connect(":memory:")
    for table in work.tables:
        columns = [f"{name} {kind}" for name, kind in table.columns]
        if keyed and table.name == "orders":
            columns.append(f"PRIMARY KEY ({table.columns[0][0]})")
        retained = str(retain).lower()
        con.execute(f"CREATE CHANGE TABLE {table.name} ({', '.join(columns)}) WITH (retain = {retained})")
    con.execute(f"CREATE MATERIALIZED VIEW answer AS {work.view}")
    first = {table.name: arrow_batch(table, rows) for table, rows in zip(work.tables, work.initial)}
    start = time.perf_counter()
    con.apply(first)
    load = time.perf_counter() - start
    view, plan = con.view("answer"), con.explain("answer").to_dict()
    steps = view.cost()["steps"]
    seconds = _apply_rows(con, work) if size == 1 else _apply_batches(con, work, size)
    steps = view.cost()["steps"] - steps
    rows = con.execute("SELECT * FROM answer").fetchall()
    con.close()
    notes = {"version": sqlfront.__version__, "shape": plan["shape"], "update": plan["cost"]["update"]}
    side = f"sqlfront retain={str(retain).lower()}" + (", key declared" if keyed else "")
    return Run(side, size, seconds, rows, load, notes, steps)


def _apply_batches(con: Any, work: Workload, size: int) -> list[float]:
    epochs = [sqlfront_batch(work.tables, batch) for batch in work.batches(size)]
    seconds = []
    for changes in epochs:
        start = time.perf_counter()
        con.apply(changes)
        seconds.append(time.perf_counter() - start)
    return seconds


def _apply_rows(con: Any, work: Workload) -> list[float]:
    """One clock reading per 100 changes: reading it for each would cost as much as a change."""
    names = [table.name for table in work.tables]
    changes = [(names[number], row, weight) for number, row, weight in work.changes]
    apply_row = con.apply_row
    seconds = []
    for first in range(0, len(changes), 100):
        some = changes[first : first + 100]
        start = time.perf_counter()
        for name, row, weight in some:
            apply_row(name, row, weight=weight)
        seconds += [(time.perf_counter() - start) / len(some)] * len(some)
    return seconds


def sqlfront_batch(tables: Sequence[Table], batch: Sequence[Change]) -> dict[str, Any]:
    """One epoch: a record batch with `_weight` for each table that changes."""
    epoch = {}
    for number, table in enumerate(tables):
        mine = [(row, weight) for changed, row, weight in batch if changed == number]
        if mine:
            epoch[table.name] = arrow_batch(table, [row for row, _ in mine], [weight for _, weight in mine])
    return epoch


def run_pathway(work: Workload, size: int, *, most: int = 2_000) -> Run:
    """Pathway in a process and environment of its own; at most `most` batches are timed."""
    batches = list(work.batches(size))
    rest = [change for batch in batches[most:] for change in batch]
    message = {
        "tables": [{"name": table.name, "columns": table.columns} for table in work.tables],
        "nullable": work.nullable,
        "sql": work.pathway,
        "output": work.output,
        "initial": work.initial,
        "batches": batches[:most] + ([rest] if rest else []),
        "timed": min(most, len(batches)),
    }
    result = ask_pathway(message)
    rows = [tuple(row) for row in result["rows"]]
    return Run("pathway", size, result["seconds"], rows, result["load"], {"batches timed": len(result["seconds"])})


def ask_pathway(message: dict[str, Any], seconds: float | None = None) -> dict[str, Any]:
    """What pathway_side.py answers within so many seconds; Missing if it cannot run, or takes longer."""
    if not PEERS.exists():
        raise Missing("pathway: not installed (script/bench installs it where it can)")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(message, file)
        file.flush()
        command = [str(PEERS), str(Path(__file__).with_name("pathway_side.py")), file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Missing(f"pathway: stopped after {seconds:g} s") from None
    if done.returncode != 0:
        raise Missing(f"pathway: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
