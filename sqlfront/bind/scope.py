"""Names in a query: what each FROM item offers, which column a name means, what a star stands for.

A resolved expression refers to columns of atoms only, as COLUMN_REF [atom, column].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlfront.bind.refusals import SESSION_WORDS, refusal, unstable
from sqlfront.sql.parse_tree import (
    LOCATION_KEYS,
    SourceText,
    Tree,
    call,
    children,
    column_ref,
    expression,
    span,
    transform,
)
from sqlfront.storage.errors import NotSupportedError


@dataclass(frozen=True)
class Source:
    """One FROM item: its name, the schema and database it may be qualified with, its columns' resolved trees."""

    name: str
    qualifiers: tuple[str, ...]
    columns: tuple[tuple[str, Tree], ...]

    def column(self, name: str) -> Tree | None:
        return next((tree for column, tree in self.columns if column.lower() == name.lower()), None)


@dataclass
class Scope:
    """The FROM items in sight, in order; `hidden` are the columns USING merged into an earlier one."""

    sources: list[Source] = field(default_factory=list)
    hidden: set[tuple[int, str]] = field(default_factory=set)

    def joined(self, other: Scope) -> Scope:
        """Both scopes, `other` to the right."""
        shift = len(self.sources)
        return Scope([*self.sources, *other.sources], self.hidden | {(i + shift, name) for i, name in other.hidden})

    def inside(self, outer: Scope) -> Scope:
        """For look-ups: these items first, then those that stand to the left of them (SQL's lateral names)."""
        return Scope([*self.sources, *outer.sources], self.hidden) if outer.sources else self

    def column(self, name: str) -> Tree | None:
        """The column an unqualified name means: the leftmost (DuckDB has checked that it is unambiguous)."""
        return next((tree for source in self.sources if (tree := source.column(name)) is not None), None)

    def visible(self) -> list[tuple[str, str, Tree]]:
        """(FROM item, column, tree) for the columns of `*`, in order."""
        return [
            (source.name, *column)
            for i, source in enumerate(self.sources)
            for column in source.columns
            if (i, column[0].lower()) not in self.hidden
        ]


def resolve(tree: Tree, scope: Scope, source: SourceText, aliases: Mapping[str, Tree] | None = None) -> Tree:
    """The expression over atoms' columns. `aliases` are resolved expressions that a bare name may mean after
    columns. Raises NotSupportedError for a name that no FROM item of the scope offers: DuckDB has bound the
    query, so it is a column of an outer query, a pseudo column or a whole row.
    """
    return _resolve(tree, scope, source, aliases or {}, frozenset())


# How the names of the functions that take a lambda end: list_transform, array_filter, apply, ...
_TAKE_LAMBDAS = ("transform", "filter", "reduce", "apply")


def _resolve(
    tree: Tree, scope: Scope, source: SourceText, aliases: Mapping[str, Tree], parameters: frozenset[str]
) -> Tree:
    def argument(entry: Tree) -> Tree:
        tree: Tree = entry["expression"]
        if tree["class"] != "LAMBDA":
            return _resolve(tree, scope, source, aliases, parameters) | {"alias": tree.get("alias", "")}
        inner = parameters | {name.lower() for name in _lambda_parameters(tree)}
        return tree | {"expr": _resolve(tree["expr"], scope, source, aliases, inner)}

    def arrow(node: Tree) -> Tree:
        """DuckDB's parser takes `column -> key` for a lambda; outside a function of lambdas it extracts from JSON."""
        sides = [_resolve(node[side], scope, source, aliases, parameters) for side in ("lhs", "expr")]
        return call("->", *sides, operator=True) | {name: node[name] for name in LOCATION_KEYS}

    def change(node: Tree) -> Tree | None:
        if node["class"] == "FUNCTION" and node["function_name"].lower().endswith(_TAKE_LAMBDAS):
            return node | {"arguments": [entry | {"expression": argument(entry)} for entry in node["arguments"]]}
        if node["class"] == "LAMBDA" and node["syntax_type"] == "SINGLE_ARROW":
            return arrow(node)
        if node["class"] != "COLUMN_REF":
            return None
        names = node["column_names"]
        if names[0].lower() in parameters:
            return node if len(names) == 1 else _fields(column_ref(names[0]), names[1:])
        found = _lookup(names, scope)
        if found is None and len(names) == 1:
            found = aliases.get(names[0].lower())
        if found is None:
            raise _unresolved(node, source)
        return found | {key: node[key] for key in ("query_location", "query_location_length")}

    changed: Tree = transform(tree, change)
    return changed | {"alias": ""}


