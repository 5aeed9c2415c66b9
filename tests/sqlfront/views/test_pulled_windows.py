"""Window functions that are computed when a view is read: equal to DuckDB's, with the order completed."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.output import window_columns
from tests.definition_oracle import same_bag
from tests.following import is_query
from tests.judges import judge
from tests.slices import parts
from tests.sqlfront.random_windows import COLUMNS, SCHEMA, Item, change, item

FUNCTIONS = 3
ALL = ", ".join(COLUMNS)


@pytest.fixture
def con() -> Iterator[sqlfront.Connection]:
    connection = sqlfront.connect()
    yield connection
    connection.close()


def same_rows(found: list[Any], expected: list[Any]) -> bool:
    """Whether rows are the same in each window: how the values of copies of a row pair up in two orders is open."""
    own = len(COLUMNS)
    pairs = [(row[:own], row[own:]) for row in found], [(row[:own], row[own:]) for row in expected]
    numbers = range(len(pairs[1][0][1]) if expected else 0)
    one, other = ([[(*base, values[n]) for base, values in side] for n in numbers] for side in pairs)
    return len(found) == len(expected) and all(map(same_bag, one, other))


def query(items: list[str]) -> str:
    return f"SELECT {ALL}, {', '.join(f'{text} AS w{number}' for number, text in enumerate(items))} FROM t"


def follow(con: sqlfront.Connection, rng: random.Random, items: list[Item], steps: int) -> int:
    """Random changes, undone ones too; the number of steps at which the rows were compared."""
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query([one.written for one in items])} ORDER BY o DESC, x")
    oracle, compared = query([one.completed for one in items]), 0
    assert is_pulled(con, "v")
    for step in range(steps):
        undone = rng.random() < 0.2
        if undone:
            con.execute("BEGIN")
        try:
            con.execute(change(rng))
            expected = con.execute(oracle).fetchall()
        except sqlfront.Error as error:
            assert "overflow" in str(error).lower() or "range" in str(error).lower(), error
            if undone:
                con.execute("ROLLBACK")
            continue
        compared += 1
        assert same_rows(con.execute("FROM v").fetchall(), expected), (step, oracle)
        kept = [row for row in expected if row[0] == 1]
        assert same_rows(con.execute("FROM v WHERE g = 1").fetchall(), kept), (step, oracle)
        if undone:
            con.execute("ROLLBACK")
        else:
            assert same_rows(con.view("v").top(10_000), expected), (step, oracle)
    con.execute("DELETE FROM t")
    assert con.execute("FROM v").fetchall() == []
    return compared


def is_pulled(con: sqlfront.Connection, name: str) -> bool:
    return "computed when the view is read" in con.explain(name).to_dict()["reason"]


def pulled_items(rng: random.Random) -> list[Item]:
    return [item(rng) for _ in range(rng.randint(1, FUNCTIONS))]


@pytest.mark.parametrize("sought", [False, True])
@pytest.mark.parametrize("seed", parts(4))
def test_random_windows(con: sqlfront.Connection, seed: int, sought: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if sought:
        monkeypatch.setattr(window_columns, "STEPS_SOUGHT", 0)
    rng = random.Random(seed)
    con.execute(SCHEMA)
    for _ in range(3):
        con.execute(change(rng))
    assert follow(con, rng, pulled_items(rng), 10) > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_windows(con: sqlfront.Connection, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(window_columns, "STEPS_SOUGHT", 0)
    rng = random.Random(seed)
    con.execute(SCHEMA)
    follow(con, rng, pulled_items(rng), 50)


@pytest.mark.parametrize("seed", parts(2))
def test_touched_groups_say_the_same(con: sqlfront.Connection, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    con.execute(SCHEMA)
    con.execute(change(rng))
    text = query([item(rng, total=True).written for _ in range(FUNCTIONS)])
    con.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    with monkeypatch.context() as patched:
        patched.setattr("sqlfront.cut.query_blocks.pulled_shape", lambda *arguments: None)
        con.execute(f"CREATE MATERIALIZED VIEW touched AS {text}")
    assert is_pulled(con, "v")
    assert not is_pulled(con, "touched")
    for _ in range(8):
        try:
            con.execute(change(rng))
        except sqlfront.DataError:
            continue
        assert same_rows(con.execute("FROM v").fetchall(), con.execute("FROM touched").fetchall()), text


FIXED = (
    "row_number() OVER (PARTITION BY g ORDER BY o, x)",
    "rank() OVER (PARTITION BY g ORDER BY o)",
    "sum(x) OVER (PARTITION BY g ORDER BY o, x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "sum(x) OVER (PARTITION BY g ORDER BY o DESC NULLS LAST)",
    "sum(x) OVER (PARTITION BY g ORDER BY o GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING)",
    "lag(x) OVER (ORDER BY x DESC, g, o)",
)
COPIES = "(1, 1, 5), (1, 1, 5), (1, 2, 7), (1, NULL, 1), (2, 1, 3), (2, 3, 4), (2, 3, 4), (2, 9, 8)"


@pytest.mark.parametrize("sought", [False, True])
def test_copies_peers_and_partitions(con: sqlfront.Connection, sought: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if sought:
        monkeypatch.setattr(window_columns, "STEPS_SOUGHT", 0)
    con.execute(f"CREATE TABLE t (g INTEGER, o INTEGER, x INTEGER); INSERT INTO t VALUES {COPIES}")
    text = f"SELECT g, o, x, {', '.join(FIXED)} FROM t"
    expected = con.execute(text).fetchall()
    con.execute(f"CREATE MATERIALIZED VIEW v AS {text} ORDER BY x")
    for found in (con.execute("FROM v").fetchall(), con.view("v").top(100)):
        for place in range(3, 3 + len(FIXED)):
            assert same_bag(*([(*row[:3], row[place]) for row in rows] for rows in (found, expected))), FIXED[place - 3]


QUERIES = [
    "SELECT d, x, sum(x) OVER (ORDER BY d RANGE BETWEEN INTERVAL 2 DAYS PRECEDING AND CURRENT ROW) AS s FROM "
    "(SELECT DATE '2026-01-01' + b AS d, x FROM r)",
    "SELECT a, x, count(*) OVER (ORDER BY t DESC RANGE BETWEEN INTERVAL 36 HOURS PRECEDING AND INTERVAL 1 DAY "
    "FOLLOWING) AS n FROM (SELECT TIMESTAMP '2026-01-01' + to_hours(12 * b) AS t, a, x FROM r)",
    "SELECT a, b, x, row_number() OVER (PARTITION BY a ORDER BY b, x, s) AS k FROM r QUALIFY k BETWEEN 2 AND 3",
    "SELECT a, row_number() OVER (PARTITION BY a ORDER BY x, b, s) AS k, sum(x) OVER (PARTITION BY a) AS t FROM r "
    "QUALIFY k = 1 AND t > 2",
    "SELECT a, b, x, sum(x) OVER (PARTITION BY a ORDER BY b, x, s) - x AS before FROM r QUALIFY before > 2",
    "SELECT a, x, rank() OVER (ORDER BY x) AS place FROM r QUALIFY place <= 3 ORDER BY a",
    "SELECT a, total, total - lag(total) OVER (ORDER BY a) AS d FROM (SELECT a, sum(x) AS total FROM r GROUP BY a)",
    "SELECT b, n, row_number() OVER (PARTITION BY n ORDER BY b, x, s, r.a) AS k FROM r JOIN u ON r.a = u.a",
    "SELECT a, lag(x, 2, b) OVER (PARTITION BY a ORDER BY b, x, s) AS p, lead(x, 1, -1) OVER (ORDER BY x, a, b, s) "
    "FROM (SELECT DISTINCT a, b, x, s FROM r)",
    "SELECT a, max(s) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS m, b FROM "
    "(SELECT DISTINCT a, b, s FROM r) ORDER BY m, b",
    "SELECT x, avg(x) FILTER (WHERE b > 1) OVER (ORDER BY x GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM r "
    "ORDER BY x DESC LIMIT 3",
    "SELECT a, sum(f) OVER (PARTITION BY a ORDER BY b RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS m FROM r",
]


def r_change(rng: random.Random) -> str:
    number = lambda: rng.choice(("NULL", "1", "2", "3", "4"))  # noqa: E731
    kind = rng.random()
    if kind < 0.6:
        rows = [
            f"({number()}, {number()}, {number()}, {rng.choice(('NULL', '0.5', '1e300', 'CAST(-1e300 AS DOUBLE)'))}, "
            f"{rng.choice(('NULL', repr('a'), repr('b')))})"
            for _ in range(4)
        ]
        return f"INSERT INTO r VALUES {', '.join(rows + rows[:1])}"
    if kind < 0.8:
        return f"UPDATE r SET a = {number()}, x = {number()} WHERE b = {number()}"
    return f"DELETE FROM r WHERE a IS NOT DISTINCT FROM {number()}"


@pytest.mark.parametrize("text", QUERIES)
def test_windows_over_joins_groups_and_filters(con: sqlfront.Connection, text: str) -> None:
    """As DuckDB computes the query with its orders completed."""
    rng = random.Random(text)
    con.execute("CREATE TABLE r (a INTEGER, b INTEGER, x INTEGER, f DOUBLE, s VARCHAR)")
    con.execute("CREATE TABLE u (a INTEGER, n INTEGER); INSERT INTO u VALUES (1, 1), (1, 2), (2, 1), (3, NULL)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    con.execute("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM v")
    assert is_pulled(con, "v")
    feed, rows = con.view("v").subscribe(snapshot=False), list[tuple[Any, ...]]()
    seen = set()
    for _ in range(10):
        con.execute(r_change(rng))
        assert is_query(con)
        found = con.execute("FROM v").fetchall()
        assert con.execute("FROM above").fetchall() == [(len(found),)]
        for batch in iter(feed.poll, None):
            for *told, kind, _, _ in (tuple(row.values()) for row in batch.to_pylist()):
                values = [int(value) if isinstance(value, Decimal) else value for value in told]  # HUGEINT in a feed.
                if kind in ("insert", "update_postimage"):
                    rows.append(tuple(values))
                else:
                    rows.remove(tuple(values))
        assert same_bag(rows, found)
        if "ORDER BY" in text.rpartition(")")[2]:
            assert same_bag(con.view("v").top(100), found)
        seen.add(str(found))
    assert len(seen) > 3


def test_rows_that_qualify_leaves_out_are_not_among_the_first(con: sqlfront.Connection) -> None:
    """The order is by columns of the join, which a ranked tree could keep; the rows are left out by a window."""
    con.execute("CREATE TABLE r (a INTEGER, b INTEGER, x INTEGER); CREATE TABLE u (a INTEGER, n INTEGER)")
    query = (
        "SELECT r.a, u.n, lag(b) OVER (PARTITION BY r.a ORDER BY x) AS l FROM r JOIN u USING (a) QUALIFY l > 1 "
        "ORDER BY r.a, u.n"
    )
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    con.execute("INSERT INTO u VALUES (1, 1), (2, 2), (3, 3)")
    con.execute("INSERT INTO r SELECT i % 4, i % 5, i FROM range(30) q(i)")
    for statement in ("SELECT 1", "DELETE FROM r WHERE x % 3 = 0", "DELETE FROM u WHERE n = 2"):
        con.execute(statement)
        expected = sorted(con.session.duck.execute(query).fetchall())
        assert 0 < len(expected) < con.execute("SELECT count(*) FROM r JOIN u USING (a)").fetchall()[0][0]
        assert sorted(con.view("v").top(100)) == expected
        assert sorted(con.execute("FROM v ORDER BY a, n LIMIT 100").fetchall()) == expected


def test_only_the_touched_partition_is_read_for_a_subscriber() -> None:
    found = {}
    for partitions in (10, 200):
        con = sqlfront.connect()
        con.execute("CREATE TABLE t (k INTEGER, o INTEGER)")
        con.execute(f"INSERT INTO t SELECT i % {partitions}, i FROM range({20 * partitions}) r(i)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT k, o, sum(o) OVER (PARTITION BY k ORDER BY o) AS s FROM t")
        feed = con.view("v").subscribe(snapshot=False)
        before = con.view("v").cost()["steps"]
        con.execute("INSERT INTO t VALUES (3, 1)")
        found[partitions] = con.view("v").cost()["steps"] - before
        assert feed.poll().num_rows == 41  # All 20 former rows of the partition go, and 21 come.
        con.close()
    assert max(found.values()) < 250, found


SOUGHT = (
    "SELECT k, o, x, sum(x) OVER w AS s, rank() OVER w AS r, lag(x) OVER w AS l, "
    "avg(x) OVER (PARTITION BY k ORDER BY o ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS m "
    "FROM t WINDOW w AS (PARTITION BY k ORDER BY o) ORDER BY o DESC"
)
SUMMARISED = (
    "SELECT k, o, x, dense_rank() OVER w AS d, max(x) OVER w AS g, min(x) OVER (w RANGE 900 PRECEDING) AS l, "
    "max(x) OVER (w ROWS BETWEEN 200 PRECEDING AND 100 PRECEDING) AS p, "
    "sum(x) OVER (w GROUPS BETWEEN 70 PRECEDING AND 80 FOLLOWING) AS n "
    "FROM t WINDOW w AS (PARTITION BY k ORDER BY o) ORDER BY o DESC"
)


def measured(query: str, rows: int) -> tuple[float, float]:
    """The steps of a change in the middle of one partition of so many rows, and of a look-up of ten rows."""
    con = sqlfront.connect()
    con.execute("CREATE CHANGE TABLE t (k INTEGER, o INTEGER, x INTEGER)")
    con.execute(f"INSERT INTO t SELECT 0, 2 * i, i % 1000 FROM range({rows}) r(i)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    view, rng, changes, reads = con.view("v"), random.Random(rows), list[int](), list[int]()
    for _ in range(30):
        before = view.cost()
        con.apply_row("t", (0, 2 * rng.randrange(rows) + 1, 1))
        between = view.cost()
        assert len(view.top(10)) == 10
        after = view.cost()
        changes.append(between["steps"] - before["steps"])
        reads.append(after["read_steps"] - between["read_steps"])
    con.close()
    return statistics.mean(changes), statistics.mean(reads)


@pytest.mark.parametrize("query", [SOUGHT, SUMMARISED])
@pytest.mark.parametrize("rows", [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_steps_grow_as_a_logarithm(query: str, rows: int) -> None:
    """The log-log slopes of changes and of look-ups."""
    first, last = measured(query, 1_000), measured(query, rows)
    assert max(math.log(b / a) / math.log(rows / 1_000) for a, b in zip(first, last, strict=True)) < 0.15


LONG = (
    "dense_rank() OVER (PARTITION BY g ORDER BY o DESC NULLS FIRST)",
    "dense_rank() OVER (PARTITION BY g ORDER BY o DESC NULLS FIRST, x NULLS FIRST)",
    "max(s) OVER (PARTITION BY g ORDER BY o DESC NULLS FIRST RANGE BETWEEN 30 PRECEDING AND 50 FOLLOWING)",
    "min(x) OVER (PARTITION BY g ORDER BY o DESC NULLS FIRST GROUPS BETWEEN 70 PRECEDING AND 66 PRECEDING)",
    "min(x) OVER (PARTITION BY g ORDER BY o DESC NULLS FIRST RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "max(s) OVER (PARTITION BY g)",
    "count(x) OVER (PARTITION BY g ORDER BY o DESC NULLS FIRST GROUPS BETWEEN 5 FOLLOWING AND 80 FOLLOWING)",
)


def test_long_frames_and_ranks_without_gaps(con: sqlfront.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of the same order comes later: its summaries are added to rows that are there."""
    monkeypatch.setattr(window_columns, "STEPS_SOUGHT", 0)
    con.execute("CREATE TABLE t (g INTEGER, o INTEGER, x INTEGER, s VARCHAR)")
    con.execute(
        "INSERT INTO t SELECT i % 2, nullif(i * 7 % 199, 5), nullif(i % 97, 3), 's' || i % 89 FROM range(600) r(i)"
    )
    con.execute(
        f"CREATE MATERIALIZED VIEW first AS SELECT g, o, x, s, {LONG[0]} AS d, {LONG[-1]} AS n FROM t ORDER BY o, x"
    )
    text = f"SELECT g, o, x, s, {', '.join(f'{one} AS w{number}' for number, one in enumerate(LONG))} FROM t"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {text} ORDER BY o, x, s, g")
    shared = [row["shared"] for row in con.view("v").state() if row["kind"] == "window"]
    assert sorted(shared) == [False, False, True]
    for changes in (
        "INSERT INTO t VALUES (0, 50, 1, 'zz'), (0, 50, 1, 'zz'), (1, NULL, NULL, NULL), (3, NULL, NULL, NULL)",
        "DELETE FROM t WHERE x = 96 OR s = 's88' OR o BETWEEN 40 AND 60",
        "UPDATE t SET o = o + 3, s = 'a' || s WHERE x % 5 = 0",
        "BEGIN; DELETE FROM t WHERE o % 2 = 0; INSERT INTO t SELECT 0, i, 0, 'new' FROM range(300) r(i); ROLLBACK",
        "DELETE FROM t WHERE g = 0",
    ):
        for statement in changes.split("; "):
            con.execute(statement)
        expected = con.execute(text).fetchall()
        assert same_bag(con.view("v").top(1000), expected), changes
        assert same_bag(con.view("first").top(1000), [(*row[:5], row[-1]) for row in expected]), changes


