"""Change feeds: replaying one into a table gives the view at every version (law 9), however it is read."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from itertools import pairwise

import duckdb
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.feeds import feed_log

VIEWS = {
    "bag": "SELECT r.t, s.c FROM r JOIN s USING (a)",
    "expressions": "SELECT upper(t) AS u, a % 2 AS odd, 'x' AS x FROM r",
    "values": "SELECT h, i, t, d, e FROM r",
    "distinct": "SELECT DISTINCT t FROM r JOIN s USING (a)",
    "groups": "SELECT a, count(*) AS n, sum(h) AS h, sum(c * d) AS p FROM r JOIN s USING (a) GROUP BY a",
    "group of expressions": "SELECT a, 2 * count(*) + 1 AS n, {'sum': sum(c)} AS s FROM s GROUP BY a",
    "hidden key": "SELECT count(*) AS n FROM s GROUP BY a",
    "having": "SELECT a, sum(c) AS c FROM s GROUP BY a HAVING sum(c) > 5",
    "hidden having": "SELECT count(*) AS n FROM s GROUP BY a HAVING count(*) > 1",
    "scalar": "SELECT count(*) AS n, sum(c) AS c, avg(c) AS m FROM s",
    "scalar having": "SELECT count(*) AS n FROM s HAVING count(*) > 8",
    "extrema": "SELECT t, min(a) AS lo, max(e) AS hi, count(DISTINCT h) AS n FROM r GROUP BY t",
    "distinct sums": "SELECT a, sum(DISTINCT c) AS c, count(*) AS n FROM s GROUP BY a HAVING min(c) > 0",
    "scalar extrema": "SELECT max(t) AS t, min(c) AS c, count(DISTINCT c) AS n FROM r JOIN s USING (a)",
    "projected": "SELECT DISTINCT r.t, q.c FROM r JOIN s USING (a) JOIN s AS q ON q.a = s.c",
    "multiplied": "SELECT r.t, r.a FROM r JOIN s USING (a)",
    "multiplied groups": "SELECT r.t, r.a, count(*) AS n FROM r JOIN s USING (a) GROUP BY r.t, r.a",
    "self-join": "SELECT p.a, q.c FROM s AS p JOIN s AS q ON p.c = q.a",
    "product": "SELECT DISTINCT r.t, s.c FROM r, s",
}
TEXTS = ["ant", "Bee", "", None]
HUGE = [1, -(2**100), 2**115, None]
SPANS = ["1 month", "30 days", "3 seconds", None]


def database(path: str = ":memory:") -> sqlfront.Connection:
    con = sqlfront.connect(path)
    con.execute("CREATE TABLE r (a BIGINT, t VARCHAR, h HUGEINT, i INTERVAL, d DECIMAL(9, 2), e DATE)")
    con.execute("CREATE TABLE s (a BIGINT, c BIGINT)")
    return con


@pytest.fixture
def con():
    with database() as con:
        yield con


@pytest.fixture
def sums():
    """A change table r(a, b) and the view v of its sums; few rows, quick to change."""
    with sqlfront.connect() as con:
        con.execute("CREATE CHANGE TABLE r (a BIGINT, b BIGINT)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(b) AS b FROM r GROUP BY a")
        yield con


class Writer:
    """Changes r and s at random, an epoch at a time, and remembers what a view held at each version."""

    def __init__(self, con: sqlfront.Connection, seed: int) -> None:
        self.con, self.random = con, random.Random(seed)
        self.held = {epoch(con): rows(con)}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.held[epoch(self.con)] = rows(self.con)

    def step(self) -> None:
        pick, con = self.random.choice, self.con
        kind = self.random.randrange(8)
        if kind < 3:
            row = (pick([0, 1, 2, None]), pick(TEXTS), pick(HUGE), pick(SPANS), 1.25, pick(["2024-02-29", None]))
            con.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?)", [row, row, (1, *row[1:])][kind:])
        elif kind < 5:
            con.executemany("INSERT INTO s VALUES (?, ?)", [(pick([0, 1, 2, None]), pick(range(5))) for _ in range(3)])
        elif kind == 5:
            con.execute("UPDATE s SET c = c + ? WHERE a = ?", [pick([1, -3]), pick(range(3))])
        elif kind == 6:
            con.execute("UPDATE r SET t = ?, a = ? WHERE a = ?", [pick(TEXTS), pick(range(3)), pick(range(3))])
        else:
            con.execute(f"DELETE FROM {pick('rs')} WHERE a IS NOT DISTINCT FROM ?", [pick([0, 1, 2, None])])

    def changed(self) -> int:
        """How many epochs changed the view."""
        return sum(one != other for one, other in pairwise(self.held.values()))


class Copy:
    """A table kept from a feed alone; `held` are its rows at each version that the feed told."""

    def __init__(self, start: Counter | None = None) -> None:
        self.rows = Counter(start or {})
        self.held: dict[int, Counter] = {}
        self.kinds: Counter = Counter()

    def take(self, changes: list[tuple]) -> None:
        for one, other in pairwise([*changes, (None,) * 4]):
            *values, kind, version, stamp = one
            assert stamp is not None
            assert version >= max(self.held, default=0)
            assert (kind == "update_preimage") == (other[-3] == "update_postimage"), "images that are no pair"
            self.rows[repr(values)] += 1 if kind in ("insert", "update_postimage") else -1
            self.rows += Counter()
            self.held[version] = Counter(self.rows)
            self.kinds[kind] += 1

    def at(self, version: int) -> Counter | None:
        """The copy as it was at a version; None before the first that was told."""
        told = [number for number in self.held if number <= version]
        return self.held[max(told)] if told else None


def assert_follows(copy: Copy, writer: Writer, start: Counter) -> None:
    """The copy was the view at every version; an epoch that changed nothing told nothing."""
    for version, expected in writer.held.items():
        found = copy.at(version)
        assert (start if found is None else found) == expected, f"version {version}"
    for (_, before), (version, after) in pairwise(writer.held.items()):
        assert (version in copy.held) == (before != after)


def epoch(con: sqlfront.Connection) -> int:
    return con.session.database.engine.epoch


def rows(con: sqlfront.Connection, view: str = "v") -> Counter:
    return Counter(repr(list(row)) for row in con.execute(f"SELECT * FROM {view}").fetchall())


def told(changes: pa.Table | None) -> list[tuple]:
    """The rows of a feed's table as SQL values."""
    if changes is None:
        return []
    wide = [name for name, type_ in zip(changes.column_names, changes.schema.types) if type_ == pa.decimal128(38, 0)]
    replaced = ", ".join(f'CAST("{name}" AS HUGEINT) AS "{name}"' for name in wide)
    return duckdb.sql(f"SELECT * {f'REPLACE ({replaced})' if wide else ''} FROM changes").fetchall()


