"""Joins go whose partner is sure to exist, or is not needed, exactly once, and of which no column is read.

A left join with a key of its right side, a join with one row, a semi or inner join along a foreign key: what remains of
the last is that the foreign key's columns are not NULL.
Source: Ott and Horländer, Removing redundant join operations in queries involving views, Information Systems 1985.
"""

from __future__ import annotations

from sqlfront.planner.algebra.column_use import Columns, columns_read
from sqlfront.planner.algebra.rewriting import with_changed
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, equated, has_one_row, matches_one_at_most
from sqlfront.planner.algebra.scalars import TRUE, Column, Compare, IsNull, Not, Ref, conjunction, conjuncts
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Common,
    Distinct,
    Filter,
    Join,
    Map,
    Scan,
    Term,
    Top,
    Window,
    inputs_of,
)


def remove_joins(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term without the joins that change nothing that is read."""
    return _Removing(facts).visit(term, frozenset(term.columns))


class _Removing:
    """One run of the rule; of a shared term all columns are read."""

    def __init__(self, facts: Facts) -> None:
        self._facts, self._shared = facts, dict[str, Term]()

    def visit(self, term: Term, needed: Columns) -> Term:
        """A term of which the needed columns are read."""
        if isinstance(term, Common):
            if term.name not in self._shared:
                self._shared[term.name] = self.visit(term.term, frozenset(term.term.columns))
            return with_changed(term, (self._shared[term.name],))
        if isinstance(term, Join):
            kept = self._without(term, needed)
            if kept is not None:
                return self.visit(kept, needed)
        inputs = [self.visit(part, read) for part, read in zip(inputs_of(term), columns_read(term, needed))]
        return with_changed(term, inputs)

    def _without(self, term: Join, needed: Columns) -> Term | None:
        """One side of a join in its place; None: both are needed."""
        reads_right = bool(needed & frozenset(term.right.columns))
        match term.kind:
            case "left" if not reads_right and matches_one_at_most(term, self._facts):
                return term.left
            case "inner" if term.condition == TRUE and not term.dependent:
                if not reads_right and has_one_row(term.right):
                    return term.left
                if not needed & frozenset(term.left.columns) and has_one_row(term.left):
                    return term.right
            case "semi" if term.condition == TRUE and has_one_row(term.right):
                return term.left
        if term.kind == "semi" or (term.kind == "inner" and not reads_right):
            return self._along_foreign_key(term)
        return None

    def _along_foreign_key(self, term: Join) -> Term | None:
        """The left side where its columns are not NULL, if they refer to the whole right side's key."""
        right = term.right
        if not isinstance(right, Scan) or len(equated(term.condition)) != 2 * len(conjuncts(term.condition)):
            return None
        if any(isinstance(one, Compare) and one.operator != "=" for one in conjuncts(term.condition)):
            return None
        left = frozenset(term.left.columns)
        pairs = [(a, b) for a, b in equated(term.condition) if a in left and b not in left]
        origins = [_origin(term.left, a) for a, _ in pairs]
        scans = {origin[0] for origin in origins if origin is not None}
        if len(scans) != 1 or None in origins or len(pairs) != len(conjuncts(term.condition)):
            return None
        names = {column: name for name, column in right.read}
        told = {(origin[1], names[b]) for origin, (_, b) in zip(origins, pairs) if origin is not None}
        for key in self._facts.foreign_keys(next(iter(scans)).table):
            unique = frozenset(key.references) in self._facts.keys(right.table)
            if key.table == right.table and set(zip(key.columns, key.references)) == told and unique:
                return Filter(term.left, conjunction([Not(IsNull(Ref(a))) for a, _ in pairs]))
        return None


def _origin(term: Term, column: Column) -> tuple[Scan, str] | None:
    """The table, and its column there, that all values of a column come from, each row's of one row of the table."""
    match term:
        case Scan(read=read):
            return next(((term, name) for name, one in read if one == column), None)
        case Map(made=made):
            value = next(one.value for one in made if one.column == column)
            return _origin(term.input, value.column) if isinstance(value, Ref) else None
        case Join(left=left, right=right, kind=kind):
            if column in left.columns:
                return _origin(left, column) if kind != "full" else None
            return _origin(right, column) if kind == "inner" and column in right.columns else None
        case Filter(input=input) | Distinct(input=input) | Top(input=input) | Window(input=input):
            return _origin(input, column) if column in input.columns else None
        case Aggregate(input=input, groups=groups, sets=None):
            return _origin(input, column) if column in groups else None
    return None