@pytest.mark.parametrize(("function", "why"), [
    ("list(x) OVER (ORDER BY a)", "list is no function of positions and sums"),
    ("list(x) OVER (ORDER BY a ROWS 2 PRECEDING)", "list is no function of positions and sums"),
    ("lag(x IGNORE NULLS) OVER (ORDER BY a)", "passes over NULLs"),
    ("count(DISTINCT x) OVER (ORDER BY a)", "DISTINCT"),
    ("sum(x) OVER (ORDER BY a ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW)", "leaves out rows in its middle"),
    ("sum(x) OVER (ORDER BY a RANGE 2.5 PRECEDING)", "no fixed distance"),
    ("sum(x) OVER (ORDER BY d RANGE INTERVAL 1 MONTH PRECEDING)", "no fixed distance"),
    ("first_value(x ORDER BY b) OVER (ORDER BY a)", "an order of its own"),
    ("ntile(a) OVER (ORDER BY a)", "no whole number that all rows share"),
])  # fmt: skip
def test_functions_that_are_computed_by_partition_say_why(con: sqlfront.Connection, function: str, why: str) -> None:
    con.execute("CREATE TABLE r (a INTEGER, b INTEGER, x INTEGER, d DATE)")
    query = f"SELECT a, b, x, {function} AS w FROM r"
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N)') AS {query}")
    reason = con.explain("v").to_dict()["reason"]
    assert "window functions are computed by partition" in reason
    assert why in reason


def test_orders_are_shared(con: sqlfront.Connection) -> None:
    con.execute("CREATE TABLE r (a INTEGER, b INTEGER)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT a, b, rank() OVER (ORDER BY a) AS r, "
        "row_number() OVER (ORDER BY a, b) AS n FROM r"
    )
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a, b, ntile(2) OVER (ORDER BY a, b) AS n FROM r")
    kinds = [row["kind"] for row in con.view("v").state()]
    assert kinds.count("window") == 1
    assert [row["shared"] for row in con.view("w").state() if row["kind"] == "window"] == [True]


def test_names_and_types_are_duckdbs(con: sqlfront.Connection) -> None:
    text = (
        "SELECT ntile(2) OVER (ORDER BY a) AS n, avg(a) OVER () AS m, sum(a) OVER () AS s, lag(b) OVER () AS b FROM r"
    )
    con.execute("CREATE TABLE r (a INTEGER, b DATE)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {text}")
    with judge() as duck:
        duck.execute("CREATE TABLE r (a INTEGER, b DATE)")
        expected = duck.execute(f"DESCRIBE {text}").fetchall()
    assert con.execute("DESCRIBE v").fetchall() == expected
