"""The trees of queries that DuckDB runs as they are written: each text is read once, and nobody changes its tree.

A tree takes about 250 bytes for each character, so only the latest trees of short texts are remembered.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sqlglot import exp

from sqlfront.sql import trees
from sqlfront.sql.dialect import parse
from sqlfront.storage.errors import ProgrammingError

SHORT = 8_000
_NUMBER = "parameter"
_CONSTANTS = (
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Neg,
    exp.Paren,
    exp.Cast,
    exp.DataType,
    trees.EscapedText,
)


def query_tree(text: str) -> exp.Expr | None:
    """The tree of a text that is one query; None for any other text, and for a query that the dialect does not read."""
    return (_remembered if len(text) <= SHORT else _read)(text)


def parameter_name(node: exp.Placeholder) -> str:
    """The name of a query's parameter; that of `?` is its number, counted from "1" as DuckDB counts."""
    return str(node.meta[_NUMBER])


def is_constant(node: exp.Expr) -> bool:
    """Whether an expression is made of literals, signs and casts alone."""
    return all(isinstance(part, _CONSTANTS) for part in node.walk())


def connected(node: exp.Expr | None, by: type[exp.Connector]) -> Iterator[exp.Expr]:
    """The expressions that AND, or OR, connects, in their order and without parentheses; none of None."""
    rest = [] if node is None else [node]
    while rest:
        part = rest.pop().unnest()
        if isinstance(part, by):
            rest += (part.expression, part.this)
        else:
            yield part


def clauses(node: exp.Expr) -> set[str]:
    """The names of the arguments that a node has."""
    return {key for key, value in node.args.items() if value}


def only_table(select: exp.Select) -> exp.Table | None:
    """The table in FROM, if there is nothing else: no join, no sample, no new names of columns."""
    from_ = select.args.get("from_")
    table = from_.this if from_ is not None and not select.args.get("joins") else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    alias = table.args.get("alias")
    renamed = alias is not None and alias.args.get("columns")
    return None if renamed or not clauses(table) <= {"this", "db", "catalog", "alias"} else table


def column_name(node: exp.Expr) -> str | None:
    """The name, in lower case, of a column that is written without its table; None for anything else."""
    node = node.unnest()
    is_column = isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.table
    return node.name.casefold() if is_column else None


def _read(text: str) -> exp.Expr | None:
    try:
        found = parse(text)
    except ProgrammingError:
        return None
    if len(found) != 1 or isinstance(found[0], trees.Own):
        return None
    if "?" in text or "$" in text:
        _name_parameters(found[0])
    return found[0]


def _name_parameters(tree: exp.Expr) -> None:
    """Note the name of each parameter: `?` is the number behind the greatest one before it."""
    last = 0
    for node in sorted(tree.find_all(exp.Placeholder), key=lambda node: trees.span(node) or (0, 0)):
        name = str(node.this)[1:].strip('"') or str(last + 1)
        last = max(last, int(name)) if name.isdecimal() else last
        node.meta[_NUMBER] = name


_remembered = functools.lru_cache(maxsize=64)(_read)
