"""Each rule on its worked examples: as printed in its fixture, with DuckDB's same rows before and after."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import duckdb
import pytest

from sqlfront.planner.algebra.printed import lines
from sqlfront.planner.algebra.rules.all_rules import RULES, WITH_FACTS, normalise
from sqlfront.planner.algebra.terms import Term, Top, walk
from sqlfront.planner.algebra.to_sql import to_sql
from tests.planner.algebra.examples import EXAMPLES, FACTS, SCHEMAS, ranked_groups

FIXTURES = Path(__file__).parents[2] / "fixtures" / "algebra"
EVERY = [(rule, example) for rule, examples in EXAMPLES.items() for example in examples]
SEEDS = 3


def changed_by(name: str, term: Term) -> Term:
    rule = next(rule for rule in RULES if rule.__name__ == name)
    return rule(term, FACTS) if rule in WITH_FACTS else rule(term)  # type: ignore[call-arg]


def printed(name: str) -> str:
    """A fixture: for each example the term before, after the rule, and after all rules."""
    found = []
    for example in EXAMPLES[name]:
        term = example()
        stages = {"before": term, "after": changed_by(name, term), "after all rules": normalise(term, FACTS)}
        found.append(f"# {example.__name__}: {example.__doc__}" if example.__doc__ else f"# {example.__name__}")
        found += [line for stage, made in stages.items() for line in (f"-- {stage}", *lines(made))]
        found.append("")
    return "\n".join(found)


@cache
def filled(seed: int) -> duckdb.DuckDBPyConnection:
    """A database of the examples' tables, with keys and foreign keys as declared."""
    generator, con = random.Random(seed), duckdb.connect()
    for table, columns in SCHEMAS.items():
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{column} INTEGER' for column in columns)})")
        for number in range(generator.randrange(4, 9)):
            values = [generator.choice([None, 0, 1, 2, 3]) for _ in columns]
            if columns[0] == "id":
                values[0] = number
            con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    return con


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_as_printed(name: str) -> None:
    assert printed(name) == (FIXTURES / f"{name}.txt").read_text()


@pytest.mark.parametrize(("name", "example"), EVERY, ids=lambda one: getattr(one, "__name__", one))
def test_examples_keep_their_rows(name: str, example: Callable[[], Term]) -> None:
    term = example()
    for seed in range(SEEDS):
        con = filled(seed)
        names = [(column, f"c {column.number}") for column in term.columns]
        rows = [
            Counter(con.execute(to_sql(made, names)).fetchall())
            for made in (term, changed_by(name, term), normalise(term, FACTS))
        ]
        assert rows[0] == rows[1] == rows[2]


def test_every_rule_has_examples_and_a_fixture() -> None:
    assert [rule.__name__ for rule in RULES] == list(EXAMPLES)
    assert {path.stem for path in FIXTURES.iterdir()} == set(EXAMPLES)


def test_a_limit_over_groups_stays_one() -> None:
    tops = [part for part in walk(normalise(ranked_groups())) if isinstance(part, Top)]
    assert [top.limit is not None for top in tops] == [False, True]
