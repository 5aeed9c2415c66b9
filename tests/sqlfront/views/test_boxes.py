"""Boxes and their sums, sums of joins, comparisons through a third table: a query's form, its steps, its memory."""

from __future__ import annotations

from collections import Counter
from math import log2
from pathlib import Path
from random import Random

import pyarrow
import pytest

import sqlfront
from tests.following import is_query
from tests.sqlfront.views.test_inequality import check_tables, steps_of

INTERVALS = "CREATE TABLE {table} (k BIGINT, s BIGINT, e BIGINT{check})"
OVERLAP = "r.k = s.k AND s.s <= r.e AND r.s <= s.e"
BOXES = [
    f"SELECT r.s, r.e, s.s AS t, s.e AS f FROM r JOIN s ON {OVERLAP}",
    f"SELECT r.k, count(*) AS n, sum(s.s) AS t FROM r JOIN s ON {OVERLAP} GROUP BY r.k",
    f"SELECT r.s, count(*) AS n FROM r JOIN s ON {OVERLAP} GROUP BY r.s",
    "SELECT r.k, count(*) AS n FROM r JOIN s ON r.k = s.k AND r.s < s.s AND s.e < r.e GROUP BY r.k",
]


def fill(con: sqlfront.Connection, rows: int, check: str = "") -> None:
    """Tables r and s of intervals [s, e], each of which overlaps a few, in no order."""
    for table in "rs":
        con.execute(INTERVALS.format(table=table, check=check))
        con.execute(f"INSERT INTO {table} SELECT 0, s, s + i % 30 FROM (SELECT i, (i * 7919) % {10 * rows} AS s "
                    f"FROM range({rows}) AS t(i))")  # fmt: skip


@pytest.mark.parametrize(
    ("query", "update", "space"),
    [
        (BOXES[0], "O(N log N)", "O(N)"),
        (BOXES[1], "O(log^2 N) amortised", "O(N log N)"),
        (BOXES[2], "O(N log N)", "O(N log N)"),
        (BOXES[3], "O(log^2 N) amortised", "O(N log N)"),
    ],
)
def test_a_box_costs_a_logarithm_for_each_row_in_it(query: str, update: str, space: str) -> None:
    """The first, a middle and the last row, on both sides. No pairs are stored. Where a side is summed out, the other
    one looks up its sums, whatever the rows."""
    most = []
    for rows in (1000, 20_000):
        with sqlfront.connect(":memory:") as con:
            fill(con, rows)
            con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
            found = con.explain("v").to_dict()["cost"]
            assert (found["update"], found["space"]) == (update, space)
            assert ("with extremes of" in str(con.explain("v"))) == (update == "O(N log N)")
            assert ("sums over boxes of" in str(con.explain("v"))) == (space == "O(N log N)")
            places = (-1, 5 * rows, 10 * rows)
            most.append(max(steps_of(con, table, (0, x, x + 5)) for table in "rs" for x in places))
            assert sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist()) < 8 * rows
            if rows == 1000:
                assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
                check_tables(con)
    assert most[1] < 30 * log2(20_000) and most[1] < 3 * most[0]


