"""The items of the data structure of Berkholz, Keppeler and Schweikardt 2017, section 6, in the engine's own nodes.

An item is a variable's value below the values of the variables on its path. It is there while a row of an atom below
extends it, which the leaves tell, and fit while the query has a result with it, which is what the nodes keep.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

import sqlfront
from sqlfront.maintenance.tree.view_tree import View
from sqlfront.maintenance.view.maintained_view import MaintainedView

Item = tuple[str, tuple[int, ...]]

# Example 6.1
E = ["ae", "af", "bd", "bg", "bh"]
S = ["aea", "aeb", "afc", "bgb", "bpa"]
R = [*S, "aec", "bga", "bgc", "bpb", "bpc"]


@dataclass
class Items:
    """`values` are what the nodes keep of the items that are fit."""

    present: set[Item]
    fit: set[Item]
    values: dict[Item, tuple[int, ...]]

    def __str__(self) -> str:
        return f"{len(self.present)} items, {len(self.fit)} fit"


def items(view: MaintainedView) -> Items:
    found = Items(set(), set(), {})
    for node in view.tree.root.walk():
        above = node.parent.node.variables if node.parent else ()
        own = sorted(set(node.node.variables) - set(above))  # a chain, in any order: here x3 above x5, as in the paper
        for depth in range(1, len(own) + 1):
            path = (*above, *own[:depth])
            for leaf in node.node.leaves():
                found.present |= {(path[-1], part) for part in projected(view, view.tree.leaves[leaf.atom], path)}
            found.fit |= {(path[-1], part) for part in projected(view, node, path)}
        table = view.sources[node.node.atom].store.table if node.node.atom else node.table
        assert table is not None
        if own:
            found.values |= {(own[-1], row): values for row, values in table.rows().items()}
    return found


def projected(view: MaintainedView, node: View, path: tuple[str, ...]) -> set[tuple[int, ...]]:
    """The values that a node's rows have on a path."""
    if node.node.atom is not None:
        assert node.shape is not None
        table, places = view.sources[node.node.atom].store.table, node.shape.places(path)
    else:
        assert node.full
        table, places = node.table, [node.node.variables.index(variable) for variable in path]
    assert table is not None
    return {tuple(row[place] for place in places) for row in table.rows()}


def visited(view: MaintainedView, atoms: Iterable[str]) -> int:
    """How many items a row that these atoms take lies below: the variables of each one's way to the root."""
    total = 0
    for atom in atoms:
        leaf = view.tree.leaves[atom]
        way = {variable for node in (leaf, *leaf.ancestors()) for variable in node.node.variables}
        assert way == set(leaf.node.variables), "no variable on the way that the row leaves open"
        total += len(way)
    return total


def written(before: Items, after: Items) -> list[str]:
    """The variables of the items whose values have changed."""
    items = before.values.keys() | after.values.keys()
    return sorted(item[0] for item in items if before.values.get(item) != after.values.get(item))


@pytest.fixture
def con():
    with sqlfront.connect() as connection:
        yield connection


def maintained(con: sqlfront.Connection) -> MaintainedView:
    (view,) = con.session.database.engine.views.values()
    return view


def test_example_6_1(con):
    """33 items of which 25 are fit; E(b, p) visits four and makes one, b and its y-item p is fit from then on."""
    con.execute("CREATE CHANGE TABLE r (x VARCHAR, y VARCHAR, z VARCHAR)")
    con.execute("CREATE CHANGE TABLE s (x VARCHAR, y VARCHAR, z VARCHAR); CREATE CHANGE TABLE e (x VARCHAR, y VARCHAR)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT r.x, r.y, r.z, r2.z AS z2, e2.y AS y2 FROM r"
        " JOIN r AS r2 ON r2.x = r.x AND r2.y = r.y JOIN e ON e.x = r.x AND e.y = r.y JOIN e AS e2 ON e2.x = r.x"
        " JOIN s ON s.x = r.x AND s.y = r.y AND s.z = r.z"
    )
    for table, rows in (("e", E), ("r", R), ("s", S)):
        for row in rows:
            con.apply_row(table, tuple(row))
    view = maintained(con)
    before = items(view)
    assert str(before) == "33 items, 25 fit" and con.view("v").count() == 23
    assert {name: sum(of == name for of, _ in before.present) for name, _ in before.present} == {
        "x": 2, "y": 6, "z": 10, "r2_z": 10, "e2_y": 5,
    }  # fmt: skip
    con.apply_row("e", ("b", "p"))
    after = items(view)
    assert str(after) == "34 items, 27 fit" and con.view("v").count() == 38
    # Those of x and y by the one atom, of x and y' by the other: b is written twice, nothing else is.
    assert visited(view, ["e", "e2"]) == 4 and written(before, after) == ["e2_y", "x", "y"]
    (made,) = after.present - before.present
    assert made[0] == "e2_y" and made in after.fit
    con.apply_row("e", ("b", "p"), -1)
    assert items(view) == before and con.view("v").count() == 23


def test_figure_1_with_repeated_variables(con):
    """The second oracle: a row of R may match both atoms, or one; the table's counts after each update."""
    con.execute("CREATE CHANGE TABLE e (a BIGINT, b BIGINT)")
    con.execute("CREATE CHANGE TABLE r (p BIGINT, q BIGINT, s BIGINT, t BIGINT)")
    con.execute(
        "CREATE MATERIALIZED VIEW v AS SELECT e.a, e.b, r4.p AS x4, r5.q AS x3, r5.p AS x5 FROM e, r AS r4, r AS r5"
        " WHERE e.a = r4.q AND e.a = r4.t AND e.b = r4.s AND e.b = r5.s AND e.a = r5.t"
    )
    view = maintained(con)
    both, one = ["r4", "r5"], ["r5"]
    for table, row, weight, count, total, atoms, touched in [
        ("e", (1, 2), 1, 0, 2, ["e"], 2),
        ("r", (4, 1, 2, 1), 1, 1, 5, both, 7),
        ("r", (7, 9, 2, 1), 1, 2, 7, one, 4),
        ("r", (8, 1, 2, 1), 1, 6, 9, both, 7),
        ("r", (4, 1, 2, 1), -1, 2, 7, both, 7),
        ("r", (8, 1, 2, 1), -1, 0, 4, both, 7),
        ("e", (1, 2), -1, 0, 4, ["e"], 2),
        ("r", (7, 9, 2, 1), -1, 0, 0, one, 4),
    ]:
        before = items(view)
        con.apply_row(table, row, weight)
        after = items(view)
        assert (len(after.present), con.view("v").count()) == (total, count)
        assert visited(view, atoms) == touched
        assert len(written(before, after)) <= touched
    assert all(node.table is None or node.table.entries() == 0 for node in view.tree.root.walk())
