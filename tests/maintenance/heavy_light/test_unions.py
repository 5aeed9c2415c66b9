"""Loomis-Whitney sums, sums over paths, projected joins: kept by heavy and light parts, right after every step."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.loomis_whitney import single_triangles
from sqlfront.planner.heavy_light.strategies import find_union
from sqlfront.planner.model.heavy_light import Reading
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Comparison
from tests.following import is_query
from tests.maintenance.heavy_light.test_part_trees import EPSILONS, THREE, Views, figure, hub_rows, slope
from tests.planner.notation import parse_definition

EDGES = {"p": "xy", "q": "xy"}
PATH = "FROM p e, q f, p g WHERE e.y = f.x AND f.y = g.x"
PATH_OF_ONE = "FROM p e, p f, p g WHERE e.y = f.x AND f.y = g.x"
JOINED = "FROM p e JOIN q f ON e.y = f.x"
JOINED_BY_TWO = "FROM p e JOIN q f ON e.y = f.x AND e.w = f.w"


def cycle(size: int, table: str | None = None) -> tuple[dict[str, str], str]:
    """The tables of a Loomis-Whitney join over the first letters, and its FROM and WHERE; of one table with itself."""
    letters = "abcdef"[:size]
    tables = {f"t{i}": "".join(letters[(i + j) % size] for j in range(size - 1)) for i in range(size)}
    first = {letter: next(name for name, own in tables.items() if letter in own) for letter in letters}
    joins = [
        f"{name}.{letter} = {first[letter]}.{letter}"
        for name, own in tables.items()
        for letter in own
        if first[letter] != name
    ]
    if table is None:
        return tables, f"FROM {', '.join(tables)} WHERE {' AND '.join(joins)}"
    for name, own in tables.items():
        renamed = {f"{name}.{letter}": f"{name}.{'abcdef'[place]}_" for place, letter in enumerate(own)}
        joins = [" = ".join(renamed.get(side, side) for side in join.split(" = ")) for join in joins]
    atoms = ", ".join(f"{table} AS {name}" for name in tables)
    return {table: "abcdef"[: size - 1]}, f"FROM {atoms} WHERE {' AND '.join(joins)}".replace("_", "")


class Kept:
    """Tables with a column w each, and views over them, one for each epsilon and query."""

    def __init__(self, tables: dict[str, str], queries: list[str], epsilons: list[float]) -> None:
        self.con, self.tables, self.views = sqlfront.connect(), tables, {}
        for name, columns in tables.items():
            declared = ", ".join(f"{column} BIGINT" for column in (*columns, "w"))
            self.con.execute(f"CREATE CHANGE TABLE {name} ({declared}) WITH (retain = true)")
        for epsilon in epsilons:
            for query in queries:
                name = f"v{len(self.views)}"
                self.con.execute(f"CREATE MATERIALIZED VIEW {name} WITH (epsilon = {epsilon}) AS {query}")
                self.views[name] = self.con.session.database.view(self.con.session.duck, [name]).maintained

    def apply(self, changes: dict[str, list[tuple[int, ...]]]) -> None:
        tables = {}
        for name, rows in changes.items():
            columns = (*self.tables[name], "w", "_weight")
            tables[name] = pa.table({c: pa.array([r[i] for r in rows], pa.int64()) for i, c in enumerate(columns)})
        self.con.apply(tables)

    def is_right(self, *, whole: bool) -> None:
        for name, view in self.views.items():
            assert is_query(self.con, name)
            assert view.balance is not None and view.tree.is_shared
            if whole:
                view.balance._check()

    def stored(self) -> int:
        """The rows of what part trees keep for themselves."""
        return sum(sum(map(sum, view.balance.figures().views)) for view in self.views.values())


def stream(kept: Kept, seed: str, steps: int, values: int) -> int:
    """A random stream, in ones and in batches, until all is deleted; the most rows that part trees ever kept."""
    generator, most = random.Random(seed), 0
    bags: dict[str, Counter] = {name: Counter() for name in kept.tables}
    for step in range(steps):
        changes: dict[str, list[tuple[int, ...]]] = {}
        for _ in range(1 if step % 2 else generator.randrange(30, 90)):
            name = generator.choice(list(bags))
            bag = bags[name]
            if +bag and generator.random() < (0.2 if step < 0.7 * steps else 0.9):
                row, weight = generator.choice(list(+bag)), -1
            else:
                key = (generator.choice((0, 1, generator.randrange(values))) for _ in kept.tables[name])
                row, weight = (*key, generator.choice((-2, 1, 3))), generator.choice((1, 1, 2))
            bag[row] += weight
            changes.setdefault(name, []).append((*row, weight))
        kept.apply(changes)
        kept.is_right(whole=step % 3 == 0)
        most = max(most, kept.stored())
    kept.apply({name: [(*row, -n) for row, n in (+bag).items()] for name, bag in bags.items() if +bag})
    kept.is_right(whole=True)
    assert kept.stored() == 0
    return most


@pytest.mark.parametrize("query", [
    f"SELECT count(*) AS n, sum(e.w * f.w * g.w) AS v, sum(g.w) AS z {PATH}",
    f"SELECT count(*) AS n {PATH_OF_ONE}",
    f"SELECT DISTINCT e.x {JOINED}",
    f"SELECT e.x, count(*) AS n, sum(e.w * f.w) AS v, avg(f.w) AS z {JOINED} GROUP BY e.x",
    f"SELECT e.x, count(*) AS n {JOINED_BY_TWO} GROUP BY e.x",
    "SELECT DISTINCT e.x FROM p e JOIN p f ON e.y = f.x",
])  # fmt: skip
def test_random_streams(query):
    assert stream(Kept(EDGES, [query], EPSILONS), query, 12, 12) > 0


@pytest.mark.parametrize(("size", "values"), [(4, 4), (5, 3)])
def test_loomis_whitney_sums(size, values):
    tables, joined = cycle(size)
    query = f"SELECT count(*) AS n, sum(t0.w * t1.w) AS v {joined}"
    assert stream(Kept(tables, [query], [0.1, 0.5]), query, 8, values) > 0


@pytest.mark.parametrize("query", [
    "SELECT t0.a, t0.b, t0.c, t1.d {joined}",
    "SELECT DISTINCT t0.a, t0.b, t0.c, t1.d {joined}",
    "SELECT t0.a, t0.b, t0.c, t1.d, count(*) AS n, sum(t0.w * t2.w) AS v {joined} GROUP BY ALL",
])  # fmt: skip
def test_whole_loomis_whitney_joins(query):
    tables, joined = cycle(4)
    kept = Kept(tables, [query.format(joined=joined)], [0, 0.1, 0.2, 1])
    assert stream(kept, query, 6, 4) > 0
    for view in kept.views.values():
        assert [part_tree.reading for part_tree in view.plan.union.part_trees].count(Reading.ENUMERATED) == 4
        assert str(view.plan.cost.delay) == "O(1)"


def test_a_whole_loomis_whitney_join_of_five():
    tables, joined = cycle(5)
    query = f"SELECT t0.a, t0.b, t0.c, t0.d, t1.e, count(*) AS n {joined} GROUP BY ALL"
    assert stream(Kept(tables, [query], [0.1]), query, 5, 3) > 0


@pytest.mark.parametrize(("by", "epsilon"), [
    ("a", 0.1), ("d, b", 0.2), ("a, b, c", 0.2), *(pytest.param(by, epsilon, marks=pytest.mark.slow)
    for by in ("a", "c", "b, d", "a, b, c", "d, b, c") for epsilon in (0, 0.1, 0.2, 1)),
])  # fmt: skip
def test_loomis_whitney_joins_by_some_of_their_columns(by, epsilon):
    """A tuple may be in several part trees, and several times in each."""
    tables, joined = cycle(4)
    columns = by.split(", ")
    named = ", ".join(f"{'t1' if column == 'd' else 't0'}.{column}" for column in columns)
    query = f"SELECT {named}, count(*) AS n, sum(t0.w * t2.w) AS v {joined} GROUP BY ALL"
    kept = Kept(tables, [query], [epsilon])
    generator = random.Random(by)
    kept.apply({name: [(*generator.choices(range(4), k=3), 1, 1) for _ in range(40)] for name in tables})
    rows = kept.con.execute("FROM v0").fetchall()
    assert sorted(rows) == sorted(kept.con.session.duck.execute(query).fetchall()) and len(rows) > 3
    for row in rows[:4]:
        where = " AND ".join(f"{column} = {value}" for column, value in zip(columns, row, strict=False))
        assert kept.con.execute(f"FROM v0 WHERE {where}").fetchall() == [row] and kept.con.view("v0").contains(row)
    assert kept.con.view("v0").count() == len(rows)
    kept.apply({name: [(*row, -1) for row in kept.con.session.duck.execute(f"SELECT * FROM {name}").fetchall()]
                for name in tables})  # fmt: skip
    assert kept.stored() == 0
    assert stream(kept, query, 4, 5) > 0
    part_trees = kept.views["v0"].plan.union.part_trees
    assert [part_tree.reading for part_tree in part_trees].count(Reading.ENUMERATED) == 4


@pytest.mark.parametrize("by", ["", "a, c"])
def test_a_loomis_whitney_join_of_six(by):
    tables, joined = cycle(6)
    named = "".join(f"t0.{column}, " for column in by.split(", ") if column)
    query = f"SELECT {named}count(*) AS n {joined}" + " GROUP BY ALL" * bool(by)
    kept = Kept(tables, [query], [0.1])
    assert str(kept.views["v0"].plan.cost.update) == "O(N^0.9) amortised"
    kept.apply({name: [(*row, 1, 1) for row in product(range(2), repeat=5)] for name in tables})
    kept.is_right(whole=True)
    stream_of = {name: [(*row, 1, -1) for row in product(range(2), repeat=5) if sum(row) % 3] for name in tables}
    kept.apply(stream_of)
    kept.apply({"t3": [(0, 0, 0, 0, 0, 1, 2)], "t1": [(1, 1, 1, 1, 1, 5, 1)]})
    kept.is_right(whole=True)


@pytest.mark.parametrize(("by", "epsilon"), [("t0.a", 0.25), ("t0.a, t0.b, t0.c", 0.5), ("", 0.75)])
def test_a_change_of_a_loomis_whitney_join_costs_what_is_stated(by, epsilon):
    """A change of t0 lists d, in vain: as many as a light (b, c) of t1 has, or as many as are heavy with c in t2."""
    sizes, steps = [1_000, 10_000, 100_000], []
    tables, joined = cycle(4)
    for base in sizes:
        kept, threshold = Kept(tables, [], []), int(np.ceil(base**epsilon))
        listed = threshold - 1
        if epsilon < 0.5:
            listed = base // 4 // (threshold + 2)
        rows = {
            "t1": [(0, 0, d, 1, 1) for d in range(base // 8 if epsilon < 0.5 else listed)],
            "t2": [(0, -d, 0, 1, 1) for d in range(1, listed + 1)],
            "t3": [(base + d, 0, 0, 1, 1) for d in range(listed)],
        }
        if epsilon < 0.5:
            rows["t2"] += [(0, -d, a, 1, 1) for d in range(1, listed + 1) for a in range(1, threshold + 2)]
        size = sum(map(len, rows.values()))
        rows["t0"] = [(-1 - i, -1 - i, -1 - i, 1, 1) for i in range(base // 2 - size)]
        kept.apply(rows)
        grouped = f"SELECT {by}, count(*) AS n {joined} GROUP BY ALL" if by else f"SELECT count(*) AS n {joined}"
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {grouped}")
        view, taken = kept.con.view("v"), []
        for weight in (1, -1) * 3:
            before = view.cost()["steps"]
            kept.con.apply_row("t0", (0, 0, 0, 1), weight)
            taken.append(view.cost()["steps"] - before)
        steps.append(sorted(taken)[3])
    assert -0.1 < slope(sizes, steps) - max(epsilon, 1 - epsilon) < 0.05, steps


def test_a_group_of_a_loomis_whitney_join_is_found_at_the_stated_delay():
    """It has as many rows of t1 as there are d heavy with c in t2."""
    sizes, steps, (tables, joined) = [1_000, 10_000, 100_000], [], cycle(4)
    for base in sizes:
        kept, width = Kept(tables, [], []), int(np.ceil(base**0.5)) + 2
        heavy = range(base // 4 // width)
        kept.apply({
            "t0": [(0, 0, 0, 1, 1)], "t1": [(0, 0, d, 1, 1) for d in heavy], "t3": [(d, 0, 0, 1, 1) for d in heavy],
            "t2": [(0, d, a, 1, 1) for d in heavy for a in range(width)],
        })  # fmt: skip
        grouped = f"SELECT t0.a, t0.b, t0.c, count(*) AS n {joined} GROUP BY ALL"
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {grouped}")
        before = kept.con.view("v").cost()["read_steps"]
        assert kept.con.execute("FROM v WHERE a = 0 AND b = 0 AND c = 0").fetchall() == [(0, 0, 0, len(heavy))]
        steps.append(kept.con.view("v").cost()["read_steps"] - before)
    assert abs(slope(sizes, steps) - 0.5) < 0.1, steps


def test_a_loomis_whitney_sum_of_one_table():
    """It looks the same from each atom, but part trees take a change atom by atom."""
    tables, joined = cycle(4, "t")
    query = f"SELECT count(*) AS n {joined}"
    assert stream(Kept(tables, [query], [0.1, 0.5]), query, 8, 4) > 0


def test_a_complete_loomis_whitney_join():
    tables, joined = cycle(4)
    kept = Kept(tables, [f"SELECT count(*) AS n {joined}"], [0.5])
    n = 4
    cells = [(x, y, z, 1, 1) for x in range(n) for y in range(n) for z in range(n)]
    kept.apply(dict.fromkeys(tables, cells))
    assert kept.con.execute("SELECT n FROM v0").fetchall() == [(n**4,)]
    kept.is_right(whole=True)


def test_of_three_atoms_it_is_the_singly_partitioned_triangle():
    """The strategy of the paper's section 3.2, on the instance whose views it counts."""
    views = Views(0.45).counted(1)
    definition = views.view("v1").definition
    plan = views.view("v1").plan
    union = single_triangles(definition, _sum(plan))
    assert union is not None
    names = {part_tree.name: dict(part_tree.parts) for part_tree in union.part_trees}
    assert set(names) == {"HHH", "LLL", "*HL", "L*H", "HL*"}
    assert all(len(group) == 1 for edge in union.edges for group in edge.groups)
    views.apply({name: hub_rows() for name in THREE})
    views.con.execute("REFRESH MATERIALIZED VIEW v1")
    kept = next(one for one in views.balance("v1").part_trees.trees if one.planned.name == "*HL")
    (pair,) = views.balance("v1").part_trees.own(kept)
    assert figure(pair.table) == (36, 293)


