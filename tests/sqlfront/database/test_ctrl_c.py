"""Ctrl-C at any moment: a KeyboardInterrupt, whole epochs, and a connection that goes on."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.database.pinned import Snapshot
from sqlfront.maintenance import epoch as epoch_module
from sqlfront.write import returned

SETUP = """
CREATE TABLE t(k BIGINT, x BIGINT);
CREATE CHANGE TABLE c(k BIGINT, x BIGINT);
CREATE MATERIALIZED VIEW w AS SELECT k, sum(x) AS s, count(*) AS n FROM c GROUP BY k;
CREATE MATERIALIZED VIEW all_rows AS SELECT count(*) AS n, sum(x) AS s FROM c;
CREATE MATERIALIZED VIEW v AS SELECT k, sum(x) AS s, count(*) AS n FROM t GROUP BY k;
"""
SUMS = "SELECT k, sum(x) AS s, count(*) AS n FROM t GROUP BY k ORDER BY k"
BATCH = pa.record_batch({"k": np.arange(20_000) % 997, "x": np.ones(20_000, np.int64)})


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute(SETUP)
        yield connection


def in_transaction(con):
    con.begin()
    con.apply({"c": BATCH})
    con.execute("SELECT * FROM all_rows").fetchall()
    con.execute("INSERT INTO t VALUES (1, 1)")
    con.commit()


def registered(con):
    con.register("d", BATCH)
    con.execute("INSERT INTO t SELECT * FROM d WHERE k < 40")
    con.unregister("d")


def read(con):
    view = con.view("v")
    view.rows()
    view.contains((1, 1, 1))
    con.sql("SELECT * FROM w").fetchall()
    con.execute("SELECT * FROM v ORDER BY s LIMIT 3").fetchone()


WAYS = {
    "apply": lambda con: con.apply({"c": BATCH}),
    "transaction": in_transaction,
    "row": lambda con: con.apply_row("c", (3, 1)),
    "insert": lambda con: con.execute("INSERT INTO t SELECT range % 97, 1 FROM range(1000)"),
    "few": lambda con: con.execute("INSERT INTO t VALUES (1, 1)").execute("DELETE FROM t WHERE k = 1"),
    "registered": registered,
    "create": lambda con: con.execute(
        "CREATE OR REPLACE MATERIALIZED VIEW z AS SELECT k, max(x) AS m FROM t GROUP BY k"
    ),
    "check": lambda con: con.execute("CHECK MATERIALIZED VIEW v").fetchall(),
    "read": read,
}


def repeat_until_interrupted(action, seconds):
    """Ctrl-C after so many seconds, and again later: Python drops what is raised while an object is finalized.

    A signal that comes when the first was caught does nothing, and none comes after the return."""
    caught = threading.Event()

    def send():
        caught.wait(seconds)
        while not caught.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            caught.wait(2)

    def raise_unless_caught(number, frame):
        if not caught.is_set():
            signal.default_int_handler(number, frame)

    sender = threading.Thread(target=send)
    before = signal.signal(signal.SIGINT, raise_unless_caught)
    try:
        sender.start()  # the first signal may come before this returns
        while True:
            action()
    except KeyboardInterrupt:
        caught.set()
    finally:
        caught.set()
        sender.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # The first signal met a finalizer.
@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_leaves_whole_epochs(con, way):
    size = 20_000 if way in ("apply", "transaction") else 1
    con.execute("INSERT INTO t VALUES (1, 1), (2, 5)")
    counts = []
    for number in range(9):
        repeat_until_interrupted(lambda: WAYS[way](con), 0.001 + 0.005 * number)
        con.rollback()
        [(n, s)] = con.execute("SELECT * FROM all_rows").fetchall()
        assert n == (s or 0)
        assert n % size == 0
        counts.append(n)
        assert con.execute("SELECT coalesce(sum(n), 0) FROM w").fetchall() == [(n,)]
        assert con.execute("SELECT * FROM v ORDER BY k").fetchall() == con.execute(SUMS).fetchall()
    assert con.execute("SELECT count(*) FROM c").fetchall() == [(counts[-1],)]
    assert counts == sorted(counts)


def test_ctrl_c_before_a_statement_takes_back_what_it_began(con, monkeypatch):
    """What is left of it in DuckDB goes before the next statement."""

    def interrupted(*_):
        raise KeyboardInterrupt

    con.execute("INSERT INTO t VALUES (1, 1)")
    with monkeypatch.context() as patch:
        patch.setattr(returned, "rollback", interrupted)
        with pytest.raises(KeyboardInterrupt):
            con.execute("INSERT INTO t SELECT range, 1 // (range - 500) FROM range(1000)")
    assert con.execute(SUMS).fetchall() == [(1, 1, 1)]
    con.execute("INSERT INTO t SELECT range, 1 FROM range(1000)")
    assert con.execute("SELECT * FROM v ORDER BY k").fetchall() == con.execute(SUMS).fetchall()


def test_ctrl_c_before_the_snapshot_of_a_transaction(con, monkeypatch):
    """DuckDB raises RuntimeError for the signal; the transaction then begins with its next statement."""

    def interrupted(*_):
        raise RuntimeError("Query interrupted")

    con.begin()
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "pin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            con.apply({"c": pa.record_batch({"k": [1], "x": [2]})})
    con.cursor().apply_row("c", (1, 3))
    con.apply_row("c", (1, 4))
    assert con.execute("SELECT * FROM w").fetchall() == [(1, 7, 2)]
    con.commit()
    assert con.execute("SELECT * FROM w").fetchall() == [(1, 7, 2)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_around_the_run_of_a_row(con, monkeypatch, when):
    """Taken back with its number, if it has one, and the engine is not left locked."""
    for _ in range(2):
        con.apply_row("c", (3, 1))
    number, run_row = con.session.database.engine.epoch, epoch_module.run_row

    def interrupted(*arguments):
        if when == "after":
            assert run_row(*arguments) == number + 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(epoch_module, "run_row", interrupted)
        with pytest.raises(KeyboardInterrupt):
            con.apply_row("c", (3, 1))
    assert con.session.database.engine.epoch == number
    assert con.execute("SELECT * FROM w").fetchall() == [(3, 2, 2)]
    other = threading.Thread(target=con.cursor().apply_row, args=("c", (4, 1)))
    other.start()
    other.join(30)
    assert con.session.database.engine.epoch == number + 1
    assert con.execute("SELECT * FROM w ORDER BY k").fetchall() == [(3, 2, 2), (4, 1, 1)]