def expand_star(star: Tree, scope: Scope, source: SourceText) -> list[tuple[str, Tree]]:
    """(name, resolved expression) for each column that `*`, `t.*` or COLUMNS('regex') stands for.

    Raises NotSupportedError for the forms of COLUMNS that need an expression to choose.
    """
    columns = _star_columns(star, scope, source)
    pattern = star.get("expr")
    if pattern is not None:
        if pattern["class"] != "CONSTANT" or pattern["literal"].get("kind") != "STRING":
            why = "only a regular expression can choose columns here"
            raise refusal("This form of COLUMNS", source, span(star), why, "list the columns")
        matches = re.compile(pattern["literal"]["text"])
        columns = [column for column in columns if matches.search(column[1])]
    excluded = [("", name.lower()) for name in star["exclude_list"]]
    excluded += [_qualified(entry) for entry in star.get("qualified_exclude_list", [])]
    replaced = {entry["key"].lower(): entry["value"] for entry in star["replace_list"]}
    renamed = {_qualified(entry["key"]): entry["value"] for entry in star.get("rename_list", [])}
    result = []
    for owner, name, tree in columns:
        spellings = [("", name.lower()), (owner.lower(), name.lower())]
        if any(spelling in excluded for spelling in spellings):
            continue
        if name.lower() in replaced:
            tree = resolve(replaced[name.lower()], scope, source)
        shown = next((renamed[spelling] for spelling in spellings if spelling in renamed), name)
        result.append((shown, tree | {key: star[key] for key in ("query_location", "query_location_length")}))
    return result


def _star_columns(star: Tree, scope: Scope, source: SourceText) -> list[tuple[str, str, Tree]]:
    """(FROM item, column, tree)"""
    wanted = star["relation_name"]
    if not wanted:
        return scope.visible()
    found = next((item for item in scope.sources if item.name.lower() == wanted.lower()), None)
    if found is None:
        why = "the name before .* is not a FROM item"
        raise refusal("A star over a struct", source, span(star), why, "list the fields")
    return [(found.name, name, tree) for name, tree in found.columns]


def _qualified(entry: Tree | str) -> tuple[str, str]:
    """(FROM item or "", column) of an entry of EXCLUDE or RENAME."""
    return ("", entry.lower()) if isinstance(entry, str) else (entry["table"].lower(), entry["column"].lower())


def _lookup(names: list[str], scope: Scope) -> Tree | None:
    """A qualified or bare column, and fields of a struct column after it; tables win over columns as in DuckDB."""
    for depth in range(min(3, len(names) - 1), 0, -1):
        for source in scope.sources:
            path = (*source.qualifiers, source.name)[-depth:]
            if len(path) == depth and [part.lower() for part in path] == [part.lower() for part in names[:depth]]:
                column = source.column(names[depth])
                if column is not None:
                    return _fields(column, names[depth + 1 :])
    column = scope.column(names[0])
    return None if column is None else _fields(column, names[1:])


def _fields(tree: Tree, names: list[str]) -> Tree:
    for name in names:
        tree = call("struct_extract", tree, expression("'" + name.replace("'", "''") + "'"))
    return tree


def _lambda_parameters(node: Tree) -> list[str]:
    left = node.get("lhs")
    if left is None:
        return [str(name) for name in node.get("named_parameters", [])]
    inner = [left, *children(left)]
    return [part["column_names"][0] for part in inner if part["class"] == "COLUMN_REF"]


def _unresolved(node: Tree, source: SourceText) -> NotSupportedError:
    name = ".".join(node["column_names"])
    if name.lower() in SESSION_WORDS:
        return unstable(name, source, span(node))
    return refusal(
        f'"{name}" here',
        source,
        span(node),
        "it is no column of this FROM clause: a pseudo column such as rowid, a whole row, "
        "or a column of an outer query (a lateral join)",
        "name a column of a table in this FROM clause",
    )
