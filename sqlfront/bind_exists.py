"""`SELECT EXISTS (SELECT ... FROM ...)`: one row, TRUE or FALSE, bound as a count of the inner query's rows."""

from __future__ import annotations

from collections.abc import Callable

from sqlfront.bind_refusals import refusal
from sqlfront.parse_tree import SourceText, Tree, expression, span, transform, walk


def count_for_exists(node: Tree, is_aggregate: Callable[[str], bool], source: SourceText) -> tuple[Tree, list[Tree]]:
    """A query without FROM over one EXISTS, as `SELECT ... count(*) > 0 ... FROM ...` of the inner query.

    Also the inner SELECT list, whose values do not matter but must be legal; for any other query the query itself
    and nothing. Raises NotSupportedError for an inner query that groups, aggregates or skips rows.
    """
    found = [part for tree in node.get("select_list", ()) for part in walk(tree) if _is_exists(part)]
    if node["type"] != "SELECT_NODE" or node["from_table"]["type"] != "EMPTY" or len(found) != 1 or _has_clauses(node):
        return node, []
    [exists] = found
    inner = exists["subquery"]["node"]
    if inner["type"] != "SELECT_NODE":  # A union and the like: refused by its own name.
        return inner, []
    _check_inner(inner, exists, is_aggregate, source)
    place = {name: exists[name] for name in ("alias", "query_location", "query_location_length")}
    count = expression("count(*) > 0") | place
    outer = [transform(tree, lambda part: count if part is exists else None) for tree in node["select_list"]]
    ctes = {"map": [*node["cte_map"]["map"], *inner["cte_map"]["map"]]}
    return inner | {"select_list": outer, "cte_map": ctes, "modifiers": []}, inner["select_list"]


def _is_exists(tree: Tree) -> bool:
    return tree["class"] == "SUBQUERY" and tree["subquery_type"] in ("EXISTS", "NOT_EXISTS")


def _has_clauses(node: Tree) -> bool:
    """Whether more than a SELECT list is written."""
    clauses = ("modifiers", "where_clause", "group_sets", "having", "qualify", "sample")
    return any(node[clause] for clause in clauses) or node["aggregate_handling"] != "STANDARD_HANDLING"


def _check_inner(inner: Tree, exists: Tree, is_aggregate: Callable[[str], bool], source: SourceText) -> None:
    parts = [part for tree in inner["select_list"] for part in walk(tree)]
    aggregated = any(part["class"] == "FUNCTION" and is_aggregate(part["function_name"]) for part in parts)
    if inner["group_sets"] or inner["having"] or aggregated or inner["aggregate_handling"] != "STANDARD_HANDLING":
        why = "whether a group passes is an aggregate of its own; views on views come later"
        hint = "create a view of the groups, and ask EXISTS (FROM it) when you read"
        raise refusal("EXISTS over a query that groups or aggregates", source, span(exists), why, hint)
    for modifier in inner["modifiers"]:
        if modifier["type"].startswith("LIMIT") and not _keeps_a_row(modifier):
            why = "it leaves out rows that would make EXISTS true"
            raise refusal("This LIMIT in EXISTS", source, span(exists), why, "leave LIMIT and OFFSET out")


def _keeps_a_row(limit: Tree) -> bool:
    """Whether LIMIT keeps a row if there is one."""
    literal = (limit.get("limit") or {}).get("literal") or {}
    return not limit.get("offset") and literal.get("kind") == "INTEGER" and literal["text"] != "0"
