"""Rows within bounds of two columns: others are not met, however tables and their stores are shared."""

from __future__ import annotations

from math import log2

import pytest

import sqlfront
from tests.sqlfront.views.test_inequality import check_tables, steps_of

FALLING = {
    "two tables": "SELECT r.a, s.a AS c FROM r JOIN s ON r.a < s.a AND r.b < s.b",
    "a table and itself": "SELECT x.a, y.a AS c FROM r x JOIN r y ON x.a < y.a AND x.b < y.b",
    "a window and a bound": "SELECT r.a, s.a AS c FROM r JOIN s ON s.a BETWEEN r.a AND r.a + 20 AND r.b < s.b + 9",
    "the bound is first": "SELECT r.a, s.a AS c FROM r JOIN s ON r.b < s.b + 9 AND s.a >= r.a AND s.a <= r.a + 20",
    "a window of itself": "SELECT x.a, y.a AS c FROM r x JOIN r y ON y.a BETWEEN x.a AND x.a + 20 AND x.b < y.b + 9",
}


def fill(con: sqlfront.Connection, rows: int) -> None:
    """Tables r and s whose b falls as a rises: half of the rows pass each bound, and hardly any pass both."""
    for table in "rs":
        con.execute(f"CREATE CHANGE TABLE {table} (a BIGINT, b BIGINT) WITH (retain = true)")
        con.execute(f"INSERT INTO {table} SELECT i, {rows} - i FROM range({rows}) AS t(i)")


@pytest.mark.parametrize("name", FALLING)
def test_rows_that_pass_one_bound_only_are_not_met(name: str) -> None:
    most = []
    for rows in (1000, 30_000):
        with sqlfront.connect(":memory:") as con:
            fill(con, rows)
            con.execute(f"CREATE MATERIALIZED VIEW v AS {FALLING[name]}")
            text = str(con.explain("v"))
            assert text.count("leaves out subtrees by") == 2 and "tests " not in text
            places = (1, rows // 2, rows - 1)
            most.append(max(steps_of(con, table, (a, rows - a)) for table in "rs" for a in places))
            if rows == 1000:
                assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
                check_tables(con)
    assert most[1] < 30 * log2(30_000) and most[1] < 3 * most[0]


def test_views_with_opposite_bounds_have_stores_of_their_own() -> None:
    """Each finds its rows along the extremes that it needs, also where another view's store has the other ones."""
    with sqlfront.connect(":memory:") as con:
        fill(con, 2000)
        for name, sign in (("above", "<"), ("below", ">"), ("again", "<")):
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS SELECT r.a, s.a AS c FROM r JOIN s "
                        f"ON s.a BETWEEN r.a AND r.a + 3 AND r.b {sign} s.b")  # fmt: skip
            assert str(con.explain(name)).count("leaves out subtrees by") == 2
        shared = {row["view"]: row["shared"] for row in con.execute("SHOW STATE").to_arrow_table().to_pylist()
                  if row["kind"] == "leaf"}  # fmt: skip
        assert shared == {"above": True, "below": False}  # The stores of `again` are those of `above`.
        for table in "rs":
            con.apply_row(table, (900, 1100))
            con.apply_row(table, (901, 1500))
        con.execute("DROP MATERIALIZED VIEW above")
        con.apply_row("r", (901, 1500), -1)
        for name in ("below", "again"):
            assert con.execute(f"CHECK MATERIALIZED VIEW {name}").fetchall() == []
        check_tables(con)


def test_rows_within_two_windows_are_found_without_those_of_one() -> None:
    """A third of all rows is within the window of a, one in a hundred within that of b; neither is met alone."""
    most = []
    for rows in (1000, 30_000):
        with sqlfront.connect(":memory:") as con:
            for table in "rs":
                con.execute(f"CREATE CHANGE TABLE {table} (a BIGINT, b BIGINT) WITH (retain = true)")
                con.execute(f"INSERT INTO {table} SELECT i % 30, (i * 7919) % {10 * rows} FROM range({rows}) AS t(i)")
            con.execute("CREATE MATERIALIZED VIEW v AS SELECT r.a, r.b, s.a AS c, s.b AS d FROM r JOIN s "
                        "ON abs(r.a - s.a) <= 5 AND s.b BETWEEN r.b - 50 AND r.b + 50")  # fmt: skip
            places = (1, 5 * rows, 10 * rows)
            most.append(max(steps_of(con, table, (a, b)) for table in "rs" for a in (0, 15, 29) for b in places))
            if rows == 1000:
                assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
                check_tables(con)
    assert most[1] < 30 * log2(30_000) and most[1] < 3 * most[0]
