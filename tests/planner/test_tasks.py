"""The class of each task: the papers' tables, the definitions over random queries, and where no bound is claimed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings

from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Condition, Definition, RawColumn, Reference
from sqlfront.planner.tasks import Task, classify_tasks
from sqlfront.planner.theory.core import minimise
from tests.planner.notation import read_texts
from tests.planner.strategies import queries
from tests.planner.test_laws import is_q_hierarchical_by_definition
from tests.planner.theory.test_core import query
from tests.slices import examples


def tasks(definition: Definition) -> dict[str, Task]:
    definition = minimise(definition)
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    return {task.name: task for task in classify_tasks(definition, plan)}


def verdicts(definition: Definition) -> list[str]:
    return [task.verdict for task in tasks(definition).values()]


@pytest.mark.parametrize(
    ("text", "expected"), [pytest.param(text, wanted, id=title) for title, text, wanted in read_texts("tasks.txt")]
)
def test_verdicts_are_the_papers(text: str, expected: str) -> None:
    assert verdicts(query(text)) == expected.split()


def is_t_hierarchical_by_definition(definition: Definition) -> bool:
    edges, free = hypergraph(definition), set(definition.free)
    atoms = {v: {name for name, edge in edges.items() if v in edge} for edge in edges.values() for v in edge}
    bound = [v for v in atoms if v not in free]
    nested = all(atoms[x] <= atoms[y] or atoms[y] <= atoms[x] or not atoms[x] & atoms[y] for x in bound for y in bound)
    return nested and all(atoms[y] <= atoms[x] or not atoms[x] & atoms[y] for x in free for y in bound)


@examples(200)
@given(queries())
def test_without_keys_and_self_joins_nothing_is_open(definition: Definition) -> None:
    definition = replace(definition, atoms=tuple(replace(atom, keys=()) for atom in definition.atoms))
    plan = plan_view(definition)
    edges = hypergraph(definition)
    every, free = tuple(set().union(*edges.values())), definition.free
    easy = {
        "read all": is_q_hierarchical_by_definition(edges, every if definition.mode == "bag" else free),
        "count": is_q_hierarchical_by_definition(edges, every if definition.mode == "bag" else free),
        "exists": is_q_hierarchical_by_definition(edges, ()),
        "membership": is_t_hierarchical_by_definition(definition),
    }
    found = {task.name: task.verdict for task in classify_tasks(definition, plan)}
    assert found == {name: "constant" if holds else "hard" for name, holds in easy.items()}


def test_the_generator_reaches_both_verdicts_of_every_task() -> None:
    seen: Counter[tuple[str, str]] = Counter()

    @settings(max_examples=300, deadline=None, database=None)
    @given(queries())
    def collect(definition: Definition) -> None:
        plan = plan_view(definition)
        seen.update((task.name, task.verdict) for task in classify_tasks(definition, plan))

    collect()
    for name in ("read all", "count", "exists", "membership"):
        assert seen[name, "constant"] >= 15 and seen[name, "hard"] >= 15, seen


def _with(definition: Definition, name: str, **changes: object) -> Definition:
    atoms = tuple(replace(atom, **changes) if atom.name == name else atom for atom in definition.atoms)  # type: ignore[arg-type]
    return replace(definition, atoms=atoms)


E_T = "E(x,y), T(y) -> x [set]"


def test_no_bound_is_claimed_where_its_proof_does_not_hold() -> None:
    plain = query(E_T)
    table = plain.atom("E").variables
    cases = {
        "plain columns": _with(plain, "E", variables=(replace(table[0], source=None), table[1])),
        "few values": _with(plain, "E", variables=(table[0], replace(table[1], type="BOOLEAN"))),
        "a filter on y": _with(plain, "T", conditions=(Condition("(c1 = 5)"),)),
        "under filters": query("E(x,y), E(y,z), T(z) -> x [set]", E="p"),
        "foreign keys": _with(plain, "E", references=(Reference("T", (("y", "c1"),)),)),
        "key of E": _with(plain, "E", keys=(frozenset("x"),)),
    }
    for words, definition in cases.items():
        task = tasks(definition)["read all"]
        assert task.verdict == ("constant" if words in ("foreign keys", "key of E") else "open"), words
        assert task.verdict == "constant" or words in (task.witness or ""), words
    assert tasks(_with(plain, "T", conditions=(Condition("(c2 > 5)"),)))["read all"].verdict == "hard"


def test_no_bound_is_claimed_over_the_rows_of_views() -> None:
    definition = query(E_T)
    plan = plan_view(definition)
    assert isinstance(plan, Plan)
    found = {task.name: task for task in classify_tasks(definition, plan, views={"T"})}
    assert [task.verdict for task in found.values()] == ["open", "open", "constant", "open"]
    assert found["read all"].witness == "the known bounds are for tables, not for the rows of views"


def test_what_a_task_says() -> None:
    found = tasks(query(E_T))
    assert found["read all"].bound.startswith(
        "no algorithm takes O(n^(1-e)) per change and between rows unless the OMv"
    )
    assert found["read all"].theorem == "BKS 2017, Theorem 3.3"
    assert "orthogonal vectors" in found["count"].bound and found["count"].theorem == "BKS 2017, Theorem 3.5"
    assert found["exists"].theorem == "BKS 2017, Theorem 3.2"
    assert found["membership"].witness == (
        "output column x depends on y, which is projected out, joins E, and also T without x"
    )
    boolean = tasks(query("S(x), E(x,y), T(y) -> [set]"))
    assert "OMv" in boolean["count"].bound and "O(n^(2-e)) per answer" in boolean["exists"].bound
    assert tasks(query("E(x,x), E(x,y), E(y,y) -> x,y [set]"))["read all"].theorem == "BKS 2017, Lemma A.1"
    assert [task.here for task in found.values()] == [
        "O(N) per change, O(1) between rows", "O(N) per change, then O(1)", "O(N) per change, then O(1)",
        "O(N) per change, then O(1)",
    ]  # fmt: skip


def test_aggregates_without_groups_are_one_row() -> None:
    scalar = replace(query("S(x), E(x,y), T(y) -> [group]"), scalar=True)
    assert verdicts(scalar) == ["hard", "constant", "constant", "hard"]
    count = RawColumn("n", "count", "BIGINT", terms=((1, 0),))
    easy = replace(query("E(x,x), E(x,y), E(y,y) -> [group]"), scalar=True, raw=(count,))
    assert tasks(easy)["read all"].verdict == "hard", "COUNT(*) counts the whole join, not its core"


def test_having_is_outside_the_theory() -> None:
    assert verdicts(replace(query("E(x,y) -> x [group]"), having="n > 1")) == ["constant", "open", "open", "open"]


@pytest.mark.parametrize(
    ("text", "contains"),
    [
        ("R(a,b), S(b,c), T(c,a) -> a,b,c [set]", True),
        ("R(a,b), S(b,c), T(c,a), P(c,d), Q(d,e) -> e [group]", True),
        ("E(a,b), E(b,c), E(c,a) -> [group]", True),
        ("R(a,b), S(b,c), T(c,d), U(d,a) -> a,c [set]", False),
        ("R(a,b,c), S(b,c,d), T(c,d,a), U(d,a,b) -> a [set]", False),
        ("R(a,b), S(b,c), T(c,a), U(a,b,c) -> a,b,c [set]", False),
    ],
)
def test_the_bound_for_triangles_is_named_only_for_triangles(text: str, contains: bool) -> None:
    task = tasks(query(text))["read all"]
    assert (task.theorem == "Kara et al. 2020, Proposition 5") == contains
    assert ("O(N^(1/2-g)) per change" in task.bound) == contains


def test_the_bound_for_triangles_needs_the_hard_instance() -> None:
    definition = query("R(a,b), S(b,c), T(c,a) -> a,b,c [set]")
    for name in "RST":
        definition = _with(definition, name, conditions=(Condition("(c1 + c2 > 5)"),))
    assert tasks(definition)["read all"].verdict == "open"


def test_what_the_tasks_of_a_triangle_say() -> None:
    found = tasks(query("R(a,b), S(b,c), T(c,a) -> a [group]"))
    assert [task.here for task in found.values()] == [
        "O(N) per change, O(1) between rows", "O(N) per change, then O(1)", "O(N) per change, then O(1)",
        "O(N) per change, then O(1)",
    ]  # fmt: skip
    assert [task.verdict for task in found.values()] == ["hard"] * 4
    count = RawColumn("n", "count", "BIGINT", terms=((1, 0),))
    scalar = replace(query("R(a,b), S(b,c), T(c,a) -> [group]"), scalar=True, raw=(count,))
    read = tasks(scalar)["read all"]
    assert read.bound == (
        "no algorithm takes O(N^(1/2-g)) per change and O(N^(1-g)) per answer unless the OMv conjecture fails"
    )
