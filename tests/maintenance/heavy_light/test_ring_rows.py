"""All rows of rings of four by heavy and light values: right after every step, in little space, first rows first."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest

import sqlfront
from sqlfront.maintenance.ranked.cursor import RankedWalk
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.ring_rows import ADJACENT, OPPOSITE, TURNED, ring_rows
from tests.following import is_query
from tests.maintenance.heavy_light.test_part_trees import slope
from tests.maintenance.heavy_light.test_rings import FOUR, ONE, RING, RING_OF_ONE, Rings, Rows, fits, median_steps
from tests.planner.notation import parse_definition

COLUMNS = "r.a, s.b, t.c, u.d"
SCORE = "r.w + s.w + t.w + u.w"
SCORED = f"SELECT {COLUMNS}, {SCORE} AS score {RING}"


def maintained(rings: Rings, name: str = "v"):
    return rings.con.session.database.view(rings.con.session.duck, [name]).maintained


def is_right(rings: Rings, name: str = "v", *, whole: bool = True) -> bool:
    """The view is as its query says, and its partition as its epsilon does."""
    if whole:
        rings.balance(name)._check()
        for table in maintained(rings, name).ranked_tables():
            table._check()
    return is_query(rings.con, name)


def change(generator: random.Random, bags: dict[str, Counter], count: int, leaving: float) -> dict[str, Rows]:
    """Inserts of few values, some of which many rows have, and deletes."""
    changes: dict[str, Rows] = {}
    for _ in range(count):
        name = generator.choice(list(bags))
        bag = bags[name]
        if +bag and generator.random() < leaving:
            row, weight = generator.choice(list(+bag)), -1
        else:
            key = (generator.choice((0, 1, generator.randrange(9))) for _ in range(2))
            row, weight = (*key, generator.randrange(5)), generator.choice((1, 1, 2))
        bag[row] += weight
        changes.setdefault(name, []).append((*row, weight))
    return changes


QUERIES = {
    **{f"at {epsilon}": (FOUR, f"SELECT {COLUMNS} {RING}", epsilon) for epsilon in (0, 0.25, 0.5, 1)},
    "distinct": (FOUR, f"SELECT DISTINCT {COLUMNS} {RING}", 0.4),
    "wider": (FOUR, f"SELECT {COLUMNS}, r.w, u.w AS z {RING}", 0.3),
    "narrower": (FOUR, f"SELECT r.a, t.w {RING}", 0.3),
    "grouped": (FOUR, f"SELECT {COLUMNS}, count(*) AS n, sum(r.w * t.w) AS v {RING} GROUP BY ALL", 0.4),
    "self-join": (ONE, f"SELECT r.x, s.x AS y, t.x AS z, u.x AS o {RING_OF_ONE}", 0.3),
    "limited": (FOUR, f"{SCORED} ORDER BY score DESC LIMIT 7 OFFSET 2", 0.4),
    "ordered": (FOUR, f"{SCORED} ORDER BY score DESC", 0.3),
    "limited distinct": (FOUR, f"SELECT DISTINCT {COLUMNS} {RING} ORDER BY t.c - r.a, s.b DESC LIMIT 9", 0.4),
    "limited self-join": (
        ONE, f"SELECT r.x, s.x AS y, t.x AS z, u.x AS o, r.w + s.w AS n {RING_OF_ONE} ORDER BY n, t.w LIMIT 5", 0.3,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tables", "query", "epsilon"), QUERIES.values(), ids=QUERIES)
def test_random_streams(tables, query, epsilon):
    """Values become heavy and light, the number of rows doubles and halves; at the end nothing is left."""
    rings, generator = Rings(tables), random.Random(f"{query} {epsilon}")
    rings.create("v", epsilon, query)
    assert maintained(rings).tree.is_shared and maintained(rings).plan.union.joint
    bags = {name: Counter({(100 + i, 100 + i, 1): 1 for i in range(160 // len(tables))}) for name in tables}
    rings.apply({name: [(*row, 1) for row in bag] for name, bag in bags.items()})
    for step in range(6):
        rings.apply(change(generator, bags, 1 if step % 3 == 1 else 24, 0.1 if step < 4 else 0.9))
        if step in (2, 3):  # A value has many rows of a table, and loses them.
            rings.apply({next(iter(tables)): [(0, 50 + i, 1, 1 if step == 2 else -1) for i in range(40)]})
        assert is_right(rings, whole=step % 3 == 0)
    assert rings.balance("v").minors > 0 or epsilon > 0.5 or epsilon == 0
    rings.apply({name: [(*row, -n) for row, n in (+bag).items()] for name, bag in bags.items() if +bag})
    assert is_right(rings) and rings.con.view("v").count() == 0 and rings.balance("v").majors > 1
    state = rings.con.execute("SHOW STATE FOR v").df()
    assert state[~state["kind"].isin(["table"])]["entries"].sum() == 0


@pytest.mark.parametrize("order", ["score DESC", "r.w DESC, u.w - s.w", "2 * t.w, r.a + s.b DESC NULLS FIRST"])
def test_first_rows_are_those_of_duckdb(order):
    """After every step of a stream with NULLs; several part trees have rows."""
    rings, generator = Rings(FOUR), random.Random(order)
    query = f"{SCORED} ORDER BY {order}"
    rings.create("v", 0.4, query)
    [plan] = rings.con.explain("v").to_dict()["orders"]
    assert plan["strategy"] == "ranked enumeration" and len(plan["trees"]) == 10
    bags: dict[str, Counter] = {name: Counter() for name in FOUR}
    seen = set()
    for step in range(5):
        rings.apply(change(generator, bags, 30, 0.5 if step > 2 else 0.2))
        rings.con.execute(f"INSERT INTO {generator.choice('rstu')} VALUES (0, {generator.randrange(3)}, NULL)")
        expected = rings.con.execute(f"{query}, 1, 2, 3, 4, 5 LIMIT 12").fetchall()
        assert rings.con.view("v").top(12) == expected
        assert rings.con.view("v").top(700) == rings.con.execute(f"{query}, 1, 2, 3, 4, 5 LIMIT 700").fetchall()
        seen.add(tuple(expected))
    assert len(seen) > 2
    names = [tree["rows"] for tree in rings.con.explain("v").to_dict()["orders"][0]["trees"]]
    assert sum(rows > 0 for rows in names) > 3


def test_each_ring_is_in_one_part_tree():
    definition = parse_definition("R(a,b), S(b,c), T(c,d), U(d,a) -> a,b,c,d")
    union = ring_rows(definition, plan_view(definition))
    assert union is not None and len(union.part_trees) == 10
    cells = ["".join(part_key) for part_key in product("HL", repeat=4)]
    met = Counter(cell for cell in cells for status in (*OPPOSITE, *TURNED, *ADJACENT) if fits(status, cell))
    assert set(met) == set(cells) and set(met.values()) == {1}
    for part_tree in union.part_trees:
        part_key = dict(zip("abcd", part_tree.name, strict=True))
        for edge in union.edges:
            assert str(part_tree.part(edge.atom)) == part_key[edge.first] + part_key[edge.second]


def test_each_part_tree_has_the_rings_of_its_status():
    """A ring for each of the 16 ways in which values may be heavy, in the first of their tables or in the second."""
    rings, statuses = Rings(FOUR), ["".join(part_key) for part_key in product("HL", repeat=4)]
    rows: dict[str, Rows] = {name: [] for name in FOUR}
    for number, status in enumerate(statuses):
        values = [1000 * number + place for place in range(4)]
        for place, name in enumerate(FOUR):
            rows[name].append((values[place], values[(place + 1) % 4], 1, 1))
            if status[place] == "H" and number % 2:
                rows[name] += [(values[place], 10**6 + 1000 * number + i, 1, 1) for i in range(40)]
            if status[(place + 1) % 4] == "H" and not number % 2:
                rows[name] += [(10**6 + 1000 * number + i, values[(place + 1) % 4], 1, 1) for i in range(40)]
    rings.create("v", 0.4, f"SELECT {COLUMNS} {RING}")
    rings.apply(rows)
    assert is_right(rings) and rings.con.view("v").count() == 16
    for kept in rings.balance("v").part_trees.trees:
        assert kept.top().table.live == sum(fits(kept.planned.name, status) for status in statuses)


@pytest.mark.parametrize("text", [
    "R(a,b), S(b,c), T(c,d), U(d,a) -> a,c", "R(a,b), S(b,c), T(c,d), U(a,c) -> a,b,c,d",
    "R(a,b), S(b,c), T(c,d), U(d,e), V(e,a) -> a,b,c,d,e", "R(a,b), S(b,c), T(c,d), U(d,a), V(a,x) -> a,b,c,d,x",
])  # fmt: skip
def test_other_queries_have_no_such_strategy(text):
    definition = parse_definition(text)
    assert ring_rows(definition, plan_view(definition)) is None


def test_without_epsilon_one_output_is_kept_and_it_is_offered():
    rings = Rings(FOUR)
    rings.con.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {COLUMNS} {RING}")
    explained = rings.con.explain("v").to_dict()
    assert maintained(rings).balance is None and explained["cost"]["space"] == "O(N^2)"
    assert "WITH (epsilon = 0.5)" in explained["suggestion"]


def fan(con: sqlfront.Connection, n: int) -> None:
    """n^2 rings: one b and one d, n values of a and of c."""
    for name, key in (("r", "i, 0"), ("s", "0, i"), ("t", "i, 0"), ("u", "0, i")):
        con.execute(f"INSERT INTO {name} SELECT {key}, (i * 7 + {ord(name)}) % 11 FROM range({n}) x(i)")


def grid(con: sqlfront.Connection, n: int) -> None:
    """n^4 rings: n values of each column, every pair of which is a row."""
    for name in FOUR:
        con.execute(f"INSERT INTO {name} SELECT i, j, (i * 7 + j) % 11 FROM range({n}) x(i), range({n}) y(j)")


@pytest.mark.parametrize(("instance", "sizes", "exponent"), [(fan, (30, 100, 300), 1), (grid, (4, 8, 16), 1.5)])
def test_what_is_kept_does_not_grow_as_the_result(instance, sizes, exponent):
    rows, kept, results = [], [], []
    for n in sizes:
        rings = Rings(FOUR)
        rings.create("v", 0.5, f"SELECT {COLUMNS} {RING}")
        instance(rings.con, n)
        rows.append(rings.balance("v").size)
        kept.append(sum(map(sum, rings.balance("v").figures().views)))
        results.append(rings.con.view("v").count())
    assert slope(rows, results) == pytest.approx(2)
    assert slope(rows, kept) < exponent + 0.1, (rows, kept)


def test_the_first_rows_cost_the_same_however_many_there_are():
    steps, results = [], []
    for n in (20, 80, 320):
        rings = Rings(FOUR)
        fan(rings.con, n)
        rings.create("v", 0.5, f"{SCORED} ORDER BY score DESC LIMIT 10")
        walk = RankedWalk(maintained(rings).ranked[0])
        walk.next(10)
        steps.append(walk.steps)
        rings.create("w", 0.5, f"SELECT {COLUMNS} {RING}")
        results.append(rings.con.view("w").count())
    assert results == [400, 6_400, 102_400] and max(steps) <= 2 * min(steps), steps


def worst_case(base: int, epsilon: float) -> dict[str, Rows]:
    """Rows with which a change of R(-1, -2) lists as many as it may: heavy c of a light b and a heavy a; or, where b
    is heavy and a light, of each light d that U has with a the heavy c that T has with d."""
    theta = base**epsilon
    rows: dict[str, Rows] = {name: [] for name in FOUR}
    many, few = int(1.2 * theta) + 1, int(0.8 * theta)
    if 1 - epsilon > 2 * epsilon:
        heavy = int(base ** (1 - epsilon) / 4)
        rows["r"] += [(-1, 10**7 + i, 1, 1) for i in range(many)]
        rows["s"] += [(-2, c, 1, 1) for c in range(heavy)]
        rows["s"] += [(10**7 + i, c, 1, 1) for c in range(heavy) for i in range(many)]
    else:
        rows["r"] += [(10**7 + i, -2, 1, 1) for i in range(many)]
        rows["u"] += [(d, -1, 1, 1) for d in range(few)]
        rows["t"] += [(c, d, 1, 1) for c in range(few) for d in range(few)]
        rows["t"] += [(c, 10**7 + c * many + i, 1, 1) for c in range(few) for i in range(many)]
    size = sum(map(len, rows.values()))
    rows["u"] += [(10**8 + i, 10**8 + i, 1, 1) for i in range(base // 2 - size)]
    return rows


@pytest.mark.parametrize("epsilon", [0.25, 0.34, 0.45])
def test_an_update_costs_what_is_stated(epsilon):
    sizes, steps = [2_000, 12_000, 72_000], []
    for base in sizes:
        rings = Rings(FOUR)
        rings.apply(worst_case(base, epsilon))
        rings.create("v", epsilon, f"SELECT {COLUMNS} {RING}")
        steps.append(median_steps(rings))
    stated = maintained(rings).plan.union.exponents.update.at(Fraction(str(epsilon)))
    assert stated == max(1 - Fraction(str(epsilon)), 2 * Fraction(str(epsilon)))
    assert -0.2 < slope(sizes, steps) - float(stated) < 0.05, steps


def test_transactions_look_ups_and_feeds():
    rings = Rings(FOUR)
    rings.create("v", 0.4, f"SELECT DISTINCT {COLUMNS} {RING}")
    rings.create("w", 0.4, f"{SCORED} ORDER BY score LIMIT 3")
    feeds = [rings.con.view(name).subscribe(timeout=0) for name in "vw"]
    generator = random.Random(5)
    for name in FOUR:
        rows = {(generator.randrange(4), generator.randrange(4), 1, 1) for _ in range(14)}
        rings.apply({name: sorted(rows)})
    before = rings.con.execute("SELECT * FROM v ORDER BY ALL").fetchall()
    first = rings.con.view("w").top(3)
    assert len(before) > 20
    for row in before[::7]:
        assert rings.con.view("v").contains(row)
        found = rings.con.execute("SELECT * FROM v WHERE a = ? AND c = ? ORDER BY ALL", [row[0], row[2]]).fetchall()
        assert found == [other for other in before if (other[0], other[2]) == (row[0], row[2])]
    assert not rings.con.view("v").contains((9, 9, 9, 9))
    rings.con.execute("BEGIN")
    fan(rings.con, 12)
    rings.con.execute("DELETE FROM t WHERE c = 1")
    changed = rings.con.execute("SELECT * FROM v ORDER BY ALL").fetchall()
    assert changed != before and rings.con.execute("SELECT * FROM w").fetchall() != first
    rings.con.execute("ROLLBACK")
    assert rings.con.execute("SELECT * FROM v ORDER BY ALL").fetchall() == before
    assert rings.con.view("w").top(3) == first and is_right(rings) and is_right(rings, "w")
    rings.con.execute("DELETE FROM r WHERE a = 2")
    for name, feed in zip("vw", feeds, strict=True):
        told: Counter = Counter()
        for table in feed:
            for row in table.to_pylist():
                kind = row.pop("_change_type")
                told[tuple(v for k, v in row.items() if k[0] != "_")] += 1 if kind in _COME else -1
        assert +told == Counter(rings.con.execute(f"SELECT * FROM {name}").fetchall()) and min(told.values()) >= 0


_COME = ("insert", "update_postimage")


def test_it_is_kept_with_the_file_and_altered(tmp_path):
    path = str(tmp_path / "rings.db")
    with sqlfront.connect(path) as con:
        for name, (x, y) in FOUR.items():
            con.execute(f"CREATE TABLE {name} ({x} BIGINT, {y} BIGINT, w BIGINT)")
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.4) AS {SCORED} ORDER BY score DESC")
        fan(con, 20)
        first = con.view("v").top(5)
    with sqlfront.connect(path) as con:
        assert con.view("v").top(5) == first and con.view("v").count() == 400
        for epsilon, update, space in ((0.25, "O(N^0.75)", "O(N^1.75)"), (0.5, "O(N)", "O(N^1.5)")):
            con.execute(f"ALTER MATERIALIZED VIEW v SET (epsilon = {epsilon})")
            explained = con.explain("v").to_dict()
            assert explained["cost"]["update"] == f"{update} amortised" and explained["cost"]["space"] == space
            assert explained["cost"]["delay"] == "O(1)" and len(explained["heavy"]["part_trees"]) == 10
            assert explained["orders"][0]["cost"]["update"] == f"{update[:-1]} log N) amortised"
            con.execute("DELETE FROM r WHERE a = 3")
            con.execute(f"INSERT INTO s VALUES (0, {int(100 * epsilon)}, 50), (1, 1, 1)")
            assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
            expected = con.execute(f"{SCORED} ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT 5").fetchall()
            assert con.view("v").top(5) == expected
        assert "10 part trees with none in common" in str(con.explain("v"))
