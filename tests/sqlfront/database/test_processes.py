"""Connections and processes: a fork refuses what it inherits, a second process is told what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sqlfront


def run(code: str, path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


FORK = """
import os, sys, sqlfront, pyarrow
con = sqlfront.connect(sys.argv[1])
con.execute("CREATE TABLE r (a INTEGER); CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM r")
con.execute("CREATE CHANGE TABLE c (a BIGINT); CREATE MATERIALIZED VIEW g AS SELECT a, count(*) AS n FROM c GROUP BY a")
con.apply_row("c", (1,))
view = con.view("g")
view.get(1)
con.execute("SELECT a FROM r")
uses = [
    lambda: con.execute("FROM m"), con.fetchone, con.cursor, lambda: view.get(1), view.rows,
    lambda: con.apply_row("c", (2,)), lambda: con.apply({"c": pyarrow.table({"a": [2]})}),
]
sys.stdout.flush()
child = os.fork()
if child == 0:
    for use in uses:
        try:
            use()
            print("used")
        except sqlfront.InterfaceError as error:
            print(str(error).partition("\\n")[0])
    try:
        sqlfront.connect(sys.argv[1])
    except sqlfront.OperationalError as error:
        print(str(error).partition(" was ")[2].partition("\\n")[0])
    with sqlfront.connect() as own:
        print(own.execute("SELECT 1").fetchall())
    con.close()
    sys.exit()
print(os.waitpid(child, 0)[1])
con.execute("INSERT INTO r VALUES (1)")
print(con.execute("FROM m").fetchall(), view.get(1))
con.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_refuses_the_connections_it_inherits(tmp_path: Path) -> None:
    refused = ["the connection was opened before this process was forked"] * 7
    found = run(FORK, tmp_path / "forked.duckdb").splitlines()
    assert found == [*refused, "open when this process was forked", "[(1,)]", "0", "[(1,)] (1, 1)"]


OPEN = """
import sys, sqlfront
try:
    sqlfront.connect(sys.argv[1])
except sqlfront.OperationalError as error:
    print(error)
"""


def test_a_second_process_is_refused_while_the_file_is_open(tmp_path: Path) -> None:
    """After snapshots and after a reopening, too: a POSIX lock goes with any descriptor of the file that is closed."""
    path = tmp_path / "held.duckdb"
    for count, name in enumerate("vw", 1):
        with sqlfront.connect(path, config={"sqlfront_snapshot": "1s"}) as con:
            assert "is open in another process" in run(OPEN, path)
            before = con.session.database.snapshot
            con.execute("CREATE TABLE IF NOT EXISTS t (k BIGINT); INSERT INTO t VALUES (1)")
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT k, count(*) AS n FROM t GROUP BY k")
            until = time.monotonic() + 30
            while con.session.database.snapshot in (None, before) and time.monotonic() < until:
                time.sleep(0.01)
            assert con.session.database.snapshot not in (None, before)
            assert "is open in another process" in run(OPEN, path)
            con.execute("CHECKPOINT")
            assert con.execute("SELECT n FROM v").fetchall() == [(count,)]
            assert "is open in another process" in run(OPEN, path)
    assert run(OPEN, path) == ""


def test_a_second_process_is_told_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "held.duckdb"
    with sqlfront.connect(path):
        found = run(OPEN, path)
    assert f"{path} is open in another process" in found
    assert f"(PID {os.getpid()}) holds DuckDB's lock" in found
    assert "con.cursor()" in found and "read_only = True" in found
    assert run(OPEN, path) == ""
