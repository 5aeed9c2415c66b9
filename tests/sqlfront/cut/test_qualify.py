"""The first rows of each group: QUALIFY row_number() OVER (PARTITION BY ... ORDER BY ...) <= k."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.output.output import Reader
from tests.sqlfront.views.test_ranked import JOIN, change, check, make_tables


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


# The query before QUALIFY, PARTITION BY, ORDER BY, and the columns that settle ties.
RANKED = [
    ("SELECT r.a, r.x, r.w FROM r", "r.b", "r.w DESC", "r.a, r.x, r.w"),
    ("SELECT r.a, r.w FROM r", "", "r.w", "r.a, r.w"),
    (f"SELECT r.x AS a, r.a AS x {JOIN}", "r.x", "x, s.w", "r.x, r.a"),
    (f"SELECT s.v, t.* {JOIN}", "s.b, s.c", "t.w, r.x", "s.v, t.c, t.d, t.w, t.e"),
    (f"SELECT r.x, t.d, r.w + s.w + t.w AS score {JOIN}", "t.d", "r.w + s.w + t.w DESC", "r.x, t.d"),
    (f"SELECT r.x, t.d, r.w + s.w AS score {JOIN}", "r.b", "r.w + s.w, r.x DESC", "r.x, t.d"),
    (f"SELECT t.d % 2 AS odd, r.a {JOIN}", "t.d % 2", "r.w DESC NULLS FIRST, t.w", "t.d % 2, r.a"),
    ("SELECT r.x, t.d FROM r, t", "r.a", "t.w, r.x", "r.x, t.d"),
    (f"SELECT r.x, t.d, r.w + s.w AS score {JOIN}", "r.b", "r.w + s.w DESC NULLS FIRST", "r.x, t.d, r.w + s.w"),
    ("SELECT a.x, b.x AS y FROM r a JOIN r b ON a.b = b.b", "a.a", "a.w + b.w", "a.x, b.x"),
    (f"SELECT r.x, t.d {JOIN}", "r.b", "0.1 * (r.w + s.w::DOUBLE) - t.w / 3 DESC, t.d", "r.x"),
    (f"SELECT r.x, t.d {JOIN}", "", "r.w / 7 + t.w, t.w / 3 - s.w", "r.x, t.d"),
    ("SELECT b, a, sum(w) AS total FROM r GROUP BY b, a", "b", "total DESC", "b, a, sum(w)"),
]
SORTED = [
    (f"SELECT s.v, t.* {JOIN}", "s.v, t.d", "t.w, r.x", "s.v, t.c, t.d, t.w, t.e"),
    (
        "SELECT r.a, t.d, count(*) AS n FROM r, t WHERE r.b = t.c GROUP BY r.a, t.d HAVING n > 1",
        "r.a",
        "max(t.w)",
        "r.a, t.d, count(*)",
    ),
]


@pytest.mark.parametrize("number", range(len(RANKED) + len(SORTED)))
def test_random_streams_against_duckdb(con: Any, number: int) -> None:
    """After every change the view is what DuckDB gives when columns settle ties, and so is its replayed feed."""
    rng = random.Random(number)
    make_tables(con)
    for _ in range(20):
        con.execute(change(rng, 0.15))
    con.execute("INSERT INTO r SELECT i % 3, i % 2, 7 * i % 5, 'x' || i % 2 FROM range(6) q(i)")
    con.execute("INSERT INTO s SELECT i % 2, i % 3, i, i % 2 FROM range(6) q(i)")
    con.execute("INSERT INTO t SELECT i % 3, i % 2, 5 * i % 7, i % 2 FROM range(6) q(i)")
    select, partition, order, ties = [*RANKED, *SORTED][number]
    parted, rows = f"PARTITION BY {partition} " if partition else "", rng.choice([1, 2, 3])
    settled = f"{select} QUALIFY row_number() OVER ({parted}ORDER BY {order}, {ties}) <= {rows}"
    con.execute(
        f"CREATE MATERIALIZED VIEW v AS {select} QUALIFY row_number() OVER ({parted}ORDER BY {order}) <= {rows}"
    )
    strategies = [order["strategy"] for order in con.explain("v").to_dict()["orders"]]
    positions = number < 2 and rows > 1  # Several rows of one table are found by their positions in an order.
    assert strategies == ([] if positions else ["ranked enumeration" if number < len(RANKED) else "sorted when read"])
    feed, replayed, most = con.view("v").subscribe(), Counter[Any](), 0
    for step in range(10):
        con.execute(change(rng, 0.15) if step < 7 else f"DELETE FROM {'rst'[step - 7]}")
        expected = Counter(con.session.duck.execute(settled).fetchall())
        most = max(most, expected.total())
        assert Counter(con.execute("SELECT * FROM v").fetchall()) == expected, step
        assert con.view("v").count() == expected.total()
        assert con.execute("SELECT count(*) FROM v").fetchall() == [(expected.total(),)]
        while (told := feed.poll()) is not None:
            for row in told.to_pylist():
                replayed[tuple(row.values())[:-3]] += 1 if row["_change_type"] == "insert" else -1
        assert +replayed == expected
        assert all(count >= 0 for count in replayed.values())
        check(con)
    assert most >= (rows if not partition else 2), most


def test_spellings_of_the_bound(con: Any) -> None:
    con.execute("CREATE TABLE r(g INT, a INT); INSERT INTO r SELECT range % 3, range FROM range(30)")
    window = "row_number() OVER (PARTITION BY g ORDER BY a DESC)"
    for condition, rows in [(f"{window} <= 2", 2), (f"{window} < 2", 1), (f"{window} = 1", 1), (f"3 >= {window}", 3)]:
        con.execute(f"CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT g, a FROM r QUALIFY {condition}")
        expected = [(g, a) for g in range(3) for a in range(27 + g, 27 + g - 3 * rows, -3)]
        assert sorted(con.execute("SELECT * FROM v").fetchall()) == sorted(expected)
    con.execute("SET default_order = 'DESC'")
    con.execute(
        "CREATE MATERIALIZED VIEW kept AS SELECT g, a FROM r QUALIFY row_number() OVER (PARTITION BY g ORDER BY a) = 1"
    )
    con.execute("RESET default_order")
    assert sorted(con.execute("SELECT * FROM kept").fetchall()) == [(0, 27), (1, 28), (2, 29)]
    check(con)


def test_it_lasts_feeds_other_views_and_follows_renames(tmp_path: Any) -> None:
    path = str(tmp_path / "first.duckdb")
    with sqlfront.connect(path) as con:
        con.execute("CREATE TABLE r(g INT, a INT); INSERT INTO r SELECT range % 3, range FROM range(12)")
        con.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM main.r "
            "QUALIFY row_number() OVER (PARTITION BY main.r.g ORDER BY a DESC) <= 2"
        )
        con.execute("CREATE MATERIALIZED VIEW sums AS SELECT g, sum(a) AS s FROM v GROUP BY g")
        con.execute("ALTER TABLE r RENAME a TO b")
        con.execute("ALTER TABLE r ADD COLUMN later INT")
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO r VALUES (0, 100, 1), (7, 5, 1)")
        assert con.execute("SELECT * FROM v WHERE g IN (0, 7) ORDER BY ALL").fetchall() == [(0, 9), (0, 100), (7, 5)]
        assert con.execute("SELECT s FROM sums ORDER BY g").fetchall() == [(109,), (17,), (19,), (5,)]
        check(con)


def test_reads_that_narrow_or_order_it_are_those_of_its_rows(con: Any) -> None:
    con.execute("CREATE TABLE r(g INT, a INT, b INT); INSERT INTO r SELECT range % 4, range, -range FROM range(40)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT g, a FROM r QUALIFY row_number() OVER (PARTITION BY g ORDER BY b) <= 3"
    )
    assert con.execute("SELECT * FROM v WHERE a = 38").fetchall() == [(2, 38)]
    assert con.execute("SELECT * FROM v WHERE a = 2").fetchall() == []
    assert con.view("v").contains((2, 38)) and not con.view("v").contains((2, 2))
    assert con.execute("SELECT a FROM v ORDER BY a LIMIT 2").fetchall() == [(28,), (29,)]
    con.execute(
        "CREATE MATERIALIZED VIEW best AS SELECT g, a FROM r QUALIFY row_number() OVER (PARTITION BY g ORDER BY b) = 1"
    )
    for read in (lambda: con.view("best").top(1), lambda: con.view("best").ordered()):
        with pytest.raises(sqlfront.ProgrammingError, match="orders the rows of each group"):
            read()
    assert con.explain("best").to_dict()["orders"][0]["order"] == "b of each group"


def test_changes_and_reads_do_not_feel_the_size_of_the_join(con: Any) -> None:
    con.execute("CREATE CHANGE TABLE r(g BIGINT, b BIGINT, w BIGINT NOT NULL)")
    con.execute("CREATE CHANGE TABLE s(b BIGINT, c BIGINT, w BIGINT NOT NULL)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT g, c, r.w + s.w AS score FROM r, s WHERE r.b = s.b "
        "QUALIFY row_number() OVER (PARTITION BY g ORDER BY r.w + s.w DESC) <= 3"
    )
    engine, reads, changes = con.session.database.engine, [], []
    for size in (100, 200, 400, 800):
        for i in range(size // 2, size) if reads else range(size):
            con.apply_row("r", (i % 10, i % 5, i))
            con.apply_row("s", (i % 5, i, i * 7 % 1000))
        before = con.view("v").cost()["steps"]
        for i in range(50):
            con.apply_row("r", (i % 10, i % 5, size + i))
        changes.append((con.view("v").cost()["steps"] - before) / 50)
        reader = Reader(next(iter(engine.views.values())))
        assert sum(batch.num_rows for batch in reader) == 30
        reads.append(reader.steps)
        check(con)
    assert con.session.duck.execute("SELECT count(*) FROM v").fetchall() == [(30,)]
    assert changes[-1] < changes[0] + 20 and reads[-1] < 2 * reads[0], (changes, reads)


def test_an_order_beside_it(con: Any) -> None:
    """The first rows of the groups are a block, over which the view keeps its order."""
    con.execute("CREATE TABLE r(g INT, a INT)")
    query = "SELECT g, a FROM r QUALIFY row_number() OVER (PARTITION BY g ORDER BY a) <= 2"
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (order_by = 'a DESC') AS {query}")
    con.execute("INSERT INTO r SELECT i % 3, i FROM range(12) t(i)")
    assert con.view("v").top(3) == [(2, 5), (1, 4), (0, 3)]
    con.execute("DELETE FROM r WHERE a = 4")
    assert con.view("v").top(2) == [(1, 7), (2, 5)]
    assert sorted(con.execute("FROM v").fetchall()) == sorted(con.execute(query).fetchall())


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extrema_of_first_rows(con: Any, name: str, grouped: bool) -> None:
    """An extremum over several tables is that of the first rows by it, also with NULLs and when rows have gone."""
    rng = random.Random(1)
    make_tables(con)
    wanted = f"SELECT {'r.b, ' if grouped else ''}{name}(r.w + s.w) AS m {JOIN}{' GROUP BY r.b' if grouped else ''}"
    order = f"ORDER BY r.w + s.w {'DESC' if name == 'max' else 'ASC'} NULLS LAST"
    first = f"QUALIFY row_number() OVER (PARTITION BY r.b {order}) <= 1" if grouped else f"{order} LIMIT 1"
    rows = f"SELECT {'r.b, ' if grouped else ''}r.w + s.w AS m {JOIN} {first}"
    shown, groups = ("b, ", " GROUP BY b") if grouped else ("", "")
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {shown}{name}(m) FROM ({rows}) AS first{groups}")
    for _ in range(40):
        con.execute(change(rng, 0.3))
        assert Counter(con.execute("SELECT * FROM v").fetchall()) == Counter(con.execute(wanted).fetchall())
    for table in "rst":
        con.execute(f"DELETE FROM {table}")
        assert Counter(con.execute("SELECT * FROM v").fetchall()) == Counter(con.execute(wanted).fetchall())