@pytest.mark.parametrize("text", ["R(a,b), S(b,c), T(c,a) ->", "R(a,b,c), S(b,c,d), T(c,d,a), U(d,a,b) -> *"])
def test_comparisons_of_the_join_are_not_for_parts(text):
    definition = parse_definition(text)
    assert find_union(definition, plan_view(definition)) is not None
    compared = replace(definition, comparisons=(Comparison("a", "<", "b"),))
    assert find_union(compared, plan_view(compared)) is None


@pytest.mark.parametrize(("by", "joined", "why"), [
    ("p.x, p.y", "p, q, p r, q s WHERE p.y = q.x AND q.y = r.x AND r.y = p.x AND s.x = p.x",
     "a change of the triangles with s costs as much with any epsilon as without.*join s when reading"),
    ("p.x, r.x", "p, q, p r, q s, p t WHERE p.y = q.x AND q.y = r.x AND r.y = s.x AND s.y = p.x AND t.x = p.x",
     "rings of 4 .* costs as much with any epsilon as without"),
    ("p.x", "p, q, p r, q s, p t, q u "
     "WHERE p.y = q.x AND q.y = r.x AND r.y = s.x AND s.y = t.x AND t.y = u.x AND u.y = p.x",
     "rings of 6 by .* are not divided: only sums without GROUP BY, and all rows"),
])  # fmt: skip
def test_shapes_that_have_no_strategy_are_refused_by_name(by, joined, why):
    kept, query = Kept(EDGES, [], []), f"SELECT {by}, count(*) FROM {joined} GROUP BY ALL"
    with pytest.raises(sqlfront.ProgrammingError, match=f"(?s)epsilon does not apply.*{why}"):
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {query}")


