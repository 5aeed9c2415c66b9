"""The sub-expressions of an SQL expression that read one text column alone, as SQL of their own.

DuckDB parses the expression, prints its parts and binds each. A part is known by what it means: its bound tree without
names and places in the text. So an optimised tree is found again whatever DuckDB has rewritten around it. Parts of
different texts with one meaning are left out: a bound tree does not tell all (the body of a lambda, say).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlfront.storage.codecs.bound_tree import bind, deserialized, meaning, parsed
from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.sql_text import quote

_MOST = 100
"""Sub-expressions of a column that are bound at most."""
_LEAVES = ("COLUMN_REF", "CONSTANT", "TYPE")
_BEYOND_THE_ROW = ("SUBQUERY", "WINDOW", "PARAMETER", "STAR", "DEFAULT")


@dataclass(frozen=True)
class SubExpression:
    """An expression over one column, whose name in it is `column`, an identifier that the text has nowhere else."""

    text: str
    column: str

    def over(self, name: str) -> str:
        """The expression over a column of this name."""
        return self.text.replace(self.column, quote(name))


def sub_expressions(
    columns: Mapping[str, str], expression: str, settings: Settings, types: tuple[str, ...]
) -> dict[tuple[str, str], SubExpression]:
    """The sub-expressions over one column of one of the `types`, by the name of the column and their `meaning`. Some
    5 ms."""
    names = {name.casefold(): name for name in columns}
    tree = parsed(expression)
    if tree is None or not _is_clear(tree, names):
        return {}
    placeholder = "__text"
    while placeholder in expression.casefold():
        placeholder += "_"
    found = dict[str, list[Any]]()
    for node in _nodes(tree):
        used = {names[one] for one in _columns(node) if one in names}
        if node["class"] not in _LEAVES and len(used) == 1 and columns[name := used.pop()] in types:
            found.setdefault(name, []).append(_over(node, name.casefold(), placeholder))
    result = dict[tuple[str, str], SubExpression]()
    for name, nodes in found.items():
        parts = [SubExpression(text, placeholder) for text in dict.fromkeys(deserialized(nodes[:_MOST]))]
        trees = bind(columns, [part.over(name) for part in parts], settings)
        meanings = [None if bound is None else meaning(bound.tree) for bound in trees]
        result |= {
            (name, told): part
            for part, told in zip(parts, meanings, strict=True)
            if told is not None and meanings.count(told) == 1
        }
    return result


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """The expressions in a tree, but those in lambdas."""
    if isinstance(tree, list):
        for one in tree:
            yield from _nodes(one)
    elif isinstance(tree, dict) and tree.get("class") != "LAMBDA":
        if "class" in tree:
            yield tree
        yield from _nodes(list(tree.values()))


def _columns(tree: Any) -> set[str]:
    """The names in lower case that a tree refers to."""
    if isinstance(tree, list):
        return set[str]().union(*map(_columns, tree))
    if not isinstance(tree, dict):
        return set()
    own = {".".join(tree["column_names"]).casefold()} if tree.get("class") == "COLUMN_REF" else set[str]()
    return own.union(*map(_columns, tree.values()))


def _is_clear(tree: Any, names: Mapping[str, str]) -> bool:
    """Whether each name that is a column's means the column, and nothing reads more than the row."""
    if isinstance(tree, list):
        return all(_is_clear(one, names) for one in tree)
    if not isinstance(tree, dict):
        return True
    if tree.get("class") in _BEYOND_THE_ROW:
        return False
    if tree.get("class") == "LAMBDA" and not _columns(tree["lhs"]).isdisjoint(names):
        return False
    return _is_clear(list(tree.values()), names)


def _over(tree: Any, column: str, placeholder: str) -> Any:
    """The tree over a column of another name."""
    if isinstance(tree, list):
        return [_over(one, column, placeholder) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("class") == "COLUMN_REF" and ".".join(tree["column_names"]).casefold() == column:
        return {**tree, "column_names": [placeholder]}
    return {name: _over(value, column, placeholder) for name, value in tree.items()}
