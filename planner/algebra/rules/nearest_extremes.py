"""Extremes of groups of an inequality join become as-of joins, where each group is one row of a side.

`SELECT r.id, arg_max(s.x, s.t) FROM r JOIN s ON s.k = r.k AND s.t <= r.t GROUP BY r.id` with a key r.id asks for the
nearest row, as `last(s.x ORDER BY s.t)` does. `min(s.x)`, `max(s.x)` and `arg_max(s.x, s.y)`, also under `s.t BETWEEN
r.a AND r.b`, ask for the first row of a range by x, or by y and x. Under bounds of two columns, `r.t BETWEEN s.a AND
s.b`, they ask for the first row of a box. Other aggregates of the groups are computed apart and joined by the group.
The pairs need not be kept: O(N) rows. A group of several rows of a side, `GROUP BY r.c`, has the least or the greatest
of their extremes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.join_sides import Copies, Copy, Sides, sides_of
from sqlfront.planner.algebra.rewriting import NewColumns, copied, extended, passed, projected, rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, keys_of, never_null
from sqlfront.planner.algebra.rules.nearest_first_rows import (
    Oriented,
    bounds_of,
    bounds_of_one,
    goes_away,
    within,
)
from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    TRUE,
    Call,
    Column,
    Compare,
    IsNull,
    Not,
    Ref,
    Scalar,
    can_fail,
    columns_of,
    conjunction,
    function_name,
    is_null_where,
    rejects_nulls,
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
    Sort,
    Term,
)
from sqlfront.planner.algebra.total_orders import FIRSTS
from sqlfront.planner.model.ordered_types import ORDERED, family_of

_EXTREMES = {
    **{name: (name == "max", 1) for name in ("min", "max")},
    **dict.fromkeys(("arg_min", "argmin", "min_by"), (False, 2)),
    **dict.fromkeys(("arg_max", "argmax", "max_by"), (True, 2)),
}
"""Whether the greatest value is asked for, and the number of arguments."""
_VALUES = (*ORDERED, "VARCHAR", "BLOB", "BOOLEAN", "UUID")
"""Types of the arguments."""


def turn_extremes_into_nearest(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term with as-of joins for the extremes of groups that are rows of a side, or have several of them."""
    if facts.in_shards:
        return term
    new = NewColumns(term)

    def change(part: Term) -> Term:
        join = _join_of(part) if isinstance(part, Aggregate) and part.groups and part.sets is None else None
        if not isinstance(part, Aggregate) or join is None or join.dependent:
            return part
        sides = {"inner": ((join.left, join.right), (join.right, join.left)), "left": ((join.left, join.right),)}
        turned = (_turned(part, join, left, right, facts, new) for left, right in sides.get(join.kind, ()))
        return next((one for one in turned if one is not None), part)

    return rewrite(term, change)


def _join_of(term: Aggregate) -> Join | None:
    """The join whose rows are aggregated, with columns for what is computed of one side, as in `GROUP BY
    date_trunc('day', r.t)`. None if there is no such join, or a column could fail for a row without a partner."""
    rows = term.input
    if isinstance(rows, Join):
        return rows
    if not isinstance(rows, Map) or not isinstance(rows.input, Join):
        return None
    join = rows.input
    computed = [made for made in rows.made if made.value != Ref(made.column)]
    mine, theirs = (
        [made for made in computed if columns_of(made.value) <= {*side.columns}] for side in (join.left, join.right)
    )
    if len(mine) < len(computed) and (join.kind != "inner" or len(mine) + len(theirs) != len(computed)):
        return None
    if any(can_fail(made.value) for made in computed):
        return None
    right = [made for made in theirs if made not in mine]
    return replace(join, left=_with(join.left, mine), right=_with(join.right, right))


def _with(side: Term, made: Sequence[Made]) -> Term:
    return extended(side, made) if made else side


@dataclass(frozen=True)
class _Extreme:
    """An aggregate as the value by which an order ends, in the first of the right's rows that meet a test."""

    column: Column
    order: tuple[Sort, ...]
    test: Scalar


def _turned(term: Aggregate, join: Join, left: Term, right: Term, facts: Facts, new: NewColumns) -> Term | None:
    """The groups as rows of the left with their extremes, or as groups of such rows; None if they are neither, or there
    is no extreme."""
    sides = sides_of(join.condition, left.columns, right.columns)
    compared = _compared(sides, right)
    rows = _rows_of(term.groups, left, sides, facts)
    is_parted = rows is None
    rows = rows or _parts_of(term.groups, left, sides, facts)
    if compared is None or rows is None:
        return None
    theirs = frozenset(right.columns)
    known = (
        _extreme(each, right, compared, facts)
        for each in term.aggregates
        if (join.kind == "inner" or _leaves_nulls_out(each, theirs)) and not (is_parted and each.order)
    )
    # Of several rows of a group, the one with the extreme by another column is not found by its value.
    extremes = [one for one in known if one is not None and not (is_parted and one.order[1:])]
    if not extremes:
        return None
    found = _Joined(rows, right, join, sides, compared, Copies(new))
    made = {one.column: found.add(one) for one in extremes}
    others = tuple(one for one in term.aggregates if one.column not in made)
    parts = Map(found.rows(), (*passed(term.groups), *(Made(column, value) for column, value in made.items())))
    groups = _of_parts(term, parts, new) if is_parted else parts
    if not others:
        return projected(groups, term.columns)
    beside, columns = copied(Aggregate(join, term.groups, others), new)
    same = [Compare("IS NOT DISTINCT FROM", Ref(one), Ref(columns[one])) for one in term.groups]
    both = Join("inner", groups, beside, conjunction(same))
    renamed = {one.column: columns[one.column] for one in others}
    return Map(both, tuple(Made(column, Ref(renamed.get(column, column))) for column in term.columns))


