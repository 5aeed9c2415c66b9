"""Rules over the trees of queries, run on their text."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlfront.sql.dialect import parse_one, printed


def rewritten(query: str, *rules: Callable[[exp.Expr], exp.Expr]) -> str:
    """A query after rules, one after the other. ProgrammingError for a syntax error."""
    tree = parse_one(query)
    for rule in rules:
        tree = rule(tree)
    return printed(tree)
