"""Ranked enumeration: the worked examples, random orders and streams against DuckDB, and what it costs."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from tests.maintenance.ranked.naive_top import naive_top

JOIN = "FROM r JOIN s ON r.b = s.b JOIN t ON s.c = t.c"


@pytest.fixture
def con() -> Any:
    with sqlfront.connect(":memory:") as connection:
        yield connection


def ranked(con: Any, view: str, number: int = 0) -> Any:
    return con.session.database.view(con.session.duck, (view,)).maintained.ranked[number]


def check(con: Any) -> None:
    """Every ranked table holds its invariants."""
    for view in con.session.database.engine.views.values():
        for table in view.ranked_tables():
            table._check()


def test_the_worked_example_comes_in_its_order(con: Any) -> None:
    """Deep, Hu and Koutris 2022, examples 38 and 39: the sum of tuple weights over four relations."""
    con.execute("CREATE TABLE r1(x INT, y INT, w INT); CREATE TABLE r2(y INT, z INT, w INT)")
    con.execute("CREATE TABLE r3(z INT, p INT, w INT); CREATE TABLE r4(z INT, u INT, w INT)")
    con.execute("INSERT INTO r1 VALUES (1, 1, 1), (2, 1, 2); INSERT INTO r2 VALUES (1, 1, 1), (3, 1, 9)")
    con.execute("INSERT INTO r3 VALUES (1, 1, 1), (1, 2, 4); INSERT INTO r4 VALUES (1, 1, 1), (1, 2, 5)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT x, p, u, r1.w + r2.w + r3.w + r4.w AS score "
        "FROM r1 JOIN r2 USING (y) JOIN r3 USING (z) JOIN r4 USING (z) ORDER BY score LIMIT 100"
    )
    rows = con.execute("SELECT * FROM v").fetchall()
    assert [row[3] for row in rows] == [4, 5, 7, 8, 8, 9, 11, 12]
    found = [row[:3] for row in rows]
    assert found == [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2)]


def test_a_weighted_path_is_as_the_naive_one(con: Any) -> None:
    """Example 33: a self-joined path, ordered by 5 w1 + 2 w2 + 4 w3."""
    rng = random.Random(33)
    rows = [(rng.randrange(4), rng.randrange(4), rng.randrange(-9, 9)) for _ in range(25)]
    con.execute("CREATE TABLE e(x INT, y INT, w INT)")
    con.executemany("INSERT INTO e VALUES (?, ?, ?)", rows)
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT a.x, a.y, c.x AS z, c.y AS u FROM e a, e b, e c "
        "WHERE a.y = b.x AND b.y = c.x ORDER BY 5 * a.w + 2 * b.w + 4 * c.w LIMIT 40"
    )
    expected = naive_top(
        [rows, rows, rows],
        lambda r: r[0][1] == r[1][0] and r[1][1] == r[2][0],
        lambda r: (5 * r[0][2] + 2 * r[1][2] + 4 * r[2][2], r[0][0], r[0][1], r[2][0], r[2][1]),
    )
    assert con.view("v").rows() == [(*r[0][:2], *r[2][:2]) for r in expected[:40]]


def test_a_self_joined_sum_counts_a_shared_column_once(con: Any) -> None:
    con.execute("CREATE TABLE r(k INT, w INT); CREATE TABLE s(k INT, v INT)")
    con.execute("INSERT INTO r VALUES (1, 0), (5, 0); INSERT INTO s VALUES (1, 5), (5, 0)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT r.k, v FROM r, s WHERE r.k = s.k ORDER BY r.k + v + w DESC LIMIT 2"
    )
    assert con.view("v").rows() == [(1, 5), (5, 0)]


def test_combinations_are_each_met_once(con: Any) -> None:
    """The duplication instance: a row with two children of n rows has n * n combinations, and as many cells."""
    con.execute("CREATE TABLE r(k INT); CREATE TABLE s(k INT, a INT); CREATE TABLE t(k INT, b INT)")
    con.execute("INSERT INTO r VALUES (1); INSERT INTO s SELECT 1, range FROM range(10)")
    con.execute("INSERT INTO t SELECT 1, range FROM range(10)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, b FROM r, s, t WHERE r.k = s.k AND r.k = t.k ORDER BY a + b")
    walk = RankedWalk(ranked(con, "v"))
    assert walk.next(1000) == 100
    assert walk.cells <= 100 + 10 + 10 + 2
    assert con.view("v").top(1000) == sorted(((a, b) for a in range(10) for b in range(10)), key=lambda r: (sum(r), r))


def test_a_walk_gives_what_it_is_asked_for_behind_sums_that_are_null(con: Any) -> None:
    """Rows that are fetched ahead, to sort those whose sum is NULL, wait until they are asked for."""
    con.execute("CREATE TABLE r(k INT, a INT, x INT); CREATE TABLE s(k INT, y INT); INSERT INTO s VALUES (1, 1)")
    con.execute("INSERT INTO r SELECT 1, i, CASE WHEN i >= 10 THEN i END FROM range(50) x(i)")
    query = "SELECT a, x + y AS n FROM r JOIN s ON r.k = s.k ORDER BY n NULLS FIRST, a DESC"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    walk = RankedWalk(ranked(con, "v"))
    given = [walk.next(3) for _ in range(20)]
    assert max(given) == 3 and sum(given) == 50 and 0 not in given[: given.index(0)]
    assert con.view("v").top(50) == [*((a, None) for a in range(9, -1, -1)), *((a, a + 1) for a in range(10, 50))]


def test_the_worked_projection_comes_in_its_order(con: Any) -> None:
    """Examples 41, 43 and 44: the ends of a path, ordered by their sum; what several paths make is one row."""
    con.execute("CREATE TABLE r1(a INT, b INT); CREATE TABLE r2(b INT, c INT)")
    con.execute("CREATE TABLE r3(c INT, d INT); CREATE TABLE r4(d INT, e INT)")
    con.execute("INSERT INTO r1 VALUES (1, 1), (2, 1), (1, 2), (3, 2); INSERT INTO r2 VALUES (1, 1), (2, 1)")
    con.execute("INSERT INTO r3 VALUES (1, 1), (1, 2); INSERT INTO r4 VALUES (1, 1), (1, 2)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT DISTINCT a, e FROM r1 JOIN r2 USING (b) JOIN r3 USING (c) "
        "JOIN r4 USING (d) ORDER BY a + e LIMIT 100"
    )
    assert con.explain("v").to_dict()["strategy"] == "ranked enumeration"
    assert con.view("v").top(100) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    walk = RankedWalk(ranked(con, "v"))
    walk.next(100)
    assert walk.cells <= 40


def test_what_is_projected_out_is_not_enumerated(con: Any) -> None:
    """The first answer of a star projected onto one arm: not one of N^2 combinations of the others is made."""
    for name in "xyz":
        con.execute(f"CREATE TABLE {name}({name} INT, k INT); INSERT INTO {name} SELECT range, 1 FROM range(200)")
    query = "SELECT DISTINCT x FROM x, y, z WHERE x.k = y.k AND y.k = z.k ORDER BY x LIMIT 9"
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert con.view("v").rows() == [(i,) for i in range(9)]
    walk = RankedWalk(ranked(con, "v"))
    assert walk.next(50) == 50
    assert walk.cells < 200


def test_a_long_path_with_few_ends_is_not_joined(con: Any) -> None:
    """A path of four with a quadratic join and nine pairs of ends: each answer drains its duplicates once."""
    for name in ("e1", "e2", "e3", "e4"):
        con.execute(f"CREATE TABLE {name}(x INT, y INT)")
    con.execute("INSERT INTO e1 SELECT range % 3, range FROM range(120)")
    con.execute("INSERT INTO e2 SELECT range, 0 FROM range(120); INSERT INTO e3 SELECT 0, range FROM range(120)")
    con.execute("INSERT INTO e4 SELECT range, range % 3 FROM range(120)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT DISTINCT e1.x, e4.y FROM e1, e2, e3, e4 "
        "WHERE e1.y = e2.x AND e2.y = e3.x AND e3.y = e4.x ORDER BY e1.x + e4.y DESC"
    )
    pairs = sorted(((x, y) for x in range(3) for y in range(3)), key=lambda p: (-sum(p), p))
    assert con.view("v").top(100) == pairs
    walk = RankedWalk(ranked(con, "v"))
    walk.next(100)
    assert walk.cells < 20 * 120


ORDERS = [
    "r.w + s.w + t.w DESC",
    "r.w - 2 * t.w, r.x DESC",
    "r.x DESC NULLS FIRST, s.w + t.w NULLS FIRST, 2",
    "s.v, r.w",
    "t.d DESC, r.w + s.v DESC NULLS LAST",
    "ALL",
]
SELECTS = [
    f"SELECT r.a, r.x, t.d, r.w + s.w + t.w AS score {JOIN}",
    f"SELECT r.x, s.v, t.d {JOIN} WHERE r.a > 0",
    "SELECT r.a, r.x, s.w, t.d FROM r, s, t WHERE r.b = s.b AND r.a = t.c",
    "SELECT r.x, s.w AS w1, t.d FROM r, s, t WHERE r.b = s.b AND s.b = t.c",
    "SELECT r.a, s.v, t.w FROM r, s, t WHERE r.b = s.b",
]
DISTINCT = [
    f"SELECT DISTINCT r.a, t.d {JOIN}",
    f"SELECT DISTINCT r.x, t.w {JOIN} WHERE r.a > 0",
    "SELECT DISTINCT r.a, s.w, t.d FROM r, s, t WHERE r.b = s.b AND s.b = t.c",
    "SELECT DISTINCT r.w, t.w FROM r, t",
]
SELF = "SELECT r1.x, r2.x AS y, r1.w + r2.w AS score FROM r r1 JOIN r r2 ON r1.b = r2.b ORDER BY score DESC, y"


def _value(rng: random.Random, nulls: float, below: int) -> str:
    return "NULL" if rng.random() < nulls else str(rng.randrange(below))


def change(rng: random.Random, nulls: float) -> str:
    """A random change of one of three tables."""
    table = rng.choice("rst")
    value = lambda below: _value(rng, nulls, below)  # noqa: E731
    chance = rng.random()
    if chance < 0.5:
        more = {"r": f"'{rng.choice('abxyz') * rng.randrange(1, 3)}'", "s": f"{value(4)}.25", "t": value(3)}[table]
        more = "NULL" if "NULL" in more else more
        row = f"{value(3)}, {value(3)}, {value(9)}, {more}"
        return f"INSERT INTO {table} VALUES " + ", ".join([f"({row})"] * rng.choice([1, 1, 2]))
    if chance < 0.75:
        return f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} ORDER BY random() LIMIT 2)"
    if chance < 0.97:
        return f"UPDATE {table} SET w = {value(9)} WHERE {'b' if table != 't' else 'c'} = {rng.randrange(3)}"
    return f"DELETE FROM {table}"


def make_tables(con: Any) -> None:
    """Three empty tables, of several types."""
    con.execute(
        "CREATE TABLE r(a BIGINT, b INT, w INT, x VARCHAR); CREATE TABLE s(b BIGINT, c INT, w DECIMAL(7, 2), v DOUBLE)"
    )
    con.execute("CREATE TABLE t(c BIGINT, d INT, w BIGINT, e INT)")


@pytest.mark.parametrize("seed", range(9))
def test_random_orders_and_streams_against_duckdb(con: Any, seed: int) -> None:
    """After every change a view is what DuckDB's completed ORDER BY ... LIMIT gives, and so is its replayed feed."""
    rng = random.Random(seed)
    make_tables(con)
    for _ in range(25):
        con.execute(change(rng, 0.15 if seed % 2 else 0))
    select, order = rng.choice(SELECTS), rng.choice(ORDERS)
    if seed % 3 == 2:
        select, order = rng.choice(DISTINCT), rng.choice(["1 DESC, 2", "ALL", "2 NULLS FIRST"])
    limit = rng.choice(["LIMIT 5", "LIMIT 4 OFFSET 2", "OFFSET 3"])
    names = [row[0] for row in con.execute(f"DESCRIBE {select}").fetchall()]
    ties = ", ".join(f"{place}" for place in range(1, len(names) + 1))
    queries = {"v": f"{select} ORDER BY {order}", "self": SELF}
    completed = {"v": f"{select} ORDER BY {ties if order == 'ALL' else f'{order}, {ties}'}", "self": f"{SELF}, 1, 2"}
    feeds, replayed = {}, {}
    for name, query in queries.items():
        con.execute(f'CREATE MATERIALIZED VIEW "{name}" AS {query} {limit}')
        con.execute(f'CREATE MATERIALIZED VIEW "{name}_all" AS {query}')
        feeds[name], replayed[name] = con.view(name).subscribe(), Counter[Any]()
    for step in range(9):
        con.execute(change(rng, 0.15 if seed % 2 else 0) if step < 6 else f"DELETE FROM {'rst'[step - 6]}")
        for name in queries:
            expected = con.session.duck.execute(f"{completed[name]} {limit}").fetchall()
            assert con.execute(f'SELECT * FROM "{name}"').fetchall() == expected, (seed, step)
            assert con.view(name).top(3) == expected[:3]
            everything = con.session.duck.execute(completed[name]).fetchall()
            assert con.view(f"{name}_all").top(10) == everything[:10]
            assert con.view(f"{name}_all").count() == len(everything)
            while (told := feeds[name].poll()) is not None:
                for row in told.to_pylist():
                    sign = 1 if row["_change_type"] == "insert" else -1
                    replayed[name][tuple(row.values())[:-3]] += sign
            assert +replayed[name] == Counter(expected)
            assert all(count >= 0 for count in replayed[name].values())
        check(con)
    for table in "rst":
        con.execute(f"DELETE FROM {table}")
    assert all(
        table.entries() == 0 for view in con.session.database.engine.views.values() for table in view.ranked_tables()
    )


