"""Hierarchical joins with their keys projected out, stars first: by heavy and light values, at the stated costs."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sqlfront
from sqlfront.maintenance.heavy_light.partition import group_expressions
from sqlfront.maintenance.heavy_light.union_enumeration import UnionEnumeration
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.hierarchical import hierarchical
from sqlfront.planner.heavy_light.strategies import find_union
from sqlfront.planner.model.heavy_light import Reading
from tests.following import take
from tests.maintenance.heavy_light.test_part_trees import slope
from tests.maintenance.heavy_light.test_unions import Kept, stream
from tests.planner.notation import parse_definition

EDGES = {"p": "xy", "q": "xy"}
TWO = "FROM p e JOIN q f ON e.y = f.y"
OF_ONE = "FROM p e JOIN p f ON e.y = f.y"
PATH = "FROM p e JOIN p f ON e.y = f.x"
THREE = "FROM p e, q f, p g WHERE e.y = f.y AND f.y = g.y"
FILTERED = "FROM p e, q f, p g WHERE e.y = f.y AND f.y = g.x"
BY_TWO = "FROM p e JOIN q f ON e.y = f.x AND e.w = f.w"
UNDER = "FROM r, s WHERE r.a = s.a AND r.b = s.b"
QUERIES = [
    f"SELECT DISTINCT e.x, f.x AS z {TWO}",
    f"SELECT e.x, f.x AS z, count(*) AS n, sum(e.w * f.w) AS v, avg(f.w) AS m {TWO} GROUP BY ALL",
    f"SELECT DISTINCT e.x, f.x AS z {OF_ONE}",
    f"SELECT f.y AS z, e.x, count(*) AS n, sum(f.w) AS v {PATH} GROUP BY ALL",
    f"SELECT DISTINCT e.x, f.x AS z, g.x AS u {THREE}",
    f"SELECT g.x AS u, e.x, f.x AS z, count(*) AS n, sum(e.w * g.w) AS v {THREE} GROUP BY ALL",
    f"SELECT e.x, f.x AS z, count(*) AS n, sum(g.w) AS v {FILTERED} GROUP BY ALL",
    f"SELECT e.x, f.y AS z, count(*) AS n {BY_TWO} GROUP BY ALL",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("epsilons", [[0.1, 0.3], [0, 1]], ids=str)
def test_random_streams(query: str, epsilons: list[float]) -> None:
    """Every multiplicity, in ones and in batches, through minor and major rebalances, until nothing is left."""
    kept = Kept(EDGES, [query], epsilons)
    assert stream(kept, query, 16, 9) > 0
    for view in kept.views.values():
        assert view.plan.union.strategy.recognise is hierarchical
    if epsilons[0]:
        assert all(view.balance.majors for view in kept.views.values()), "everything is partitioned anew"
        assert any(view.balance.minors for view in kept.views.values()), "values change their status"


NESTED = {"r": "abc", "s": "abd", "t": "ae", "u": "ab"}
BELOW = "r.a = s.a AND r.b = s.b AND t.a = r.a"
NESTED_QUERIES = [
    f"SELECT DISTINCT r.c, s.d, t.e FROM r, s, t WHERE {BELOW}",
    f"SELECT r.c, t.e, s.d, count(*) AS n, sum(r.w * t.w) AS v FROM r, s, t WHERE {BELOW} GROUP BY ALL",
    "SELECT s.d, r.c, count(*) AS n, sum(s.w) AS v FROM r, s, u, t "
    f"WHERE {BELOW} AND u.a = s.a AND u.b = s.b AND t.e < 3 GROUP BY ALL",
    "SELECT x.c, y.c AS z, t.e, count(*) AS n FROM r x, r y, t "
    "WHERE x.a = y.a AND x.b = y.b AND t.a = y.a GROUP BY ALL",
    "SELECT DISTINCT x.b, y.b AS z, u.b AS v FROM r x, r y, u WHERE x.a = y.a AND x.c = y.c AND u.a = x.a",
]


@pytest.mark.parametrize("query", NESTED_QUERIES)
@pytest.mark.parametrize("epsilons", [[0.1, 0.3], [0, 1]], ids=str)
def test_random_streams_over_two_keys(query: str, epsilons: list[float]) -> None:
    kept = Kept(NESTED, [query], epsilons)
    assert stream(kept, query, 14, 5) > 0
    for view in kept.views.values():
        assert [one.name for one in view.plan.union.part_trees] == ["L", "HL", "HH"]
        assert view.plan.union.strategy.recognise is hierarchical


@pytest.mark.parametrize("query", [
    "SELECT k.x, l.y, m.z, count(*) AS n, sum(l.w) AS v FROM k, l, m, t WHERE k.a = l.a AND k.b = l.b AND k.c = l.c "
    "AND m.a = l.a AND m.b = l.b AND t.a = m.a AND t.e < 3 GROUP BY ALL",
    "SELECT DISTINCT l.c, k.x, l.y, m.z FROM k, l, m WHERE k.a = l.a AND k.b = l.b AND k.c = l.c AND m.a = l.a",
])  # fmt: skip
def test_random_streams_over_three_keys_and_one_that_is_partly_put_out(query: str) -> None:
    kept = Kept({"k": "abcx", "l": "ybca", "m": "abz", "t": "ae"}, [query], [0.05, 0.2])
    assert stream(kept, query, 12, 3) > 0


def test_a_tuple_of_all_part_trees_comes_once() -> None:
    """It is under a light value of a, and under heavy ones with a light and with a heavy b."""
    query = f"SELECT r.c, s.d, t.e, count(*) AS n FROM r, s, t WHERE {BELOW} GROUP BY ALL"
    kept = Kept(NESTED, [query], [0.4])
    many = [(0, 0, c, 1, 1) for c in range(20)]
    rows = {"r": [*many, (0, 1, 5, 1, 1), (1, 0, 5, 1, 2)], "s": [*many[3:9], (0, 1, 5, 1, 1), (1, 0, 5, 1, 3)],
            "t": [(0, 7, 1, 1), (1, 7, 1, 1)]}  # fmt: skip
    kept.apply(rows)
    kept.is_right(whole=True)
    trees = kept.views["v0"].balance.part_trees
    live = [view.table.live for one in trees.enumerated() for branch in one.branches() for view in branch.path]
    assert all(live) and trees.base.root.children[0].table.live == 1, live
    found = kept.con.execute("FROM v0").fetchall()
    assert len(found) == len(set(found)) == 120 and (5, 5, 7, 1 + 1 + 6) in found
    assert kept.con.view("v0").contains((5, 5, 7, 8)) and not kept.con.view("v0").contains((5, 5, 8, 8))


@pytest.mark.parametrize("query", [
    "SELECT r.a, r.c, s.d, count(*) AS n, sum(r.w) AS v {under} GROUP BY ALL",
    "SELECT DISTINCT s.d, s.a, r.c {under}",
    "SELECT s.a, s.d, count(*) AS n FROM r, s WHERE r.a = s.a AND r.b = s.b AND r.c = 1 GROUP BY ALL",
    "SELECT DISTINCT r.c, s.d FROM r, s WHERE r.a = s.b AND r.b = s.a",
])  # fmt: skip
def test_a_shared_column_may_be_put_out(query: str) -> None:
    """The values of the centre, of two columns, are heavy together; the columns come in another order in each table."""
    assert stream(Kept({"r": "abc", "s": "dba"}, [query.format(under=UNDER)], [0.1, 0.3]), query, 10, 4) > 0


def test_the_columns_of_a_key_come_in_one_order() -> None:
    """However a table lists them: values that are heavy in several tables are compared."""
    definition = parse_definition("R(a,b,c), S(d,b,a) -> c d")
    union = find_union(definition, plan_view(definition))
    assert union is not None
    assert {tuple(group_expressions(edge, definition)) for edge in union.edges} == {(("a", "b"),)}


def values(rng: random.Random, size: int) -> str:
    return rng.choice(["NULL", "0", "0", "0", "1", str(rng.randrange(size))])


class Followed:
    """View v over a divided query, beside DuckDB's answers and what a subscriber is told."""

    def __init__(self, con: sqlfront.Connection, query: str) -> None:
        self.con, self.query = con, query
        self.view = con.session.database.view(con.session.duck, ["v"]).maintained
        self.feed, self.told = con.view("v").subscribe(timeout=0), Counter[tuple[Any, ...]]()
        self.seen = set[tuple[Any, ...]]()
        self.moved = self.partitioned = 0

    def check(self, rng: random.Random) -> None:
        """The rows, those told, and look-ups, after a step."""
        balance = self.view.balance
        balance._check()
        self.moved, self.partitioned = max(self.moved, balance.minors), max(self.partitioned, balance.majors)
        wanted = self.con.session.duck.execute(self.query).fetchall()
        assert Counter(self.con.execute("FROM v").fetchall()) == Counter(wanted)
        take(self.feed, self.told)
        assert +self.told == Counter(wanted)
        for row in rng.sample(wanted, min(3, len(wanted))):
            assert self.con.view("v").contains(row) and not self.con.view("v").contains((-7, *row[1:]))
        self.seen.add(tuple(sorted(wanted, key=repr)))

    def end(self, emptying: str) -> None:
        """The steps have met both kinds of rebalances, and nothing is left once the tables are empty."""
        assert len(self.seen) > 10 and self.moved and self.partitioned
        self.con.execute(emptying)
        assert self.con.view("v").count() == 0
        state = self.con.execute("SHOW STATE FOR v").df()
        assert state[state["view"] == "v"]["entries"].sum() == 0, state
        self.con.close()


