"""The first distinct ends of stars, heavy and light ones apart (WITH (epsilon = ...))."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import sqlfront
from benchmarks.stars import longest_wait
from sqlfront.maintenance.ranked.cursor import RankedWalk
from tests.following import take

TABLES = "CREATE TABLE r (a BIGINT, b BIGINT); CREATE TABLE s (b BIGINT, c BIGINT, w INTEGER NOT NULL, n VARCHAR)"
# What is selected, the order, what is kept of it, and the epsilons that the view has one after the other.
STARS = [
    ("SELECT DISTINCT r.a, s.c FROM r JOIN s USING (b)", "r.a + s.c", "LIMIT 7", (0.5, 0.25, 1)),
    (
        "SELECT DISTINCT x.a, y.a AS z FROM r x JOIN r y USING (b)",
        "z DESC NULLS LAST, x.a",
        "LIMIT 6 OFFSET 2",
        (0.4, 0),
    ),
    (
        "SELECT DISTINCT x.a, y.a AS z, s.c, s.w FROM r x, r y, s WHERE x.b = y.b AND y.b = s.b AND s.n <> 'b'",
        "x.a + y.a + 2 * s.c DESC NULLS FIRST, s.w",
        "LIMIT 9",
        (0.2, 0),
    ),
    ("SELECT DISTINCT s.n, s.w, r.a FROM r JOIN s USING (b)", "s.w - r.a, n DESC", "OFFSET 3", (0.6, 0.1)),
    ("SELECT DISTINCT r.a FROM r JOIN s USING (b) WHERE s.w < 6", "a DESC", "LIMIT 4", (0.5, 0)),
    ("SELECT DISTINCT r.a, s.w FROM r JOIN s USING (b)", "r.a - 0.3::DOUBLE * s.w", "LIMIT 5", (0.5, 0)),
    ("SELECT DISTINCT s.n FROM r JOIN s USING (b)", "1", "LIMIT 2", (0.3,)),
]


def insert(con: Any, rng: random.Random, rows: int) -> None:
    """Rows of which some values are in many."""
    a, b = lambda: rng.choice(["NULL", "0", "0", "0", "1", "1", "2", "3", "4"]), lambda: rng.randrange(4)
    con.execute("INSERT INTO r VALUES " + ", ".join(f"({a()}, {b()})" for _ in range(rows)))
    text = lambda: rng.choice(["NULL", "'a'", "'a'", "'b'", "'c'"])  # noqa: E731
    values = (f"({b()}, {a()}, {rng.randrange(3)}, {text()})" for _ in range(rows))
    con.execute(f"INSERT INTO s VALUES {', '.join(values)}")


@pytest.mark.parametrize("number", range(len(STARS)))
def test_random_streams_against_duckdb(number: int) -> None:
    """After every change by SQL, the feed, and what the parts must be; at the end nothing is left."""
    select, order, limit, epsilons = STARS[number]
    rng, con = random.Random(number), sqlfront.connect()
    con.execute(TABLES)
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilons[0]}) AS {select} ORDER BY {order} {limit}")
    [maintained] = con.session.database.engine.views.values()
    ties = ", ".join(str(place + 1) for place in range(len(maintained.definition.columns)))
    feed, followed, seen, part_trees = con.view("v").subscribe(timeout=0), Counter(), set(), Counter()
    for step in range(18):
        if step % 6 == 5:
            epsilon = epsilons[(step // 6) % len(epsilons)]
            con.execute(f"ALTER MATERIALIZED VIEW v SET (epsilon = {epsilon})")
        elif rng.random() < 0.7:
            insert(con, rng, rng.choice([1, 1, 4]))
        else:
            con.execute(f"DELETE FROM {rng.choice('rs')} WHERE b = {rng.randrange(4)}")
        maintained.balance._check()
        wanted = con.execute(f"{select} ORDER BY {order}, {ties} {limit}").fetchall()
        assert con.view("v").top(100) == wanted
        assert list(con.view("v").ordered()) == wanted
        take(feed, followed)
        assert +followed == Counter(wanted)
        seen.add(tuple(wanted))
        for kept in maintained.balance.part_trees.trees:
            part_trees[kept.planned.name] += bool(kept.ranked[0].root.table.live)
    assert len(seen) > 2 and all(part_trees.values()), (len(seen), part_trees)
    con.execute("DELETE FROM r; DELETE FROM s")
    assert con.view("v").count() == 0
    state = con.execute("SHOW STATE FOR v").df()
    assert state[state["view"] == "v"]["entries"].sum() == 0, state
    con.close()


def test_heavy_ends_that_meet_often_are_not_waited_for() -> None:
    """Three ends meet three in n ways each: without epsilon a row waits for all n of them."""
    waits: dict[str, list[int]] = {"": [], "WITH (epsilon = 0.5)": []}
    for n in (64, 256, 1024):
        for options, found in waits.items():
            con = star_of(f"SELECT i % 3, i // 3 FROM range({3 * n}) q(i)", options)
            assert con.view("v").top(20) == [(a, c) for a in range(3) for c in range(3)]
            found.append(max(longest_wait(RankedWalk(tree)) for tree in order_of(con).trees()))
            con.close()
    assert waits[""][-1] > 12 * waits[""][0], waits
    assert max(waits["WITH (epsilon = 0.5)"]) <= 2 * min(waits["WITH (epsilon = 0.5)"]), waits


def test_a_change_of_a_light_end_is_logarithmic() -> None:
    """The others at its b are many, but it joins none of them."""
    steps = []
    for n in (64, 256, 1024):
        con = star_of(f"SELECT i, 0 FROM range({n}) q(i)", "WITH (epsilon = 0.5)")
        con.execute(f"INSERT INTO r VALUES ({n}, 0)")
        before = con.view("v").cost()["steps"]
        con.execute(f"DELETE FROM r WHERE a = {n}")
        steps.append(con.view("v").cost()["steps"] - before)
        con.close()
    assert steps[-1] <= steps[0] + 3 * 4, steps


def test_what_epsilon_does_not_divide() -> None:
    con = sqlfront.connect()
    con.execute(TABLES)
    for query in (
        "SELECT DISTINCT r.a, r.b, s.c FROM r JOIN s USING (b) ORDER BY a LIMIT 3",  # The centre is put out.
        "SELECT r.a, s.c FROM r JOIN s USING (b) ORDER BY r.a LIMIT 3",  # Nothing is summed out.
        "SELECT DISTINCT x.a, z.c FROM r x, r y, s z WHERE x.b = y.a AND y.b = z.b ORDER BY 1 LIMIT 3",  # A path.
    ):
        with pytest.raises(sqlfront.ProgrammingError, match="epsilon does not apply"):
            con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {query}")
    con.close()


def test_a_cast_in_a_rounded_sum_stays_where_atoms_fold() -> None:
    con = sqlfront.connect()
    con.execute(TABLES)
    con.execute(
        "INSERT INTO r SELECT i % 4, i % 3 FROM range(20) q(i); INSERT INTO s SELECT i % 3, i, i, '' FROM range(9) q(i)"
    )
    query = "SELECT DISTINCT r.a, s.w FROM r JOIN s USING (b) JOIN r again USING (b) ORDER BY r.a::DOUBLE - s.w"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query} LIMIT 7")
    assert "folds onto" in str(con.explain("v"))
    for change in ("SELECT 1", "DELETE FROM s WHERE w = 8", "INSERT INTO r VALUES (0, 0)"):
        con.execute(change)
        assert con.view("v").top(9) == con.execute(f"{query}, 1, 2 LIMIT 7").fetchall()
    con.close()


def star_of(ends: str, options: str) -> Any:
    """A view over r and s with the same ends."""
    con = sqlfront.connect()
    con.execute(TABLES)
    con.execute(f"INSERT INTO r {ends}; INSERT INTO s SELECT b, a, 0, '' FROM r")
    con.execute(f"CREATE MATERIALIZED VIEW v {options} AS {STARS[0][0]} ORDER BY r.a, s.c LIMIT 20")
    return con


def order_of(con: Any) -> Any:
    [view] = con.session.database.engine.views.values()
    return view.ranked[0]
