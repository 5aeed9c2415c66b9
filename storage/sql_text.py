"""Names and texts as SQL writes them."""

from __future__ import annotations


def quote(identifier: str) -> str:
    """The identifier in double quotes."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """The text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def exact(expression: str, type_: str) -> str:
    """What tells values apart that DuckDB may take for equal: texts by their bytes, intervals as they are written."""
    if type_ == "VARCHAR":
        return f'({expression} COLLATE "binary")'
    return f"CAST({expression} AS VARCHAR)" if "INTERVAL" in type_ else expression
