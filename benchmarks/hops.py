"""hops: the first rows of paths, stars and rings over power-law graphs, distinct ends ordered by their weights.

`python -m benchmarks.hops` makes two graphs of a million edges each, one like DBLP, whose papers have few authors each,
and one like IMDB, whose greatest casts have thousands. On each it runs co-authors (two hops), author and paper (three),
co-authors of co-authors (four), three authors of a paper, and on the first pairs of authors who share a paper and a
venue (a four-cycle, over a second graph of a million edges; not on the other, whose 108 million pairs of authors of one
paper do not fit memory, where the first's 17 million take 10 GB): SELECT DISTINCT ... ORDER BY the sum of the weights
LIMIT k: building the view, reading k rows, and 10 rows after single changes; beside DuckDB and SQLite, stopped after
`--patience` seconds. The rows are compared with theirs where they come to an end. The shape of the experiments is that
of Deep, Hu and Koutris 2022, section 8.6.

`--queries "4 ring" --edges 20000 --exponent 0.9` lists all rings of two authors and two papers by two weights.
"""

from __future__ import annotations

import argparse
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import harness

QUERIES = {
    "2 hops": "SELECT DISTINCT p.a, q.a AS z, p.w, q.w AS v FROM e p, e q WHERE p.p = q.p ORDER BY p.w + q.w",
    "3 hops": "SELECT DISTINCT p.a, r.p AS z, p.w, r.v FROM e p, e q, e r "
    "WHERE p.p = q.p AND q.a = r.a ORDER BY p.w + r.v",
    "4 hops": "SELECT DISTINCT p.a, s.a AS z, p.w, s.w AS v FROM e p, e q, e r, e s "
    "WHERE p.p = q.p AND q.a = r.a AND r.p = s.p ORDER BY p.w + s.w",
    "3 star": "SELECT DISTINCT p.a, q.a AS y, r.a AS z, p.w, q.w AS u, r.w AS v FROM e p, e q, e r "
    "WHERE p.p = q.p AND q.p = r.p ORDER BY p.w + q.w + r.w",
    "4 cycle": "SELECT DISTINCT p.a, q.a AS z, p.w, q.w AS v FROM e p, e q, f r, f s "
    "WHERE p.p = q.p AND q.a = r.a AND r.p = s.p AND s.a = p.a ORDER BY p.w + q.w",
    "4 ring": "SELECT p.a, p.p, r.a AS z, r.p AS y, p.w, r.w AS v FROM e p, e q, e r, e s "
    "WHERE p.p = q.p AND q.a = r.a AND r.p = s.p AND s.a = p.a ORDER BY p.w + r.w",
}
QUERIES |= {f"{name}, LEX": QUERIES[name].replace(" + ", ", ") for name in ("2 hops", "4 hops")}
"""By the one weight, then the other, which Deep, Hu and Koutris 2022 find without heaps (LexiDelay); we along the same
trees."""
OPTIONS = {"4 ring": "WITH (epsilon = 0.5) "}
GRAPHS = {"DBLP": 0.3, "IMDB": 0.6}
"""How papers' numbers of authors fall off, as the power of their rank."""
LARGEST = {"4 cycle": "DBLP"}
COLUMNS = ("a", "p", "w", "v")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    rows: list[dict[str, Any]] = []
    for graph in options.graphs:
        for name in (name for name in options.queries if LARGEST.get(name, graph) == graph):
            rows += [{"graph": graph, "query": name, **row} for row in compared(name, graph, options)]
    notes = [
        f"{options.edges:,} edges; '-' of a peer: stopped after {options.patience:.0f} s; DuckDB and SQLite run cold"
    ]
    harness.report(
        "hops", "hops: SELECT DISTINCT ends of paths, stars, rings ORDER BY the sum of their weights", rows, notes=notes
    )


