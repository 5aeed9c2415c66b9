"""Statements written in another dialect of SQL, as DuckDB would write them: ours by their parts, others whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlfront.sql.recognise import is_own
from sqlfront.storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlglot.errors import SqlglotError
    from sqlglot.expressions import Expr
    from sqlglot.tokens import Token

    from sqlfront.sql.spark_meaning import Columns

_SPARK = {"spark", "databricks"}
_QUERY_WORDS = {"SELECT", "WITH", "FROM", "VALUES", "("}


def dialects() -> tuple[str, ...]:
    """The names that `transpiled` knows: DuckDB's own, and every dialect of sqlglot's."""
    from sqlglot.dialects.dialect import Dialects

    return tuple(sorted(one.value for one in Dialects if one.value))


def transpiled(sql: str, dialect: str | None, columns: Columns | None = None) -> str:
    """One statement of a dialect in DuckDB's words; the query inside a statement of ours is translated in its place.

    `columns` gives the columns of a table, by which a statement of Spark's is understood. ProgrammingError for a syntax
    error, NotSupportedError for a dialect we do not know and for what DuckDB lacks.
    """
    if dialect is None or dialect.lower() == "duckdb":
        return sql
    source = dialect.lower()
    if source not in dialects():
        raise NotSupportedError(f"the dialect {dialect!r} is not supported", hint=f"one of {', '.join(dialects())}")
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tokens = sqlglot.tokenize(sql, read=source)
        begin = _query(tokens) if is_own(sql) else 0
        if begin is None:
            return _renamed(sql, tokens)
        start = tokens[begin].start if tokens else 0
        trees = [tree for tree in sqlglot.parse(sql[start:], read=source) if tree is not None]
    except SqlglotError as error:
        raise _syntax_error(error, source) from error
    if len(trees) != 1:
        raise ProgrammingError(f"one statement at a time, with dialect = {source!r}", hint="execute each by itself")
    tree = trees[0]
    if source in _SPARK:
        from sqlfront.sql.spark_meaning import with_spark_meaning

        tree = with_spark_meaning(tree, sql[start:], source, columns)
    return _renamed(sql[:start], tokens[:begin]) + _duckdb(tree, source)


def _duckdb(tree: Expr, source: str) -> str:
    """A tree in DuckDB's words. NotSupportedError for what sqlglot says DuckDB lacks, and for WITH TIES."""
    from sqlglot import exp
    from sqlglot.errors import ErrorLevel, UnsupportedError

    lost = ""
    if any(options.args.get("with_ties") for options in tree.find_all(exp.LimitOptions)):
        lost = "LIMIT ... WITH TIES"
    try:
        text = tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        lost = str(error)
    if lost:
        hint = "write that part in DuckDB's SQL"
        raise NotSupportedError(f"DuckDB has no words for this statement of {source}", why=lost, hint=hint)
    return text


def _syntax_error(error: SqlglotError, source: str) -> ProgrammingError:
    """sqlglot's error with its place, without the marks for terminals that it puts into its text."""
    from sqlglot.errors import ParseError

    found = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    why = found.get("description") or str(error)
    near = (
        f"line {found['line']}: {found['start_context']}{found['highlight']}{found['end_context']}" if found else None
    )
    return ProgrammingError(f"this is no statement of {source}", where=near, why=why)


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


def _renamed(sql: str, tokens: list[Token]) -> str:
    """The text with names in the dialect's own quotes (backquotes, brackets) in double quotes."""
    from sqlglot.tokens import TokenType

    for token in reversed(tokens):
        if token.token_type is TokenType.IDENTIFIER and sql[token.start] != '"':
            name = token.text.replace('"', '""')
            sql = f'{sql[: token.start]}"{name}"{sql[token.end + 1 :]}'
    return sql
