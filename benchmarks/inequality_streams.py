"""The streams of inequality joins that `benchmarks.inequality` runs: single changes, emitted rows, and stored joins.

GCQ1 to GCQ8 are those of Idris et al. (2020), with as many rows as theirs. The view that stores every join is a chain
of our views: the first two tables are joined in a view `WITH (strategy = 'materialize')`, which the last view joins
with the third. Its rows grow with the square of the tables' or faster, so it has fewer rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.range_joins import CHAIN, KEYED, OVERLAP, Columns, keyed, plain

HOUR = 3_600
MOST_CHANGED, MOST_TOLD = 1_000, 100_000
"""Changed rows of a batch, and rows that one should make at most: so many stay in the processor's cache."""
PAIRS = "SELECT a, b, c, d, e, f FROM r, s WHERE a < d"
KEYED_PAIRS = "SELECT a, b, c, d, e, f, s.k FROM r, s WHERE a < d"
CHAINED, KEYED_CHAINED = "FROM pairs, t WHERE d < g", "FROM pairs, t WHERE d < g AND pairs.k = t.k"


@dataclass(frozen=True)
class Stream:
    """A query over tables of so many first `rows` each; `tables` makes them. `stored` are the views that store every
    join, `few` the rows of each table with them. The last view is the query, `result` a query of it if it is not."""

    name: str
    query: str
    tables: Callable[[np.random.Generator, int], dict[str, Columns]]
    rows: int
    stored: dict[str, str]
    few: int


def _paper(number: int, shown: str, rows: int, few: int, *, source: str = CHAIN, chained: str = CHAINED) -> Stream:
    pairs, tables = (KEYED_PAIRS, keyed) if source is KEYED else (PAIRS, plain)
    stored = {"pairs": pairs, "v": f"SELECT {shown.replace('s.k', 'pairs.k')} {chained}"}
    return Stream(f"GCQ{number}", f"SELECT {shown} {source}", tables, rows, stored, few)


