"""Full and mark joins as left and anti joins with keys, each of which can be a child of a view's tree.

A full join is two left joins from the keys of both sides: a key of one side alone meets no row of the other. A mark is
true where the keys of the right have that of the left. It is NULL where they have not, and the right has a row which
leaves open whether it is equal: any row, for a key that is NULL; else one whose key is NULL. So a first row of a key,
or its last one, changes one row of a block of keys: O(1) where the left or anti join with that block costs O(1).

Source: Galindo-Legaria, Outerjoins as disjunctions, SIGMOD 1994; the keys of both sides are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlfront.planner.algebra.join_sides import CommonType, Copies, Copy, Pair, Sides, pair_of, sides_of
from sqlfront.planner.algebra.rewriting import NewColumns, extended
from sqlfront.planner.algebra.row_facts import Facts, never_null
from sqlfront.planner.algebra.scalars import (
    FALSE,
    TRUE,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Logic,
    Not,
    Operator,
    Ref,
    Scalar,
    cast,
    conjunction,
    conjuncts,
    is_never_null,
)
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Distinct, Filter, Join, Made, Map, SetOperation, Term

_MARK = "CASE WHEN {0} THEN true WHEN {1} THEN NULL ELSE false END"
_ZERO = Constant("0", "INTEGER")


@dataclass(frozen=True)
class MergedKey:
    """A value that is the one of two expressions which is not NULL."""

    sides: tuple[Scalar, Scalar]
    value: Scalar


@dataclass(frozen=True)
class FullOfKeys:
    """The rows of a full join, and the values of its keys."""

    rows: Term
    merged: tuple[MergedKey, ...]


def full_of_keys(
    term: Join, new: NewColumns, facts: Facts, common: CommonType, usual: Callable[[str], str | None]
) -> FullOfKeys | None:
    """A full join as left joins from the keys of both sides.

    None without an equality, under another condition of both sides, and where a key that may be NULL, and then equals
    none, is of a type without a `usual` value.
    """
    sides = sides_of(term.condition, term.left.columns, term.right.columns)
    if not sides.pairs or sides.both:
        return None
    kinds = _kinds(sides.pairs, common)
    present = never_null(term.left, facts) | never_null(term.right, facts)
    nullable = [
        not (one.nulls or (is_never_null(one.mine, present) and is_never_null(one.theirs, present)))
        for one in sides.pairs
    ]
    if kinds is None or any(null and usual(kind) is None for null, kind in zip(nullable, kinds, strict=True)):
        return None
    return _Full(term, sides, kinds, [usual(kind) if null else None for null, kind in zip(nullable, kinds)], new).rows()


def marks_of_keys(term: Join, new: NewColumns, facts: Facts, common: CommonType, is_false: bool) -> Term | None:
    """A mark join as left joins with keys, as anti joins if only rows whose mark is false are read.

    None without an equality, under another condition of both sides, and where two conditions may be NULL.
    """
    sides = sides_of(term.condition, term.left.columns, term.right.columns)
    kinds = _kinds(sides.pairs, common)
    if term.mark is None or kinds is None or not sides.pairs or sides.both:
        return None
    present = never_null(term.left, facts) | never_null(term.right, facts)
    unsure = [one for one in conjuncts(term.condition) if not is_never_null(one, present)]
    open_pairs = [pair_of(one, frozenset(term.left.columns), frozenset(term.right.columns)) for one in unsure]
    if len(unsure) > 1 or None in open_pairs:
        return None
    marks = _Marks(term, sides, kinds, next(iter(open_pairs), None), present, new)
    return marks.false_rows() if is_false else marks.all_rows()


class _Full:
    """A full join in the making. `usual` has, for each key that may be NULL, the value that stands for NULL.

    The keys have a tag: 0 where a row can have partners; else it tells the side, and which values are NULL.
    """

    def __init__(
        self, term: Join, sides: Sides, kinds: Sequence[str], usual: Sequence[str | None], new: NewColumns
    ) -> None:
        self._term, self._sides, self._kinds, self._usual, self._new = term, sides, kinds, usual, new
        self._copies = Copies(new)

    def rows(self) -> FullOfKeys:
        term, new = self._term, self._new
        names = [pair.name for pair in self._sides.pairs]
        keys = [new.column(name, kind) for name, kind in zip(names, self._kinds, strict=True)]
        columns = (*keys, new.column("tag", "INTEGER")) if self._is_tagged else tuple(keys)
        left, right = (self._keys(self._copies.copy(side), i) for i, side in enumerate((term.left, term.right)))
        found: Term = Distinct(SetOperation("union", True, left, right, columns))
        operators: list[Operator] = [*(pair.operator for pair in self._sides.pairs), "="]
        copies = [self._copies.copy(side) for side in (term.left, term.right)]
        for number, copy in enumerate(copies):
            pairs = zip(operators, map(Ref, columns), self._joined(copy, number), strict=False)
            same = [Compare(*one) for one in pairs]
            found = Join("left", found, copy.term, conjunction(same))
        shown = {old: Ref(one) for copy in copies for old, one in copy.columns.items()}
        sides = zip(*(self._values(copy, number) for number, copy in enumerate(copies)), strict=True)
        merged = tuple(MergedKey(pair, value) for pair, value in zip(sides, self._merged(columns), strict=True))
        return FullOfKeys(Map(found, tuple(Made(column, shown[column]) for column in term.columns)), merged)

    def _merged(self, columns: Sequence[Column]) -> Iterator[Scalar]:
        """The values of the keys: NULL where the tag says so."""
        place = 0
        for column, usual in zip(columns, self._usual, strict=False):
            if usual is None:
                yield Ref(column)
            else:
                form = f"CASE WHEN {{0}} // {4 * 2**place} % 2 = 1 THEN NULL ELSE {{1}} END"
                yield Call(form, (Ref(columns[-1]), Ref(column)), column.type, can_fail=False)
                place += 1

    @property
    def _is_tagged(self) -> bool:
        return bool(self._sides.left or self._sides.right) or any(one is not None for one in self._usual)

    def _keys(self, copy: Copy, number: int) -> Term:
        """The keys of the rows of a side."""
        values = self._joined(copy, number)
        return Map(copy.term, tuple(Made(self._new.column("key", value.type), value) for value in values))

    def _values(self, copy: Copy, number: int) -> list[Scalar]:
        pairs = zip(self._sides.pairs, self._kinds, strict=True)
        return [cast(copy.over((pair.mine, pair.theirs)[number]), kind) for pair, kind in pairs]

    def _joined(self, copy: Copy, number: int) -> list[Scalar]:
        """The columns of the keys for a row of a side. NULL joins no NULL, so a value stands for it."""
        values, found = self._values(copy, number), list[Scalar]()
        for value, usual in zip(values, self._usual, strict=True):
            filled = (value, Constant(usual or "", value.type))
            found.append(value if usual is None else Call("coalesce({0}, {1})", filled, value.type, can_fail=False))
        if not self._is_tagged:
            return found
        own = [copy.over(one) for one in (self._sides.left, self._sides.right)[number]]
        nulls = [IsNull(value) for value, usual in zip(values, self._usual, strict=True) if usual is not None]
        bits = "".join(f" + {4 * 2**place} * CAST({{{place + 1}}} AS INTEGER)" for place in range(len(nulls)))
        tag = f"CASE WHEN {{0}} THEN 0 ELSE {number + 1}{bits} END"
        return [*found, Call(tag, (conjunction([*own, *map(Not, nulls)]), *nulls), "INTEGER", can_fail=False)]


class _Marks:
    """A mark join in the making. `open_pair`: the equality that may be NULL, if there is one."""

    def __init__(
        self,
        term: Join,
        sides: Sides,
        kinds: Sequence[str],
        open_pair: Pair | None,
        present: frozenset[Column],
        new: NewColumns,
    ) -> None:
        self._term, self._sides, self._present, self._new = term, sides, present, new
        self._kinds = dict(zip(sides.pairs, kinds, strict=True))
        self._open, self._copies = open_pair, Copies(new)
        self._sure = list(sides.pairs)
        if open_pair is not None:
            self._sure.remove(open_pair)  # Once: a condition of the subquery may be the same equality.
        self._strict = [place for place, pair in enumerate(sides.pairs) if not pair.nulls]
        self._shown = None if self._strict else Made(new.column("there", "BOOLEAN"), TRUE)

    def all_rows(self) -> Term | None:
        """The rows of the left, each with its mark."""
        term, mark = self._term, self._term.mark
        assert mark is not None
        keys, same = self._equal_keys()
        if self._shown is not None:
            keys = extended(keys, [self._shown])
        shown = keys.columns[-1] if self._shown is not None else keys.columns[self._strict[0]]
        found, is_true = self._join("left", term.left, keys, same), Not(IsNull(Ref(shown)))
        if self._open is None:
            return self._marked(found, is_true)
        rows = self._rows(self._sure, self._open)
        number, values = self._new.column("rows", "BIGINT"), self._new.column("values", "BIGINT")
        counts = (
            Aggregated(number, "count_star({before}{behind})"),
            Aggregated(values, "count({before}{0}{behind})", (Ref(rows.columns[-1]),)),
        )
        groups = Aggregate(rows, rows.columns[:-1], counts)
        any_rows = Made(self._new.column("any", "BOOLEAN"), Compare(">", Ref(number), _ZERO))
        any_null = Made(self._new.column("nulls", "BOOLEAN"), Compare(">", Ref(number), Ref(values)))
        flags = Map(groups, (*(Made(self._new.like(one), Ref(one)) for one in groups.groups), any_rows, any_null))
        if self._sure:
            keys_of = zip(self._sure, flags.columns, strict=False)
            same = [Compare(pair.operator, pair.mine, Ref(key)) for pair, key in keys_of]
            found = self._join("left", found, flags, same)
        elif self._sides.left:
            return None
        else:
            found = Join("inner", found, flags)
        opens = Logic("OR", (IsNull(self._open.mine), Ref(any_null.column)))
        is_open = Logic("AND", (Ref(any_rows.column), opens))
        return self._marked(found, Call(_MARK, (is_true, is_open), "BOOLEAN", can_fail=False))

    def false_rows(self) -> Term:
        """The rows of the left whose mark is false."""
        found = self._join("anti", self._term.left, *self._equal_keys())
        if self._open is not None:
            keys = self._open_keys(self._open)
            *values, is_null = keys.columns
            same = [Compare(pair.operator, pair.mine, Ref(key)) for pair, key in zip(self._sure, values, strict=True)]
            same.append(Compare("=", IsNull(self._open.mine), Ref(is_null)))
            found = self._join("anti", found, keys, same)
        return self._marked(found, FALSE)

    def _marked(self, rows: Term, value: Scalar) -> Term:
        assert self._term.mark is not None
        return Map(rows, (*(Made(one, Ref(one)) for one in self._term.left.columns), Made(self._term.mark, value)))

    def _join(self, kind: str, left: Term, right: Term, same: Sequence[Scalar]) -> Term:
        return Join("left" if kind == "left" else "anti", left, right, conjunction([*same, *self._sides.left]))

    def _equal_keys(self) -> tuple[Term, list[Scalar]]:
        """The keys of the right, without NULLs that equal none, and the conditions under which they are equal to the
        left's."""
        rows = self._rows(self._sides.pairs)
        needed = [Not(IsNull(Ref(rows.columns[place]))) for place in self._strict]
        keys = Distinct(Filter(rows, conjunction(needed)) if needed else rows)
        pairs = zip(self._sides.pairs, keys.columns, strict=True)
        return keys, [Compare(pair.operator, pair.mine, Ref(key)) for pair, key in pairs]

    def _rows(self, pairs: Sequence[Pair], last: Pair | None = None, *more: Scalar) -> Map:
        """What the rows of the right that meet its own conditions, have in place of what the left compares."""
        copy = self._copies.copy(self._term.right)
        own = [copy.over(one) for one in (*self._sides.right, *more)]
        shown = [*pairs, *([last] if last is not None else [])]
        made = (
            Made(self._new.column(pair.name, self._kinds[pair]), cast(copy.over(pair.theirs), self._kinds[pair]))
            for pair in shown
        )
        return Map(Filter(copy.term, conjunction(own)) if own else copy.term, tuple(made))

    def _open_keys(self, pair: Pair) -> Term:
        """The keys for which a row of the right leaves open whether it is equal, with whether it does so for a NULL of
        the left, as any row does, or for a value, as a NULL does."""
        branches = list[Term]()
        for null, opens, more in ((pair.mine, TRUE, ()), (pair.theirs, FALSE, (IsNull(pair.theirs),))):
            if not is_never_null(null, self._present):
                flag = Made(self._new.column("is_null", "BOOLEAN"), opens)
                branches.append(extended(self._rows(self._sure, None, *more), [flag]))
        if len(branches) == 1:
            return Distinct(branches[0])
        columns = tuple(map(self._new.like, branches[0].columns))
        return Distinct(SetOperation("union", True, branches[0], branches[1], columns))


def _kinds(pairs: Sequence[Pair], common: CommonType) -> list[str] | None:
    """The types in which equalities compare; None where one has none."""
    found = [common(pair.mine.type, pair.theirs.type) for pair in pairs]
    return None if None in found else [kind for kind in found if kind is not None]
