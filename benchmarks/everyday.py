"""everyday: what the statements cost that a person writes, beside DuckDB alone in the same process.

`python -m benchmarks.everyday [--rows 100000] [--bulk 1000000] [--keyed 10000000] [--built 10000000]`. Every
statement has new literals, and the statements of both sides alternate. `before` are the figures of 2026-11-23 on two
quiet cores.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import everyday_bulk, harness
from benchmarks.comparing import Bound, compare

VIEW = "SELECT k, SUM(x) AS s, COUNT(*) AS n FROM {table} GROUP BY k"
GROUPS = 1_000
Make = Callable[[int], str]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the tables that are written and read")
    parser.add_argument("--bulk", type=int, default=1_000_000, help="rows of the largest INSERT ... SELECT")
    parser.add_argument("--keyed", type=int, default=10_000_000, help="rows of the change table updated by key")
    parser.add_argument("--built", type=int, default=10_000_000, help="rows over which MIN and MAX are built")
    parser.add_argument("--times", type=int, default=200, help="statements of one row; their median is reported")
    options = parser.parse_args(arguments)
    rows = measure(options.rows, options.bulk, options.keyed, options.built, options.times)
    notes = [
        f"Medians of {options.times} statements with new literals, execute and fetchall; sqlfront's and DuckDB's "
        "alternate in one process. cpu ms: processor time of sqlfront's.",
        f"Tables of {options.rows:,} rows, three BIGINT columns; views: {VIEW.format(table='t')}, {GROUPS:,} groups.",
        "before: the same row on 2026-11-23 on two quiet cores.",
        "beside: DuckDB alone, with a table in place of a view; in the rows of view.get and of change tables, "
        "apply_row.",
        "apply, apply_each, subscribers and builds: processor time of both; beside a RecordBatch, one call for each "
        "epoch, one subscriber, and SUM.",
    ]
    harness.report("everyday", "Statements that a person writes, in milliseconds", rows, notes=notes)


def measure(rows: int, bulk: int, keyed: int, built: int, times: int) -> list[dict[str, Any]]:
    """All rows of the report."""
    found = [*single_rows(rows, times, views=1), *single_rows(rows, times, views=20)]
    found += keyed_writes(rows, times) + bulk_writes(bulk) + reads(rows, times) + change_tables(keyed, times)
    return found + everyday_bulk.measure(times, rows, built)


class Sides:
    """A sqlfront connection and DuckDB's own, with the same table `t`; on DuckDB's side a view is a table."""

    def __init__(self, rows: int, *, views: int, key: str = "") -> None:
        import duckdb

        import sqlfront

        self.ours, self.duck = sqlfront.connect(), duckdb.connect()
        for con in (self.ours, self.duck):
            con.execute(f"CREATE TABLE t (id BIGINT{key}, k BIGINT, x BIGINT)")
            con.execute(f"INSERT INTO t SELECT i, i % {GROUPS}, i FROM range({rows}) AS r(i)")
        for number in range(views):
            self.ours.execute(f"CREATE MATERIALIZED VIEW v{number} AS {VIEW.format(table='t')}")
        self.duck.execute(f"CREATE TABLE v0 AS {VIEW.format(table='t')}")

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *exception: object) -> None:
        self.ours.close()
        self.duck.close()

    def compare(self, what: str, make: Make, times: int, bound: Bound, before: float) -> dict[str, Any]:
        """A row of the report: the same statements on both sides."""
        return compare(what, self._runner(self.ours, make), self._runner(self.duck, make), times, bound, before)

    @staticmethod
    def _runner(con: Any, make: Make) -> Callable[[int], object]:
        return lambda number: con.execute(make(number)).fetchall()


def single_rows(rows: int, times: int, views: int) -> list[dict[str, Any]]:
    """INSERT, UPDATE and DELETE of one row, and what concerns no view."""
    many = f", {views} views" if views > 1 else ", 1 view"
    fresh = itertools.count(rows)
    with Sides(rows, views=views) as sides:

        def insert(number: int) -> str:
            return f"INSERT INTO t VALUES ({next(fresh)}, {number % GROUPS}, {7 * number})"

        def update(number: int) -> str:
            return f"UPDATE t SET x = {3 * number + 1} WHERE id = {11 * abs(number)}"

        def delete(number: int) -> str:
            return f"DELETE FROM t WHERE id = {13 * number + 70}"

        more = 1.0 if views > 1 else 0.0
        found = [
            sides.compare(f"INSERT of one row{many}", insert, times, Bound(2.6, more), 6.8),
            sides.compare(f"UPDATE of one row{many}", update, times, Bound(3.3, more), 8.4),
            sides.compare(f"DELETE of one row{many}", delete, times, Bound(3.3, more), 8.0),
        ]
        if views == 1:
            thousand = f"INSERT INTO t SELECT i, i % {GROUPS}, i FROM range({{0}}, {{0}} + 1000) AS r(i)"
            found.append(
                sides.compare(
                    "INSERT ... SELECT of 1,000 rows",
                    lambda number: thousand.format(next(fresh)),
                    max(1, times // 4),
                    Bound(times=3),
                    8.4,
                )
            )
            found.append(
                sides.compare("SELECT 1", lambda number: f"SELECT {number}", times, Bound(times=1, more=0.05), 1.8)
            )
    return found


def keyed_writes(rows: int, times: int) -> list[dict[str, Any]]:
    """Upsert and MERGE of one row, into a table with a primary key."""
    upsert = "INSERT INTO t VALUES ({0}, {1}, {2}) ON CONFLICT (id) DO UPDATE SET x = excluded.x"
    merge = (
        "MERGE INTO t USING (SELECT {0}::BIGINT AS id, {1} AS k, {2} AS x) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.k, s.x)"
    )
    with Sides(rows, views=1, key=" PRIMARY KEY") as sides:
        return [
            sides.compare(
                f"{what} of one row, 1 view",
                lambda number, text=text: text.format(abs(number) * 5, number % GROUPS, 3 * number + 2),
                max(1, times // 4),
                Bound(times=3),
                30.0,
            )
            for what, text in (("upsert", upsert), ("MERGE", merge))
        ]


def bulk_writes(bulk: int) -> list[dict[str, Any]]:
    """INSERT ... SELECT of many rows."""
    found = []
    for views, times, before in ((1, 8, 722.0), (5, 15, 1695.0)):
        fresh = itertools.count(1)
        with Sides(1, views=views) as sides:
            found.append(
                sides.compare(
                    f"INSERT ... SELECT of {bulk:,} rows, {views} view{'s' * (views > 1)}",
                    lambda number, fresh=fresh: (
                        f"INSERT INTO t SELECT i, i % {GROUPS}, i + {next(fresh)} FROM range({bulk}) AS r(i)"
                    ),
                    3,
                    Bound(times=times),
                    before,
                )
            )
    return found


def reads(rows: int, times: int) -> list[dict[str, Any]]:
    """Look-ups and the first rows, by SQL and by the handle."""
    with Sides(rows, views=1) as sides:
        sides.ours.execute("CREATE MATERIALIZED VIEW ranked AS SELECT id, x FROM t ORDER BY x DESC, id LIMIT 500")
        sides.duck.execute("CREATE TABLE ranked AS SELECT id, x FROM t ORDER BY x DESC, id LIMIT 500")
        return [
            sides.compare(
                "look-up of one group by SQL",
                lambda number: f"SELECT * FROM v0 WHERE k = {abs(number) % GROUPS}",
                times,
                Bound(times=3, most=1),
                4.4,
            ),
            sides.compare(
                "top 10 by SQL",
                lambda number: f"SELECT id, x FROM ranked ORDER BY x DESC, id LIMIT {10 + number % 2}",
                times,
                Bound(most=0.5),
                4.0,
            ),
        ]


def change_tables(rows: int, times: int) -> list[dict[str, Any]]:
    """A change table by SQL, beside apply_row."""
    import numpy as np
    import pyarrow

    import sqlfront

    with sqlfront.connect() as con:
        for name, keyed in (("c", ""), ("b", ", PRIMARY KEY (id)")):
            con.execute(f"CREATE CHANGE TABLE {name} (id BIGINT, k BIGINT, x BIGINT{keyed}) WITH (retain = true)")
            con.execute(f"CREATE MATERIALIZED VIEW v_{name} AS {VIEW.format(table=name)}")
        ids = np.arange(rows)
        con.apply({"b": pyarrow.table({"id": ids, "k": ids % GROUPS, "x": ids})})

        def row(number: int) -> object:
            return con.apply_row("c", (number, abs(number) % GROUPS, number))

        def insert(number: int) -> object:
            return con.execute(f"INSERT INTO c VALUES ({number}, {abs(number) % GROUPS}, {number})").fetchall()

        def update(number: int) -> object:
            return con.execute(f"UPDATE b SET x = {number} WHERE id = {abs(number) * 17 % rows}").fetchall()

        view = con.view("v_b")
        return [
            compare(
                "view.get of one group",
                lambda number: view.get(abs(number) % GROUPS),
                row,
                times,
                Bound(most=0.005),
                4.4,
            ),
            compare("change table: INSERT VALUES by SQL", insert, row, times, Bound(most=0.15), 12.0),
            compare(
                f"change table: UPDATE by key at {rows:,} rows", update, row, min(10, times), Bound(most=0.3), 840.0
            ),
        ]


if __name__ == "__main__":
    main()
