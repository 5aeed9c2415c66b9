"""topk: the first 10 rows of a three-way join by a sum of weights, after every change.

`python -m benchmarks.topk` runs, in one run: R(a, b, w), S(b, c, w), T(c, d, w) of 10,000 rows each whose join has
about 10 million rows, under single changes and batches of 100, each followed by a read of the first 10 rows, beside
DuckDB's recomputation and Pathway, which keeps the greatest sum alone; the same with joins of 10^6 to 10^9 rows, which
only the domain of b and c makes; and reads of 1 to 10,000 rows. The rows read are compared with DuckDB's at the end of
the first stream.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.sides import Missing, ask_pathway

TABLES = {"r": ("a", "b", "w"), "s": ("b", "c", "w"), "t": ("c", "d", "w")}
JOIN = "r JOIN s ON r.b = s.b JOIN t ON s.c = t.c"
QUERY = (
    f"SELECT r.a, r.b, s.c, t.d, r.w AS x, s.w AS y, t.w AS z, r.w + s.w + t.w AS score FROM {JOIN} ORDER BY score DESC"
)
COMPLETED = f"{QUERY}, 1, 2, 3, 4, 5, 6, 7"
TARGETS = {"p50": 0.3, "state": 60.0}
Change = tuple[str, tuple[int, int, int], int]


@dataclass
class Stream:
    """The rows to begin with, by table, and the changes that follow."""

    first: dict[str, np.ndarray]
    changes: list[Change]


@dataclass
class Run:
    """Seconds of each step of a side: the change, and the read after it."""

    change: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)

    def row(self, **labels: Any) -> dict[str, Any]:
        both = np.array(self.change) + np.array(self.read)
        return labels | {
            "change + top 10, p50 ms": float(np.median(both) * 1e3),
            "p99 ms": float(np.quantile(both, 0.99) * 1e3),
            "change p50 ms": float(np.median(self.change) * 1e3),
            "change p99 ms": float(np.quantile(self.change, 0.99) * 1e3),
            "read p50 ms": float(np.median(self.read) * 1e3),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    _warm()
    base = harness.resident()
    stream = make_stream(options.rows, options.joined, options.changes, seed=1)
    harness.release()
    with_data = harness.resident()
    peak = _sqlfront(stream, options, rows, with_data)
    _duckdb(stream, options, rows)
    if not options.without_pathway:
        _pathway(stream, options, rows, notes)
    for joined in options.sizes:
        other = make_stream(options.rows, joined, options.changes // 4, seed=2)
        for con in _loaded(other):
            run = _single(con, other.changes)
            rows.append(run.row(side="sqlfront", what="single changes", **{"join rows": _joined(other)}))
    _by_k(stream, rows)
    notes.append(
        f"the engine's state grew the process by {(peak - with_data) / 2**20:.1f} MiB at most, measured after the "
        f"stream's own data ({(with_data - base) / 2**20:.1f} MiB); the whole process had {_peak():.0f} MiB at its peak"
    )
    notes.append(f"targets: change + top 10 at p50 <= {TARGETS['p50']} ms, state <= {TARGETS['state']:.0f} MB")
    harness.report("topk", f"topk: {QUERY} LIMIT 10", rows, notes=notes)


def make_stream(rows: int, joined: float, changes: int, seed: int) -> Stream:
    """Tables whose join has about `joined` rows; half of the changes delete a row, half insert one."""
    rng = np.random.default_rng(seed)
    domain = max(1, round((rows**3 / joined) ** 0.5))
    make = lambda count: np.column_stack(  # noqa: E731
        [rng.integers(0, domain, count), rng.integers(0, domain, count), rng.integers(0, 1_000_000, count)]
    )
    first = {table: make(rows) for table in TABLES}
    made: list[Change] = []
    present = {table: [tuple(map(int, row)) for row in data] for table, data in first.items()}
    for number in range(changes):
        table = "rst"[int(rng.integers(3))]
        if number % 2:
            row = tuple(map(int, make(1)[0]))
            present[table].append(row)
            made.append((table, row, 1))
        else:
            place = int(rng.integers(len(present[table])))
            present[table][place], present[table][-1] = present[table][-1], present[table][place]
            made.append((table, present[table].pop(), -1))
    return Stream(first, made)


def _sqlfront(stream: Stream, options: argparse.Namespace, rows: list[dict[str, Any]], base: int) -> int:
    """Single changes, then batches of 100; the most memory that the process had."""
    half = len(stream.changes) // 2
    peak = base
    for con in _loaded(stream):
        load = harness.resident()
        run = _single(con, stream.changes[:half])
        peak = max(peak, load, harness.resident())
        rows.append(run.row(side="sqlfront", what="single changes", **{"join rows": _joined(stream)}))
        run, view = Run(), con.view("v")
        for at in range(half, len(stream.changes), 100):
            batches = {table: _arrow(part) for table, part in _by_table(stream.changes[at : at + 100])}
            start = time.perf_counter()
            con.apply(batches)
            middle = time.perf_counter()
            view.top(10)
            run.change.append(middle - start)
            run.read.append(time.perf_counter() - middle)
        peak = max(peak, harness.resident())
        rows.append(run.row(side="sqlfront", what="batches of 100", **{"join rows": _joined(stream)}))
        found = view.top(10)
        assert found == _recomputed(stream.first, stream.changes), "sqlfront and DuckDB differ"
    return peak


def _single(con: Any, changes: Sequence[Change]) -> Run:
    run, view = Run(), con.view("v")
    for table, row, weight in changes:
        start = time.perf_counter()
        con.apply_row(table, row, weight)
        middle = time.perf_counter()
        view.top(10)
        run.change.append(middle - start)
        run.read.append(time.perf_counter() - middle)
    return run


def _loaded(stream: Stream, limit: int = 10) -> Iterator[Any]:
    import sqlfront

    with sqlfront.connect(":memory:") as con:
        for table, columns in TABLES.items():
            declared = ", ".join(f"{column} BIGINT" for column in columns)
            con.execute(f"CREATE CHANGE TABLE {table} ({declared}) WITH (retain = false)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {QUERY} LIMIT {limit}")
        con.apply({table: _arrow([(table, row, 1) for row in data]) for table, data in stream.first.items()})
        yield con


def _duckdb(stream: Stream, options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """DuckDB's tables, changed row by row, and its query after each."""
    import duckdb

    run = Run()
    with duckdb.connect(":memory:") as con:
        _fill(con, stream.first)
        for table, row, weight in stream.changes[: options.recomputed]:
            start = time.perf_counter()
            _change(con, table, row, weight)
            middle = time.perf_counter()
            con.execute(f"{COMPLETED} LIMIT 10").fetchall()
            run.change.append(middle - start)
            run.read.append(time.perf_counter() - middle)
    rows.append(run.row(side="DuckDB, recomputed", what="single changes", **{"join rows": _joined(stream)}))


