"""The operators of one SELECT, put on each other in the order of their meaning.

Each expression reads the columns that the operator below it gives: a group's, an aggregate's, a window's, a subquery's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.binding.bound_calls import WindowCall, outermost, replaced
from sqlfront.binding.environment import Output
from sqlfront.binding.grouping import Grouping, with_elements
from sqlfront.binding.query_binder import label_of, limited, projected_to
from sqlfront.binding.select_items import Item, unique_names
from sqlfront.planner.algebra.scalars import Column, Ref, Scalar, columns_of
from sqlfront.planner.algebra.terms import Distinct, Made, Map, Sort, Term, Window, Windowed
from sqlfront.sql import trees
from sqlfront.sql.dialect import printed

if TYPE_CHECKING:
    from sqlfront.binding.select_block import SelectBlock, Selected


def put_together(tree: exp.Select, block: SelectBlock, term: Term, selected: Selected, groups: Grouping) -> Output:
    """The term of a SELECT whose expressions are bound and typed."""
    subqueries = block.subqueries
    if selected.where is not None:
        term = subqueries.filtered(term, selected.where)
    orders = [selected.order, *selected.more]
    plain = [
        *(one.value for one in selected.items), *(one.value for order in orders for one in order),
        *(selected.on or ()),
    ]  # fmt: skip
    rest = [one for one in (selected.having, selected.qualify) if one is not None]
    term, lower = groups.apply(term, [*plain, *rest], tree, block)
    if selected.having is not None:
        term = subqueries.filtered(term, lower(selected.having))
    values = [lower(value) for value in plain]
    qualify = lower(selected.qualify) if selected.qualify is not None else None
    term, values, qualify = _with_windows(tree, term, values, qualify, len(selected.items), block)
    if qualify is not None:
        term = subqueries.filtered(term, qualify)
    term = subqueries.attached(term, values)
    term, values = with_elements(term, values, block)
    remaining = iter(values)
    items = [Item(one.name, next(remaining), one.is_named) for one in selected.items]
    sorted_by = [[Sort(next(remaining), one.descending, one.nulls_first) for one in order] for order in orders]
    on = list(remaining) if selected.on is not None else None
    return _Outputs(tree, block, items, term).output(term, sorted_by, on)


def _with_windows(
    tree: exp.Select, term: Term, values: list[Scalar], qualify: Scalar | None, shown: int, block: SelectBlock
) -> tuple[Term, list[Scalar], Scalar | None]:
    """The columns of window functions; what ROW_NUMBER leaves open the output columns without windows settle."""
    every = [*values, *([qualify] if qualify is not None else [])]
    calls = list(dict.fromkeys(call for value in every for call in outermost(value, WindowCall)))
    if not calls:
        return term, values, qualify
    term = block.subqueries.attached(term, [part for call in calls for part in call.arguments])
    ties = [value for value in values[:shown] if not any(True for _ in outermost(value, WindowCall))]
    columns: dict[Scalar, Scalar] = {}
    functions = []
    for call in calls:
        assert isinstance(call, WindowCall)
        column = block.environment.numbers.column(call.template.partition("(")[0], call.type)
        functions.append(_settled(call.windowed(column), call, ties, tree, block))
        columns[call] = Ref(column)
        block.notes.note_at(column, block.notes.place_of(call))  # Over groups only what it reads has a place.
    lowered = [replaced(value, columns.get) for value in every]
    return Window(term, tuple(functions)), lowered[: len(values)], lowered[-1] if qualify is not None else None


def _settled(one: Windowed, call: WindowCall, ties: Sequence[Scalar], tree: exp.Select, block: SelectBlock) -> Windowed:
    """A window function whose order is remembered, and that of ROW_NUMBER completed by the output columns."""
    defaults, node = block.environment.defaults, block.definitions[call.number]
    sorts = [defaults.sort(value) for value in ties if columns_of(value)]
    texts = _texts(tree, block)
    written = block.notes.add_order(node, one.order, label_of(node.args.get("order"), block.environment), sorts, texts)
    if not call.template.casefold().startswith("row_number("):
        return replace(one, written=written)
    known = {item.value for item in one.order}
    more = (item for item in sorts if item.value not in known)
    return replace(one, order=(*one.order, *more), written=written)


def _texts(tree: exp.Select, block: SelectBlock) -> list[str]:
    """The output columns without windows as a window can name them: those of a star by their tables."""
    found = []
    for item in tree.expressions:
        this = item.this if isinstance(item, exp.Alias) else item
        if isinstance(this, exp.Star) or (isinstance(this, exp.Column) and isinstance(this.this, exp.Star)):
            found += block.star_texts(this)
        elif not any(True for _ in this.find_all(trees.Window)):
            found.append(printed(this))
    return found


class _Outputs:
    """The SELECT list as columns, with the columns beside them that ORDER BY and DISTINCT ON compare."""

    def __init__(self, tree: exp.Select, block: SelectBlock, items: Sequence[Item], term: Term) -> None:
        self._tree, self._block, self._items = tree, block, items
        self._made = _made(items, term, block)
        self._columns = tuple(one.column for one in self._made)
        self._shown = {one.value: one.column for one in reversed(self._made)}
        self._hidden: dict[Scalar, Column] = {}
        distinct = tree.args.get("distinct")
        self._is_distinct, self._has_on = distinct is not None, bool(distinct and distinct.args.get("on") is not None)

    def output(self, term: Term, orders: Sequence[Sequence[Sort]], on: Sequence[Scalar] | None) -> Output:
        """DISTINCT, ORDER BY and LIMIT over the columns."""
        first, *more = [self._over_columns(order) for order in orders]
        keys = tuple(self._column(value) for value in on or ())
        term = Map(term, (*self._made, *(Made(column, value) for value, column in self._hidden.items())))
        defaults, columns = self._block.environment.defaults, self._columns
        if self._has_on:
            known = {one.value for one in first}
            ties = (defaults.sort(Ref(column)) for column in columns if Ref(column) not in known)
            term = Distinct(term, keys, (*first, *ties))
        elif self._is_distinct and self._hidden:
            # DuckDB leaves open which row's value a result row is ordered by: here it is the first one's.
            ties = (defaults.sort(Ref(column)) for column in columns)
            term = Distinct(term, columns, (*first, *ties))
        elif self._is_distinct:
            term = Distinct(term)
        term = limited(self._tree, term, first, columns, self._block.environment)
        read = [column for order in more for one in order for column in columns_of(one.value) if column not in columns]
        names = unique_names([item.name for item in self._items])
        shown = (*columns, *dict.fromkeys(read))
        return Output(projected_to(term, shown), tuple(names), tuple(map(tuple, more)))

    def _over_columns(self, order: Sequence[Sort]) -> list[Sort]:
        """The items over the output columns. DISTINCT leaves open which row's value a hidden one has, and so the order
        from there on, which only a LIMIT depends on."""
        sorts = []
        for one in order:
            if self._is_left_open(one.value) and not (self._tree.args.get("limit") or self._tree.args.get("offset")):
                break
            sorts.append(Sort(self._value(one.value), one.descending, one.nulls_first))
        return [one for one in sorts if columns_of(one.value)]

    def _is_left_open(self, value: Scalar) -> bool:
        return self._is_distinct and not self._has_on and not columns_of(self._shown_in(value)) <= set(self._columns)

    def _shown_in(self, value: Scalar) -> Scalar:
        return replaced(value, lambda part: Ref(self._shown[part]) if part in self._shown else None)

    def _value(self, value: Scalar) -> Scalar:
        """A value over the output columns, or a column beside them."""
        found = self._shown_in(value)
        if columns_of(found) <= set(self._columns):
            return found
        return Ref(self._column(value))

    def _column(self, value: Scalar) -> Column:
        """The column that holds a value."""
        known = self._shown.get(value) or self._hidden.get(value)
        if known is None:
            known = self._hidden[value] = self._block.environment.numbers.column("", value.type)
            self._block.notes.note_at(known, self._block.notes.place_of(value))
        return known


def _made(items: Sequence[Item], term: Term, block: SelectBlock) -> list[Made]:
    """The columns of the SELECT list; a column that is put out under its own name stays the same one."""
    made: list[Made] = []
    taken: set[Column] = set()
    for item in items:
        value = item.value
        column = value.column if isinstance(value, Ref) else None
        if column is None or column in taken or column.name != item.name or column not in term.columns:
            column = block.environment.numbers.column(item.name, value.type)
            block.notes.note_at(column, block.notes.place_of(value))
        taken.add(column)
        made.append(Made(column, value))
    return made
