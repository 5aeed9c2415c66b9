"""A view's query rewritten so that DuckDB gives the view's answer.

DuckDB leaves open which of several rows wins in ARG_MIN and ARG_MAX; a view takes the least or the greatest value.
DuckDB computes the argument of an aggregate on all rows, even on rows that FILTER leaves out; a view does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlfront.sql.parse_tree import Tree, arguments, expression, render_all, span, try_parse_select

ARGUMENT_OF_EXTREMUM = ("arg_min", "argmin", "min_by", "arg_max", "argmax", "max_by")


def without_ties(query: str) -> str:
    """The query with arg_min(p, q) as arg_min(p, row(q, p)), over the rows where q is not NULL, as before."""
    calls = [call for call in _calls(try_parse_select(query)) if _is_argument_of_extremum(call)]
    return _replaced(query, calls, [_decided(call) for call in calls])


def with_guards(query: str) -> str:
    """The query with sum(x) FILTER (WHERE c) as sum(CASE WHEN c THEN x END) FILTER (WHERE c): c guards x. WHEN
    evaluates the conditions of c one after the other, which FILTER does not."""
    calls = [call for call in _calls(try_parse_select(query)) if call.get("filter")]
    return _replaced(query, calls, [_guarded(call) for call in calls])


def _replaced(query: str, calls: list[Tree], by: list[Tree]) -> str:
    texts = render_all(by)
    for call, text in sorted(zip(calls, texts, strict=True), key=lambda pair: span(pair[0]) or (0, 0), reverse=True):
        start, end = span(call) or (0, 0)
        query = query[:start] + text + query[end:]
    return query


def _guarded(call: Tree) -> Tree:
    condition = expression("CASE WHEN c THEN true ELSE false END", c=call["filter"])
    operands = [
        {**argument, "expression": expression("CASE WHEN c THEN v END", c=condition, v=argument["expression"])}
        for argument in call["arguments"]
    ]
    return {**call, "arguments": operands, "filter": condition, "alias": ""}


def _decided(call: Tree) -> Tree:
    value, by = arguments(call)
    present = expression("v IS NOT NULL", v=by)
    if call["filter"]:
        present = expression("a AND b", a=call["filter"], b=present)
    pair = expression("row(a, b)", a=by, b=value)
    operands = [
        {**argument, "expression": tree} for argument, tree in zip(call["arguments"], (value, pair), strict=True)
    ]
    return {**call, "arguments": operands, "filter": present, "alias": ""}


def _is_argument_of_extremum(call: Tree) -> bool:
    return call["function_name"] in ARGUMENT_OF_EXTREMUM and len(call["arguments"]) == 2


def _calls(tree: Any) -> Iterator[Tree]:
    """The calls of functions, those in subqueries too."""
    if isinstance(tree, dict):
        if tree.get("class") == "FUNCTION":
            yield tree
        for value in tree.values():
            yield from _calls(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _calls(value)