def compared(name: str, graph: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A query on all sides, which must find the same rows."""
    query, exponents = QUERIES[name], (options.exponent, GRAPHS[graph] * options.exponent / 0.6)
    tables = {"e": make_edges(options.edges, *exponents, seed=1)}
    if " f " in query:
        tables["f"] = make_edges(options.edges, *exponents, seed=3)
    changes = make_edges(2 * options.changes, *exponents, seed=2)[: options.changes]
    ours, first = run_sqlfront(query, tables, changes, options.k, OPTIONS.get(name, ""))
    yield {"side": "sqlfront", **ours}
    for side, run in (("DuckDB", run_duckdb), ("SQLite", run_sqlite)):
        row: dict[str, Any] = {"side": side}
        for k in (10, options.k):
            seconds, found = run(f"{query}, {_ties(query)} LIMIT {k}", tables, options.patience)
            if found is None:
                break
            assert found[:10] == first, f"{side} finds other rows of {name}: {found[:10]}, not {first}"
            row[f"top {k:,}, ms"] = seconds * 1e3
        yield row


def make_edges(edges: int, of_authors: float, of_papers: float, seed: int) -> np.ndarray:
    """Distinct rows (author, paper, the author's weight, the paper's weight)."""
    rng = np.random.default_rng(seed)
    authors, papers = max(10, edges // 3), max(10, edges // 6)
    pairs = np.unique(_drawn(rng, authors, 2 * edges, of_authors) * papers + _drawn(rng, papers, 2 * edges, of_papers))
    pairs = rng.permutation(pairs)[:edges]
    author, paper = pairs // papers, pairs % papers
    return np.stack([author, paper, _weight(author), _weight(paper + 17)], axis=1)


def _drawn(rng: np.random.Generator, names: int, count: int, exponent: float) -> np.ndarray:
    """Names drawn with probability proportional to rank ** -exponent."""
    cumulative = np.cumsum(np.arange(1, names + 1, dtype=float) ** -exponent)
    return rng.permutation(names)[np.searchsorted(cumulative, rng.random(count) * cumulative[-1])]


def _weight(names: np.ndarray) -> np.ndarray:
    return (names * 2654435761 + 12345) % 1_000_003


def run_sqlfront(
    query: str, tables: Mapping[str, np.ndarray], changes: np.ndarray, k: int, options: str
) -> tuple[dict[str, Any], list[Any]]:
    import sqlfront

    harness.release()
    before = harness.resident()
    with sqlfront.connect(":memory:") as con:
        for table in tables:
            con.execute(f"CREATE CHANGE TABLE {table} (a BIGINT, p BIGINT, w BIGINT, v BIGINT) WITH (retain = false)")
        con.execute(f"CREATE MATERIALIZED VIEW v {options}AS {query} LIMIT {k}")
        start = time.perf_counter()
        con.apply({table: _arrow(edges) for table, edges in tables.items()})
        built = time.perf_counter() - start
        view = con.view("v")
        small, first = _timed(lambda: view.top(10))
        large, _ = _timed(lambda: view.top(k))
        kept = harness.resident() - before
        seconds = []
        for number, row in enumerate(changes.tolist()):
            start = time.perf_counter()
            con.apply_row("e", tuple(row), 1)
            view.top(10)
            seconds.append(time.perf_counter() - start)
            if number % 2:
                con.apply_row("e", tuple(row), -1)
    return {
        "building, s": built,
        "top 10, ms": small * 1e3,
        f"top {k:,}, ms": large * 1e3,
        "change + top 10, p50 ms": float(np.median(seconds) * 1e3),
        "memory, MiB": kept / 2**20,
    }, first


def run_duckdb(query: str, tables: Mapping[str, np.ndarray], patience: float) -> tuple[float, list[Any] | None]:
    import duckdb

    with duckdb.connect(":memory:", config={"memory_limit": "4GB"}) as con:
        for table, edges in tables.items():
            con.register("given", _arrow(edges))
            con.execute(f"CREATE TABLE {table} AS SELECT * FROM given")
        timer = threading.Timer(patience, con.interrupt)
        timer.start()
        try:
            return _timed(lambda: con.execute(query).fetchall())
        except (duckdb.InterruptException, duckdb.OutOfMemoryException):
            return patience, None
        finally:
            timer.cancel()


def run_sqlite(query: str, tables: Mapping[str, np.ndarray], patience: float) -> tuple[float, list[Any] | None]:
    con = sqlite3.connect(":memory:")
    for table, edges in tables.items():
        con.execute(f"CREATE TABLE {table} (a INTEGER, p INTEGER, w INTEGER, v INTEGER)")
        con.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", edges.tolist())
        con.execute(f"CREATE INDEX {table}_by_paper ON {table} (p)")
        con.execute(f"CREATE INDEX {table}_by_author ON {table} (a)")
    until = time.perf_counter() + patience
    con.set_progress_handler(lambda: int(time.perf_counter() > until), 100_000)
    try:
        return _timed(lambda: con.execute(query).fetchall())
    except sqlite3.OperationalError:
        return patience, None
    finally:
        con.close()


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = run()
    return time.perf_counter() - start, found


def _ties(query: str) -> str:
    return ", ".join(str(place + 1) for place in range(query.split(" FROM ")[0].count(",") + 1))


def _arrow(rows: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.table({name: np.ascontiguousarray(rows[:, place]) for place, name in enumerate(COLUMNS)})


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--exponent", type=float, default=0.6, help="of authors, by rank")
    parser.add_argument("--graphs", nargs="*", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--k", type=int, default=10_000)
    parser.add_argument("--patience", type=float, default=60, help="seconds after which a peer is stopped")
    default = [name for name in QUERIES if name not in OPTIONS]
    parser.add_argument("--queries", nargs="*", default=default)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
