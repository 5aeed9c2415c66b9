"""Hierarchical joins with keys side by side: part trees with branches, right after every step, at the stated costs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import sqlfront
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.hierarchical import hierarchical
from tests.maintenance.heavy_light.test_hierarchical import Followed, changed, enumerated, longest_wait, values
from tests.maintenance.heavy_light.test_part_trees import slope
from tests.maintenance.heavy_light.test_unions import Kept, stream
from tests.planner.notation import parse_definition

TABLES = {"r": "abc", "s": "abd", "t": "aef", "u": "aeg"}
BESIDE = "r.a = s.a AND r.b = s.b AND t.a = r.a AND u.a = t.a AND u.e = t.e"
QUERY = f"SELECT r.c, s.d, t.f, u.g, count(*) AS n FROM r, s, t, u WHERE {BESIDE} GROUP BY ALL"
QUERIES = [
    f"SELECT DISTINCT r.c, s.d, t.f, u.g FROM r, s, t, u WHERE {BESIDE}",
    "SELECT u.g, r.c, t.f, s.d, count(*) AS n, sum(r.w * u.w) AS v, avg(t.w) AS m FROM r, s, t, u "
    f"WHERE {BESIDE} GROUP BY ALL",
    f"SELECT r.c, t.f, u.g, count(*) AS n, sum(s.w) AS v FROM r, s, t, u WHERE {BESIDE} AND s.d < 3 GROUP BY r.c, t.f, "
    "u.g, s.d",
    "SELECT x.c, y.c AS z, t.f, u.g, count(*) AS n FROM r x, r y, t, u WHERE x.a = y.a AND x.b = y.b AND t.a = x.a "
    "AND u.a = t.a AND u.e = t.e GROUP BY ALL",
    "SELECT DISTINCT x.c, y.b AS d, v.c AS f, w.b AS g FROM r x, r y, r v, r w WHERE x.a = y.a AND x.b = y.c "
    "AND v.a = x.a AND w.a = v.a AND v.b = w.c",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("epsilons", [[0.1, 0.3], [0, 1]], ids=str)
def test_random_streams(query: str, epsilons: list[float]) -> None:
    """Every multiplicity, in ones and in batches, through minor and major rebalances, until nothing is left."""
    kept = Kept(TABLES, [query], epsilons)
    assert stream(kept, query, 14, 3) > 0
    for view in kept.views.values():
        assert view.plan.union.strategy.recognise is hierarchical
        assert [one.name for one in view.plan.union.part_trees] == ["L", "HLL", "HLH", "HHL", "HHH"]


DEEP = {"r": "abxc", "s": "abxd", "t": "abyf", "u": "abyg", "k": "aep", "l": "aeq", "m": "aho", "n": "ahv"}
OF_DEEP = (
    "r.a = s.a AND r.b = s.b AND r.x = s.x AND t.a = r.a AND t.b = r.b AND u.a = t.a AND u.b = t.b AND u.y = t.y "
    "AND k.a = r.a AND l.a = k.a AND l.e = k.e"
)


@pytest.mark.parametrize("query", [
    f"SELECT r.c, s.d, t.f, u.g, k.p, l.q, count(*) AS n, sum(l.w) AS v FROM r, s, t, u, k, l WHERE {OF_DEEP} "
    "GROUP BY ALL",
    "SELECT DISTINCT l.q, u.g, r.c, k.p, t.f, s.d FROM k, l, t, u, r, s WHERE " + OF_DEEP,
    "SELECT k.p, l.q, m.o, n.v, r.c, count(*) AS n FROM k, l, m, n, r WHERE k.a = l.a AND k.e = l.e AND m.a = k.a "
    "AND n.a = m.a AND n.h = m.h AND r.a = n.a AND r.b = 0 AND r.x = 0 GROUP BY ALL",
    "SELECT DISTINCT k.p, l.q, m.o, n.v, t.f, u.g FROM k, l, m, n, t, u WHERE k.a = l.a AND k.e = l.e AND m.a = k.a "
    "AND n.a = m.a AND n.h = m.h AND t.a = n.a AND u.a = t.a AND u.b = t.b AND u.y = t.y",
])  # fmt: skip
def test_random_streams_over_branches_of_branches(query: str) -> None:
    """A branch below two keys, and three branches; a table that joins at the key above alone."""
    kept = Kept(DEEP, [query], [0.05, 0.3])
    assert stream(kept, query, 9, 2) > 0


OF_FILTERS = "FROM r, s, t, u WHERE r.a = s.a AND r.b = s.b AND t.a = r.a AND u.a = t.a AND u.e = t.e"
OTHERS = {
    f"SELECT r.a, r.c, s.d, t.f, u.g, count(*) AS n, sum(s.w * t.w) AS v {OF_FILTERS} GROUP BY ALL": "LL LH HL HH",
    "SELECT DISTINCT u.f, s.d, r.a, r.c FROM r, s, t u WHERE r.a = s.a AND r.b = s.b AND u.a = s.a": "L H",
    f"SELECT DISTINCT r.c, s.d {OF_FILTERS}": "L HL HH",
    f"SELECT s.d, r.c, count(*) AS n, sum(t.w * u.w) AS v {OF_FILTERS} AND t.f < 3 GROUP BY ALL": "L HL HH",
    f"SELECT r.a, r.c, s.d, count(*) AS n, sum(u.w) AS v {OF_FILTERS} GROUP BY ALL": "L H",
    f"SELECT DISTINCT t.f {OF_FILTERS}": "L HL HH",
    "SELECT t.f, count(*) AS n, sum(r.w * t.w) AS v FROM r, s, t WHERE r.a = s.a AND r.b = s.b AND t.a = s.a GROUP BY "
    "ALL": "L H",
    "SELECT x.c, y.c AS z, count(*) AS n FROM r x, r y, r v, r w WHERE x.a = y.a AND x.b = y.b AND v.a = x.a "
    "AND w.a = v.a AND w.c = v.c GROUP BY ALL": "L HL HH",
}


@pytest.mark.parametrize("query", OTHERS)
@pytest.mark.parametrize("epsilons", [[0.1, 0.3], [0, 1]], ids=str)
def test_random_streams_with_a_key_put_out_and_with_filters(query: str, epsilons: list[float]) -> None:
    """A top key that is put out is not divided; keys below which nothing is put out are summed."""
    kept = Kept(TABLES, [query], epsilons)
    assert stream(kept, query, 14, 3) > 0
    for view in kept.views.values():
        assert view.plan.union.strategy.recognise is hierarchical
        assert [one.name for one in view.plan.union.part_trees] == OTHERS[query].split()


def shaped(generator: random.Random) -> tuple[dict[str, str], str]:
    """Tables of a random tree of keys, and a query that puts out their ends, perhaps the top key, and aggregates."""
    keys, parents = ["a"], [""]
    for letter in "bcd"[: generator.choice([1, 2, 2, 3])]:
        parents.append(generator.choice([*keys, "a"]))
        keys.append((parents[-1] if generator.random() < 0.8 else "a") + letter)
    tables: dict[str, str] = {}
    for key in keys:
        lowest = not any(other != key and other.startswith(key) for other in keys)
        for _ in range(2 if lowest else generator.choice([0, 0, 1])):
            tables[f"t{len(tables)}"] = key + ("x" if generator.random() < 0.75 else "")
    names = list(tables)
    joins = [
        f"{name}.{letter} = {first}.{letter}"
        for name, columns in tables.items()
        for letter in columns.rstrip("x")
        if (first := next(one for one in names if letter in tables[one])) != name
    ]
    shown = [f"{name}.x AS x{name}" for name in names if tables[name].endswith("x")]
    shown += ["t0.a"] if not shown or generator.random() < 0.3 else []
    generator.shuffle(shown)
    body = f"FROM {', '.join(names)} WHERE {' AND '.join(joins)}"
    if generator.random() < 0.4:
        return tables, f"SELECT DISTINCT {', '.join(shown)} {body}"
    weights = " * ".join(f"{name}.w" for name in generator.sample(names, 2))
    return tables, f"SELECT {', '.join([*shown, f'count(*) AS n, sum({weights}) AS v'])} {body} GROUP BY ALL"


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.slow if seed > 3 else ()) for seed in range(40)])
def test_random_trees_of_keys(seed: int) -> None:
    """Random shapes at a random epsilon; those that are no such joins are refused, and drawn anew."""
    generator = random.Random(seed)
    for _ in range(50):
        tables, query = shaped(generator)
        try:
            kept = Kept(tables, [query], [generator.choice([0, 0.05, 0.2])])
        except sqlfront.ProgrammingError as error:
            assert "epsilon does not apply" in str(error)
            continue
        stream(kept, query, 8, 3)
        assert all(view.plan.union.strategy.recognise is hierarchical for view in kept.views.values())
        return
    pytest.fail("no query was divided")


def product_rows() -> dict[str, list[tuple[int, ...]]]:
    """Two heavy a with several keys each, whose ends overlap; and one light a."""
    rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in TABLES}
    for a, keys in ((0, 3), (1, 2)):
        for key in range(keys):
            wide = 6 if key else 1
            for end in range(wide):
                for name in TABLES:
                    rows[name].append((a, key, end, 1 + end, 1 + key))
    for name in TABLES:
        rows[name].append((2, 0, 0, 1, 1))
    return rows


def test_a_tuple_of_all_part_trees_comes_once_with_the_values_of_all_products() -> None:
    query = QUERY.replace("count(*) AS n", "count(*) AS n, sum(r.w * s.w * t.w * u.w) AS v")
    kept = Kept(TABLES, [query], [0.3])
    kept.apply(product_rows())
    kept.is_right(whole=True)
    trees = kept.views["v0"].balance.part_trees
    assert all(branch.upper.table.live for one in trees.enumerated() for branch in one.branches())
    assert trees.base.root.children[0].table.live == 1
    found, wanted = kept.con.execute("FROM v0").fetchall(), kept.con.session.duck.execute(query).fetchall()
    assert Counter(found) == Counter(wanted) and len(found) == len(set(found)) == 6**4
    for row in random.Random(1).sample(found, 30):
        assert kept.con.view("v0").contains(row) and not kept.con.view("v0").contains((*row[:3], 99, *row[4:]))


def test_sums_over_branches_are_exact() -> None:
    """Sums over the keys of one branch are multiplied with those of the other, beyond a word."""
    query = f"SELECT r.c, s.d, t.f, u.g, sum(r.w * s.w * t.w * u.w) AS v FROM r, s, t, u WHERE {BESIDE} GROUP BY ALL"
    kept, large = Kept(TABLES, [query], [0]), 2**29
    kept.apply({name: [(a, key, 0, large + key, 1 + key) for a in (0, 1) for key in (0, 2)] for name in "rs"})
    kept.apply({name: [(a, key, 0, large + key, 1) for a in (0, 1) for key in (0, 2, 5)] for name in "tu"})
    left = large**2 + 9 * (large + 2) ** 2
    right = sum((large + key) ** 2 for key in (0, 2, 5))
    assert kept.con.execute("SELECT v FROM v0").fetchall() == [(2 * left * right,)]


@pytest.mark.parametrize("number", range(3))
def test_against_duckdb_with_nulls_text_and_a_feed(number: int) -> None:
    """By SQL, with NULL in every column, filters, HAVING and extrema; the feed replayed gives the view."""
    joins = "FROM r JOIN s USING (a, b) JOIN t USING (a) JOIN u USING (a, e)"
    query = [
        f"SELECT r.c, s.d, t.f, u.g, count(*) AS n, sum(u.v) AS t {joins} GROUP BY ALL",
        f"SELECT DISTINCT r.c, s.d, t.f, u.g {joins} WHERE r.v < 4",
        "SELECT x.c, y.c AS d, t.f, u.g, count(*) AS n, min(t.v) AS least, count(DISTINCT x.v) AS k FROM r x "
        "JOIN r y USING (a, b) JOIN t USING (a) JOIN u USING (a, e) GROUP BY ALL HAVING count(*) > 1",
    ][number]
    rng, con = random.Random(number), sqlfront.connect()
    for name, (key, end) in {"r": "bc", "s": "bd", "t": "ef", "u": "eg"}.items():
        con.execute(f"CREATE TABLE {name} (a VARCHAR, {key} BIGINT, {end} DECIMAL(9, 2), v BIGINT)")
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.4) AS {query}")
    followed = Followed(con, query)
    for step in range(40):
        if step == 30:
            con.execute("ALTER MATERIALIZED VIEW v SET (epsilon = 0.15)")
        name = "rstu"[step % 4] if step < 24 else rng.choice("rstu")
        if rng.random() < 0.8:
            top = [
                rng.choice(["NULL", "'0'", "'0'", "'0'", f"'{rng.randrange(4)}'"]) for _ in range(rng.choice([1, 2, 6]))
            ]
            rows = [f"({a}, {values(rng, 3)}, {values(rng, 6)}, {values(rng, 6)})" for a in top]
            con.execute(f"INSERT INTO {name} VALUES {', '.join(rows)}")
        else:
            key = "b" if name in "rs" else "e"
            con.execute(f"DELETE FROM {name} WHERE {key} = {rng.randrange(2)} AND v < {rng.randrange(4)}")
        followed.check(rng)
    followed.end("DELETE FROM r; DELETE FROM s; DELETE FROM t; DELETE FROM u")


def test_a_reopened_file_has_the_parts(tmp_path: Path) -> None:
    rows, path = product_rows(), str(tmp_path / "keys.db")
    with sqlfront.connect(path) as con:
        for name, columns in TABLES.items():
            con.execute(f"CREATE TABLE {name} ({', '.join(f'{column} BIGINT' for column in columns)})")
            con.session.duck.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [row[:3] for row in rows[name]])
        con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.3) AS {QUERY}")
    with sqlfront.connect(path) as con:
        con.execute("INSERT INTO t VALUES (0, 2, 50), (2, 0, 51); DELETE FROM r WHERE b = 1 AND c = 3")
        assert Counter(con.execute("FROM v").fetchall()) == Counter(con.session.duck.execute(QUERY).fetchall())
        explained = con.explain("v").to_dict()
        assert [one["name"] for one in explained["heavy"]["part_trees"]] == ["L", "HLL", "HLH", "HHL", "HHH"]
        con.session.database.view(con.session.duck, ["v"]).maintained.balance._check()


# Costs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "epsilon"), [("r", 0.25), ("t", 0.25), ("u", 0.3)])
def test_a_change_of_a_light_value_costs_what_is_stated(table: str, epsilon: float) -> None:
    """A change meets as many rows of each of the other three tables as a light value of the top key may have."""
    sizes, steps = [1_000, 10_000, 100_000], []
    for base in sizes:
        kept, light = Kept(TABLES, [], []), int(np.ceil(base**epsilon)) - 2
        rows = {name: [(0, 0, end, 1, 1) for end in range(light)] for name in TABLES}
        rows["r"] += [(-1 - i, -1 - i, -1 - i, 1, 1) for i in range(base // 2 - 4 * light)]
        kept.apply(rows)
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {QUERY}")
        steps.append(changed(kept.con, table, (0, 0, -5, 1)))
    assert abs(slope([int(np.ceil(base**epsilon)) - 2 for base in sizes], steps) - 3) < 0.2, steps
    found = kept.con.explain("v").to_dict()["cost"]
    assert found["update"] == f"O(N^{3 * epsilon:g}) amortised"


def test_an_end_of_a_heavy_key_costs_a_constant() -> None:
    """Whatever joins in the other branch: without epsilon a change meets every pair of its ends."""
    steps: dict[str, list[int]] = {"": [], "WITH (epsilon = 0.5)": []}
    for hub in (4, 8, 16):
        for options, found in steps.items():
            kept = Kept(TABLES, [], [])
            kept.con.execute(f"CREATE MATERIALIZED VIEW v {options} AS {QUERY}")
            pairs = [(0, key, end, 1, 1) for key in range(3) for end in range(hub)]
            kept.apply({"s": [(0, 0, 0, 1, 1)], "t": pairs, "u": pairs})
            kept.apply({"r": [(0, 0, end, 1, 1) for end in range(hub)]})
            kept.apply({"s": [(0, 0, end, 1, 1) for end in range(1, hub)]})
            found.append(changed(kept.con, "r", (0, 0, -5, 1)))
            assert kept.con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert steps[""][-1] > 16**3 and max(steps["WITH (epsilon = 0.5)"]) < 200, steps


@pytest.mark.parametrize("shape", ["one a", "many a", "dead keys", "put out"])
def test_rows_come_at_the_stated_delay(shape: str) -> None:
    """One value of a with many keys on either side costs the sum of their numbers, not the product. Where a key has
    nothing in the other branch, no row of it is read."""
    waits = {}
    for count in (8, 16, 32):
        kept = Kept(TABLES, [], [])
        tops, keys = (range(count), range(4)) if shape in ("many a", "dead keys") else (range(1), range(count))
        query = QUERY.replace("SELECT r.c", "SELECT r.a, r.c") if shape == "put out" else QUERY
        pairs = [(a, key, end, 1, 1) for a in tops for key in keys for end in range(4)]
        dead = [row for row in pairs if row[0] in (0, count - 1)] if shape == "dead keys" else pairs
        kept.apply({"r": pairs, "s": pairs, "t": dead, "u": dead})
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0) AS {query}")
        most, read = longest_wait(enumerated(kept.con))
        assert read == 4**4
        waits[len(tops) * len(keys)] = most
    assert max(waits[buckets] / buckets for buckets in waits) < 60, waits
    assert slope(list(waits), list(waits.values())) < 1.1, waits


def test_the_ends_of_one_key_wait_for_no_other_below_a_key_that_is_put_out() -> None:
    """A change meets as many rows of one table as a light value of its own key may have."""
    sizes, epsilon, steps, query = [1_000, 10_000, 100_000], 0.5, [], QUERY.replace("SELECT r.c", "SELECT r.a, r.c")
    for base in sizes:
        kept, light = Kept(TABLES, [], []), int(np.ceil(base**epsilon)) - 2
        rows = {name: [(0, 0, end, 1, 1) for end in range(light)] for name in TABLES}
        rows["t"] += [(0, -1 - i, i, 1, 1) for i in range(base // 2 - 4 * light)]
        kept.apply(rows)
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {query}")
        steps.append(changed(kept.con, "r", (0, 0, -5, 1)))
    assert abs(slope(sizes, steps) - epsilon) < 0.1, steps
    cost = kept.con.explain("v").to_dict()["cost"]
    assert (cost["update"], cost["delay"], cost["space"]) == ("O(N^0.5) amortised", "O(N^0.5)", "O(N^1.5)")


@pytest.mark.parametrize(("table", "power"), [("u", 2), ("r", 1)])
def test_filters_of_a_light_value_are_summed(table: str, power: int) -> None:
    """A change of r meets the ends of s, but none of the rows of t and u; a change of u meets the ends of r and s."""
    sizes, epsilon, steps = [1_000, 10_000, 100_000], 0.25, []
    query = QUERY.replace("t.f, u.g, ", "")
    for base in sizes:
        kept, light = Kept(TABLES, [], []), int(np.ceil(base**epsilon)) - 2
        rows = {name: [(0, 0, end, 1, 1) for end in range(light)] for name in "rs"}
        rows |= {name: [(0, key, 0, 1, 1) for key in range(light)] for name in "tu"}
        rows["r"] += [(-1 - i, -1 - i, -1 - i, 1, 1) for i in range(base // 2 - 4 * light)]
        kept.apply(rows)
        kept.con.execute(f"CREATE MATERIALIZED VIEW v WITH (epsilon = {epsilon}) AS {query}")
        steps.append(changed(kept.con, table, (0, 0, -5, 1)))
    assert power - 0.4 < slope([int(np.ceil(base**epsilon)) - 2 for base in sizes], steps) < power + 0.1, steps
    assert kept.con.explain("v").to_dict()["cost"]["update"] == "O(N^0.5) amortised"


def test_explain_states_the_exponents_and_the_parts() -> None:
    kept = Kept(TABLES, [QUERY], [0.25])
    explained = kept.con.explain("v0").to_dict()
    cost = explained["cost"]
    assert (cost["preprocessing"], cost["update"]) == ("O(N^1.75)", "O(N^0.75) amortised")
    assert (cost["delay"], cost["space"]) == ("O(N^0.75)", "O(N^1.75)")
    assert "hierarchical queries" in explained["reason"] and "5 part trees" in explained["reason"]
    assert [one["reading"] for one in explained["heavy"]["part_trees"]] == ["shared", *["enumerated"] * 4]
    parts = explained["heavy"]["part_trees"][3]["parts"]
    assert parts == {"r": "HH", "s": "HH", "t": "HL", "u": "HL"}


def side_by_side(keys: int) -> str:
    """So many keys of two tables each, below one column a."""
    atoms = [f"{name}{i}(a,k{i},{name}e{i})" for i in range(keys) for name in "rs"]
    return f"{', '.join(atoms)} -> {' '.join(f'{name}e{i}' for i in range(keys) for name in 'rs')}"


def test_as_many_keys_side_by_side_as_there_is_room_for_part_trees() -> None:
    definition = parse_definition(side_by_side(5))
    union = hierarchical(definition, plan_view(definition))
    assert union is not None and len(union.part_trees) == 33
    definition = parse_definition(side_by_side(6))
    assert hierarchical(definition, plan_view(definition)) is None
    kept = Kept({"r": "abc"}, [], [])
    atoms = ", ".join(f"r x{i}, r y{i}" for i in range(6))
    joins = " AND ".join(f"x{i}.a = y{i}.a AND x{i}.b = y{i}.b AND x{i}.a = x0.a" for i in range(6))
    named = ", ".join(f"x{i}.c AS c{i}, y{i}.c AS d{i}" for i in range(6))
    with pytest.raises(sqlfront.ProgrammingError, match="65 ways to be heavy or light, and at most 64 are divided"):
        kept.con.execute(
            f"CREATE MATERIALIZED VIEW v WITH (epsilon = 0.5) AS SELECT DISTINCT {named} FROM {atoms} WHERE {joins}"
        )