@pytest.mark.parametrize("number", range(4))
def test_against_duckdb_with_nulls_text_and_a_feed(number: int) -> None:
    """By SQL, with NULL in every column; the feed replayed gives the view; one row is found by its columns."""
    query = [
        "SELECT DISTINCT r.a, s.c FROM r JOIN s USING (b)",
        "SELECT x.a, y.a AS z, count(*) AS n, sum(y.v) AS t FROM r x JOIN r y USING (b) GROUP BY ALL",
        "SELECT r.a, s.c, t.c AS d, count(*) AS n FROM r JOIN s USING (b) JOIN s t USING (b) GROUP BY ALL",
        "SELECT r.a, s.c, count(*) AS n, min(s.v) AS least, count(DISTINCT r.v) AS k FROM r JOIN s USING (b) "
        "WHERE r.v < 4 GROUP BY ALL HAVING count(*) > 1",
    ][number]
    rng, con = random.Random(number), sqlfront.connect()
    con.execute("CREATE TABLE r (a BIGINT, b VARCHAR, v DECIMAL(9, 2)); CREATE TABLE s (b VARCHAR, c DATE, v BIGINT)")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.4) AS {query}")
    followed = Followed(con, query)
    steps = 96 if number % 2 else 48  # Groups of pairs change seldom.
    for step in range(steps):
        if step == steps * 3 // 4:
            con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.15)")
        name = rng.choice("rs")
        if rng.random() < 0.75:
            rows = []
            for _ in range(rng.choice([1, 1, 1, 6])):
                centre = rng.choice(["NULL", f"'{step // 12}'", f"'{step // 12}'", f"'{rng.randrange(9)}'"])
                year = rng.choice(["NULL", *(f"'{year}-01-01'" for year in range(2000, 2030))])
                ends = [values(rng, 30), centre] if name == "r" else [centre, year]
                rows.append(f"({', '.join(ends)}, {values(rng, 6)})")
            con.execute(f"INSERT INTO {name} VALUES {', '.join(rows)}")
        else:
            con.execute(f"DELETE FROM {name} WHERE b = '{rng.randrange(3)}' AND v < {rng.randrange(4)}")
        followed.check(rng)
    followed.end("DELETE FROM r; DELETE FROM s")


