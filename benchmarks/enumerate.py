"""enumerate: a join of ten million rows, read whole to Arrow, from tables in three states.

`python -m benchmarks.enumerate [--rows 10000000] [--fan-out 10]` lists a join of integers and a text column after a
bulk build, after as many single inserts in random order, and again when reading has put the tables in order. Each
is timed as batches of the maintained core (what DuckDB scans), as SQL to Arrow, and beside a scan of the result
laid out as arrays. One core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import harness

VIEW = "SELECT names.k, names.name, facts.x FROM names JOIN facts USING (k)"
REPEATS = 3


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--fan-out", type=int, default=10)
    parser.add_argument("--one", choices=("bulk", "singles"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options.one, options.rows, options.fan_out)))
        return
    rows = [row for way in ("bulk", "singles") for row in _in_fresh_process(way, options.rows, options.fan_out)]
    notes = [
        f"M rows per second of processor time on one core, the best of {REPEATS} (after single inserts: of 1, as "
        "reading puts the tables in order).",
        "walk: finding the rows; core: as Arrow batches, decoded, which is what DuckDB scans; SQL: FROM the view, "
        "through DuckDB to Arrow.",
        "array scan: copying the result's Arrow columns; DuckDB scan: as SQL, FROM the result as an Arrow table.",
        "in order again: after the whole reads that `reads` counts, without a write in between.",
    ]
    title = f"Enumeration of a join of {options.rows:,} rows, fan-out {options.fan_out}: {VIEW}"
    harness.report("enumerate", title, rows, notes=notes)


def _in_fresh_process(way: str, rows: int, fan_out: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.enumerate", "--rows", str(rows), "--fan-out", str(fan_out)]
    done = subprocess.run([*command, "--one", way], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(way: str, rows: int, fan_out: int) -> list[dict[str, Any]]:
    """The states that one way leads to, in this process."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    side = _Side(way, rows, fan_out)
    if way == "bulk":
        return [{"state": "bulk build", "reads": 0, **side.timed(REPEATS)}]
    found = [{"state": "single inserts", "reads": 0, **side.timed(1)}]
    reads = 2
    while side.maintained.tree.arrangement.astray:
        side.read_core()
        reads += 1
    return [*found, {"state": "in order again", "reads": reads, **side.timed(REPEATS)}]


class _Side:
    """The two tables, filled, and the view."""

    def __init__(self, way: str, rows: int, fan_out: int) -> None:
        import pyarrow

        import sqlfront

        self.rows, self.con = rows, sqlfront.connect()
        retained = str(way == "bulk").lower()
        self.con.execute(f"CREATE CHANGE TABLE names (k BIGINT, name VARCHAR) WITH (retain = {retained})")
        self.con.execute(f"CREATE CHANGE TABLE facts (k BIGINT, x BIGINT) WITH (retain = {retained})")
        random = np.random.default_rng(7)
        keys = random.permutation(rows // fan_out)
        names = pyarrow.table({"k": keys, "name": [f"name {key % 1000:03}" for key in keys.tolist()]})
        held = random.permutation(np.repeat(keys, fan_out))
        self._held = held
        if way == "bulk":
            self.con.apply({"names": names, "facts": pyarrow.table({"k": held, "x": np.arange(len(held))})})
        self.con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        if way == "singles":
            self.con.apply({"names": names})
            apply_row = self.con.apply_row
            for row in zip(held.tolist(), range(len(held))):
                apply_row("facts", row)
        self.maintained = self.con.session.database.view(self.con.session.duck, ["v"]).maintained

    def timed(self, repeats: int) -> dict[str, float | None]:
        """M rows/s of each way to read, the best of `repeats`. Those of the result need one that stays in order."""
        found = {"core": self._rate(self.read_core, repeats), "SQL": self._rate(self.read_sql, repeats)}
        if repeats > 1:
            found["walk"] = self._rate(lambda: self._core().count_tuples(), repeats)
            result = self._result()
            found["array scan"] = self._rate(lambda: copy(result), repeats)
            self.con.register("result", result)
            found["DuckDB scan"] = self._rate(lambda: self.read_sql("result"), repeats)
            self.con.unregister("result")
        return found

    def read_core(self) -> int:
        return sum(batch.num_rows for batch in self._core())

    def read_sql(self, name: str = "v") -> int:
        return sum(batch.num_rows for batch in self.con.execute(f"FROM {name}").to_arrow_reader())

    def _core(self) -> Any:
        from sqlfront.maintenance.output.output import Reader

        return Reader(self.maintained)

    def _result(self) -> Any:
        """The whole result, once it has been found to be what it must be."""
        result = self.con.execute("FROM v").to_arrow_table()
        keys, x = result.column("k").to_numpy(), result.column("x").to_numpy()
        if not (np.array_equal(np.sort(x), np.arange(self.rows)) and np.array_equal(self._held[x], keys)):
            raise SystemExit("the result is not the join of the tables")
        return result

    def _rate(self, read: Callable[[], int], repeats: int) -> float:
        best = 0.0
        for _ in range(repeats):
            start = time.process_time()
            rows = read()
            best = max(best, rows / (time.process_time() - start) / 1e6)
            if rows != self.rows:
                raise SystemExit(f"{rows} rows instead of {self.rows}")
        return best


def copy(result: Any) -> int:
    """Copy all buffers of a table's columns, as an array scan does; returns its rows."""
    for column in result.columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None:
                    np.frombuffer(buffer, np.uint8).copy()
    return int(result.num_rows)


if __name__ == "__main__":
    main()
