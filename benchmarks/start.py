"""start: what a person waits for before the first row, in fresh processes, DuckDB alone beside it.

`python -m benchmarks.start` builds a wheel, installs the wheel into a fresh environment without extras, and times in
processes of their own: import, connect, two tables, CREATE of a join aggregate, one row in, one row read. The first
process is the first after the installation. `--python` takes another interpreter that has sqlfront. The figures are
seconds of processor time, medians of `--repeats` processes. Beside it, from a source tree without compiled kernels: the
seconds until the first row, and how far the bar of the compilation is from the time that it takes.
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
from sqlfront.storage.native import kernel_setup

ROOT = Path(__file__).parents[1]
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
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
        notes += from_sources(Path(room))
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
    sizes = {file: file.stat().st_size for file in environment.rglob("*") if file.is_file() and not file.is_symlink()}
    tools = sum(size for file, size in sizes.items() if any(f"/{name}" in str(file) for name in TOOLS))
    return python, [
        f"pip install of the wheel ({wheel.stat().st_size / 1e6:.1f} MB): {taken:.0f} s; the environment has "
        f"{(sum(sizes.values()) - tools) / 1e6:.0f} MB, and {tools / 1e6:.0f} MB of pip and setuptools."
    ]


def from_sources(room: Path) -> list[str]:
    """The first row of a source tree whose kernels are not compiled; and the bar of a compilation."""
    environment = {**os.environ, "SQLFRONT_CACHE_DIR": str(room / "empty"), "PYTHONPATH": str(ROOT)}
    started = time.perf_counter()
    code = TIMED.format(**SIDES["sqlfront"])
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=room, capture_output=True, check=True)
    first_row = time.perf_counter() - started
    command = [sys.executable, "-m", kernel_setup.MODULE, str(room / "kernels.o")]
    environment["SQLFRONT_KERNELS"], started = "jit", time.perf_counter()
    with subprocess.Popen(command, env=environment, cwd=room, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shown = [(time.perf_counter() - started, share) for share in kernel_setup.shares(process.stdout)]
    whole = shown[-1][0]
    off = max(abs(share - taken / whole) for taken, share in shown)
    return [
        f"From a source tree with an empty cache: first row after {first_row:.0f} s, of which the kernels are "
        f"{whole:.0f} s; the bar is off by at most {100 * off:.0f} % of that time."
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