@pytest.mark.parametrize(
    ("condition", "check", "update"),
    [
        ("s.s <= r.e AND r.s <= s.e", ", CHECK (s <= e)", "O(log N)"),
        ("s.s < r.e AND r.s < s.e", ", CHECK (s < e)", "O(log N)"),
        ("s.s < r.e AND r.s < s.e", ", CHECK (s <= e)", "O(log^2 N) amortised"),
        ("s.s <= r.e AND r.s <= s.e AND r.s <= r.e AND s.e >= s.s", "", "O(log N)"),
        ("s.s <= r.e AND r.s <= s.e AND r.s <= r.e", "", "O(log^2 N) amortised"),
        ("r.s BETWEEN s.s AND s.e", ", CHECK (k > 0 AND s <= e)", "O(log N)"),
        ("r.s BETWEEN s.s AND s.e", ", CHECK (s <= e OR k > 0)", "O(log^2 N) amortised"),
        ("r.s < s.s AND r.e < s.e", ", CHECK (s <= e)", "O(log^2 N) amortised"),
        ("r.s < s.s - 5 OR r.s > s.s + 5", "", "O(log N)"),
        ("abs(r.s - s.s) <= 5", "", "O(log N)"),
        ("NOT r.s - s.s BETWEEN 1 AND 9", "", "O(log N)"),
        # Values that differ, beside ranges and boxes.
        ("r.e <> s.s", "", "O(1)"),
        ("r.s < s.s AND r.e <> s.e", "", "O(log N)"),
        ("abs(r.s - s.s) <= 5 AND s.e <> r.e", "", "O(log N)"),
        ("s.s <= r.e AND r.s <= s.e AND r.e <> s.e", "", "O(log^2 N) amortised"),
    ],
)  # fmt: skip
def test_counts_between_ordered_ends_are_differences(condition: str, check: str, update: str) -> None:
    """Where the ends are not known to be ordered, sums over boxes are kept. Groups whose counts fall to 0 go."""
    query = f"SELECT r.k, count(*) AS n, sum(s.s) AS t, count(r.e) AS c FROM r JOIN s ON r.k = s.k AND ({condition})"
    with sqlfront.connect(":memory:") as con:
        for table in "rs":
            con.execute(INTERVALS.format(table=table, check=check))
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query} GROUP BY r.k")
        con.execute(f"CREATE MATERIALIZED VIEW total AS {query.replace('r.k, ', '', 1)}")
        assert con.explain("v").to_dict()["cost"]["update"] == update
        for number in range(6):
            con.execute(f"INSERT INTO r SELECT 1 + i % 2, i % 9, CASE WHEN i % 4 > 0 THEN i % 9 + {1 + number % 3} END "
                        f"FROM range({number}, {3 * number}) AS t(i)")  # fmt: skip
            con.execute(f"INSERT INTO s VALUES (1, {number}, {number + 2}), (2, NULL, 3), (1, {number % 4}, NULL)")
            con.execute(f"DELETE FROM {'rs'[number % 2]} WHERE s = {number // 2}")
            assert is_query(con) and is_query(con, "total")
        con.execute("DELETE FROM s")
        assert con.execute("FROM v").fetchall() == []
        con.execute("INSERT INTO s VALUES (1, -9, -8)")  # All pairs of one part are subtracted by the other.
        for view in ("v", "total"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
        con.execute("DELETE FROM s")
        assert con.execute("FROM total").fetchall() == [(0, None, 0)]


DOMINANCE = [
    "SELECT count(*) AS n, sum(s.v) AS t FROM r, s WHERE r.a < s.a AND r.b < s.b",
    "SELECT r.k, count(*) AS n, sum(s.v) AS t FROM r, s WHERE r.k = s.k AND r.a >= s.a AND r.b < s.b GROUP BY r.k",
    "SELECT count(*) AS n, sum(x.v - y.v) AS t FROM r x, r y WHERE x.a < y.a AND x.b < y.b",
    "SELECT count(*) AS n, sum(r.v) AS t FROM r, s WHERE r.a BETWEEN s.a - 900 AND s.a + 900 AND r.b > s.b",
]


@pytest.mark.parametrize("query", DOMINANCE)
def test_sums_by_dominance_cost_the_square_of_a_logarithm(query: str) -> None:
    """Random rows that come on both sides, and half of which go again: each has a quarter of the others in its box."""
    steps = {}
    for rows in (1000, 10_000, 60_000):
        choose = Random(rows)
        with sqlfront.connect(":memory:") as con:
            for table in "rs":
                con.execute(
                    f"CREATE CHANGE TABLE {table} (k BIGINT, a BIGINT, b BIGINT, v BIGINT) WITH (retain = true)"
                )
                con.execute(f"INSERT INTO {table} SELECT i % 3, (i * 7919) % {rows}, (i * 104729) % {rows}, i % 9 "
                            f"FROM range({rows}) AS t(i)")  # fmt: skip
            con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
            assert con.explain("v").to_dict()["cost"]["update"] == "O(log^2 N) amortised"
            before, changes = con.view("v").cost()["steps"], 0
            for _ in range(100):
                drawn = [(choose.randrange(3), choose.randrange(rows), choose.randrange(rows), 5) for _ in range(6)]
                for number, row in enumerate(drawn):
                    con.apply_row("rs"[number % 2], row)
                for number, row in enumerate(drawn[:3]):
                    con.apply_row("rs"[number % 2], row, -1)
                changes += 9
            steps[rows] = (con.view("v").cost()["steps"] - before) / changes
            if rows < 60_000:
                assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert all(found < 4 * log2(rows) ** 2 for rows, found in steps.items()), steps


@pytest.mark.parametrize(
    ("columns", "join"), [("u.id, count(*) AS n", "u.k = r.k"), ("u.v, sum(r.v) AS n", "u.id = s.id")]
)
def test_a_third_table_is_not_listed_for_a_sum_over_a_box_each(columns: str, join: str) -> None:
    """The box is summed up by the column that the third table joins by, before that table is met."""
    rows = 1000
    with sqlfront.connect(":memory:") as con:
        for table in "rsu":
            con.execute(f"CREATE CHANGE TABLE {table} (id BIGINT, k BIGINT, a BIGINT, b BIGINT, v BIGINT) "
                        "WITH (retain = true)")  # fmt: skip
            con.execute(f"INSERT INTO {table} SELECT i, i % 100, i * 7919 % 9973, i * 7919 % 9973 + i % 30, i % 9 "
                        f"FROM range({rows}) AS t(i)")  # fmt: skip
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {columns} FROM r JOIN s ON s.a <= r.b AND r.a <= s.b, u "
                    f"WHERE {join} GROUP BY ALL")  # fmt: skip
        most = max(steps_of(con, table, (5, 7, x, x + 9, 1)) for table in "rsu" for x in (0, 5000, 9990))
        assert most < 3 * log2(rows) ** 2
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize(
    ("select", "update", "each"),
    [
        ("count(*) AS n FROM r JOIN s ON {r} JOIN u ON {e}", "O(N log N)", 1),
        ("s.k, s.s, count(*) AS n FROM r JOIN s ON {r} JOIN u ON {s} GROUP BY ALL", "O(N log^2 N)", 2),
    ],
)
def test_a_chain_of_boxes_costs_what_is_stated(select: str, update: str, each: int) -> None:
    """A change that lists all rows of s, at two sizes."""
    ends = {"r": "r.s <= s.e AND s.s <= r.e", "e": "s.k <= u.e AND u.s <= s.x", "s": "u.s <= s.e AND s.s <= u.e"}
    most = {}
    for rows in (250, 2000):
        with sqlfront.connect(":memory:") as con:
            for table in "rsu":
                con.execute(f"CREATE TABLE {table} (k BIGINT, s BIGINT, e BIGINT, x BIGINT)")
                con.execute(f"INSERT INTO {table} SELECT i % 9, s, s + i % 30, i % 9 + 5 "
                            f"FROM (SELECT i, i * 7919 % {10 * rows} AS s FROM range({rows}) AS t(i))")  # fmt: skip
            con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {select.format(**ends)}")
            assert con.explain("v").to_dict()["cost"]["update"] == update
            most[rows] = max(steps_of(con, table, (0, 0, 10 * rows, 9)) for table in "rsu")
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert all(rows < steps < 8 * rows * log2(rows) ** each for rows, steps in most.items()), most