def short(table: pa.Table | None) -> list[tuple]:
    """The rows of a feed's table without version and time."""
    return [row[:-2] for row in told(table)]


# Replaying ---------------------------------------------------------------------------------------


KEYED = {"multiplied groups", "groups", "group of expressions", "having", "extrema", "distinct sums"}
SCALAR = {"scalar", "scalar having", "scalar extrema"}


@pytest.mark.parametrize("name", VIEWS)
def test_a_replayed_feed_is_the_view_at_every_version(con, name):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS[name]}")
    writer, snapshot = Writer(con, seed=5), list(VIEWS).index(name) % 2 == 0
    writer.run(10)
    start = rows(con)
    writer.held = {epoch(con): start}
    copy = Copy(Counter() if snapshot else start)
    with con.view("v").subscribe(snapshot=snapshot, timeout=0) as feed:
        writer.run(40)
        for table in feed:
            copy.take(told(table))
    assert writer.changed() >= 8, "the stream tests too little"
    if snapshot and start:
        assert copy.held.pop(min(writer.held)) == start
    assert_follows(copy, writer, start)
    assert bool(copy.kinds["update_postimage"]) == (name in KEYED | SCALAR), "pairs where columns tell rows apart"
    assert copy.kinds["update_preimage"] == copy.kinds["update_postimage"]


@pytest.mark.parametrize("reader", ["callback", "poll", "fetchall", "fetchmany", "fetchone", "df", "arrow"])
def test_every_way_of_reading(con, reader):
    query = "SELECT a, count(*) AS n, sum(c * d) AS p FROM r JOIN s USING (a) GROUP BY a"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    writer, copy, cursor = Writer(con, seed=7), Copy(), con.cursor()
    writer.run(8)
    start = rows(con)
    writer.held = {epoch(con): start}
    if reader == "callback":
        feed = con.view("v").subscribe(lambda table: copy.take(told(table)))
    elif reader == "poll":
        feed = con.view("v").subscribe()
    else:
        feed = cursor.execute("SUBSCRIBE TO v")
    read = {
        "callback": list,
        "poll": lambda: told(feed.poll()),
        "fetchall": lambda: feed.fetchall(),
        "fetchmany": lambda: feed.fetchmany(3) + feed.fetchmany(2),
        "fetchone": lambda: [row for row in [feed.fetchone()] if row],
        "df": lambda: (lambda df: duckdb.sql("FROM df").fetchall() if len(df) else [])(feed.df()),
        "arrow": lambda: told(feed.to_arrow_table()),
    }[reader]
    whole: list[tuple] = []
    for _ in range(20):
        writer.run(1)
        whole += read()
    while more := read():
        whole += more
    deadline = time.monotonic() + 30
    last = max(version for (_, one), (version, other) in pairwise(writer.held.items()) if one != other)
    while reader == "callback" and feed.version < last and time.monotonic() < deadline:
        time.sleep(0.01)
    feed.close()
    if reader == "df":  # Pandas has its own idea of NULL in a column of numbers.
        return
    if whole:
        copy.take(whole)
    assert_follows(copy, writer, start)


