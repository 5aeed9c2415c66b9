"""Trees over bags: known widths, every elimination order as an oracle, and that they compute the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations, permutations
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.hypergraph import Edges, hypergraph, neighbours, vertices
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Definition
from sqlfront.planner.search import decomposition
from sqlfront.planner.search.decomposition import decompose
from sqlfront.planner.theory.cover import cover_number
from sqlfront.planner.theory.elimination import promising_bags
from sqlfront.planner.theory.gyo import is_acyclic
from tests.planner.contract import check_plan
from tests.planner.evaluate import assert_computes
from tests.planner.notation import parse_definition, read_texts
from tests.planner.strategies import databases, definitions, rings_and_cliques
from tests.slices import examples


def draw(node: Node) -> str:
    """An inner node as [variables]{children}, a leaf by its atom; a star marks the connex nodes, ? a filter."""
    star = "*" if node.connex else ""
    if node.filters is not None:
        return f"{node.filters}?"
    if node.atom is not None:
        return node.atom + star
    return f"[{' '.join(node.variables)}]{star}{{{' '.join(map(draw, node.children))}}}"


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(text, wanted, id=title) for title, text, wanted in read_texts("bags.txt")]
)
def test_exponents_and_tree(text: str, expected: str) -> None:
    definition = parse_definition(text)
    found = decompose(definition, definition.free, {})
    trees = " ".join(map(draw, found.root.children))
    assert f"{found.width} {found.update} {found.space} {trees}" == expected
    check_plan(plan_view(definition), definition)


def eliminated(edges: Edges, order: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """The bag of each variable of an elimination order."""
    adjacent = dict(neighbours(edges))
    for variable in order:
        around = adjacent.pop(variable)
        yield around | {variable}
        adjacent = {v: others - {variable} for v, others in adjacent.items()}
        adjacent |= {v: adjacent[v] | around - {v} for v in around}


def hypertree_width(edges: Edges, free: tuple[str, ...]) -> Fraction:
    """The fractional hypertree width, free-connex for `free`, over all orders with the bound variables first."""
    bound, rest = vertices(edges) - set(free), tuple(set(free) & vertices(edges))
    orders = (first + last for first in permutations(sorted(bound)) for last in permutations(rest))
    return min(max(cover_number(bag, edges.values()) for bag in eliminated(edges, order)) for order in orders)


@st.composite
def cyclic(draw: st.DrawFn, atoms: int = 7, variables: int = 6) -> Definition:
    """A definition with a cycle, of at most so many atoms and variables."""
    definition = draw(definitions(atoms=atoms) | rings_and_cliques())
    edges = hypergraph(definition)
    assume(len(vertices(edges)) <= variables and not is_acyclic(edges))
    return definition


@examples(25)
@given(cyclic())
def test_the_width_is_the_least_of_all_elimination_orders(definition: Definition) -> None:
    found = decompose(definition, definition.free, {})
    edges = hypergraph(definition)
    least = hypertree_width(edges, definition.free)
    assert found.width >= least
    parted = (2 <= len(edge & set(bag)) < len(edge) for bag in found.bags for edge in edges.values())
    assert found.width == least or any(parted)


def test_an_atom_of_another_branch_bounds_no_bag_by_some_of_its_columns() -> None:
    """r4(b, f, a) would bound (b, d, f) by its b and f."""
    text = "r0(d, f), r1(b, a), r2(b, d), r3(a, c), r4(b, f, a) -> b, f, c, a"
    bag, group = parse_definition(text + " [bag]"), parse_definition(text + " [group]")
    assert decompose(group, group.free, {}).width == 2 and hypertree_width(hypergraph(group), group.free) == Fraction(
        3, 2
    )
    assert plan_view(bag).cost.preprocessing.power == Fraction(3, 2)  # It enumerates d too, which SELECT allows.


def exponents(root: Node, edges: Edges) -> tuple[Fraction, Fraction, Fraction]:
    """Width, update and space of a tree, from their definitions."""
    width, update, space = Fraction(1), Fraction(0), Fraction(1)
    for node in root.walk():
        if node is root or not node.children:
            continue
        below = _below(node, edges)
        label = frozenset(node.variables)
        width = max(width, cover_number(label, below.values()))
        update = max(update, *(cover_number(label - edge, below.values()) for edge in below.values()))
        stored = [label] if node.connex else []
        for child in node.children:
            if child.children and not child.connex and len(node.children) > 1:
                inside = _below(child, edges)
                space = max(space, cover_number(label & frozenset(child.variables), inside.values()))
        space = max(space, *(cover_number(variables, below.values()) for variables in stored), Fraction(1))
    return width, update, space


@examples(80)
@given(cyclic(variables=8))
def test_the_exponents_are_the_trees(definition: Definition) -> None:
    found = decompose(definition, definition.free, {})
    assert (found.width, found.update, found.space) == exponents(found.root, hypergraph(definition))
    bags = [set(bag) for bag in found.bags]
    assert all(set(node.variables) in bags for node in _widest(found.root, hypergraph(definition), found.width))


def _widest(root: Node, edges: Edges, width: Fraction) -> Iterator[Node]:
    for node in root.walk():
        inner = node.children and node is not root
        if inner and cover_number(node.variables, _below(node, edges).values()) == width:
            yield node


def _below(node: Node, edges: Edges) -> dict[str, frozenset[str]]:
    """The atoms that count or filter below a node."""
    names = [leaf.atom or leaf.filters for leaf in node.walk()]
    return {name: edges[name] for name in names if name is not None}


@examples(80)
@given(st.data())
def test_the_tree_computes_the_query(data: st.DataObject) -> None:
    """Filled bottom-up and walked from the root, the tree gives each row over `free` once, with its multiplicity."""
    definition = data.draw(cyclic())
    rows = data.draw(databases(definition, values=2))
    plan = plan_view(definition)
    check_plan(plan, definition)
    assert_computes(plan, definition, rows)


@examples(25)
@given(cyclic())
def test_the_beam_finds_trees_that_are_hardly_wider(definition: Definition) -> None:
    exact = decompose(definition, definition.free, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decomposition, "EXACT_VARIABLES", 0)
        beam = decompose(definition, definition.free, {})
    assert exact.width <= beam.width <= exact.width + Fraction(1, 2)
    found = plan_view(definition)
    check_plan(found, definition)


def test_large_cores_are_searched_by_beam() -> None:
    names = "abcdefghijkl"
    ring = ", ".join(f"R{i}({x}, {names[(i + 1) % 12]})" for i, x in enumerate(names))
    definition = parse_definition(f"{ring} -> ")
    assert decompose(definition, (), {}).width == 2
    check_plan(plan_view(definition), definition)


def test_bound_variables_are_eliminated_first() -> None:
    edges = hypergraph(parse_definition("R(a,b), S(b,c), T(c,d), U(d,a) -> a, c"))
    bags = promising_bags(edges, frozenset("ac"))
    assert {frozenset("abc"), frozenset("acd")} <= set(bags)
    assert frozenset("abd") not in bags and frozenset("bcd") not in bags


@pytest.mark.parametrize(
    ("variables", "edges", "expected"),
    [
        ("abc", "ab bc ca", Fraction(3, 2)),
        ("ab", "ab bc ca", 1),
        ("ac", "ab bc", 2),
        ("abcde", "ab bc cd de ea", Fraction(5, 2)),
        ("abcd", "abc bcd cda dab", Fraction(4, 3)),
        ("abcde", "abcd bcde cdea deab eabc", Fraction(5, 4)),
        ("", "ab", 0),
    ],
)
def test_cover_numbers(variables: str, edges: str, expected: Fraction) -> None:
    assert cover_number(variables, [frozenset(edge) for edge in edges.split()]) == expected


def test_an_uncovered_variable_is_an_error() -> None:
    with pytest.raises(ValueError, match="in no edge"):
        cover_number("abc", [frozenset("ab")])


@examples(80)
@given(st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=4), min_size=1, max_size=7))
def test_a_cover_number_has_a_packing_and_a_cover(edges: list[frozenset[str]]) -> None:
    """Between a packing and a cover in halves and thirds, which bound the optimum from both sides."""
    variables = vertices(dict(enumerate(edges)))  # type: ignore[arg-type]
    found = cover_number(variables, edges)
    whole = next(
        size
        for size in range(1, len(edges) + 1)
        if any(variables <= frozenset().union(*chosen) for chosen in combinations(edges, size))
    )
    packing = max(
        size
        for size in range(1, len(variables) + 1)
        if any(all(len(edge & set(chosen)) < 2 for edge in edges) for chosen in combinations(variables, size))
    )
    assert packing <= found <= whole
    assert found == cover_number(variables, [*edges, *(edge - {min(edge)} for edge in edges)]), "parts add nothing"


def test_busy_tables_are_joined_near_the_root() -> None:
    """A path on a triangle is joined with the sums of the triangle, or below it when it hardly changes."""
    definition = parse_definition("R(a,b), S(b,c), T(c,a), P(c,d), Q(d) -> ")

    def depth(weights: Mapping[str, float], atom: str) -> int:
        def find(node: Node, level: int) -> Iterator[int]:
            if node.atom == atom:
                yield level
            for child in node.children:
                yield from find(child, level + 1)

        return next(find(decompose(definition, (), weights).root, 0))

    busy = {"R": 0.0, "S": 0.0, "T": 0.0, "P": 0.0, "Q": 0.0}
    assert depth(busy | {"Q": 1000.0}, "Q") < depth(busy | {"R": 1000.0}, "Q")


@pytest.mark.parametrize(("variables", "atoms"), [(12, 22), (16, 34)])
def test_a_search_ends_for_joins_of_very_many_tables(variables: int, atoms: int) -> None:
    """Within the budget there always is a tree, of all atoms."""
    choose = Random(2)
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < atoms:
        one, other = choose.sample(range(variables), 2)
        pairs.add((one, other))
    body = ", ".join(f"E{i}(v{a}, v{b})" for i, (a, b) in enumerate(sorted(pairs)))
    definition = parse_definition(f"{body} -> v0 [set]")
    found = decompose(definition, ("v0",), {})
    assert {leaf.atom for leaf in found.root.leaves() if leaf.atom} == {atom.name for atom in definition.atoms}
    assert found.width >= 2
