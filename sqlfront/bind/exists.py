"""`SELECT EXISTS (SELECT ... FROM ...)`: one row, TRUE or FALSE, bound as a count of the inner query's rows."""

from __future__ import annotations

from collections.abc import Callable

from sqlfront.bind.refusals import refusal
from sqlfront.bind.set_operations import as_select
from sqlfront.sql.parse_tree import SourceText, Tree, expression, span, transform, walk


def count_for_exists(node: Tree, is_aggregate: Callable[[str], bool], source: SourceText) -> tuple[Tree, list[Tree]]:
    """A query without FROM over one EXISTS, as `SELECT ... count(*) > 0 ... FROM ...` of the inner query.

    Also the inner SELECT list and groups, whose values do not matter but must be legal; for any other query the query
    itself and nothing. Raises NotSupportedError for an inner query that aggregates or skips rows, and for several.
    """
    found = [part for tree in node.get("select_list", ()) for part in walk(tree) if _is_exists(part)]
    if node["type"] != "SELECT_NODE" or node["from_table"]["type"] != "EMPTY" or not found or _has_clauses(node):
        return node, []
    if len(found) > 1:
        why = "each asks for the rows of a query of its own, and a view is one query"
        hint = "create a view for each, and combine them when you read"
        raise refusal("More than one EXISTS in a SELECT list", source, span(found[1]), why, hint)
    [exists] = found
    inner = as_select(exists["subquery"]["node"])
    if inner["type"] != "SELECT_NODE":  # INTERSECT and the like: refused by its own name.
        return inner, []
    _check_inner(inner, exists, is_aggregate, source)
    place = {name: exists[name] for name in ("alias", "query_location", "query_location_length")}
    count = expression("count(*) > 0") | place
    outer = [transform(tree, lambda part: count if part is exists else None) for tree in node["select_list"]]
    ctes = {"map": [*node["cte_map"]["map"], *inner["cte_map"]["map"]]}
    plain = {"select_list": outer, "cte_map": ctes, "modifiers": [], "group_sets": [], "group_expressions": []}
    return inner | plain, [*inner["select_list"], *inner["group_expressions"]]


def _is_exists(tree: Tree) -> bool:
    return tree["class"] == "SUBQUERY" and tree["subquery_type"] in ("EXISTS", "NOT_EXISTS")


def _has_clauses(node: Tree) -> bool:
    """Whether more than a SELECT list is written."""
    clauses = ("modifiers", "where_clause", "group_sets", "having", "qualify", "sample")
    return any(node[clause] for clause in clauses) or node["aggregate_handling"] != "STANDARD_HANDLING"


def _check_inner(inner: Tree, exists: Tree, is_aggregate: Callable[[str], bool], source: SourceText) -> None:
    parts = [part for tree in inner["select_list"] for part in walk(tree)]
    aggregated = any(part["class"] == "FUNCTION" and is_aggregate(part["function_name"]) for part in parts)
    # There is a group if there is a row, unless one is of no column.
    grouped = any(not columns for columns in inner["group_sets"])
    if grouped or inner["having"] or aggregated or inner["aggregate_handling"] != "STANDARD_HANDLING":
        why = "whether a group passes is an aggregate of its own"
        hint = "create a materialized view of the groups, and a view of EXISTS (FROM it)"
        raise refusal("EXISTS over a query that aggregates", source, span(exists), why, hint)
    for modifier in inner["modifiers"]:
        if modifier["type"].startswith("LIMIT") and not _keeps_a_row(modifier):
            why = "it leaves out rows that would make EXISTS true"
            raise refusal("This LIMIT in EXISTS", source, span(exists), why, "leave LIMIT and OFFSET out")


def _keeps_a_row(limit: Tree) -> bool:
    """Whether LIMIT keeps a row if there is one."""
    literal = (limit.get("limit") or {}).get("literal") or {}
    return not limit.get("offset") and literal.get("kind") == "INTEGER" and literal["text"] != "0"