def _compared(sides: Sides, right: Term) -> list[Oriented] | None:
    """The one or two inequalities of a join that bound one column of the right, in one type, or two that bound a column
    each."""
    if sides.left or sides.right:
        return None
    compared = bounds_of_one(sides.both, frozenset(right.columns))
    if compared is None:
        return _box(sides.both, right)
    types = ORDERED if len(compared) > 1 else (*ORDERED, "VARCHAR")  # How many rows are between texts is not known.
    is_one_type = len({mine.type for _, mine, _ in compared}) == 1
    return compared if is_one_type and type_family(compared[0][2]) in types else None


def _box(both: Sequence[Scalar], right: Term) -> list[Oriented] | None:
    """The two inequalities of a join, if they bound an expression of the right each, by numbers or times."""
    found = [_bound(one, frozenset(right.columns)) for condition in both for one in bounds_of(condition)]
    compared = [one for one in found if one is not None]
    is_known = all(type_family(value) in ORDERED for _, *values in compared for value in values)
    return compared if len(found) == len(compared) == 2 and _is_box(compared) and is_known else None


def _bound(one: Scalar, right: frozenset[Column]) -> Oriented | None:
    """An inequality of expressions of the left side and of the right one; None for any other condition."""
    if not isinstance(one, Compare) or one.operator not in ("<", "<=", ">", ">="):
        return None
    sides = (one.operator, one.left, one.right), (MIRRORED[one.operator], one.right, one.left)
    return next((side for side in sides if columns_of(side[2]) <= right and not columns_of(side[1]) & right), None)


def _is_box(compared: Sequence[Oriented]) -> bool:
    """Whether inequalities bound several columns of the right."""
    return len({theirs for _, _, theirs in compared}) > 1


def type_family(value: Scalar) -> str:
    """The name of a type without its parameters."""
    return family_of(value.type)


def _rows_of(groups: Sequence[Column], left: Term, sides: Sides, facts: Facts) -> Term | None:
    """Rows of the left, one for each group; None if a group has several that have other partners."""
    if not set(groups) <= set(left.columns):
        return None
    if any(key <= set(groups) for key in keys_of(left, facts)):
        return left
    read = columns_of(*sides.both, *(pair.mine for pair in sides.pairs)) & frozenset(left.columns)
    return Distinct(projected(left, groups)) if read <= set(groups) else None


def _parts_of(groups: Sequence[Column], left: Term, sides: Sides, facts: Facts) -> Term | None:
    """The rows of the left, where a group has several of them. None if equalities give the right the groups, too: then
    all groups together have no more values than the right has rows."""
    read = columns_of(*sides.both, *(pair.mine for pair in sides.pairs))
    if set(groups) <= {pair.mine.column for pair in sides.pairs if isinstance(pair.mine, Ref)}:
        return None
    more = [column for column in left.columns if column in read and column not in groups]
    return _rows_of((*groups, *more), left, sides, facts)


def _of_parts(term: Aggregate, parts: Map, new: NewColumns) -> Term:
    """The extremes of groups from those of their parts, which are columns of the same names."""
    values = {made.column: new.like(made.column) for made in parts.made if made.column not in term.groups}
    renamed = replace(parts, made=tuple(replace(one, column=values.get(one.column, one.column)) for one in parts.made))
    extremes = (one for one in term.aggregates if one.column in values)
    return Aggregate(
        renamed,
        term.groups,
        tuple(replace(one, arguments=(Ref(values[one.column]),), filter=TRUE) for one in extremes),
    )


def _leaves_nulls_out(one: Aggregated, right: frozenset[Column]) -> bool:
    """Whether an aggregate is NULL over the row of NULLs that a left row without a partner has: `max(coalesce(s.x, 0))`
    is not."""
    return rejects_nulls(one.filter, right) or any(is_null_where(argument, right) for argument in one.arguments)


