"""The cost of a view with blocks: the worst of it and them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from sqlfront.planner.model.bound import (
    EXTENDED_CHANGE,
    INTERMEDIATE_CHANGE,
    LINEAR_BOUND,
    RESULT_CHANGE,
    ROWS_READ,
    SORTED_ROWS,
    VALUES_CHANGE,
    VALUES_KEPT,
    Bound,
    Term,
)
from sqlfront.planner.model.cost import (
    AMORTISED,
    CONSTANT,
    LINEAR,
    MATERIALIZED,
    PROJECTED,
    RANGES,
    RANKED_LOGARITHMIC,
    Cost,
    bag_cost,
)
from sqlfront.planner.model.whole_cost import Block, deciding, deciding_path, spell_deciding, whole_cost

SPREAD = Bound().plus(RESULT_CHANGE)
SORTED_VALUES = replace(
    CONSTANT,
    preprocessing=Bound(Fraction(3, 2)).plus(VALUES_KEPT).in_order(),
    update=Bound(terms=(Term(VALUES_CHANGE, logs=1),)),
)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound(), "O(1)"),
        (Bound(Fraction(3, 2)), "O(N^1.5)"),
        (Bound(Fraction(4, 3), 1, amortised=True), "O(N^(4/3) log N) amortised"),
        (Bound(logs=2), "O(log^2 N)"),
        (Bound().plus(EXTENDED_CHANGE), "O(1 + change of the extended result)"),
        (Bound().plus(EXTENDED_CHANGE).of_block(), "O(1 + change of a block's extended result)"),
        (Bound().plus(SORTED_ROWS), "O(rows log rows)"),
        (Bound(terms=(Term(ROWS_READ, Fraction(1, 2), 1),)), "O(rows * N^0.5 log N)"),
        (Bound(Fraction(1), 1, remark=", or less"), "O(N log N), or less"),
    ],
)
def test_a_bound_in_words(bound: Bound, words: str) -> None:
    assert str(bound) == words


def test_bounds_are_ordered_by_growth() -> None:
    rising = [Bound(), Bound(logs=1), Bound(Fraction(1, 3)), LINEAR_BOUND, LINEAR_BOUND.in_order(), Bound(Fraction(2))]
    rising += [Bound().plus(VALUES_KEPT), LINEAR_BOUND.plus(VALUES_KEPT)]
    assert sorted([*rising[3:], *rising[:3]]) == rising
    assert max(Bound(), Bound(amortised=True)).is_constant and not Bound(logs=1).is_constant


@pytest.mark.parametrize(
    ("own", "block", "update", "space"),
    [
        (CONSTANT, Block("b", CONSTANT), "O(1)", "O(N)"),
        (CONSTANT, Block("b", LINEAR), "O(N)", "O(N)"),
        (LINEAR, Block("b", CONSTANT), "O(N)", "O(N)"),
        (CONSTANT, Block("b", AMORTISED), "O(1) amortised", "O(N)"),
        (RANKED_LOGARITHMIC, Block("b", LINEAR), "O(N)", "O(N)"),
        (LINEAR, Block("b", RANGES), "O(N log N)", "O(N)"),
        (CONSTANT, Block("b", PROJECTED), "O(N + change of a block's extended result)", "O(N + a block's result)"),
        (
            PROJECTED,
            Block("b", PROJECTED),
            "O(N + change of the extended result + change of a block's extended result)",
            "O(N + result + a block's result)",
        ),
        (
            LINEAR,
            Block("b", CONSTANT, True, SPREAD),
            "O(N + change of a block's result * N)",
            "O(N + a block's result)",
        ),
        (CONSTANT, Block("b", CONSTANT, False, SPREAD), "O(1 + change of a block's result)", "O(N)"),
        (
            CONSTANT,
            Block("b", MATERIALIZED, True, Bound().plus(INTERMEDIATE_CHANGE)),
            "O(1 + change of every intermediate result of a block)",
            "O(N + intermediate results of a block)",
        ),
        (CONSTANT, Block("b", bag_cost(Fraction(2), Fraction(3, 2), Fraction(2))), "O(N^1.5)", "O(N^2)"),
        (
            CONSTANT,
            Block("b", SORTED_VALUES),
            "O(1 + change of the values kept of a block * log N)",
            "O(N)",
        ),
    ],
)
def test_the_worst_of_two(own: Cost, block: Block, update: str, space: str) -> None:
    whole = whole_cost(own, [replace(block, feeds="b")], {"b"})
    assert (str(whole.update), str(whole.space), whole.delay) == (update, space, own.delay)
    assert whole_cost(own, [replace(block, feeds="b")] * 2, {"b"}) == whole
    assert whole_cost(own, []) is own


def test_building_has_the_logarithm_of_each_term() -> None:
    block = Block("b", SORTED_VALUES)
    assert str(SORTED_VALUES.preprocessing) == "O((N^1.5 + values kept) log N)"
    assert str(whole_cost(CONSTANT, [block]).preprocessing) == "O(N^1.5 log N + values kept of a block * log N)"


def test_the_block_that_decides_is_named() -> None:
    blocks = [Block("the block of x", CONSTANT), Block("the block of y", PROJECTED), Block("the block of z", LINEAR)]
    decided = deciding(LINEAR, blocks)
    assert decided == {"delay": None} | dict.fromkeys(("preprocessing", "update", "space"), "the block of y")
    assert spell_deciding(decided) == ["the block of y: preprocessing, update, space"]
    assert deciding(PROJECTED, blocks[:1]) == dict.fromkeys(("delay", "preprocessing", "update", "space"))
    assert spell_deciding(deciding(CONSTANT, blocks[:1])) == []


def test_a_change_reaches_a_node_as_all_rows_that_are_put_out_below_it() -> None:
    """A table, a block of N rows for each changed row, a block over it, and the view: what takes most is named."""
    below = Block("below", LINEAR, output=LINEAR_BOUND, feeds="x", reads=frozenset({"t"}))
    above = Block("above", LINEAR, feeds="y", reads=frozenset({"x"}))
    beside = Block("beside", RANGES, feeds="z", reads=frozenset({"t"}))
    blocks = below, above, beside
    assert str(whole_cost(CONSTANT, blocks, {"y", "z"}).update) == "O(N^2)"
    path = deciding_path(CONSTANT, blocks, {"y", "z"})
    assert [(stage.label, str(stage.rows), str(stage.total)) for stage in path] == [
        ("below", "O(1)", "O(N)"), ("above", "O(N)", "O(N^2)"),
    ]  # fmt: skip
    assert deciding(CONSTANT, blocks, {"y", "z"})["update"] == "above"
    assert str(whole_cost(CONSTANT, [below, beside], {"x", "z"}).update) == "O(N log N)"
    assert deciding_path(LINEAR, [below, beside], {"x"})[-1].label is None
    assert str(whole_cost(LINEAR, [below, beside], {"x"}).update) == "O(N^2)"


@pytest.mark.parametrize(
    ("work", "rows", "words"),
    [
        (Bound(), Bound(), "O(1)"),
        (LINEAR_BOUND, Bound(Fraction(1, 2)), "O(N^1.5)"),
        (Bound(logs=1), Bound().plus(RESULT_CHANGE), "O(log N + change of the result * log N)"),
        (Bound().plus(EXTENDED_CHANGE), LINEAR_BOUND, "O(N + change of the extended result)"),
        (Bound(), Bound(amortised=True), "O(1) amortised"),
    ],
)
def test_the_work_of_each_row(work: Bound, rows: Bound, words: str) -> None:
    assert str(work.of_each(rows)) == words