def test_a_failing_epoch_leaves_the_order_as_it_was(con: Any) -> None:
    con.execute("CREATE CHANGE TABLE r (a BIGINT, w BIGINT); CREATE CHANGE TABLE s (a BIGINT, w BIGINT)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT r.w AS x, s.w AS y FROM r, s WHERE r.a = s.a ORDER BY x + y LIMIT 3"
    )
    for i in range(9):
        con.apply_row("r", (i % 3, i))
        con.apply_row("s", (i % 2, 10 - i))
    before = con.view("v").rows()
    feed, seen = con.view("v").subscribe(snapshot=False), Counter[Any](before)
    with pytest.raises(sqlfront.Error):
        con.apply({"r": _batch([(0, 0, -1), (1, 1, -1), (2, 77, -1)]), "s": _batch([(0, 10, -1)])})
    assert con.view("v").rows() == before
    check(con)
    with con.cursor() as other:
        other.execute("BEGIN")
        other.apply_row("r", (0, -100))
        assert other.view("v").rows()[0] == (-100, 2)
        other.execute("ROLLBACK")
    assert con.view("v").rows() == before
    check(con)
    con.apply_row("s", (0, -5))
    change = feed.poll()
    for row in change.to_pylist():
        seen[row["x"], row["y"]] += 1 if row["_change_type"] == "insert" else -1
    assert +seen == Counter(con.view("v").rows()) != Counter(before)


