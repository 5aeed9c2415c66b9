"""`SELECT ... FROM v ORDER BY ... LIMIT k` on a view that keeps this order: its ranked tree gives the first rows.

The view is replaced by a scan of its first k + m rows, or of the first after values that WHERE compares with. DuckDB
filters, sorts and limits those, so that the query's own text decides what it gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.planner.model.query import Limit, is_grouped
from sqlfront.read.constants import constant_of
from sqlfront.read.keyset import after_bound, read_bound
from sqlfront.read.order_defaults import defaults_of
from sqlfront.read.plain_reads import plain_read
from sqlfront.read.top import within
from sqlfront.read.written_orders import position_of, spelled
from sqlfront.sql.query_trees import column_name
from sqlfront.sql.statements import PassThrough

if TYPE_CHECKING:
    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.ranked.keyset_start import KeysetBound


def served_limit(
    session: Session, statement: PassThrough, entry: ViewEntry, params: Any
) -> tuple[int, Limit, KeysetBound | None] | None:
    """The number of a ranked order of the view, how many of its rows the query reads, and after which values if it has
    a WHERE; None if it reads others."""
    if not entry.maintained.ranked:
        return None
    select = plain_read(statement.text)
    limit = None if select is None else limit_of(session, select, entry, params)
    wanted = None if select is None or limit is None else _wanted(session, select, entry)
    if select is None or limit is None or wanted is None:
        return None
    where = select.args.get("where")
    bound = read_bound(where.this, lambda node: constant_of(session.duck, node, params)) if where else None
    if where and bound is None:
        return None
    fixed = bound.fixed if bound is not None else {}  # All rows have the same value there.
    for number in entry.maintained.ranked:
        if _begins(wanted, entry, number, fixed) and (number == 0 or entry.definition.limit is None):
            after = after_bound(bound, entry, number) if bound is not None else None
            if bound is None or after is not None:
                return number, limit, after
    return None


def read_in_order(session: Session, text: str, entry: ViewEntry) -> exp.Select | None:
    """The tree of a query without a WHERE for first rows in the view's first order; None for another."""
    select = plain_read(text)
    if select is None or select.args.get("where") or not entry.definition.orders:
        return None
    wanted = _wanted(session, select, entry)
    return select if wanted is not None and _begins(wanted, entry, 0, {}) else None


def limit_of(session: Session, select: exp.Select, entry: ViewEntry, params: Any) -> Limit | None:
    """The first rows of the view's order that a query reads; None if these are better found otherwise."""
    from sqlfront.maintenance.output.output import is_sooner_in_order

    rows = _rows(session, select, params)
    if rows is None or not is_sooner_in_order(entry.maintained, rows):
        return None
    return within(entry, Limit(rows))


def _begins(wanted: Sequence[tuple[str, str]], entry: ViewEntry, number: int, fixed: Mapping[str, Any]) -> bool:
    """Whether one of the view's orders begins with an order, but for columns with one value."""
    order = entry.definition.orders[number]
    asked = [(name, way) for name, way in wanted if name not in fixed]
    kept = [(name, way) for name, (_, way) in zip(order.served, order.sorting, strict=True) if name not in fixed]
    return asked == kept[: len(asked)]


def _wanted(session: Session, select: exp.Select, entry: ViewEntry) -> list[tuple[str, str]] | None:
    """The query's order in the view's column names, with directions; None for an order that the view cannot know."""
    defaults = defaults_of(session)
    if is_grouped(entry.definition) or defaults.collated or entry.definition.collations:
        return None
    columns = [name.casefold() for name, _ in entry.definition.columns]
    expressions = {name for order in entry.definition.orders for name in order.served if name} - set(columns)
    names: dict[str, str] = {}
    shown: list[str] = []
    for item in select.expressions:
        name = column_name(item.unalias())
        shown += columns if name is None else [name]
        if name is not None and item.alias:
            names[item.alias.casefold()] = name
    wanted: dict[str, str] = {}
    for item in select.args["order"].expressions if select.args.get("order") else ():
        name = _ordered_by(item.this.unnest(), names, shown)
        if name is None and expressions:
            name = _spelled(session, item.this, names)
        if name is None:
            return None
        wanted.setdefault(name, defaults.direction(item.args.get("desc"), item.args.get("nulls_first")))
    return list(wanted.items())


def _ordered_by(node: exp.Expr, names: Mapping[str, str], shown: Sequence[str]) -> str | None:
    """The view's column that an item of ORDER BY is: `names` are those that SELECT gives, `shown` its columns in turn;
    None for an expression, and for a place that there is not."""
    place, column = position_of(node), column_name(node)
    if place is not None:
        return shown[place - 1] if 1 <= place <= len(shown) else None
    return None if column is None else names.get(column, column)


def _spelled(session: Session, node: exp.Expr, names: Mapping[str, str]) -> str | None:
    """An expression over the view's own columns; None for one that reads those that SELECT gives, and for ALL."""
    if isinstance(node, exp.Var) or any(part.name.casefold() in names for part in node.find_all(exp.Column)):
        return None
    return spelled(session.duck, node)


def _rows(session: Session, select: exp.Select, params: Any) -> int | None:
    """The last row that LIMIT and OFFSET read, counted from the first; None if that is not known here."""
    total = 0
    for clause in (select.args["limit"], select.args.get("offset")):
        if clause is None:
            continue
        value = constant_of(session.duck, clause.expression, params)
        if type(value) is not int or value < 0 or clause.args.get("limit_options"):
            return None
        total += value
    return total
