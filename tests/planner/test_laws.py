"""Properties over random queries, each against a definition written out independently."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.hypergraph import Edges, hypergraph, restrict, vertices
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.search.join_tree import build_tree
from sqlfront.planner.theory.connex import find_free_path, free_connex_extension, is_free_connex
from sqlfront.planner.theory.gyo import find_cycle, is_acyclic
from sqlfront.planner.theory.hierarchy import is_q_hierarchical
from sqlfront.planner.theory.keys import constant_keys
from tests.planner.contract import check_plan
from tests.planner.evaluate import assert_computes, fill
from tests.planner.strategies import databases, definitions, queries, rings_and_cliques
from tests.slices import examples


def has_join_tree(edges: Edges) -> bool:
    """Bernstein and Goodman 1981: a maximum spanning tree by shared variables weighs sum |e| - |V|."""
    left = [set(edge) for edge in edges.values()]
    tree, weight = left[:1], 0
    rest = left[1:]
    while rest:
        best = max(((len(a & b), i) for i, a in enumerate(rest) for b in tree), key=lambda pair: pair[0])
        weight += best[0]
        tree.append(rest.pop(best[1]))
    return weight == sum(map(len, left)) - len(vertices(edges))


def is_free_connex_by_head(edges: Edges, free: tuple[str, ...]) -> bool:
    return has_join_tree(edges) and has_join_tree({**edges, "head": frozenset(free)})


def is_q_hierarchical_by_definition(edges: Edges, free: tuple[str, ...]) -> bool:
    atoms = {v: {name for name, edge in edges.items() if v in edge} for v in vertices(edges)}
    for x in atoms:
        for y in atoms:
            if not (atoms[x] <= atoms[y] or atoms[y] <= atoms[x] or not atoms[x] & atoms[y]):
                return False
            if x in free and y not in free and atoms[x] < atoms[y]:
                return False
    return True


def _classes(definition: Definition) -> str:
    edges, free = hypergraph(definition), definition.free
    every = tuple(vertices(edges))
    if is_q_hierarchical_by_definition(edges, free):
        return "q-hierarchical"
    if definition.mode == "bag" and is_q_hierarchical_by_definition(edges, every):
        return "q-hierarchical"
    if is_free_connex_by_head(edges, free) or (definition.mode == "bag" and has_join_tree(edges)):
        return "free-connex"
    return "acyclic" if has_join_tree(edges) else "cyclic"


def test_class_is_the_definitions_and_plan_keeps_the_contract() -> None:
    """The queries reach every class: at least 2 % of each, and of plans that only declared keys make constant."""
    found: Counter[str] = Counter()

    @settings(max_examples=500, deadline=None, database=None)
    @given(queries())
    def check(definition: Definition) -> None:
        plan = plan_view(definition)
        assert plan.shape == _classes(definition)
        check_plan(plan, definition)
        found[plan.shape] += 1
        found["by keys"] += plan.shape == "free-connex" and str(plan.cost.update) == "O(1)"

    check()
    for kind in ("q-hierarchical", "free-connex", "acyclic", "cyclic", "by keys"):
        assert found[kind] >= 10, found


@examples(133)
@given(definitions(acyclic=True, keyed=True))
def test_a_tree_found_for_its_keys_is_constant_under_them(definition: Definition) -> None:
    assume(is_free_connex(hypergraph(definition), definition.free))
    tree = build_tree(definition, definition.free, "keyed", {})
    assert tree is None or constant_keys(tree, definition) is not None


@examples(200)
@given(definitions() | definitions(acyclic=True))
def test_decisions_equal_their_definitions(definition: Definition) -> None:
    edges, free = hypergraph(definition), definition.free
    assert is_acyclic(edges) == has_join_tree(edges)
    assert is_q_hierarchical(edges, free) == is_q_hierarchical_by_definition(edges, free)
    if has_join_tree(edges):
        assert is_free_connex(edges, free) == is_free_connex_by_head(edges, free)
        assert (find_free_path(edges, free) is None) == is_free_connex_by_head(edges, free)


@examples(133)
@given(definitions(acyclic=True, keyed=True))
def test_a_simple_tree_exists_exactly_for_q_hierarchical_queries(definition: Definition) -> None:
    edges, free = hypergraph(definition), definition.free
    assume(is_free_connex(edges, free))
    tree = build_tree(definition, free, "simple", {})
    assert (tree is not None) == is_q_hierarchical_by_definition(edges, free)


@examples(133)
@given(definitions(acyclic=True))
def test_without_keys_only_simple_trees_are_constant(definition: Definition) -> None:
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    constant = constant_keys(plan.root, definition) is not None
    assert constant == is_q_hierarchical_by_definition(hypergraph(definition), plan.free)


@examples(100)
@given(definitions(acyclic=True, atoms=5))
def test_extension_is_the_least(definition: Definition) -> None:
    edges, free = hypergraph(definition), definition.free
    added = free_connex_extension(edges, free)
    others = [variable for variable in sorted(vertices(edges)) if variable not in free]
    for size in range(len(added) + 1):
        for extra in combinations(others, size):
            works = is_free_connex_by_head(edges, free + extra)
            assert works == (set(extra) == set(added)) or (works and set(added) < set(extra))


@examples(133)
@given(rings_and_cliques())
def test_a_cycle_is_a_minimal_one(definition: Definition) -> None:
    edges = hypergraph(definition)
    assume(not has_join_tree(edges))
    cycle = find_cycle(edges)
    assert not has_join_tree(restrict(edges, cycle.variables))
    for variable in cycle.variables:
        assert has_join_tree(restrict(edges, set(cycle.variables) - {variable}))
    if cycle.ring:
        for rank, atom in enumerate(cycle.atoms):
            pair = {cycle.variables[rank], cycle.variables[(rank + 1) % len(cycle.variables)]}
            assert edges[atom] & set(cycle.variables) == pair


@examples(133)
@given(st.data())
def test_the_tree_computes_the_query(data: st.DataObject) -> None:
    """Filled bottom-up and walked from the root, the tree gives each row over `free` once, with its multiplicity."""
    definition = data.draw(definitions(acyclic=True, keyed=True, atoms=5))
    rows = data.draw(databases(definition))
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    assert_computes(plan, definition, rows)


@examples(133)
@given(st.data())
def test_a_constant_plan_looks_up_one_row(data: st.DataObject) -> None:
    """Where updates are said to be O(1), some guard beside each child has at most one row for what the two share."""
    definition = data.draw(definitions(acyclic=True, keyed=True, atoms=5))
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    assume(plan.cost.update == Bound())
    views = fill(plan.root, data.draw(databases(definition)))
    for node in plan.root.walk():
        for child in node.children:
            if set(node.variables) <= set(child.variables):
                continue
            shared = [variable for variable in node.variables if variable in child.variables]
            worst = []
            for guard in node.children:
                if guard is not child and set(node.variables) <= set(guard.variables):
                    label = {tuple(row[guard.variables.index(v)] for v in node.variables) for row in views[id(guard)]}
                    groups = Counter(tuple(row[node.variables.index(v)] for v in shared) for row in label)
                    worst.append(max(groups.values(), default=0))
            assert min(worst) <= 1


@examples(66)
@given(definitions(acyclic=True), st.lists(st.integers(1, 10**6), min_size=6, max_size=6))
def test_cardinalities_choose_among_trees_of_the_same_class(definition: Definition, sizes: list[int]) -> None:
    plain = plan_view(definition)
    weighted = plan_view(definition, {f"r{rank}": size for rank, size in enumerate(sizes)})
    assert isinstance(plain, Plan)
    assert isinstance(weighted, Plan)
    check_plan(weighted, definition)
    assert (plain.shape, plain.cost, plain.free) == (weighted.shape, weighted.cost, weighted.free)
