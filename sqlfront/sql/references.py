"""The tables that a statement reads, with their places in its text and the look-ups its conditions allow.

Every query inside a statement is shown to DuckDB's parser. UPDATE, DELETE and MERGE are first
turned into a SELECT of the same length, so that each position stays what it is in the user's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlfront.sql.parse_tree import Tree, arguments, conjuncts, span, try_parse_select, walk
from sqlfront.sql.statements import Equality, PassThrough, TableReference
from sqlfront.sql.tokens import tokenize

_NODE_TYPES = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")


def table_references(statement: PassThrough) -> tuple[TableReference, ...] | None:
    """All tables read, in text order; None when a query in the statement cannot be analysed."""
    found = [TableReference(name.parts, name.start, name.end) for name in statement.named_reads]
    for begin, end, edit in statement.reads:
        text = _query_text(statement.text, begin, end, edit)
        node = None if text is None else try_parse_select(text)
        if text is None or node is None:
            return None
        try:
            found += _of_node(node, frozenset(), text)
        except _NoPlaceError:
            return None
    placeholder = "x" if statement.kind == "merge" or statement.inner == "merge" else None
    kept = [reference for reference in found if not _is_placeholder(reference, statement, placeholder)]
    return tuple(sorted(kept, key=lambda reference: reference.start))


class _NoPlaceError(Exception):
    """DuckDB does not tell where in the text a table is named."""


def _query_text(text: str, begin: int, end: int, edit: str) -> str | None:
    """text[:end] with everything that is no query blanked; same positions as in `text`."""
    if edit == "unknown":
        return None
    query = " " * begin + text[begin:end]
    if "table" in query.lower():
        for token in tokenize(query):
            if (
                token.keyword == "table"
            ):  # DuckDB does not tell where the table of TABLE t stands, as it does for FROM t.
                query = f"{query[: token.start]}FROM {query[token.end :]}"
    if edit:
        first, last, replacement = edit.split(":", 2)
        width = int(last) - int(first)
        if len(replacement) > width:
            return None
        query = query[: int(first)] + replacement.ljust(width) + query[int(last) :]
    return query


def _is_placeholder(reference: TableReference, statement: PassThrough, placeholder: str | None) -> bool:
    """The name that stands for MERGE's target in the rewritten text."""
    written = statement.text[reference.start : reference.end]
    return placeholder is not None and reference.parts == (placeholder,) and written != placeholder


def _of_node(node: Tree, ctes: frozenset[str], text: str) -> list[TableReference]:
    """References of a query node; names in `ctes` are common table expressions."""
    ctes, found = _ctes(node, ctes, text)
    if node["type"] != "SELECT_NODE":
        for child in _child_nodes(node):
            names = ctes | {str(node.get("cte_name", "")).lower()} if "CTE" in node["type"] else ctes
            found += _of_node(child, names, text)
        return found
    conditions = conjuncts(node["where_clause"])
    items = list(_from_items(node["from_table"], True))
    conditions += [part for item, inner in items if inner and item["type"] == "JOIN" for part in _on(item)]
    tables = [item for item, _ in items if item["type"] in ("BASE_TABLE", "SUBQUERY", "TABLE_FUNCTION")]
    for item, inner in items:
        if item["type"] == "BASE_TABLE" and not _is_cte(item, ctes):
            equalities = _equalities(item, conditions, len(tables) == 1, text) if inner else ()
            found += _reference(item, equalities, text)
        elif item["type"] == "SUBQUERY":
            found += _of_node(item["subquery"]["node"], ctes, text)
    for nested in _nested_nodes([value for key, value in node.items() if key not in ("from_table", "cte_map")]):
        found += _of_node(nested, ctes, text)
    for item, _ in items:
        rest = [value for key, value in item.items() if key not in ("left", "right", "subquery", "source")]
        for nested in _nested_nodes(rest):
            found += _of_node(nested, ctes, text)
    return found


def _ctes(node: Tree, ctes: frozenset[str], text: str) -> tuple[frozenset[str], list[TableReference]]:
    """The names in sight after WITH, and what the CTEs themselves read; each sees those before it."""
    found: list[TableReference] = []
    for entry in node["cte_map"]["map"]:
        query, name = entry["value"]["query_node"], entry["key"].lower()
        inside = ctes | {name} if "RECURSIVE" in query["type"] else ctes
        found += _of_node(query, inside, text)
        ctes = ctes | {name}
    return ctes, found


def _child_nodes(node: Tree) -> Iterator[Tree]:
    for key, value in node.items():
        if key == "cte_map":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict) and child.get("type") in _NODE_TYPES:
                yield child


def _from_items(item: Tree, inner: bool) -> Iterator[tuple[Tree, bool]]:
    """Every FROM item, and whether all joins around it are inner."""
    yield item, inner
    if item["type"] == "JOIN":
        inner = inner and item["join_type"] == "INNER" and item["ref_type"] in ("REGULAR", "NATURAL", "CROSS")
        yield from _from_items(item["left"], inner)
        yield from _from_items(item["right"], inner)
    elif item["type"] == "PIVOT":
        yield from _from_items(item["source"], False)


def _on(join: Tree) -> list[Tree]:
    inner = join["join_type"] == "INNER" and join["ref_type"] == "REGULAR"
    return conjuncts(join["condition"]) if inner else []


def _nested_nodes(tree: Any) -> Iterator[Tree]:
    """Query nodes of subqueries in expressions."""
    if isinstance(tree, dict):
        if tree.get("type") in _NODE_TYPES:
            yield tree
            return
        for value in tree.values():
            yield from _nested_nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nested_nodes(value)


def _is_cte(item: Tree, ctes: frozenset[str]) -> bool:
    return not item["schema_name"] and not item["catalog_name"] and item["table_name"].lower() in ctes


def _reference(item: Tree, equalities: tuple[Equality, ...], text: str) -> list[TableReference]:
    place = span(item)
    if place is None:
        raise _NoPlaceError
    parts = tuple(part for part in (item["catalog_name"], item["schema_name"], item["table_name"]) if part)
    end = place[0]
    for token in tokenize(text, place[0], place[1])[: 2 * len(parts) - 1]:
        end = token.end
    return [TableReference(parts, place[0], end, item["alias"] or None, equalities)]


def _equalities(item: Tree, conditions: list[Tree], alone: bool, text: str) -> tuple[Equality, ...]:
    """column = constant or parameter, for columns that surely belong to the reference."""
    name = (item["alias"] or item["table_name"]).lower()
    found = []
    for condition in conditions:
        if condition["type"] != "COMPARE_EQUAL":
            continue
        left, right = (
            arguments(condition) if condition["class"] == "FUNCTION" else (condition["left"], condition["right"])
        )
        for column, value in ((left, right), (right, left)):
            names = column.get("column_names") if column["class"] == "COLUMN_REF" else None
            if not names or not ((len(names) == 1 and alone) or (len(names) == 2 and names[0].lower() == name)):
                continue
            if equality := _equality(names[-1], value, text):
                found.append(equality)
    return tuple(found)


def _equality(column: str, value: Tree, text: str) -> Equality | None:
    if value["class"] == "PARAMETER":
        return Equality(column, "", value["identifier"])
    place = span(value)
    if place is None or any(node["class"] not in ("CONSTANT", "CAST", "TYPE") for node in walk(value)):
        return None
    return Equality(column, text[place[0] : place[1]])