def _batch(rows: list[tuple[int, int, int]]) -> Any:
    import pyarrow as pa

    return pa.table({"a": [r[0] for r in rows], "w": [r[1] for r in rows], "_weight": [r[2] for r in rows]})


def steps_read(con: Any, view: str, k: int) -> int:
    walk = RankedWalk(ranked(con, view))
    walk.next(k)
    return walk.steps


def joined(groups: int, order: str, kind: str = "BIGINT", value: str = "{} % 1000000") -> Any:
    """Three tables of 2 000 rows and the first 1 000 rows of their join by columns w, which `value` makes of a hash;
    the fewer `groups`, the larger the join."""
    con = sqlfront.connect(":memory:")
    for table, first, second in (("r", "a", "b"), ("s", "b", "c"), ("t", "c", "d")):
        con.execute(f"CREATE TABLE {table}({first} BIGINT, {second} BIGINT, w {kind})")
        con.execute(
            f"INSERT INTO {table} SELECT hash(range, '{first}') % {groups}, hash(range, '{second}') % {groups}, "
            f"{value.format(f'hash(range, {table!r})')} FROM range(2000)"
        )
    con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT r.a, s.b, s.c, t.d {JOIN} ORDER BY {order} LIMIT 1000")
    return con


def test_reads_and_updates_do_not_feel_the_size_of_the_join() -> None:
    """A join of 20 times as many rows costs the same steps to read, and k of them a multiple."""
    reads, spent = [], []
    for groups in (400, 90):
        with joined(groups, "r.w + s.w + t.w DESC") as con:
            reads.append([steps_read(con, "v", k) for k in (10, 100, 1000)])
            view = con.view("v")
            before = view.cost()["steps"]
            rng = random.Random(5)
            for _ in range(200):
                con.execute(f"INSERT INTO r VALUES (1, {rng.randrange(groups)}, {rng.randrange(1000000)})")
            spent.append((view.cost()["steps"] - before) / 200)
    for small, large in zip(*reads, strict=True):
        assert large <= 2 * small, reads
    for steps in reads:
        assert steps[2] <= 20 * steps[1] <= 400 * steps[0], reads
    assert spent[1] <= 3 * spent[0] < 300, spent


