"""Rewrite rules on random terms: DuckDB gives the same rows before and after, and each rule has something to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest

from sqlfront.planner.algebra.rewriting import walk_once
from sqlfront.planner.algebra.row_facts import Facts, ForeignKey, keys_of, never_null
from sqlfront.planner.algebra.rules import all_rules
from sqlfront.planner.algebra.rules.all_rules import OPERATORS, RULES, WITH_FACTS, normalise, trace
from sqlfront.planner.algebra.rules.unnest_dependent_joins import unnest_dependent_joins
from sqlfront.planner.algebra.terms import Aggregate, Join, Term, free_columns
from sqlfront.planner.algebra.to_sql import to_sql
from tests.planner.algebra.examples import EXAMPLES
from tests.planner.algebra.random_terms import RandomTerms
from tests.planner.algebra.test_to_sql import answers, filled, random_tables

SEEDS, MANY = 60, 3000
FACTS = Facts(
    lambda table: [frozenset({"id"})] if table == ("k",) else [],
    lambda table: [ForeignKey(("k_id",), ("k",), ("id",))] if table == ("f",) else [],
)


def random_term(seed: int) -> Term:
    """Half of them dependent joins, one to three deep."""
    made = RandomTerms(seed, dependent=0.6)
    return made.nested(1 + seed // 2 % 3) if seed % 2 else made.term(3 + seed // 2 % 2)


def applied(term: Term) -> Iterator[tuple[str, Term]]:
    """What each rule alone, and all rules one after the other, make of a term, where they change it."""
    for rule in RULES:
        changed = rule(term, FACTS) if rule in WITH_FACTS else rule(term)  # type: ignore[call-arg]
        if changed != term:
            yield rule.__name__, changed
    yield from trace(term, FACTS)


def once(terms: Iterator[tuple[str, Term]]) -> Iterator[tuple[str, Term]]:
    """The terms without repetitions."""
    return iter({to_sql(term): (name, term) for name, term in terms}.values())


def seeds(seed: int) -> range | list[int]:
    return [seed] if seed < SEEDS else range(SEEDS, MANY)


@pytest.mark.parametrize("seed", [*range(SEEDS), pytest.param(MANY, marks=pytest.mark.slow)])
def test_rules_keep_rows_and_columns(seed: int) -> None:
    for number in seeds(seed):
        tables, term = random_tables(number), random_term(number)
        con = filled(tables, duckdb.connect())
        try:
            expected = answers(tables, term, con)
            for name, changed in once(applied(term)):
                assert changed.columns == term.columns, (number, name)
                assert answers(tables, changed, con) == expected, (number, name, to_sql(term), to_sql(changed))
        except duckdb.InternalException:  # DuckDB has bugs in deep joins: about one term in a hundred.
            continue


@pytest.mark.parametrize("seed", [*range(SEEDS), pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_join_stays_dependent_and_nothing_changes_a_normal_form(seed: int) -> None:
    for number in seeds(seed):
        term = unnest_dependent_joins(random_term(number))
        assert not any(map(is_dependent, walk_once(term))) and not free_columns(term), number
        assert len(trace(term, FACTS)) < 60, number
        normal = normalise(term, FACTS)
        assert not any(map(is_dependent, walk_once(normal)))


def test_a_rule_leaves_a_term_without_its_operators_as_it_is() -> None:
    terms = [example() for examples in EXAMPLES.values() for example in examples] + list(map(random_term, range(SEEDS)))
    parts: list[Term] = [part for term in terms for part in walk_once(term) if not free_columns(part)]
    parts += [Aggregate(part, part.columns, ()) for part in parts]
    passed = Counter[str]()
    for part in parts:
        operators = frozenset(map(type, walk_once(part)))
        for rule in RULES:
            if operators.isdisjoint(OPERATORS.get(rule, operators)):
                changed = rule(part, FACTS) if rule in WITH_FACTS else rule(part)  # type: ignore[call-arg]
                assert changed == part, rule.__name__
                passed[rule.__name__] += 1
    assert passed.keys() == {rule.__name__ for rule in OPERATORS} and min(passed.values()) > 100


def test_a_rule_does_not_run_twice_on_one_term(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[object, Term]] = []
    run = all_rules._run

    def noted(rule: all_rules.Rule, term: Term, *given: object) -> Term:
        ran.append((rule, term))
        return run(rule, term, *given)

    monkeypatch.setattr(all_rules, "_run", noted)
    for term in (example() for examples in EXAMPLES.values() for example in examples):
        ran.clear()
        last = [changed for _, changed in trace(term, FACTS)][-1:] or [term]
        assert sum(one == last[0] for _, one in ran) <= len(RULES), term


def is_dependent(term: Term) -> bool:
    return isinstance(term, Join) and term.dependent


@pytest.mark.parametrize("seed", range(SEEDS))
def test_keys_are_unique_and_what_is_never_null_is_not(seed: int) -> None:
    tables, term = random_tables(seed), RandomTerms(seed, dependent=0.2).term(3)
    rows = answers(tables, term)
    for key in keys_of(term, FACTS):
        places = [place for place, column in enumerate(term.columns) if column in key]
        values = Counter(tuple(row[place] for place in places) for row in rows.elements())
        assert max(values.values(), default=0) <= 1, (seed, key)
    present = never_null(term, FACTS)
    assert all(value is not None for row in rows for column, value in zip(term.columns, row) if column in present)


def test_keys_and_columns_without_null_are_known() -> None:
    terms = [RandomTerms(seed).term(3) for seed in range(SEEDS)]
    assert sum(bool(keys_of(term, FACTS)) for term in terms) > SEEDS // 4
    assert sum(bool(never_null(term, FACTS)) for term in terms) > SEEDS // 8
