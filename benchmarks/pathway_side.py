"""Pathway's side of a workload, run by Pathway's own environment: python pathway_side.py INPUT.json

It imports nothing of ours: Pathway pins other versions of our dependencies. The input holds tables,
initial rows, batches of changes and the view, in Pathway's SQL or as the name of one of VIEWS; the output,
on standard output, is one JSON object with the seconds per batch, the final rows and the peak of memory.

Each batch ends with a marker row per table (a negative key): the clock stops when the markers of
all tables have come out of the dataflow, so that each batch is seen before the next one is sent.
"""

from __future__ import annotations

import contextlib
import json
import queue
import resource
import sys
import threading
import time
from typing import Any

import pathway as pw

TYPES = {"BIGINT": int, "VARCHAR": str}


class Feed(pw.io.python.ConnectorSubject):
    """Sends the rows that are put into its queue; None ends the stream."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names, self.inbox = names, queue.SimpleQueue()

    def run(self) -> None:
        while (rows := self.inbox.get()) is not None:
            for row, weight in rows:
                values = dict(zip(self.names, row))
                if weight > 0:
                    self.next(**values)
                else:
                    self.delete(**values)
            self.commit()


def main() -> None:
    with open(sys.argv[1]) as file:
        work = json.load(file)
    with contextlib.redirect_stdout(sys.stderr):
        result = run(work)
    json.dump(result, sys.stdout)


def run(work: dict[str, Any]) -> dict[str, Any]:
    feeds, tables, markers = [], {}, queue.SimpleQueue()
    for table in work["tables"]:
        feed, real, marker = read(table, set(work["nullable"]))
        feeds.append(feed)
        tables[table["name"]] = real
        pw.io.subscribe(marker, on_change=lambda key, row, time, is_addition: markers.put(None))
    answer: dict[Any, dict[str, Any]] = {}

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            answer[key] = row
        elif answer.get(key) == row:
            del answer[key]

    view = pw.sql(work["sql"], **tables) if "sql" in work else VIEWS[work["view"]](**tables)
    pw.io.subscribe(view, on_change=on_change)
    seconds: list[float] = []
    driver = threading.Thread(target=drive, args=(work, feeds, markers, seconds))
    driver.start()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    driver.join()
    rows = [[row[name] for name in work["output"]] for row in answer.values()]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"load": seconds[0], "seconds": seconds[1 : work["timed"] + 1], "rows": rows, "peak": peak}


def count_cycles(e: pw.Table) -> pw.Table:
    """The number of directed 3-cycles, which Pathway's SQL joins by all paths of three edges: paths of two, closed."""
    second, third = e.copy(), e.copy()
    paths = e.join(second, e.dst == second.src).select(first=e.src, last=second.dst)
    closed = paths.join(third, paths.last == third.src, paths.first == third.dst).select(third.src)
    return closed.reduce(n=pw.reducers.count())


def greatest_sum(r: pw.Table, s: pw.Table, t: pw.Table) -> pw.Table:
    """The greatest sum of weights in the join of three tables: Pathway has no ORDER BY, so no further rows."""
    pairs = r.join(s, r.b == s.b).select(c=s.c, w=r.w + s.w)
    sums = pairs.join(t, pairs.c == t.c).select(score=pairs.w + t.w)
    return sums.reduce(score=pw.reducers.max(sums.score))


VIEWS = {"count_cycles": count_cycles, "greatest_sum": greatest_sum}


def read(table: dict[str, Any], nullable: set[str]) -> tuple[Feed, pw.Table, pw.Table]:
    """A feed, the table of its real rows, and the table of its markers."""
    names = [name for name, _ in table["columns"]]
    types = {
        name: pw.column_definition(
            dtype=TYPES[kind] | None if name in nullable else TYPES[kind], primary_key=position == 0
        )
        for position, (name, kind) in enumerate(table["columns"])
    }
    feed = Feed(names)
    whole = pw.io.python.read(
        feed, schema=pw.schema_builder(types, name=table["name"].title()), autocommit_duration_ms=None
    )
    key = whole[names[0]]
    real = whole.filter(key >= 0)
    for name in nullable & set(names):
        # A NULL never joins.
        real = real.filter(real[name].is_not_none()).with_columns(**{name: pw.unwrap(pw.this[name])})
    return feed, real, whole.filter(key < 0)


def drive(work: dict[str, Any], feeds: list[Feed], markers: queue.SimpleQueue, seconds: list[float]) -> None:
    """Send the initial rows and then each batch, and wait for each to come out."""
    load = [[row, 1] for rows in work["initial"] for row in rows]
    numbers = [number for number, rows in enumerate(work["initial"]) for _ in rows]
    batches = [[[number, row, weight] for number, (row, weight) in zip(numbers, load)], *work["batches"]]
    for position, batch in enumerate(batches):
        rows: list[list[Any]] = [[] for _ in feeds]
        for number, row, weight in batch:
            rows[number].append((row, weight))
        for table, mine in zip(work["tables"], rows):
            filler = [0 if kind == "BIGINT" else "" for _, kind in table["columns"][1:]]
            mine.append(([-1 - position, *filler], 1))
        start = time.perf_counter()
        for feed, mine in zip(feeds, rows):
            feed.inbox.put(mine)
        for _ in feeds:
            markers.get()
        seconds.append(time.perf_counter() - start)
    for feed in feeds:
        feed.inbox.put(None)


if __name__ == "__main__":
    main()
