"""Joins of many tables are planned within a budget, which is counted in covers, not in seconds."""

from __future__ import annotations

import pytest

from sqlfront.planner.classify import plan_view
from sqlfront.planner.search import decomposition
from tests.planner.contract import check_plan
from tests.planner.notation import parse_definition


def ring(size: int, head: str) -> str:
    return ", ".join(f"R{i}(x{i}, x{(i + 1) % size}, w{i})" for i in range(size)) + f" -> {head} [bag]"


def grid(size: int) -> str:
    across = [f"A{i}{j}(x{i}{j}, x{i}{j + 1})" for i in range(size) for j in range(size - 1)]
    down = [f"D{i}{j}(x{i}{j}, x{i + 1}{j})" for i in range(size - 1) for j in range(size)]
    return ", ".join(across + down) + " -> x00 [group]"


@pytest.mark.parametrize(
    "query", [ring(18, "*"), ring(24, "w0, w7, w9"), grid(4)], ids=["ring", "some columns", "grid"]
)
def test_many_tables_take_few_covers(query, monkeypatch):
    covers = 0
    cover_number = decomposition.cover_number

    def counted(variables, edges):
        nonlocal covers
        covers += 1
        return cover_number(variables, edges)

    monkeypatch.setattr(decomposition, "cover_number", counted)
    definition = parse_definition(query)
    plan = plan_view(definition)
    check_plan(plan, definition)
    assert 0 < covers < 60_000
    assert "not all were compared" in plan.reason


@pytest.mark.parametrize(("query", "width"), [(ring(40, "w0"), 2), (ring(60, "w0"), 2), (grid(4), 3)],
                         ids=["ring of 40", "ring of 60", "grid"])  # fmt: skip
def test_a_search_that_ends_early_has_a_narrow_tree(query, width):
    """The bags of a good elimination order come first, so they are in the tree even if the budget is spent."""
    definition = parse_definition(query)
    found = decomposition.decompose(definition, definition.free, {})
    assert (found.cut, found.width) == (True, width)


def test_few_tables_are_compared_whole():
    plan = plan_view(parse_definition("R(a, b), S(b, c), T(c, d), U(d, a) -> a, b, c, d [bag]"))
    assert plan.shape == "cyclic" and "not all were compared" not in plan.reason
