"""What a small query of one view asks for, read off its words: sqlglot, which takes 0.1 s to load, reads other texts.

The grammar is `SELECT item, ... FROM name [[AS] alias] [WHERE column = ? AND ...]`. An item is `*` or a column, with or
without AS. Any other text is left to select_trees.py, which gives the same for each text that both read. Time linear in
the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlfront.sql.keywords import CALLED, OPERATORS, RESERVED
from sqlfront.sql.tokens import Token, tokenize

_NO_NAMES = RESERVED | OPERATORS | CALLED
_MOST_PARTS = 3


@dataclass(frozen=True)
class Column:
    """A column with the table that it is written with, if any; both in lower case."""

    table: str
    name: str


@dataclass(frozen=True)
class Item:
    """An item of SELECT: a column, and the label that AS gives it; all columns if there is no column."""

    column: Column | None
    label: str | None = None


@dataclass(frozen=True)
class ShortSelect:
    """A query of one table: the parts of its name, what columns call the table in lower case, the items, the columns
    that equal parameters (counted from 0), and whether ORDER BY and LIMIT follow, which are not read here."""

    parts: tuple[str, ...]
    table: str
    items: tuple[Item, ...]
    equal: tuple[tuple[Column, int], ...] = ()
    in_order: bool = False


def read_select(shape: str) -> ShortSelect | None:
    """What a text with `?` for each parameter asks for; None for a text beyond the grammar."""
    return _Reader(tokenize(shape)).select()


class _Reader:
    """Reads tokens from left to right. Each method gives None where the text is beyond the grammar."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._at, self._parameters = tokens, 0, 0

    def select(self) -> ShortSelect | None:
        items = self._items() if self._accept("select") else None
        parts = self._name() if items and self._accept("from") else None
        if not items or not parts or len(parts) > _MOST_PARTS:
            return None
        named = self._accept("as")
        alias = self._plain_name()
        if named and alias is None:
            return None
        equal = self._equalities() if self._accept("where") else ()
        if equal is None or self._at < len(self._tokens):
            return None
        return ShortSelect(parts, (alias or parts[-1]).casefold(), items, equal)

    def _items(self) -> tuple[Item, ...] | None:
        found = []
        while True:
            item = Item(None) if self._accept("*") else self._labelled()
            if item is None:
                return None
            found.append(item)
            if not self._accept(","):
                return tuple(found)

    def _labelled(self) -> Item | None:
        column = self._column()
        if column is None or not self._accept("as"):
            return None if column is None else Item(column)
        label = self._plain_name()
        return None if label is None else Item(column, label)

    def _equalities(self) -> tuple[tuple[Column, int], ...] | None:
        found = []
        while True:
            parameter = self._parameter()
            column = self._column() if parameter is None or self._accept("=") else None
            if parameter is None and column is not None and self._accept("="):
                parameter = self._parameter()
            if column is None or parameter is None:
                return None
            found.append((column, parameter))
            if not self._accept("and"):
                return tuple(found)

    def _parameter(self) -> int | None:
        if not self._accept("?"):
            return None
        self._parameters += 1
        return self._parameters - 1

    def _column(self) -> Column | None:
        parts = self._name()
        if parts is None or len(parts) > 2:
            return None
        return Column(parts[0].casefold() if len(parts) == 2 else "", parts[-1].casefold())

    def _name(self) -> tuple[str, ...] | None:
        parts = []
        while (part := self._plain_name()) is not None:
            parts.append(part)
            if not self._accept("."):
                return tuple(parts)
        return None

    def _plain_name(self) -> str | None:
        """A name without quotes that is no keyword but one that names anything, or one with quotes."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or not token.is_name or (token.kind == "word" and token.text.upper() in _NO_NAMES):
            return None
        self._at += 1
        return token.name

    def _accept(self, text: str) -> bool:
        """Go past a keyword in lower case, or a sign."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        found = token is not None and token.kind != "quoted" and token.text.lower() == text
        self._at += found
        return found
