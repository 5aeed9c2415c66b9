"""GROUP BY: its values, its grouping sets, and the aggregates over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.binding.bound_calls import AggregateCall, ElementCall, GroupingCall, outermost, replaced
from sqlfront.binding.select_items import Item
from sqlfront.planner.algebra.rewriting import passed
from sqlfront.planner.algebra.scalars import Column, Constant, Ref, Scalar, columns_of, walk
from sqlfront.planner.algebra.terms import Aggregate, Aggregated, Made, Map, Term, Unnest

if TYPE_CHECKING:
    from sqlfront.binding.select_block import SelectBlock

Lower = Callable[[Scalar], Scalar]
Sets = list[list[int]]


@dataclass
class Grouping:
    """The values of GROUP BY, each once, and the grouping sets of their numbers; `written`: there is a GROUP BY."""

    values: list[Scalar] = field(default_factory=list)
    sets: Sets | None = None
    written: bool = False

    def number(self, value: Scalar) -> int:
        if value not in self.values:
            self.values.append(value)
        return self.values.index(value)

    def apply(self, term: Term, every: Sequence[Scalar], tree: exp.Select, block: SelectBlock) -> tuple[Term, Lower]:
        """The groups of a term, and what an expression over its rows is over the groups."""
        own = frozenset(term.columns) | block.subqueries.waiting.keys()
        compared = block.subqueries.untyped()
        calls = [call for value in (*every, *compared) for call in _aggregates(value) if _is_own(call, own)]
        calls += [call for value in block.subqueries.scalars() for call in _aggregates(value) if _is_of(call, own)]
        if not (self.written or calls or tree.args.get("having") is not None):
            return term, lambda value: value
        numbers, notes, written = block.environment.numbers, block.notes, self.values
        term = block.subqueries.attached(term, [*self.values, *(part for call in calls for part in call.arguments)])
        term, self.values = with_elements(term, self.values, block)
        term, columns = self._columns(term, block)
        replacing: dict[Scalar, Scalar] = {
            value: Ref(column)
            for value, column in zip(written, columns)
            if self.sets is not None or not isinstance(value, Constant)  # A bound in QUALIFY stays a number.
        }
        aggregates: list[Aggregated] = []
        for call in dict.fromkeys(calls):
            assert isinstance(call, AggregateCall)
            column = numbers.column(call.template.partition("(")[0], call.type)
            notes.note_at(column, notes.place(call))
            aggregates.append(call.aggregated(column))
            replacing[call] = Ref(column)
        grouping = []
        for grouped_by in dict.fromkeys(one for value in every for one in outermost(value, GroupingCall)):
            column = numbers.column("grouping", "BIGINT")
            by = dict(zip(written, columns))
            grouping.append((column, tuple(by[part] for part in grouped_by.arguments)))
            replacing[grouped_by] = Ref(column)
        sets = None if self.sets is None else tuple(frozenset(columns[n] for n in one) for one in self.sets)
        unique = tuple(dict.fromkeys(columns))
        grouped = Aggregate(term, unique, tuple(aggregates), sets, tuple(grouping))

        def lower(value: Scalar) -> Scalar:
            return replaced(value, replacing.get)

        block.subqueries.lower(lower)
        return grouped, lower

    def _columns(self, term: Term, block: SelectBlock) -> tuple[Term, list[Column]]:
        """The columns of the values; computed ones are added to the term."""
        made: list[Made] = []
        columns: list[Column] = []
        for value in self.values:
            if isinstance(value, Ref) and value.column in term.columns and value.column not in columns:
                columns.append(value.column)
                continue
            column = block.environment.numbers.column(_name(value), value.type)
            block.notes.note_at(column, block.notes.place_of(value))
            made.append(Made(column, value))
            columns.append(column)
        return (Map(term, (*passed(term.columns), *made)) if made else term), columns


def with_elements(term: Term, values: list[Scalar], block: SelectBlock) -> tuple[Term, list[Scalar]]:
    """The columns of unnest(), those of unnest() in its argument before."""
    calls = list(dict.fromkeys(call for value in values for call in outermost(value, ElementCall)))
    if not calls:
        return term, values
    made = []
    term, lists = with_elements(term, [call.arguments[0] for call in calls], block)
    for call, elements in zip(calls, lists, strict=True):
        made.append(Made(block.environment.numbers.column("unnest", call.type), elements))
        block.notes.note_at(made[-1].column, block.notes.place(call))
    columns: dict[Scalar, Scalar] = {call: Ref(one.column) for call, one in zip(calls, made)}
    return Unnest(term, tuple(made)), [replaced(value, columns.get) for value in values]


def read_groups(select: exp.Select, block: SelectBlock, items: Sequence[Item]) -> Grouping:
    """What GROUP BY asks for."""
    group = select.args.get("group")
    if group is None:
        return Grouping()
    found = Grouping(written=True)
    if group.args.get("all"):
        return _all_groups(found, items)
    parts: list[Sets] = [_sets(node, found, block, items) for node in group.expressions]
    sets = [list(dict.fromkeys(n for one in chosen for n in one)) for chosen in product(*parts)]
    if len(sets) != 1 or sets[0] != list(range(len(found.values))):
        found.sets = sets
    if found.sets == [[]]:
        found.sets = None
    return found


def _all_groups(found: Grouping, items: Sequence[Item]) -> Grouping:
    """Every item without an aggregate, but constants; without any other it is no GROUP BY."""
    for item in items:
        if not _aggregates(item.value) and (columns_of(item.value) or not isinstance(item.value, Constant)):
            found.number(item.value)
    found.written = bool(found.values)
    return found


def _sets(node: exp.Expr, found: Grouping, block: SelectBlock, items: Sequence[Item]) -> Sets:
    """The grouping sets of one item of GROUP BY."""
    if isinstance(node, exp.GroupingSets):
        return [one for inner in node.expressions for one in _sets(inner, found, block, items)]
    if isinstance(node, exp.Rollup | exp.Cube):
        members = [_members(inner, found, block, items) for inner in node.expressions]
        if isinstance(node, exp.Rollup):
            chosen = [members[:count] for count in range(len(members), -1, -1)]
        else:
            masks = range(2 ** len(members) - 1, -1, -1)
            chosen = [[m for place, m in enumerate(members) if mask >> place & 1] for mask in masks]
        return [[number for member in one for number in member] for one in chosen]
    return [_members(node, found, block, items)]


def _members(node: exp.Expr, found: Grouping, block: SelectBlock, items: Sequence[Item]) -> list[int]:
    """The numbers of an expression of GROUP BY, or of those in parentheses."""
    from sqlfront.binding.query_binder import position

    if isinstance(node, exp.Tuple):
        return [number for inner in node.expressions for number in _members(inner, found, block, items)]
    place = position(node)
    return [found.number(items[place - 1].value if place is not None else block.expressions.bind(node))]


def _aggregates(value: Scalar) -> list[AggregateCall]:
    """The aggregates of an expression, those inside window functions too."""
    found: list[AggregateCall] = []
    for call in outermost(value, AggregateCall):
        assert isinstance(call, AggregateCall)
        found.append(call)
    return found


def _is_own(call: Scalar, own: frozenset[Column]) -> bool:
    """Whether an aggregate is this block's: one of outer columns alone is an outer block's."""
    columns = columns_of(call)
    return not columns or bool(columns & own) or not any(isinstance(part, Ref) for part in walk(call))


def _is_of(call: Scalar, own: frozenset[Column]) -> bool:
    """Whether an aggregate inside a subquery is of this block's columns alone: then it is the block's."""
    columns = columns_of(call)
    return bool(columns) and columns <= own


def _name(value: Scalar) -> str:
    return value.column.name if isinstance(value, Ref) else "group"
