"""Names as SQL writes them."""

from __future__ import annotations


def quote(identifier: str) -> str:
    """The identifier in double quotes."""
    return '"' + identifier.replace('"', '""') + '"'
