"""ARG_MIN and ARG_MAX without ties: DuckDB leaves open which row wins; a view takes the least or the greatest value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlfront.bind.aggregates import ARGUMENT_OF_EXTREMUM
from sqlfront.sql.parse_tree import Tree, arguments, expression, render_all, span, try_parse_select


def without_ties(query: str) -> str:
    """The query with arg_min(p, q) as arg_min(p, row(q, p)), over the rows where q is not NULL, as before."""
    calls = list(_calls(try_parse_select(query)))
    texts = render_all([_decided(call) for call in calls])
    for call, text in sorted(zip(calls, texts, strict=True), key=lambda pair: span(pair[0]) or (0, 0), reverse=True):
        start, end = span(call) or (0, 0)
        query = query[:start] + text + query[end:]
    return query


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


def _calls(tree: Any) -> Iterator[Tree]:
    """The calls of two arguments, those in subqueries too."""
    if isinstance(tree, dict):
        if tree.get("function_name") in ARGUMENT_OF_EXTREMUM and len(tree["arguments"]) == 2:
            yield tree
        for value in tree.values():
            yield from _calls(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _calls(value)
