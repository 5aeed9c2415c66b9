"""Conditions in conjunctive form: NOT at the comparisons, constants folded, what all branches of an OR share before it.

An OR of ANDs becomes an AND of ORs while that has at most MOST_PARTS comparisons; else it stays an OR, without what its
branches share. A condition that can fail keeps its structure: an AND or OR may skip a part, and only DuckDB says which.
NOT(a < b) is a >= b in three-valued logic too: both are NULL where one side is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from operator import eq, ge, gt, le, lt, ne

from sqlfront.planner.algebra.rewriting import rewrite
from sqlfront.planner.algebra.scalars import (
    FALSE,
    NEGATED,
    TRUE,
    TRUTH,
    UNKNOWN,
    Call,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Operator,
    Scalar,
    can_fail,
    conjunction,
    conjuncts,
    is_never_null,
    is_null_where,
    parts_of,
)
from sqlfront.planner.algebra.terms import Aggregate, Filter, Join, Term, Values

MOST_PARTS = 16
COMPARED: Mapping[Operator, Callable[[int, int], bool]] = {
    "=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge, "IS DISTINCT FROM": ne, "IS NOT DISTINCT FROM": eq,
}  # fmt: skip


def bring_into_conjunctive_form(term: Term) -> Term:
    """A term with the conditions of filters, joins and aggregates in conjunctive form."""
    return rewrite(term, _normalised)


def conjunctive(condition: Scalar) -> Scalar:
    """A condition that is true for the same rows, in conjunctive form; false and NULL are not told apart."""
    whole = conjuncts(condition)
    if any(_is_truth(one) for one in whole):
        return conjunctive(conjunction([parts_of(one)[0] if _is_truth(one) else one for one in whole]))
    if can_fail(condition):
        parts = [part for one in conjuncts(condition) for part in _opposites(one)]
        return conjunction([one if can_fail(one) else conjunctive(one) for one in parts])
    known = [FALSE if one == UNKNOWN else one for one in conjuncts(_distributed(_factored(simplified(condition))))]
    return FALSE if FALSE in known else conjunction(_absorbed(known))


def simplified(condition: Scalar) -> Scalar:
    """A condition of the same value, NULL included, with NOT moved to the comparisons and constants folded."""
    match condition:
        case Not(part=part):
            return _negated(part)
        case Logic(word=word, parts=parts):
            return _joined(word, [simplified(part) for part in parts])
        case Compare(operator=operator, left=left, right=right) if left == right and not can_fail(left):
            if operator in ("IS NOT DISTINCT FROM", "IS DISTINCT FROM"):
                return TRUE if operator == "IS NOT DISTINCT FROM" else FALSE
        case Compare(left=Constant(sql=first), right=Constant(sql=second)) if first.isdigit() and second.isdigit():
            return TRUE if COMPARED[condition.operator](int(first), int(second)) else FALSE
        case IsNull(part=Constant() as part) if is_never_null(part, frozenset()):
            return FALSE
        case IsNull(part=Constant() as part) if is_null_where(part, frozenset()):
            return TRUE
    if isinstance(condition, Compare | Call) and condition.type == "BOOLEAN" and not can_fail(condition):
        return UNKNOWN if is_null_where(condition, frozenset()) else condition
    return condition


def _opposites(condition: Scalar) -> list[Scalar]:
    """NOT of an OR of comparisons as the opposite ones, which compute both sides, and after a true one no other, too;
    any other condition as it is."""
    match condition:
        case Not(part=Compare(operator=operator) as part):
            return [replace(part, operator=NEGATED[operator])]
        case Not(part=Logic(word="OR", parts=parts)):
            return [one for part in parts for one in _opposites(Not(part))]
    return [condition]


def _is_truth(condition: Scalar) -> bool:
    return isinstance(condition, Call) and condition.form == TRUTH


def _normalised(term: Term) -> Term:
    match term:
        case Filter(input=input, condition=condition):
            changed = conjunctive(condition)
            return input if changed == TRUE else replace(term, condition=changed)
        case Join(kind=kind, condition=condition) if not kind.startswith("as-of"):
            changed = simplified(condition) if kind == "mark" else conjunctive(condition)
            return _without_partners(term) if changed == FALSE else replace(term, condition=changed)
        case Aggregate(aggregates=aggregates):
            return replace(term, aggregates=tuple(replace(one, filter=conjunctive(one.filter)) for one in aggregates))
    return term


def _without_partners(term: Join) -> Term:
    """A join whose condition nothing meets."""
    if term.kind in ("inner", "semi", "full"):
        return replace(term, condition=FALSE)
    return replace(term, condition=FALSE, right=Values(term.right.columns, ()), dependent=False)


def _negated(condition: Scalar) -> Scalar:
    match condition:
        case Not(part=part):
            return simplified(part)
        case Logic(word=word, parts=parts):
            return _joined("OR" if word == "AND" else "AND", [_negated(part) for part in parts])
        case Compare(operator=operator):
            return simplified(replace(condition, operator=NEGATED[operator]))
    part = simplified(condition)
    constants = {TRUE: FALSE, FALSE: TRUE, UNKNOWN: UNKNOWN}
    return constants[part] if isinstance(part, Constant) and part in constants else Not(part)


def _joined(word: str, parts: list[Scalar]) -> Scalar:
    """AND or OR of simplified conditions, without nesting, repetitions and constants that do not matter."""
    neutral, absorbing = (TRUE, FALSE) if word == "AND" else (FALSE, TRUE)
    flat = [one for part in parts for one in (part.parts if isinstance(part, Logic) and part.word == word else (part,))]
    kept = tuple(dict.fromkeys(one for one in flat if one != neutral))
    if absorbing in kept and not any(map(can_fail, kept)):
        return absorbing
    if len(kept) < 2:
        return kept[0] if kept else neutral
    return Logic("AND" if word == "AND" else "OR", kept)


def _alternatives(condition: Scalar) -> tuple[Scalar, ...]:
    return condition.parts if isinstance(condition, Logic) and condition.word == "OR" else (condition,)


def _factored(condition: Scalar) -> Scalar:
    """(a AND b) OR (a AND c) as a AND (b OR c), innermost first."""
    if not isinstance(condition, Logic):
        return condition
    parts = [_factored(part) for part in parts_of(condition)]
    if condition.word == "AND":
        return _joined("AND", parts)
    branches = [conjuncts(part) for part in parts]
    shared = [one for one in branches[0] if all(one in branch for branch in branches[1:])]
    if not shared:
        return _joined("OR", parts)
    rest = [conjunction([one for one in branch if one not in shared]) for branch in branches]
    return _joined("AND", [*shared, _joined("OR", rest)])


def _distributed(condition: Scalar) -> Scalar:
    """(a AND b) OR c as (a OR c) AND (b OR c), where that does not grow too much."""
    if not isinstance(condition, Logic):
        return condition
    if condition.word == "AND":
        return _joined("AND", [_distributed(part) for part in condition.parts])
    branches = [conjuncts(_distributed(part)) for part in condition.parts]
    size = sum(len(_alternatives(one)) for one in _product(branches, MOST_PARTS))
    if not 0 < size <= MOST_PARTS:
        return condition
    return _joined("AND", _product(branches, MOST_PARTS))


def _product(branches: list[tuple[Scalar, ...]], most: int) -> list[Scalar]:
    """One OR for each choice of a condition from every branch; none if there are more than `most`."""
    choices = 1
    for branch in branches:
        choices *= len(branch)
    return [_joined("OR", list(choice)) for choice in product(*branches)] if choices <= most else []


def _absorbed(parts: list[Scalar]) -> list[Scalar]:
    """The conditions without each OR that another one implies: a AND (a OR b) is a."""
    sets = [frozenset(_alternatives(part)) for part in parts]
    return [part for part, one in zip(parts, sets) if not any(other < one for other in sets)]
