"""Rewrite rules on terms that divide: a rule makes none fail; and what the random terms of these tests are like."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from sqlfront.planner.algebra.rules.all_rules import RULES
from sqlfront.planner.algebra.terms import Join, Term, free_columns, inputs_of, walk
from sqlfront.planner.algebra.to_sql import to_sql
from tests.planner.algebra.random_terms import RandomTerms
from tests.planner.algebra.test_rules import MANY, SEEDS, applied, once, random_term, seeds
from tests.planner.algebra.test_to_sql import answers, filled, random_tables

LEAST_FIRED = 2


@pytest.mark.parametrize("seed", [*range(SEEDS), pytest.param(MANY, marks=pytest.mark.slow)])
def test_rules_make_no_query_fail_that_duckdb_answers(seed: int) -> None:
    for number in seeds(seed):
        tables, term = random_tables(number), RandomTerms(number, failing=True).term(3 + number % 2)
        con = filled(tables, duckdb.connect())
        con.execute("PRAGMA disable_optimizer")  # It may take a condition that fails before one that guards it.
        try:
            expected = answers(tables, term, con)
        except duckdb.InvalidInputException:  # A division by zero.
            continue
        for name, changed in once(applied(term)):
            assert answers(tables, changed, con) == expected, (number, name, to_sql(term), to_sql(changed))


def test_every_rule_has_something_to_do_and_some_queries_fail() -> None:
    fired: Counter[str] = Counter()
    failed = 0
    for seed in range(SEEDS):
        fired.update({name for name, _ in applied(random_term(seed))})
        tables = random_tables(seed)
        try:
            answers(tables, RandomTerms(seed, failing=True).term(3 + seed % 2))
        except duckdb.InvalidInputException:
            failed += 1
    assert {rule.__name__ for rule in RULES if fired[rule.__name__] < LEAST_FIRED} == set()
    assert SEEDS // 20 <= failed <= SEEDS // 2


def test_dependent_joins_are_three_deep_and_reach_through_every_operator() -> None:
    through: Counter[str] = Counter()
    deepest = 0
    for seed in range(SEEDS):
        term = random_term(seed)
        deepest += depth_of_dependence(term) == 3
        through.update({type(part).__name__ for part in walk(term) if free_columns(part)})
    wanted = {"Values", "Filter", "Map", "Join", "Aggregate", "Distinct", "SetOperation", "Window", "Top", "Unnest"}
    assert wanted <= {name for name, count in through.items() if count >= LEAST_FIRED}
    assert deepest >= SEEDS // 6


def depth_of_dependence(term: Term) -> int:
    """How many dependent joins are inside each other's right sides."""
    inside = [depth_of_dependence(part) for part in inputs_of(term)]
    if isinstance(term, Join) and term.dependent and free_columns(term.right):
        inside.append(inside[1] + 1)
    return max(inside, default=0)
