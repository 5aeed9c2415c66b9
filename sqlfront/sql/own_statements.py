"""Our own statements as frozen data, made from the trees that the dialect reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sqlglot import exp

from sqlfront.sql import statements as own
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one
from sqlfront.sql.statements import ColumnDefinition, Name, Statement
from sqlfront.sql.trees import Span

Options = tuple[tuple[str, Any], ...]

_NAME_PARTS = ("catalog", "db", "this")


def read_own(text: str, start: int) -> Statement:
    """A statement of ours. ProgrammingError, with a caret, for a syntax error in it or in its query."""
    tree = parse_one(text)
    return _FACTS[type(tree)](text, start, tree)


def _create_view(text: str, start: int, tree: exp.Expr) -> own.CreateMaterializedView:
    query = tree.args["query"].pop()
    begin, columns = _span(query)[0], _names(tree.args["columns"])
    name, options = _name(tree.this), _options(tree, "options")
    conditions = _conditions(tree)
    return own.CreateMaterializedView(text, start, name, text[begin:], begin, columns, options, *conditions, [query])


def _create_table(text: str, start: int, tree: exp.Expr) -> Statement:
    key = tree.args.get("primary_key")
    primary_key = _names(key.expressions) if key is not None else ()
    source = tree.args.get("source")
    return own.CreateChangeTable(
        text,
        start,
        _name(tree.this),
        tuple(_column(text, column, primary_key) for column in tree.expressions),
        primary_key,
        tuple(_names(unique.expressions) for unique in tree.args.get("unique") or []),
        _options(tree, "options"),
        *_conditions(tree),
        source.name.lower() if source is not None else None,
        _options(tree, "source_options"),
        _span(source) if source is not None else None,
    )


def _column(text: str, column: exp.Expr, primary_key: tuple[str, ...]) -> ColumnDefinition:
    default = column.args.get("default")
    return ColumnDefinition(
        column.name,
        text[slice(*_span(column.args["kind"]))],
        bool(column.args.get("not_null")) or column.name in primary_key,
        text[slice(*_span(default))] if default is not None else None,
    )


def _create_index(text: str, start: int, tree: exp.Expr) -> Statement:
    order = text[_span(tree.expressions[0])[0] : _span(tree.expressions[-1])[1]]
    flags = (bool(tree.args.get(flag)) for flag in ("if_not_exists", "unique", "using"))
    return own.CreateViewIndex(text, start, tree.name, _name(tree.args["table"]), order, *flags)


def _drop(text: str, start: int, tree: exp.Expr) -> Statement:
    if tree.args["kind"] == "INDEX":
        return own.DropViewIndex(text, start, _name(tree.this))
    kind = own.DropChangeTable if tree.args["kind"] == "CHANGE TABLE" else own.DropMaterializedView
    return kind(text, start, _name(tree.this), bool(tree.args["if_exists"]), bool(tree.args["cascade"]))


def _refresh(text: str, start: int, tree: exp.Expr) -> Statement:
    names = tuple(map(_name, tree.expressions))
    if tree.args["kind"] == "CHANGE TABLE":
        return own.RefreshChangeTables(text, start, names)
    return own.RefreshMaterializedView(text, start, names[0])


def _show(text: str, start: int, tree: exp.Expr) -> Statement:
    if tree.args["kind"] == "STATE":
        return own.ShowState(text, start, _name(tree.this) if tree.this else None)
    if tree.args["kind"] == "ERRORS":
        return own.ShowErrors(text, start, _name(tree.this))
    return _SHOWN[tree.args["kind"]](text, start)


def _explain_query(text: str, start: int, tree: exp.Expr) -> Statement:
    begin = _span(tree.args["query"])[0]
    return own.ExplainMaterialized(text, start, text[begin:], begin, _options(tree, "options"))


def _explain_creation(text: str, start: int, tree: exp.Expr) -> Statement:
    return own.ExplainCreation(text, start, _create_view(text, start, tree.this))


def _explain_algebra(text: str, start: int, tree: exp.Expr) -> Statement:
    begin = _span(tree.args["query"])[0]
    return own.ExplainAlgebra(text, start, text[begin:], begin)


def _with_options(
    kind: Callable[[str, int, Name, Options], Statement], text: str, start: int, tree: exp.Expr
) -> Statement:
    return kind(text, start, _name(tree.this), _options(tree, "options"))


def _name(node: exp.Expr) -> Name:
    parts = (node.args.get(part) for part in _NAME_PARTS)
    return Name(tuple(part.name for part in parts if part is not None), *_span(node))


def _names(nodes: Iterable[exp.Expr]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _span(node: exp.Expr) -> Span:
    span = trees.span(node)
    assert span is not None
    return span


def _conditions(tree: exp.Expr) -> tuple[bool, bool]:
    """OR REPLACE, IF NOT EXISTS"""
    return bool(tree.args.get("or_replace")), bool(tree.args.get("if_not_exists"))


def _options(tree: exp.Expr, key: str) -> Options:
    return tuple((option.this.name, _value(option.expression)) for option in tree.args.get(key) or [])


def _value(node: exp.Expr) -> Any:
    """An option's value as Python's."""
    if isinstance(node, exp.Neg):
        return -_value(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        digits = node.name.replace("_", "")
        return int(digits) if digits.isdigit() else float(digits)
    return node.this


_SHOWN: dict[str, Callable[[str, int], Statement]] = {
    "CHANGE TABLES": own.ShowChangeTables,
    "MATERIALIZED VIEWS": own.ShowMaterializedViews,
    "EPOCHS": own.ShowEpochs,
}
_FACTS: dict[type[exp.Expr], Callable[[str, int, exp.Expr], Statement]] = {
    trees.CreateMaterializedView: _create_view,
    trees.CreateChangeTable: _create_table,
    trees.CreateViewIndex: _create_index,
    trees.Drop: _drop,
    trees.Refresh: _refresh,
    trees.AlterMaterializedView: partial(_with_options, own.AlterMaterializedView),
    trees.RenameMaterializedView: lambda text, start, tree: own.RenameMaterializedView(
        text, start, _name(tree.this), tree.args["to"].name
    ),
    trees.SetOwn: lambda text, start, tree: own.SetOwn(text, start, tree.name, _value(tree.expression)),
    trees.ShowOwn: _show,
    trees.ExplainMaterializedView: partial(_with_options, own.ExplainMaterializedView),
    trees.ExplainMaterialized: _explain_query,
    trees.ExplainCreation: _explain_creation,
    trees.ExplainAlgebra: _explain_algebra,
    trees.CheckMaterializedView: lambda text, start, tree: own.CheckMaterializedView(text, start, _name(tree.this)),
    trees.Subscribe: partial(_with_options, own.Subscribe),
}
