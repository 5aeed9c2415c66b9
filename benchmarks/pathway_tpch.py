"""Pathway's side of `benchmarks.yannakakis`, run by Pathway's own environment: prints its figures as JSON.

`python pathway_tpch.py WORKLOAD.json KEYS BUDGET SECONDS`: KEYS is JSON, the key columns by table; a side that grows
beyond BUDGET bytes, or takes more than SECONDS in all, stops. It imports nothing of ours: Pathway pins other versions
of our dependencies. The queries are built with Pathway's own API; decimals are its floats, dates its strings, and
full joins are counted, not kept.

Each epoch ends with a marker row per table (a negative key): the next one is sent when the markers of all tables have
come out of the dataflow. Seconds are the process's processor time.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pathway as pw
import pyarrow
import pyarrow.ipc

PHASES = ("insert", "delete")
JOINS: dict[str, tuple[str, list[tuple[str, list[tuple[str, str]]]]]] = {
    "FQ1": (
        "orders",
        [
            ("lineitem", [("o_orderkey", "l_orderkey")]),
            ("part", [("l_partkey", "p_partkey")]),
            ("partsupp", [("l_partkey", "ps_partkey"), ("l_suppkey", "ps_suppkey")]),
        ],
    ),
    "FQ2": (
        "lineitem",
        [
            ("orders", [("l_orderkey", "o_orderkey")]),
            ("customer", [("o_custkey", "c_custkey")]),
            ("part", [("l_partkey", "p_partkey")]),
            ("nation", [("c_nationkey", "n_nationkey")]),
        ],
    ),
    "FQ3": (
        "orders",
        [
            ("lineitem", [("o_orderkey", "l_orderkey")]),
            ("partsupp", [("l_suppkey", "ps_suppkey")]),
            ("supplier", [("l_suppkey", "s_suppkey")]),
            ("customer", [("o_custkey", "c_custkey")]),
        ],
    ),
    "FQ4": ("lineitem", [("supplier", [("l_suppkey", "s_suppkey")]), ("partsupp", [("l_suppkey", "ps_suppkey")])]),
}
"""The first table of a full join, and the others with the columns they are joined by."""


class Feed(pw.io.python.ConnectorSubject):
    """Sends the rows that are put into its queue; None ends the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()

    def run(self) -> None:
        while (epoch := self.inbox.get()) is not None:
            rows, weight = epoch
            for row in rows[:-1]:
                if weight > 0:
                    self.next(**row)
                else:
                    self.delete(**row)
            self.next(**rows[-1])
            self.commit()


