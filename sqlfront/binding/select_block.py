"""One SELECT: FROM, WHERE, groups, windows, the SELECT list, DISTINCT, ORDER BY, LIMIT, in the order of their meaning.

All expressions are bound first and typed together. Then the operators are put on each other, and each expression reads
the columns that the operator below it gives: a group's, an aggregate's, a window's, a subquery's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlglot import exp

from sqlfront.binding.environment import Environment, Output
from sqlfront.binding.expression_binder import ExpressionBinder
from sqlfront.binding.from_tables import bind_from
from sqlfront.binding.grouping import Grouping, read_groups
from sqlfront.binding.query_binder import position
from sqlfront.binding.select_items import Item, chosen_columns, items_of
from sqlfront.binding.select_layers import put_together
from sqlfront.binding.sight import Sight
from sqlfront.binding.subqueries import Subqueries
from sqlfront.planner.algebra.scalars import (
    Operator,
    Scalar,
)
from sqlfront.planner.algebra.terms import Sort
from sqlfront.planner.algebra.to_sql import quoted
from sqlfront.sql import trees


@dataclass
class Selected:
    """The expressions of a SELECT: typed when all are bound."""

    where: Scalar | None = None
    items: list[Item] = field(default_factory=list)
    having: Scalar | None = None
    qualify: Scalar | None = None
    order: list[Sort] = field(default_factory=list)
    on: list[Scalar] | None = None
    more: list[list[Sort]] = field(default_factory=list)


class SelectBlock:
    """What the expressions of one block see, and what they need: subqueries, windows, aliases."""

    def __init__(self, environment: Environment, sight: Sight | None = None, select: exp.Select | None = None) -> None:
        self.environment, self.notes, self.functions = environment, environment.notes, environment.functions
        self.sight = sight if sight is not None else Sight(outer=environment.outer)
        self.expressions = ExpressionBinder(self)
        self.subqueries = Subqueries(environment)
        self.definitions: list[trees.Window] = []
        self._aliases = _alias_nodes(select) if select is not None else {}
        self._bound_aliases: dict[str, Scalar] = {}
        self._windows = {one.name.casefold(): one for one in (select.args.get("windows") if select else None) or ()}
        self.grouped: frozenset[Scalar] | None = None

    def name(self, names: Sequence[str], node: exp.Column) -> Scalar:
        """A column of FROM, else an alias of the SELECT list, else a column of a query around."""
        alias = names[0].casefold() if len(names) == 1 else ""
        found = replace(self.sight, outer=None).find(names)
        prefers_alias = self.grouped is not None and found not in self.grouped
        if alias in self._aliases and (found is None or prefers_alias):
            return self.alias(alias)
        if found is None and self.sight.outer is not None:
            found = self.sight.outer.find(names)
        if found is None:
            raise self.notes.refusal(
                f'"{".".join(names)}" here', node,
                "it is no column of this FROM clause: a pseudo column such as rowid, a whole row, "
                "or a column of an outer query (a lateral join)",
                "name a column of a table in this FROM clause",
            )  # fmt: skip
        return found

    def sees(self, names: Sequence[str]) -> bool:
        return self.sight.find(names) is not None or names[0].casefold() in self._aliases

    def alias(self, name: str) -> Scalar:
        """The value that the SELECT list calls so."""
        if name not in self._bound_aliases:
            node = self._aliases.pop(name)  # Inside of itself a name is a column's.
            with self.columns_first():
                self._bound_aliases[name] = self.expressions.bind(node)
            self._aliases[name] = node
        return self._bound_aliases[name]

    @contextmanager
    def columns_first(self, grouped: frozenset[Scalar] | None = None) -> Iterator[None]:
        """Inside, a bare name is a column before it is an alias; with `grouped` only if it is one of these."""
        before, self.grouped = self.grouped, grouped
        try:
            yield
        finally:
            self.grouped = before

    def is_alias_of(self, node: exp.Alias) -> bool:
        """Whether an item of the SELECT list is what its name means."""
        return self._aliases.get(node.alias.casefold()) is node.this

    def has_alias(self, name: str) -> bool:
        return name in self._aliases

    def subquery(self, kind: str, node: exp.Expr, values: Sequence[Scalar], operator: Operator) -> Scalar:
        return self.subqueries.add(kind, node, values, operator, self.sight)

    def window(self, name: str) -> trees.Window | None:
        return self._windows.get(name.casefold())

    def chosen(self, node: exp.Expr) -> list[Scalar]:
        """The columns of COLUMNS(...)."""
        return [value for _, value in chosen_columns(node, self)]

    def star_texts(self, node: exp.Expr) -> list[str]:
        """The columns of a star as text; one that it computes is none."""
        seen = {value: f"{quoted(owner)}.{quoted(name)}" for owner, name, value in reversed(self.sight.visible())}
        return [seen[value] for _, value in chosen_columns(node, self) if value in seen]

    def sorts(self, order: exp.Order | None, bind: Callable[[exp.Expr], Scalar]) -> tuple[Sort, ...]:
        """The items of ORDER BY inside a call or a window."""
        if order is None:
            return ()
        defaults = self.environment.defaults
        return tuple(defaults.written(bind(item.this), item) for item in order.expressions)

    def refuse_subqueries(self, node: exp.Expr) -> None:
        if self.subqueries.waiting:
            why, hint = "its value is not known when the query is planned", "write the value"
            raise self.notes.refusal("A subquery here", node, why, hint)


def bind_select(tree: exp.Select, environment: Environment, more: Sequence[exp.Order] = ()) -> Output:
    """The term of a SELECT with all its clauses, and `more` orders of its rows."""
    _check(tree, environment)
    term, sight = bind_from(tree, environment)
    block = SelectBlock(environment, sight, tree)
    selected = Selected()
    where = tree.args.get("where")
    if where is not None:
        selected.where = block.expressions.bind(where.this)
    selected.items = items_of(tree, block)
    groups = read_groups(tree, block, selected.items)
    _read_rest(tree, block, selected, groups)
    selected.order = _order_items(tree.args.get("order"), block, selected)
    selected.more = [_order_items(order, block, selected) for order in more]
    _type(block, selected, groups)
    return put_together(tree, block, term, selected, groups)


def _check(tree: exp.Select, environment: Environment) -> None:
    if tree.args.get("sample") is not None:
        why, hint = "its result is random", "leave it out"
        raise environment.notes.refusal("SAMPLE", tree.args["sample"], why, hint)


def _read_rest(tree: exp.Select, block: SelectBlock, selected: Selected, groups: Grouping) -> None:
    having, qualify, distinct = (tree.args.get(key) for key in ("having", "qualify", "distinct"))
    if having is not None:
        with block.columns_first(frozenset(groups.values)):
            selected.having = block.expressions.bind(having.this)
    if qualify is not None:
        selected.qualify = block.expressions.bind(qualify.this)
    if distinct is not None and distinct.args.get("on") is not None:
        selected.on = [_item(node, block, selected.items) for node in distinct.args["on"].expressions]


def _order_items(order: exp.Order | None, block: SelectBlock, selected: Selected) -> list[Sort]:
    """The items of ORDER BY."""
    found: list[Sort] = []
    for item in order.expressions if order is not None else ():
        defaults = block.environment.defaults
        if isinstance(item.this, exp.Var) and item.this.name.upper() == "ALL":
            found += [defaults.written(one.value, item) for one in selected.items]
        else:
            found.append(defaults.written(_item(item.this, block, selected.items), item))
    return found


def _item(node: exp.Expr, block: SelectBlock, items: Sequence[Item]) -> Scalar:
    """An item of ORDER BY: a position, an alias, else an expression, whose names are columns first."""
    place = position(node)
    if place is not None:
        return items[place - 1].value
    if isinstance(node, exp.Column) and len(node.parts) == 1 and not isinstance(node.this, exp.Star):
        name = node.name.casefold()
        if block.has_alias(name):
            return block.alias(name)
    return block.expressions.bind(node)


def _type(block: SelectBlock, selected: Selected, groups: Grouping) -> None:
    """Give all expressions their types, by one question."""
    single = [one for one in (selected.where, selected.having, selected.qualify) if one is not None]
    values = [
        *single, *(one.value for one in selected.items), *(one.value for one in selected.order),
        *(one.value for order in selected.more for one in order), *(selected.on or ()), *groups.values,
        *block.subqueries.untyped(),
    ]  # fmt: skip
    known = dict(zip(values, block.environment.types.typed(values), strict=True))
    selected.where, selected.having, selected.qualify = (
        known[one] if one is not None else None for one in (selected.where, selected.having, selected.qualify)
    )
    selected.items = [Item(one.name, known[one.value], one.is_named) for one in selected.items]
    selected.order = [Sort(known[one.value], one.descending, one.nulls_first) for one in selected.order]
    selected.more = [
        [Sort(known[one.value], one.descending, one.nulls_first) for one in order] for order in selected.more
    ]
    selected.on = [known[one] for one in selected.on] if selected.on is not None else None
    groups.values = [known[one] for one in groups.values]
    block.subqueries.retype(known)


def _alias_nodes(select: exp.Select) -> dict[str, exp.Expr]:
    """What the SELECT list calls by a name; the first of a name wins."""
    found: dict[str, exp.Expr] = {}
    for item in select.expressions:
        if isinstance(item, exp.Alias):
            found.setdefault(item.alias.casefold(), item.this)
    return found
