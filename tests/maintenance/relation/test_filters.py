"""Atoms that filter a bag in which they do not count: right after every change, and the bag holds what can join."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

import sqlfront
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.plan import Node
from tests.planner.evaluate import fill
from tests.planner.notation import parse_definition

ON_AN_EDGE = {"r": "xy", "a": "xv", "b": "yv", "c": "xu", "d": "yu"}
GRID = {"a": "ab", "b": "bc", "c": "de", "d": "ef", "e": "ad", "f": "be", "g": "cf"}


def joined(tables: dict[str, str], *, over: str | None = None) -> str:
    """FROM and WHERE of the natural join of tables over two columns each, or of one table (p, q) as all of them."""
    names = {name: ("p", "q") if over else tuple(columns) for name, columns in tables.items()}
    places = [(column, f"{name}.{names[name][i]}") for name, own in tables.items() for i, column in enumerate(own)]
    first = dict(reversed(places))
    joins = [f"{place} = {first[column]}" for column, place in places if first[column] != place]
    atoms = [f"{over} AS {name}" if over else name for name in tables]
    return f"FROM {', '.join(atoms)} WHERE {' AND '.join(joins)}"


def connected(tables: dict[str, str], query: str) -> sqlfront.Connection:
    con = sqlfront.connect()
    for name, (x, y) in tables.items():
        con.execute(f"CREATE CHANGE TABLE {name} ({x} BIGINT, {y} BIGINT, w BIGINT) WITH (retain = true)")
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    return con


def maintained(con: sqlfront.Connection) -> Iterator[MaintainedView]:
    """The view v and its distinct values."""
    yield from con.session.database.view(con.session.duck, ["v"]).maintained.members


def check_filters(con: sqlfront.Connection) -> int:
    """Each filter has the rows of its atom's store, each once; how many filters there are."""
    found = 0
    for view in maintained(con):
        for leaf in view.tree.filters:
            counted = view.tree.leaves[leaf.node.filters]
            assert leaf.table is not None and counted.table is not None
            assert leaf.shape is not None and counted.shape is not None
            places = counted.shape.places(leaf.shape.variables)
            assert leaf.table.rows() == {tuple(key[p] for p in places): (1,) for key in counted.table.rows()}
            leaf.table._check()
            found += 1
    return found


@pytest.mark.parametrize(("tables", "query"), [
    (ON_AN_EDGE, "SELECT r.x, r.y, count(*) AS n, sum(a.w * d.w) AS s {on_an_edge} GROUP BY r.x, r.y"),
    (ON_AN_EDGE, "SELECT DISTINCT r.x, r.y {on_an_edge}"),
    (ON_AN_EDGE, "SELECT r.x, r.y, max(a.w) AS m {on_an_edge} GROUP BY r.x, r.y"),
    (GRID, "SELECT count(*) AS n, sum(f.w * a.w) AS s {grid}"),
    (GRID, "SELECT f.b, f.e, a.a, b.c, d.f, c.d, sum(f.w) AS s {grid} GROUP BY ALL"),
    (GRID, "SELECT DISTINCT f.b, f.e, a.a, b.c, d.f, c.d {grid}"),
    ({"t": "pq"}, "SELECT count(*) AS n, sum(f.w) AS s {grid_of_one}"),
    ({"t": "pq"}, "SELECT r.p, r.q, sum(c.w) AS s {on_an_edge_of_one} GROUP BY r.p, r.q"),
])  # fmt: skip
def test_random_streams(tables, query):
    joins = {"on_an_edge": joined(ON_AN_EDGE), "grid": joined(GRID)}
    joins |= {"on_an_edge_of_one": joined(ON_AN_EDGE, over="t"), "grid_of_one": joined(GRID, over="t")}
    con, choose = connected(tables, query.format(**joins)), random.Random(query)
    bags: dict[str, list[tuple[int | None, int | None, int]]] = {name: [] for name in tables}
    changed, before = 0, con.execute("SELECT * FROM v").fetchall()
    for _ in range(14):
        con.begin()
        for _ in range(choose.choice((1, 2, 20, 30))):
            name = choose.choice(list(tables))
            if bags[name] and choose.random() < len(bags[name]) / 20:
                con.apply_row(name, bags[name].pop(choose.randrange(len(bags[name]))), -1)
            else:
                row = choose.choice((None, 0, 1, 1, 1, 1)), choose.choice((0, 1, 1, 1, 1)), choose.randrange(3)
                bags[name].append(row)
                con.apply_row(name, row)
        con.commit()
        assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
        assert check_filters(con) > 0
        after = con.execute("SELECT * FROM v").fetchall()
        changed, before = changed + (after != before), after
    assert changed >= 2
    for name in tables:
        con.execute(f"DELETE FROM {name}")
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []
    assert all(table.live == 0 for view in maintained(con) for table in view.tables() if table.keys)


