"""Split SQL text as DuckDB does: strings, dollar quotes, quoted names, nested comments, words, numbers, signs."""

from __future__ import annotations

import re
from typing import NamedTuple

_PIECES = r"""
    (?P<string>  [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' )
  | (?P<quoted>  "(?:[^"]|"")*" )
  | (?P<comment> --[^\n\r]* )
  | (?P<nested>  /\* )
  | (?P<dollar>  \$(?:[^\W\d]\w*)?\$ )
"""
_TOKEN = re.compile(
    _PIECES
    + r"""
  | (?P<space>   [\s\ufeff]+ )
  | (?P<word>    [^\W\d][\w$]* )
  | (?P<number>  \d[\w.]* | \.\d[\w.]* )
  | (?P<parameter> \$\w+ | \? )
  | (?P<sign>    . )
""",
    re.VERBOSE | re.DOTALL,
)
# Runs over everything that cannot end a statement, in one match: no step of Python per string or word.
_RUN = re.compile(
    r"""(?: [^'";$/-]++ | (?<=[^\w$][eE])'(?:[^'\\]|\\.|'')*+' | '(?:[^']|'')*+' | "(?:[^"]|"")*+"
          | --[^\n\r]*+ | -(?!-) | /(?!\*) )*+""",
    re.VERBOSE | re.DOTALL,
)
_DOLLAR_TAG = re.compile(r"(?<![\w$])\$(?:[^\W\d]\w*)?\$")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_IDLE = re.compile(r"(?:[\s\ufeff]+|--[^\n\r]*)*")


class Token(NamedTuple):
    """A token of SQL text and where it stands; `kind` is word, quoted, string, number, parameter or sign."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The word in lower case; empty for anything but an unquoted word."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def name(self) -> str:
        """The identifier that the token spells."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text

    @property
    def value(self) -> str:
        """The text that a string literal spells."""
        if self.text[0] == "$":
            edge = self.text.index("$", 1) + 1
            return self.text[edge:-edge]
        return self.text[1:-1].replace("''", "'")


def tokenize(sql: str, start: int = 0, end: int | None = None) -> list[Token]:
    """The tokens of sql[start:end] without spaces and comments. Time linear in the text.

    An unterminated string or comment becomes one sign token up to the end: DuckDB reports it better.
    """
    end = len(sql) if end is None else end
    tokens = []
    while start < end:
        match = _TOKEN.match(sql, start, end)
        assert match is not None
        kind, stop = match.lastgroup or "sign", match.end()
        if kind == "nested":
            stop = _comment_end(sql, start, end)
        elif kind == "dollar":
            kind, stop = "string", _dollar_end(sql, match.group(), stop, end)
        if kind not in ("space", "comment", "nested"):
            tokens.append(Token(kind, sql[start:stop], start, stop))
        start = stop
    return tokens


def split(sql: str) -> list[tuple[int, int]]:
    """(start, end) of each statement in `sql`, without its semicolon and the space around it; empty ones are left out.

    Time linear in the text, at the speed of a regular expression: no token is built.
    """
    statements, begin, at = [], 0, 0
    while (at := _run_end(sql, at)) < len(sql):
        tag = _DOLLAR_TAG.match(sql, at)
        if sql[at] == ";":
            statements.append((begin, at))
            begin = at = at + 1
        elif sql.startswith("/*", at):
            at = _comment_end(sql, at, len(sql))
        elif tag:
            at = _dollar_end(sql, tag.group(), tag.end(), len(sql))
        elif sql[at] == "$":
            at += 1
        else:
            break
    statements.append((begin, len(sql)))
    return [piece for start, end in statements if (piece := _trimmed(sql, start, end))]


def _run_end(sql: str, at: int) -> int:
    match = _RUN.match(sql, at)
    return match.end() if match else at


def _trimmed(sql: str, start: int, end: int) -> tuple[int, int] | None:
    """The statement without leading spaces and comments and trailing spaces; None when nothing is left."""
    while True:
        match = _IDLE.match(sql, start, end)
        start = match.end() if match else start
        if not sql.startswith("/*", start, end):
            break
        start = _comment_end(sql, start, end)
    while end > start and sql[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


def _comment_end(sql: str, start: int, end: int) -> int:
    """After the comment that opens at `start`; comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(sql, start, end):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return end


def _dollar_end(sql: str, tag: str, start: int, end: int) -> int:
    """After the closing `tag` of a dollar-quoted string."""
    at = sql.find(tag, start, end)
    return end if at < 0 else at + len(tag)
