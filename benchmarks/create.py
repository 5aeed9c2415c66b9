"""create: what a person waits for at CREATE MATERIALIZED VIEW, DuckDB's CREATE VIEW and an empty call beside it.

`python -m benchmarks.create` times statements in one warm process over empty tables: a join aggregate over two tables
that another view captures already; the same over tables that are met for the first time, whose trigger DDL counts; and
each query of TPC-DS that can be a view, over tables that are captured already. The figures are milliseconds of the
clock, medians and worst of `--repeats` statements (of TPC-DS: of the queries).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness

ROOT = Path(__file__).parents[1]
TPCDS = ROOT / "tests" / "fixtures" / "standard" / "tpcds"
TABLES = (
    "CREATE TABLE orders{0} (o_id BIGINT PRIMARY KEY, customer VARCHAR)",
    "CREATE TABLE items{0} (o_id BIGINT, price DECIMAL(12, 2))",
)
QUERY = (
    "SELECT customer, SUM(price) AS total, COUNT(*) AS n "
    "FROM orders{0} JOIN items{0} USING (o_id) GROUP BY customer"
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args(arguments)
    rows = [*_join_aggregates(options.repeats), *_tpcds()]
    harness.report("create", "CREATE MATERIALIZED VIEW: milliseconds of the clock", rows)


def _join_aggregates(repeats: int) -> list[dict[str, Any]]:
    import sqlfront

    con = sqlfront.connect()
    for sql in TABLES:
        con.execute(sql.format(""))
    con.execute(f"CREATE MATERIALIZED VIEW first AS {QUERY.format('')}")
    captured = [_timed(con, f"CREATE MATERIALIZED VIEW v{i} AS {QUERY.format('')}", f"v{i}") for i in range(repeats)]
    new = []
    for i in range(repeats):
        for sql in TABLES:
            con.execute(sql.format(i))
        new.append(_timed(con, f"CREATE MATERIALIZED VIEW v AS {QUERY.format(i)}", "v"))
    plain = [
        _milliseconds(lambda: con.session.duck.execute(f"CREATE OR REPLACE VIEW w AS {QUERY.format('')}"))
        for _ in captured
    ]
    empty = [_milliseconds(lambda: con.session.duck.execute("SELECT 1").fetchall()) for _ in captured]
    con.close()
    return [
        _row("join aggregate, tables captured already", captured),
        _row("join aggregate, tables met for the first time", new),
        _row("DuckDB: CREATE VIEW of the same query", plain),
        _row("DuckDB: SELECT 1", empty),
    ]


def _tpcds() -> list[dict[str, Any]]:
    """Each query that can be a view, created a second time: then its tables are captured, and nothing is cold."""
    import sqlfront

    con = sqlfront.connect()
    con.execute((TPCDS / "schema.sql").read_text())
    found = []
    for path in sorted(TPCDS.glob("[0-9]*.sql")):
        query = path.read_text().strip().rstrip(";")
        try:
            con.execute(f"CREATE MATERIALIZED VIEW kept AS {query}")
        except sqlfront.NotSupportedError:
            continue
        found.append(_timed(con, f"CREATE MATERIALIZED VIEW again AS {query}", "again"))
        con.execute("DROP MATERIALIZED VIEW kept")
    con.close()
    return [_row(f"TPC-DS, {len(found)} queries", found)]


def _timed(con: Any, create: str, name: str) -> float:
    taken = _milliseconds(lambda: con.execute(create))
    con.execute(f"DROP MATERIALIZED VIEW {name}")
    return taken


def _milliseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def _row(what: str, taken: Sequence[float]) -> dict[str, Any]:
    return {"statement": what, "median": statistics.median(taken), "worst": max(taken)}


if __name__ == "__main__":
    main()
