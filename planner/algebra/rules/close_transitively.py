"""Comparisons follow from others: a = b and b < 5 give a < 5, which may then select the rows of another table.

What is known of the rows of both sides of a join is closed over the equalities of columns of one type, and what follows
for one side alone is added to the join's condition, from where it moves down. Of an OR whose branches each restrict one
side, the OR of those restrictions is added.

The rule ends: it adds comparisons of columns and constants of the query alone, each where it is not known yet.
Source: Levy, Mumick and Sagiv, Query optimization by predicate move-around, VLDB 1994.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlfront.planner.algebra.rewriting import rewrite
from sqlfront.planner.algebra.scalars import (
    FALSE,
    MIRRORED,
    Call,
    Column,
    Compare,
    Constant,
    Logic,
    Ref,
    Scalar,
    can_fail,
    columns_of,
    conjunction,
    conjuncts,
    substitute,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Map,
    Term,
    Top,
    Unnest,
    Window,
)

MOST_KNOWN = 64
IDENTICAL = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "DATE"}
FOR_RIGHT = ("inner", "left", "semi", "anti", "single")
FOR_LEFT = ("inner", "semi")

Known = dict[Scalar, None]


def close_transitively(term: Term) -> Term:
    """A term whose joins say what follows for one of their sides."""
    return rewrite(term, _Closing().close)


class _Closing:
    """One run of the rule, which remembers what is known of each term: by identity, so it keeps the term, too."""

    def __init__(self) -> None:
        self._remembered: dict[int, tuple[Term, Known]] = {}

    def close(self, term: Term) -> Term:
        if not isinstance(term, Join) or term.kind not in FOR_RIGHT:
            return term
        own = _unfailing(term.condition)
        every = [*(self._known(term.left) | self._known(term.right) | own)]
        if len(every) > MOST_KNOWN:
            return term
        sides = [frozenset(term.right.columns)]
        sides += [frozenset(term.left.columns)] if term.kind in FOR_LEFT else []
        keys = {_key(one) for one in every}
        following = [*_consequences(every), *_with_constants(every, own), *_branches(own, term)]
        found = (one for one in following if _key(one) not in keys)
        new = _unique([one for one in found if any(columns_of(one) <= side for side in sides)])
        return replace(term, condition=conjunction([term.condition, *new])) if new else term

    def _known(self, term: Term) -> Known:
        """The conditions that all rows of a term meet."""
        if id(term) not in self._remembered:
            columns = frozenset(term.columns)
            found = {one: None for one in self._found(term) if columns_of(one) <= columns}
            self._remembered[id(term)] = term, found
        return self._remembered[id(term)][1]

    def _found(self, term: Term) -> Known:
        """The conditions that all rows meet, some of which may read columns that are no more."""
        match term:
            case Filter(input=input, condition=condition):
                return self._known(input) | _unfailing(condition)
            case Join(kind="inner", left=left, right=right):
                return self._known(left) | self._known(right) | _unfailing(term.condition)
            case Join(left=left, kind=kind):
                return self._known(left) if kind != "full" else {}
            case Map(made=made, input=input):
                names: dict[Column, Scalar] = {}
                constant: Known = {}
                for one in made:
                    if isinstance(one.value, Ref):
                        names.setdefault(one.value.column, Ref(one.column))
                    elif isinstance(one.value, Constant) and one.value.sql.isdigit():
                        constant[Compare("=", Ref(one.column), one.value)] = None
                return _renamed(self._known(input), names) | constant
            case Common(term=shared):
                return _renamed(self._known(shared), {old: Ref(new) for old, new in zip(shared.columns, term.columns)})
            case Aggregate(input=input, groups=groups, sets=None) if groups:
                return self._known(input)
            case Distinct(input=input) | Top(input=input) | Window(input=input) | Unnest(input=input):
                return self._known(input)
        return {}


def _renamed(conditions: Known, names: Mapping[Column, Scalar]) -> Known:
    return {substitute(one, names): None for one in conditions if columns_of(one) <= names.keys()}


def _unfailing(condition: Scalar) -> Known:
    return dict.fromkeys(one for one in conjuncts(condition) if not can_fail(one))


def _consequences(conditions: list[Scalar]) -> list[Scalar]:
    """The comparisons of one column with a constant that hold for a column equal to it, and further equalities."""
    same = _classes(conditions)
    found: list[Scalar] = []
    for one in conditions:
        columns = columns_of(one)
        if len(columns) == 1 and (column := next(iter(columns))) in same and _is_portable(one):
            found += [substitute(one, {column: Ref(other)}) for other in same[column] if other != column]
    for column, members in same.items():
        found += [Compare("=", Ref(column), Ref(other)) for other in members if column.number < other.number]
    return found


def _with_constants(every: Iterable[Scalar], own: Iterable[Scalar]) -> list[Scalar]:
    """A join's conditions with constants in the places of columns known to be these."""
    constants: dict[Column, Scalar] = {}
    for one in every:
        match one:
            case Compare(operator="=", left=Ref() as left, right=Constant() as right):
                if left.type == right.type and _is_identical(left):
                    constants[left.column] = right
    known = constants.keys()
    return [substitute(one, constants) for one in own if columns_of(one) & known and columns_of(one) - known]


def _is_portable(condition: Scalar) -> bool:
    """Whether a condition on one column holds for equal values alike: comparisons with constants, ANDs and ORs."""
    match condition:
        case Compare(operator=operator, left=left, right=right):
            sides, column = {type(left), type(right)}, left if isinstance(left, Ref) else right
            fits = left.type == right.type or _is_identical(column)
            return sides == {Ref, Constant} and fits and "DISTINCT" not in operator
        case Call():
            return all(_is_identical(Ref(column)) for column in columns_of(condition))
        case Logic(parts=parts):
            return all(map(_is_portable, parts))
    return False


def _is_identical(value: Scalar) -> bool:
    """Whether equal values of its type are identical: every expression gives the same result for both."""
    return value.type in IDENTICAL or value.type.startswith("DECIMAL")


def _classes(conditions: list[Scalar]) -> dict[Column, list[Column]]:
    """The columns that are equal to others, each with all of its class."""
    found: dict[Column, list[Column]] = {}
    for one in conditions:
        match one:
            case Compare(operator="=", left=Ref(column=a), right=Ref(column=b)) if a.type == b.type:
                first, second = found.get(a, [a]), found.get(b, [b])
                if first is not second:
                    merged = sorted({*first, *second}, key=lambda column: column.number)
                    found |= dict.fromkeys(merged, merged)
    return found


def _branches(conditions: Iterable[Scalar], term: Join) -> list[Scalar]:
    """Of each OR, what all its branches say of one side."""
    found: list[Scalar] = []
    for one in conditions:
        if isinstance(one, Logic) and one.word == "OR":
            for side in (frozenset(term.left.columns), frozenset(term.right.columns)):
                parts = [
                    conjunction([part for part in conjuncts(branch) if columns_of(part) <= side])
                    for branch in one.parts
                ]
                if not columns_of(one) <= side and all(columns_of(part) for part in parts):
                    found.append(Logic("OR", tuple(dict.fromkeys(parts))) if len(set(parts)) > 1 else parts[0])
    return found


def _key(condition: Scalar) -> Scalar:
    """A comparison with its sides in one order."""
    if isinstance(condition, Compare) and repr(condition.right) < repr(condition.left):
        return Compare(MIRRORED[condition.operator], condition.right, condition.left)
    return condition


def _unique(conditions: list[Scalar]) -> list[Scalar]:
    return list({_key(one): one for one in reversed(conditions) if one != FALSE}.values())[::-1]