def _frauds(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    """A thousand payments of each account within eight hours, in the order of time."""
    ts = np.sort(random.integers(0, 8 * HOUR, rows))
    account, amount = random.integers(0, max(1, rows // 1000), rows), random.integers(0, 500, rows)
    return {"payments": {"id": np.arange(rows), "account": account, "ts": ts, "amount": amount}}


def _quotes(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    """A thousand rows of each symbol."""
    return {
        table: {"id": np.arange(rows), "k": random.integers(0, max(1, rows // 1000), rows),
                "ts": np.arange(rows), "v": random.integers(1, 100, rows)}
        for table in ("trades", "quotes")
    }  # fmt: skip


def _intervals(random: np.random.Generator, rows: int) -> dict[str, Columns]:
    """Intervals. Each overlaps some hundred others."""
    found = {}
    for table in "xy":
        start = random.integers(0, 10 * rows, rows)
        found[table] = {"id": np.arange(rows), "s": start, "e": start + random.integers(1, 1000, rows)}
    return found


SMALL = "b.account = a.account AND a.ts < b.ts AND a.amount < 100 AND b.amount < 100"
LARGE = "l.account = {0}.account AND {0}.ts < l.ts AND l.ts < {1} + 3600 AND l.amount > 400"
ALL, GCQ2 = "a, b, c, d, e, f, g, h, i", "FROM r, s, t WHERE a < d AND e < g"
STREAMS = (
    Stream("GCQ1", "SELECT * FROM r, s WHERE a < d",
           lambda random, rows: {table: plain(random, rows)[table] for table in "rs"}, 6_000,
           {"v": "SELECT * FROM r, s WHERE a < d"}, 1_000),
    _paper(2, ALL, 900, 100, source=GCQ2, chained="FROM pairs, t WHERE e < g"),
    _paper(3, ALL, 900, 100),
    _paper(4, f"{ALL}, s.k", 7_000, 600, source=KEYED, chained=KEYED_CHAINED),
    _paper(5, "a, b, d, e, f, g, h", 900, 100),
    _paper(6, "d, e, f, g, h, s.k", 7_000, 600, source=KEYED, chained=KEYED_CHAINED),
    _paper(7, "b, c, e, f, h, i", 900, 100),
    _paper(8, "b, c, e, f, h, i", 7_000, 600, source=KEYED, chained=KEYED_CHAINED),
    Stream(
        "fraud", "SELECT a.id AS first, b.id AS second, l.id AS large, a.account FROM payments a "
        f"JOIN payments b ON {SMALL} JOIN payments l ON {LARGE.format('b', 'a.ts')}", _frauds, 1_000_000,
        {"pairs": "SELECT a.id AS first, b.id AS second, a.account, a.ts AS since, b.ts FROM payments a "
                  f"JOIN payments b ON {SMALL}",
         "v": "SELECT first, second, l.id AS large, pairs.account FROM pairs "
              f"JOIN payments l ON {LARGE.format('pairs', 'since')}"}, 20_000),
    Stream(
        "trades and quotes", "SELECT t.id, t.k, t.v * q.v AS s FROM trades t ASOF JOIN quotes q "
        "ON t.k = q.k AND t.ts >= q.ts", _quotes, 1_000_000,
        {"pairs": "SELECT t.id, t.k, t.v, q.ts, q.v AS price FROM trades t JOIN quotes q ON t.k = q.k AND t.ts >= q.ts",
         "v": "SELECT id, k, v * arg_max(price, ts) AS s FROM pairs GROUP BY id, k, v"}, 2_000),
    Stream("overlaps", f"SELECT x.id, x.s, x.e, y.id AS other {OVERLAP}", _intervals, 100_000,
           {"v": f"SELECT x.id, x.s, x.e, y.id AS other {OVERLAP}"}, 10_000),
)  # fmt: skip


class Sizes:
    """How much is run: `most` rows of a table, `few` as a share of a stream's own, so many `times`, for `seconds`."""

    def __init__(self, most: int, few: float, times: int, seconds: float) -> None:
        self.most, self.few, self.times, self.seconds = most, few, times, seconds


def measure(stream: Stream, sizes: Sizes) -> dict[str, Any]:
    """The row of the report of a stream."""
    import duckdb

    rows = min(stream.rows, sizes.most)
    con, loaded = opened(stream, rows)
    held = sum(map(_length, loaded.values()))
    ms, cpu = changed(con, loaded, sizes.times)
    found = {"view": stream.name, "rows": held, "change ms": ms, "cpu ms": cpu}
    with duckdb.connect() as duck:
        _load(duck, loaded)
        started = time.perf_counter()
        found["result"] = _only(duck.sql(f"SELECT count(*) FROM ({stream.query})"))
        again = 1e3 * (time.perf_counter() - started)
    assert con.view("v").count() == found["result"], f"{stream.name}: the view is not its query"
    found |= {"duckdb ms": again, "times duckdb": again / ms, "entries/row": entries(con)[0] / held}
    con.close()
    found["emitted M/s"], each = emitted(stream, rows, sizes.seconds)
    found["batch"] = int(max(1, min(MOST_CHANGED, MOST_TOLD / max(each, 1))))
    found["by batches M/s"], _ = emitted(stream, rows, sizes.seconds, found["batch"])
    return found | beside_stored(stream, max(50, int(min(stream.few * sizes.few, rows))), sizes.times)


def opened(stream: Stream, rows: int, *, share: float = 1.0, stored: bool = False) -> tuple[Any, dict[str, Columns]]:
    """A database with the view, or those that store every join, over a share of the tables' first rows; and all these
    rows."""
    import sqlfront

    strategy, views = ("materialize", stream.stored) if stored else ("auto", {"v": stream.query})
    con, loaded = sqlfront.connect(), stream.tables(np.random.default_rng(7), rows)
    for table, columns in loaded.items():
        con.execute(f"CREATE CHANGE TABLE {table} ({', '.join(f'{name} BIGINT' for name in columns)})")
        some = {name: values[: int(share * len(values))] for name, values in columns.items()}
        con.apply({table: pa.table(some)})
    for name, query in views.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (strategy = '{strategy}', at_worst = 'O(N^9)') AS {query}")
    return con, loaded


def changed(con: Any, loaded: dict[str, Columns], times: int) -> tuple[float, float]:
    """Milliseconds of a single change, of processor time too: copies of random rows of each table come and go."""
    random, changes = np.random.default_rng(11), []
    for table, columns in loaded.items():
        for place in random.integers(0, _length(columns), times):
            changes.append((table, tuple(int(values[place]) for values in columns.values())))
    _come_and_go(con, [changes[number * times] for number in range(len(loaded))])  # What the first change makes stays.
    begun = time.perf_counter(), time.process_time()
    _come_and_go(con, changes)
    taken = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return 1e3 * taken[0] / (2 * len(changes)), 1e3 * taken[1] / (2 * len(changes))


def _come_and_go(con: Any, changes: Sequence[tuple[str, tuple[int, ...]]]) -> None:
    for weight in (1, -1):
        for table, row in changes:
            con.apply_row(table, row, weight)


def emitted(stream: Stream, rows: int, seconds: float, batch: int = 1) -> tuple[float, float]:
    """Millions of rows that a subscriber is told of per second of processor time, and rows for a changed one, by the
    second half of the stream in random order, for so many seconds, a row or a batch an epoch."""
    con, loaded = opened(stream, rows, share=0.5)
    rest = [(table, place) for table, columns in loaded.items() for place in range(rows // 2, _length(columns))]
    order = [rest[number] for number in np.random.default_rng(3).permutation(len(rest))]
    batches = [order[first : first + batch] for first in range(0, len(order), batch)]
    epochs = [_epoch(con, loaded, own) for own in batches]
    told = changed = 0
    with con.view("v").subscribe(snapshot=False, buffer=1) as feed:
        begun, end = time.process_time(), time.perf_counter() + seconds
        for own, apply in zip(batches, epochs, strict=True):
            apply()
            changed += len(own)
            told += 0 if (change := feed.poll()) is None else change.num_rows
            if time.perf_counter() > end:  # To ask for the processor's time may take as long as a change.
                break
        taken = time.process_time() - begun
    con.close()
    return told / taken / 1e6, told / changed


def _epoch(con: Any, loaded: dict[str, Columns], rows: Sequence[tuple[str, int]]) -> Callable[[], object]:
    """An epoch that adds rows, by their places in the tables."""
    if len(rows) == 1:
        [(table, place)] = rows
        return partial(con.apply_row, table, tuple(int(values[place]) for values in loaded[table].values()))
    places: dict[str, list[int]] = {}
    for table, place in rows:
        places.setdefault(table, []).append(place)
    changes = {
        table: pa.table({name: values[own] for name, values in loaded[table].items()}) for table, own in places.items()
    }
    return partial(con.apply, changes)


def beside_stored(stream: Stream, few: int, times: int) -> dict[str, Any]:
    """How much faster and smaller the view is than views that store every join; all have DuckDB's rows at the end."""
    import duckdb

    found = []
    for stored in (False, True):
        con, loaded = opened(stream, few, stored=stored)
        _, cpu = changed(con, loaded, times)
        names = ", ".join(con.execute("DESCRIBE v").to_arrow_table().column("column_name").to_pylist())
        with duckdb.connect() as duck:
            _load(duck, loaded)
            hashed = f"SELECT count(*), sum(hash({names})::HUGEINT) FROM "
            expected = duck.sql(f"{hashed} ({stream.query})").fetchall()
        kept = con.execute(f"{hashed} v").fetchall()
        assert Counter(kept) == Counter(expected), f"{stream.name}: the view is not its query"
        found.append((cpu, *entries(con)))
        con.close()
    (cpu, _, size), (stored_cpu, _, stored_size) = found
    return {"stored rows": few, "times faster": stored_cpu / cpu, "times smaller": stored_size / size}


def entries(con: Any) -> tuple[int, int]:
    """The entries of all stores, and their bytes."""
    state = con.execute("SHOW STATE").to_arrow_table().to_pydict()
    return sum(state["entries"]), sum(state["bytes"])


def _load(duck: Any, loaded: dict[str, Columns]) -> None:
    for table, columns in loaded.items():
        duck.register("made", pa.table(columns))
        duck.execute(f"CREATE TABLE {table} AS FROM made")


def _only(relation: Any) -> int:
    [[value]] = relation.fetchall()
    return int(value)


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))
