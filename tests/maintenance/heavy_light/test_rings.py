"""Sums over rings of four by heavy and light parts: right after every step, at the counted cost."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import product

import pyarrow as pa
import pytest

import sqlfront
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.ring import find_ring
from sqlfront.planner.heavy_light.ring_sum import _Trees
from sqlfront.planner.heavy_light.strategies import find_union
from sqlfront.planner.model.heavy_light import Cell, PartKey, Status
from tests.following import is_query
from tests.maintenance.heavy_light.test_part_trees import EPSILONS, slope
from tests.planner.notation import parse_definition

FOUR = {"r": "ab", "s": "bc", "t": "cd", "u": "da"}
RING = "FROM r, s, t, u WHERE r.b = s.b AND s.c = t.c AND t.d = u.d AND u.a = r.a"
ONE = {"e": "xy"}
RING_OF_ONE = "FROM e r, e s, e t, e u WHERE r.y = s.x AND s.y = t.x AND t.y = u.x AND u.y = r.x"
SUMS = "SELECT count(*) AS n, sum(r.w * t.w) AS v, sum(u.w) AS z"
Rows = list[tuple[int, int, int, int]]


class Rings:
    """Tables with a column w, and a view of their rings for each epsilon."""

    def __init__(self, tables: dict[str, str]) -> None:
        self.con, self.tables = sqlfront.connect(), tables
        for name, (x, y) in tables.items():
            self.con.execute(f"CREATE CHANGE TABLE {name} ({x} BIGINT, {y} BIGINT, w BIGINT) WITH (retain = true)")

    def create(self, name: str, epsilon: float, query: str) -> None:
        self.con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (epsilon = {epsilon}) AS {query}")

    def balance(self, name: str):
        return self.con.session.database.view(self.con.session.duck, [name]).maintained.balance

    def apply(self, changes: dict[str, Rows]) -> None:
        tables = {}
        for name, rows in changes.items():
            columns = (*self.tables[name], "w", "_weight")
            tables[name] = pa.table({c: pa.array([r[i] for r in rows], pa.int64()) for i, c in enumerate(columns)})
        self.con.apply(tables)


def hubs(generator: random.Random, size: int) -> Rows:
    """Rows of a table in which some of few values have many rows, by the first column, the second, or both."""
    rows = [(generator.randrange(4), generator.randrange(4), generator.choice((-1, 1, 2)), 1) for _ in range(8)]
    for hub in range(4):
        for place in range(2):
            if generator.random() < 0.5:
                for i in range(size):
                    row = (hub, 4 + i, 1, 1) if place == 0 else (4 + i, hub, 1, 1)
                    rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("tables", "query", "epsilon"),
    [*((FOUR, f"{SUMS} {RING}", epsilon) for epsilon in EPSILONS), (ONE, f"{SUMS} {RING_OF_ONE}", 0.25)],
)
def test_random_streams(tables, query, epsilon):
    """Few rows, in ones and in batches, with values that become heavy and light, until all is deleted."""
    rings, generator = Rings(tables), random.Random(f"{query} {epsilon}")
    rings.create("v", epsilon, query)
    bags: dict[str, Counter] = {name: Counter() for name in tables}
    for step in range(8):
        changes: dict[str, Rows] = {}
        for _ in range(1 if step % 3 == 1 else generator.randrange(20, 70)):
            name = generator.choice(list(bags))
            bag = bags[name]
            if +bag and generator.random() < (0.2 if step < 6 else 0.9):
                row, weight = generator.choice(list(+bag)), -1
            else:
                key = (generator.choice((0, 1, generator.randrange(12))) for _ in range(2))
                row, weight = (*key, generator.choice((-2, 1, 3))), generator.choice((1, 1, 2))
            bag[row] += weight
            changes.setdefault(name, []).append((*row, weight))
        rings.apply(changes)
        assert is_query(rings.con)
        if step % 3 == 1:
            rings.balance("v")._check()
    rings.apply({name: [(*row, -n) for row, n in (+bag).items()] for name, bag in bags.items() if +bag})
    assert rings.con.execute("SELECT n FROM v").fetchall() == [(0,)]
    rings.balance("v")._check()
    assert sum(map(sum, rings.balance("v").figures().views)) == 0


def test_every_sum_that_is_kept_comes_to_use():
    """Values that are heavy in one column of one table and light in the next, in all ways; each sum has had rows."""
    used: Counter[str] = Counter()
    for seed in range(8):
        rings, generator = Rings(FOUR), random.Random(seed)
        rings.apply({name: hubs(generator, 20) for name in FOUR})
        rings.create("v", 0.4, f"{SUMS} {RING}")
        for _ in range(2):
            assert is_query(rings.con)
            for kept in rings.balance("v").part_trees.trees:
                used[kept.planned.name] += sum(view.table.live for view in rings.balance("v").part_trees.own(kept))
            changes = [(*(generator.randrange(5) for _ in range(2)), 1, 1) for _ in range(4)]
            rings.apply(dict.fromkeys(generator.sample(list(FOUR), 2), changes))
    unused = [name for name, rows in used.items() if not rows and " to " not in name and " with " not in name]
    assert unused == []


def fits(part: str, cell: str) -> bool:
    return all(letter in ("*", status) for letter, status in zip(part, cell, strict=True))


def test_a_change_meets_each_combination_of_parts_once():
    """Each of the 64 combinations of heavy and light rows of the other tables is in one part tree of an atom."""
    definition = parse_definition("R(a,b), S(b,c), T(c,d), U(d,a) ->")
    ring = find_ring(definition, 4)
    assert ring is not None
    cells = list(product((Status.HEAVY, Status.LIGHT), repeat=2))

    def inside(part: PartKey) -> set[Cell]:
        return {cell for cell in cells if part.has(cell)}

    for i in range(4):
        met = Counter(
            combination
            for part_tree in _Trees(definition, ring).changes(i)
            for combination in product(*(inside(part) for _, part in part_tree.parts[1:]))
        )
        assert set(met.values()) == {1} and len(met) == 64


@pytest.mark.parametrize("text", [
    "R(a,b), S(b,c), T(c,d), U(d,a), V(b,e) -> a,c", "R(a,b), S(b,c), T(c,d), U(a,c) ->",
    "R(a,b), S(b,a), T(a,c), U(c,a) ->",
    "R(a,b), S(b,c), T(c,a), U(a,d) ->", "R(a,b), S(b,c), T(c,d), U(d,e), V(e,f), W(f,a) -> a",
])  # fmt: skip
def test_other_joins_have_no_such_strategy(text):
    definition = parse_definition(text)
    assert find_union(definition, plan_view(definition)) is None


def instance(epsilon: float, base: int) -> dict[str, Rows]:
    """Rows with which a change of R(-1, -2) lists as many as it may: rows of a light value, or pairs of heavy ones."""
    theta, rows = base**epsilon, {name: [] for name in FOUR}
    if epsilon > 2 / 3:
        for k in range(int(theta * 0.9)):
            for name, key in zip("stu", ((-2, k), (k, k), (k, -1)), strict=True):
                rows[name].append((*key, 1, 1))
    else:
        many, heavy = int(theta * 1.1) + 1, int(base ** (1 - epsilon) / 8)
        for k in range(heavy):
            rows["s"].append((-2, k, 1, 1))
            rows["u"] += [(k, -1, 1, 1), *((k, 10**6 + i, 1, 1) for i in range(many))]
            rows["t"] += [(k, d, 1, 1) for d in range(heavy)]
            rows["t"] += [(k, 10**6 + k * many + i, 1, 1) for i in range(many)]
    size = sum(map(len, rows.values()))
    rows["r"] += [(10**7 + i, 10**7 + i, 1, 1) for i in range(base // 2 - size)]
    return rows


def median_steps(rings):
    """Of a row of r that comes and goes."""
    view, taken = rings.con.view("v"), []
    for weight in (1, -1) * 3:
        before = view.cost()["steps"]
        rings.con.apply_row("r", (-1, -2, 1), weight)
        taken.append(view.cost()["steps"] - before)
    return sorted(taken)[3]


@pytest.mark.parametrize("epsilon", [0.5, 0.6, 0.75])
def test_an_update_costs_what_is_stated(epsilon):
    sizes, steps = [4_000, 32_000, 256_000] if epsilon < 2 / 3 else [1_000, 10_000, 100_000], []
    for base in sizes:
        rings = Rings(FOUR)
        rings.apply(instance(epsilon, base))
        rings.create("v", epsilon, f"SELECT count(*) AS n {RING}")
        steps.append(median_steps(rings))
    union = rings.con.session.database.view(rings.con.session.duck, ["v"]).maintained.plan.union
    stated = union.exponents.update.at(Fraction(str(epsilon)))
    assert stated == max(Fraction(str(epsilon)), min(1, 2 - 2 * Fraction(str(epsilon))))
    assert -0.2 < slope(sizes, steps) - float(stated) < 0.05


def test_explain_says_what_it_costs():
    rings = Rings(FOUR)
    rings.create("v", 0.75, f"{SUMS} {RING}")
    explained = rings.con.explain("v").to_dict()
    assert explained["cost"]["update"] == "O(N^0.75) amortised" and explained["cost"]["space"] == "O(N^1.75)"
    assert "28 sums" in explained["reason"] and len(explained["heavy"]["part_trees"]) == 28
    assert "HH|LL" in str(rings.con.explain("v"))
    rings.con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.5)")
    assert rings.con.explain("v").to_dict()["cost"]["update"] == "O(N) amortised"
    rings.con.execute("SHOW STATE FOR v").fetchall()
