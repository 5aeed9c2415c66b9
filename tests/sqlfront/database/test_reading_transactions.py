"""Transactions that only read: what a session remembers stays, and they see what DuckDB's own snapshot has."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import sqlfront
from sqlfront.database.entries import ViewEntry
from sqlfront.database.pinned import Snapshot
from sqlfront.storage.capture.watch import Watch

SETUP = """
CREATE TABLE t (k BIGINT, x BIGINT, d DOUBLE);
INSERT INTO t SELECT i % 5, i, i / 3 FROM range(40) r(i);
CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k;
CREATE MATERIALIZED VIEW w AS SELECT k, x FROM t WHERE x % 2 = 0;
CREATE MATERIALIZED VIEW floats AS SELECT k, sum(d) AS s FROM t GROUP BY k;
"""
V, W = "SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k", "SELECT k, x FROM t WHERE x % 2 = 0"
LOOK_UP = "SELECT n, s FROM v WHERE k = 3"


@pytest.fixture
def con():
    with sqlfront.connect() as con:
        con.execute(SETUP)
        con.execute(LOOK_UP).fetchall()
        yield con


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_look_up_in_a_transaction_asks_nothing_more(con, end, monkeypatch):
    looks, look = [], Watch.look
    monkeypatch.setattr(Watch, "look", lambda *given: looks.append(1) or look(*given))
    con.execute("FROM t").fetchall()
    con.execute(LOOK_UP).fetchall()  # This takes the mark of the statement before away.
    session, before = con.session, len(looks)
    plans, scans, revision = session.plans, session.scans, session.revision
    for _ in range(3):
        con.execute("BEGIN")
        assert con.execute(LOOK_UP).fetchall() == [(8, 164)]
        con.execute(end)
    assert con.execute(LOOK_UP).fetchall() == [(8, 164)]
    assert session.plans is plans and session.scans is scans and session.revision == revision
    assert len(looks) == before


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_scans_that_a_transaction_has_bound_are_there_or_bound_again(con, end):
    """Those of a view that another connection makes while the transaction is open, and narrowed ones."""
    other = con.cursor()
    con.execute("BEGIN")
    con.execute("SELECT k + 1 FROM v WHERE k = 3").fetchall()
    other.execute("CREATE MATERIALIZED VIEW more AS SELECT x FROM t WHERE k = 1")
    assert con.execute(LOOK_UP).fetchall() == [(8, 164)]
    con.execute(end)
    assert len(con.execute("SELECT x + 1 FROM more WHERE x > 0").fetchall()) == 8
    scan = con.session.database.scan_name(con.view("more")._entry.scan)
    con.session.duck.execute(f'SELECT count(*) FROM "{scan}"').fetchall()
    assert con.execute("SELECT k + 1 FROM v WHERE k = 3").fetchall() == [(4,)]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_views_that_duckdb_has_answered_are_read_off_the_tree_again(con, end):
    other = con.cursor()
    con.execute("BEGIN")
    con.execute("FROM w").fetchall()
    other.execute("INSERT INTO t VALUES (3, 100, 0)")
    assert len(con.execute("SELECT count(*), x + 1 FROM w GROUP BY ALL").fetchall()) == 20
    con.execute(end)
    assert len(con.execute("SELECT count(*), x + 1 FROM w GROUP BY ALL").fetchall()) == 21
    assert not any(isinstance(one, ViewEntry) for one in con.session.scans.values())
    assert con.execute(LOOK_UP).fetchall() == [(9, 264)]


def test_names_that_others_change_meanwhile_mean_something_else_afterwards(con):
    other = con.cursor()
    con.execute("BEGIN")
    con.execute(LOOK_UP).fetchall()
    other.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k, sum(x) AS n, count(*) AS s FROM t GROUP BY k")
    con.execute("COMMIT")
    assert con.execute(LOOK_UP).fetchall() == [(164, 8)]
    con.execute("CREATE SCHEMA s; SET search_path = 's,main'; BEGIN")
    con.execute(LOOK_UP).fetchall()
    other.execute("CREATE TABLE s.v AS SELECT 3 AS k, 1 AS n, 2 AS s")
    assert con.execute(LOOK_UP).fetchall() == [(164, 8)]
    con.execute("COMMIT")
    assert con.execute(LOOK_UP).fetchall() == [(1, 2)]


def test_an_aborted_transaction_says_so_and_leaves_scans(con):
    con.execute("BEGIN")
    con.execute(LOOK_UP).fetchall()
    con.cursor().execute("CREATE MATERIALIZED VIEW more AS SELECT x FROM t WHERE k = 1")
    con.execute("FROM more").fetchall()
    with pytest.raises(sqlfront.Error):
        con.execute("SELECT error('no') FROM w").fetchall()
    with pytest.raises(sqlfront.OperationalError, match="rolled back instead of committed"):
        con.execute("COMMIT")
    assert len(con.execute("SELECT x + 1 FROM more").fetchall()) == 8
    assert con.execute(LOOK_UP).fetchall() == [(8, 164)]


def test_a_select_that_writes_is_committed(con):
    con.execute("CREATE SEQUENCE numbers")
    con.execute("BEGIN")
    con.execute("SELECT nextval('numbers') FROM v").fetchall()
    con.execute("INSERT INTO t SELECT 3, nextval('numbers'), 0")
    con.execute("COMMIT")
    assert con.execute(LOOK_UP).fetchall() == [(9, 170)]


class Reader:
    """A connection that reads in transactions and outside, while another one and a writer past sqlfront go on. All that
    it reads is what DuckDB computes on the same cursor."""

    def __init__(self, seed: int, path: str) -> None:
        self.random, self.con = random.Random(seed), sqlfront.connect(path)
        self.con.execute(SETUP)
        self.other, self.raw = self.con.cursor(), self.con.session.database.root.cursor()
        self.made = self.checked = 0

    def run(self, steps: int) -> int:
        with self.con:
            for _ in range(steps):
                self.step()
            self.con.rollback()
            self.check()
            self.other.close()
        return self.checked

    def step(self) -> None:
        choice, write = self.random.random(), self.random.choice([self.other, self.raw])
        if choice < 0.25:
            (self.con.rollback if self.random.random() < 0.5 else self.con.commit)()
        elif choice < 0.45 and self.con.session.transaction is None:
            self.con.execute("BEGIN")
        elif choice < 0.65:
            k = self.random.randrange(6)
            changes = f"INSERT INTO t VALUES ({k}, {k * 7}, 0.1)", f"DELETE FROM t WHERE x % 11 = {k}"
            write.execute(self.random.choice([*changes, f"UPDATE t SET x = x + 2 WHERE k = {k}"]))
        elif choice < 0.7:
            self.made += 1
            self.other.execute(f"CREATE MATERIALIZED VIEW m{self.made} AS SELECT x FROM t WHERE k = {self.made}")
        elif choice < 0.73 and self.con.session.transaction is not None:
            self.con.execute(f"INSERT INTO t VALUES (1, {self.random.randrange(90)}, 2)")
        else:
            self.check()

    def check(self) -> None:
        con, duck, k = self.con, self.con.session.duck, self.random.randrange(6)
        asked = self.random.choice([
            (f"SELECT * FROM v WHERE k = {k}", f"SELECT * FROM ({V}) WHERE k = {k}"),
            ("SELECT count(*) FROM w", f"SELECT count(*) FROM ({W})"),
            (f"SELECT x + 1 FROM w WHERE k = {k} ORDER BY ALL", f"SELECT x + 1 FROM ({W}) WHERE k = {k} ORDER BY ALL"),
            ("SELECT v.k, n, x FROM v JOIN w USING (k) ORDER BY ALL",
             f"SELECT v.k, n, x FROM ({V}) v JOIN ({W}) w USING (k) ORDER BY ALL"),
        ])  # fmt: skip
        found = con.execute(asked[0]).fetchall()
        duck.abort()
        assert found == duck.execute(asked[1]).fetchall(), asked[0]
        self.checked += 1


def reads(seeds: range, steps: int, folder: Path) -> int:
    return sum(Reader(seed, str(folder / f"{seed}.duckdb") if seed % 2 else ":memory:").run(steps) for seed in seeds)


def test_readers_at_random(tmp_path):
    assert reads(range(2), 60, tmp_path) > 20


@pytest.mark.slow
def test_readers_at_random_at_length(tmp_path):
    assert reads(range(100, 200), 100, tmp_path) > 2000


def test_a_commit_between_the_last_look_and_duckdbs_snapshot_is_seen(con, monkeypatch):
    """It is in DuckDB's snapshot: so DuckDB answers."""
    raw, pin = con.session.database.root.cursor(), Snapshot.pin

    def late(snapshot, duck):
        if not snapshot._is_pinned:
            raw.execute("INSERT INTO t VALUES (3, 1000, 0)")
        pin(snapshot, duck)

    con.execute("BEGIN")
    monkeypatch.setattr(Snapshot, "pin", late)
    for _ in range(2):
        assert con.execute(LOOK_UP).fetchall() == [(9, 1164)]
        assert con.execute("SELECT count(*) FROM t WHERE k = 3").fetchall() == [(9,)]
    con.execute("COMMIT")
    assert con.execute(LOOK_UP).fetchall() == [(9, 1164)]


def test_readers_give_way_while_another_thread_writes(con, monkeypatch):
    given, turns = list[float](), con.session.database.turns
    monkeypatch.setattr(turns._idle, "wait", given.append)
    con.execute(LOOK_UP).fetchall()
    with turns.writing():
        con.execute(LOOK_UP).fetchall()
        assert given == [], "a thread that writes reads for itself"
        reader = threading.Thread(target=lambda: con.cursor().execute(LOOK_UP).fetchall())
        reader.start()
        reader.join()
        assert len(given) == 1
    con.execute(LOOK_UP).fetchall()
    assert len(given) == 1


def test_reads_beside_a_writer_go_on_where_others_have_all_turns(con):
    turns = con.session.database.turns
    with turns.writing(), ExitStack() as others:
        for _ in range(4):
            reader = threading.Thread(target=lambda: others.enter_context(turns.reading()))
            reader.start()
            reader.join()
        found = []
        reader = threading.Thread(target=lambda: found.append(con.cursor().execute(LOOK_UP).fetchall()))
        reader.start()
        reader.join()
    assert found == [con.execute(LOOK_UP).fetchall()]
