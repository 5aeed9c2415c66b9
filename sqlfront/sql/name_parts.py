"""Names as SQL writes them: words, or anything in double quotes, joined by dots.

The regular expressions find names in statements that need no tree: they may hold a million values.
"""

from __future__ import annotations

import re

NAME = r'(?:"(?:[^"]|"")*"|[^\W\d][\w$]*)'
"""A regular expression for one part of a name."""

TABLE = rf"(?P<table>{NAME}(?:\s*\.\s*{NAME}){{0,2}})"
"""One for a table's name, as the group `table`."""

GAP = r"(?:\s|--[^\n]*\n|/\*.*?\*/)+"
"""One for the spaces and comments between two words."""

OPAQUE = (
    r"(?:\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$"
    r"|--[^\n]*|/\*.*?\*/)"
)
"""One for strings and comments, which hold no names."""

_WHOLE = re.compile(rf"\s*{NAME}\s*(?:\.\s*{NAME}\s*){{0,2}}")
_PART = re.compile(NAME)


def listed(part: str) -> str:
    """A regular expression for one or more of a part, between commas."""
    return rf"{part}(?:\s*,\s*{part})*"


def split_name(text: str) -> list[str]:
    """The parts of `[[catalog.]schema.]name`; none of a text that is no name."""
    return listed_names(text) if _WHOLE.fullmatch(text) else []


def listed_names(text: str) -> list[str]:
    """All names in a text of names and signs."""
    return [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in _PART.findall(text)]