# Costs ------------------------------------------------------------------------------------------------------------


def star(ends: int, *, filtered: bool) -> tuple[dict[str, str], str]:
    """The tables t0(a, b), t1(a, b), ... of a star, and one without an end; the query of its ends."""
    tables = {f"t{i}": "ab" for i in range(ends)} | ({"s": "b"} if filtered else {})
    joins = " AND ".join(f"{name}.b = t0.b" for name in tables if name != "t0")
    named = ", ".join(f"t{i}.a AS a{i}" for i in range(ends))
    return tables, f"SELECT {named}, count(*) AS n FROM {', '.join(tables)} WHERE {joins} GROUP BY ALL"


@pytest.mark.parametrize(("ends", "filtered", "epsilon", "sizes"), [
    (2, False, 0.25, (1_000, 10_000, 100_000)),
    (2, False, 0.5, (1_000, 10_000, 100_000)),
    (3, False, 0.25, (1_000, 10_000, 100_000)),
    (2, True, 0.25, (1_000, 10_000, 100_000)),
])  # fmt: skip
def test_a_change_of_a_light_value_costs_what_is_stated(
    ends: int, filtered: bool, epsilon: float, sizes: tuple[int, ...]
) -> None:
    """A change meets as many rows of each table as a light value may have."""
    steps = []
    tables, query = star(ends, filtered=filtered)
    for base in sizes:
        kept, light = Kept(tables, [], []), int(np.ceil(base**epsilon)) - 2
        rest = base // 2 - ends * light
        rows = {f"t{i}": [(a, 0, 1, 1) for a in range(light)] for i in range(ends)}
        rows["t0"] += [(-1 - i, -1 - i, 1, 1) for i in range(rest)]
        kept.apply(rows)
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {query}")
        steps.append(changed(kept.con, *(("s", (0, 1)) if filtered else ("t0", (-5, 0, 1)))))
    power = epsilon * (ends if filtered else ends - 1)
    assert abs(slope(sizes, steps) - power) < 0.1, steps
    union = kept.con.session.database.view(kept.con.session.duck, ["v"]).maintained.plan.union
    assert union.exponents.update.at(Fraction(str(epsilon))) == Fraction(str(power))


