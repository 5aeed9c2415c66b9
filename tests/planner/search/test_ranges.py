"""Trees of ranges: found wherever the GYO reduction with predicates leaves one range on each edge."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Comparison, Definition
from sqlfront.planner.rules.range_sums import plan_range_sums
from sqlfront.planner.search.ranges import build_range_tree, is_range
from tests.planner.contract import check_plan
from tests.planner.notation import parse_definition
from tests.planner.strategies import compared
from tests.slices import examples


def reduces_to_ranges(definition: Definition, choose: random.Random) -> bool:
    """Whether this order of the rules ISO and CSE (Idris et al. 2020) reduces the query, first to its free variables
    and then to nothing, such that the comparisons taken with an edge are one range of one of its variables."""
    edges = [set(atom.scheme) for atom in definition.atoms]
    tests = list(definition.comparisons)
    for out in (set(definition.free), set[str]()):
        while options := [*_isolated(edges, tests, out), *_subsets(edges, tests, out)]:
            rule, number, what = choose.choice(options)
            if rule == "ISO":
                edges[number].discard(str(what))
                continue
            own = edges[number] - edges[int(what)]
            taken = [test for test in tests if test.scheme & own]
            alone = len(own & {variable for test in taken for variable in test.scheme}) < 2
            if taken and not (alone and is_range(taken, definition)):
                return False
            tests = [test for test in tests if test not in taken]
            del edges[number]
        if not set().union(*edges) <= out:
            return False
    return edges == [set()] and not tests


def _isolated(edges: list[set[str]], tests: list[Comparison], out: set[str]) -> list[tuple[str, int, str | int]]:
    """Variables of one edge that are not put out and in no comparison."""
    counted = Counter(variable for edge in edges for variable in edge)
    compared = {variable for test in tests for variable in test.scheme}
    return [
        ("ISO", number, variable)
        for number, edge in enumerate(edges)
        for variable in sorted(edge - out - compared)
        if counted[variable] == 1
    ]


def _subsets(edges: list[set[str]], tests: list[Comparison], out: set[str]) -> list[tuple[str, int, str | int]]:
    """Pairs of edges of which the first is a conditional subset of the second."""
    counted = Counter(variable for edge in edges for variable in edge)
    found: list[tuple[str, int, str | int]] = []
    for number, edge in enumerate(edges):
        for other, above in enumerate(edges):
            own = edge - above
            beyond = {variable for test in tests if test.scheme & own for variable in test.scheme} - own
            joining = {variable for variable in edge if counted[variable] > 1 or variable in out}
            if number != other and joining <= above and beyond <= above:
                found.append(("CSE", number, other))
    return found


@examples(150)
@given(compared(), st.integers(0, 2**30))
def test_where_the_reduction_leaves_ranges_there_is_a_tree(definition: Definition, seed: int) -> None:
    choose = random.Random(seed)
    if all(test.operator != "<>" for test in definition.comparisons) and any(
        reduces_to_ranges(definition, choose) for _ in range(5)
    ):
        assert build_range_tree(definition, definition.free, {}) is not None


def test_the_generator_reaches_trees_of_ranges() -> None:
    """And bags, each in at least a tenth of the queries."""
    found: Counter[str] = Counter()

    @settings(max_examples=200, deadline=None, database=None)
    @given(compared())
    def collect(definition: Definition) -> None:
        plan = plan_range_sums(definition, {})
        found["bags" if plan is None else "ranges"] += 1
        if plan is not None:
            check_plan(plan, definition)
        found["reduced"] += any(reduces_to_ranges(definition, random.Random(n)) for n in range(3))

    collect()
    assert min(found["ranges"], found["bags"], found["reduced"]) >= 20, found


# Queries of Idris et al. 2020, section 6.
ALONE = "R(a,b,c), S(d,e,f), T(g,h,i)"
KEYED = "R(a,b,c), S(d,e,f,k), T(g,h,i,k)"
BELOW, CHAINED = [("a", "d"), ("e", "g")], [("a", "d"), ("d", "g")]


@pytest.mark.parametrize(
    ("text", "pairs", "free_connex"),
    [
        ("R(a,b,c), S(d,e,f) -> a,b,c,d,e,f [set]", BELOW[:1], True),
        (f"{ALONE} -> a,b,c,d,e,f,g,h,i [set]", BELOW, True),
        (f"{ALONE} -> a,b,c,d,e,f,g,h,i [set]", CHAINED, True),
        (f"{KEYED} -> a,b,c,d,e,f,g,h,i,k [set]", CHAINED, True),
        (f"{ALONE} -> a,b,d,e,f,g,h [set]", CHAINED, True),
        (f"{KEYED} -> d,e,f,g,h,k [set]", CHAINED, True),
        (f"{ALONE} -> b,c,e,f,h,i [set]", CHAINED, False),
        (f"{KEYED} -> b,c,e,f,h,i [set]", CHAINED, False),
    ],
    ids=[f"GCQ{number}" for number in range(1, 9)],
)
def test_the_classes_of_the_reference(text: str, pairs: list[tuple[str, str]], free_connex: bool) -> None:
    comparisons = tuple(Comparison(left, "<", right) for left, right in pairs)
    found = plan_view(replace(parse_definition(text), comparisons=comparisons))
    assert isinstance(found, Plan)
    assert found.strategy.startswith("dynamic Yannakakis" if free_connex else "bags of what is compared")
    assert (str(found.cost.space) == "O(N)") == free_connex


@pytest.mark.parametrize(
    ("pairs", "has_tree"),
    [("a<d b>e", True), ("a<d a>e b<f", True), ("a<d b>e c<f", False), ("a<d a>e b<f b>g", False)],
)
def test_a_box_is_a_range_and_one_comparison_more(pairs: str, has_tree: bool) -> None:
    """Of two tables: `a<d` compares a column of the first with one of the second."""
    definition = parse_definition("R(k,a,b,c), S(k,d,e,f,g) -> k [group]")
    comparisons = tuple(Comparison(one[0], "<" if one[1] == "<" else ">", one[2]) for one in pairs.split())
    found = plan_range_sums(replace(definition, comparisons=comparisons), {})
    assert (found is not None) == has_tree
    if found is not None:
        check_plan(found, replace(definition, comparisons=comparisons))
