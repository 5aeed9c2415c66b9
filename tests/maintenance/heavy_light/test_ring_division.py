"""The division of rings by the status of all values: which queries are divided, by which trees, at what stated cost."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest

from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.divided_rings import grouped_ring, hung_ring, long_ring
from sqlfront.planner.heavy_light.hung_ring import columns_by_key, find_hung_ring
from sqlfront.planner.heavy_light.listings import UNIT, Listing, Listings
from sqlfront.planner.heavy_light.ring_division import CORNERS, cheapest, divide_ring, merged
from sqlfront.planner.heavy_light.ring_trees import RingTrees
from sqlfront.planner.heavy_light.strategies import find_refusal, find_union
from sqlfront.planner.heavy_light.tree_listings import listed_by_changes
from sqlfront.planner.model.exponents import Curve
from sqlfront.planner.model.heavy_light import Reading
from sqlfront.planner.model.plan import Node
from tests.maintenance.heavy_light.test_divided_rings import QUERIES, Kept
from tests.maintenance.heavy_light.test_rings import fits
from tests.planner.notation import parse_definition

TRIANGLE = "R(a,b), S(b,c), T(c,a)"
FOUR = "R(a,b), S(b,c), T(c,d), U(d,a)"
FIVE = "R(a,b), S(b,c), T(c,d), U(d,e), V(e,a)"
SIX = "R(a,b), S(b,c), T(c,d), U(d,e), V(e,f), W(f,a)"

DIVIDED = {
    f"{TRIANGLE}, D(a) ->": ("a b c", lambda e: max(e, 1 - e, min(2 * e, 2 - 2 * e)), Fraction(1, 3)),
    f"{TRIANGLE}, D(a), E(b) ->": ("a b c", lambda e: max(e, 1 - e, min(2 * e, 2 - 2 * e)), Fraction(1, 3)),
    f"{TRIANGLE}, D(a,b) ->": ("a b c", lambda e: max(e, 1 - e), Fraction(1, 2)),
    f"{TRIANGLE}, D(a,b), E(a) -> a": ("a b c", lambda e: max(e, 1 - e, min(2 * e, 2 - 2 * e)), Fraction(1, 3)),
    f"{TRIANGLE}, D(a,x) -> *": ("a b c", lambda e: max(e, 1 - e, min(2 * e, 2 - 2 * e)), Fraction(1, 3)),
    f"{TRIANGLE}, D(a,x), E(b,c,y) -> *": ("a b c", lambda e: max(e, 1 - e, min(2 * e, 2 - 2 * e)), Fraction(1, 3)),
    f"{TRIANGLE}, D(a,x;a) -> a, x": ("a b c", lambda e: max(e, 1 - e, min(2 * e, 2 - 2 * e)), Fraction(1, 3)),
    f"{TRIANGLE}, D(x,b;b), E(a,b) -> x": ("a b c", lambda e: max(e, 1 - e, min(2 * e, 2 - 2 * e)), Fraction(1, 3)),
    f"{TRIANGLE}, D(a,b,x;a,b) -> x": ("a b c", lambda e: max(e, 1 - e), Fraction(1, 2)),
    f"{TRIANGLE}, D(a,x), E(b,y) -> *": ("a b c", lambda e: max(1 - e, min(1, 2 * e)), Fraction(1, 3)),
    f"{FOUR}, D(a,b) ->": ("a b c d", lambda e: max(1 - e, min(1, 2 * e)), Fraction(1, 3)),
    f"{FOUR} -> a": ("a b c d", lambda e: max(1 - e, min(1, 2 * e)), Fraction(1, 3)),
    f"{FOUR} -> b, a": ("a b c d", lambda e: max(1 - e, min(1, 2 * e)), Fraction(1, 3)),
    f"{FOUR} -> c, a": ("a b c d", lambda e: max(1 - e, min(1, 2 * e)), Fraction(1, 3)),
    f"{FOUR}, D(a,b) -> b, d": ("a b c d", lambda e: max(1 - e, min(1, 2 * e)), Fraction(1, 3)),
    f"{FIVE} ->": ("a b c d e", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
    f"{FIVE} -> *": ("a b c d e", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
    f"{FIVE} -> a": ("a b c d e", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
    f"{FIVE} -> a, b": ("a b c d e", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
    f"{FIVE} -> a, c": ("a b c d e", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
    f"{FIVE}, D(a) ->": ("a b c d e", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
    f"{SIX} ->": ("a b c d e f", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
    f"{SIX} -> *": ("a b c d e f", lambda e: max(2 - 2 * e, 2 * e), Fraction(1, 2)),
}


@pytest.mark.parametrize("text", DIVIDED)
def test_each_status_of_the_values_is_in_one_part_tree(text):
    variables, stated, best = DIVIDED[text]
    definition = parse_definition(text)
    union = find_union(definition, plan_view(definition))
    assert union is not None and union.joint
    cells = ["".join(letters) for letters in product("HL", repeat=len(variables.split()))]
    met = Counter(cell for cell in cells for one in union.part_trees if fits(one.name, cell))
    assert set(met) == set(cells) and set(met.values()) == {1}
    order = [edge.first for edge in union.edges if edge.groups]
    for one in union.part_trees:
        status = dict(zip(order, one.name, strict=True))
        for edge in union.edges:
            wanted = status[edge.first] + status[edge.second] if edge.groups else ""
            assert str(one.part(edge.atom)) == wanted
        assert {leaf.atom for leaf in one.root.leaves()} == {atom.name for atom in definition.atoms}
    assert [union.exponents.update.at(e) for e in CORNERS] == [stated(e) for e in CORNERS]
    assert cheapest(union.exponents) == best


@pytest.mark.parametrize("text", [
    f"{TRIANGLE}, D(a), E(b), F(c) ->", f"{TRIANGLE}, D(b) -> a", f"{TRIANGLE}, D(a) -> a,b", f"{FOUR}, D(a) ->",
    f"{TRIANGLE}, D(a,x) -> x", f"{TRIANGLE}, D(a,x;x) -> a,x", f"{TRIANGLE}, D(a,x), E(x) ->",
    f"{FOUR}, D(a) -> a,c", f"{SIX} -> a", f"{SIX}, D(a) ->",
    f"{TRIANGLE}, D(a,b,c) ->", "R(a,b,x), S(b,c), T(c,a), D(a) ->", "R(a,b), S(b,c), T(c,d), D(a) ->",
    "R(a,b), S(b,c), T(c,d), U(d,e), V(e,f), W(f,g), X(g,a) ->",
])  # fmt: skip
def test_other_queries_are_not_divided(text):
    definition = parse_definition(text)
    plan = plan_view(definition)
    assert all(rule(definition, plan) is None for rule in (hung_ring, grouped_ring, long_ring))


@pytest.mark.parametrize(("text", "why"), [
    (f"{TRIANGLE}, D(a), E(b), F(c) ->", "a change of the triangles with D, E and F costs as much with any epsilon"),
    (f"{TRIANGLE}, D(a,x) -> x", "triangles with further tables are divided only in sums by columns that join"),
    (f"{SIX}, D(a) ->", "tables that hang on rings of 6 are not divided"),
    (f"{FOUR}, D(a) -> a,c", "a change of the rings of 4 with D costs as much with any epsilon as without"),
    ("R(a,b;b), S(b,c;b), T(c,d;d), U(d,a;d) -> a,c", "rings of 4 by a and c costs as much with any epsilon"),
    (f"{SIX} -> a", "rings of 6 by a are not divided"),
    ("R(a,b), S(b,c), T(c,d), U(d,a,x) -> x", "rings of 4 by x are not divided"),
    ("R(a,b), S(b,c), T(c,d), U(d,e), V(e,f), W(f,g), X(g,a) ->", "for rings of 7 tables no division"),
    (f"{TRIANGLE}, D(a,x), E(x) ->", "a change of D meets all triangles of its D.a"),
])  # fmt: skip
def test_a_refusal_says_why(text, why):
    definition = parse_definition(text)
    refusal = find_refusal(definition, plan_view(definition))
    assert refusal is not None and why in refusal[0]


@pytest.mark.parametrize("text", DIVIDED)
def test_a_part_tree_costs_no_more_than_stated_as_its_status_is(text):
    """Its paths are bounded anew, for each of the statuses that share it."""
    definition = parse_definition(text)
    union, ring = find_union(definition, plan_view(definition)), find_hung_ring(definition)
    assert union is not None and ring is not None
    stated = [union.exponents.update.at(epsilon) for epsilon in CORNERS]
    most = [Fraction(0)] * len(CORNERS)
    for one in union.part_trees:
        questions = listed_by_changes(one.root)
        for cell in map("".join, product("HL", repeat=len(ring.edges))):
            if fits(one.name, cell):
                heavy = [v for v, letter in zip(ring.variables, cell, strict=True) if letter == "H"]
                found = Listings(dict(ring.pairs()), heavy, CORNERS, columns_by_key(definition, ring)).most(questions)
                most = [max(a, Fraction(b, UNIT)) for a, b in zip(most, found, strict=True)]
    assert most == stated


@pytest.mark.parametrize("text", DIVIDED)
def test_every_candidate_joins_every_table_once(text):
    definition = parse_definition(text)
    ring, free = find_hung_ring(definition), definition.free
    assert ring is not None
    listed = set(free) == {column.name for atom in definition.atoms for column in atom.variables}
    by = () if listed else free
    found = list(RingTrees(definition, ring, listed=listed, by=by).candidates())
    assert len(found) > 5
    for one in found:
        leaves = [leaf.atom for leaf in one.root.leaves()]
        assert sorted(map(str, leaves)) == sorted(atom.name for atom in definition.atoms)
        (top,) = one.root.children
        listing = [node for node in top.children if node.connex] if one.ends else [top]
        shown = {variable for node in listing for variable in node.variables}
        assert set(by) <= shown
        assert not one.ends or shown == {*by, *one.ends}
        assert not one.ends or set(one.first) == set(by).intersection(listing[0].variables)


def test_a_read_begins_with_the_light_one_of_two_opposite_columns():
    """A heavy one has more pairs of b and d than a row may come again."""
    definition = parse_definition(f"{FOUR} -> a, c")
    union = find_union(definition, plan_view(definition))
    assert union is not None
    status = [edge.first for edge in union.edges]
    checked = 0
    for one in union.part_trees:
        (top,) = one.root.children
        if one.reading == Reading.ENUMERATED and set(top.variables) == {"b", "d"}:
            letters = dict(zip(status, one.name, strict=True))
            first = "a" if "a" in top.children[0].variables else "c"
            assert letters[first] == "L", one.name
            checked += 1
    assert checked > 2 and union.exponents.delay.at(Fraction(1, 3)) == Fraction(2, 3)


def test_what_hangs_where():
    ring = find_hung_ring(parse_definition(f"E(b,c), {TRIANGLE}, D(a,x), F(a) ->"))
    assert ring is not None and [edge.atom for edge in ring.edges] == ["E", "T", "R"]
    assert ring.at_corners == {"a": ("D", "F")} and ring.at_edges == {0: ("S",)}
    assert ring.shared == {"D": 1, "F": 1, "S": 2}


def test_statuses_are_merged_in_pairs():
    assert merged(["HHH", "LHH", "HLL", "LLL", "HLH"]) == ["HLH", "*HH", "*LL"]


def test_listings_are_bounded_by_the_cheapest_steps():
    """b is heavy; a and c are light. At epsilon = 1/4 and 3/4."""
    listings = Listings({"R": ("a", "b"), "S": ("b", "c")}, "b", [Fraction(1, 4), Fraction(3, 4)])

    def of(known: str, wanted: str, atoms: str) -> list[Fraction]:
        one = Listing(frozenset(known), frozenset(wanted), frozenset(atoms))
        return [Fraction(value, UNIT) for value in listings.most([one])]

    quarter = Fraction(1, 4)
    assert of("a", "b", "R") == [quarter, quarter]  # The list of a light value, or the few heavy values.
    assert of("b", "c", "S") == [1, 1]  # The list of a heavy value.
    assert of("a", "c", "RS") == [1, 1]  # No more than S has rows.
    assert of("", "b", "R") == [1 - quarter, quarter]
    assert of("", "ab", "R") == [1, 1]
    assert of("", "ac", "RS") == [2, 2]
    assert of("ab", "a", "R") == [0, 0]


def test_a_key_determines_its_columns_only_where_it_is_known():
    """Of D(a, x) with the key a; a is light."""
    quarter = [Fraction(1, 4)]
    listings = Listings({"R": ("a", "b")}, "b", quarter, {"D": (frozenset("a"), frozenset("x"))})

    def of(known: str, wanted: str, atoms: str) -> Fraction:
        return Fraction(listings.most([Listing(frozenset(known), frozenset(wanted), frozenset(atoms))])[0], UNIT)

    assert of("a", "x", "D") == 0 and of("a", "bx", "RD") == Fraction(1, 4)
    assert of("b", "x", "RD") == 1 and of("", "x", "RD") == 1


def test_a_curve_has_its_corners():
    points = [(Fraction(n, 6), Fraction(abs(3 - n), 3)) for n in range(7)]
    curve = Curve.through(points)
    assert curve.corners == (points[0], points[3], points[6]) and str(curve) == "1 at eps = 0, 0 at 1/2, 1 at 1"
    assert [curve.at(Fraction(n, 12)) for n in (0, 1, 6, 11, 12)] == [1, Fraction(5, 6), 0, Fraction(5, 6), 1]
    assert curve.plus(1).at(Fraction(1, 2)) == 1


@pytest.mark.parametrize("name", QUERIES)
def test_paths_list_what_the_planner_counts(name):
    """The steps of the trees that run list the variables, over the atoms, of which the costs are computed."""
    tables, query, epsilon = QUERIES[name]
    kept = Kept(tables, query, epsilon)
    variables = {v for edge in kept.maintained.plan.union.edges for group in edge.groups for v in group}
    for stored in kept.balance.part_trees.trees:
        tree, found = stored.tree, set()
        for leaf in tree.leaves.values():
            view, known, atoms = leaf, set(leaf.node.variables), set(leaf.atoms)
            while view.parent is not None:
                for step in tree.update_steps(view.parent, view):
                    atoms |= step.view.atoms
                    if step.lists:
                        known |= set(step.view.listed)
                        atoms |= {atom for partner, _ in step.partners for atom in partner.atoms}
                        found.add(tuple(frozenset(one) for one in (leaf.node.variables, known & variables, atoms)))
                view = view.parent
        planned = {(one.known, one.wanted & variables, one.atoms) for one in listed_by_changes(stored.planned.root)}
        assert {(known, wanted | (known & variables), atoms) for known, wanted, atoms in found} == {
            (known, wanted | (known & variables), atoms) for known, wanted, atoms in planned
        }


def test_a_tree_that_is_not_the_best_is_dearer():
    """The exponents tell trees apart: a triangle closed under two light ends, or under two heavy ones."""
    definition = parse_definition(f"{TRIANGLE} ->")
    ring = find_hung_ring(definition)
    assert ring is not None
    leaves = {atom.name: Node(tuple(c.name for c in atom.variables), atom=atom.name) for atom in definition.atoms}
    pair = Node(("b", "c", "a"), (leaves["S"], leaves["T"]))
    root = Node((), (Node(("a", "b"), (leaves["R"], pair)),), connex=True)
    half = [Fraction(1, 2)]
    costs = {
        heavy: Listings(dict(ring.pairs()), heavy, half).most(listed_by_changes(root))[0]
        for heavy in ("ab", "c", "abc")
    }
    assert costs == {"ab": UNIT // 2, "c": UNIT, "abc": UNIT // 2}
    assert divide_ring(definition, ring, listed=False, by=()).exponents.update.at(Fraction(1, 2)) == Fraction(1, 2)