def test_a_fetch_of_another_kind_goes_on_where_the_last_one_stopped(sums):
    sums.execute("INSERT INTO r VALUES (1, 1), (2, 1), (3, 1)")
    cursor = sums.cursor().execute("SUBSCRIBE TO v")
    first = cursor.fetchone()
    sums.execute("INSERT INTO r VALUES (4, 1)")
    rest = cursor.to_arrow_table().column("a").to_pylist()
    assert sorted([first[0], *rest]) == [1, 2, 3, 4]
    assert cursor.fetchall() == [] and cursor.fetchone() is None


def test_fetched_columns_have_the_types_of_the_view(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['values']}")
    cursor = con.cursor().execute("SUBSCRIBE TO v")
    described = [(name, str(type_)) for name, type_, *_ in cursor.description]
    view = [(name, type_) for name, type_, *_ in con.execute("DESCRIBE v").fetchall()]
    control = [("_change_type", "VARCHAR"), ("_commit_version", "BIGINT"), ("_commit_timestamp", "TIMESTAMP")]
    assert described == view + control
    con.execute("INSERT INTO r VALUES (1, 'é', 170141183460469231731687303715884105727, '1 month', 1.5, '2024-02-29')")
    [row] = cursor.fetchall()
    assert list(row[:5]) == list(con.execute("FROM v").fetchone())
    con.execute("DELETE FROM r")
    assert [row[5] for row in cursor.fetchall()] == ["delete"]


def test_arrow_columns_have_the_types_that_reading_the_view_has(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['values']}")
    with con.view("v").subscribe() as feed:
        con.execute("INSERT INTO r VALUES (1, 'é', 5, '1 month', 1.5, '2024-02-29'), (2, NULL, NULL, NULL, 1, NULL)")
        found, read = feed.poll(), con.execute("FROM v").to_arrow_table()
        assert found.schema.types[:-3] == read.schema.types
        values = [list(row.values())[:-3] for row in found.to_pylist()]
        assert Counter(map(repr, values)) == Counter(repr(list(row.values())) for row in read.to_pylist())


