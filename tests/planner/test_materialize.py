"""Trees with every join stored: they keep the contract, give the query's rows, and join what makes few rows first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.check import check_plan
from planner.classify import plan_view
from planner.cost import MATERIALIZED
from planner.plan import Node, Plan
from planner.query import Definition
from planner.rules.materialize import STRATEGY
from tests.planner.evaluate import assert_computes
from tests.planner.notation import parse_definition
from tests.planner.strategies import databases, queries


def _plan(definition: Definition, weights: dict[str, float] | None = None) -> Plan:
    plan = plan_view(definition, weights, materialize=True)
    assert isinstance(plan, Plan)
    return plan


def _joins(node: Node) -> set[str]:
    """The atoms below each node of two children, as one word."""
    words = {"".join(sorted(leaf.atom or "" for leaf in node.leaves()))} if len(node.children) == 2 else set()
    return words.union(*(_joins(child) for child in node.children))


@settings(max_examples=300, deadline=None)
@given(queries(), st.data())
def test_every_query_has_a_tree_that_gives_its_rows(definition: Definition, data: st.DataObject) -> None:
    if len(definition.atoms) < 2:
        return
    plan = _plan(definition)
    check_plan(plan, definition)
    assert (plan.strategy, plan.cost) == (STRATEGY, MATERIALIZED)
    rows = data.draw(databases(definition, values=2))
    assert_computes(plan, definition, rows)


def test_the_shape_stays_the_querys() -> None:
    for text in ("R(a,b), S(b,c), T(c,a) -> a", "R(a,b), S(b,c) -> a, c", "R(a,b), S(b) -> a, b"):
        definition = parse_definition(text)
        automatic = plan_view(definition)
        assert _plan(definition).shape == (automatic.shape)


def test_one_table_has_no_joins_to_store() -> None:
    definition = parse_definition("R(a, b) -> a [group]")
    assert _plan(definition) == plan_view(definition)


@pytest.mark.parametrize(
    ("text", "weights", "joins"),
    [
        # A declared key says that a join makes no more rows than its other side; the large table is joined last.
        ("L(o, s), O(o, c), C(c), P(s, p)", {"L": 1000, "O": 100, "C": 10, "P": 50}, {"CO", "CLO", "CLOP"}),
        # Without keys the small tables are joined first.
        ("A(x), B(x, y), C(y, z), D(z)", {"A": 5, "B": 900, "C": 900, "D": 1}, {"CD", "AB", "ABCD"}),
        # A product comes last.
        ("A(x), B(x), C(y), D(y)", {"A": 1, "B": 1000, "C": 1, "D": 1000}, {"AB", "CD", "ABCD"}),
    ],
)
def test_small_joins_come_first(text: str, weights: dict[str, float], joins: set[str]) -> None:
    definition = parse_definition(f"{text} -> *")
    keys = {"O": "o", "C": "c"} if "L" in weights else {}
    atoms = tuple(
        replace(atom, keys=(frozenset({keys[atom.name]}),)) if atom.name in keys else atom for atom in definition.atoms
    )
    assert _joins(_plan(replace(definition, atoms=atoms), weights).root) == joins


def test_a_tree_that_forgets_a_column_is_found() -> None:
    definition = parse_definition("R(a,b), S(b,c), T(c,d) -> a, d")
    plan = _plan(definition)

    def without(node: Node, variable: str) -> Node:
        kept = tuple(v for v in node.variables if v != variable or node.atom is not None)
        return replace(node, variables=kept, children=tuple(without(child, variable) for child in node.children))

    for variable in "bc":
        with pytest.raises(AssertionError, match="columns"):
            check_plan(replace(plan, root=without(plan.root, variable)), definition)