def _extreme(one: Aggregated, right: Term, compared: Sequence[Oriented], facts: Facts) -> _Extreme | None:
    """An aggregate as the first of the right's rows in an order; None if it is none, or no search has that order."""
    name, values = function_name(one.form), (*one.arguments, *(item.value for item in one.order))
    read = columns_of(*values)
    if one.distinct or not read or not read | columns_of(one.filter) <= frozenset(right.columns):
        return None
    if not all(type_family(each) in _VALUES for each in values):
        return None
    if name in FIRSTS:
        return _first(one, name, right, compared, facts)
    descending, arguments = _EXTREMES.get(name, (False, 0))
    if one.order or len(one.arguments) != arguments:
        return None
    value, *by = one.arguments
    sorts = tuple(Sort(item, descending) for item in (*by, value))
    is_nearest = any(goes_away(bound, sorts[0]) for bound in compared)
    # What is compared with a bound is not NULL.
    tested = dict.fromkeys((value,) if is_nearest else one.arguments) if by else {}
    present = [Not(IsNull(each)) for each in tested if not columns_of(each) <= never_null(right, facts)]
    return _Extreme(one.column, sorts, conjunction([one.filter, *present]))


def _first(one: Aggregated, name: str, right: Term, compared: Sequence[Oriented], facts: Facts) -> _Extreme | None:
    """`_extreme` of FIRST and its like, ordered by one value that is never NULL, and perhaps then by the argument. The
    last value is the first in the opposite order. The nearest row may have any argument, NULL too. Extremes of subtrees
    are kept for arguments that are not NULL, in the direction of the other value."""
    [value], order = one.arguments, one.order
    if not order or len({value, *(item.value for item in order)}) > 2 or len(order) > 2:
        return None
    by = order[0]
    present = {theirs for _, _, theirs in compared} | {Ref(column) for column in never_null(right, facts)}
    if value not in [item.value for item in order]:
        order = (by, Sort(value))
    if name == "last":
        order = tuple(replace(item, descending=not item.descending, nulls_first=not item.nulls_first) for item in order)
    is_nearest = not _is_box(compared) and any(goes_away(bound, order[0]) for bound in compared)
    is_extreme = order[0].descending == order[-1].descending and (name == "any_value" or value in present)
    if by.value not in present or not (is_nearest or is_extreme):
        return None
    test = Not(IsNull(value)) if name == "any_value" else TRUE
    return _Extreme(one.column, order, conjunction([one.filter, test]))


class _Joined:
    """Rows with their first partners in several orders."""

    def __init__(
        self, rows: Term, right: Term, join: Join, sides: Sides, compared: Sequence[Oriented], copies: Copies
    ) -> None:
        self._rows, self._right, self._sides, self._compared, self._copies = rows, right, sides, compared, copies
        self._is_outer, self._is_sure = join.kind == "left", join.kind == "left"

    def add(self, one: _Extreme) -> Scalar:
        """The value of an extreme in the rows, which then have it."""
        return self._add(one.order, one.test)

    def rows(self) -> Term:
        """The rows: of an inner join those alone that have a partner."""
        if not self._is_sure:
            operator, _, time = self._compared[0]
            self._add([Sort(time, operator in (">", ">="))], TRUE)
        return self._rows

    def _add(self, order: Sequence[Sort], test: Scalar) -> Scalar:
        """Join the rows with the first of the right's rows that meet the test; returns the value by which these are
        ordered last."""
        copy, new = self._copies.copy(self._right), self._copies.new
        rows = Filter(copy.term, copy.over(test)) if test != TRUE else copy.term
        *by, last = (replace(item, value=copy.over(item.value)) for item in order)
        if not isinstance(last.value, Ref):
            made = Made(new.column("value", last.value.type), last.value)
            rows, last = extended(rows, (made,)), replace(last, value=Ref(made.column))
        return self._join(copy, rows, [*by, last], is_sure=test == TRUE)

    def _join(self, copy: Copy, right: Term, order: Sequence[Sort], *, is_sure: bool) -> Scalar:
        """Join the rows with their first partners; returns the value by which these are ordered last."""
        pairs = [Compare(pair.operator, pair.mine, copy.over(pair.theirs)) for pair in self._sides.pairs]
        bounds = [(operator, mine, copy.over(theirs)) for operator, mine, theirs in self._compared]
        if _is_box(bounds):  # Along a list in the order that is asked for, the first row in the box is found at once.
            bounds.sort(key=lambda bound: bound[2] != order[0].value)
        met = [one for one in bounds if not _is_box(bounds) and goes_away(one, order[0])] or bounds
        others = [one for one in bounds if one not in met]  # The nearest row is within these bounds, or no row is.
        is_outer = self._is_outer or not is_sure
        self._is_sure |= is_sure
        kind: JoinKind = "as-of left" if is_outer else "as-of"
        condition = conjunction([*pairs, *(Compare(*one) for one in met)])
        found: Term = Join(kind, self._rows, right, condition, order=tuple(order))
        value = order[-1].value
        if others and is_outer:
            is_within = conjunction([Compare(*one) for one in others])
            made = Made(
                self._copies.new.column("value", value.type),
                Call("CASE WHEN {0} THEN {1} END", (is_within, value), value.type, can_fail=False),
            )
            found, value = extended(found, (made,)), Ref(made.column)
        elif others:
            found = within(others, found)
        self._rows = projected(found, (*self._rows.columns, *columns_of(value)))
        return value
