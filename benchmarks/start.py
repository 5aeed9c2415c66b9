"""start: what a person waits for before the first row, in fresh processes, DuckDB alone beside it.

`python -m benchmarks.start` builds a wheel, installs the wheel into a fresh environment without extras, and times in
processes of their own: import, connect, two tables, CREATE of a join aggregate, one row in, one row read. The first
process is the first after the installation. `--python` takes another interpreter that has sqlfront. The figures are
seconds of processor time, medians of `--repeats` processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

ROOT = Path(__file__).parents[1]
TABLES = (
    "CREATE TABLE orders (o_id BIGINT PRIMARY KEY, customer VARCHAR)",
    "CREATE TABLE items (o_id BIGINT, price DECIMAL(12, 2))",
)
QUERY = "SELECT customer, SUM(price) AS total, COUNT(*) AS n FROM orders JOIN items USING (o_id) GROUP BY customer"
ROWS = ("INSERT INTO orders VALUES (1, 'Ada')", "INSERT INTO items VALUES (1, 9.50)")
TIMED = f"""
import json, time
laps, before = dict(), time.process_time()
def lap(name):
    global before
    now = time.process_time()
    laps[name], before = now - before, now
{{module}}
lap('import')
con = {{connect}}
lap('connect')
for sql in {TABLES!r}: con.execute(sql)
lap('tables')
{{create}}
lap('create')
for sql in {ROWS!r}: con.execute(sql)
lap('rows')
assert len(con.execute({{read!r}}).fetchall()) == 1
lap('read')
laps['all'] = time.process_time()
print(json.dumps(laps))
"""
SIDES = {
    "sqlfront": {
        "module": "import sqlfront",
        "connect": "sqlfront.connect()",
        "create": f"con.execute({f'CREATE MATERIALIZED VIEW v AS {QUERY}'!r})",
        "read": "SELECT * FROM v",
    },
    "DuckDB alone": {"module": "import duckdb", "connect": "duckdb.connect()", "create": "", "read": QUERY},
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="an interpreter that has sqlfront, instead of a fresh environment")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as room:
        notes: list[str] = []
        python = options.python
        if python is None:
            python, notes = fresh_environment(Path(room))
        rows = [
            {"side": side, "process": process, **figures}
            for side, words in SIDES.items()
            for process, figures in timed(python, words, options.repeats, Path(room))
        ]
    harness.report("start", "Before the first row: seconds of processor time, and of the clock", rows, notes=notes)


def fresh_environment(room: Path) -> tuple[str, list[str]]:
    """The Python of an environment with a wheel of these sources and nothing else; its size and how long it took."""
    wheels, environment = room / "dist", room / "environment"
    pip = ["pip", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", *pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(ROOT)]
    subprocess.run(command, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python, started = str(environment / "bin" / "python"), time.perf_counter()
    [wheel] = wheels.glob("*.whl")
    subprocess.run([python, "-m", *pip, "install", str(wheel)], check=True)
    taken = time.perf_counter() - started
    size = sum(file.stat().st_size for file in environment.rglob("*") if file.is_file() and not file.is_symlink())
    return python, [
        f"pip install of the wheel ({wheel.stat().st_size / 1e6:.1f} MB): {taken:.0f} s; the environment has "
        f"{size / 1e6:.0f} MB."
    ]


def timed(python: str, words: dict[str, str], repeats: int, room: Path) -> list[tuple[str, dict[str, Any]]]:
    """The figures of the first process and the medians of those that follow."""
    environment = {**os.environ, "SQLFRONT_CACHE_DIR": str(room / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("PYTHONPATH", None)
    found = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        done = subprocess.run(
            [python, "-c", TIMED.format(**words)], env=environment, cwd=room, capture_output=True, text=True, check=True
        )
        found.append({**json.loads(done.stdout), "clock": time.perf_counter() - started})
    first, *others = found
    medians = {name: statistics.median(one[name] for one in others) for name in first}
    return [("first", first), (f"median of {repeats}", medians)]


if __name__ == "__main__":
    main()
