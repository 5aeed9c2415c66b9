"""Boxes, sums of joins and comparisons through a third table: which form a query gets, its steps and its memory."""

from __future__ import annotations

from collections import Counter
from math import log2
from random import Random

import pyarrow
import pytest

import sqlfront
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


@pytest.mark.parametrize("query", BOXES)
def test_a_box_costs_a_logarithm_for_each_row_in_it(query: str) -> None:
    """The first, a middle and the last row, on both sides. No pairs are stored."""
    most = []
    for rows in (1000, 20_000):
        with sqlfront.connect(":memory:") as con:
            fill(con, rows)
            con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
            found = con.explain("v").to_dict()["cost"]
            assert (found["update"], found["space"]) == ("O(N log N)", "O(N)")
            assert "with extremes of" in str(con.explain("v"))
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
        ("s.s < r.e AND r.s < s.e", ", CHECK (s <= e)", "O(N log N)"),
        ("s.s <= r.e AND r.s <= s.e AND r.s <= r.e AND s.e >= s.s", "", "O(log N)"),
        ("s.s <= r.e AND r.s <= s.e AND r.s <= r.e", "", "O(N log N)"),
        ("r.s BETWEEN s.s AND s.e", ", CHECK (k > 0 AND s <= e)", "O(log N)"),
        ("r.s BETWEEN s.s AND s.e", ", CHECK (s <= e OR k > 0)", "O(N log N)"),
        ("r.s < s.s AND r.e < s.e", ", CHECK (s <= e)", "O(N log N)"),
        ("r.s < s.s - 5 OR r.s > s.s + 5", "", "O(log N)"),
        ("abs(r.s - s.s) <= 5", "", "O(log N)"),
        ("NOT r.s - s.s BETWEEN 1 AND 9", "", "O(log N)"),
    ],
)  # fmt: skip
def test_counts_between_ordered_ends_are_differences(condition: str, check: str, update: str) -> None:
    """Where the ends are not known to be ordered, the rows of the box are listed. Groups whose counts fall to 0 go."""
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
            for view in ("v", "total"):
                assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
        con.execute("DELETE FROM s")
        assert con.execute("FROM v").fetchall() == []
        con.execute("INSERT INTO s VALUES (1, -9, -8)")  # All pairs of one part are subtracted by the other.
        for view in ("v", "total"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {view}").fetchall() == []
        con.execute("DELETE FROM s")
        assert con.execute("FROM total").fetchall() == [(0, None, 0)]


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
            assert not con.execute("CHECK MATERIALIZED VIEW v").fetchall()
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
