"""The condition of a semi-join, taken apart: what its partners are filtered by, and what ties them to the left."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlfront.planner.algebra.join_sides import met
from sqlfront.planner.algebra.rewriting import NewColumns
from sqlfront.planner.algebra.scalars import MIRRORED, Column, Compare, Ref, Scalar, columns_of
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Join, Made, Map, Term


@dataclass
class Ties:
    """The condition of a semi-join: of the partners alone, of the left alone, equal expressions of both (the partners'
    first), and an order between both with the partners' expression."""

    own: list[Scalar] = field(default_factory=list)
    left: list[Scalar] = field(default_factory=list)
    pairs: list[tuple[Scalar, Scalar]] = field(default_factory=list)
    bounds: list[tuple[Scalar, Compare]] = field(default_factory=list)


def ties_of(term: Join) -> Ties | None:
    """The condition, if it ties partners by equalities, or by equalities and one order; None otherwise."""
    own, found = frozenset(term.right.columns), Ties()
    for one in met(term.condition):
        read = columns_of(one)
        if read and read <= own:
            found.own.append(one)
        elif not read & own:
            found.left.append(one)
        elif not _is_tie(one, own, found):
            return None
    return found if (found.pairs or found.bounds) and len(found.bounds) < 2 else None


def best_partners(right: Term, made: tuple[Made, ...], bound: tuple[Scalar, Compare], new: NewColumns) -> Term:
    """The groups of partners with the value that meets the comparison if any does."""
    mine, compared = bound
    word = "max" if compared.operator in (">", ">=") else "min"
    best = new.column("bound", mine.type)
    argument = new.column("bound", mine.type)
    rows = Map(right, (*made, Made(argument, mine)))
    aggregate = Aggregated(best, f"{word}({{before}}{{0}}{{behind}})", (Ref(argument),))
    return Aggregate(rows, tuple(one.column for one in made), (aggregate,))


def _is_tie(one: Scalar, own: frozenset[Column], found: Ties) -> bool:
    """Whether a condition is an equality or an order between the partners and the left, which is then taken."""
    if not isinstance(one, Compare) or one.operator not in ("=", "<", "<=", ">", ">="):
        return False
    sides = (one.left, one.right)
    for mine, theirs, operator in ((*sides, one.operator), (*sides[::-1], MIRRORED[one.operator])):
        if columns_of(mine) and columns_of(mine) <= own and not columns_of(theirs) & own:
            if operator == "=":
                found.pairs.append((mine, theirs))
            else:
                found.bounds.append((mine, Compare(operator, mine, theirs)))
            return True
    return False