def test_sums_over_boxes_beside_listed_rows_are_stated_as_space() -> None:
    """Points of a group meet the intervals around them, whose sums the points look up: two columns of one table."""
    with sqlfront.connect(":memory:") as con:
        fill(con, 100)
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT r.e, sum(s.k) AS n FROM r JOIN s ON r.s BETWEEN s.s AND s.e "
                    "GROUP BY r.e")  # fmt: skip
        found = con.explain("v")
        assert "sums over boxes of" in str(found)
        costs = found.to_dict()["cost"]
        assert (costs["update"], costs["space"]) == ("O(N log N)", "O(N log N)")


RECTANGLES = """
CREATE CHANGE TABLE p (k BIGINT, x BIGINT, y BIGINT, id BIGINT);
CREATE TABLE q (k BIGINT, x1 BIGINT, x2 BIGINT, y1 BIGINT, y2 BIGINT, id BIGINT, CHECK (x1 <= x2), CHECK (y1 <= y2));
CREATE TABLE w (k BIGINT, x1 BIGINT, x2 BIGINT, y1 BIGINT, y2 BIGINT);
"""


@pytest.mark.parametrize(
    ("join", "condition", "group", "update"),
    [
        # Four sums by one bound of each column.
        ("p a JOIN q b", "a.x BETWEEN b.x1 AND b.x2 AND a.y BETWEEN b.y1 AND b.y2", "", "O(log^2 N) amortised"),
        ("p a JOIN q b", "a.x BETWEEN b.x1 AND b.x2 AND a.y >= b.y1 AND a.y < b.y2 AND a.k = b.k", "a.k",
         "O(log^2 N) amortised"),
        # A difference by one column, a bound of another.
        ("q a JOIN q b", "a.x1 <= b.x2 AND b.x1 <= a.x2 AND a.id < b.id", "", "O(log^2 N) amortised"),
        # Two ranges of two columns on both sides.
        ("p a JOIN p b", "abs(a.x - b.x) <= 5 AND abs(a.y - b.y) <= 5", "", "O(log^2 N) amortised"),
        # A group for each rectangle: the terms of a difference would list points outside.
        ("p a JOIN q b", "a.x BETWEEN b.x1 AND b.x2 AND a.y BETWEEN b.y1 AND b.y2", "b.id", "O(N)"),
        # Nobody says which end is less.
        ("p a JOIN w b", "a.x BETWEEN b.x1 AND b.x2 AND a.y BETWEEN b.y1 AND b.y2", "", "O(N)"),
        # Three columns of each side.
        ("p a JOIN p b", "a.x < b.x AND a.y < b.y AND a.id < b.id", "", "O(N)"),
    ],
)  # fmt: skip
def test_points_in_rectangles_are_counted_by_sums_over_boxes(
    join: str, condition: str, group: str, update: str
) -> None:
    choose, names = Random(join + condition), f"{group}, " if group else ""
    query = f"SELECT {names}count(*) AS n, sum(b.k) AS t FROM {join} ON {condition}"
    with sqlfront.connect(":memory:") as con:
        con.execute(RECTANGLES)
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query} {'GROUP BY ' if group else ''}{group}")
        assert con.explain("v").to_dict()["cost"]["update"] == update
        for number in range(60):
            x, y = choose.randrange(30), choose.randrange(30)
            con.execute(f"INSERT INTO p VALUES ({number % 2}, {x}, {y}, {number})")
            for table, more in (("q", f", {number}"), ("w", "")):
                ends = f"{x - choose.randrange(9)}, {x}, {y - 4}, {y + choose.randrange(9)}"
                con.execute(f"INSERT INTO {table} VALUES ({number % 2}, {ends}{more})")
            if number % 12 == 11:
                con.execute(f"DELETE FROM q WHERE x1 % 5 = {number % 5}; DELETE FROM p WHERE y = {y}")
                assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_sums_over_boxes_hold_through_undo_widening_and_reopening(tmp_path: Path) -> None:
    """More changes than wait in one list, which are undone; values that no longer fit a word; a file that is opened."""
    file = str(tmp_path / "boxes.duckdb")
    query = "SELECT count(*) AS n, sum(r.v) AS t, sum(s.v) AS u FROM r, s WHERE r.a < s.a AND r.b < s.b"
    fill_in = "INSERT INTO {0} SELECT i % {1}, i * 7 % {1}, i FROM range({1}) AS t(i)"
    with sqlfront.connect(file) as con:
        for table in "rs":
            con.execute(f"CREATE TABLE {table} (a INTEGER, b INTEGER, v BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        con.execute(fill_in.format("r", 90))
        con.execute(fill_in.format("s", 120))
        before = con.execute("FROM v").fetchall()
        con.execute("BEGIN")
        con.execute(fill_in.format("r", 70))
        con.execute("DELETE FROM s WHERE a % 3 = 0")
        con.execute(fill_in.format("s", 50))
        assert con.execute("FROM v").fetchall() == con.execute(query).fetchall() != before
        con.execute("ROLLBACK")
        assert con.execute("FROM v").fetchall() == before
        con.execute("UPDATE r SET v = 9223372036854775807 WHERE a % 2 = 0")
        con.execute("DELETE FROM s WHERE a % 4 = 0")
        assert con.execute("FROM v").fetchall() == con.execute(query).fetchall()
    with sqlfront.connect(file) as con:
        con.execute(fill_in.format("r", 60))
        con.execute("DELETE FROM r WHERE a % 5 = 0")
        assert con.execute("FROM v").fetchall() == con.execute(query).fetchall()
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


HISTORY = """
CREATE CHANGE TABLE orders (id BIGINT{key}, day BIGINT);
CREATE CHANGE TABLE items (id BIGINT, product BIGINT, amount BIGINT);
CREATE CHANGE TABLE prices (product BIGINT, start BIGINT, stop BIGINT, price BIGINT);
"""
PRICED = (
    "FROM items i JOIN orders o ON o.id = i.id "
    "JOIN prices p ON p.product = i.product AND o.day >= p.start AND o.day < p.stop"
)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        (f"SELECT i.id, o.day, i.product, i.amount * p.price AS cents {PRICED}", " PRIMARY KEY"),
        (f"SELECT i.id, o.day, i.product, i.amount * p.price AS cents {PRICED}", ""),
        (f"SELECT o.day, sum(i.amount * p.price) AS cents {PRICED} GROUP BY o.day", " PRIMARY KEY"),
        (f"SELECT sum(i.amount * p.price) AS cents {PRICED}", " PRIMARY KEY"),
        (f"SELECT o.day, sum(i.amount * p.price) AS cents {PRICED} GROUP BY o.day", ""),
        (f"SELECT i.product, count(*) AS n {PRICED} GROUP BY i.product", " PRIMARY KEY"),
    ],
)
def test_a_comparison_through_a_fact_meets_what_it_changes(query: str, key: str) -> None:
    """A product has many items and ten prices. A new price concerns the items of a tenth of the days."""
    most = []
    for rows in (2000, 20_000):
        with sqlfront.connect(":memory:") as con:
            con.execute(HISTORY.format(key=key))
            con.execute(f"INSERT INTO orders SELECT i, i % 100 FROM range({rows // 4}) AS t(i)")
            con.execute(f"INSERT INTO items SELECT i // 4, i % {rows // 100}, 1 FROM range({rows}) AS t(i)")
            con.execute(f"INSERT INTO prices SELECT i // 10, i % 10 * 10, i % 10 * 10 + 10, 3 "
                        f"FROM range({rows // 10}) AS t(i)")  # fmt: skip
            con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
            assert "i and o are joined first" in con.explain("v").to_dict()["reason"]
            changes = [("items", (3, 5, 1)), ("orders", (rows, 40)), ("prices", (5, 40, 42, 7))]
            most.append(max(steps_of(con, table, row) for table, row in changes))
            assert sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist()) < 6 * rows
            if rows == 2000:
                con.execute("DELETE FROM orders WHERE id % 3 = 0; UPDATE prices SET stop = stop - 1")
                assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert most[1] < 20 * log2(20_000) and most[1] < 2 * most[0]


