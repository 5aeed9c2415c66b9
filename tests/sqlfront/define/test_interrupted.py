"""Ctrl-C during CREATE MATERIALIZED VIEW: the view is there as a whole, or nothing of it is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

import sqlfront

QUERY = (
    "SELECT t.a, sum(t.b) AS s, count(DISTINCT u.d) AS n, median(u.d) AS m FROM t JOIN u ON t.a = u.c GROUP BY t.a "
    "UNION ALL SELECT c, max(d), 0, 0 FROM u WHERE c NOT IN (SELECT a FROM t) GROUP BY c"
)
KINDS = ["", "WITH (apply = 'on read')", "WITH (on_error = 'null')"]


@contextmanager
def interrupt_after(seconds):
    """A real SIGINT, that many seconds later, if the body runs so long."""
    done = threading.Event()

    def strike():
        if not done.wait(seconds):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def left(con):
    """What a CREATE can leave: rows of DuckDB's catalog and of ours, and what the engine keeps."""
    database = con.session.database
    duck, engine = con.session.duck, database.engine
    catalog = {
        "tables": "SELECT schema_name, table_name FROM duckdb_tables()",
        "views": "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND NOT temporary",
        "triggers": "SELECT table_name, trigger_name, event_manipulation FROM duckdb_triggers()",
        "stored": "SELECT schema, name FROM __sqlfront.views",
    }
    return {name: sorted(duck.execute(query).fetchall()) for name, query in catalog.items()} | {
        "entries": sorted(database.views),
        "relations": sorted(engine.relations),
        "stores": sorted((name, len(relation.stores)) for name, relation in engine.relations.items()),
        "nodes": sorted(engine.nodes),
        "engine views": sorted(engine.views),
    }


def fill(con):
    con.execute("CREATE TABLE IF NOT EXISTS t (a BIGINT, b BIGINT)")
    con.execute("CREATE TABLE IF NOT EXISTS u (c BIGINT, d BIGINT)")
    con.execute("INSERT INTO t SELECT i % 50, i FROM range(2000) AS r(i)")
    con.execute("INSERT INTO u SELECT i % 70, i % 9 FROM range(2000) AS r(i)")


def attempt(con, kind, seconds):
    """Whether a CREATE was interrupted; then nothing is left. Else the view is right, and is dropped."""
    before, interrupted = left(con), False
    try:
        with interrupt_after(seconds):
            con.execute(f"CREATE MATERIALIZED VIEW v {kind} AS {QUERY}")
    except KeyboardInterrupt:
        interrupted = True
    if ("main", "v") in con.session.database.views:
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        con.execute("DROP MATERIALIZED VIEW v")
    assert left(con) == before
    con.execute("INSERT INTO t VALUES (1, 1)")
    con.execute("BEGIN; DELETE FROM u WHERE d = 100; ROLLBACK")
    return interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # In a __del__, Python drops Ctrl-C.
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_a_real_interrupt_at_any_moment_leaves_nothing(tmp_path, seed):
    rng = random.Random(seed)
    with sqlfront.connect(tmp_path / "d") as con:
        fill(con)
        con.execute("CREATE MATERIALIZED VIEW other AS SELECT a, count(*) AS n FROM t GROUP BY a")
        attempt(con, KINDS[0], 1000)  # Modules are loaded.
        started = time.perf_counter()
        attempt(con, KINDS[0], 1000)
        length = time.perf_counter() - started
        times = 5 if seed == 0 else 60
        struck = sum(attempt(con, rng.choice(KINDS), rng.random() * 0.7 * length) for _ in range(times))
        assert struck >= times // 5
        assert con.execute("CHECK MATERIALIZED VIEW other").fetchall() == []
    with sqlfront.connect(tmp_path / "d") as con:
        assert [row[0] for row in con.execute("SHOW MATERIALIZED VIEWS").fetchall()] == ["other"]
        assert con.execute("CHECK MATERIALIZED VIEW other").fetchall() == []


SCRIPT = """
import sqlfront, sys
con = sqlfront.connect(sys.argv[1])
print("ready", flush=True)
try:
    while True:
        con.execute("CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
except KeyboardInterrupt:
    print("interrupted", flush=True)
con.execute("INSERT INTO t VALUES (3, 4)")
views = [row[0] for row in con.execute("SHOW MATERIALIZED VIEWS").fetchall()]
print(views, [con.execute(f"CHECK MATERIALIZED VIEW {{name}}").fetchall() for name in views], flush=True)
con.close()
"""


def test_another_process_that_is_interrupted_goes_on(tmp_path):
    with sqlfront.connect(tmp_path / "d") as con:
        fill(con)
    script = [sys.executable, "-c", SCRIPT.format(query=QUERY), str(tmp_path / "d")]
    process = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(random.Random(0).uniform(0.5, 2.5))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and output in ("interrupted\n['v'] [[]]\n", "interrupted\n[] []\n")
    with sqlfront.connect(tmp_path / "d") as con:
        for row in con.execute("SHOW MATERIALIZED VIEWS").fetchall():
            assert con.execute(f"CHECK MATERIALIZED VIEW {row[0]}").fetchall() == []
        fill(con)
