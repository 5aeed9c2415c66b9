"""As-of joins become nearest rows: both sides are blocks, with a column for each key and one for the time.

DuckDB takes any of several partners that are equally near. Here the join's order decides, and then all columns of the
right side that the query reads, in their order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.binding.select_items import unique_names
from sqlfront.planner.algebra.join_sides import Pair, sides_of
from sqlfront.planner.algebra.rewriting import passed, projected
from sqlfront.planner.algebra.scalars import (
    MIRRORED,
    TRUE,
    Column,
    Compare,
    IsNull,
    Not,
    Operator,
    Ref,
    Scalar,
    cast,
    columns_of,
    conjunction,
    truth,
)
from sqlfront.planner.algebra.terms import Common, Distinct, Filter, Join, Made, Map, Sort, Term
from sqlfront.planner.model.nearest_rows import ExtremeRows, NearestRows
from sqlfront.storage.codecs.order import is_orderable

if TYPE_CHECKING:
    from sqlfront.cut.query_blocks import Blocks


def in_nearest_rows(term: Join, blocks: Blocks) -> Common:
    """The as-of join as a block. NotSupportedError if a condition over both sides is no equality."""
    join = _Nearest(term, blocks)
    blocks.completed[term] = join.completed()
    return join.block()


class _Nearest:
    """An as-of join with columns for what it compares: those of `keys`, and of the times."""

    def __init__(self, term: Join, blocks: Blocks) -> None:
        self._term, self._blocks, self._is_outer = term, blocks, term.kind == "as-of left"
        left, right = _Side(term.left, blocks), _Side(term.right, blocks)
        sides = sides_of(term.condition, term.left.columns, term.right.columns)
        if len(sides.both) > 1 and not term.order:
            raise self._refused("its condition over both sides is no equality of an expression of each")
        compared = [_oriented(one, frozenset(term.left.columns)) for one in sides.both]
        self._operator, _, theirs = compared[0]
        self._is_nearest = not term.order or (
            len(compared) == 1
            and term.order[0] == replace(term.order[0], value=theirs, descending=self._operator in (">", ">="))
        )
        self._pairs = list(sides.pairs)
        if self._is_outer:  # A row that fails a condition of its own has no partner.
            self._pairs += [Pair(truth(one), TRUE) for one in sides.left]
        else:
            left.conditions += sides.left
        equated = [pair.theirs for pair in sides.pairs if not pair.nulls]
        met = dict.fromkeys([*equated, *(one for _, _, one in compared)])
        right.conditions += [*sides.right, *(Not(IsNull(value)) for value in met)]
        self._keys = [self._columns(pair, left, right) for pair in self._pairs]
        times = [self._columns(Pair(mine, theirs), left, right) for _, mine, theirs in compared]
        self._times, self._time = times[0], times[0][1]
        self._bounds = [(mine, operator, other) for (mine, other), (operator, *_) in zip(times, compared, strict=True)]
        self._by = [right.column(one.value, one.value.type) for one in term.order]
        ties = dict(zip(self._by[1:], term.order[1:], strict=True))
        self._ties = {column: one for column, one in ties.items() if column != self._time}
        self._left, self._right = left.rows(), right.rows()
        for column in (*(mine for mine, _, _ in self._bounds), *self._right.columns):
            if not is_orderable(column.type):
                raise self._refused(f"values of {column.name}, of type {column.type}, have no order here")

    def completed(self) -> Term:
        """The join with an order of the right side that leaves nothing open."""
        term, time = self._term, self._time
        ties = [replace(one, value=Ref(column)) for column, one in self._ties.items()]
        ties += [Sort(Ref(column)) for column in self._right.columns if column not in self._ties]
        keys = zip(self._pairs, self._keys, strict=True)
        same = [Compare(pair.operator, Ref(mine), Ref(theirs)) for pair, (mine, theirs) in keys]
        bounds = [Compare(operator, Ref(mine), Ref(other)) for mine, operator, other in self._bounds]
        condition = conjunction([*same, *bounds])
        if term.count > 1 or not self._is_nearest:
            nearest = Sort(Ref(time), descending=self._operator in (">", ">="))
            order = (nearest, *ties) if self._is_nearest else term.order
            joined = Join(term.kind, self._left, self._right, condition, order=order, count=term.count)
        else:
            first = Distinct(self._right, (*(theirs for _, theirs in self._keys), time), tuple(ties))
            joined = Join(term.kind, self._left, first, condition)
        return projected(joined, term.columns)

    def block(self) -> Common:
        """The pairs of rows as a block that reads those of the two sides."""
        blocks, names = self._blocks, dict[Column, str]()
        left, right = blocks.table_of(self._left), blocks.table_of(self._right)
        for side, table in ((self._left, left), (self._right, right)):
            named = zip(side.columns, blocks.definitions[table].columns, strict=True)
            names |= {column: name for column, (name, _) in named}
        shown = self._term.right.columns if self._is_nearest else columns_of(self._term.order[-1].value)
        columns = (*self._left.columns, *shown)
        rows = NearestRows(
            left,
            right,
            tuple((names[mine], names[theirs]) for mine, theirs in self._keys),
            (names[self._times[0]], names[self._times[1]]),
            self._operator,
            tuple(zip(unique_names([one.name for one in columns]), (one.type for one in columns), strict=True)),
            tuple(names[column] for column in shown),
            self._is_outer,
            tuple((names[column], (one.descending, one.nulls_first)) for column, one in self._ties.items()),
            self._term.count,
        )
        if not self._is_nearest:
            second = tuple((names[mine], operator, names[other]) for mine, operator, other in self._bounds[1:])
            by = tuple(names[column] for column in self._by)
            rows = ExtremeRows(**vars(rows), second=second, greatest=self._term.order[0].descending, by=by)
        table = blocks.add_view(rows)
        blocks.shared[table] = table
        return Common(table, self._term, columns)

    def _columns(self, pair: Pair, left: _Side, right: _Side) -> tuple[Column, Column]:
        """The columns of two values that are compared, in the type in which they are."""
        mine, theirs = pair.mine.type, pair.theirs.type
        kind = self._blocks.types.common(mine, theirs)
        if kind is None:
            raise self._refused(f"DuckDB compares {mine} and {theirs} in no type that a column can have")
        return left.column(pair.mine, kind), right.column(pair.theirs, kind)

    def _refused(self, why: str) -> Exception:
        hint = "compare columns of the two sides by =, and one of each by >=, >, <= or <"
        return self._blocks.notes.refusal("This ASOF JOIN", self._blocks.place_of_join(self._term), why, hint)


class _Side:
    """One side of the join: its rows that meet the `conditions`, with columns for keys and the time."""

    def __init__(self, term: Term, blocks: Blocks) -> None:
        self.conditions: list[Scalar] = []
        self._term, self._new, self._made = term, blocks.new, dict[Scalar, Column]()

    def column(self, value: Scalar, kind: str) -> Column:
        """The column that has a value in a type."""
        value = cast(value, kind)
        if isinstance(value, Ref):
            return value.column
        if value not in self._made:
            [*named] = columns_of(value)
            self._made[value] = self._new.column(named[0].name if len(named) == 1 else "key", kind)
        return self._made[value]

    def rows(self) -> Term:
        """The rows with these columns."""
        kept = Filter(self._term, conjunction(self.conditions)) if self.conditions else self._term
        made = tuple(Made(column, value) for value, column in self._made.items())
        return Map(kept, (*passed(self._term.columns), *made)) if made else kept


def _oriented(one: Scalar, left: frozenset[Column]) -> tuple[Operator, Scalar, Scalar]:
    """The comparison that says which row is nearest, with the expression of the left side first."""
    assert isinstance(one, Compare)
    if columns_of(one.left) <= left:
        return one.operator, one.left, one.right
    return MIRRORED[one.operator], one.right, one.left
