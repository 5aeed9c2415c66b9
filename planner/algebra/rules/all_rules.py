"""The rules in the order in which they run, and the normal form that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

from sqlfront.planner.algebra.rewriting import walk_once
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts
from sqlfront.planner.algebra.rules.close_transitively import close_transitively
from sqlfront.planner.algebra.rules.conjunctive_form import bring_into_conjunctive_form
from sqlfront.planner.algebra.rules.distinct_neighbours import turn_distinct_into_neighbours
from sqlfront.planner.algebra.rules.distinct_on import turn_distinct_on_into_first_rows
from sqlfront.planner.algebra.rules.drop_orders import drop_orders
from sqlfront.planner.algebra.rules.inline_common import inline_common
from sqlfront.planner.algebra.rules.inline_maps import inline_maps
from sqlfront.planner.algebra.rules.left_to_anti import turn_left_into_anti
from sqlfront.planner.algebra.rules.nearest_extremes import turn_extremes_into_nearest
from sqlfront.planner.algebra.rules.nearest_first_rows import turn_first_rows_into_nearest
from sqlfront.planner.algebra.rules.outer_to_inner import turn_outer_into_inner
from sqlfront.planner.algebra.rules.partners_in_range import turn_partners_in_range_into_nearest
from sqlfront.planner.algebra.rules.prune_columns import prune_columns
from sqlfront.planner.algebra.rules.push_filters import push_filters
from sqlfront.planner.algebra.rules.remove_distinct import remove_distinct
from sqlfront.planner.algebra.rules.remove_joins import remove_joins
from sqlfront.planner.algebra.rules.row_number_islands import turn_row_numbers_into_islands
from sqlfront.planner.algebra.rules.share_common import share_common
from sqlfront.planner.algebra.rules.strengthen_equalities import strengthen_equalities
from sqlfront.planner.algebra.rules.unnest_dependent_joins import unnest_dependent_joins
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Map,
    Recursion,
    SetOperation,
    Term,
    Top,
    Window,
)

Rule = Callable[[Term], Term]
FactRule = Callable[[Term, Facts], Term]

RULES: tuple[Rule | FactRule, ...] = (
    inline_common,
    drop_orders,
    unnest_dependent_joins,
    bring_into_conjunctive_form,
    inline_maps,
    push_filters,
    strengthen_equalities,
    close_transitively,
    turn_outer_into_inner,
    turn_left_into_anti,
    turn_partners_in_range_into_nearest,
    turn_first_rows_into_nearest,
    turn_extremes_into_nearest,
    turn_row_numbers_into_islands,
    remove_distinct,
    turn_distinct_into_neighbours,
    turn_distinct_on_into_first_rows,
    prune_columns,
    remove_joins,
    share_common,
)
WITH_FACTS: tuple[FactRule, ...] = (
    unnest_dependent_joins,
    strengthen_equalities,
    turn_outer_into_inner,
    turn_left_into_anti,
    turn_partners_in_range_into_nearest,
    turn_first_rows_into_nearest,
    turn_extremes_into_nearest,
    turn_row_numbers_into_islands,
    remove_distinct,
    turn_distinct_into_neighbours,
    remove_joins,
)
OPERATORS: dict[Rule | FactRule, tuple[type, ...]] = {
    inline_common: (Common,),
    drop_orders: (Top,),
    bring_into_conjunctive_form: (Filter, Join, Aggregate),
    inline_maps: (Map,),
    push_filters: (Filter, Join),
    strengthen_equalities: (Filter, Join),
    turn_row_numbers_into_islands: (Window,),
    remove_distinct: (Distinct, SetOperation, Aggregate, Join),
    turn_distinct_on_into_first_rows: (Distinct,),
    share_common: (Join, SetOperation, Recursion),
    **dict.fromkeys(
        (
            unnest_dependent_joins,
            close_transitively,
            turn_outer_into_inner,
            turn_left_into_anti,
            turn_partners_in_range_into_nearest,
            turn_first_rows_into_nearest,
            turn_extremes_into_nearest,
            turn_distinct_into_neighbours,
            remove_joins,
        ),
        (Join,),
    ),
}
"""A rule that is here runs only on a term with one of these operators."""
MOST_ROUNDS = 12


def normalise(term: Term, facts: Facts = NO_FACTS) -> Term:
    """The normal form of a term."""
    for _, changed in _steps(term, facts):
        term = changed
    return term


def trace(term: Term, facts: Facts = NO_FACTS) -> list[tuple[str, Term]]:
    """The name of each rule that changed a term, with the term after it."""
    return list(_steps(term, facts))


def _steps(term: Term, facts: Facts) -> Iterator[tuple[str, Term]]:
    """All rules but the last run in rounds until none has anything to do. Equal parts are shared then.

    The rounds end. Joins are only removed or turned into stricter kinds, dependent ones go for good, and so do shared
    terms used once, orders, DISTINCTs and columns. Once these are stable a round moves conditions, of which there are
    finitely many: `push_filters` moves them down only, and `close_transitively` adds what is not known there yet. Two
    rules may undo each other's work: then a round ends with the term it began with. The bound on rounds is for terms
    whose conditions are known no more where they have moved; the rest is then left as is.
    """
    unchanged = 0  # The rules in a row, the last ones, that had nothing to do.
    operators = _operators(term)
    for _ in range(MOST_ROUNDS):
        before = term
        for rule in RULES[:-1]:
            changed = _run(rule, term, facts, operators)
            unchanged += 1
            if changed != term:
                yield rule.__name__, changed
                unchanged, operators = 0, _operators(changed)
            term = changed
            if unchanged == len(RULES) - 1:
                break
        if term == before:
            break
    changed = _run(RULES[-1], term, facts, operators)
    if changed != term:
        yield RULES[-1].__name__, changed


def _operators(term: Term) -> frozenset[type]:
    return frozenset(map(type, walk_once(term)))


def _run(rule: Rule | FactRule, term: Term, facts: Facts, operators: Set[type]) -> Term:
    if rule in OPERATORS and operators.isdisjoint(OPERATORS[rule]):
        return term
    return rule(term, facts) if rule in WITH_FACTS else rule(term)  # type: ignore[call-arg]