def test_texts_are_compared_through_a_fact() -> None:
    """Rows within bounds of texts are listed, those of a fact and its header as well as all facts of a product."""
    with sqlfront.connect(":memory:") as con:
        con.execute(HISTORY.format(key=" PRIMARY KEY").replace("day BIGINT", "day VARCHAR")
                    .replace("start BIGINT, stop BIGINT", "start VARCHAR, stop VARCHAR"))  # fmt: skip
        con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT sum(i.amount * p.price) AS cents {PRICED}")
        assert "i and o are joined first" in con.explain("v").to_dict()["reason"]
        con.execute("INSERT INTO orders VALUES (1, '26-01-05'), (2, '26-02-01')")
        con.execute("INSERT INTO items VALUES (1, 7, 3), (2, 7, 4); INSERT INTO prices VALUES (7, '26-01', '26-02', 5)")
        assert con.execute("FROM v").fetchall() == [(15,)]


CYCLE = (
    "FROM p a JOIN p b ON b.k = a.k AND a.t < b.t AND b.v < 3 JOIN p c ON c.k = {} AND b.t < c.t AND c.t {} "
    "WHERE a.v < 3 AND c.v > 1"
)
CYCLES = [
    f"SELECT a.id, b.id AS b, c.id AS c {CYCLE.format('b.k', '< a.t + 5')}",
    f"SELECT a.k, count(*) AS n, sum(c.v) AS s {CYCLE.format('a.k', '<= a.t + 4')} GROUP BY a.k",
    "SELECT a.id, b.id AS b, c.id AS c FROM p a, p b, p c "
    "WHERE a.k = b.k AND b.k = c.k AND a.t <= b.t AND b.t <= c.t AND c.t <= a.t + 2",
    "SELECT a.id, b.id AS b, c.id AS c FROM p a, p b, p c "
    "WHERE a.k = b.k AND b.k = c.k AND a.t <= b.t AND b.t >= c.t AND c.t >= a.t - 3 AND c.t > b.t - 4",
]


