"""Several threads keep and build what one thread does, word for word where an epoch is shared."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.database import loading
from sqlfront.maintenance.program import parallel_fill
from sqlfront.maintenance.program import threads as program_threads
from sqlfront.maintenance.program.threads import cores, side_by_side
from sqlfront.maintenance.relation_programs import Share, share_out
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores import partial_tables
from sqlfront.storage.stores.table import Table
from sqlfront.storage.stores.words import words_at

QUERIES = (
    "SELECT k, SUM(x) AS s FROM a GROUP BY k",
    "SELECT t, COUNT(*) AS n FROM a GROUP BY t",
    "SELECT a.id, b.y FROM a JOIN b ON a.k = b.k",
    "SELECT b.t, SUM(a.x * b.y) AS s FROM a JOIN b ON a.k = b.k GROUP BY b.t",
    "SELECT k, MIN(x) AS m, MAX(x) AS n FROM a GROUP BY k",
    "SELECT id, x FROM a ORDER BY x DESC, id LIMIT 20",
    "SELECT a1.id FROM a AS a1 JOIN a AS a2 ON a1.k = a2.x",
    "SELECT COUNT(*) AS c, SUM(x) AS s FROM a",
    "SELECT DISTINCT t FROM b",
    "SELECT a.k, b.y FROM a LEFT JOIN b ON a.k = b.k WHERE a.x < 5",
    "SELECT b.y, a.t, SUM(a.x) AS s FROM a JOIN b ON a.k = b.k GROUP BY b.y, a.t",
    "SELECT t, SUM(d) AS s FROM a GROUP BY t",
)


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(parallel_fill, "SAMPLE", 100)
    monkeypatch.setattr(parallel_fill, "STEP", 100)
    with sqlfront.connect() as connection:
        yield connection


def engine_of(con: Any, threads: int) -> Any:
    engine = con.session.database.engine
    engine.many, engine.machine.threads = 0, threads
    return engine


def changes(seed: int) -> Iterator[dict[str, pa.Table]]:
    """Epochs over `a` and `b`, some of which take an earlier one back."""
    make, kept = np.random.default_rng(seed), list[dict[str, pa.Table]]()
    for number in range(6):
        count, few = int(make.integers(1, 800)), int(make.integers(1, 60))
        columns = {"id": make.integers(0, 300, count), "k": make.integers(0, 30, count)}
        columns |= {"x": make.integers(0, 30, count), "t": [f"t{i}" for i in make.integers(0, 40, count)]}
        columns |= {"d": make.standard_normal(count), "_weight": np.ones(count, np.int64)}
        other = {"k": make.integers(0, 30, few), "y": make.integers(0, 9, few)}
        other |= {"t": [f"b{i}" for i in make.integers(0, 9, few)], "_weight": np.ones(few, np.int64)}
        kept.append({"a": pa.table(columns), "b": pa.table(other)})
        yield kept[-1]
        if number % 2:
            yield {name: negated(rows) for name, rows in kept.pop(0).items()}


def negated(rows: pa.Table) -> pa.Table:
    weights = pa.array(-rows.column("_weight").to_numpy())
    return rows.set_column(rows.schema.get_field_index("_weight"), "_weight", weights)


def create(con: Any, kind: str = "CHANGE TABLE", options: str = " WITH (retain = true)") -> None:
    con.execute(f"CREATE {kind} a (id BIGINT, k BIGINT, x BIGINT, t VARCHAR, d DOUBLE){options}")
    con.execute(f"CREATE {kind} b (k BIGINT, y BIGINT, t VARCHAR){options}")


def rows_of(table: Table) -> list[int]:
    table._check()
    return words_at(table.header[at.ROWS], table.used * table.width).tolist()


def run_epochs(seed: int, threads: int) -> tuple[Any, ...]:
    with sqlfront.connect() as con:
        create(con)
        for number, query in enumerate(QUERIES):
            con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        engine = engine_of(con, threads)
        for epoch in changes(seed):
            con.apply(epoch)
            with pytest.raises(sqlfront.IntegrityError) as refused:
                con.apply({**epoch, "b": pa.table({**epoch["b"].to_pydict(), "_weight": [-9999] * len(epoch["b"])})})
        tables = [store.table for relation in engine.relations.values() for store in relation.stores.values()]
        tables += [table for view in engine._members() for table in view.all_tables()]
        return [rows_of(table) for table in tables], engine.machine.counters.tolist(), str(refused.value)


@pytest.mark.parametrize("seed", range(2))
def test_a_shared_epoch_is_that_of_one_thread_word_for_word(seed):
    tables, steps, error = run_epochs(seed, 1)
    for threads in (2 + seed,):
        shared, shared_steps, shared_error = run_epochs(seed, threads)
        assert steps == shared_steps and error == shared_error
        assert tables == shared


def test_dictionaries_are_counted_by_thread_0_alone(con):
    create(con)
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT t, COUNT(*) AS n FROM a GROUP BY t")
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT k, SUM(x) AS s FROM a GROUP BY k")
    stores = con.session.database.engine.relations["main.a"].stores.values()
    share = Share(1, 2, dict.fromkeys(range(9), 1))
    assert {store.table.counts_references: share.writer(store, 1) for store in stores} == {True: 0, False: 1}


def test_small_epochs_are_not_shared(con, monkeypatch):
    create(con)
    for number, query in enumerate(QUERIES[:2]):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    machine, shared = con.session.database.engine.machine, list[int]()
    machine.threads, original = 2, machine.run_shares
    monkeypatch.setattr(machine, "run_shares", lambda shares: shared.append(len(shares)) or original(shares))
    epoch = next(changes(0))["a"]
    con.apply({"a": pa.concat_tables([epoch] * 9)[:4095]})
    assert shared == []
    con.apply({"a": pa.concat_tables([epoch] * 9)[:4096]})
    assert shared == [2]


@pytest.mark.parametrize("threads", [2, 3])
def test_views_built_by_several_threads_have_duckdbs_rows(con, threads, monkeypatch):
    create(con, "TABLE", "")
    for epoch in itertools.islice(changes(5), 3):
        for name, rows in epoch.items():
            columns = ", ".join(name for name in rows.column_names if name != "_weight")
            con.execute(f"INSERT INTO {name} SELECT {columns} FROM rows WHERE _weight > 0")
    engine, merged, original = engine_of(con, threads), list[int](), partial_tables.merge
    monkeypatch.setattr(
        partial_tables, "merge", lambda table, *rest: (merged.append(len(rest[0])), original(table, *rest))
    )
    for number, query in enumerate(QUERIES):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    assert threads - 1 in merged
    for table in [table for view in engine._members() for table in view.all_tables()]:
        table._check()
    for deleted in ("a.id < 0", "a.id % 3 = 0", "true"):
        con.execute(f"DELETE FROM a WHERE {deleted}")
        for number, query in enumerate(QUERIES):
            found, expected = (con.execute(text).fetchall() for text in (f"FROM v{number}", query))
            assert exact(found) == exact(expected), query


def exact(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows in order, of which DuckDB's sums of floating numbers depend on the order of addition."""
    return sorted(repr([round(value, 9) if isinstance(value, float) else value for value in row]) for row in rows)


