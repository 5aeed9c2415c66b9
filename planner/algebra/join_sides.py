"""The sides of a join that is rewritten: what its condition asks of each, and copies of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlfront.planner.algebra.rewriting import NewColumns, copied
from sqlfront.planner.algebra.scalars import (
    TRUTH,
    Call,
    Column,
    Compare,
    Operator,
    Ref,
    Scalar,
    columns_of,
    conjuncts,
    substitute,
)
from sqlfront.planner.algebra.terms import Common, Distinct, Filter, Join, Made, Map, Scan, Term, walk

CommonType = Callable[[str, str], str | None]
"""The type in which values of two types are compared."""


_KEEPING = ("inner", "semi", "anti", "left")
"""Joins whose rows have no values of the left but those of the left side's rows."""


@dataclass(frozen=True)
class Pair:
    """Expressions of the two sides that partners have in common; a NULL equals no value but, with `nulls`, a NULL."""

    mine: Scalar
    theirs: Scalar
    nulls: bool = False

    @property
    def operator(self) -> Operator:
        return "IS NOT DISTINCT FROM" if self.nulls else "="

    @property
    def name(self) -> str:
        """What a column that has the key is called."""
        return self.theirs.column.name if isinstance(self.theirs, Ref) else "key"


@dataclass(frozen=True)
class Sides:
    """The condition of a join: its equalities of both sides, its conditions on the left and on the right alone, and
    its other conditions on both."""

    pairs: tuple[Pair, ...]
    left: tuple[Scalar, ...]
    right: tuple[Scalar, ...]
    both: tuple[Scalar, ...]


def sides_of(condition: Scalar, ours: Iterable[Column], others: Iterable[Column]) -> Sides:
    """The parts of the condition of a join whose sides have these columns."""
    mine, theirs = frozenset(ours), frozenset(others)
    pairs, left, right, both = list[Pair](), list[Scalar](), list[Scalar](), list[Scalar]()
    for one in met(condition):
        read, pair = columns_of(one), pair_of(one, mine, theirs)
        if pair is not None:
            pairs.append(pair)
        else:
            (right if read and read <= theirs else left if read <= mine else both).append(one)
    return Sides(tuple(pairs), tuple(left), tuple(right), tuple(both))


def met(condition: Scalar) -> Iterator[Scalar]:
    """The conditions that are all true exactly where this one is. Elsewhere they may be NULL, and this one false."""
    for one in conjuncts(condition):
        if isinstance(one, Call) and one.form == TRUTH:
            yield from met(one.arguments[0])
        else:
            yield one


def pair_of(one: Scalar, left: frozenset[Column], right: frozenset[Column]) -> Pair | None:
    """An equality of an expression of the left with one of the right."""
    if not isinstance(one, Compare) or one.operator not in ("=", "IS NOT DISTINCT FROM"):
        return None
    for mine, theirs in ((one.left, one.right), (one.right, one.left)):
        if columns_of(mine) and columns_of(mine) <= left and columns_of(theirs) and columns_of(theirs) <= right:
            return Pair(mine, theirs, one.operator != "=")
    return None


def is_plain(term: Term) -> bool:
    """Whether a term only selects, projects and joins tables: a second copy of it keeps no rows."""
    return all(
        isinstance(part, Scan | Map | Filter) or (isinstance(part, Join) and part.kind == "inner")
        for part in walk(term)
    )


def least_part(term: Term, columns: frozenset[Column]) -> Term:
    """The least part of a join that has these columns: its rows have all values that they have in the join."""
    match term:
        case Join(kind=kind, left=left, dependent=False) if kind in _KEEPING and columns <= {*left.columns}:
            return least_part(left, columns)
        case Join(kind="inner", dependent=False, right=right) if columns <= {*right.columns}:
            return least_part(right, columns)
        case Distinct(input=input, on=None):
            return least_part(input, columns)
        case Filter(input=input, condition=condition):
            found = least_part(input, columns)
            return Filter(found, condition) if columns_of(condition) <= {*found.columns} else found
    return term


@dataclass(frozen=True)
class Copy:
    """A copy of rows, with its column for each of theirs."""

    term: Term
    columns: Mapping[Column, Column]

    def over(self, value: Scalar) -> Scalar:
        """An expression over the copy."""
        return substitute(value, {old: Ref(column) for old, column in self.columns.items()})

    def shown(self, columns: Iterable[Column], more: Iterable[Made] = ()) -> Term:
        """The copy in these of the columns that it was copied from, and more."""
        return Map(self.term, (*(Made(column, Ref(self.columns[column])) for column in columns), *more))


@dataclass
class Copies:
    """Makes copies of terms that are read several times: a plain one is copied, another shared."""

    new: NewColumns
    _shared: dict[Term, str] = field(default_factory=dict)

    def copy(self, term: Term) -> Copy:
        """One more reading of a term."""
        if is_plain(term):
            copy, columns = copied(term, self.new)
            return Copy(copy, {column: columns[column] for column in term.columns})
        if isinstance(term, Common):
            shared = term
        else:
            name = self._shared.setdefault(term, f"side {self.new.column('', 'BOOLEAN').number}")
            shared = Common(name, term, term.columns)
        columns = {column: self.new.like(column) for column in term.columns}
        return Copy(replace(shared, columns=tuple(columns.values())), columns)

    def again(self, rows: Copy) -> Copy:
        """One more reading of a copy."""
        found = self.copy(rows.term)
        return Copy(found.term, {old: found.columns[column] for old, column in rows.columns.items()})