def test_the_change_feed_is_exact():
    con = connected(ON_AN_EDGE, f"SELECT DISTINCT r.x, r.y {joined(ON_AN_EDGE)}")
    feed, choose, kept = con.view("v").subscribe(timeout=0), random.Random(5), []
    for _ in range(12):
        for name in ON_AN_EDGE:
            row = choose.randrange(2), choose.randrange(2), choose.randrange(2)
            if choose.random() < 0.5:
                con.execute(f"INSERT INTO {name} VALUES {row}")
            else:
                con.execute(f"DELETE FROM {name} WHERE {ON_AN_EDGE[name][0]} = {row[0]} AND w = {row[2]}")
    for table in feed:
        for change in table.to_pylist():
            key = change["x"], change["y"]
            kept.append(key) if change["_change_type"] == "insert" else kept.remove(key)
    assert sorted(kept) == sorted(con.execute("SELECT * FROM v").fetchall())


def without_filters(node: Node) -> Node:
    kept = tuple(without_filters(child) for child in node.children if child.filters is None)
    return replace(node, children=kept)


def test_a_filtered_bag_holds_what_can_join():
    """Two rings of four on each edge of a matching; all other vertices are one: n rows, not n * n."""
    definition = parse_definition("F(b,e), A(b,a), C(e,d), E(a,d), B(b,c), D(e,f), G(c,f) -> b,e,a,d,c,f")
    plan, n = plan_view(definition), 40
    star, lone = Counter({(i, 0): 1 for i in range(n)}), Counter({(0, 0): 1})
    rows = {"F": Counter({(i, i): 1 for i in range(n)}), **dict.fromkeys("ABCD", star), **dict.fromkeys("EG", lone)}

    def largest(root: Node) -> int:
        views = fill(root, rows)
        return max(len(views[id(node)]) for node in root.walk() if node.connex)

    assert largest(plan.root) == n
    assert largest(without_filters(plan.root)) == n * n


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_steps_and_sizes(n):
    """A change in the filtered bag meets the filter's few rows, not the star; a copy of a row is no change of it."""
    query = f"SELECT r.x, r.y, count(*) AS n {joined(ON_AN_EDGE)} GROUP BY r.x, r.y"
    con = connected(ON_AN_EDGE, query)
    con.execute(f"INSERT INTO r SELECT i, i, 1 FROM range({n}) AS t(i)")
    for name in "abcd":
        con.execute(f"INSERT INTO {name} SELECT i, 0, 1 FROM range({n}) AS t(i)")
    (view,) = maintained(con)
    assert len(view.tree.filters) == 1
    assert max(table.live for table in view.tables()) == n
    taken = []
    for row, weight in (((1, 0, 1), 1), ((1, 0, 1), -1), ((1, 0, 1), -1), ((1, 0, 1), 1)):
        before = con.view("v").cost()["steps"]
        for name in "cd":
            con.apply_row(name, row, weight)
        taken.append(con.view("v").cost()["steps"] - before)
    assert max(taken) < 60
    copies = []
    for _ in range(2):
        before = con.view("v").cost()["steps"]
        con.apply_row("r", (n, n, 1))
        copies.append(con.view("v").cost()["steps"] - before)
    assert copies[1] <= copies[0]
    assert con.execute("CHECK MATERIALIZED VIEW v").fetchall() == []


def test_explain_says_which_atom_filters_which_bag():
    con = connected(GRID, f"SELECT count(*) AS n {joined(GRID)}")
    text = str(con.explain("v"))
    assert re.search(r"f filters \([^)]*\) too, without counting there", text)
    assert re.search(r"f\(b, e\).*filters only", text)
    assert con.explain("v").to_dict()["cost"]["update"] == "O(N)"
    (state,) = [row for row in con.execute("SHOW STATE FOR v").fetchall() if row[1] == "f as a filter"]
    assert state[2] == "view"
