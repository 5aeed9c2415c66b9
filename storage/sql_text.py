"""Names and texts as SQL writes them."""

from __future__ import annotations


def quote(identifier: str) -> str:
    """The identifier in double quotes."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
