"""Which tree is chosen: the cheapest for the update mix, against all trees; and where foreign keys end a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.hypergraph import components, hypergraph, ordered_variables
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition, Reference
from sqlfront.planner.search.join_tree import build_tree
from sqlfront.planner.theory.keys import reduct, refers
from tests.planner.contract import check_plan
from tests.planner.notation import parse_definition
from tests.planner.strategies import definitions

Shape = tuple[frozenset[str], tuple["Shape", ...]]
"""A tree without its order: a label and the subtrees; a leaf is an atom's scheme and no subtrees."""


def price(tree: Shape, weights: Mapping[int, float], rank: Mapping[int, int]) -> float:
    """What the page says: levels climbed, two more where a step may meet many rows, weighted by the atom's table."""
    label, children = tree
    total = 0.0
    for child in children:
        levels = 1 if label <= child[0] else 3
        total += price(child, weights, rank) + levels * sum(weights[rank[id(leaf)]] for leaf in leaves(child))
    return total


def leaves(tree: Shape) -> Iterator[Shape]:
    if not tree[1]:
        yield tree
    for child in tree[1]:
        yield from leaves(child)


def all_trees(edges: Mapping[str, frozenset[str]], above: frozenset[str]) -> Iterator[Shape]:
    """Every tree over a connected group of full atoms whose labels lie in one atom and join what is below them."""
    if len(edges) == 1:
        ((_, edge),) = edges.items()
        yield edge, ()
        return
    variables = sorted(frozenset().union(*edges.values()) - above)
    for size in range(1, len(variables) + 1):
        for more in combinations(variables, size):
            label = above | frozenset(more)
            if not any(label <= edge for edge in edges.values()):
                continue
            parts = [{name: edges[name] for name in names} for names in components(edges, label)]
            shown = [frozenset().union(*part.values()) & label for part in parts]
            if all(sum(v in scope for scope in shown) > 1 for v in more):
                for below in _choices(list(zip(parts, shown, strict=True))):
                    yield label, below


def _choices(parts: list[tuple[dict[str, frozenset[str]], frozenset[str]]]) -> Iterator[tuple[Shape, ...]]:
    if not parts:
        yield ()
        return
    (edges, scope), *rest = parts
    for tree in all_trees(edges, scope):
        for others in _choices(rest):
            yield (tree, *others)


def node_price(node: Node, weights: Mapping[str, float]) -> float:
    """The same price of a planned tree; the root costs nothing."""
    total = 0.0
    for child in node.children:
        levels = 0 if not node.variables else 1 if set(node.variables) <= set(child.variables) else 3
        total += node_price(child, weights) + levels * sum(weights[leaf.atom or ""] for leaf in child.leaves())
    return total


@settings(max_examples=200, deadline=None)
@given(definitions(acyclic=True, atoms=5), st.lists(st.integers(0, 1000), min_size=5, max_size=5))
def test_no_tree_is_cheaper(definition: Definition, rates: list[int]) -> None:
    edges = {name: edge for name, edge in hypergraph(definition).items() if edge}
    assume(len(edges) == len(definition.atoms))
    assume(len({frozenset(edge) for edge in edges.values()}) == len(edges))
    every = ordered_variables(definition)
    weights = {f"r{rank}": float(rate) for rank, rate in enumerate(rates)}
    root = build_tree(definition, every, "any", weights)
    assert root is not None
    best = 0.0
    for names in components(edges):
        group = {name: edges[name] for name in names}
        by_edge = {edge: name for name, edge in group.items()}
        options = []
        for tree in all_trees(group, frozenset()):
            found = {rank: by_edge[leaf[0]] for rank, leaf in enumerate(leaves(tree))}
            rank = {id(leaf): rank for rank, leaf in enumerate(leaves(tree))}
            options.append(price(tree, {r: weights[name] for r, name in found.items()}, rank))
        best += min(options)
    assert node_price(root, weights) == best


def test_a_declared_mix_moves_the_busy_table_up() -> None:
    """lineitem joins orders and part: each of the two labels leaves one side with a fan-out."""
    definition = parse_definition("orders(o), lineitem(o, p), part(p), price(p), place(o) -> * [bag]")
    for busy, label in (("orders", {"o"}), ("part", {"p"}), ("price", {"p"}), ("place", {"o"})):
        plan = plan_view(definition, {busy: 1000.0, "lineitem": 1.0, "orders": 0.0, "part": 0.0} | {busy: 1000.0})
        assert isinstance(plan, Plan)
        check_plan(plan, definition)
        assert set(plan.root.children[0].variables) == label, busy
        assert dict(plan.weights)[busy] == 1000


def test_a_table_that_never_changes_weighs_nothing_and_ties_fall_to_the_cheaper_tree() -> None:
    definition = parse_definition("R(x,y), S(x,y), T(x,v), U(x,v), W(y) -> *")
    still = plan_view(definition, dict.fromkeys("RSTUW", 0.0))
    alike = plan_view(definition)
    assert isinstance(still, Plan) and isinstance(alike, Plan)
    assert still.root == alike.root


def test_the_reduct_fills_in_what_keys_fix() -> None:
    definition = reduct(parse_definition("orders(o, c; o), items(o), customer(c, n; c) -> o [group]"))
    assert hypergraph(definition) == {
        "orders": {"o", "c", "n"}, "items": {"o", "c", "n"}, "customer": {"c", "n"},
    }  # fmt: skip
    assert definition.free == ("o", "c", "n")


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        (
            "customer(c; c), orders(c, o; o; c > customer), items(o;; o > orders) -> o [group]",
            "a new or deleted row of customer joins none of orders, by foreign key",
        ),
        (
            "d(a, x; a), e(b, y; b), f(a, b;; a > d | b > e) -> x, y [bag]",
            "a new or deleted row of d joins none of f, by foreign key; a new or deleted row of e joins none of f",
        ),
    ],
)
def test_the_reason_names_the_references(query: str, clause: str) -> None:
    plan = plan_view(parse_definition(query))
    assert isinstance(plan, Plan)
    assert str(plan.cost.update) == "O(1) amortised"
    assert clause in plan.reason


def test_a_reference_counts_only_where_it_is_the_join() -> None:
    fact, dimension, other = parse_definition("f(a, b;; a > d), d(a, x; a), e(b) -> x [group]").atoms
    assert refers(fact, dimension)
    assert not refers(dimension, fact) and not refers(fact, other)
    renamed = replace(dimension, variables=(replace(dimension.variables[0], source="k"), dimension.variables[1]))
    assert not refers(fact, renamed), "the join is on another column than the one referred to"
    assert not refers(replace(fact, references=(Reference("d", (("b", "a"),)),)), dimension)
