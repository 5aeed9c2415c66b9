"""Joins that tell which rows have no partner, as inner joins, unions and counts.

A left join is the inner join and, with NULLs, the rows without a partner; a full join has those of both sides. A key
has no partner where, among the keys of both sides, none comes from the right: rows without a partner join these keys. A
mark is true for rows with a partner, and NULL or false for the others. A change costs what it changes in these joins.

Source: Galindo-Legaria, Outerjoins as disjunctions, SIGMOD 1994 (a left join as an inner join and an anti join).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from sqlfront.planner.algebra.join_sides import CommonType, Copies, Copy, Pair, met, sides_of
from sqlfront.planner.algebra.rewriting import NewColumns, passed, projected
from sqlfront.planner.algebra.row_facts import Facts, matches_one_at_most, never_null
from sqlfront.planner.algebra.scalars import (
    FALSE,
    TRUE,
    UNKNOWN,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Not,
    Ref,
    Scalar,
    cast,
    conjunction,
    conjuncts,
    is_never_null,
    null,
    truth,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Made,
    Map,
    SetOperation,
    Term,
)

_ONE_ROW = (
    "CASE WHEN {0} > 1 THEN error('More than one row returned by a subquery used as an expression - scalar subqueries "
    "can only return a single row.') ELSE {1} END"
)
_MOST_UNSURE = 2
"""Comparisons of rows that may be NULL: n of them may be so in 3^n - 1 ways, each a join of its own."""


def without_missing_partners(
    term: Join, new: NewColumns, facts: Facts, common: CommonType, is_false: bool = False
) -> Term | None:
    """The rows of a left, full, semi, anti, mark or single join; None for another join, where the keys of the two sides
    are of types that DuckDB does not compare, and where it takes too many joins.

    `common` is the type in which values of two types are compared. `is_false`: only rows whose mark is false are read.
    """
    if term.dependent:
        return None
    join = _Join(term, new, facts, common)
    try:
        match term.kind:
            case "left":
                return join.left()
            case "single" if matches_one_at_most(term, facts):
                return join.left()
            case "single":
                return join.single()
            case "full":
                return join.full()
            case "semi" | "anti":
                return join.filtered(term.kind)
            case "mark":
                return join.marked(is_false)
    except _NoFormError:
        return None
    return None


def compared_sides(term: SetOperation, new: NewColumns) -> Term:
    """The distinct rows of an INTERSECT or EXCEPT: of the groups of all rows those that the right has, or has not."""
    groups, counts = counted_rows(term, new)
    zero = Constant("0", "INTEGER")
    if term.kind == "intersect":
        kept = [Compare(">", Ref(count), zero) for count in counts]
    else:
        kept = [Compare("=", Ref(counts[1]), zero)]
    return projected(Filter(groups, conjunction(kept)), term.columns)


def counted_rows(term: SetOperation, new: NewColumns) -> tuple[Aggregate, tuple[Column, Column]]:
    """The distinct rows of both sides, and the columns that count their copies in the left and the right."""
    numbers = [new.column(name, "INTEGER") for name in ("mine", "theirs")]
    branches = []
    for side, ones in ((term.left, ("1", "0")), (term.right, ("0", "1"))):
        made = [
            Made(new.like(column), cast(Ref(old), column.type))
            for old, column in zip(side.columns, term.columns, strict=True)
        ]
        made += [Made(new.like(one), Constant(number, "INTEGER")) for one, number in zip(numbers, ones, strict=True)]
        branches.append(Map(side, tuple(made)))
    rows = SetOperation("union", True, branches[0], branches[1], (*term.columns, *numbers))
    mine, theirs = (new.column(one.name, "HUGEINT") for one in numbers)
    sums = tuple(
        Aggregated(total, "sum({before}{0}{behind})", (Ref(one),))
        for total, one in zip((mine, theirs), numbers, strict=True)
    )
    return Aggregate(rows, term.columns, sums), (mine, theirs)


class _NoFormError(Exception):
    """Two keys have no type in which they are compared, or too many comparisons may be NULL."""


class _Join:
    """One join, whose sides are read several times."""

    def __init__(self, term: Join, new: NewColumns, facts: Facts, common: CommonType) -> None:
        self._term, self._new, self._facts, self._common = term, new, facts, common
        self._copies = Copies(new)
        self._present = never_null(term.left, facts) | never_null(term.right, facts)

    # Kinds of joins ---------------------------------------------------------------------------------

    def left(self) -> Term:
        term = self._term
        return self._union([self._pairs_of_rows(), self._padded(term.left, term.right)])

    def single(self) -> Term | None:
        """A left join with one row for each group of partners. A group of two rows is an error if the left asks for it.
        None under a condition of both sides that is no equality, or of the left alone."""
        left, right = self._term.left, self._term.right
        sides = sides_of(self._term.condition, left.columns, right.columns)
        if sides.left or sides.both:
            return None
        own, pairs = sides.right, sides.pairs
        rows = self._copies.copy(right)
        asked = Filter(rows.term, conjunction([rows.over(one) for one in own])) if own else rows.term
        if pairs:
            asking = self._copies.copy(left)
            same = [Compare(pair.operator, rows.over(pair.theirs), asking.over(pair.mine)) for pair in pairs]
            asked = Join("semi", asked, asking.term, conjunction(same))
        keys = [Made(self._new.column(one.name, one.theirs.type), rows.over(one.theirs)) for one in pairs]
        groups = self._only_row(asked, keys, [rows.columns[column] for column in right.columns])
        same = [Compare(pair.operator, pair.mine, Ref(key.column)) for pair, key in zip(pairs, keys, strict=True)]
        joined = replace(self._term, kind="left", right=groups, condition=conjunction(same))
        values = dict(zip(right.columns, groups.columns[len(keys) :], strict=True))
        return Map(joined, tuple(Made(one, Ref(values.get(one, one))) for one in self._term.columns))

    def _only_row(self, rows: Term, keys: Sequence[Made], columns: Sequence[Column]) -> Map:
        """The keys and the columns of the row of each group; an error for a group of two."""
        number = self._new.column("rows", "BIGINT")
        groups = tuple(one.column for one in keys)
        firsts = [Aggregated(self._new.like(one), "any_value({before}{0}{behind})", (Ref(one),)) for one in columns]
        counted = (*firsts, Aggregated(number, "count_star({before}{behind})"))
        values = (
            Made(self._new.like(one), Call(_ONE_ROW, (Ref(number), Ref(first.column)), one.type))
            for one, first in zip(columns, firsts, strict=True)
        )
        grouped = Aggregate(Map(rows, (*keys, *passed(columns))), groups, counted)
        return Map(grouped, (*passed(groups), *values))

    def full(self) -> Term:
        term = self._term
        sides = ((term.left, term.right), (term.right, term.left))
        return self._union([self._pairs_of_rows(), *(self._padded(*side) for side in sides)])

    def filtered(self, kind: JoinKind) -> Term:
        term = self._term
        found = self._having(kind, self._copies.copy(term.left), term.right, term.condition)
        return found.shown(term.columns)

    def marked(self, is_false: bool) -> Term:
        """True for rows with a partner. Of the others those are NULL that meet an undecided condition; the rest is
        false, and is all that is read if `is_false`."""
        term, mark = self._term, self._term.mark
        assert mark is not None
        branches, rest, value = list[tuple[Copy, Scalar]](), self._copies.copy(term.left), TRUE
        for condition in (term.condition, *self._undecided()):
            if not is_false:
                branches.append((self._having("semi", rest, term.right, condition), value))
            rest, value = self._copies.again(self._having("anti", rest, term.right, condition)), UNKNOWN
        branches.append((rest, FALSE))
        return self._union([rows.shown(term.left.columns, [Made(mark, value)]) for rows, value in branches])

    def _undecided(self) -> list[Scalar]:
        """Conditions that some partner meets exactly where the condition is NULL for one, if it is true for none: one
        comparison at least is of a NULL, and the others hold."""
        parts = conjuncts(self._term.condition)
        unsure = [one for one in parts if not is_never_null(one, self._present)]
        compared = [one for one in unsure if isinstance(one, Compare)]
        if len(compared) < len(unsure) or len(unsure) > _MOST_UNSURE:
            raise _NoFormError
        known, ways = [one for one in parts if one not in unsure], list[list[Scalar]]()
        for one in compared:
            sides = [side for side in (one.left, one.right) if not is_never_null(side, self._present)]
            ways.append([one, *map(IsNull, sides)])
        found = [conjunction([*known, *chosen]) for chosen in product(*ways)]
        return found[1:]  # In the first all comparisons hold.

    def _pairs_of_rows(self) -> Term:
        term = self._term
        return self._both(self._copies.copy(term.left), term.right, term.condition).shown(term.columns)

    def _padded(self, left: Term, right: Term) -> Term:
        """The rows of the left without a partner, with NULLs for the columns of the right."""
        rows = self._having("anti", self._copies.copy(left), right, self._term.condition)
        missing = frozenset(right.columns)
        values = ((one, null(one.type) if one in missing else Ref(rows.columns[one])) for one in self._term.columns)
        return Map(rows.term, tuple(Made(one, value) for one, value in values))

    # Keys -------------------------------------------------------------------------------------------

    def _having(self, kind: JoinKind, left: Copy, right: Term, condition: Scalar) -> Copy:
        """The rows of the left that have a partner (semi), or none (anti)."""
        pairs, partners = self._partners(left, right, condition)
        keys: Term = Distinct(partners) if kind == "semi" else self._alone(left, pairs, partners)
        rows = self._copies.again(left)
        same = []
        for pair, key in zip(pairs, keys.columns, strict=True):
            value = cast(rows.over(pair.mine), key.type)
            nulls = (pair.nulls or kind == "anti") and not is_never_null(pair.mine, self._present)
            same.append(Compare("IS NOT DISTINCT FROM" if nulls else "=", value, Ref(key)))
        return Copy(Join("inner", rows.term, keys, conjunction(same)), rows.columns)

    def _alone(self, left: Copy, pairs: Sequence[Pair], partners: Term) -> Term:
        """The keys of the left that the partners do not have."""
        rows, keys = self._copies.again(left), tuple(map(self._new.like, partners.columns))
        mine = tuple(
            Made(self._new.like(key), cast(rows.over(pair.mine), key.type))
            for key, pair in zip(keys, pairs, strict=True)
        )
        return compared_sides(SetOperation("except", False, Map(rows.term, mine), partners, keys), self._new)

    def _partners(self, left: Copy, right: Term, condition: Scalar) -> tuple[list[Pair], Term]:
        """The keys of rows of the right, with the expressions of the left and the right that they are.

        A condition on the left alone is a key that equals TRUE. Under a condition on both sides that is no equality the
        keys are the rows of the left that have a partner.
        """
        sides = sides_of(condition, left.columns, right.columns)
        if sides.both:
            return self._rows_with_partner(left, right, condition)
        pairs = [*sides.pairs, *(Pair(truth(one), TRUE) for one in sides.left)] or [Pair(TRUE, TRUE)]
        rows = self._copies.copy(right)
        keys, needed = list[Made](), [rows.over(one) for one in sides.right]
        for pair in pairs:
            kind = self._common(pair.mine.type, pair.theirs.type)
            if kind is None:
                raise _NoFormError
            value = cast(rows.over(pair.theirs), kind)
            keys.append(Made(self._new.column(pair.name, kind), value))
            if not pair.nulls and not is_never_null(pair.theirs, self._present):
                needed.append(Not(IsNull(value)))
        kept = Filter(rows.term, conjunction(needed)) if needed else rows.term
        return pairs, Map(kept, tuple(keys))

    def _rows_with_partner(self, left: Copy, right: Term, condition: Scalar) -> tuple[list[Pair], Term]:
        both = self._both(self._copies.again(left), right, condition)
        made = tuple(Made(self._new.like(one), Ref(both.columns[one])) for one in left.columns)
        return [Pair(Ref(one), Ref(one), nulls=True) for one in left.columns], Distinct(Map(both.term, made))

    def _both(self, left: Copy, right: Term, condition: Scalar) -> Copy:
        """The pairs of rows that meet a condition."""
        theirs = self._copies.copy(right)
        columns = {**left.columns, **theirs.columns}
        both = Copy(Join("inner", left.term, theirs.term), columns)
        return replace(both, term=Join("inner", left.term, theirs.term, both.over(conjunction(list(met(condition))))))

    def _union(self, branches: Sequence[Term]) -> Term:
        """All rows of branches in the columns of the join."""
        found, columns = branches[0], self._term.columns
        for branch in branches[1:]:
            own = tuple(map(self._new.like, columns))
            found = SetOperation("union", True, found, branch, own)
        return Map(found, tuple(Made(column, Ref(old)) for column, old in zip(columns, found.columns, strict=True)))