@pytest.mark.parametrize("query", CYCLES)
def test_comparisons_in_a_cycle_store_pairs_within_a_range(query: str) -> None:
    """Floating numbers have no cells (see test_cells.py)."""
    rng = Random(query)
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE p (id BIGINT, k BIGINT, t DOUBLE, v BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert "joined first, in a view of its own: all are compared" in con.explain("v").to_dict()["reason"]
        found = set()
        for number in range(30):
            values = ", ".join(
                f"({number}, {rng.choice('0011N')}, {rng.choice('N0123456789')}, {rng.choice('N0123')})"
                for _ in range(3)
            ).replace("N", "NULL")
            kind = rng.random()
            if kind < 0.6:
                con.execute(f"INSERT INTO p VALUES {values}, {values}")
            elif kind < 0.75:
                con.execute(f"DELETE FROM p WHERE t = {rng.randint(0, 9)} OR id = {rng.randint(0, number)}")
            elif kind < 0.9:
                con.execute(f"UPDATE p SET t = t + 1 WHERE v IS NOT DISTINCT FROM {rng.randint(0, 3)}")
            else:
                con.execute(f"BEGIN; DELETE FROM p; INSERT INTO p VALUES {values}; ROLLBACK")
            assert is_query(con)
            found.add(str(con.execute("SELECT count(*), sum(hash(COLUMNS(*))) FROM v").fetchall()))
        assert len(found) > 10
        con.execute("DELETE FROM p")
        assert sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist()) == 0