@pytest.fixture
def many(con: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A table of 12,000 rows that is read in six batches."""
    monkeypatch.setattr(loading, "BATCH", 2048)
    con.execute("CREATE TABLE a (k BIGINT, x BIGINT, t VARCHAR, d DOUBLE)")
    con.execute("INSERT INTO a SELECT i % 3, 3000000000000000, 't' || i % 7, i / 8 FROM range(12000) AS r(i)")
    return con


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, SUM(x) AS s, COUNT(*) AS n FROM a GROUP BY k",
        "SELECT SUM(x) AS s FROM a WHERE k > 0",
        "SELECT t, SUM(d) AS s FROM a GROUP BY t",
        "SELECT k, SUM(d * d) AS s FROM a GROUP BY k",
        "SELECT d, MIN(k) AS m FROM a GROUP BY d",
        "SELECT k, t, d FROM a",
    ],
)
def test_stores_filled_by_several_threads_have_all_rows(many, query):
    """Sums of a thread's rows fit a word here, and those of all rows do not."""
    engine = engine_of(many, 3)
    many.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    for deleted in ("k > 5", "k = 1", "true"):
        many.execute(f"DELETE FROM a WHERE {deleted}")
        assert exact(many.execute("FROM v").fetchall()) == exact(many.execute(query).fetchall())
        for store in engine.relations["main.a"].stores.values():
            store.table._check()


def test_a_row_that_cannot_be_encoded_ends_a_fill(many):
    """The next batch is encoded while a thread stores the one before; its error is raised when that has ended."""
    engine_of(many, 2)
    many.execute("INSERT INTO a VALUES (0, 0, 't', 1)")
    with pytest.raises(sqlfront.DataError):
        many.execute(
            "CREATE MATERIALIZED VIEW v AS "
            "SELECT k, SUM(CASE WHEN x = 0 THEN CAST(t AS BIGINT) ELSE 1 END) AS s FROM a GROUP BY k"
        )
    workers = sum(thread.name == "sqlfront worker" for thread in threading.enumerate())
    assert workers == len(program_threads.idle) > 0


def test_the_number_of_threads_is_a_setting(con):
    engine = con.session.database.engine
    assert engine.machine.threads == cores()
    for text, threads in (("SET sqlfront_threads = 3", 3), ("set session SQLFRONT_THREADS to 1", 1)):
        con.execute(text)
        assert engine.machine.threads == threads
    for text in ("SET sqlfront_threads = 0", "SET sqlfront_threads = 'many'", "SET sqlfront_thread = 1"):
        with pytest.raises(sqlfront.ProgrammingError, match="sqlfront_threads = 2"):
            con.execute(text)
    for given in (2, "2"):
        with sqlfront.connect(config={"sqlfront_threads": given}) as other:
            assert other.session.database.engine.machine.threads == 2
    with sqlfront.connect() as other:
        other.execute("SET sqlfront_threads = 2")  # No engine is there yet.
        assert other.session.database.engine.machine.threads == 2
    with pytest.raises(sqlfront.InterfaceError, match="sqlfront_threads"):
        sqlfront.connect(config={"sqlfront_threads": 0})


def test_nodes_are_shared_out_by_what_they_cost():
    assert share_out({1: 1000, 2: 10, 3: 1000, 4: 12}, 2) == {1: 0, 3: 1, 2: 0, 4: 1}
    assert share_out({}, 2) == {}


def test_an_error_in_a_thread_is_raised_when_all_have_ended():
    ended = []

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        side_by_side([lambda: ended.append(1) or 1, fail])
    assert ended == [1]


def test_without_threads_nothing_runs(monkeypatch):
    ran, start = list[int](), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if ran:
            raise RuntimeError("can't start new thread")
        ran.append(1)
        start(thread)

    monkeypatch.setattr(program_threads, "idle", [])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    calls = list[int]()
    with pytest.raises(sqlfront.OperationalError, match="sqlfront_threads"):
        side_by_side([lambda: calls.append(0), lambda: calls.append(1), lambda: calls.append(2)])
    assert calls == []


def test_threads_are_started_once(monkeypatch):
    monkeypatch.setattr(program_threads, "idle", [])
    first, then = (side_by_side([threading.get_ident] * 3) for _ in range(2))
    assert len(set(first)) == 3 and set(first) == set(then)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_starts_threads_of_its_own():
    side_by_side([threading.get_ident] * 2)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # A thread that is waited for in vain.
        os._exit(len(set(side_by_side([threading.get_ident] * 2))))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
