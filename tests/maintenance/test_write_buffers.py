"""Views over spilled tables with write buffers: whoever reads them reads what waits, too."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.storage.stores.buffered import waiting_rows
from sqlfront.storage.stores.table import Table
from tests.maintenance.test_spill import evict, tables_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files are spilled to on Linux")
KEYS = 6000
SETUP = """
CREATE CHANGE TABLE t (k BIGINT, s VARCHAR, x BIGINT);
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(x) AS s, count(*) AS n FROM t GROUP BY k;
CREATE MATERIALIZED VIEW texts AS SELECT s, sum(x // 3) AS t, avg(x) AS m FROM t GROUP BY s;
"""


def row_of(key: int) -> tuple[int, str, int]:
    """Of rows that come later, two do not fit a word."""
    return key, f"text {key}", 2**62 if key >= KEYS else key % 50


class Spilled:
    """A connection whose views are spilled and not in memory, and the rows that it should have."""

    def __init__(self, folder: Path) -> None:
        self.con = sqlfront.connect(config={"sqlfront_spill": folder, "threads": 1, "sqlfront_progress": False})
        self.con.execute(SETUP)
        self.rows = Counter[tuple[int, str, int]]()
        self.apply([(key, 1) for key in range(KEYS)])

    def apply(self, changes: list[tuple[int, int]]) -> None:
        """One epoch: rows of these keys come or go."""
        rows = [row_of(key) for key, _ in changes]
        columns = dict(zip("ksx", map(list, zip(*rows, strict=True)), strict=True))
        self.con.apply({"t": pa.table({**columns, "_weight": [weight for _, weight in changes]})})  # It may be refused.
        for row, (_, weight) in zip(rows, changes, strict=True):
            self.rows[row] += weight

    def wait(self, first: int = 0) -> None:
        """Let changes of some rows that are not in memory wait."""
        sum(map(evict, tables_of(self.con)))
        self.apply([(key, 1) for key in range(first, KEYS, 97)])
        assert all(waiting_rows(table) > 50 for table in self.con.session.database.engine.write_buffers.tables())

    def table(self) -> pa.Table:
        """The rows of the table."""
        rows = [row for row, count in self.rows.items() for _ in range(count)]
        return pa.table(dict(zip("ksx", map(list, zip(*rows, strict=True)), strict=True)))

    def waiting(self) -> int:
        return sum(map(waiting_rows, self.tables()))

    def tables(self) -> list[Table]:
        return tables_of(self.con)

    def sums(self) -> dict[int, tuple[int, int]]:
        found = dict[int, tuple[int, int]]()
        for (key, _, x), count in self.rows.items():
            if count:
                found[key] = count * x, count
        return found


@pytest.fixture
def spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spilled]:
    monkeypatch.setattr("sqlfront.storage.stores.spill.LEAST", 1 << 14)
    one = Spilled(tmp_path)
    yield one
    one.con.close()


READS: dict[str, Callable[[sqlfront.Connection], Any]] = {
    "all": lambda con: con.execute("FROM sums").fetchall(),
    "arrow": lambda con: con.execute("FROM sums").to_arrow_table().to_pylist(),
    "one": lambda con: con.execute("SELECT s, n FROM sums WHERE k = 97").fetchall(),
    "parameter": lambda con: con.execute("SELECT s, n FROM sums WHERE k = ?", [97]).fetchall(),
    "sorted": lambda con: con.execute("SELECT * FROM sums ORDER BY s, k LIMIT 3").fetchall(),
    "text": lambda con: con.execute("SELECT t, m FROM texts WHERE s = 'text 97'").fetchall(),
    "joined": lambda con: con.execute("SELECT sum(n), sum(t) FROM sums, texts WHERE n = m").fetchall(),
    "transaction": lambda con: con.begin().execute("SELECT sum(s) FROM sums").fetchall(),
    "relation": lambda con: con.sql("SELECT max(n) FROM sums").fetchall(),
    "cursor": lambda con: con.cursor().execute("SELECT sum(n) FROM sums").fetchall(),
    "view": lambda con: con.view("sums").rows(),
    "contains": lambda con: con.view("sums").contains((97, 94, 2)),
    "count": lambda con: con.view("sums").count(),
}  # fmt: skip


@pytest.mark.parametrize("read", READS)
def test_reads_merge_what_waits(spilled: Spilled, read: str) -> None:
    """Equal to the answers of views for which nothing waits."""
    with sqlfront.connect() as other:
        other.execute(SETUP)
        other.apply({"t": spilled.table()})
        for number in range(3):
            before = spilled.table()
            spilled.wait(number)
            other.apply({"t": before.append_column("_weight", pa.array([-1] * len(before)))})
            other.apply({"t": spilled.table()})
            found, expected = (READS[read](con) for con in (spilled.con, other))
            spilled.con.rollback()
            other.rollback()
            assert found
            if isinstance(found, list) and read != "sorted":
                found, expected = sorted(found, key=repr), sorted(expected, key=repr)
            assert found == expected


def test_get_looks_after_what_waits(spilled: Spilled) -> None:
    view = spilled.con.view("sums")
    for key in (0, 1, 2, 3):
        assert view.get(key) == (key, *spilled.sums()[key])
        spilled.wait(key)
        assert view.get(key) == (key, *spilled.sums()[key])


def test_what_waits_comes_and_goes_with_its_epoch(spilled: Spilled) -> None:
    """A failing epoch takes back its changes alone, and rows that go are taken from what waits."""
    spilled.wait()
    before = spilled.sums()
    with pytest.raises(sqlfront.IntegrityError):
        spilled.apply([*((key, 1) for key in range(2, KEYS, 97)), (1, -9)])
    assert {k: (s, n) for k, s, n in spilled.con.execute("FROM sums").fetchall()} == before
    spilled.wait(1)
    spilled.apply([(key, -2) for key in range(1, KEYS, 97)])
    assert {k: (s, n) for k, s, n in spilled.con.execute("FROM sums").fetchall()} == spilled.sums()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_random_epochs(spilled: Spilled, seed: int) -> None:
    """Rows come and go, sums outgrow their words, and tables are read, told and rebuilt in between."""
    rng, con = random.Random(seed), spilled.con
    waited = 0
    for _ in range(40):
        if rng.random() < 0.5:
            sum(map(evict, spilled.tables()))
        keys = rng.sample(range(KEYS + 100), rng.choice([3, 60, 800]))
        share = rng.choice([0, 0, 0.2])  # Nothing begins to wait beside rows that go.
        gone = [key for key in keys if rng.random() < share and spilled.rows[row_of(key)]]
        spilled.apply([(key, -1 if key in gone else rng.choice([1, 1, 2])) for key in keys])
        waited += spilled.waiting()
        action = rng.choice(["read", "subscribe", "create", "none", "none"])
        if action == "read":
            assert {k: (s, n) for k, s, n in con.execute("FROM sums").fetchall()} == spilled.sums()
        elif action == "subscribe":
            with con.view("sums").subscribe(snapshot=True, timeout=0) as told:
                assert sum(len(table) for table in told) == len(spilled.sums())
        elif action == "create":
            con.execute("CREATE OR REPLACE MATERIALIZED VIEW z AS SELECT k, max(x) AS m FROM t GROUP BY k")
    assert waited > 1000
    assert {k: (s, n) for k, s, n in con.execute("FROM sums").fetchall()} == spilled.sums()
    for view in ("sums", "texts"):
        assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
    spilled.apply([(key, -count) for (key, _, _), count in spilled.rows.items() if count])
    assert con.execute("SELECT count(*) FROM sums").fetchall() == [(0,)]
    assert [row for row in con.execute("SHOW STATE").fetchall() if row[3]] == []


def test_what_waits_is_counted(spilled: Spilled) -> None:
    engine = spilled.con.session.database.engine
    before = engine.memory() - engine.spilled()
    spilled.wait()
    waiting = spilled.waiting()
    assert engine.memory() - engine.spilled() > before + 40 * waiting
    state = spilled.con.execute("SHOW STATE").to_arrow_table().to_pylist()
    assert 0 <= engine.memory() - sum(row["bytes"] for row in state) < 5000


def test_joined_stores_and_those_whose_changes_are_told_have_no_buffer(spilled: Spilled) -> None:
    con, buffers = spilled.con, spilled.con.session.database.engine.write_buffers
    assert len(buffers.tables()) == 2
    spilled.wait()
    con.execute("CREATE TABLE u (k BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW joined AS SELECT k, sum(x) AS s FROM t JOIN u USING (k) GROUP BY k")
    for _ in range(2):
        sum(map(evict, spilled.tables()))
        spilled.apply([(key, 1) for key in range(0, KEYS, 97)])
        con.execute("INSERT INTO u VALUES (97), (194)")
    assert con.execute("CHECK MATERIALIZED VIEW joined").fetchall() == []


def test_changes_are_told_though_rows_waited(spilled: Spilled) -> None:
    spilled.wait()
    with spilled.con.view("sums").subscribe(snapshot=False, timeout=0) as told:
        sum(map(evict, spilled.tables()))
        spilled.apply([(key, 1) for key in (97, *range(1, KEYS, 97))])
        assert spilled.waiting() == 0
        found = [(row["k"], row["n"], row["_change_type"]) for table in told for row in table.to_pylist()]
    assert Counter(found) >= Counter([(97, 2, "update_preimage"), (97, 3, "update_postimage")])
    assert len(found) == 2 * len((97, *range(1, KEYS, 97)))


def test_rows_of_the_table_itself_do_not_wait(spilled: Spilled) -> None:
    con = spilled.con
    for number, statement in enumerate(
        ["DELETE FROM t WHERE k = 97", "UPDATE t SET x = x + 1 WHERE x % 2 = 0", "ALTER TABLE t ADD COLUMN z BIGINT"]
    ):
        spilled.wait(number)
        count = sum(spilled.rows.values())
        if number == 0:
            assert con.execute("SELECT count(*) FROM t").fetchall() == [(count,)]
            spilled.rows.pop(row_of(97))
        con.execute(statement)
        assert con.execute("CHECK MATERIALIZED VIEW sums").fetchall() == []
        if number == 1:
            break
    con.execute("DELETE FROM t")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    assert con.execute("FROM sums").fetchall() == []


def test_an_epoch_that_replaces_rows_and_one_that_fails(spilled: Spilled) -> None:
    """Of keys whose rows are not in memory."""
    for sign in (1, 2):
        sum(map(evict, spilled.tables()))
        keys = range(3000 + sign, KEYS, 97)
        old = [(key, f"text {key}", key % 50, -1) for key in keys]
        new = [(key, f"text {key}", 999, sign) for key in keys]
        columns = dict(zip(("k", "s", "x", "_weight"), map(list, zip(*old, *new, strict=True)), strict=True))
        spilled.con.apply({"t": pa.table(columns)})
        for k, s, x, weight in (*old, *new):
            spilled.rows[k, s, x] += weight
        sum(map(evict, spilled.tables()))
        absent = [(key, f"text {key}", 998, -1) for key in range(3500, KEYS, 97)]
        columns = dict(zip(("k", "s", "x", "_weight"), map(list, zip(*absent, strict=True)), strict=True))
        with pytest.raises(sqlfront.IntegrityError):
            spilled.con.apply({"t": pa.table(columns)})
    assert spilled.con.execute("CHECK MATERIALIZED VIEW sums").fetchall() == []
    found = dict[int, tuple[int, int]]()
    for (key, _, x), count in spilled.rows.items():
        s, n = found.get(key, (0, 0))
        found[key] = s + count * x, n + count
    present = {key: pair for key, pair in found.items() if pair[1]}
    assert {k: (s, n) for k, s, n in spilled.con.execute("FROM sums").fetchall()} == present


def test_codes_of_a_dropped_view_are_forgotten(spilled: Spilled) -> None:
    con = spilled.con
    spilled.wait()
    con.execute("DROP MATERIALIZED VIEW texts; DROP MATERIALIZED VIEW sums; DELETE FROM t")
    con.execute("SHOW STATE").fetchall()
    assert all(int(one.refs.sum()) == 0 for one in con.session.database.engine.dictionaries)


def test_a_budget_gives_buffers_up_before_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlfront.storage.stores.spill.LEAST", 1 << 14)
    monkeypatch.setattr(sys.modules[__name__], "SETUP", SETUP.replace("x BIGINT)", "x BIGINT) WITH (retain = false)"))
    one = Spilled(tmp_path)
    engine = one.con.session.database.engine
    one.wait()
    engine.memory_budget = engine.memory() - engine.spilled() - 1
    engine.check_memory("the change")
    assert (one.waiting(), engine.write_buffers.tables()) == (0, [])
    one.con.close()


def test_sums_of_a_later_view_outgrow_their_words(spilled: Spilled) -> None:
    """Its rows were there before it: what its values are has to be looked up."""
    con, late = spilled.con, range(KEYS, KEYS + 30)
    spilled.apply([(key, 1) for key in late])
    con.execute("CREATE MATERIALIZED VIEW late AS SELECT k, s, sum(x) AS s2 FROM t GROUP BY k, s")
    for _ in range(2):
        sum(map(evict, spilled.tables()))
        spilled.apply([(key, 1) for key in late])
    found = con.execute(f"SELECT k, s2 FROM late WHERE k >= {KEYS} ORDER BY k").fetchall()
    assert found == [(key, 3 * 2**62) for key in late]


def test_get_looks_after_what_waits_once_nobody_is_told(spilled: Spilled) -> None:
    view = spilled.con.view("sums")
    with view.subscribe(snapshot=False, timeout=0):
        assert view.get(97) == (97, *spilled.sums()[97])
    spilled.wait()
    spilled.con.view("sums").get(98)
    assert view.get(97) == (97, *spilled.sums()[97])
