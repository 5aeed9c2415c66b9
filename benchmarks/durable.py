"""durable: what the log of a change table costs an epoch, beside the same rows inserted into a table of DuckDB's.

`python -m benchmarks.durable [--rows 1 1000 100000] [--directory .]`. One view groups the table by a column of 1000
values; every epoch inserts fresh rows. The three ways take turns within each round, so that they share its noise.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1_000, 100_000])
    parser.add_argument("--directory", help="where the database files are made; a temporary directory otherwise")
    options = parser.parse_args(arguments)
    rows = []
    for size in options.rows:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            rows += measure(size, Path(directory))
    notes = [
        "ms/epoch: medians. file KiB: the closed file, its log compacted.",
        "reopen ms: sqlfront.connect on the file, with the log replayed and the view built; for DuckDB's table with "
        "an equal view over it, which is built from the table.",
    ]
    title = "Epochs of a change table with and without its log, and inserts of DuckDB alone"
    harness.report("durable", title, rows, notes=notes)


def measure(size: int, directory: Path) -> list[dict[str, Any]]:
    """A row of the report for each way of taking in epochs of `size` rows."""
    import duckdb
    import pyarrow

    import sqlfront

    epochs = max(10, min(200, 2_000_000 // size))
    ways: dict[str, Any] = {}
    for name in ("durable", "not durable"):
        ways[name] = sqlfront.connect(str(directory / f"{name}.duckdb"))
        options = f"retain = true, durable = {str(name == 'durable').lower()}"
        ways[name].execute(f"CREATE CHANGE TABLE t (k BIGINT, x BIGINT) WITH ({options})")
        ways[name].execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(x) AS x FROM t GROUP BY k")
    ways["DuckDB INSERT"] = duckdb.connect(str(directory / "DuckDB INSERT.duckdb"))
    ways["DuckDB INSERT"].execute("CREATE TABLE t (k BIGINT, x BIGINT)")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for epoch in range(epochs + 3):
        x = np.arange(epoch * size, (epoch + 1) * size, dtype=np.int64)
        batch = pyarrow.record_batch({"k": x % 1000, "x": x})
        for name, con in ways.items():
            start = time.perf_counter()
            if name == "DuckDB INSERT":
                con.execute("INSERT INTO t SELECT * FROM batch").fetchall()
            else:
                con.apply({"t": batch})
            if epoch >= 3:
                seconds[name].append(time.perf_counter() - start)
    found = []
    for name, con in ways.items():
        con.close()
        path = directory / f"{name}.duckdb"
        row = {"rows/epoch": size, "way": name, "epochs": epochs, "ms/epoch": statistics.median(seconds[name]) * 1e3}
        found.append(row | {"file KiB": path.stat().st_size / 1024, "reopen ms": reopened(path, name)})
    return found


def reopened(path: Path, name: str) -> float:
    """Milliseconds until the file's view can be read again."""
    import sqlfront

    if name == "DuckDB INSERT":
        with sqlfront.connect(str(path)) as con:
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, SUM(x) AS x FROM t GROUP BY k")
    start = time.perf_counter()
    with sqlfront.connect(str(path)) as con:
        if name != "not durable":
            assert con.execute("SELECT count(*) FROM v").fetchall()[0][0] > 0
        return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
