"""Plans with every join stored: they keep the contract, give the query's rows, and store what changes need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.cost import MATERIALIZED
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.rules.materialize import STRATEGY, TooManyJoins
from tests.planner.contract import check_plan
from tests.planner.evaluate import assert_computes
from tests.planner.notation import parse_definition
from tests.planner.strategies import databases, queries
from tests.slices import examples


def _plan(definition: Definition) -> Plan:
    return plan_view(definition, materialize=True)


@examples(100)
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
    ("text", "joins"),
    [
        # L's change finds each of the others by itself; theirs find what hangs together without them. P's columns are
        # among those of S, so a change of S looks P up by itself.
        ("O(o), L(o, p, s), P(p), S(p, s) -> *", {"LO", "LS", "LOS", "LPS", "LOPS"}),
        ("A(x), B(x, y), C(y, z), D(z) -> *", {"AB", "BC", "CD", "ABC", "BCD", "ABCD"}),
        # A single table is stored anew if it is summed down.
        ("R(a, b), S(b, c) -> a", {"S", "RS"}),
        ("R(a, b), S(b, c) -> a, c", {"RS"}),
        # Parts that nothing joins stay apart.
        ("A(x), B(x), C(y), D(y) -> x, y", {"AB", "CD", "ABCD"}),
        ("R(a, b), S(b, c), T(c, a) -> *", {"RS", "ST", "RT", "RST"}),
    ],
)
def test_the_joins_that_changes_are_joined_with_are_stored(text: str, joins: set[str]) -> None:
    stored = [
        "".join(sorted(leaf.atom or "" for leaf in node.leaves())) for node in _plan(parse_definition(text)).joins
    ]
    assert set(stored) == joins and len(stored) == len(joins)
    assert [len(name) for name in stored] == sorted(len(name) for name in stored)


def test_a_join_has_the_columns_that_are_needed_outside() -> None:
    plan = _plan(parse_definition("R(a,b,x), S(b,c,y), T(c,d) -> a, y"))
    found = {"".join(sorted(leaf.atom or "" for leaf in node.leaves())): set(node.variables) for node in plan.joins}
    assert found == {"R": set("ab"), "T": set("c"), "RS": set("acy"), "ST": set("by"), "RST": set("ay")}


def test_too_many_joins_are_refused() -> None:
    spokes = ", ".join(f"S{i}(x{i}, y{i})" for i in range(9))
    hub = f"H({', '.join(f'x{i}' for i in range(9))})"
    with pytest.raises(TooManyJoins, match="more than 256 joins of 10 tables"):
        _plan(parse_definition(f"{hub}, {spokes} -> *"))


def test_a_join_that_forgets_a_column_is_found() -> None:
    definition = parse_definition("R(a,b), S(b,c), T(c,d) -> a, d")
    plan = _plan(definition)
    for place, join in enumerate(plan.joins[:-1]):
        for variable in join.variables:
            kept = replace(join, variables=tuple(v for v in join.variables if v != variable))
            with pytest.raises(AssertionError, match="columns needed outside"):
                check_plan(replace(plan, joins=(*plan.joins[:place], kept, *plan.joins[place + 1 :])), definition)
    with pytest.raises(AssertionError, match="is stored before"):
        check_plan(replace(plan, joins=plan.joins[1:]), definition)