def test_only_a_changed_best_goes_up() -> None:
    """A row that is no group's best costs O(log group); at the hub a best that flips costs as little."""
    with sqlfront.connect(":memory:") as con:
        con.execute("CREATE TABLE r(a BIGINT, b BIGINT); CREATE TABLE s(b BIGINT, c BIGINT)")
        con.execute("INSERT INTO r SELECT range, 1 FROM range(20000); INSERT INTO s VALUES (1, 5), (1, 7)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a, c FROM r, s WHERE r.b = s.b ORDER BY a + c LIMIT 10")
        view = con.view("v")
        before = view.cost()["steps"]
        for _ in range(20):
            con.execute("INSERT INTO s VALUES (1, 1)")
            con.execute("DELETE FROM s WHERE c = 1")
        assert (view.cost()["steps"] - before) / 40 < 60
        assert view.rows()[0] == (0, 5)


def test_rows_with_a_null_sum_are_ordered_by_what_comes_after_it(con: Any) -> None:
    con.execute("CREATE TABLE r(k INT, w INT, id INT); CREATE TABLE s(k INT, w INT)")
    con.execute("INSERT INTO r VALUES (1, NULL, 1), (1, 5, 2); INSERT INTO s VALUES (1, NULL), (1, 1)")
    con.execute("CREATE MATERIALIZED VIEW v AS SELECT id, s.w FROM r, s WHERE r.k = s.k ORDER BY r.w + s.w, id LIMIT 9")
    assert con.view("v").rows() == [(2, 1), (1, 1), (1, None), (2, None)]
