"""`Sqlfront`: the dialect of sqlglot that reads DuckDB 2.0's queries and our own statements, and prints them again.

A tree holds what was written: function names, operators, NULL orders and types are DuckDB's to interpret. Every node
that was read has a `span`. A syntax error is a ProgrammingError with a caret. Reading costs 20-40 microseconds a token.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from sqlfront.sql.carets import caret
from sqlfront.sql.operator_reader import SIGNS
from sqlfront.sql.printer import Printer
from sqlfront.sql.statement_reader import StatementReader
from sqlfront.sql.token_reader import Fault
from sqlfront.storage.errors import ProgrammingError

T = TypeVar("T")
_MORE_LEVELS = 20_000
_room, _deep = threading.Lock(), 0
_SURROGATE = re.compile("[\ud800-\udfff]")
_COMPLETE = re.compile(
    r"""[^'"`$/-]+ | (?<=[eE])'(?:[^'\\]|\\.|'')*' | (?<![eE])'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`
      | --[^\n]* | - | /\*.*?\*/ | /(?!\*) | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | \$(?!\w*\$)""",
    re.VERBOSE | re.DOTALL,
)
_IN_NAME = re.compile(r"\w")
_LETTERS_OF_OPERATORS = frozenset("~!@#%^&|`?")


class Sqlfront(DuckDB):
    """DuckDB's dialect with DuckDB's own grammar, extended by our statements."""

    class Tokenizer(DuckDB.Tokenizer):
        """All words are VAR, all operators one token: what a word means is for the parser to say."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {"::": TokenType.DCOLON, ":=": TokenType.COLON_EQ}
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", ("/*", "*/")]
        BYTE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("e'", "'"), ("E'", "'")]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]
        BIT_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("b'", "'"), ("B'", "'")]
        COMMANDS: ClassVar[set[TokenType]] = set()

        def tokenize(self, sql: str) -> list[Token]:
            found = super().tokenize(_masked(sql) if "$" in sql else sql)
            return _joined_signs(_split_numbers(found, sql))

    class Parser(StatementReader):
        """The methods by which sqlglot enters the parser, each handed to the reader of ours."""

        def _parse_statement(self) -> exp.Expr | None:
            while self.accept(";"):
                pass
            tree = self.statement() if self.kind() is not None else None
            if self.kind() is not None:
                self.raise_error("Expected the end of the statement")
            return tree

        def _parse_expression(self) -> exp.Expr | None:
            return self.target()

        def _parse_disjunction(self) -> exp.Expr | None:
            return self.scalar()

    class Generator(Printer):
        pass


_DIALECT = Sqlfront()


def parse(sql: str, shown: str | None = None) -> list[exp.Expr]:
    """The statements of a text: queries, and our own. ProgrammingError with a caret, in the text that is `shown`, for a
    syntax error."""
    if not isinstance(sql, str):
        raise ProgrammingError(f"{sql!r} is no SQL", hint="give the statement as a str")
    if not sql.isascii() and (stray := _SURROGATE.search(sql)):
        raise ProgrammingError("Syntax error: half a character", where=ascii(stray.group()))
    parser = _DIALECT.parser()
    try:
        found = _deeply(lambda: parser.parse(_DIALECT.tokenize(sql), sql))
        return [tree for tree in found if tree is not None]
    except Fault:
        what, start, end = parser.furthest  # type: ignore[attr-defined]
        raise ProgrammingError(f"Syntax error: {what}", where=caret(shown or sql, start, end)) from None
    except SqlglotError:
        start = _unterminated(sql)
        where = caret(shown or sql, start, start + 1)
        raise ProgrammingError("Syntax error: a string, a name or a comment has no end", where=where) from None
    except RecursionError:
        raise ProgrammingError(
            "Syntax error: the statement is nested too deeply", where=caret(shown or sql, 0, 1)
        ) from None


