"""Processes that are killed between two steps, one after the other on one file: run as a script by test_durable.py.

crashing.py FILE [changes] STEP...

For each STEP fork a process: open the file, print "found N" for the N epochs that are in it, go on with N + 1 and print
"done N" after each; die by SIGKILL at the STEP-th entry into DuckDB or change of a file, or return from it; `changes`:
at the STEP-th that changes something. COMMIT:N as a step: when the N-th COMMIT has ended. Then print "ended" and how.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable

import duckdb
import pyarrow as pa

import sqlfront

MOST = 400
WRITES = ("COMMIT", "INSERT", "DELETE", "UPDATE", "CHECKPOINT")


def change(number: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Rows and weights of epoch `number`, for both tables: later epochs delete what earlier ones have inserted."""
    rows, weights = [(number % 3, number), (7, number), (number % 3, number)], [1, 2, 1]
    if number > 1:
        rows.append((7, number - 1))
        weights.append(-2)
    return rows, weights


def expected(epochs: int) -> dict[str, list]:
    """The tables and the views after so many epochs."""
    held: Counter = Counter()
    for number in range(1, epochs + 1):
        for row, weight in zip(*change(number), strict=True):
            held[row] += weight
    held = +held
    totals: Counter = Counter()
    joined: Counter = Counter()
    for (a, b), weight in held.items():
        totals[a] += b * weight
        for (c, d), other in held.items():
            if a == c:
                joined[b, d] += weight * other
    rows = [(a, b, "text") for a, b in held.elements()]
    return {
        "kept": sorted(rows),
        "totals": sorted(totals.items()),
        "passing_totals": sorted(totals.items()),
        "joined": sorted(joined.elements()),
        "plain": [(number,) for number in range(2, epochs + 1, 2)],
    }


def set_up(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE plain (number BIGINT)")
    con.execute("CREATE CHANGE TABLE kept (a BIGINT, b BIGINT, c VARCHAR NOT NULL)")
    con.execute("CREATE CHANGE TABLE passing (a BIGINT, b BIGINT, c VARCHAR NOT NULL) WITH (retain = false)")
    con.execute("CREATE MATERIALIZED VIEW totals AS SELECT a, sum(b)::BIGINT AS n FROM kept GROUP BY a")
    con.execute("CREATE MATERIALIZED VIEW passing_totals AS SELECT a, sum(b)::BIGINT AS n FROM passing GROUP BY a")
    con.execute("CREATE MATERIALIZED VIEW joined AS SELECT k.b, p.b AS d FROM kept k JOIN passing p ON k.a = p.a")


def look(con: sqlfront.Connection) -> dict[str, list]:
    """What `expected` says, as it is found."""
    return {name: sorted(con.execute(f"FROM {name}").fetchall()) for name in expected(0)}


def run_epoch(con: sqlfront.Connection, number: int) -> None:
    """One epoch of both change tables, by different ways in; every other one writes a table of DuckDB's too."""
    rows, weights = change(number)
    data = {"a": [a for a, _ in rows], "b": [b for _, b in rows], "c": ["text"] * len(rows), "_weight": weights}
    if number % 2:
        con.apply({"kept": pa.table(data), "passing": pa.table(data)})
        return
    con.execute("BEGIN")
    con.execute("INSERT INTO plain VALUES (?)", [number])
    con.apply({"kept": pa.table(data)})
    con.apply({"passing": pa.table(data)})
    con.execute("COMMIT")


class Watched:
    """A DuckDB connection or relation that tells each entry into a method and each return from it."""

    def __init__(self, watched, step) -> None:
        self._watched, self._step = watched, step

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self._watched.close()

    def __getattr__(self, name: str):
        found = getattr(self._watched, name)
        if not callable(found):
            return found

        def call(*args, **settings):
            self._step("before", args)
            result = found(*args, **settings)
            self._step("after", args)
            own = type(result).__name__ in ("DuckDBPyConnection", "DuckDBPyRelation")
            return Watched(result, self._step) if own else result

        return call


def watch(path: str, step: Callable[[str, tuple], None]) -> None:
    """From now on tell each entry into DuckDB on this file ("before", arguments), and each return ("after", ...)."""
    connect = duckdb.connect

    def watched(database: str, **settings):
        made = connect(database, **settings)
        return Watched(made, step) if database == path else made

    duckdb.connect = watched


def watch_files(step: Callable[[str, tuple], None]) -> None:
    """From now on tell each change of a file or folder by Python ("before", arguments), and its end ("after", ...)."""

    def watched(change: Callable[..., object]) -> Callable[..., object]:
        def call(*args, **settings):
            step("before", args)
            result = change(*args, **settings)
            step("after", args)
            return result

        return call

    for name in ("mkdir", "fsync", "link", "rename", "unlink", "rmdir", "write", "ftruncate"):
        setattr(os, name, watched(getattr(os, name)))


def changes_something(arguments: tuple) -> bool:
    """Whether a step is a statement that writes, or a change of a file."""
    first = arguments[0] if arguments else "SELECT"
    return not isinstance(first, str) or os.sep in first[:1] or first.startswith(WRITES)


def main(path: str, kill_at: str, every: bool) -> None:
    steps, armed = itertools.count(1), []
    last = int(kill_at.removeprefix("COMMIT:"))

    def counts(when: str, arguments: tuple) -> bool:
        if kill_at.startswith("COMMIT:"):
            return when == "after" and arguments[:1] == ("COMMIT",)
        return every or changes_something(arguments)

    def step(when: str, arguments: tuple) -> None:
        if armed and counts(when, arguments) and next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    watch(path, step)
    watch_files(step)
    fresh = not os.path.exists(path)
    con = sqlfront.connect(path)
    if fresh:
        set_up(con)
    found = look(con)
    epochs = next((number for number in range(MOST) if expected(number) == found), None)
    print("found", epochs, found if epochs is None else "", flush=True)
    if epochs is None:
        return
    armed.append(True)
    for number in range(epochs + 1, epochs + 7):
        run_epoch(con, number)
        print("done", number, flush=True)
        if number % 5 == 0:
            con.execute("CHECKPOINT")
    con.close()
    print("closed", flush=True)


def fork(path: str, kill_at: str, every: bool) -> None:
    """Run `main` in a process of its own, which need not load the kernels again, and wait for its end."""
    child = os.fork()
    if child:
        print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        return
    try:
        main(path, kill_at, every)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    sqlfront.Connection  # noqa: B018  loads the kernels, and opens no database
    for one in sys.argv[2:]:
        if one != "changes":
            fork(sys.argv[1], one, "changes" not in sys.argv)
