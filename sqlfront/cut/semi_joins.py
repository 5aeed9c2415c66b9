"""Semi-joins as joins with their partners' distinct values.

A condition is taken apart: what the partners are filtered by, and what ties them to the left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlfront.cut.join_core import JoinCore
from sqlfront.planner.algebra.join_sides import met
from sqlfront.planner.algebra.rewriting import NewColumns
from sqlfront.planner.algebra.rules.remove_distinct import remove_distinct
from sqlfront.planner.algebra.scalars import MIRRORED, Column, Compare, Ref, Scalar, columns_of, conjunction
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Distinct, Filter, Join, Made, Map, Term

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks


@dataclass
class Ties:
    """The condition of a semi-join: of the partners alone, of the left alone, equal expressions of both (the partners'
    first), and an order between both with the partners' expression."""

    own: list[Scalar] = field(default_factory=list)
    left: list[Scalar] = field(default_factory=list)
    pairs: list[tuple[Scalar, Scalar]] = field(default_factory=list)
    bounds: list[tuple[Scalar, Compare]] = field(default_factory=list)


def add_semi_join(term: Join, ties: Ties, core: JoinCore, blocks: Blocks) -> None:
    """Join the left with a view of the partners' distinct values, or of their greatest or least."""
    blocks.collect(term.left, core)
    right = Filter(term.right, conjunction(ties.own)) if ties.own else term.right
    core.add_conditions(conjunction(ties.left))
    pairs, bounds = ties.pairs, ties.bounds
    made = tuple(Made(_column(mine, blocks), mine) for mine, _ in pairs)
    if bounds:
        partners = best_partners(right, made, bounds[0], blocks.new)
    else:
        partners = remove_distinct(Distinct(Map(right, made)), blocks.facts)
    if isinstance(partners, Map) and not bounds:
        blocks.collect(partners, core)
    else:
        blocks.add_block(partners, core, alias="partners")
    for column, (_, theirs) in zip(partners.columns, pairs):
        condition = Compare("=", Ref(column), theirs)
        blocks.notes.note_at(condition, blocks.place_of_join(term))
        core.add_conditions(condition)
    if bounds:
        compared = bounds[0][1]
        condition = Compare(compared.operator, Ref(partners.columns[-1]), compared.right)
        blocks.notes.move(compared, condition)
        core.add_conditions(condition)


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


def best_of(term: Join, ties: Ties, new: NewColumns) -> Join:
    """An anti join whose partners are the greatest or least of their keys."""
    right = Filter(term.right, conjunction(ties.own)) if ties.own else term.right
    made = tuple(Made(new.column("key", mine.type), mine) for mine, _ in ties.pairs)
    partners = best_partners(right, made, ties.bounds[0], new)
    keys = partners.columns
    conditions = [Compare("=", Ref(key), theirs) for key, (_, theirs) in zip(keys, ties.pairs)]
    compared = ties.bounds[0][1]
    conditions.append(Compare(compared.operator, Ref(keys[-1]), compared.right))
    return replace(term, right=partners, condition=conjunction([*conditions, *ties.left]))


def best_partners(right: Term, made: tuple[Made, ...], bound: tuple[Scalar, Compare], new: NewColumns) -> Term:
    """The groups of partners with the value that meets the comparison if any does."""
    mine, compared = bound
    word = "max" if compared.operator in (">", ">=") else "min"
    best = new.column("bound", mine.type)
    argument = new.column("bound", mine.type)
    rows = Map(right, (*made, Made(argument, mine)))
    aggregate = Aggregated(best, f"{word}({{before}}{{0}}{{behind}})", (Ref(argument),))
    return Aggregate(rows, tuple(one.column for one in made), (aggregate,))


def _column(value: Scalar, blocks: Blocks) -> Column:
    return blocks.new.like(value.column) if isinstance(value, Ref) else blocks.new.column("", value.type)


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
