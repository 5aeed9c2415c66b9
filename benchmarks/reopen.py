"""reopen: closing and reopening a file with five views, with a snapshot and without.

`python -m benchmarks.reopen [--rows 10000000] [--directory .]`. The tables are orders and items in the ratio 1 to 4.
Each opening is a process of its own, with compiled modules (`.pyc`) as an installed package has them. That of the last
line has opened a small file of the same views before, so its modules are loaded. A look-up of one row of the first view
is the first query, a count of each view reads all of them. A program that opens the file for its tables alone (DuckDB)
is the measure of what cannot be less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

VIEWS = {
    "totals": "SELECT customer, sum(price) AS total, count(*) AS n FROM orders JOIN items USING (id) GROUP BY customer",
    "by_day": "SELECT day, count(*) AS n, sum(price) AS total FROM items GROUP BY day",
    "prices": "SELECT id, min(price) AS low, max(price) AS high FROM items GROUP BY id",
    "dearest": "SELECT id, day, price FROM items ORDER BY price DESC, id, day LIMIT 100",
    "joined": "SELECT orders.customer, items.day, items.price FROM orders JOIN items USING (id)",
}
FEW = 1_000
"""Rows of the file that is opened to load modules."""
FIRST = "SELECT total FROM by_day WHERE day = 7"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of both tables together")
    parser.add_argument("--directory", help="where the database file is made; a temporary directory otherwise")
    parser.add_argument("--open", help=argparse.SUPPRESS)
    parser.add_argument("--snapshot", default="on", help=argparse.SUPPRESS)
    parser.add_argument("--before", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.open:
        if options.before:
            opened(options.before, "on")
        print(json.dumps(opened(options.open, options.snapshot)))
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        path = str(Path(directory) / "reopen.duckdb")
        small = str(Path(directory) / "small.duckdb")
        make(small, FEW)
        make(path, options.rows)
        rows = [in_process(path, "off"), in_process(path, "on"), in_process(path, "on", small)]
        rows[-1]["views"] += ", modules loaded"
        floor = duckdb_alone(path)
        size = sum(one.stat().st_size for one in Path(f"{path}.sqlfront").rglob("*") if one.is_file())
    notes = [
        "open s: sqlfront.connect. first query s: a look-up of one row. all s: a count of each of the five views. "
        "changed and closed s: closing after a changed row, with the snapshot written if it is on.",
        f"The first line builds all views from their tables. The files of the snapshot have {size / 1e9:.2f} GB.",
        "written GB: what closing has written.",
        f"A process that imports DuckDB alone, and opens the file, has its first row after {floor:.2g} s.",
    ]
    harness.report("reopen", f"Reopening five views over {options.rows:,} rows", rows, notes=notes)


def make(path: str, count: int) -> None:
    """A file with the tables and views, and its snapshot."""
    import sqlfront

    orders = count // 5
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT)")
        con.execute("CREATE TABLE items (id BIGINT, day INTEGER, price DECIMAL(9, 2))")
        con.execute(f"INSERT INTO orders SELECT i, hash(i) % 100000 FROM range({orders}) x(i)")
        con.execute(
            f"INSERT INTO items SELECT hash(i) % {orders}, i % 365, (hash(i + 1) % 100000) / 100 "
            f"FROM range({count - orders}) x(i)"
        )
        for name, query in VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def in_process(path: str, snapshot: str, before: str = "") -> dict[str, Any]:
    """What `opened` measures in a process of its own, after it has opened another file `before`."""
    command = [sys.executable, "-m", "benchmarks.reopen", "--open", path, "--snapshot", snapshot, "--before", before]
    # Without compiled modules the first opening would compile the sources of 300 modules.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def duckdb_alone(path: str) -> float:
    """The seconds that a process takes to import DuckDB, open the file, and read a row of a table."""
    code = (
        "import time; started = time.perf_counter(); import duckdb; con = duckdb.connect(input(), read_only=True)\n"
        "con.sql('FROM items LIMIT 1').fetchall(); print(time.perf_counter() - started)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=path, capture_output=True, text=True, check=True)
    return float(done.stdout)


def opened(path: str, snapshot: str) -> dict[str, Any]:
    """Open the file, read, change a row and close; the seconds of each since the beginning of its kind."""
    started = time.perf_counter()
    import sqlfront

    con = sqlfront.connect(path, config={"sqlfront_snapshot": snapshot})
    opening = time.perf_counter()
    con.execute(FIRST).fetchall()
    first = time.perf_counter()
    for name in VIEWS:
        con.execute(f"SELECT count(*) FROM {name}").fetchall()
    every = time.perf_counter()
    adopted = con.session.database.snapshot is not None
    con.execute("INSERT INTO items VALUES (1, 1, 1)")
    changed = time.perf_counter()
    if snapshot == "off":  # The next opening finds a snapshot.
        con.session.database.snapshot_every = 300
    con.close()
    [folder] = Path(f"{path}.sqlfront").iterdir()
    return {
        "views": "from the snapshot" if adopted else "built from tables",
        "open s": opening - started,
        "first query s": first - started,
        "all s": every - started,
        "changed and closed s": time.perf_counter() - changed,
        "written GB": (folder / f"arrays-{folder.name}").stat().st_size / 1e9,
    }


if __name__ == "__main__":
    main()
