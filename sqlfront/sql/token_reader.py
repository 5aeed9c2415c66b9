"""Steps over the tokens of a text: words, signs, names and types, each with its span, each failure with its place.

All words are tokens of one kind here: DuckDB decides by position whether a word is a keyword, and so does this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokens import Token, TokenType

from sqlfront.sql.keywords import OPERATORS, RESERVED, UNITS, UNLABELLED
from sqlfront.sql.trees import SPAN

T = TypeVar("T")
Node = TypeVar("Node", bound=exp.Expr)

TEXTS = frozenset({TokenType.STRING, TokenType.HEREDOC_STRING})
ESCAPED = frozenset({TokenType.BYTE_STRING, TokenType.HEX_STRING, TokenType.BIT_STRING})
_QUOTED = TEXTS | ESCAPED | {TokenType.IDENTIFIER}
_WORDS = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
_LIST_ENDS = frozenset(
    [
        ")",
        "]",
        "}",
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "WINDOW",
        "QUALIFY",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "UNION",
        "EXCEPT",
        "INTERSECT",
    ]
)
_TIGHT = frozenset("()[],.")
_CLOSED = {"(": ")", "[": "]", "{": "}"}


class Fault(ParseError):
    """A syntax error at the token that was read. `TokenReader.furthest` is the error to show."""


class TokenReader(DuckDBParser):
    """The ground of the parser: tokens in, names and types out."""

    furthest: tuple[str, int, int] | None = None
    """The last of the syntax errors met, with its place text[start:end]. No exception, which would keep all frames."""
    queries_read: dict[int, tuple[exp.Subquery, int]]
    """Queries in parentheses by their first token, with the token after them."""

    def reset(self) -> None:
        super().reset()
        self.furthest = None
        self.queries_read = {}
        self._words: list[str] = []

    def _advance_chunk(self) -> None:
        super()._advance_chunk()
        self._words = ["" if token.token_type in _QUOTED else token.text.upper() for token in self._tokens]

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise the fault at a token, by default at the current one."""
        token = token or (self._tokens[self._index] if self._index < len(self._tokens) else None)
        if token is None:
            end = len(self.sql)
            found = f"{message}, found the end of the statement", end, end + 1
        else:
            start, end = token.start, token.end + 1
            found = f'{message}, found "{self.sql[start:end]}"', start, end
        if self.furthest is None or found[1] >= self.furthest[1]:
            self.furthest = found
        raise Fault(found[0])

    def noted(self, first: int, node: Node) -> Node:
        """The node with the span from token `first` to the token before this one."""
        node.meta[SPAN] = (self._tokens[first].start, self._tokens[self._index - 1].end + 1)
        return node

    def attempt(self, method: Callable[[], T]) -> T | None:
        """What `method` reads; None, and the reader where it was, if that is a syntax error."""
        index = self._index
        try:
            return method()
        except Fault:
            self._retreat(index)
            return None

    def token(self, ahead: int = 0) -> str:
        """The word (in upper case) or sign at a token; empty for a quoted one and at the end."""
        index = self._index + ahead
        return self._words[index] if index < len(self._words) else ""

    def kind(self, ahead: int = 0) -> TokenType | None:
        index = self._index + ahead
        return self._tokens[index].token_type if index < len(self._tokens) else None

    def accept(self, *texts: str) -> bool:
        """Step over the words and signs if they come next."""
        if self._words[self._index : self._index + len(texts)] != list(texts):
            return False
        self._advance(len(texts))
        return True

    def accept_any(self, *texts: str) -> str:
        """Step over one of the words or signs, and say which; empty if none comes next."""
        text = self.token()
        if text not in texts or not text:
            return ""
        self._advance()
        return text

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.accept(text):
                self.raise_error(f"Expected {text}")

    def listed(self, item: Callable[[], T]) -> list[T]:
        """item, item, ... with an optional comma at the end, as DuckDB allows."""
        found = [item()]
        while self.accept(","):
            if self.kind() is None or self.token() in _LIST_ENDS:
                break
            found.append(item())
        return found

    def enclosed(self, item: Callable[[], T]) -> list[T]:
        """(item, item, ...)"""
        self.expect("(")
        found = self.listed(item)
        self.expect(")")
        return found

    def source(self, first: int) -> str:
        """The tokens from `first` up to here as written, without comments, with the gaps of a printer."""
        text = ""
        for index in range(first, self._index):
            token = self._tokens[index]
            piece = self.sql[token.start : token.end + 1]
            gap = index > first and self._tokens[index - 1].end + 1 < token.start
            if text.endswith(","):
                gap = True
            elif text.endswith(("(", "[", ".")) or piece in _TIGHT:
                gap = False
            text += f" {piece}" if gap else piece
        return text

    def skip_enclosed(self) -> None:
        """Step over brackets and all inside them."""
        closing = _CLOSED.get(self.token()) or self.raise_error("Expected (")
        self._advance()
        while self.token() != closing:
            if self.kind() is None:
                self.raise_error(f"Expected {closing}")
            if self.token() in _CLOSED:
                self.skip_enclosed()
            else:
                self._advance()
        self._advance()

    def identifier(self, what: str = "a name", barred: frozenset[str] = RESERVED | OPERATORS) -> exp.Identifier:
        """A name: any word that is not barred, or one in quotes."""
        if self.kind() not in _WORDS or (self.token() and self.token() in barred):
            self.raise_error(f"Expected {what}")
        first, quoted = self._index, self.kind() is TokenType.IDENTIFIER
        text = self._curr.text
        self._advance()
        return self.noted(first, exp.Identifier(this=text, quoted=quoted))

    def label(self, what: str = "a name") -> exp.Identifier:
        """A name where every word is one: after AS, after a dot."""
        return self.identifier(what, frozenset())

    def label_or_text(self) -> exp.Identifier:
        """A name after AS, which may be a string."""
        return self._text_name() or self.label()

    def name_or_text(self) -> exp.Identifier:
        """A name, which may be a string."""
        return self._text_name() or self.identifier()

    def _text_name(self) -> exp.Identifier | None:
        if self.kind() not in TEXTS:
            return None
        first, text = self._index, self._curr.text
        self._advance()
        return self.noted(first, exp.Identifier(this=text, quoted=True))

    def bare_label(self) -> exp.Identifier | None:
        """A name without AS, if one follows."""
        if self.kind() not in _WORDS or self.token() in RESERVED | OPERATORS | UNLABELLED:
            return None
        return self.identifier()

    def names(self) -> list[exp.Identifier]:
        """(a, b, ...)"""
        return self.enclosed(self.name_or_text)

    def dotted(self, what: str = "a name") -> list[exp.Identifier]:
        """a.b.c"""
        found = [self.identifier(what)]
        while self.accept("."):
            found.append(self.label(what))
        return found

    def relation(self, what: str = "a table's name") -> exp.Table:
        """[[catalog.]schema.]name; deeper names keep their first parts in `catalog`, joined by Dot."""
        first, parts = self._index, self.dotted(what)
        table = exp.Table(this=parts[-1])
        if len(parts) > 1:
            table.set("db", parts[-2])
        if len(parts) > 2:
            catalog: exp.Expr = parts[0]
            for part in parts[1:-2]:
                catalog = exp.Dot(this=catalog, expression=part)
            table.set("catalog", catalog)
        return self.noted(first, table)

    def type_name(self) -> exp.DataType:
        """A type, as text in `kind`: DuckDB alone knows which types there are."""
        first = self._index
        self._type_variation()
        while self.accept("ARRAY") or self.token() == "[":
            if self.token() == "[":
                self.skip_enclosed()
        data_type = exp.DataType(this=exp.DType.USERDEFINED, kind=self.source(first))
        return self.noted(first, data_type)

    def _type_variation(self) -> None:
        word = self.token()
        if word in ("TIME", "TIMESTAMP") and self.token(1) != ".":
            self._advance()
            self._modifiers()
            if self.token() in ("WITH", "WITHOUT") and self.token(1) == "TIME":
                self._advance()
                self.expect("TIME", "ZONE")
            return
        if word == "INTERVAL":
            self._advance()
            if self.accept_any(*UNITS) and self.accept("TO") and not self.accept_any(*UNITS):
                self.raise_error("Expected a unit")
        elif word == "SETOF":
            self._advance()
            self._type_variation()
            return
        elif word == "UNION" or (self.kind() in _WORDS and word not in RESERVED):
            if word == "NATIONAL":
                self._advance()
            self._advance()
            if word == "DOUBLE":
                self.accept("PRECISION")
            elif word in ("BIT", "CHARACTER", "CHAR", "NATIONAL"):
                self.accept("VARYING")
            while word != "VARIANT" and self.accept("."):  # It is a keyword: what follows the dot is a field.
                self.label("a type's name")
        else:
            self.raise_error("Expected a type")
        self._modifiers()

    def _modifiers(self) -> None:
        if self.token() == "(":
            self.skip_enclosed()