def test_comparisons_in_a_cycle_keep_fewer_rows_than_they_have() -> None:
    """A thousand rows of a key within a range of each other, fifty at a time, have some million triples."""
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE p (id BIGINT, k BIGINT, t DOUBLE, v BIGINT)")
        con.execute("INSERT INTO p SELECT i, 0, i, i % 5 FROM range(1000) AS t(i)")
        con.execute(
            f"CREATE MATERIALIZED VIEW v WITH (at_worst = 'O(N^9)') AS "
            f"SELECT a.id, b.id AS b, c.id AS c {CYCLE.format('b.k', '< a.t + 50')}"
        )
        rows = con.view("v").count()
        entries = sum(row["entries"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist())
        assert rows > 10 * entries / 4
        assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()


def test_extremes_hold_through_loads_and_rows_that_come_and_go() -> None:
    """A load sorts its groups at once, single rows enter the tree, and a failing epoch is undone."""
    with sqlfront.connect(":memory:") as con:
        for table in "rs":
            con.execute(f"CREATE CHANGE TABLE {table} (k BIGINT, s BIGINT, e BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {BOXES[0]}")
        held: Counter[tuple[int, int, int]] = Counter()
        for number in range(6):
            rows = [(i % 3, (i * 37) % 101, (i * 37) % 101 + (i * 11) % 17) for i in range(number, 40 * number)]
            held.update(rows)
            k, s, e = ([row[place] for row in rows] for place in range(3))
            for table in "rs":
                con.apply({table: pyarrow.table({"k": k, "s": s, "e": e})})
            gone = sorted(held)[number::3]
            for row in gone:
                con.apply_row("s", row, -held[row])
                con.apply_row("s", row, held[row] - 1) if held[row] > 1 else None
                with pytest.raises(sqlfront.IntegrityError):
                    con.apply_row("s", (row[0], row[1], 500), -1)
                con.apply_row("s", row, 1)
            check_tables(con)
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_boxes_of_texts_are_listed() -> None:
    """The texts of rows that have gone cannot be compared any more: the rows within the bounds are met."""
    query = "SELECT count(*) AS n FROM r, s WHERE r.a < s.a AND r.b < s.b"
    with sqlfront.connect(":memory:") as con:
        for table in "rs":
            con.execute(f"CREATE TABLE {table} (a VARCHAR, b INTEGER)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert con.explain("v").to_dict()["cost"]["update"] == "O(N log N)"
        assert "sums over boxes" not in str(con.explain("v"))
        for number in range(9):
            for table in "rs":
                con.execute(f"INSERT INTO {table} SELECT 't' || (i * {number + 3}) % 17, i FROM range(20) AS t(i)")
                con.execute(f"DELETE FROM {table} WHERE b % 3 = {number % 3}")
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
