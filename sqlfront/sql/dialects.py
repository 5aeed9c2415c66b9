"""Statements written in another dialect of SQL, as DuckDB would write them: ours by their parts, others whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlfront.storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlglot.tokens import Token

DIALECTS = ("duckdb", "spark")
_QUERY_WORDS = {"SELECT", "WITH", "FROM", "VALUES", "("}


def to_duckdb(sql: str, dialect: str | None) -> str:
    """One statement of a dialect in DuckDB's words.

    ProgrammingError for a syntax error, NotSupportedError for a dialect we do not know.
    """
    if dialect in (None, "duckdb"):
        return sql
    if dialect != "spark":
        raise NotSupportedError(f"the dialect {dialect!r} is not supported", hint=f"one of {', '.join(DIALECTS)}")
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tokens = sqlglot.tokenize(sql, read="spark")
        begin = _query(tokens) if is_ours(sql) else 0
        if begin is None:
            return _renamed(sql, tokens)
        start = tokens[begin].start if tokens else 0
        found = [text for text in sqlglot.transpile(sql[start:], read="spark", write="duckdb") if text]
    except SqlglotError as error:
        raise ProgrammingError(f"this is no statement of Spark's SQL: {error}") from error
    if len(found) != 1:
        raise ProgrammingError("one statement at a time, with dialect = 'spark'", hint="execute each by itself")
    return _renamed(sql[:start], tokens[:begin]) + found[0]


def is_ours(sql: str) -> bool:
    """Whether a statement is one of sqlfront's own, in any dialect."""
    from sqlfront.sql.statement_head import is_own

    return is_own(sql.replace("`", '"'))


def _query(tokens: list[Token]) -> int | None:
    """Where the query begins in a statement of ours: after AS, or after EXPLAIN (MATERIALIZED)."""
    depth = 0
    for i, token in enumerate(tokens[:-1]):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        word = token.text.upper()
        opens = word == "AS" or (word == ")" and tokens[0].text.upper() == "EXPLAIN")
        if depth == 0 and opens and tokens[i + 1].text.upper() in _QUERY_WORDS:
            return i + 1
    return None


def _renamed(sql: str, tokens: list[Any]) -> str:
    """The text with names in backquotes in double quotes."""
    for token in reversed(tokens):
        if sql[token.start : token.start + 1] == "`":
            name = token.text.replace('"', '""')
            sql = f'{sql[: token.start]}"{name}"{sql[token.end + 1 :]}'
    return sql
