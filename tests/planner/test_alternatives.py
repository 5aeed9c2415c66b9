"""Other plans of a query: trees of its class for other mixes of changes, and divisions that cost less at worst."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from sqlfront.planner.alternatives import alternative_trees, is_as_good, join_orders
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.division import divide, divide_unasked
from sqlfront.planner.model.bound import CONSTANT_BOUND, Bound
from tests.planner.contract import check_plan
from tests.planner.notation import parse_definition

PATH = "r(a,b), s(b,c), t(c,d) -> "


@pytest.mark.parametrize("text", [PATH, PATH + "a, d", "r(a,b), s(b,c), t(c,a), u(a,x) -> x", "r(a,b), s(b,c) -> b"])
def test_all_are_plans_of_one_class_and_each_hot_table_has_its_own(text):
    definition = parse_definition(text)
    rates = dict.fromkeys(sorted(definition.tables), 1.0)
    plans = alternative_trees(definition, rates)
    for plan in plans:
        check_plan(plan, definition)
        assert (plan.shape, plan.cost, plan.total) == (plans[0].shape, plans[0].cost, plans[0].total)
    assert len({plan.root for plan in plans}) == len(plans)
    for table in rates:
        hot = plan_view(definition, {**rates, table: 1e6})
        assert hot.root in {plan.root for plan in plans}
    assert plans[0].root == plan_view(definition, rates).root


def test_a_better_class_is_as_good_and_a_worse_one_is_not():
    definition = parse_definition(PATH)
    plan = plan_view(definition)
    slower = replace(plan, cost=replace(plan.cost, update=Bound(Fraction(2))))
    assert is_as_good(plan, plan) and is_as_good(plan, slower) and not is_as_good(slower, plan)
    assert not is_as_good(replace(plan, total=slower.cost), plan) and is_as_good(plan, replace(plan, total=slower.cost))
    other = replace(plan, cost=replace(slower.cost, space=CONSTANT_BOUND))
    assert not is_as_good(other, plan) and not is_as_good(plan, other)


@pytest.mark.parametrize(
    ("text", "orders"),
    [("r(a,b), s(b,c), t(c,a) -> ", 5), ("r(a,b), s(b,c), t(c,d), u(d,a) -> a, c", 23), (PATH + "a, d", 0)],
)
def test_the_tables_of_a_bag_have_every_order(text, orders):
    definition = parse_definition(text)
    plan = plan_view(definition)
    others = list(join_orders(plan))
    assert len({plan.root, *(other.root for other in others)}) == len(others) + 1 == orders + 1
    for other in others:
        check_plan(other, definition)
        assert {node.atom for node in other.root.walk()} == {node.atom for node in plan.root.walk()}


@pytest.mark.parametrize(
    ("text", "epsilon", "update"),
    [
        ("r(a,b), s(b,c), t(c,a) -> a", 0.5, "O(N^0.5) amortised"),
        ("r(a,b), s(b,c), t(c,a) -> a, b, c [set]", 0.5, "O(N^0.5) amortised"),
        ("r(a,b), s(b,c), t(c,d), u(d,a) -> ", 0.67, "O(N^0.67) amortised"),
        ("r(a,b), s(b,c), t(c,d), u(d,a) -> * [set]", 0.33, "O(N^0.67) amortised"),
        ("r(b), s(b,c), t(c) -> ", 0.5, "O(N^0.5) amortised"),
    ],
)
def test_a_division_has_the_epsilon_of_its_cheapest_change(text, epsilon, update):
    definition = parse_definition(text)
    plan = plan_view(definition)
    divided = divide_unasked(definition, plan)
    assert divided is not None
    assert (divided[1], str(divided[0].cost.update)) == (epsilon, update)
    assert divide_unasked(definition, divided[0]) is None, "it is divided"
    assert divide(definition, plan, epsilon) is plan, "unless it is asked for"


def test_what_a_division_does_not_make_cheaper_is_not_divided():
    for text in ("r(a,b), s(b,c), t(c,d) -> a, d", "r(b), s(b,c; b | c), t(c) -> "):
        definition = parse_definition(text)
        assert divide_unasked(definition, plan_view(definition)) is None
    definition = parse_definition("r(b), s(b,c), t(c) -> ")
    assert divide_unasked(definition, replace(plan_view(definition, materialize=True))) is None