def _pathway(stream: Stream, options: argparse.Namespace, rows: list[dict[str, Any]], notes: list[str]) -> None:
    """Pathway in a process of its own: each change, until the greatest sum has come out."""
    sent = stream.changes[: options.recomputed]
    keys = Keys()
    message = {
        "tables": [{"name": name, "columns": [[c, "BIGINT"] for c in ("key", *own)]} for name, own in TABLES.items()],
        "initial": [[[keys.taken(name, row), *row] for row in data.tolist()] for name, data in stream.first.items()],
        "batches": [[keys.change(*change)] for change in sent],
        "nullable": [], "output": ["score"], "view": "greatest_sum", "timed": len(sent),
    }  # fmt: skip
    try:
        answer = ask_pathway(message, seconds=600)
    except Missing as reason:
        notes.append(f"{reason}.")
        return
    assert answer["rows"][0][0] == _recomputed(stream.first, sent)[0][-1], "Pathway and DuckDB differ"
    run = Run(answer["seconds"], [0.0] * len(sent))
    rows.append(run.row(side="Pathway, greatest sum", what="single changes", **{"join rows": _joined(stream)}))
    notes.append(f"Pathway's process had {answer['peak'] / 2**20:,.0f} MiB at its peak")


class Keys:
    """A key for each row, equal ones too, which Pathway's tables have."""

    def __init__(self) -> None:
        self._next, self._held = 0, defaultdict(list)

    def taken(self, table: str, row: Sequence[int]) -> int:
        self._held[table, tuple(row)].append(self._next)
        self._next += 1
        return self._next - 1

    def change(self, table: str, row: tuple[int, int, int], weight: int) -> list[Any]:
        """A change as pathway_side.py reads it."""
        key = self.taken(table, row) if weight > 0 else self._held[table, row].pop()
        return [[*TABLES].index(table), [key, *row], weight]


