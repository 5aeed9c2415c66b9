"""A view's query with its orders completed: each item with its direction, what settles the last, the output columns."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from sqlfront.binding.notes import Notes, WrittenOrder
from sqlfront.cut.composed_items import written_tie_breakers
from sqlfront.planner.algebra.terms import Sort
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one


def complete_orders(tree: exp.Expr, notes: Notes, settled: Mapping[int, int]) -> None:
    """Change a query's tree so that its orders leave nothing open.

    `settled` has, by an order's number, how many values settle what ties in its last item.
    """
    for number, order in enumerate(notes.orders):
        if order.moved is None and _decides(order, tree):
            _complete(order, settled.get(number, 0))


def _decides(order: WrittenOrder, tree: exp.Expr) -> bool:
    """Whether an order decides rows, or is the query's own."""
    node = order.node
    return node is tree or isinstance(node, trees.Window) or any(node.args.get(key) for key in ("limit", "offset"))


def _complete(order: WrittenOrder, settled: int) -> None:
    node = order.node
    if isinstance(node, trees.Window) and node.this.name.casefold() != "row_number":
        columns: tuple[str, ...] = ()
    else:
        columns = order.texts
    clause = node.args.get("order")
    items = clause.expressions if clause is not None else []
    found: list[exp.Expr] = []
    if not any(isinstance(item.this, exp.Var) for item in items):
        found += [_ordered(item.this.copy(), sort) for item, sort in zip(items, order.items)]
        if settled:
            last = _written(items[-1].this, node)
            found += [_ordered(_expression(text), order.items[-1]) for text in written_tie_breakers(last)]
    direction = order.columns[0] if order.columns else None
    if direction is not None:
        found += [_ordered(_expression(text), direction) for text in columns]
    node.set("order", exp.Order(expressions=found) if found else None)


def _ordered(this: exp.Expr, sort: Sort) -> exp.Ordered:
    return exp.Ordered(this=this, desc=sort.descending, nulls_first=sort.nulls_first)


def _expression(text: str) -> exp.Expr:
    return parse_one(f"SELECT {text}").expressions[0]


def _written(item: exp.Expr, node: exp.Expr) -> exp.Expr:
    """An item as it is written, in the SELECT list if it names one of its columns."""
    shown = node.args.get("expressions") or []
    if isinstance(item, exp.Literal) and not item.is_string:
        found = shown[int(item.name) - 1]
        return found.this if isinstance(found, exp.Alias) else found
    if isinstance(item, exp.Column) and len(item.parts) == 1:
        name = item.name.casefold()
        named = (one.this for one in shown if isinstance(one, exp.Alias) and one.alias.casefold() == name)
        return next(named, item)
    while isinstance(item, exp.Paren):
        item = item.this
    return item
