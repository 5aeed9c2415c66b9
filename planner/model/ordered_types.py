"""DuckDB types whose values search trees keep in order after their rows have gone: numbers and times, not texts."""

from __future__ import annotations

NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL", "FLOAT", "DOUBLE")
ORDERED = (*NUMBERS, *(f"U{one}" for one in NUMBERS[:5]), "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
"""Types whose values subtrees know extremes of, and boxes have sums of."""


def family_of(type: str) -> str:
    """The name of a type without its parameters."""
    return type.partition("(")[0]
