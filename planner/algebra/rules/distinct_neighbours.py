"""DISTINCT over inequality joins goes: each row needs one witness, the extreme of a group of rows or its next value.

`SELECT DISTINCT r.b, s.e, t.h FROM r, s, t WHERE r.a < s.d AND s.d < t.g` asks for groups with some a < d < g. The
least a of the group of r.b serves, and the greatest g of the group of t.h. Of the group of s.e the least d above a
serves: its predecessor in the group is not above a. So each group of rows has one witness, and is there once.
COUNT(DISTINCT x) counts such rows. Tables become extremes, or values with their neighbours: O(N) rows.

With `s.k = t.k` and no k in the rows, s and t are one side: their groups of (s.e, t.h) have a greatest d, of those with
d < t.g and an equal k. The pairs of s and t are kept, and none of them with r; DISTINCT stays where the view is to
save space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlfront.planner.algebra.flat_join import FlatJoin, flattened, joined
from sqlfront.planner.algebra.rewriting import NewColumns, extended, passed, projected, rewrite
from sqlfront.planner.algebra.row_facts import NO_FACTS, Facts, equated, keys_of
from sqlfront.planner.algebra.rules.nearest_extremes import type_family
from sqlfront.planner.algebra.rules.nearest_first_rows import bounds_of
from sqlfront.planner.algebra.scalars import (
    TRUE,
    Call,
    Column,
    Compare,
    Constant,
    IsNull,
    Not,
    Ref,
    Scalar,
    columns_of,
    conjunction,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Aggregated,
    Distinct,
    Filter,
    Made,
    Map,
    Sort,
    Term,
    Window,
    Windowed,
)
from sqlfront.planner.model.ordered_types import NUMBERS, ORDERED

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_WHOLE = (*_BITS, *(f"U{name}" for name in _BITS))
_ENDS = {
    **{name: (str(-(2 ** (bits - 1))), str(2 ** (bits - 1) - 1)) for name, bits in _BITS.items()},
    **{f"U{name}": ("0", str(2**bits - 1)) for name, bits in _BITS.items()},
    **dict.fromkeys(("FLOAT", "DOUBLE"), ("-inf", "nan")),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), ("-infinity", "infinity")),
}
"""The least and the greatest value of a type."""


def turn_distinct_into_neighbours(term: Term, facts: Facts = NO_FACTS) -> Term:
    """A term whose DISTINCT joins by inequalities have one witness for each row."""
    new = NewColumns(term)

    def change(part: Term) -> Term:
        match part:
            case Distinct(input=input, on=None):
                return _without_copies(input, input.columns, facts, new) or part
            case Aggregate(input=input, groups=groups, aggregates=made, sets=None, grouping=()) if groups or made:
                values = _distinct_values(made)
                if values is None:
                    return part
                rows = _without_copies(input, tuple(dict.fromkeys((*groups, *values))), facts, new)
                if rows is None or not made:
                    return rows or part
                return replace(part, input=rows, aggregates=tuple(replace(one, distinct=False) for one in made))
        return part

    return rewrite(term, change)


def _distinct_values(made: Sequence[Aggregated]) -> tuple[Column, ...] | None:
    """The column whose distinct values all aggregates read, if there are aggregates. None if they read more."""
    arguments = {one.arguments for one in made}
    plain = all(one.distinct and not one.order and one.filter == TRUE for one in made)
    found = [one.column for values in arguments for one in values if isinstance(one, Ref)]
    return tuple(found) if plain and len(arguments) < 2 and len(found) == len(arguments) else None


def _without_copies(term: Term, shown: Sequence[Column], facts: Facts, new: NewColumns) -> Term | None:
    """The distinct rows of a term in these columns, without DISTINCT; None if they have no witnesses."""
    join = flattened(term)
    values = [join.values.get(column, Ref(column)) for column in shown]
    columns = [one.column for one in values if isinstance(one, Ref)]
    if len(join.leaves) < 2 or len(columns) < len(values):
        return None
    found = _Witnesses(join, frozenset(columns), facts, new)
    rows, group = found.rows(), None if facts.saves_space else found.tied()
    if rows is None and group is not None:
        rows = _Witnesses(join.tied(group), frozenset(columns), facts, new).rows()
    return None if rows is None else join.shown(rows, shown)


@dataclass(frozen=True)
class _Test:
    """A comparison of a value of leaf `below` that is less than one of leaf `above`, or `equal` to it."""

    low: Scalar
    high: Scalar
    equal: bool
    below: int
    above: int

    def over(self, values: Mapping[tuple[int, Scalar], Scalar]) -> Compare:
        """The comparison of the witnesses of leaves."""
        low, high = values.get((self.below, self.low), self.low), values.get((self.above, self.high), self.high)
        return Compare("<=" if self.equal else "<", low, high)


class _Witnesses:
    """The leaves of a join with one row for each group of rows that shows one row, and what is compared of that.

    Columns are known if those that are shown decide them.
    """

    def __init__(self, join: FlatJoin, shown: frozenset[Column], facts: Facts, new: NewColumns) -> None:
        self._join, self._facts, self._new = join, facts, new
        conditions = [part for one in join.conditions for part in bounds_of(one)]
        numbers = range(len(join.leaves))
        own = [[one for one in conditions if join.leaves_of(one) == {number}] for number in numbers]
        self._leaves = [Filter(leaf, conjunction(met)) if met else leaf for leaf, met in zip(join.leaves, own)]
        self._conditions = [one for one in conditions if len(join.leaves_of(one)) != 1]
        self._known = self._decided(shown)
        self._bounds = list[Scalar]()
        self._values = dict[tuple[int, Scalar], Scalar]()

    def _decided(self, shown: frozenset[Column]) -> frozenset[Column]:
        pairs, known, before = equated(conjunction(self._conditions)), shown, frozenset[Column]()
        keys = [(key, leaf.columns) for leaf in self._leaves for key in keys_of(leaf, self._facts)]
        while known != before:
            before = known
            known |= {other for one, other in pairs if one in known}
            known |= {column for key, columns in keys if key <= known for column in columns}
        return known

    def rows(self) -> Term | None:
        """The join of the witnesses; None if some condition asks for more than one of a group."""
        kept = [one for one in self._conditions if columns_of(one) <= self._known]
        tests = [self._test(one) for one in self._conditions if one not in kept]
        if not tests or None in tests:
            return None
        found = [one for one in tests if one is not None]
        hidden = {number: self._hidden(number, found) for number in range(len(self._leaves))}
        if any(len(values) > 1 for values in hidden.values()):
            return None
        for number, leaf in enumerate(self._leaves):
            if not hidden[number]:
                self._leaves[number] = self._once(leaf)
        waiting = {number: value for number, values in hidden.items() for value in values}
        while waiting:
            ready = next((one for one in waiting.items() if self._reduce(*one, found, waiting)), None)
            if ready is None:
                return None
            del waiting[ready[0]]
        return joined(self._leaves, [*kept, *(one.over(self._values) for one in found), *self._bounds])

    def tied(self) -> frozenset[int] | None:
        """Leaves that are joined by equalities of columns that are not known, if at least two of them show columns, and
        inequalities alone compare them with other leaves. None if there is no such group, or more than one."""
        leaves = self._join.leaves_of
        open_ = [one for one in self._conditions if not columns_of(one) <= self._known]
        pairs = [leaves(one) for one in open_ if isinstance(one, Compare) and one.operator == "="]
        group = min(pairs, key=sorted, default=frozenset[int]())
        while (wider := group.union(*(pair for pair in pairs if pair & group))) != group:
            group = wider
        shown = [number for number in group if self._group(self._leaves[number])]
        across = [one for one in self._conditions if leaves(one) & group and not leaves(one) <= group]
        is_apart = bool(across) and all(self._test(one) is not None for one in across)
        return group if len(shown) > 1 and is_apart and all(pair <= group for pair in pairs) else None

    def _once(self, leaf: Term) -> Term:
        """The known columns of a leaf, each row once."""
        columns = self._group(leaf)
        unique = any(key <= {*columns} for key in keys_of(leaf, self._facts))
        return projected(leaf, columns) if unique else Distinct(projected(leaf, columns))

    def _group(self, leaf: Term) -> tuple[Column, ...]:
        return tuple(column for column in leaf.columns if column in self._known)

    def _test(self, one: Scalar) -> _Test | None:
        """A condition as an inequality of two leaves in one order."""
        if not isinstance(one, Compare) or one.operator not in ("<", "<=", ">", ">="):
            return None
        low, high = (one.left, one.right) if one.operator in ("<", "<=") else (one.right, one.left)
        sides = [self._join.leaves_of(side) for side in (low, high)]
        kinds = [type_family(side) for side in (low, high)]
        is_one_order = kinds[0] == kinds[1] or all(kind in NUMBERS for kind in kinds)
        if not is_one_order or not all(kind in ORDERED for kind in kinds) or not all(len(side) == 1 for side in sides):
            return None
        ([below], [above]) = sides
        return _Test(low, high, one.operator in ("<=", ">="), below, above)

    def _hidden(self, number: int, tests: Iterable[_Test]) -> set[Scalar]:
        """What is compared of a leaf and not known."""
        sides = {(one.below, one.low) for one in tests} | {(one.above, one.high) for one in tests}
        return {value for leaf, value in sides if leaf == number and not columns_of(value) <= self._known}

    def _reduce(self, number: int, value: Scalar, tests: Sequence[_Test], waiting: Mapping[int, Scalar]) -> bool:
        """Let a leaf have one witness for each group, if those that it follows are there."""
        lower = [one for one in tests if one.high == value and one.above == number]
        upper = [one for one in tests if one.low == value and one.below == number]
        if not lower or not upper:
            self._leaves[number], column = self._extreme(self._leaves[number], value, "min" if upper else "max")
            self._values[number, value] = Ref(column)
            return True
        for name, bounds in (("lag", lower), ("lead", upper)):
            [one, *more] = bounds
            other = one.below if name == "lag" else one.above
            if not more and other not in waiting and _has_ends(one):
                bound = one.over(self._values)
                self._leaves[number], column, next_to = self._with_neighbours(
                    self._leaves[number], value, name, one.equal
                )
                self._values[number, value] = Ref(column)
                beside = (Ref(next_to), bound.right) if name == "lead" else (bound.left, Ref(next_to))
                self._bounds.append(Compare(">=", *beside))
                return True
        return False

    def _extreme(self, leaf: Term, value: Scalar, name: str) -> tuple[Term, Column]:
        column = self._new.column(name, value.type)
        return Aggregate(
            leaf, self._group(leaf), (Aggregated(column, f"{name}({{before}}{{0}}{{behind}})", (value,)),)
        ), column

    def _with_neighbours(self, leaf: Term, value: Scalar, name: str, equal: bool) -> tuple[Term, Column, Column]:
        """The values of each group once, with the least value that others are compared with instead of the one before,
        or the greatest instead of the one after."""
        column, beside = self._new.column("value", value.type), self._new.column(name, value.type)
        next_to = self._new.column("beside", value.type)
        group = self._group(leaf)
        present = Filter(leaf, Not(IsNull(value)))
        values = Distinct(Map(present, (*passed(group), Made(column, value))))
        by = Windowed(beside, f"{name}({{0}})", (Ref(column),), tuple(map(Ref, group)), (Sort(Ref(column)),))
        step = f"CAST({{0}} {'+' if name == 'lag' else '-'} 1 AS {value.type})" if equal else "{0}"
        end = Constant(f"CAST('{_ENDS[value.type][name == 'lead']}' AS {value.type})", value.type)
        found = Call(f"coalesce({step}, {{1}})", (Ref(beside), end), value.type, can_fail=False)
        rows = extended(Window(values, (by,)), (Made(next_to, found),))
        return projected(rows, (*group, column, next_to)), column, next_to


def _has_ends(one: _Test) -> bool:
    """Whether the values of a comparison have a least and a greatest value that it may be made with."""
    kind = type_family(one.low)
    return one.low.type == one.high.type and kind in _ENDS and (not one.equal or kind in _WHOLE)