def parse_one(sql: str, shown: str | None = None) -> exp.Expr:
    """The one statement of a text. ProgrammingError for none or several, and for a syntax error."""
    trees = parse(sql, shown)
    if len(trees) != 1:
        raise ProgrammingError(
            "Expected one statement", why=f"{len(trees)} were given.", where=caret(shown or sql, 0, 1)
        )
    return trees[0]


def parse_query(query: str, statement: str, offset: int) -> exp.Expr:
    """The query that stands at `offset` of a statement, whose places are those of the statement."""
    before = "".join("\n" if sign == "\n" else " " for sign in statement[:offset])
    return parse_one(before + query, statement)


def printed(tree: exp.Expr) -> str:
    """The tree as DuckDB's SQL, on one line; our own statements in our own words."""
    return _deeply(lambda: tree.sql(dialect=_DIALECT, copy=False))


def _deeply(call: Callable[[], T]) -> T:
    """What a call returns, made once more with more levels if it nests too deeply for Python's limit."""
    try:
        return call()
    except RecursionError:
        with more_levels():
            return call()


@contextmanager
def more_levels() -> Iterator[None]:
    """Room for deep recursion in the body. Of bodies that overlap, in several threads, the last one takes it back.

    Calls from Python to Python need no stack of C's, so the higher limit is safe.
    """
    global _deep
    with _room:
        _deep += 1
        if _deep == 1:
            sys.setrecursionlimit(sys.getrecursionlimit() + _MORE_LEVELS)
    try:
        yield
    finally:
        with _room:
            _deep -= 1
            if _deep == 0:
                sys.setrecursionlimit(sys.getrecursionlimit() - _MORE_LEVELS)


def _unterminated(sql: str) -> int:
    """Where the string, quoted name or comment begins that has no end."""
    at = 0
    while (part := _COMPLETE.match(sql, at)) is not None:
        at = part.end()
    return at


def _masked(sql: str) -> str:
    """The text with `?1` for a parameter `$1`: sqlglot reads `$1,$` as the opening mark of a string."""

    def text(match: re.Match[str]) -> str:
        lone = match.group() == "$" and not _IN_NAME.match(sql, match.start() - 1)
        return "?" if lone else match.group()

    return _COMPLETE.sub(text, sql)


def _split_numbers(found: list[Token], sql: str) -> list[Token]:
    """0x1F and 0b11 as DuckDB 2.0 reads them: the number 0, and a name; and `$` where it was masked."""
    split: list[Token] = []
    for token in found:
        if token.token_type in (TokenType.HEX_STRING, TokenType.BIT_STRING) and sql[token.start] == "0":
            begin, text = token.start, sql[token.start + 1 : token.end + 1]
            split.append(Token(TokenType.NUMBER, "0", token.line, token.col, begin, begin))
            split.append(Token(TokenType.VAR, text, token.line, token.col, begin + 1, token.end))
        elif token.token_type is TokenType.PLACEHOLDER and sql[token.start] == "$":
            split.append(Token(TokenType.PARAMETER, "$", token.line, token.col, token.start, token.end))
        else:
            split.append(token)
    return split


def _joined_signs(found: list[Token]) -> list[Token]:
    """Signs that touch as one operator, as DuckDB splits them: the longest run, without a sign + or - at its end."""
    joined: list[Token] = []
    index = 0
    while index < len(found):
        end = index
        while end < len(found) and found[end].text in SIGNS and _is_sign(found[end]):
            if end > index and found[end].start != found[end - 1].end + 1:
                break
            end += 1
        if end - index < 2:
            joined.append(found[index])
            index += 1
            continue
        run = "".join(token.text for token in found[index:end])
        if not _LETTERS_OF_OPERATORS & set(run):
            run = run[0] + run[1:].rstrip("+-")
        first, last = found[index], found[index + len(run) - 1]
        joined.append(
            Token(TokenType.OPERATOR, run, first.line, first.col, first.start, last.end) if run[1:] else first
        )
        index += len(run)
    return joined


def _is_sign(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.HEREDOC_STRING)
