"""soak: views of every kind under churn for a long time; their memory stays flat, and their state is empty at the end.

`python -m benchmarks.soak [--epochs 1000000] [--asking 100000] [--kinds joins,windows] [--window 2000]`. Each kind of
node has a process of its own. Rows come and go one by one, and a table has about `window` of them. Kinds whose epochs
ask DuckDB have `asking` epochs, the others `epochs`. Values are ever new ones, so dictionaries and tables turn over.
Resident memory is taken after a tenth of the epochs and at the end, without the bytes that allocators hold back.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from math import sin
from typing import Any

from benchmarks import harness

TABLES = """
CREATE CHANGE TABLE t (id BIGINT, k BIGINT, x BIGINT, s VARCHAR);
CREATE CHANGE TABLE u (id BIGINT, k BIGINT, x BIGINT, s VARCHAR);
"""
NATIVE = {
    "groups": "SELECT k, s, count(*) AS n, sum(x) AS s1, avg(x::DOUBLE) AS d FROM t GROUP BY k, s",
    "extremes": "SELECT k, min(x) AS lo, max(x) AS hi, median(x) AS m, mode(x) AS o FROM t GROUP BY k",
    "distinct": "SELECT k, count(DISTINCT x) AS n, count(DISTINCT s) AS m FROM t GROUP BY k",
    "joins": "SELECT t.s, u.x FROM t JOIN u ON t.k = u.k",
    "outer joins": "SELECT t.s, u.x FROM t LEFT JOIN u ON t.k = u.k",
    "triangles": "SELECT count(*) AS n FROM t AS a, t AS b, t AS c WHERE a.k = b.x AND b.k = c.x AND c.k = a.x",
    "order": "SELECT k, x, s FROM t ORDER BY x DESC, s LIMIT 10",
    "order of a join": "SELECT t.s, u.x FROM t JOIN u ON t.k = u.k ORDER BY t.x + u.x DESC, s LIMIT 10",
    "windows": "SELECT k, x, sum(x) OVER w AS t, rank() OVER w AS r FROM t WINDOW w AS (PARTITION BY k ORDER BY x)",
    "ranges": "SELECT t.k, sum(u.x) AS s FROM t JOIN u ON t.k = u.k AND t.x < u.x GROUP BY t.k",
    "full joins": "SELECT t.s, u.x FROM t FULL JOIN u ON t.k = u.k",
    "partners": "SELECT k, s FROM t WHERE k IN (SELECT k FROM u) AND NOT EXISTS (FROM u WHERE u.x = t.x)",
    "sets of rows": "SELECT k FROM t EXCEPT SELECT k FROM u",
    "unions": "SELECT k, s FROM t UNION SELECT k, s FROM u",
    "products": "SELECT t.s, u.x FROM t, u",
    "floating sums": "SELECT k, sum(x / 3) AS s, stddev(x / 7) AS d, corr(x, id) AS c FROM t GROUP BY k",
    "lists": "SELECT k, list(x ORDER BY x, id) AS l, arg_max(s, x) AS a FROM t GROUP BY k",
    "first rows of groups": "SELECT k, x, s FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY x DESC, id) <= 3",
    "boxes": "SELECT t.k, u.x FROM t JOIN u ON t.x < u.x AND t.id > u.id",
    "distinct ranges": "SELECT DISTINCT t.k, u.k AS l FROM t JOIN u ON t.x < u.x",
    "extremes of ranges": "SELECT t.id, max(u.x) AS m FROM t JOIN u ON t.k = u.k AND u.id < t.id GROUP BY t.id",
    "frames": "SELECT k, x, max(x) OVER w AS m FROM t WINDOW w AS (PARTITION BY k ORDER BY id ROWS 9 PRECEDING)",
    "triangle rows": """SELECT a.k, b.k AS l, c.k AS m FROM t AS a, t AS b, t AS c
        WHERE a.k = b.x AND b.k = c.x AND c.k = a.x""",
    "stages": "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t GROUP BY k) GROUP BY n",
}
ASKING = {
    "touched groups": "SELECT k, string_agg(s, ',' ORDER BY s) AS l FROM t GROUP BY k",
    "computed rows": "SELECT upper(s) AS s, count(*) AS n FROM t GROUP BY ALL",
    "other conditions": "SELECT t.s, u.s AS r FROM t JOIN u ON t.k = u.k AND (t.x * u.x) % 7 = 3",
    "as of": "SELECT t.s, u.x FROM t ASOF JOIN u ON t.k = u.k AND t.x >= u.x",
    "islands": """SELECT k, min(x) AS lo, max(x) AS hi, count(*) AS n FROM (
        SELECT k, x, x - row_number() OVER (PARTITION BY k ORDER BY x) AS i FROM t) GROUP BY k, i""",
}
KINDS = NATIVE | ASKING


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=1_000_000)
    parser.add_argument("--asking", type=int, default=100_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--window", type=int, default=2000)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    if options.child:
        print(json.dumps(soak(kinds[0], options.asking if kinds[0] in ASKING else options.epochs, options.window)))
        return
    rows = []
    for kind in kinds:
        passed = [f"--epochs={options.epochs}", f"--asking={options.asking}", f"--window={options.window}"]
        command = [sys.executable, "-m", "benchmarks.soak", "--child", f"--kinds={kind}", *passed]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    worst = max(rows, key=lambda row: row["growth"])
    notes = [f"The most growth after a tenth of the epochs: {worst['growth']:.1%} ({worst['kind']})."]
    harness.report("soak", f"Churn in tables of about {options.window:,} rows", rows, notes=notes)


def soak(kind: str, epochs: int, window: int) -> dict[str, Any]:
    """The memory of a view of a kind, after a tenth of the epochs and at the end, and what is left when it is empty."""
    import sqlfront

    con = sqlfront.connect(config={"sqlfront_progress": False, "threads": 1})
    con.execute(TABLES)
    con.execute(f"CREATE MATERIALIZED VIEW v AS {KINDS[kind]}")
    changes, warm, started = churn(random.Random(kind), window), 0, time.process_time()
    for number in range(epochs):
        if number == epochs // 10:
            warm = resident()
        con.apply_row(*next(changes))
        if number % 1000 == 0:
            con.execute("SELECT * FROM v LIMIT 3").fetchall()
    seconds, state = time.process_time() - started, con.session.database.engine.memory()
    end = resident()
    wrong = len(con.execute("CHECK MATERIALIZED VIEW v").fetchall())
    con.execute("DELETE FROM t; DELETE FROM u")
    left = sum(row[3] for row in con.execute("SHOW STATE").fetchall())
    return {
        "kind": kind,
        "epochs": epochs,
        "us an epoch": 1e6 * seconds / epochs,
        "state": state,
        "warm": warm,
        "end": end,
        "growth": end / warm - 1,
        "wrong": wrong,
        "left": left,
        "lasting": con.session.database.engine.memory(),
    }


def churn(rng: random.Random, window: int) -> Iterator[tuple[str, tuple[Any, ...], int]]:
    """Tables, rows and their weights without end. Rows come and go in any order; the values go on to new ones, and the
    tables grow and shrink about their size."""
    held: list[tuple[str, tuple[Any, ...]]] = []
    for number in count():
        size = window * (1 + 0.5 * sin(number / (3 * window)))
        if len(held) < size or (held and rng.random() < 0.5 and len(held) < 1.1 * size):
            key = 50 * (number // (10 * window)) + rng.randrange(50)
            row = number, key, key + rng.randrange(window), f"text {number} of key {key}"
            held.append((rng.choice("tu"), row))
            yield *held[-1], 1
        else:
            place = rng.randrange(len(held))
            held[place], held[-1] = held[-1], held[place]
            yield *held.pop(), -1


def resident() -> int:
    """Resident bytes without those that allocators hold back."""
    harness.release()
    return harness.resident()


if __name__ == "__main__":
    main()