def _sum(plan: Plan) -> Plan:
    return Plan(**{**plan.__dict__, "free": ()})


def test_part_trees_find_room_or_are_refused():
    kept = Kept({"r": "ab", "s": "bc", "t": "ca"}, [], [])
    kept.apply({
        "r": [(a, b, 1, 1) for a in range(60) for b in range(200)],
        "s": [(b, c, 1, 1) for b in range(200) for c in range(10)],
    })  # fmt: skip
    query = "SELECT DISTINCT r.a, r.b, s.c FROM r, s, t WHERE r.b = s.b AND s.c = t.c AND t.a = r.a"
    kept.con.execute("SET memory_limit = '8MB'")
    with pytest.raises(sqlfront.OperationalError, match=r"(?s)view v would need about .* MiB.*memory_limit"):
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {query}")
    kept.con.execute("SET memory_limit = '4GB'")
    kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {query}")
    kept.apply({"t": [(3, 0, 1, 1), (0, 5, 1, 1)]})
    assert kept.con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


@pytest.mark.parametrize(("query", "power"), [
    (f"SELECT count(*) AS n {PATH}", lambda epsilon: max(epsilon, 1 - epsilon)),
    (f"SELECT DISTINCT e.x {JOINED}", lambda epsilon: epsilon),
], ids=["path", "join"])  # fmt: skip
@pytest.mark.parametrize("epsilon", [0.25, 0.5, 0.75])
def test_an_update_costs_what_is_stated(query, power, epsilon):
    """A change that meets a light value with as many rows as it may have, or as many heavy values as there may be."""
    sizes, steps = [1_000, 10_000, 100_000], []
    for base in sizes:
        kept = Kept(EDGES, [], [])
        path = query.endswith(PATH)
        threshold = int(np.ceil(base**epsilon))
        if not path or epsilon >= 0.5:
            middle = [(i, 0, 1, 1) for i in range(threshold - 1)]
        else:
            width = threshold + 2
            middle = [(b, c, 1, 1) for b in range(base // 2 // width) for c in (0, *range(1, width))]
        rest = [(-1 - i, -1 - i, 1, 1) for i in range(base // 2 - len(middle))]
        kept.apply({"q" if path else "p": middle, "p" if path else "q": rest})
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {query}")
        view, taken = kept.con.view("v"), []
        for weight in (1, -1) * 3:
            before = view.cost()["steps"]
            kept.con.apply_row("p" if path else "q", (0, 0, 1), weight)
            taken.append(view.cost()["steps"] - before)
        steps.append(sorted(taken)[3])
    assert abs(slope(sizes, steps) - power(epsilon)) < 0.08
    union = kept.con.session.database.view(kept.con.session.duck, ["v"]).maintained.plan.union
    assert union.exponents.update.at(Fraction(str(epsilon))) == Fraction(str(power(epsilon)))
