"""Building within memory_limit: refused with a figure when combinations do not find room, else right."""

from __future__ import annotations

import re

import pytest

import sqlfront
from sqlfront.maintenance.program.room import MARKS, _spread
from sqlfront.planner.theory.cover import largest_join
from sqlfront.storage.kernels import layout as at

RING = "e a, e b, e c, e d WHERE a.y = b.x AND b.y = c.x AND c.y = d.x AND d.y = a.x"
CORNERS = f"SELECT a.x AS p, b.x AS q, c.x AS r, d.x AS s FROM {RING}"


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        connection.execute("CREATE TABLE e (x BIGINT, y BIGINT)")
        yield connection


def two_stars(con: sqlfront.Connection, arms: int) -> None:
    """Arms to a hub and from it: arms ** 2 paths of two edges, which no ring of four closes."""
    con.execute(f"INSERT INTO e SELECT i, 0 FROM range(1, {arms} + 1) t(i)")
    con.execute(f"INSERT INTO e SELECT 0, {arms} + i FROM range(1, {arms} + 1) t(i)")


def estimated(error: sqlfront.Error) -> int:
    assert error.where is not None
    return int(re.search(r"about ([0-9,]+) combinations", error.where)[1].replace(",", ""))


def full(con: sqlfront.Connection, edges: int) -> None:
    con.execute(f"INSERT INTO e SELECT i, j FROM range({edges}) a(i), range({edges}) b(j)")


def test_what_finds_no_room_is_refused_with_figure_and_way_out(con):
    full(con, 24)
    con.execute("SET memory_limit = '10MB'")
    with pytest.raises(
        sqlfront.OperationalError, match=r"(?s)view v would need about .* MiB.*memory_limit is 9.5"
    ) as e:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {CORNERS}")
    assert 24**4 / 2 < estimated(e.value) <= 24**4
    assert e.value.hint is not None and "leave d.y = a.x out" in e.value.hint
    # Nothing is left of it, and with more memory it is built.
    assert not con.session.database.views and not con.session.database.engine.views
    con.execute("SET memory_limit = '4GB'")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {CORNERS}")
    rows = con.execute("SELECT count(*), count(DISTINCT ((p * 24 + q) * 24 + r) * 24 + s) FROM v").fetchall()
    assert rows == [(24**4, 24**4)]


def test_what_was_far_too_large_is_foreseen(con):
    """A hundredth of the table tells: of 2,560,000 combinations hardly any is made."""
    full(con, 40)
    con.execute("SET memory_limit = '10MB'")
    scanned = []
    engine = con.session.database.engine
    run = engine.machine.run_some
    engine.machine.run_some = lambda program, first, count: scanned.append(count) or run(program, first, count)
    with pytest.raises(sqlfront.OperationalError) as error:
        con.execute(f"CREATE MATERIALIZED VIEW v AS {CORNERS}")
    assert estimated(error.value) == 40**4
    assert sum(scanned) < MARKS


def test_a_view_of_few_rows_needs_little_room(con):
    """A sum keeps one row, however many combinations it is of; two stars have many paths and no ring."""
    two_stars(con, 2000)
    con.execute("SET memory_limit = '10MB'")
    con.execute(f"CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM {RING}")
    con.execute("CREATE MATERIALIZED VIEW t AS SELECT a.x, count(*) AS n FROM e a, e b, e c "
                "WHERE a.y = b.x AND b.y = c.x AND c.y = a.x GROUP BY a.x")  # fmt: skip
    assert con.execute("SELECT (SELECT n FROM n), (SELECT count(*) FROM t)").fetchall() == [(0, 0)]


def test_a_tree_without_bags_is_not_held_to_it(con):
    con.execute("INSERT INTO e SELECT i, i FROM range(200000) t(i)")
    con.execute("SET memory_limit = '10MB'")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a.x, count(*) AS n FROM e a JOIN e b ON a.y = b.x GROUP BY a.x")
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(200000,)]


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 1000, 300_000])
def test_every_row_is_scanned_once(rows):
    part_trees = [*_spread(rows)]
    assert sorted(row for first, count in part_trees for row in range(first, first + count)) == [*range(rows)]
    assert all(0 < count <= at.CHUNK for _, count in part_trees)


@pytest.mark.parametrize(
    ("variables", "edges", "most"),
    [
        ("abc", {"ab": 100, "bc": 100, "ca": 100}, 1000),
        ("abc", {"ab": 100, "bc": 100, "ca": 100, "a": 1}, 100),
        ("abc", {"ab": 10, "bc": 1000}, 10_000),
        ("ab", {"ab": 50, "bc": 0}, 0),
        ("ab", {"ab": 50, "c": 0}, 50),
        ("", {"ab": 50}, 1),
        ("abcd", {"ab": 16, "bc": 16, "cd": 16, "da": 16}, 256),
    ],
)
def test_the_largest_join(variables, edges, most):
    sized = [(frozenset(edge), rows) for edge, rows in edges.items()]
    assert largest_join(variables, sized) == pytest.approx(most)
    if variables and 0 not in edges.values():
        with pytest.raises(ValueError, match="in no edge"):
            largest_join([*variables, "z"], sized)