def test_a_bag_gives_one_row_per_copy(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM s")
    with con.view("v").subscribe() as feed:
        con.execute("INSERT INTO s VALUES (1, 1), (1, 2), (1, 2)")
        assert short(feed.poll()) == [(1, "insert")] * 3
        con.execute("DELETE FROM s WHERE c = 2")
        assert short(feed.poll()) == [(1, "delete")] * 2
        con.execute("UPDATE s SET c = 9")
        assert feed.poll() is None


def test_a_row_that_having_lets_through_appears_and_vanishes(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, sum(c) AS c FROM s GROUP BY a HAVING sum(c) > 5")
    with con.view("v").subscribe() as feed:
        for c, expected in [
            (5, []),
            (1, [(1, 6, "insert")]),
            (1, [(1, 6, "update_preimage"), (1, 7, "update_postimage")]),
            (-2, [(1, 7, "delete")]),
            (0, []),
        ]:
            con.execute("INSERT INTO s VALUES (1, ?)", [c])
            assert short(feed.poll()) == expected


def test_an_aggregate_without_groups_is_there_from_the_first(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(c) AS c, min(c) AS least FROM s")
    with con.view("v").subscribe() as feed:
        assert short(feed.poll()) == [(0, None, None, "insert")]
        con.execute("INSERT INTO s VALUES (1, 7)")
        assert short(feed.poll()) == [(0, None, None, "update_preimage"), (1, 7, 7, "update_postimage")]
        con.execute("DELETE FROM s")
        assert short(feed.poll()) == [(1, 7, 7, "update_preimage"), (0, None, None, "update_postimage")]


def test_a_change_that_only_the_extrema_see(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, min(c) AS least, count(DISTINCT c) AS d FROM s GROUP BY a")
    con.execute("INSERT INTO s VALUES (1, 5), (1, 7), (2, 5)")
    with con.view("v").subscribe(snapshot=False) as feed:
        con.execute("UPDATE s SET c = 3 WHERE a = 1 AND c = 5")
        assert short(feed.poll()) == [(1, 5, 2, "update_preimage"), (1, 3, 2, "update_postimage")]
        con.execute("UPDATE s SET c = 3 WHERE a = 1")
        assert short(feed.poll()) == [(1, 3, 2, "update_preimage"), (1, 3, 1, "update_postimage")]
        con.execute("DELETE FROM s WHERE a = 2")
        assert short(feed.poll()) == [(2, 5, 1, "delete")]
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_a_large_change_comes_whole_and_the_next_one_too(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, c FROM s")
    with con.view("v").subscribe() as feed:
        for number in range(3):
            con.execute(f"INSERT INTO s SELECT {number}, range FROM range(150_000)")
            con.execute(f"INSERT INTO s VALUES (9, {number})")
            tables = [next(feed), next(feed)]
            assert [table.num_rows for table in tables] == [150_000, 1]
        con.execute("DELETE FROM s")
        assert len(next(feed)) == 450_003


def test_two_subscribers_read_at_their_own_pace(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['bag']}")
    writer = Writer(con, seed=8)
    eager, lazy = Copy(), Copy()
    with con.view("v").subscribe(timeout=0) as one, con.view("v").subscribe(timeout=0) as other:
        for step in range(31):
            writer.run(1)
            eager.take(told(one.poll()))
            if step % 15 == 14:
                for table in other:
                    lazy.take(told(table))
        lazy.take(told(other.poll()))
    assert_follows(eager, writer, Counter())
    assert eager.held == lazy.held


# Which epochs are told ---------------------------------------------------------------------------


def test_a_transaction_is_told_at_commit_and_not_at_rollback(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM s GROUP BY a")
    con.execute("INSERT INTO s VALUES (1, 1)")
    with con.view("v").subscribe() as feed:
        feed.poll()
        con.execute("BEGIN; INSERT INTO s VALUES (1, 2)")
        assert con.execute("FROM v").fetchall() == [(1, 2)]
        with con.view("v").subscribe() as inside:
            assert short(inside.poll()) == [(1, 1, "insert")], "a snapshot is of what is committed"
        con.execute("INSERT INTO s VALUES (2, 1)")
        con.execute("FROM v").fetchall()
        assert feed.poll() is None
        con.execute("ROLLBACK")
        assert feed.poll() is None
        con.execute("BEGIN; INSERT INTO s VALUES (1, 2); DELETE FROM s WHERE c = 1; INSERT INTO s VALUES (3, 1)")
        con.execute("FROM v").fetchall()
        con.execute("COMMIT")
        changes = told(feed.poll())
    assert [row[:3] for row in changes] == [(3, 1, "insert")], "what cancels within the transaction is not told"
    assert {row[3] for row in changes} == {epoch(con)}


def test_every_way_of_writing_is_told_once(sums):
    with sums.view("v").subscribe() as feed:
        sums.apply({"r": pa.table({"a": [1, 1, 2], "b": [1, 2, 3]})})
        assert short(feed.poll()) == [(1, 3, "insert"), (2, 3, "insert")]
        sums.apply({"r": pa.table({"a": [2, 2], "b": [3, 4], "_weight": [-1, 1]})})
        assert short(feed.poll()) == [(2, 3, "update_preimage"), (2, 4, "update_postimage")]
        sums.executemany("INSERT INTO r VALUES (?, ?)", [(3, 1), (3, 1), (4, 1)])
        assert short(feed.poll()) == [(3, 2, "insert"), (4, 1, "insert")]
        sums.execute("UPDATE r SET b = b + 1 WHERE a = 4")
        assert short(feed.poll()) == [(4, 1, "update_preimage"), (4, 2, "update_postimage")]
        sums.execute("TRUNCATE r")
        assert sorted(row[-1] for row in short(feed.poll())) == ["delete"] * 4
        with pytest.raises(sqlfront.IntegrityError):
            sums.apply_row("r", (9, 9), -1)
        assert feed.poll() is None


def test_single_rows_are_told_and_take_the_short_way(sums):
    def short_way_is_open():
        return sums.session.database.engine.gates["main.r"]._open

    sums.apply_row("r", (1, 1))
    assert short_way_is_open()
    with sums.view("v").subscribe(snapshot=False) as feed:
        number = sums.apply_row("r", (1, 2))
        assert [row[-2] for row in told(feed.poll())] == [number] * 2
        sums.apply_row("r", (1, 2), -1)
        assert short(feed.poll()) == [(1, 3, "update_preimage"), (1, 1, "update_postimage")]
        assert short_way_is_open()
    assert short_way_is_open()
    sums.apply_row("r", (1, 2))
    assert rows(sums) == Counter(["[1, 3]"])


def test_writers_that_bypass_us_are_told_when_they_are_noticed(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, c FROM s")
    with con.view("v").subscribe() as feed:
        con.session.database.root.cursor().execute("INSERT INTO s VALUES (1, 1)")
        assert con.execute("FROM v").fetchall() == [(1, 1)]
        assert short(feed.poll()) == [(1, 1, "insert")]


def test_a_change_whose_rows_cannot_be_computed_ends_the_feed_not_the_epoch(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, CAST(sum(c) AS TINYINT) AS c FROM s GROUP BY a")
    with con.view("v").subscribe() as feed, con.view("v").subscribe() as other:
        con.execute("INSERT INTO s VALUES (1, 1)")
        con.execute("INSERT INTO s VALUES (1, 1000)")
        assert con.execute("SELECT count(*) FROM s").fetchall() == [(2,)]
        assert short(feed.poll()) == [(1, 1, "insert")]
        with pytest.raises(sqlfront.DataError, match="cannot compute a row"):
            feed.poll()
        con.execute("DELETE FROM s WHERE c = 1000")
        with con.view("v").subscribe() as again:
            assert short(again.poll()) == [(1, 1, "insert")]
            con.execute("INSERT INTO s VALUES (1, 1)")
            assert short(again.poll()) == [(1, 1, "update_preimage"), (1, 2, "update_postimage")]
            assert short(other.poll()) == [(1, 1, "insert")]
            with pytest.raises(sqlfront.DataError):
                other.poll()


def test_the_changes_of_an_epoch(sums):
    sums.execute("CREATE MATERIALIZED VIEW w AS SELECT b FROM r")
    assert sums.apply({"r": pa.table({"a": [1], "b": [1]})}).changes == {}
    with sums.view("w").subscribe(), sums.view("v").subscribe():
        changes = sums.apply({"r": pa.table({"a": [1, 1], "b": [5, 5]})}).changes
        assert changes["w"].to_pydict() == {"b": [5], "_weight": [2]}
        assert told(changes["v"]) == [(1, 1, -1), (1, 11, 1)]
        same = sums.apply({"r": pa.table({"a": [1, 1], "b": [4, 5], "_weight": [0, 0]})}).changes
        assert [len(table) for table in same.values()] == [0, 0]
    assert sums.apply({"r": pa.table({"a": [1], "b": [1]})}).changes == {}


# The view changes under the feed -----------------------------------------------------------------


def test_refresh_keeps_the_subscription(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, max(c) AS c FROM s GROUP BY a")
    with con.view("v").subscribe() as feed:
        con.execute("INSERT INTO s VALUES (1, 1)")
        con.execute("REFRESH MATERIALIZED VIEW v")
        con.execute("INSERT INTO s VALUES (1, 2)")
        rest = [(1, 1, "update_preimage"), (1, 2, "update_postimage")]
        assert short(feed.poll()) == [(1, 1, "insert"), *rest]


@pytest.mark.parametrize("statement", ["DROP MATERIALIZED VIEW v", "CREATE OR REPLACE MATERIALIZED VIEW v AS FROM s"])
def test_a_dropped_view_ends_its_subscriptions(con, statement):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM s")
    view = con.view("v")
    feed = view.subscribe()
    con.execute("INSERT INTO s VALUES (1, 1)")
    con.execute(statement)
    con.execute("INSERT INTO s VALUES (2, 1)")
    assert short(feed.poll()) == [(1, "insert")], "what was told before is delivered"
    for _ in range(2):
        with pytest.raises(sqlfront.OperationalError, match="v was dropped or replaced"):
            feed.poll()
    feed.close()
    for refused in (view.subscribe, view.count):
        with pytest.raises(sqlfront.ProgrammingError, match="was dropped or replaced"):
            refused()
    con.execute("INSERT INTO s VALUES (3, 1)")


def test_a_view_that_cannot_be_trusted_ends_its_subscriptions_until_refresh(con):
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM s")
    feed = con.view("v").subscribe()
    con.session.database.root.execute("DROP TABLE s; CREATE TABLE s (a BIGINT, c BIGINT)")
    with pytest.raises(sqlfront.OperationalError):
        con.execute("FROM v").fetchall()
    with pytest.raises(sqlfront.OperationalError, match="cannot be trusted"):
        feed.poll()
    con.execute("REFRESH MATERIALIZED VIEW v")
    with con.view("v").subscribe() as again:
        con.execute("INSERT INTO s VALUES (7, 7)")
        assert short(again.poll()) == [(7, "insert")]


def test_closing_the_database_ends_what_waits(sums):
    feed = sums.view("v").subscribe()
    sums.close()
    with pytest.raises(sqlfront.InterfaceError, match="database is closed"):
        next(feed)


# Resuming and falling behind ---------------------------------------------------------------------


def test_a_reader_goes_on_after_an_epoch(con):
    con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEWS['bag']}")
    writer = Writer(con, seed=9)
    with con.view("v").subscribe() as keeper:
        writer.run(30)
        for version in writer.held:
            copy = Copy(writer.held[version])
            with con.view("v").subscribe(after=version, timeout=0) as feed:
                for table in feed:
                    copy.take(told(table))
                    assert feed.version == max(copy.held)
            assert copy.rows == rows(con)
            assert not copy.held or min(copy.held) > version
        sql = con.cursor().execute(f"SUBSCRIBE TO v WITH (after = {list(writer.held)[9]})").fetchall()
        assert min(row[-2] for row in sql) > list(writer.held)[9]
        assert len(keeper.poll()) > len(sql)


def test_an_epoch_that_is_no_longer_held_is_an_error_with_the_oldest_that_is(sums):
    sums.apply_row("r", (1, 1))
    before = epoch(sums)
    with sums.view("v").subscribe(buffer=4, timeout=0) as feed:
        for number in range(2, 7):
            sums.apply_row("r", (number, 1))
        oldest = before + 1
        with pytest.raises(sqlfront.OperationalError, match=f"oldest epoch that can be resumed from is {oldest}"):
            sums.view("v").subscribe(after=before)
        with sums.view("v").subscribe(after=oldest, timeout=0) as other:
            assert [table.column("a").to_pylist() for table in other] == [[3], [4], [5], [6]]
        assert [row[0] for row in told(next(feed))] == [1], "the snapshot is the reader's own"
        with pytest.raises(sqlfront.OperationalError, match="larger `buffer`"):
            next(feed)
    with pytest.raises(sqlfront.OperationalError, match=f"from is {epoch(sums)}"):
        sums.view("v").subscribe(after=oldest)
    with sums.view("v").subscribe(after=epoch(sums)) as feed:
        assert feed.poll() is None


def test_an_epoch_larger_than_the_buffer_is_held_until_the_next(sums):
    with sums.view("v").subscribe(buffer=2) as feed:
        sums.apply({"r": pa.table({"a": range(5), "b": range(5)})})
        assert len(feed.poll()) == 5
        sums.apply({"r": pa.table({"a": range(5, 10), "b": range(5)})})
        sums.apply_row("r", (10, 1))
        with pytest.raises(sqlfront.OperationalError, match="not held any more"):
            feed.poll()


def test_the_largest_buffer_counts_and_small_epochs_are_packed(sums):
    with sums.view("v").subscribe(buffer=1) as careless, sums.view("v").subscribe(buffer=700, timeout=0) as feed:
        for number in range(900):
            sums.apply_row("r", (number, 1))
        first = epoch(sums) - 700
        log = sums.session.database.views["main", "v"].feed._log
        assert log.since == first and log.rows == 700
        assert len(log._changes) < 256 + 3
        with sums.view("v").subscribe(after=first, timeout=0) as other:
            assert [table.column("a").to_pylist() for table in other] == [[number] for number in range(200, 900)]
        with sums.view("v").subscribe(after=first + 650) as other:
            assert other.poll().column("a").to_pylist() == list(range(850, 900))
        for reader in (careless, feed):
            with pytest.raises(sqlfront.OperationalError):
                reader.poll()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"after": 10**9}, "has not been yet"),
        ({"buffer": 0}, "number of rows, not 0"),
        ({"after": -1}, "not held any more"),
    ],
)
def test_options_that_make_no_sense(sums, options, words):
    for subscribe in (
        lambda: sums.view("v").subscribe(**options),
        lambda: sums.execute("SUBSCRIBE TO v WITH ({} = {})".format(*next(iter(options.items())))),
    ):
        with pytest.raises(sqlfront.Error, match=words):
            subscribe()
    assert sums.session.database.views["main", "v"].feed is None
    with pytest.raises(sqlfront.ProgrammingError, match="takes a int, not True"):
        sums.execute("SUBSCRIBE TO v WITH (after = true)")


def test_columns_named_as_the_feeds_own_are_refused(sums):
    sums.execute('CREATE MATERIALIZED VIEW w AS SELECT a AS "_Commit_version" FROM r')
    with pytest.raises(sqlfront.ProgrammingError, match="has a column _Commit_version"):
        sums.view("w").subscribe()


def test_versions_rise_when_the_file_is_opened_again(tmp_path):
    path, versions = str(tmp_path / "file.db"), []
    script = f"""
import os, sqlfront
con = sqlfront.connect({path!r})
with con.view("v").subscribe(snapshot=False) as feed:
    con.execute("INSERT INTO s VALUES (1, 1)")
    print(feed.poll().column("_commit_version")[0].as_py(), flush=True)
os._exit(1)
"""
    with database(path) as con:
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, c FROM s")
    for crashed in (False, True, False):
        if crashed:
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
            versions.append(int(done.stdout))
        else:
            with sqlfront.connect(path) as con, con.view("v").subscribe(snapshot=False) as feed:
                for _ in range(2):
                    con.execute("INSERT INTO s VALUES (1, 1)")
                    versions.append(feed.poll().column("_commit_version")[0].as_py())
    assert versions == sorted(set(versions)) and len(versions) == 5


# Threads -----------------------------------------------------------------------------------------


def test_an_iterator_waits_for_another_thread(sums):
    writer = sums.cursor()
    with sums.view("v").subscribe(timeout=30) as feed:
        timer = threading.Timer(0.2, lambda: writer.apply_row("r", (1, 1)))
        timer.start()
        assert short(next(feed)) == [(1, 1, "insert")]
        timer.join()


def test_waiting_ends_after_the_timeout_and_can_go_on(sums):
    with sums.view("v").subscribe(timeout=0.1) as feed:
        start = time.monotonic()
        assert list(feed) == []
        assert 0.1 <= time.monotonic() - start < 10
        assert feed.poll(0.1) is None
        sums.apply_row("r", (1, 1))
        assert len(list(feed)) == 1


def test_closing_from_another_thread_ends_the_iteration(sums):
    feed = sums.view("v").subscribe()
    timer = threading.Timer(0.2, feed.close)
    timer.start()
    assert list(feed) == []
    timer.join()
    assert list(feed) == []
    with pytest.raises(sqlfront.InterfaceError, match="subscription is closed"):
        feed.poll()
    feed.close()


def test_a_callback_may_write_and_close(sums):
    seen, other = [], sums.cursor()

    def callback(table):
        seen.append(short(table))
        if len(seen) < 3:
            other.apply_row("r", (len(seen) + 1, 0))
        else:
            thread.close()

    thread = sums.view("v").subscribe(callback)
    sums.apply_row("r", (1, 0))
    assert thread.wait(30)
    assert seen == [[(1, 0, "insert")], [(2, 0, "insert")], [(3, 0, "insert")]]
    assert thread.error is None
    assert sums.session.database.views["main", "v"].feed is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_raises_ends_its_subscription_only(sums):
    def callback(table):
        raise ValueError("mine")

    with sums.view("v").subscribe() as feed, sums.view("v").subscribe(callback) as thread:
        sums.apply_row("r", (1, 0))
        assert thread.wait(30)
        assert str(thread.error) == "mine"
        sums.apply_row("r", (2, 0))
        assert len(feed.poll()) == 2
    assert sums.session.database.views["main", "v"].feed is None


def test_a_callback_thread_ends_quietly_with_the_database(monkeypatch):
    printed = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    con = sqlfront.connect()
    con.execute("CREATE TABLE r (a BIGINT)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM r GROUP BY a")
    thread = con.view("v").subscribe(lambda table: None)
    con.close()
    assert thread.wait(30)
    assert isinstance(thread.error, sqlfront.InterfaceError) and "the database is closed" in str(thread.error)
    assert printed == []


def test_a_callback_thread_ends_after_the_timeout(sums):
    thread = sums.view("v").subscribe(list, timeout=0.1)
    assert thread.wait(30) and thread.error is None
    assert sums.session.database.views["main", "v"].feed is None


def test_readers_and_writers_in_many_threads(sums):
    def write(first: int) -> None:
        with sums.cursor() as con:
            for number in range(60):
                con.apply_row("r", (first, number))

    copies = [Copy() for _ in range(3)]
    feeds = [sums.view("v").subscribe(lambda table, copy=copy: copy.take(told_by(table))) for copy in copies]
    writers = [threading.Thread(target=write, args=(first,)) for first in range(3)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    deadline = time.monotonic() + 60
    while any(feed.version < epoch(sums) for feed in feeds) and time.monotonic() < deadline:
        time.sleep(0.02)
    for feed in feeds:
        feed.close()
        assert feed.error is None
    assert [copy.rows for copy in copies] == [rows(sums)] * 3
    assert len(copies[0].held) == 180


def told_by(table: pa.Table) -> list[tuple]:
    """As `told`, without DuckDB's default connection, which threads must not share."""
    rows = zip(*(column.to_pylist() for column in table.columns))
    return [(a, int(b), *rest) for a, b, *rest in rows]


def test_ctrl_c_interrupts_waiting_and_nothing_else(sums, request):
    import signal

    # A program that a shell has started in the background ignores it.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with sums.view("v").subscribe() as feed:
        timer = threading.Timer(0.3, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(feed)
        timer.join()
        sums.apply_row("r", (1, 1))
        assert short(feed.poll()) == [(1, 1, "insert")]


# Memory ------------------------------------------------------------------------------------------


def test_nothing_is_kept_after_the_last_close(sums):
    engine, entry = sums.session.database.engine, sums.session.database.views["main", "v"]
    one, other = sums.view("v").subscribe(), sums.view("v").subscribe()
    sums.apply({"r": pa.table({"a": range(1000), "b": range(1000)})})
    log = entry.feed._log
    one.close()
    one.close()
    assert entry.maintained.delta is not None and log.rows == 1000
    other.close()
    assert entry.maintained.delta is None and entry.feed is None
    assert log.rows == 0 and not log._changes
    assert not engine.subscribers.listened()


def test_a_subscription_that_is_forgotten_ends_with_the_next_epoch(sums):
    sums.apply_row("r", (1, 1))
    for table in sums.view("v").subscribe(timeout=0):
        assert len(table) == 1
    gc.collect()
    entry = sums.session.database.views["main", "v"]
    sums.apply_row("r", (1, 1))
    assert entry.feed is None and entry.maintained.delta is None
    assert sums.session.database.engine.gates["main.r"]._open


def test_the_memory_of_a_large_change_is_given_back(sums):
    with sums.view("v").subscribe():
        sums.apply({"r": pa.table({"a": range(200_000), "b": range(200_000)})})
        table = sums.session.database.views["main", "v"].maintained.delta.table
        assert table.bytes() < 50_000
        table._check()


def test_another_statement_ends_a_cursors_subscription(sums):
    cursor = sums.cursor()
    cursor.execute("SUBSCRIBE TO v WITH (snapshot = false)")
    assert cursor.fetchall() == []
    cursor.execute("SELECT 1")
    assert sums.session.database.views["main", "v"].feed is None
    assert cursor.fetchall() == [(1,)]


def test_a_snapshot_after_an_epoch_is_refused() -> None:
    """The snapshot has the changes after the epoch in it: both together would tell them twice."""
    with sqlfront.connect() as con:
        con.execute("CREATE TABLE r (a INTEGER); CREATE MATERIALIZED VIEW v AS SELECT a FROM r")
        with con.view("v").subscribe() as kept:
            con.execute("INSERT INTO r VALUES (1)")
            with pytest.raises(sqlfront.ProgrammingError, match="a snapshot or after an epoch, not with both"):
                con.execute("SUBSCRIBE TO v WITH (snapshot = true, after = 0)")
            with pytest.raises(sqlfront.ProgrammingError, match="not with both"):
                con.view("v").subscribe(snapshot=True, after=kept.version)
            for options in ("snapshot = false, after = 0", "after = 0"):
                assert len(con.cursor().execute(f"SUBSCRIBE TO v WITH ({options})").fetchall()) == 1
            assert len(con.cursor().execute("SUBSCRIBE TO v WITH (snapshot = true)").fetchall()) == 1


def test_a_change_is_computed_and_made_plain_once_for_all_subscribers(sums, monkeypatch):
    """Twenty readers share what is told: the change, its images, and its table in plain types."""
    view = sums.view("v")
    readers = [view.subscribe(snapshot=False) for _ in range(20)]
    calls = Counter()
    for name in ("images", "plain"):
        original = getattr(feed_log, name)
        monkeypatch.setattr(feed_log, name, lambda *a, of=original, name=name: calls.update([name]) or of(*a))
    for number in range(3):
        sums.apply({"r": pa.table({"a": [number], "b": [number]})})
        tables = [reader.poll() for reader in readers]
        assert tables[0].num_rows > 0 and len({id(table) for table in tables}) == 1
    assert calls == {"images": 3}, "words are read in plain types at once"
    for reader in readers:
        reader.close()
