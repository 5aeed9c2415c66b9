"""Queries that only project, filter, order and limit the rows of one table, with its columns by their own names."""

from __future__ import annotations

import functools

from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.query_trees import SHORT, clauses, column_name, only_table, query_tree

_CLAUSES = {"expressions", "from_", "where", "order", "limit", "offset"}


def plain_read(text: str) -> exp.Select | None:
    """The tree of `SELECT columns FROM table [WHERE ...] [ORDER BY ...] LIMIT ...`, in which no column names its table;
    None for any other text, and for a long one. A text is read once, and nobody changes its tree."""
    return _remembered(text) if len(text) <= SHORT else None


@functools.lru_cache(maxsize=64)
def _remembered(text: str) -> exp.Select | None:
    tree = query_tree(text)
    if not isinstance(tree, exp.Select) or not {"limit"} <= clauses(tree) <= _CLAUSES:
        return None
    table = only_table(tree)
    if table is None:
        return None
    columns = [column for column in tree.find_all(exp.Column) if column.table]
    if any(column.args.get("db") is not None for column in columns):  # A scan has no schema.
        return None
    select = _unqualified(tree, table.alias_or_name.casefold()) if columns else tree
    return select if all(map(_is_plain, select.expressions)) else None


def _unqualified(tree: exp.Select, name: str) -> exp.Select:
    """A copy in which no column names the table, except those of ORDER BY that would then be another item's alias."""
    select = tree.copy()
    others = {
        alias for item in select.expressions if (alias := item.alias.casefold()) != item.unalias().name.casefold()
    }
    for column in list(select.find_all(exp.Column)):
        if column.table.casefold() == name and column.name.casefold() not in others:
            column.replace(exp.Column(this=column.this))
    return select


def _is_plain(item: exp.Expr) -> bool:
    """Whether an item of SELECT is a column or all columns."""
    return (isinstance(item, trees.Star) and not clauses(item)) or column_name(item.unalias()) is not None
