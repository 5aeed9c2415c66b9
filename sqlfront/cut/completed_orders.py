"""A view's query with its orders completed: each item with its direction, what settles the last, the output columns.

`complete_orders` changes the text as it is written. `complete_term` changes the term, where the query is printed from
its term. `settled` has, by an order's number, how many values settle what ties in its last item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from sqlfront.binding.notes import Notes, WrittenOrder
from sqlfront.cut.composed_items import tie_breakers, written_tie_breakers
from sqlfront.planner.algebra.rewriting import NewColumns, projected, with_changed
from sqlfront.planner.algebra.scalars import Call, Column, Ref, Scalar
from sqlfront.planner.algebra.terms import Filter, Join, Made, Map, Sort, Term, Top, Window, inputs_of, with_inputs
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one


def are_written(notes: Notes, settled: Mapping[int, int]) -> bool:
    """Whether the text of each order has the operands of its tie-breakers, and no column of a query in FROM instead."""
    return all(len(_written_ties(notes.orders[number])) == count for number, count in settled.items())


def complete_orders(tree: exp.Expr, notes: Notes, settled: Mapping[int, int]) -> None:
    """Change a query's tree so that its orders leave nothing open."""
    for number, order in enumerate(notes.orders):
        if order.moved is None and _decides(order, tree):
            _complete(order, settled.get(number, 0))


def complete_term(
    term: Term, notes: Notes, settled: Mapping[int, int], completed: Mapping[Term, Term], new: NewColumns
) -> Term:
    """A term whose orders leave nothing open. `completed` has the operators that DuckDB computes with such orders."""
    found = completed.get(term, term)
    below = [complete_term(one, notes, settled, completed, new) for one in inputs_of(found)]
    found = with_changed(found, below)
    if isinstance(found, Top) and found.written in settled:
        order, rows = _with_ties(found.order, len(notes.orders[found.written].items), found.input, new)
        return projected(replace(found, input=rows, order=order), found.columns)
    if isinstance(found, Window) and len(found.functions) == 1 and found.functions[0].written in settled:
        [one] = found.functions
        order, rows = _with_ties(one.order, len(notes.orders[one.written].items), found.input, new)
        return projected(Window(rows, (replace(one, order=order),)), found.columns)
    return found


def _with_ties(order: tuple[Sort, ...], count: int, rows: Term, new: NewColumns) -> tuple[tuple[Sort, ...], Term]:
    """An order whose last of `count` written items is followed by its tie-breakers, and the rows with these."""
    last = order[count - 1]
    ties, rows = _tie_breakers(last.value, rows, new)
    return (*order[:count], *(replace(last, value=one) for one in ties), *order[count:]), rows


def _tie_breakers(value: Scalar, rows: Term, new: NewColumns) -> tuple[list[Scalar], Term]:
    """The tie-breakers of an item, and the rows with the columns that they read: where a column is the item, they are
    made beside it."""
    if isinstance(value, Call):
        return tie_breakers(value), rows
    if not isinstance(value, Ref):
        return [], rows
    if not isinstance(rows, Map):
        return _below(value.column, rows, new)
    [made] = [one.value for one in rows.made if one.column == value.column]
    ties, below = _tie_breakers(made, rows.input, new)
    more = [Made(new.column("tie", one.type), one) for one in ties]
    return [Ref(one.column) for one in more], Map(below, (*rows.made, *more))


def _below(column: Column, rows: Term, new: NewColumns) -> tuple[list[Scalar], Term]:
    """The same for an operator that hands on columns."""
    inputs = list(inputs_of(rows)) if isinstance(rows, Filter | Join | Top | Window) else []
    for place, one in enumerate(inputs):
        if column in one.columns:
            ties, inputs[place] = _tie_breakers(Ref(column), one, new)
            return ties, with_inputs(rows, inputs)
    return [], rows


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
            found += [_ordered(_expression(text), order.items[-1]) for text in _written_ties(order)]
    direction = order.columns[0] if order.columns else None
    if direction is not None:
        found += [_ordered(_expression(text), direction) for text in columns]
    node.set("order", exp.Order(expressions=found) if found else None)


def _written_ties(order: WrittenOrder) -> list[str]:
    """The tie-breakers of an order's last item, over the names in sight there."""
    items = order.node.args["order"].expressions
    return written_tie_breakers(_written(items[-1].this, order.node))


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
