"""Comparisons of two tables that a third one joins: the third is joined with one of them first, in a view of its own.

`fact JOIN header ON id JOIN history ON product AND header.date >= history.valid_from` compares header with history, and
the fact stands between. A tree would need a bag of all three. The rows of fact and header together have both what
history is equal to and what it is compared with: one range of history for each of them, and one range of them for each
row of history. These rows are as many as the fact's where the header is found by a key.

Comparisons in a cycle, `a.t < b.t AND b.t < c.t AND c.t < a.t + 60`, have no tree without bags of three rows either. A
view of two tables whose rows are within a range of each other is compared with the third. The third's column is
eliminated from the comparisons (Fourier and Motzkin), so the view has a bound that the query only implies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

from sqlfront.cut.block_shape import Shape
from sqlfront.cut.split_conditions import EQUALITIES
from sqlfront.planner.algebra.flat_join import FlatJoin, flattened, joined
from sqlfront.planner.algebra.rewriting import projected
from sqlfront.planner.algebra.row_facts import Facts, keys_of
from sqlfront.planner.algebra.rules.nearest_first_rows import bounds_of, bounds_of_one, oriented
from sqlfront.planner.algebra.scalars import Column, Compare, Ref, Scalar, columns_of
from sqlfront.planner.algebra.terms import Scan, Term

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks

THROUGH = (
    "{inside} are joined first, in a view of its own: {outside} is compared with columns of the one and joins the other"
)
WITHIN = "{inside} are joined first, in a view of its own: all are compared with each other, and {outside} with both"
MOST_COMPARED, MOST_TRIED = 6, 3
"""Of how many tables that are compared all choices are looked at, and how many of these are tried."""


def compared_through(shape: Shape, blocks: Blocks, *, by_keys: bool = False) -> Iterator[Callable[[], Shape]]:
    """Forms of a block, the smallest first. A form joins a compared table with the tables between the two sides of the
    comparison, before all else. A form derives the blocks that it reads when it is called. `by_keys`: only forms whose
    first join has no more rows than one of its tables, and that compare no two tables of it."""
    flat = flattened(shape.core)
    edges = _edges(flat)
    if edges is None:
        return
    choices = [_Choice(flat, edges, outside) for outside in _outsides(edges)]
    fit = [one for one in choices if len(one.inside) > 1 and one.is_connected and one.is_small]
    fit = [one for one in fit if edges.apart and one.is_by_keys(blocks.facts)] if by_keys else fit
    for choice in sorted(fit, key=lambda one: one.rank(blocks.facts))[:MOST_TRIED]:
        yield partial(choice.form, shape, blocks)


@dataclass(frozen=True)
class _Edges:
    """The pairs of leaves that equalities join, and that other conditions compare, with these conditions. `apart`: some
    of these are not joined by equalities."""

    equal: tuple[tuple[frozenset[int], Compare], ...]
    compared: tuple[tuple[frozenset[int], Scalar], ...]
    apart: bool

    def neighbours(self, leaf: int) -> frozenset[int]:
        return frozenset[int]().union(*(pair for pair, _ in self.equal if leaf in pair)) - {leaf}


def _edges(flat: FlatJoin) -> _Edges | None:
    """None if nothing is compared, or joined by equalities, or a condition reads more than two leaves."""
    equal, compared = list[tuple[frozenset[int], Compare]](), list[tuple[frozenset[int], Scalar]]()
    for condition in flat.conditions:
        pair = flat.leaves_of(condition)
        if len(pair) == 2 and isinstance(condition, Compare) and condition.operator in EQUALITIES:
            equal.append((pair, condition))
        elif len(pair) == 2:
            compared.append((pair, condition))
        elif len(pair) > 2:
            return None
    adjacent = {pair for pair, _ in equal}
    apart = any(pair not in adjacent for pair, _ in compared)
    return _Edges(tuple(equal), tuple(compared), apart) if compared and equal else None


def _outsides(edges: _Edges) -> Iterator[frozenset[int]]:
    """Choices of leaves, one of each pair that is compared, that stay outside of the view; then those of one leaf that
    is compared with two, which are compared with each other."""
    ends = sorted(frozenset[int]().union(*(pair for pair, _ in edges.compared)))
    if len(ends) > MOST_COMPARED:
        return
    if len(ends) == 3:
        yield from (frozenset({end}) for end in ends if any(end not in pair for pair, _ in edges.compared))
    if not edges.apart:
        return
    for size in range(1, len(ends)):
        for some in combinations(ends, size):
            if all(len(pair & set(some)) == 1 for pair, _ in edges.compared):
                yield frozenset(some)


class _Choice:
    """Leaves that stay outside, and those inside the view: what they are compared with, and what lies between."""

    def __init__(self, flat: FlatJoin, edges: _Edges, outside: frozenset[int]) -> None:
        self._flat, self._edges, self._outside = flat, edges, outside
        ends = frozenset[int]().union(*(pair for pair, _ in edges.compared)) - outside
        joining = frozenset[int]().union(*map(edges.neighbours, outside)) - outside
        self.inside = self._between(ends | joining)

    @property
    def is_small(self) -> bool:
        """Whether nothing is compared inside; or two leaves, a column of one within a range of the other."""
        compared = [one for pair, one in self._edges.compared if pair <= self.inside]
        if len(self.inside) != 2 or not compared:
            return not compared
        ranges = (
            bounds_of_one([*compared, *self._implied()], frozenset(self._flat.leaves[leaf].columns))
            for leaf in self.inside
        )
        return any(found is not None and len(found) == 2 for found in ranges)

    def _implied(self) -> list[Compare]:
        """Comparisons of leaves inside that follow from those with a column outside: x < y and y < z have x < z."""
        [leaf] = self._outside
        columns, implied = frozenset(self._flat.leaves[leaf].columns), list[Compare]()
        compared = [one for pair, condition in self._edges.compared if leaf in pair for one in bounds_of(condition)]
        bounds = [found for one in compared if (found := oriented(one, columns)) is not None]
        for (lower, low, time), (upper, high, other) in product(bounds, bounds):
            leaves = self._flat.leaves_of(low) | self._flat.leaves_of(high)
            is_between = lower[0] == "<" and upper[0] == ">" and time == other and low.type == time.type == high.type
            if is_between and leaves == self.inside:
                implied.append(Compare("<=" if lower == "<=" and upper == ">=" else "<", low, high))
        return implied

    @property
    def is_connected(self) -> bool:
        """Whether equalities link all leaves inside."""
        return bool(self.inside) and self._reached(min(self.inside), self.inside) == self.inside

    def is_by_keys(self, facts: Facts) -> bool:
        """Whether the view has no more rows than one of its tables, and compares none of them."""
        return not any(pair <= self.inside for pair, _ in self._edges.compared) and not self._expanding(facts)

    def rank(self, facts: Facts) -> tuple[int, int, int]:
        """The choice whose view is the smallest comes first: few joins that are not by a key, then few leaves, of which
        those stay outside that have most of the columns that are compared, as the ends of an interval."""
        outside = [columns_of(one) for _, one in self._edges.compared]
        ends = {column for read in outside for column in read if self._flat.leaves_of(Ref(column)) <= self._outside}
        return self._expanding(facts), len(self.inside), -len(ends)

    def form(self, shape: Shape, blocks: Blocks) -> Shape:
        """The block with the view in the place of what is inside."""
        flat = self._flat
        own = [one for one in flat.conditions if flat.leaves_of(one) <= self.inside]
        rest = [one for one in flat.conditions if one not in own]
        compares = any(pair <= self.inside for pair, _ in self._edges.compared)
        own += [one for one in self._implied() if one not in own] if compares else []
        columns = [column for column in shape.core.columns if column in shape.read]
        read = columns_of(*rest, *(flat.values.get(column, Ref(column)) for column in columns))
        leaves = [flat.leaves[number] for number in sorted(self.inside)]
        rows = joined(leaves, own)
        rows = projected(rows, [column for column in rows.columns if column in read])
        others = [leaf for number, leaf in enumerate(flat.leaves) if number not in self.inside]
        named = [_name(leaf) for leaf in leaves]
        outside = " and ".join(_name(flat.leaves[number]) for number in sorted(self._outside))
        why = WITHIN if compares else THROUGH
        blocks.told[why.format(inside=" and ".join(named), outside=outside)] = None
        return replace(shape, core=flat.shown(joined([blocks.common(rows), *others], rest), columns))

    def _between(self, ends: frozenset[int]) -> frozenset[int]:
        """The leaves on paths of equalities between these, not through those outside."""
        return ends.union(*(self._path(a, b) for a, b in pairwise(sorted(ends))))

    def _path(self, start: int, end: int) -> frozenset[int]:
        """The leaves of a shortest path; none if there is none."""
        ways: dict[int, tuple[int, ...]] = {start: (start,)}
        waiting = [start]
        for leaf in waiting:
            for other in sorted(self._edges.neighbours(leaf) - self._outside - ways.keys()):
                ways[other] = (*ways[leaf], other)
                waiting.append(other)
        return frozenset(ways.get(end, ()))

    def _reached(self, start: int, within: frozenset[int]) -> frozenset[int]:
        waiting = [start]
        for leaf in waiting:
            waiting += [other for other in self._edges.neighbours(leaf) & within if other not in waiting]
        return frozenset(waiting)

    def _expanding(self, facts: Facts) -> int:
        """How many leaves inside are not found by a key of theirs, from the best one to begin with."""
        return min(self._unkeyed(start, facts) for start in self.inside)

    def _unkeyed(self, start: int, facts: Facts) -> int:
        known, unkeyed = {start}, 0
        while known != self.inside:
            open_ = self.inside - known
            found = next((leaf for leaf in sorted(open_) if self._is_keyed(leaf, known, facts)), None)
            unkeyed += found is None
            known.add(min(open_) if found is None else found)
        return unkeyed

    def _is_keyed(self, leaf: int, known: set[int], facts: Facts) -> bool:
        """Whether equalities with known leaves fix a key of a leaf."""
        term, fixed = self._flat.leaves[leaf], set[Column]()
        for pair, condition in self._edges.equal:
            if leaf in pair and pair - {leaf} <= known and condition.operator == "=":
                sides = (condition.left, condition.right)
                fixed |= {side.column for side in sides if isinstance(side, Ref) and side.column in term.columns}
        return any(key <= fixed for key in keys_of(term, facts))


def _name(leaf: Term) -> str:
    return leaf.alias or leaf.table[-1] if isinstance(leaf, Scan) else "a block"
