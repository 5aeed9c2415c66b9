"""Many cursors in many threads: every read is some committed state, whole, and nothing waits for ever."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import sqlfront

SECONDS = 1.2


@pytest.fixture
def con():
    faulthandler.dump_traceback_later(50, exit=True)
    with sqlfront.connect() as con:
        con.execute("""
            CREATE TABLE a(k BIGINT, x BIGINT);
            CREATE TABLE b(k BIGINT, y BIGINT);
            CREATE CHANGE TABLE c(k BIGINT, x BIGINT);
            INSERT INTO b SELECT range, 1 FROM range(10);
            CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(x) AS s FROM a;
            CREATE MATERIALIZED VIEW joined AS SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k;
            CREATE MATERIALIZED VIEW fed AS SELECT k, count(*) AS n, sum(x) AS s FROM c GROUP BY k;
        """)
        yield con
    faulthandler.cancel_dump_traceback_later()


def hammer(con, *bodies):
    """Run each body(cursor, round) over and over in a thread of its own; the first exception of any is raised."""
    problems, rounds, end = [], [0] * len(bodies), time.monotonic() + SECONDS

    def work(number, body):
        try:
            with con.cursor() as cursor:
                while time.monotonic() < end and not problems:
                    body(cursor, rounds[number])
                    rounds[number] += 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=item, daemon=True) for item in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    if problems:
        raise problems[0]
    assert min(rounds) > 0


def write(cursor, turn):
    """Ten rows at a time, whose x add up to 0; one in three times they are rolled back."""
    cursor.begin()
    cursor.executemany("INSERT INTO a VALUES (?, ?)", [(k, k * (1 - 2 * (k % 2))) for k in range(9)])
    cursor.execute("INSERT INTO a SELECT 9, -sum(x) FROM (SELECT * FROM a ORDER BY rowid DESC LIMIT 9)")
    cursor.execute("SELECT * FROM joined").fetchmany(3)
    cursor.execute("ROLLBACK" if turn % 3 == 0 else "COMMIT")


def feed(cursor, turn):
    cursor.apply({"c": pa.record_batch({"k": pa.array(range(10)), "x": pa.array([1, -1] * 5)})})


def read(cursor, turn):
    """All scans of one statement are of one committed epoch."""
    [(n, s, joined, x)] = cursor.execute(
        "SELECT n, s, (SELECT count(*) FROM joined), (SELECT sum(x) FROM joined) FROM total"
    ).fetchall()
    assert n % 10 == 0
    assert n == joined
    assert s in (None, 0)
    assert x in (None, 0)
    found = cursor.execute("SELECT k, n, s FROM fed").fetchall()
    assert len({n for _, n, _ in found}) <= 1
    assert sum(s for _, _, s in found) == 0
    [(left, right)] = cursor.execute("SELECT sum(p.n), sum(q.n) FROM fed p JOIN fed q ON p.k = q.k").fetchall()
    assert left == right


def stream(cursor, turn):
    """Batch by batch, row by row: whole, and never mixed."""
    table = cursor.execute("SELECT x FROM joined").to_arrow_reader(100).read_all()
    assert table.num_rows % 10 == 0
    assert sum(table.column("x").to_pylist()) == 0
    found = [x for (x,) in cursor.execute("SELECT x FROM joined")]
    assert len(found) % 10 == 0
    assert sum(found) == 0


def read_twice(cursor, turn):
    """All reads of one transaction are of one state, with its own changes."""
    reads = ["FROM total", "SELECT count(*) AS n, sum(x) AS s FROM a", "SELECT n, s FROM total WHERE true"]
    cursor.begin()
    if turn % 2:
        cursor.execute(reads[turn % 3]).fetchall()
    if turn % 5 == 0:
        cursor.execute("INSERT INTO a SELECT range, 0 FROM range(10)")
    found = [cursor.execute(sql).fetchall() for sql in reads]
    time.sleep(0.005)
    assert [cursor.execute(sql).fetchall() for sql in reads] == found
    assert [[(n, s or 0) for n, s in rows] for rows in found] == [[(found[0][0][0], 0)]] * 3
    cursor.rollback()


def test_reads_and_writes_of_many_threads(con):
    hammer(con, write, feed, read, read, stream, read_twice)
    for view in ("total", "joined", "fed"):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []


def test_definitions_change_beside_reads_and_writes(con):
    def define(cursor, turn):
        cursor.execute("CREATE OR REPLACE MATERIALIZED VIEW more AS SELECT k, sum(x) AS s FROM c GROUP BY k")
        cursor.execute("SELECT * FROM more").fetchall()
        cursor.execute("REFRESH MATERIALIZED VIEW fed")

    hammer(con, define, feed, read)
    for view in ("more", "fed"):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []


def test_a_read_after_a_definition_does_not_wait_for_itself():
    """The definition of a change table binds scans of the same cursor that take the lock for themselves."""
    code = """
import pyarrow as pa, sqlfront
con = sqlfront.connect()
con.execute("CREATE CHANGE TABLE a (x INT, y INT)")
con.execute("CREATE CHANGE TABLE b (x INT, z INT)")
con.apply({"a": pa.table({"x": [1, 2], "y": [3, 4]}), "b": pa.table({"x": [1, 2], "z": [5, 6]})})
print(sorted(con.execute("SELECT * FROM a JOIN b USING (x)").fetchall()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[(1, 3, 5), (2, 4, 6)]\n", done.stderr


@pytest.mark.parametrize("fetch", [lambda cursor: cursor.fetchmany(1), lambda cursor: cursor.fetchall()])
def test_what_an_epoch_holds_of_a_result_is_not_the_next_statements(con, monkeypatch, fetch):
    """The next statement waits for the lock while an epoch reads the rest of the result before."""
    con.execute("CREATE MATERIALIZED VIEW large AS SELECT k, x FROM a; INSERT INTO a SELECT i, i FROM range(5000) r(i)")
    cursor, waits, lock = con.cursor(), threading.Event(), con.session.database.lock
    fetch(cursor.execute("FROM large"))
    held_reading = cursor.session.held_reading
    monkeypatch.setattr(cursor.session, "held_reading", lambda: (waits.set(), held_reading())[1])
    with ThreadPoolExecutor(1) as pool:
        with lock:
            result = pool.submit(lambda: cursor.execute("FROM large").fetchall())
            assert waits.wait(10)
            con.session.database.engine.readers.finish()
        assert len(result.result(10)) == 5000
