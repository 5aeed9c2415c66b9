"""The papers' tables: who is q-hierarchical and why not, the TPC classes, the shape of named trees."""

from __future__ import annotations

import pytest

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.hierarchy import find_violation
from tests.planner.contract import check_plan
from tests.planner.notation import read_fixture


def _cases(name: str) -> list[object]:
    return [pytest.param(definition, expected, id=title) for title, definition, expected in read_fixture(name)]


@pytest.mark.parametrize(("definition", "expected"), _cases("oracles.txt"))
def test_violation_is_the_papers(definition: Definition, expected: str) -> None:
    violation = find_violation(hypergraph(definition), definition.free)
    found = "q-hierarchical" if violation is None else f"{violation.condition} {violation.x} {violation.y}"
    assert found == expected


@pytest.mark.parametrize(("definition", "expected"), _cases("classes.txt"))
def test_class_cost_and_additions(definition: Definition, expected: str) -> None:
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    check_plan(plan, definition)
    update = str(plan.cost.update).replace(" ", "").replace("changeoftheextendedresult", "change")
    found = f"{plan.shape} {update}"
    if plan.variables_added:
        found += f" + {' '.join(plan.variables_added)}"
    assert sorted(found.split()) == sorted(expected.split())
    assert str(plan.cost.delay) == "O(1)"


@pytest.mark.parametrize(("definition", "expected"), _cases("trees.txt"))
def test_tree(definition: Definition, expected: str) -> None:
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    check_plan(plan, definition)
    assert "{" + " ".join(_draw(child) for child in plan.root.children) + "}" == expected


def _draw(node: Node) -> str:
    star = "*" if node.connex else ""
    if node.atom is not None:
        return node.atom + star
    return f"[{' '.join(node.variables)}]{star}{{{' '.join(_draw(child) for child in node.children)}}}"
