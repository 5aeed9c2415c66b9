"""The rows of everyday about many changes at once: apply in each form of data, apply_each, subscribers, bulk builds.

All figures are processor time, and both sides of a row alternate in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from benchmarks.comparing import Bound, compare

VIEW = "SELECT k, SUM(x) AS s, COUNT(*) AS n FROM c GROUP BY k"
BUILT = "SELECT k, {} AS y FROM t GROUP BY k"
GROUPS, SPREAD, DISTINCT = 1_000, 1_000, 1 << 40
"""Groups of a view, and of how many values the aggregated column of a build is."""
Row = dict[str, Any]


def measure(times: int, changes: int, built: int) -> list[Row]:
    """All rows: `changes` of a stream, builds over `built` rows."""
    return [*batches(times), *streams(changes), *subscribers(times), *builds(built)]


def batches(times: int) -> list[Row]:
    """`apply` of a RecordBatch, and of a Table and a DataFrame beside it."""
    found = []
    for rows, before in ((100, (0.05, 0.116, 0.556)), (1_000, (0.07, 0.16, 0.474))):
        data = [_changes(number, rows) for number in range(20)]
        forms = {
            "a RecordBatch": data,
            "a Table": [_table(batch) for batch in data],
            "a pandas DataFrame": [batch.to_pandas() for batch in data],
        }
        with _connected() as con:
            for (form, given), earlier in zip(forms.items(), before, strict=True):
                found.append(
                    compare(
                        f"apply of {rows:,} rows as {form}",
                        lambda number, given=given: con.apply({"c": given[number % 20]}),
                        lambda number, data=data: con.apply({"c": data[number % 20]}),
                        5 * times,
                        Bound(times=1.5) if rows == 1_000 and form != "a RecordBatch" else Bound(),
                        earlier,
                        clock=time.process_time,
                    )
                )
    return found


def streams(changes: int) -> list[Row]:
    """`apply_each` over w1's items, beside one call for each epoch. The bounds are 5 million changes a second at 100
    rows an epoch, and 1.5 million at one."""
    found = []
    with _w1(changes) as (con, *both):
        tuples = [list(zip(*(column.to_pylist() for column in batch.columns), strict=True)) for batch in both]

        def each(size: int) -> None:
            for batch in both:
                con.apply_each(batch, table="items", rows=size)

        def batch_by_batch() -> None:
            for batch in both:
                for first in range(0, batch.num_rows, 100):
                    con.apply({"items": batch.slice(first, 100)})

        def row_by_row() -> None:
            for rows in tuples:
                for *row, weight in rows:
                    con.apply_row("items", tuple(row), weight)

        total = 2 * len(tuples[0])  # There and back, so that each side finds the same state.
        for size, rate, beside in ((100, 5e6, batch_by_batch), (1, 1.5e6, row_by_row)):
            found.append(
                compare(
                    f"apply_each of {total:,} rows, {size} an epoch",
                    lambda _, size=size: each(size),
                    lambda _, beside=beside: beside(),
                    5,
                    Bound(most=1e3 * total / rate),
                    None,
                    clock=time.process_time,
                )
            )
    return found


def subscribers(times: int) -> list[Row]:
    """An epoch of 100 rows with 20 subscribers that poll after it, beside one subscriber."""
    with ExitStack() as stack:
        cons = [stack.enter_context(_connected()) for _ in range(2)]
        readers = [[con.view("v").subscribe() for _ in range(count)] for con, count in zip(cons, (20, 1), strict=True)]
        data = [_changes(number, 100) for number in range(20)]

        def epoch(side: int) -> Callable[[int], object]:
            def run(number: int) -> None:
                cons[side].apply({"c": data[number % 20]})
                for reader in readers[side]:
                    reader.poll()

            return run

        what = "apply of 100 rows, 20 subscribers beside 1"
        return [compare(what, epoch(0), epoch(1), times, Bound(times=1.5), 4.3, clock=time.process_time)]


def builds(built: int) -> list[Row]:
    """MIN, and MIN with MAX, built over many rows, beside SUM."""
    import sqlfront

    found = []
    for values, words in ((SPREAD, f"{SPREAD:,} values a group"), (DISTINCT, "distinct values")):
        with sqlfront.connect() as con:
            con.execute(
                f"CREATE TABLE t AS SELECT (i % {GROUPS})::BIGINT AS k, (hash(i) % {values})::BIGINT AS x "
                f"FROM range({built}) AS r(i)"
            )

            def create(_: int, aggregate: str, con: Any = con) -> None:
                con.execute(f"CREATE MATERIALIZED VIEW v AS {BUILT.format(aggregate)}")
                con.execute("DROP MATERIALIZED VIEW v")

            for name, aggregate in (("MIN", "MIN(x)"), ("MIN and MAX", "MAX(x) - MIN(x)")):
                found.append(
                    compare(
                        f"{name} built over {built:,} rows, {words}",
                        lambda number, aggregate=aggregate, create=create: create(number, aggregate),
                        lambda number, create=create: create(number, "SUM(x)"),
                        1,
                        Bound(times=4),
                        26_000.0,
                        clock=time.process_time,
                    )
                )
    return found


def _connected() -> Any:
    import sqlfront

    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE c (id BIGINT, k BIGINT, x BIGINT) WITH (retain = false)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
    return con


def _changes(seed: int, rows: int) -> Any:
    import pyarrow

    make = np.random.default_rng(seed)
    columns = {"id": make.integers(1 << 40, size=rows), "k": make.integers(GROUPS, size=rows)}
    columns["x"] = make.integers(100, size=rows)
    return pyarrow.record_batch([pyarrow.array(column) for column in columns.values()], names=list(columns))


def _table(batch: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches([batch])


@contextmanager
def _w1(changes: int) -> Iterator[tuple[Any, Any, Any]]:
    """The tables and the view of w1, its changes of items as a batch, and one that takes them back."""
    import pyarrow
    import pyarrow.compute as pc

    import sqlfront
    from benchmarks.sides import arrow_batch
    from benchmarks.workloads import WORKLOADS

    work = WORKLOADS["w1"](changes)
    with sqlfront.connect() as con:
        for table in work.tables:
            columns = ", ".join(f"{name} {kind}" for name, kind in table.columns)
            con.execute(f"CREATE CHANGE TABLE {table.name} ({columns}) WITH (retain = false)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {work.view}")
        for table, rows in zip(work.tables, work.initial, strict=True):
            con.apply({table.name: arrow_batch(table, rows)})
        number = [table.name for table in work.tables].index("items")
        items = [(row, weight) for batch in work.batches(1) for table, row, weight in batch if table == number]
        there = arrow_batch(work.tables[number], [row for row, _ in items], [weight for _, weight in items])
        turned = there.take(pyarrow.array(np.arange(there.num_rows)[::-1]))
        weights = pc.negate(turned.column("_weight"))
        yield con, there, pyarrow.record_batch([*turned.columns[:-1], weights], names=there.schema.names)
