"""Joins by comparisons: the tree computes the query, and its bags are as wide as the atoms allow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Comparison, Definition
from sqlfront.planner.theory.core import minimise
from tests.planner.contract import check_plan
from tests.planner.evaluate import assert_computes, join_naively
from tests.planner.notation import parse_definition
from tests.planner.strategies import compared, databases
from tests.slices import examples


def compare(text: str, *comparisons: Comparison) -> Definition:
    return replace(parse_definition(text), comparisons=comparisons)


@examples(100)
@given(st.data(), compared(), st.booleans())
def test_the_tree_computes_the_query(data: st.DataObject, definition: Definition, materialize: bool) -> None:
    plan = plan_view(definition, materialize=materialize)
    rows = data.draw(databases(definition))
    check_plan(plan, definition)
    if materialize and len(definition.atoms) > 1:
        _assert_joins(plan, definition, rows)
    else:
        assert_computes(plan, definition, rows)


def _assert_joins(plan: Plan, definition: Definition, rows: dict[str, Counter[tuple[int, ...]]]) -> None:
    """The result, joined from its leaves, is the query's."""
    schemes = {atom.name: [column.name for column in atom.variables] for atom in definition.atoms}
    result = plan.joins[-1]
    found = join_naively(schemes, rows, result.variables, result.comparisons)
    assert found == join_naively(schemes, rows, result.variables, definition.comparisons)


@pytest.mark.parametrize(
    ("text", "comparisons", "expected"),
    [
        # Nothing but a count is stored: a change looks up a sum of the other table.
        ("r(x), s(z) ->", [("x", "<", "z")], ("O(N log N)", "O(log N)", "O(N)")),
        ("r(k, x), s(k, z) -> k", [("x", ">=", "z")], ("O(N log N)", "O(log N)", "O(N)")),
        # A change of s reaches the values of x below it.
        ("r(x), s(z) -> x", [("x", "<", "z")], ("O(N log N)", "O(N log N)", "O(N)")),
        # What a key fixes is one row.
        ("r(x, k; k), s(k, z) -> x, k", [("x", "<", "z")], ("O(N log N)", "O(log N)", "O(N)")),
        # Two bounds of z are one range; those of x and y are a box.
        (
            "r(x, y), s(z) ->",
            [("x", "<", "z"), ("y", ">", "z")],
            ("O(N log^2 N)", "O(log^2 N) amortised", "O(N log N)"),
        ),
        # Two bounds of x from above are no range: a change of s lists what is below one of them.
        ("r(x), s(y, z) ->", [("x", "<", "y"), ("x", "<", "z")], ("O(N^2 log N)", "O(N log N)", "O(N log N)")),
        # No pair is stored: either side is listed for each row of the other.
        ("r(x), s(z) -> x, z", [("x", "<", "z")], ("O(N log N)", "O(log N)", "O(N)")),
        ("r(x, k), s(k, z) -> x, z, k", [("x", "<", "z")], ("O(N log N)", "O(log N)", "O(N)")),
        # Of two components, a change of the third table lists the first one's rows from above.
        ("r(x), s(z), t(u) -> x, z, u", [("x", "<", "z")], ("O(N log N)", "O(N log N)", "O(N)")),
        ("r(x), s(z) -> x, z", [("x", "<>", "z")], ("O(N^2)", "O(N)", "O(N^2)")),
        # Beside an equality the two sides and the join column are one bag.
        ("r(k, x), s(k, z) -> k", [("x", "<>", "z")], ("O(N^2)", "O(N)", "O(N)")),
        ("r(x), s(z) ->", [("x", "<>", "z")], ("O(N^2)", "O(N)", "O(N)")),
        ("r(x), s(z), t(u) ->", [("x", "<", "z"), ("z", "<", "u")], ("O(N log N)", "O(N log N)", "O(N)")),
        # Each compares with another: no tree.
        (
            "r(x), s(z), t(u) ->",
            [("x", "<", "z"), ("z", "<", "u"), ("x", "<", "u")],
            ("O(N^3)", "O(N^2)", "O(N)"),
        ),
        # A row and its partners in a box: they are counted by sums, and listed where rows of theirs are wanted.
        (
            "r(x, y), s(a, b) ->",
            [("x", ">=", "a"), ("y", "<=", "b")],
            ("O(N log^2 N)", "O(log^2 N) amortised", "O(N log N)"),
        ),
        (
            "r(x, y, u), s(a, b) -> u",
            [("x", ">=", "a"), ("y", "<=", "b")],
            ("O(N^2 log N)", "O(N log N)", "O(N log N)"),
        ),
        # A change of r lists rows of s, and each looks up a sum of t. Where r has u, no listed row looks up a sum.
        (
            "r(x, y), s(a, b, u), t(c, d) -> u",
            [("x", ">=", "a"), ("y", "<=", "b"), ("c", ">=", "a"), ("d", "<=", "b")],
            ("O(N^2 log N)", "O(N log^2 N)", "O(N log N)"),
        ),
        (
            "r(x, y, u), s(a, b, e, f), t(c, d) -> u",
            [("x", ">=", "a"), ("y", "<=", "b"), ("c", ">=", "e"), ("d", "<=", "f")],
            ("O(N^2 log N)", "O(N log N)", "O(N log N)"),
        ),
        (
            "r(x, y, k), s(a, b), t(k, u) -> u",
            [("x", ">=", "a"), ("y", "<=", "b")],
            ("O(N^2 log N)", "O(N log N)", "O(N log N)"),
        ),
        (
            "r(x, y), s(a, b) -> x, y, a, b",
            [("x", ">=", "a"), ("y", "<=", "b")],
            ("O(N^2 log N)", "O(N log N)", "O(N)"),
        ),
    ],
)  # fmt: skip
def test_exponents(text: str, comparisons: list[tuple[str, str, str]], expected: tuple[str, str, str]) -> None:
    definition = compare(text, *(Comparison(*one) for one in comparisons))  # type: ignore[arg-type]
    plan = plan_view(definition)
    assert plan.shape == "inequality"
    assert tuple(map(str, (plan.cost.preprocessing, plan.cost.update, plan.cost.space))) == expected


def test_an_atom_folds_only_where_what_is_compared_stays() -> None:
    loose = parse_definition("E(x, y), E(x, z) -> x [set]")
    assert [atom.name for atom in minimise(loose).atoms] == ["E"]
    kept = minimise(replace(loose, comparisons=(Comparison("y", "<", "z"),)))
    assert [atom.name for atom in kept.atoms] == ["E", "E_2"]
    folded = minimise(compare("E(x, y), E(x, z), F(u) -> x [set]", Comparison("y", "<", "u")))
    assert [sorted(atom.scheme) for atom in folded.atoms] == [["x", "y"], ["u"]]
