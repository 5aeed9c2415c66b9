"""Views of random terms over a file equal DuckDB's answers. In the middle of random epochs the file is closed and
opened, or its process is killed: what it leaves is opened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import sqlfront
from sqlfront.snapshots import chunks, snapshot_file
from tests.sqlfront.fuzz.replay import Replay
from tests.sqlfront.snapshots.test_log import killed


class Reopened(Replay):
    """A run over a file, which is closed, or left, and opened after one of three comparisons."""

    def __init__(self, seed: int, seen: Counter[str], views: int, epochs: int, path: Path) -> None:
        super().__init__(seed, seen, views, epochs)
        self.con.close()
        self.folder, self.path = path / f"{seed}", str(path / f"{seed}.duckdb")
        self.folder.mkdir()
        self.con = sqlfront.connect(self.path, config={"threads": 1})

    def _compare(self) -> None:
        super()._compare()
        if self.con.session.transaction is None and self.random.random() < 0.34:
            if self.random.random() < 0.6 and self.con.session.database.logs:
                self.script.append("-- killed and opened")
                self.seen["killed"] += 1
                self.path = killed(self.path, self.folder, f"{self.seen['opened']}")
            else:
                self.script.append("-- closed and opened")
            self.con.close()
            self.con = sqlfront.connect(self.path, config={"threads": 1})
            self.con.execute("SET TimeZone = 'UTC'")
            self.seen["opened"] += 1
            self.seen["adopted"] += self.con.session.database.snapshot is not None
            super()._compare()

    def _check(self) -> None:
        """CHECK has tests of its own."""
        super()._compare()


def run(seeds: range, path: Path, views: int, epochs: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        Reopened(seed, seen, views, epochs, path).run()
    return seen


def test_random_views_of_a_file_that_is_reopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)
    monkeypatch.setattr(chunks, "CHUNK", chunks.PAGE)
    seen = run(range(3, 4), tmp_path, 3, 5)
    assert seen["opened"] == seen["adopted"] > seen["killed"] >= 1


@pytest.mark.slow
def test_random_views_of_a_file_that_is_reopened_at_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_file, "_MAPPED_FROM", 1)
    monkeypatch.setattr(chunks, "CHUNK", chunks.PAGE)
    seen = run(range(500, 560), tmp_path, 8, 12)
    assert seen["opened"] == seen["adopted"] >= 100
    assert seen["killed"] >= 40
