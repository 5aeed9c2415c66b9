"""What a small query of one view asks for, read off its tree: texts that short_select.py does not read."""

from __future__ import annotations

from sqlglot import exp

from sqlfront.read.short_select import Column, Item, ShortSelect
from sqlfront.sql.query_trees import clauses, column_name, connected, only_table, parameter_name, query_tree

_READ = ({"expressions", "from_"}, {"expressions", "from_", "where"}, {"expressions", "from_", "order", "limit"})


def select_of_tree(shape: str) -> ShortSelect | None:
    """As `short_select.read_select`, with parentheses, aliases without AS, and ORDER BY with LIMIT besides."""
    tree = query_tree(shape)
    table = only_table(tree) if isinstance(tree, exp.Select) else None
    if not isinstance(tree, exp.Select) or table is None or clauses(tree) not in _READ:
        return None
    items = [_item(node) for node in tree.expressions]
    where = tree.args.get("where")
    equal = [_equality(node) for node in connected(where.this, exp.And)] if where else []
    if None in items or None in equal:
        return None
    return ShortSelect(
        tuple(part.name for part in table.parts),
        table.alias_or_name.casefold(),
        tuple(item for item in items if item is not None),
        tuple(pair for pair in equal if pair is not None),
        "order" in clauses(tree),
    )


def _item(node: exp.Expr) -> Item | None:
    if isinstance(node, exp.Star):
        return None if clauses(node) else Item(None)
    column = _column(node.unalias())
    return None if column is None else Item(column, node.alias if isinstance(node, exp.Alias) else None)


def _equality(node: exp.Expr) -> tuple[Column, int] | None:
    if not isinstance(node, exp.EQ):
        return None
    sides = [node.this.unnest(), node.expression.unnest()]
    if isinstance(sides[0], exp.Placeholder):
        sides.reverse()
    column = _column(sides[0])
    if column is None or not isinstance(sides[1], exp.Placeholder):
        return None
    return column, int(parameter_name(sides[1])) - 1


def _column(node: exp.Expr) -> Column | None:
    if isinstance(node, exp.Column) and node.table and clauses(node) == {"this", "table"}:
        return Column(node.table.casefold(), node.name.casefold())
    name = column_name(node)
    return None if name is None else Column("", name)
