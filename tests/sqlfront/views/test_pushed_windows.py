"""Window functions whose changes somebody reads: a subscriber's replayed feed is the view, and so are nodes above."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.output import window_columns
from sqlfront.maintenance.windows import qualified_rows, reached_rows
from tests.definition_oracle import same_bag
from tests.slices import parts
from tests.sqlfront.random_windows import COLUMNS, SCHEMA, Item, change, item
from tests.sqlfront.views.test_pulled_windows import query, same_rows

CONDITIONS = (
    "row_number() OVER (PARTITION BY g ORDER BY o, {all}) <= 2",
    "row_number() OVER (ORDER BY x DESC NULLS LAST, {all}) BETWEEN 3 AND 6",
    "rank() OVER (PARTITION BY h ORDER BY o DESC NULLS LAST) <= 2",
    "rank() OVER (ORDER BY o) = 4",
    "dense_rank() OVER (PARTITION BY g ORDER BY x NULLS FIRST) BETWEEN 2 AND 3",
    "percent_rank() OVER (PARTITION BY g ORDER BY o) >= 0.5",
    "percent_rank() OVER (ORDER BY o, x) < 0.25",
    "cume_dist() OVER (ORDER BY o) > 0.6",
    "cume_dist() OVER (PARTITION BY h ORDER BY x) <= 0.5",
    "ntile(4) OVER (ORDER BY f, {all}) = 4",
    "ntile(3) OVER (PARTITION BY g ORDER BY {all}) < 3",
    "row_number() OVER (PARTITION BY g ORDER BY {all}) % 2 = 1",
    "rank() OVER (ORDER BY o) <= 3 AND cume_dist() OVER (ORDER BY o) > 0.1",
)
ABOVE = (
    f"SELECT g, count(*), count(w0), {{}}(w0), {', '.join(f'count({one})' for one in COLUMNS)} FROM ({{}}) GROUP BY g"
)
"""All columns are read: they decide between rows that tie."""
COPIES = "SELECT count(*) > (SELECT count(*) FROM (SELECT DISTINCT * FROM t)) FROM t"


class Replay:
    """The rows that a view's feed tells."""

    def __init__(self, con: sqlfront.Connection, name: str) -> None:
        self._feed, self.rows = con.view(name).subscribe(), Counter[tuple[Any, ...]]()

    def poll(self) -> Counter[tuple[Any, ...]]:
        """The rows after all epochs so far; none is told to go that is not there."""
        for batch in iter(self._feed.poll, None):
            for *told, kind, _, _ in (tuple(row.values()) for row in batch.to_pylist()):
                row = plain(told)
                self.rows[row] += 1 if kind in ("insert", "update_postimage") else -1
                assert self.rows[row] >= 0, row
        return +self.rows


