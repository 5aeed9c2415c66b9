"""The progress of long work: drawn on a terminal alone, with rows and their rate, and only if it takes long."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sqlfront
from sqlfront.database.arguments import split_config
from sqlfront.database.running.progress import Progress

DRAWN = """
import time
from sqlfront.database.running import progress

progress.DELAY, rows = {delay}, [0]
shown = progress.Progress(lambda: rows[0], wanted=True)
with shown.watch("CREATE  VIEW v\\n AS SELECT 1"):
    time.sleep(0.3)
    with shown.watch("reading t", 2_000_000):
        for _ in range(6):
            rows[0] += 300_000
            time.sleep(0.1)
    with shown.watch("applying"):
        rows[0] += 1500
        time.sleep(0.3)
"""
WORK = """
import sqlfront
from sqlfront.database.running import progress

progress.DELAY = 0
con = sqlfront.connect(config={config!r})
con.execute("CREATE TABLE a AS SELECT i AS id, i % 100 AS g FROM range(1500000) r(i)")
con.execute("CREATE MATERIALIZED VIEW v AS SELECT g, sum(id) AS s FROM a GROUP BY g")
con.execute("REFRESH MATERIALIZED VIEW v")
"""


def test_a_bar_tells_rows_their_rate_and_the_time_left() -> None:
    shown = _on_terminal(DRAWN.format(delay=0))
    assert "sqlfront: CREATE VIEW v AS SELECT 1 ━" in shown
    assert re.search(r"reading t \S+ [01]\.\d of 2\.0 M rows, \d+\.\d (k|M) rows/s \d:\d\d:\d\d", shown)
    assert re.search(r"applying \S+ 1\.5 k rows ", shown)


def test_short_work_shows_nothing() -> None:
    assert _on_terminal(DRAWN.format(delay=60)) == ""


def test_a_database_shows_what_it_builds() -> None:
    assert "sqlfront: CREATE MATERIALIZED VIEW v AS SELECT g" in _on_terminal(WORK.format(config={}))


def test_nothing_is_shown_when_turned_off_or_where_nobody_looks() -> None:
    assert _on_terminal(WORK.format(config={"sqlfront_progress": False})) == ""
    code = WORK.format(config={})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_all_long_work_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[tuple[str, int, int]] = []

    @contextmanager
    def watch(self: Progress, what: str, total: int = 0) -> Iterator[None]:
        before = self._rows()
        yield
        watched.append((what, total, self._rows() - before))

    monkeypatch.setattr(Progress, "watch", watch)
    con = sqlfront.connect(tmp_path / "a.duckdb")
    con.execute("CREATE TABLE a AS SELECT i AS id, i % 100 AS g FROM range(3000) r(i)")
    con.execute("CREATE TABLE b AS SELECT i AS g, i % 7 AS h FROM range(100) r(i)")
    create = "CREATE MATERIALIZED VIEW v AS SELECT h, sum(id) AS s FROM a JOIN b USING (g) GROUP BY h"
    insert = "INSERT INTO a SELECT i, i % 100 FROM range(70000) r(i)"
    con.execute(create)
    assert {("reading main.a", 3000, 3000), ("reading main.b", 100, 100)} <= set(watched)
    assert [what for what, total, rows in watched if what.startswith("joining") and total == rows > 0]
    assert watched[-1][0] == create
    con.execute(insert)
    assert ("applying changes", 70000, 70000) in watched
    assert watched[-1][0] == insert
    con.execute("REFRESH MATERIALIZED VIEW v")
    assert ("reading main.a", 73000, 73000) in watched
    con.close()
    watched.clear()
    sqlfront.connect(tmp_path / "a.duckdb").close()
    assert watched[-1][0] == "reading the snapshot"
    watched.clear()
    sqlfront.connect(tmp_path / "a.duckdb", config={"sqlfront_snapshot": "off"}).close()
    assert ("reading main.a", 73000, 73000) in watched
    assert watched[-1][0] == "rebuilding 1 of 1 views, v"


@pytest.mark.parametrize(("given", "meant"), [(True, True), ("false", False), ("TRUE", True)])
def test_the_setting_is_ours_and_not_duckdbs(given: object, meant: bool) -> None:
    theirs, ours = split_config({"threads": 1, "sqlfront_progress": given})
    assert theirs == {"threads": 1} and ours["sqlfront_progress"] is meant


def test_settings_of_ours_are_checked() -> None:
    with pytest.raises(sqlfront.InterfaceError, match="there is no setting sqlfront_progres"):
        sqlfront.connect(config={"sqlfront_progres": True})
    with pytest.raises(sqlfront.InterfaceError, match="sqlfront_progress"):
        sqlfront.connect(config={"sqlfront_progress": "perhaps"})


def _on_terminal(code: str) -> str:
    """What a process writes to its standard error, a terminal, as text without control sequences."""
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        with subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env=environment) as process:
            os.close(theirs)
            written = _read_all(ours)
        assert process.returncode == 0, written
    finally:
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\n", "", written)


def _read_all(terminal: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # The other side is closed.
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)