def main() -> None:
    work = json.loads(Path(sys.argv[1]).read_text())
    with contextlib.redirect_stdout(sys.stderr):
        figures = run(work, json.loads(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    json.dump(figures, sys.stdout, default=float)
    sys.stdout.flush()
    os._exit(0)  # A stopped dataflow has no end.


def run(work: dict[str, Any], keys: dict[str, list[str]], budget: int, limit: float) -> dict[str, Any]:
    """The figures of a side, as benchmarks.yannakakis_side.Figures has them."""
    figures: dict[str, Any] = {"side": "pathway", "seconds": {}, "epochs": {}, "rows": {}}
    markers: queue.SimpleQueue = queue.SimpleQueue()
    feeds, tables = {}, {}
    for name in work["rows"]:
        feeds[name] = Feed()
        tables[name] = _read(feeds[name], _schema(work, name), keys[name], markers)
    view = _view(work["name"], tables)
    counted: dict[str, int] = {"n": 0}
    pw.io.null.write(view)
    pw.io.subscribe(view.reduce(n=pw.reducers.count()), on_change=lambda key, row, time, is_addition: (
        counted.update(n=row["n"]) if is_addition else None
    ))  # fmt: skip
    done = threading.Event()

    def drive() -> None:
        _drive(work, feeds, markers, counted, figures, budget, limit)
        done.set()

    def dataflow() -> None:
        try:
            pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        finally:
            done.set()

    for thread in (drive, dataflow):
        threading.Thread(target=thread, daemon=True).start()
    done.wait()
    return figures


def _drive(
    work: dict[str, Any], feeds: dict[str, Feed], markers: queue.SimpleQueue, counted: dict[str, int],
    figures: dict[str, Any], budget: int, limit: float,
) -> None:  # fmt: skip
    epochs = 0

    def send(changes: dict[str, list[dict[str, Any]]], weight: int) -> None:
        nonlocal epochs
        epochs += 1
        for name, feed in feeds.items():
            feed.inbox.put(([*changes.get(name, ()), _marker(work, name, epochs)], weight))
        for _ in feeds:
            markers.get()

    preloaded = {name: next(_batches(work, "insert", name)).to_pylist() for name in work["preloaded"] if name in feeds}
    send({name: [_plain(row) for row in rows] for name, rows in preloaded.items()}, 1)
    start, began, most = _status("VmRSS"), time.monotonic(), 0
    Path("/proc/self/clear_refs").write_text("5")
    for phase in PHASES:
        figures["seconds"][phase] = 0.0
        streams = {name: _batches(work, phase, name) for name in feeds if name not in work["preloaded"]}
        for number in range(1, work["epochs"][phase] + 1):
            rows = {name: [_plain(row) for row in next(stream).to_pylist()] for name, stream in streams.items()}
            before = time.process_time()
            send(rows, 1 if phase == "insert" else -1)
            figures["seconds"][phase] += time.process_time() - before
            figures["epochs"][phase] = number
            most = max(most, _status("VmHWM") - start)
            if most > budget or time.monotonic() - began > limit:
                figures["out_of_budget"] = True
                break
        before = time.process_time()
        _settle()
        figures["seconds"][phase] += time.process_time() - before
        if phase == "insert":
            figures["peak"] = most
        if figures.get("out_of_budget"):
            return
        figures["rows"][phase] = counted["n"]


def _settle() -> None:
    """Wait until the dataflow is idle: a marker may come out before what its epoch changes has."""
    while True:
        before = time.process_time()
        time.sleep(0.5)
        if time.process_time() - before < 0.1:
            return


def _view(name: str, tables: dict[str, pw.Table]) -> pw.Table:
    if name in JOINS:
        first, steps = JOINS[name]
        view = tables[first]
        for table, columns in steps:
            right = tables[table]
            conditions = [view[mine] == right[its] for mine, its in columns]
            names = [view[column] for column in view.column_names()] + [right[c] for c in right.column_names()]
            view = view.join(right, *conditions).select(*names)
        return view
    line = tables["lineitem"]
    if name == "Q1":
        chosen = line.filter(line.l_shipdate <= "1998-08-15")
        price = chosen.l_extendedprice * (1 - chosen.l_discount)
        return chosen.groupby(chosen.l_returnflag, chosen.l_linestatus).reduce(
            chosen.l_returnflag, chosen.l_linestatus, a=pw.reducers.sum(chosen.l_quantity),
            b=pw.reducers.sum(chosen.l_extendedprice), c=pw.reducers.sum(price),
            d=pw.reducers.sum(price * (1 + chosen.l_tax)), e=pw.reducers.avg(chosen.l_quantity),
            f=pw.reducers.avg(chosen.l_extendedprice), g=pw.reducers.avg(chosen.l_discount), n=pw.reducers.count(),
        )  # fmt: skip
    if name == "Q3":
        customer, orders = tables["customer"], tables["orders"]
        customer = customer.filter(customer.c_mktsegment == "AUTOMOBILE")
        orders = orders.filter(orders.o_orderdate < "1995-03-13")
        line = line.filter(line.l_shipdate > "1995-03-13")
        own = orders.join(customer, orders.o_custkey == customer.c_custkey).select(
            orders.o_orderkey, orders.o_orderdate, orders.o_shippriority
        )
        sold = line.join(own, line.l_orderkey == own.o_orderkey).select(
            line.l_orderkey, own.o_orderdate, own.o_shippriority, r=line.l_extendedprice * (1 - line.l_discount)
        )
        return sold.groupby(sold.l_orderkey, sold.o_orderdate, sold.o_shippriority).reduce(
            sold.l_orderkey, sold.o_orderdate, sold.o_shippriority, revenue=pw.reducers.sum(sold.r)
        )
    if name == "Q6":
        dates = (line.l_shipdate >= "1994-01-01") & (line.l_shipdate < "1995-01-01")
        rest = (line.l_discount >= 0.05) & (line.l_discount <= 0.07) & (line.l_quantity < 24)
        chosen = line.filter(dates & rest)
        return chosen.reduce(revenue=pw.reducers.sum(chosen.l_extendedprice * chosen.l_discount))
    raise KeyError(name)


def _schema(work: dict[str, Any], name: str) -> pyarrow.Schema:
    with pyarrow.ipc.open_stream(f"{work['directory']}/{name}.insert.arrows") as reader:
        return reader.schema


def _read(feed: Feed, schema: pyarrow.Schema, keys: list[str], markers: queue.SimpleQueue) -> pw.Table:
    """The table of a feed's real rows; its markers go to `markers`."""
    columns = {
        field.name: pw.column_definition(dtype=_type(field.type), primary_key=field.name in keys) for field in schema
    }
    whole = pw.io.python.read(feed, schema=pw.schema_builder(columns), autocommit_duration_ms=None)
    key = whole[keys[0]]
    pw.io.subscribe(whole.filter(key < 0), on_change=lambda key, row, time, is_addition: markers.put(None))
    return whole.filter(key >= 0)


def _marker(work: dict[str, Any], name: str, epoch: int) -> dict[str, Any]:
    """A row whose whole numbers, the keys included, are negative."""
    empty = {int: -epoch, float: 0.0, str: ""}
    return {field.name: empty[_type(field.type)] for field in _schema(work, name)}


def _type(kind: pyarrow.DataType) -> type:
    if pyarrow.types.is_integer(kind):
        return int
    return float if pyarrow.types.is_decimal(kind) or pyarrow.types.is_floating(kind) else str


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    row.pop("_weight", None)
    return {
        name: value if isinstance(value, (int, str, float)) else str(value) if hasattr(value, "year") else float(value)
        for name, value in row.items()
    }


def _batches(work: dict[str, Any], kind: str, name: str) -> Iterator[pyarrow.RecordBatch]:
    with pyarrow.ipc.open_stream(f"{work['directory']}/{name}.{kind}.arrows") as reader:
        yield from reader


def _status(name: str) -> int:
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