def plain(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row with whole numbers as Python's: a HUGEINT is a decimal in a feed."""
    return tuple(int(one) if isinstance(one, Decimal) and one == int(one) else one for one in row)


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    yield connection
    connection.close()


def follow(con: sqlfront.Connection, rng: random.Random, items: list[Item], condition: str, steps: int) -> int:
    """Random changes, undone ones too, of a view with a subscriber and of one with nodes above its functions; at how
    many steps they were compared."""
    every = ", ".join(f"{column} ASC NULLS LAST" for column in COLUMNS)
    where = f" QUALIFY {condition.format(all=every)}" if condition else ""
    written, completed = (query([getattr(one, side) for one in items]) + where for side in ("written", "completed"))
    con.execute(f"CREATE MATERIALIZED VIEW v AS {written}")
    value = "count" if "stddev" in written else "max"  # DuckDB rounds what it subtracts.
    con.execute(f"CREATE MATERIALIZED VIEW a AS {ABOVE.format(value, written)}")
    assert "computed when the view is read" in con.explain("v").to_dict()["reason"]
    replay, compared = Replay(con, "v"), 0
    for step in range(steps):
        undone = rng.random() < 0.2
        if undone:
            con.execute("BEGIN")
        try:
            for _ in range(rng.choice((1, 1, 1, 3))):
                con.execute(change(rng))
            expected = con.execute(completed).fetchall()
            above = con.execute(ABOVE.format(value, completed)).fetchall()
            # Which copy of a row QUALIFY leaves is open, and so are the values that the copy has in other orders.
            is_open = condition and con.execute(COPIES).fetchone() == (True,)
            found = con.execute("FROM a").fetchall()  # In a transaction a row is refused when it is read.
        except sqlfront.Error as error:
            assert "overflow" in str(error).lower() or "range" in str(error).lower(), error
            if undone:
                con.execute("ROLLBACK")
            continue
        compared += 1
        assert is_open or same_bag(found, above), (step, written)
        if undone:
            con.execute("ROLLBACK")
            continue
        assert is_open or same_rows(con.execute("FROM v").fetchall(), expected), (step, completed)
        assert replay.poll() == Counter(map(plain, con.execute("FROM v").fetchall())), (step, written)
    con.execute("DELETE FROM t")
    assert replay.poll() == Counter()
    assert con.execute("FROM a").fetchall() == []
    return compared


def conditioned(rng: random.Random) -> str:
    return rng.choice(CONDITIONS) if rng.random() < 0.5 else ""


@pytest.mark.parametrize("sought", [False, True])
@pytest.mark.parametrize("seed", parts(4))
def test_random_windows_with_listeners(
    con: sqlfront.Connection, seed: int, sought: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek(sought, monkeypatch)
    rng = random.Random(seed)
    con.execute(SCHEMA)
    for _ in range(3):
        con.execute(change(rng))
    assert follow(con, rng, [item(rng) for _ in range(rng.randint(1, 3))], conditioned(rng), 10) > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_windows_with_listeners(
    con: sqlfront.Connection, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek(bool(seed % 2), monkeypatch)
    rng = random.Random(seed)
    con.execute(SCHEMA)
    follow(con, rng, [item(rng) for _ in range(rng.randint(1, 3))], conditioned(rng), 50)


def seek(sought: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find all rows along trees."""
    for module in (window_columns, qualified_rows, reached_rows) if sought else ():
        monkeypatch.setattr(module, "STEPS_SOUGHT", 0)


REACHED = (
    *(f"{name} OVER w" for name in ("row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()")),
    *(f"{name} OVER w" for name in ("ntile(3)", "lag(x, 2, -1)", "lead(x)", "first_value(x)", "nth_value(x, 3)")),
    *(f"{name} OVER w" for name in ("sum(x)", "max(x)")),
    "sum(x) OVER (w ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "sum(x) OVER (w ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
    "last_value(x) OVER (w ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "count(*) OVER (w RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    "sum(x) OVER (w GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "min(x) OVER (w GROUPS BETWEEN 3 PRECEDING AND 2 PRECEDING)",
    "sum(x) OVER (PARTITION BY g)",
)
CHANGES = (
    "INSERT INTO t VALUES (1, 6, 50)",
    "INSERT INTO t VALUES (1, 6, 50), (1, 6, 51), (2, NULL, 7), (3, 1, 1)",
    "UPDATE t SET o = 15 WHERE g = 1 AND o = 4",
    "UPDATE t SET x = x + 1 WHERE g = 2 AND o = 9",
    "DELETE FROM t WHERE g = 1 AND x = 50",
    "INSERT INTO t VALUES (1, -5, 3), (2, 99, 4)",
    "DELETE FROM t WHERE o = 10 OR o IS NULL",
    "UPDATE t SET g = 3 - g WHERE o BETWEEN 5 AND 7",
    "DELETE FROM t WHERE g = 1",
)


def test_all_rows_that_a_changed_row_reaches_are_told(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE t (g INTEGER, o INTEGER, x INTEGER)")
    con.execute("INSERT INTO t SELECT 1 + i % 2, i // 3, i * 7 % 13 FROM range(72) r(i)")
    for number, function in enumerate(REACHED):
        con.execute(
            f"CREATE MATERIALIZED VIEW v{number} AS "
            f"SELECT g, o, x, {function} AS w FROM t WINDOW w AS (PARTITION BY g ORDER BY o)"
        )
    replays = [Replay(con, f"v{number}") for number in range(len(REACHED))]
    for text in CHANGES:
        con.execute(text)
        for number, replay in enumerate(replays):
            rows = con.execute(f"FROM v{number}").fetchall()
            assert replay.poll() == Counter(map(plain, rows)), (text, REACHED[number])


def test_ranges_of_ranks_have_the_rows_that_meet_the_condition(
    con: sqlfront.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek(True, monkeypatch)
    con.execute("CREATE TABLE t (g INTEGER, h INTEGER, o INTEGER, x BIGINT, f DOUBLE, s VARCHAR, c DECIMAL(9, 2))")
    con.execute("INSERT INTO t SELECT i % 2, i % 3, i % 11, i % 4, i, 'a', 0 FROM range(43) r(i)")
    con.execute("INSERT INTO t SELECT * FROM t WHERE f < 3")
    every = ", ".join(f"{column} ASC NULLS LAST" for column in COLUMNS)
    for number, condition in enumerate(CONDITIONS):
        text = f"SELECT {', '.join(COLUMNS)} FROM t QUALIFY {condition.format(all=every)}"
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {text}")
        assert same_bag(con.execute(f"FROM v{number}").fetchall(), con.execute(text).fetchall()), condition
        expected = [row for row in con.execute(text).fetchall() if row[:2] == (1, 2)]
        assert same_bag(con.execute(f"FROM v{number} WHERE g = 1 AND h = 2").fetchall(), expected), condition


def test_rows_are_not_told_between_changes_that_cancel(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE t (o INTEGER, x INTEGER); INSERT INTO t SELECT 2 * i, i FROM range(1000) r(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT o, x, row_number() OVER (ORDER BY o) AS n FROM t")
    feed, told = con.view("v").subscribe(snapshot=False), list[int]()
    for text in (
        "UPDATE t SET x = -1 WHERE o = 100",
        "UPDATE t SET o = 121 WHERE o = 100",
        "DELETE FROM t WHERE o = 1990",
    ):
        con.execute(text)
        batch = feed.poll()
        assert batch is not None
        told.append(batch.num_rows)
    assert told == [2, 22, 9]


NEIGHBOURS = (
    "SELECT k, o, lag(x) OVER w AS l, lead(x, 2, -1) OVER w AS m, sum(x) OVER (w ROWS BETWEEN 3 PRECEDING AND 1 "
    "FOLLOWING) AS s, max(x) OVER (w ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS g "
    "FROM t WINDOW w AS (PARTITION BY k ORDER BY o)"
)
FIRST = "SELECT o, x, row_number() OVER (PARTITION BY k ORDER BY o) AS n FROM t QUALIFY n <= 3"
SAME = "SELECT o, x FROM t QUALIFY rank() OVER (PARTITION BY k ORDER BY o) <= 3"
DENSE = "SELECT o, x FROM t QUALIFY dense_rank() OVER (PARTITION BY k ORDER BY o) BETWEEN 201 AND 203"
ABOVE_FIRST = (
    "SELECT sum(x) AS s FROM (SELECT x, row_number() OVER (PARTITION BY k ORDER BY o) AS n FROM t) WHERE n <= 3"
)


def steps_of_a_change(text: str, rows: int) -> float:
    """What a change in one partition of so many rows takes while somebody reads the changes."""
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE t (k INTEGER, o INTEGER, x INTEGER)")
    con.execute(f"INSERT INTO t SELECT 0, 2 * i, i % 1000 FROM range({rows}) r(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    view, rng, taken = con.view("v"), random.Random(rows), list[int]()
    feed = view.subscribe(snapshot=False)
    for _ in range(20):
        before = view.cost()["steps"]
        con.apply_row("t", (0, 2 * rng.randrange(rows) + 1, 1))
        con.apply_row("t", (0, 1, 1), 1)
        con.apply_row("t", (0, 1, 1), -1)
        taken.append(view.cost()["steps"] - before)
    assert feed.poll() is not None
    con.close()
    return statistics.mean(taken)


@pytest.mark.parametrize("text", [NEIGHBOURS, FIRST, SAME, DENSE, ABOVE_FIRST])
def test_steps_of_a_listener_grow_as_a_logarithm(text: str) -> None:
    first, last = steps_of_a_change(text, 1_000), steps_of_a_change(text, 30_000)
    assert math.log(last / first) / math.log(30) < 0.15, (first, last)


def test_a_change_that_does_not_find_room_is_refused(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE t (o INTEGER, x INTEGER); INSERT INTO t SELECT i, i FROM range(100_000) r(i)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT o, x, sum(x) OVER (ORDER BY o) AS s FROM t")
    con.execute("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n, max(s) AS m FROM v")
    con.execute("SET memory_limit = '5MB'")
    with pytest.raises(sqlfront.OperationalError, match=r"(?s)the change of above would.* 100,001 rows .*memory_limit"):
        con.execute("INSERT INTO t VALUES (-1, 1)")
    con.execute("INSERT INTO t VALUES (100_000, 5)")
    assert con.execute("FROM above").fetchall() == [(100_001, 4_999_950_005)]
    con.execute("SET memory_limit = '4GB'")
    con.execute("INSERT INTO t VALUES (-1, 1)")
    assert con.execute("FROM above").fetchall() == [(100_002, 4_999_950_006)]


@pytest.mark.parametrize(("function", "told"), [
    ("lag(x) OVER (ORDER BY o) AS w FROM t", "O(1)"),
    ("sum(x) OVER (ORDER BY o RANGE 3 PRECEDING) AS w FROM t", "O(1 + rows of the frames around the row)"),
    ("sum(x) OVER (ORDER BY o) AS w FROM t", "O(N)"),
    ("row_number() OVER (ORDER BY o) AS w FROM t QUALIFY w <= 3", "O(1)"),
])  # fmt: skip
def test_explain_says_how_many_rows_a_change_tells(con: sqlfront.Connection, function: str, told: str) -> None:
    con.execute("CREATE TABLE t (o INTEGER, x INTEGER)")
    assert f"is told {told} rows for a changed row" in con.explain(f"SELECT o, x, {function}").to_dict()["reason"]
