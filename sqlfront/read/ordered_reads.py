"""`SELECT ... FROM v ORDER BY ... LIMIT k` on a view that keeps this order: its ranked tree gives the first rows.

The view is replaced by a scan of its first k + m rows, or of the first after values that WHERE compares with. DuckDB
filters, sorts and limits those, so that the query's own text decides what it gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.planner.model.query import Limit, is_grouped
from sqlfront.read.constants import constant_of
from sqlfront.read.keyset import after_bound, read_bound
from sqlfront.read.top import within
from sqlfront.read.written_orders import Defaults, defaults_of, position_of, spelled
from sqlfront.sql.parse_tree import Tree, transform, try_parse_select, walk
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
    from sqlfront.maintenance.output.output import crossover

    if not entry.maintained.ranked or is_grouped(entry.definition) or "limit" not in statement.text.lower():
        return None
    node = try_parse_select(statement.text)
    if node is None or not _is_plain(node):
        return None
    orders = [one for m in node["modifiers"] if m["type"] == "ORDER_MODIFIER" for one in m["orders"]]
    limits = [m for m in node["modifiers"] if m["type"] == "LIMIT_MODIFIER"]
    rows = _rows(session, limits[0], params) if len(limits) == 1 else None
    if rows is None or len(node["modifiers"]) != len(limits) + bool(orders):
        return None
    defaults = defaults_of(session.duck)
    wanted = None if defaults.collated else _wanted(node, orders, entry, defaults)
    most = crossover(entry.maintained)
    if wanted is None or (most is not None and rows > most):
        return None
    where = node["where_clause"]
    bound = read_bound(where, lambda tree: constant_of(session.duck, tree, params)) if where else None
    if where and bound is None:
        return None
    fixed = bound.fixed if bound is not None else {}  # All rows have the same value there.
    wanted = [(name, way) for name, way in wanted if name not in fixed]
    for number in entry.maintained.ranked:
        order = entry.definition.orders[number]
        kept = [(name, way) for name, (_, way) in zip(order.served, order.sorting, strict=True) if name not in fixed]
        if wanted == kept[: len(wanted)] and (number == 0 or entry.definition.limit is None):
            after = after_bound(bound, entry, number) if bound is not None else None
            if bound is None or after is not None:
                return number, within(entry, Limit(rows)), after
    return None


def _is_plain(node: Tree) -> bool:
    """Whether a query only projects one table, filtered or not."""
    if node["type"] != "SELECT_NODE" or node["from_table"]["type"] != "BASE_TABLE" or node["cte_map"]["map"]:
        return False
    if node["group_expressions"] or node["having"] or node["qualify"] or node["sample"]:
        return False
    if node["from_table"].get("sample") or node["from_table"].get("column_name_alias"):
        return False
    return all(part["class"] in _PLAIN for tree in node["select_list"] for part in walk(tree))


_PLAIN = {"COLUMN_REF", "STAR"}


def _wanted(
    node: Tree, orders: Sequence[Tree], entry: ViewEntry, defaults: Defaults
) -> list[tuple[str | None, str]] | None:
    """The query's order in the view's column names, with directions; None for what the view cannot know."""
    columns = [name for name, _ in entry.definition.columns]
    names: dict[str, str] = {}
    shown: list[str] = []
    for tree in node["select_list"]:
        if tree["class"] == "STAR":
            if any(value for key, value in tree.items() if key in _STAR_EDITS):
                return None
            shown += columns
            continue
        name = tree["column_names"][-1]
        shown.append(name)
        if tree.get("alias"):
            names[tree["alias"].casefold()] = name
    wanted: dict[str, str] = {}
    for one in orders:
        tree = one["expression"]
        place = position_of(tree)
        if tree["class"] == "STAR" or (place is not None and not 1 <= place <= len(shown)):
            return None
        if place is not None:
            name = shown[place - 1]
        elif tree["class"] == "COLUMN_REF":
            last = tree["column_names"][-1]
            name = names.get(last.casefold(), last) if len(tree["column_names"]) == 1 else last
        elif any(part["class"] == "COLUMN_REF" and part["column_names"][-1].casefold() in names for part in walk(tree)):
            return None
        else:
            name = spelled(transform(tree, _unqualified))
        wanted.setdefault(name.casefold(), defaults.direction(one["type"], one["null_order"]))
    return list(wanted.items())


_STAR_EDITS = ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "expr", "relation_name")


def _unqualified(tree: Tree) -> Tree | None:
    return tree | {"column_names": tree["column_names"][-1:]} if tree["class"] == "COLUMN_REF" else None


def _rows(session: Session, limit: Tree, params: Any) -> int | None:
    """The last row that LIMIT and OFFSET read, counted from the first; None if that is not known here."""
    total = 0
    for name in ("limit", "offset"):
        tree = limit.get(name)
        if tree is None:
            if name == "limit":
                return None
            continue
        value = constant_of(session.duck, tree, params)
        if type(value) is not int or value < 0:
            return None
        total += value
    return total