def _recomputed(first: dict[str, np.ndarray], changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(":memory:") as con:
        _fill(con, first)
        for change in changes:
            _change(con, *change)
        return con.execute(f"{COMPLETED} LIMIT 10").fetchall()


def _fill(con: Any, first: dict[str, np.ndarray]) -> None:
    for table, columns in TABLES.items():
        con.register("first_rows", _arrow([(table, row, 1) for row in first[table]]))
        con.execute(f"CREATE TABLE {table} AS SELECT {', '.join(columns)} FROM first_rows")


def _change(con: Any, table: str, row: tuple[int, ...], weight: int) -> None:
    if weight > 0:
        con.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", row)
        return
    same = " AND ".join(f"{column} = ?" for column in TABLES[table])
    con.execute(f"DELETE FROM {table} WHERE rowid = (SELECT min(rowid) FROM {table} WHERE {same})", row)


def _by_k(stream: Stream, rows: list[dict[str, Any]]) -> None:
    """Reads of 1 to 10,000 rows, each the median of several."""
    for con in _loaded(stream, 10_000):
        view = con.view("v")
        for k in (1, 10, 100, 1000, 10_000):
            seconds = []
            for _ in range(25):  # More than between two collections of garbage.
                start = time.perf_counter()
                view.top(k)
                seconds.append(time.perf_counter() - start)
            labels = {"side": "sqlfront", "what": f"top {k:,}", "join rows": _joined(stream)}
            rows.append(labels | {"read p50 ms": float(np.median(seconds) * 1e3)})


def _joined(stream: Stream) -> int:
    """The rows of the join at the beginning."""
    left, middle, right = (stream.first[table] for table in TABLES)
    domain = int(max(data[:, :2].max() for data in (left, middle, right))) + 1
    before, after = np.bincount(left[:, 1], minlength=domain), np.bincount(right[:, 0], minlength=domain)
    return int((before[middle[:, 0]] * after[middle[:, 1]]).sum())


def _by_table(changes: Sequence[Change]) -> Iterator[tuple[str, list[Change]]]:
    for table in TABLES:
        part = [change for change in changes if change[0] == table]
        if part:
            yield table, part


def _arrow(changes: Sequence[Any]) -> Any:
    import pyarrow as pa

    columns = dict(zip(TABLES[changes[0][0]], np.array([row for _, row, _ in changes]).T, strict=True))
    weights = np.array([weight for _, _, weight in changes])
    return pa.table({name: np.ascontiguousarray(column) for name, column in columns.items()} | {"_weight": weights})


def _warm() -> None:
    """Import and compile everything that the benchmark runs."""
    small = make_stream(100, 1000, 20, seed=3)
    for con in _loaded(small):
        _single(con, small.changes)
        con.apply({"r": _arrow([("r", (1, 1, 1), 1)])})


def _peak() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of each table")
    parser.add_argument("--joined", type=float, default=1e7, help="rows of the join, about")
    parser.add_argument("--changes", type=int, default=4000)
    parser.add_argument("--recomputed", type=int, default=50, help="changes that the other sides see")
    parser.add_argument("--without-pathway", action="store_true")
    parser.add_argument("--sizes", type=float, nargs="*", default=[1e6, 1e7, 1e8, 1e9], help="other join sizes")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
