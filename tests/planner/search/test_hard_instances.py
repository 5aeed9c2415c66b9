"""Hard instances: EXPLAIN calls the tasks hard, and the views still answer them as a matrix computation does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sqlfront
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.hierarchy import Violation, membership_violations, violations
from tests.planner.search.hard_instances import Instance, Row

FIXTURE = Path(__file__).parents[2] / "fixtures" / "hard" / "queries.sql"
ENTRIES = re.findall(r"-- name: (\w+) \| (.*?) \| (.*?)\n(.*?);", FIXTURE.read_text(), re.DOTALL)
COLUMNS = {
    "s": ("x",), "e": ("x", "y", "note"), "t": ("y", "note"), "f": ("x", "y"), "g": ("x", "y"), "u": ("x",),
}  # fmt: skip
SIZE, ROUNDS = 6, 8


def _pairs(instance: Instance) -> Counter[Row]:
    return Counter(instance.pairs)


def _sources(instance: Instance) -> Counter[Row]:
    return Counter({(i,): 1 for i, _ in instance.pairs})


def _noted(instance: Instance) -> Counter[Row]:
    return Counter([(instance.value("note"), len(instance.pairs))] if instance.pairs else [])


# The rows of each view, from the pairs (i, j) with u_i, M_ij and v_j.
ANSWERS: dict[str, Callable[[Instance], Counter[Row]]] = {
    "set_exists_pair": _pairs,
    "bag_join": lambda instance: Counter((i, instance.value("note"), j) for i, j in instance.pairs),
    "counted_pairs": lambda instance: Counter([(len(instance.pairs),)]),
    "grouped_by_note": _noted,
    "three_steps": lambda instance: Counter([_ends(instance)] if instance.pairs else []),
    "projected_partner": _sources,
    "grouped_partner": lambda instance: Counter(list(Counter((i for i, _ in instance.pairs)).items())),
    "member_of_projection": _sources,
    "matrix_product": lambda instance: Counter({(i, instance.value("note")): 1 for i, _ in instance.pairs}),
    "edges_between_loops": lambda instance: Counter([*instance.pairs, *((a, a) for (a,) in instance.ones)]),
}


def _ends(instance: Instance) -> Row:
    """The two output columns of a path whose middle is the matrix: both constant."""
    return tuple(instance.value(name) for name in instance.definition.free)


@pytest.fixture
def con() -> Any:
    con = sqlfront.connect()
    for table, columns in COLUMNS.items():
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{column} BIGINT' for column in columns)})")
    yield con
    con.close()


def witness(definition: Definition, task: str) -> Violation:
    """The first pair that breaks the condition of a task."""
    edges = hypergraph(definition)
    free = tuple(set().union(*edges.values())) if definition.mode == "bag" else definition.free
    found = membership_violations(edges, free) if task == "membership" else violations(edges, free)
    return next(found)


@pytest.mark.parametrize(("name", "hard", "asked", "query"), ENTRIES, ids=[entry[0] for entry in ENTRIES])
def test_explain_calls_it_hard(con: Any, name: str, hard: str, asked: str, query: str) -> None:
    tasks = con.explain(query).to_dict()["tasks"]
    assert [task for task, said in tasks.items() if said["verdict"] == "hard"] == hard.split(", ")
    assert tasks[asked]["verdict"] == "hard"
    assert all("conjecture" in tasks[task]["bound"] for task in hard.split(", "))
    assert all(tasks[task]["witness"] for task in hard.split(", "))


@pytest.mark.parametrize(("name", "hard", "asked", "query"), ENTRIES, ids=[entry[0] for entry in ENTRIES])
def test_the_answers_are_those_of_the_matrix(con: Any, name: str, hard: str, asked: str, query: str) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
    view = con.view("v")
    definition = con.explain("v").definition
    instance = Instance(definition, witness(definition, asked), COLUMNS, SIZE)
    for statement in instance.start():
        con.execute(statement)
    seen, answers = set[Row](), list[Counter[Row]]()
    for statements in instance.rounds(ROUNDS):
        for statement in ["BEGIN", *statements, "COMMIT"]:
            con.execute(statement)
        expected = ANSWERS[name](instance)
        assert Counter(view.rows()) == expected
        assert view.count() == con.execute("SELECT count(*) FROM v").fetchall()[0][0] == expected.total()
        assert con.execute("SELECT EXISTS (FROM v)").fetchall() == [(bool(expected),)]
        for candidate in seen | expected.keys():
            assert view.contains(candidate) == (candidate in expected)
        seen |= expected.keys()
        answers.append(expected)
    assert any(one != other for one, other in pairwise(answers)), "the stream must change the answer"