def test_an_end_on_a_hub_costs_a_constant_with_epsilon() -> None:
    """All ends meet at one value: without epsilon a change meets them all."""
    steps: dict[str, list[int]] = {"": [], "WITH (epsilon = 0.5)": []}
    tables, query = star(2, filtered=False)
    for hub in (100, 1_000, 10_000):
        for options, found in steps.items():
            kept = Kept(tables, [], [])
            kept.con.execute(f"CREATE MATERIALIZED VIEW v {options} AS {query}")
            kept.apply({"t0": [(0, 0, 1, 1)], "t1": [(a, 0, 1, 1) for a in range(hub)]})
            found.append(changed(kept.con, "t0", (1, 0, 1)))
            assert kept.con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert steps[""][-1] > 20_000 and max(steps["WITH (epsilon = 0.5)"]) < 100, steps


NESTED_QUERY = f"SELECT r.c, s.d, t.e, count(*) AS n FROM r, s, t WHERE {BELOW} GROUP BY ALL"


@pytest.mark.parametrize("epsilon", [0.25, 0.5])
def test_a_change_of_a_light_key_under_a_heavy_one_costs_less_than_is_stated(epsilon: float) -> None:
    """It meets as many rows of the one other table as a light value may have, and none of the heavy value's own."""
    sizes, steps = [1_000, 10_000, 100_000], []
    for base in sizes:
        kept, light = Kept(NESTED, [], []), int(np.ceil(base**epsilon)) - 2
        rows = {"s": [(0, 0, d, 1, 1) for d in range(light)] + [(0, -b, 0, 1, 1) for b in range(1, base // 2)]}
        kept.apply(rows | {"t": [(0, e, 1, 1) for e in range(base // 3)], "r": [(0, 0, 0, 1, 1)]})
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {NESTED_QUERY}")
        steps.append(changed(kept.con, "r", (0, 0, 5, 1)))
    assert abs(slope(sizes, steps) - epsilon) < 0.1, steps


def test_an_end_beside_a_heavy_key_costs_a_constant() -> None:
    steps: dict[str, list[int]] = {"": [], "WITH (epsilon = 0.5)": []}
    for hub in (10, 40, 80):
        for options, found in steps.items():
            kept = Kept(NESTED, [], [])
            kept.con.execute(f"CREATE MATERIALIZED VIEW v {options} AS {NESTED_QUERY}")
            kept.apply({"r": [(0, 0, c, 1, 1) for c in range(hub)], "s": [(0, 0, d, 1, 1) for d in range(hub)]})
            found.append(changed(kept.con, "t", (0, 1, 1)))
    assert steps[""][-1] > 6_400 and max(steps["WITH (epsilon = 0.5)"]) < 100, steps


@pytest.mark.parametrize("dead", [False, True])
def test_rows_of_nested_keys_come_at_the_stated_delay(dead: bool) -> None:
    """Each pair of keys has the same ends, of each value of a, of which some have no row of t and so no tuple."""
    waits = {}
    for count in (4, 8, 16):
        kept = Kept(NESTED, [], [])
        pairs = [(a, b) for a in range(count) for b in range(4)]
        kept.apply({
            "r": [(a, b, c, 1, 1) for a, b in pairs for c in range(5)],
            "s": [(a, b, d, 1, 1) for a, b in pairs for d in range(5)],
            "t": [(a, e, 1, 1) for a in (range(0, count, count - 1) if dead else range(count)) for e in range(3)],
        })  # fmt: skip
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0) AS {NESTED_QUERY}")
        most, read = longest_wait(enumerated(kept.con))
        assert read == 75
        waits[len(pairs)] = most
    assert max(waits[buckets] / buckets for buckets in waits) < 40, waits
    assert slope(list(waits), list(waits.values())) < 1.1, waits


def changed(con: Any, table: str, row: tuple[int, ...]) -> int:
    """The steps of a change, the median of several."""
    taken = []
    for weight in (1, -1) * 3:
        before = con.view("v").cost()["steps"]
        con.apply_row(table, row, weight)
        taken.append(con.view("v").cost()["steps"] - before)
    return int(sorted(taken)[3])


def enumerated(con: Any) -> UnionEnumeration:
    view = con.session.database.view(con.session.duck, ["v"]).maintained
    return UnionEnumeration(view.balance.part_trees)


def longest_wait(union: UnionEnumeration) -> tuple[int, int]:
    """The most steps from a row to the next, the first and the end included; the number of rows."""
    most = before = read = 0
    while found := union.next(1):
        most, before, read = max(most, union.steps - before), union.steps, read + found
    return max(most, union.steps - before), read


@pytest.mark.parametrize(("ends", "hubs"), [(2, 40), (3, 12), (1, 40)])
def test_rows_come_at_the_stated_delay(ends: int, hubs: int) -> None:
    """Each heavy value has the same ends: a row is in the product of each, and no other row is read in between."""
    waits = {}
    tables, query = star(ends, filtered=ends == 1)
    for count in (hubs, 2 * hubs, 4 * hubs):
        kept, width = Kept(tables, [], []), 6
        far = [(-1 - i, b, 1, 1) for b in range(count) for i in range(3 * count)]  # They make the values heavy.
        rows = {f"t{i}": [(a, b, 1, 1) for b in range(count) for a in range(width)] for i in range(ends)}
        rows["t0"] += far if ends == 1 else []
        kept.apply(rows | ({"s": [(b, 1, 1) for b in range(count)]} if ends == 1 else {}))
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0) AS {query}")
        most, read = longest_wait(enumerated(kept.con))
        assert read == (width + 3 * count if ends == 1 else width**ends)
        waits[count] = most
    assert max(waits[count] / count for count in waits) < 12 * ends, waits
    assert slope(list(waits), list(waits.values())) < 1.1, waits


def test_rows_of_disjoint_heavy_values_come_at_once() -> None:
    """A row in one product waits for none of the others."""
    tables, query = star(2, filtered=False)
    most = []
    for hubs in (20, 80):
        kept = Kept(tables, [], [])
        kept.apply({name: [(100 * b + a, b, 1, 1) for b in range(hubs) for a in range(9)] for name in tables})
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0) AS {query}")
        wait, read = longest_wait(enumerated(kept.con))
        assert read == 81 * hubs
        most.append(wait)
    assert most[1] <= most[0] + 8, most


def test_explain_states_the_exponents() -> None:
    kept = Kept(star(3, filtered=False)[0], [star(3, filtered=False)[1]], [0.25])
    explained = kept.con.explain("v0").to_dict()
    cost = explained["cost"]
    assert (cost["preprocessing"], cost["update"]) == ("O(N^1.5)", "O(N^0.5) amortised")
    assert (cost["delay"], cost["space"]) == ("O(N^0.75)", "O(N^1.5)")
    assert "hierarchical queries" in explained["reason"] and "2 part trees" in explained["reason"]
    assert [one["reading"] for one in explained["heavy"]["part_trees"]] == ["shared", "enumerated"]
    assert explained["suggestion"] is None
    assert [part_tree.reading for part_tree in kept.views["v0"].plan.union.part_trees] == list(Reading)[:2]


@pytest.mark.parametrize(("text", "divided"), [
    ("R(a,b), S(b) -> a", True),
    ("R(a,b), S(b), T(b) -> a", True),
    ("R(a,b), S(c,b), T(b) -> a c", True),
    ("R(a,b,c), S(d,b,c) -> a d c", True),
    ("R(a,b,c), S(d,b,c) -> a d c b", False),  # Nothing is projected out.
    ("R(a,b), S(b,c), T(c,d) -> a d", False),
    ("R(a,b,c), S(b), T(d,b,c) -> a d", True),
    ("R(a,b,c), S(a,b,d), T(a,e) -> c d e", True),
    ("R(a,b,c), S(a,b,d), T(a) -> c d b", False),
    ("R(a,b,c), S(a,b), T(a,e) -> c e", True),
    ("R(a,b), S(a,b), T(a,e) -> e", True),
    ("R(x,a,b), S(x,a,c), T(x,y,d), U(x,y,e) -> b c d e", True),
    ("R(x,a,b), S(x,a,c), T(x,y), U(x,y) -> b c", True),
    ("R(x,a,b), S(x,a,c), T(x,y), U(x,y) -> b c y", False),
    ("R(x,a,b), S(x,a,c), T(x,y,d), U(x,y,e) -> b c d e a", False),
    ("R(f,a,b), S(f,a,c), T(f,d) -> f b c d", True),
    ("R(f,a,b), S(f,a,c), T(f) -> f b c a", False),
    ("R(a,b), S(b,c) -> c b", False),
])  # fmt: skip
def test_which_queries_are_divided(text: str, divided: bool) -> None:
    definition = parse_definition(text)
    plan = plan_view(definition)
    assert (hierarchical(definition, plan) is not None) == divided
    if divided:
        assert find_union(definition, plan) is not None


@pytest.mark.parametrize(("query", "why"), [
    ("SELECT DISTINCT e.x, g.y FROM p e, q f, p g WHERE e.y = f.x AND f.y = g.x", "not hierarchical: .* meet in f"),
    ("SELECT DISTINCT r.b, r.c, s.d, q.y FROM r, s, q WHERE r.a = s.a AND r.b = s.b AND q.x = r.a",
     "b is put out, and each key below another has a column that is not"),
    ("SELECT DISTINCT e.x, f.x AS z FROM p e, q f, r WHERE e.y = f.y", "no column joins all of its tables"),
])  # fmt: skip
def test_other_joins_are_refused_by_name(query: str, why: str) -> None:
    kept = Kept(EDGES | {"r": "abc", "s": "abd"}, [], [])
    with pytest.raises(sqlfront.ProgrammingError, match=f"(?s)epsilon does not apply.*{why}"):
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {query}")


def test_a_large_product_of_counts_is_exact() -> None:
    """Values of three tables multiply to more than a word has."""
    tables, query = star(3, filtered=False)
    kept = Kept(tables, [query.replace("count(*) AS n", "sum(t0.w * t1.w * t2.w) AS v")], [0])
    for name in tables:
        kept.con.apply({name: pa.table({"a": [1, 1], "b": [0, 1], "w": [2**40, 5], "_weight": [3, 1]})})
    assert kept.con.execute("SELECT v FROM v0").fetchall() == [((3 * 2**40) ** 3 + 125,)]


def test_what_is_stored_for_light_values_finds_room_or_is_refused() -> None:
    tables, query = star(2, filtered=False)
    kept = Kept(tables, [], [])
    kept.apply({name: [(a, 0, 1, 1) for a in range(1_500)] for name in tables})
    kept.con.execute("SET memory_limit = '20MB'")
    with pytest.raises(sqlfront.OperationalError, match=r"(?s)view v would need about .* MiB.*memory_limit"):
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 1) AS {query}")
    kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS {query}")
    assert kept.con.view("v").contains((7, 8, 1))
