"""Pathway's side of `benchmarks.yannakakis`, run by the peers' interpreter: WORKLOAD.json BUDGET; figures as JSON.

Joins are spelled out for its SQL, decimals are floats and dates ISO text. Results go to a sink that drops them and are
not compared. As in `pathway_side`, an epoch is over when the marker row that is sent last to each table has come out.
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
import pyarrow.ipc
from pathway_side import Feed

PAGE = os.sysconf("SC_PAGE_SIZE")
JOINS = {
    "FQ1": "orders JOIN lineitem ON o_orderkey = l_orderkey JOIN part ON l_partkey = p_partkey"
    " JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
    "FQ2": "lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey"
    " JOIN part ON l_partkey = p_partkey JOIN nation ON c_nationkey = n_nationkey",
    "FQ3": "orders JOIN lineitem ON o_orderkey = l_orderkey JOIN partsupp ON l_suppkey = ps_suppkey"
    " JOIN supplier ON l_suppkey = s_suppkey JOIN customer ON o_custkey = c_custkey",
    "FQ4": "lineitem JOIN supplier ON l_suppkey = s_suppkey JOIN partsupp ON l_suppkey = ps_suppkey",
}
AGGREGATES = {
    "Q1": "SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty, SUM(l_extendedprice) AS sum_base_price,"
    " SUM(l_extendedprice * (1 - l_discount)) AS sum_disc_price,"
    " SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, AVG(l_quantity) AS avg_qty,"
    " AVG(l_extendedprice) AS avg_price, AVG(l_discount) AS avg_disc, COUNT(*) AS count_order"
    " FROM lineitem WHERE l_shipdate <= '1998-08-15' GROUP BY l_returnflag, l_linestatus",
    "Q3": "SELECT l_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority"
    " FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey"
    " WHERE c_mktsegment = 'AUTOMOBILE' AND o_orderdate < '1995-03-13' AND l_shipdate > '1995-03-13'"
    " GROUP BY l_orderkey, o_orderdate, o_shippriority",
    "Q6": "SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem"
    " WHERE l_shipdate >= '1994-01-01' AND l_shipdate < '1995-01-01' AND l_discount >= 0.05 AND l_discount <= 0.07"
    " AND l_quantity < 24",
}
KEYS = {"partsupp": 2, "lineitem": 4}
"""How many leading columns hold a table's key; of the others, one."""


def main() -> None:
    work, budget = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    with contextlib.redirect_stdout(sys.stderr):
        figures = run(work, budget)
    json.dump(figures, sys.stdout)


def run(work: dict[str, Any], budget: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"side": "pathway", "seconds": {}, "epochs": {}, "peak": 0}
    if work["name"] not in JOINS.keys() | AGGREGATES.keys():
        return figures | {"refused": "not written in Pathway's SQL"}
    feeds, tables, markers = {}, {}, queue.SimpleQueue()
    columns: list[str] = []
    for table in work["rows"]:
        feeds[table], tables[table], marker = _read(work, table)
        columns += [name for name in feeds[table].names if name != "marker"]
        pw.io.subscribe(marker, on_change=lambda key, row, time, is_addition: markers.put(None))
    name = work["name"]
    sql = AGGREGATES[name] if name in AGGREGATES else f"SELECT {', '.join(columns)} FROM {JOINS[name]}"
    pw.io.null.write(pw.sql(sql, **tables))
    driver = threading.Thread(target=_drive, args=(work, feeds, markers, figures, budget))
    driver.start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    driver.join()
    return figures


def _read(work: dict[str, Any], table: str) -> tuple[Feed, pw.Table, pw.Table]:
    """A feed, the table of its real rows, and the table of its markers."""
    with pyarrow.ipc.open_stream(_file(work, "insert", table)) as reader:
        types = {field.name: _type(field.type) for field in reader.schema} | {"marker": int}
    keys = KEYS.get(table, 1)
    feed = Feed(list(types))
    definition = {
        name: pw.column_definition(dtype=kind, primary_key=place < keys)
        for place, (name, kind) in enumerate(types.items())
    }
    schema = pw.schema_builder(definition, name=table.title())
    whole = pw.io.python.read(feed, schema=schema, autocommit_duration_ms=None)
    return feed, whole.filter(whole.marker < 0).without("marker"), whole.filter(whole.marker >= 0)


def _drive(
    work: dict[str, Any], feeds: dict[str, Feed], markers: queue.SimpleQueue, figures: dict[str, Any], budget: int
) -> None:
    """Send each epoch and wait until it has come out."""
    start, number = 0, 0
    for phase in ("load", "insert", "delete"):
        spent = 0.0
        for rows in _epochs(work, phase, number):
            number += 1
            before = time.process_time()
            for table, feed in feeds.items():
                feed.inbox.put(rows[table])
            for _ in feeds:
                markers.get()
            spent += time.process_time() - before
            grown = _resident() - start
            figures["peak"] = max(figures["peak"], grown) if phase == "insert" else figures["peak"]
            if phase != "load":
                figures["epochs"][phase] = figures["epochs"].get(phase, 0) + 1
            if phase == "insert" and grown > budget:
                figures["out_of_budget"] = True
                break
        if phase == "load":
            start = _resident()
        else:
            figures["seconds"][phase] = spent
        if figures.get("out_of_budget"):
            break
    for feed in feeds.values():
        feed.inbox.put(None)


def _epochs(work: dict[str, Any], phase: str, number: int) -> Iterator[dict[str, list[tuple[list[Any], int]]]]:
    """The epochs of a phase, rows with weights and a marker last; "load" is one, of the tables not streamed."""
    kind = "insert" if phase == "load" else phase
    streamed = [table for table in work["rows"] if table not in work["preloaded"]]
    readers = {table: pyarrow.ipc.open_stream(_file(work, kind, table)) for table in work["rows"]}
    taken = [table for table in work["rows"] if (phase == "load") != (table in streamed)]
    for epoch in range(1 if phase == "load" else work["epochs"][kind]):
        rows: dict[str, list[tuple[list[Any], int]]] = {}
        for table, reader in readers.items():
            rows[table] = _rows(reader.read_next_batch()) if table in taken else []
            types = [_type(field.type) for field in reader.schema if field.name != "_weight"]
            values = [0.0 if kind is float else -1 - number - epoch if kind is int else "" for kind in types]
            rows[table].append(([*values, number + epoch], 1))
        yield rows


def _rows(batch: Any) -> list[tuple[list[Any], int]]:
    weight = -1 if "_weight" in batch.schema.names else 1
    columns = []
    for name, column in zip(batch.schema.names, batch.columns):
        if name == "_weight":
            continue
        kind = _type(column.type)
        values = column.to_pylist()
        columns.append([kind(value) for value in values])
    return [([*row, -1], weight) for row in zip(*columns)]


def _type(kind: Any) -> type:
    if pyarrow.types.is_decimal(kind):
        return float
    return int if pyarrow.types.is_integer(kind) else str


def _file(work: dict[str, Any], kind: str, table: str) -> str:
    return f"{work['directory']}/{table}.{kind}.arrows"


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


if __name__ == "__main__":
    main()
