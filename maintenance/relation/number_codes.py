"""The types whose codes are whole numbers: how far they reach, and how many digits are behind the point."""

from __future__ import annotations

from typing import Any

_MAX = 2**63 - 1
INTEGERS = {"HUGEINT": (-_MAX, _MAX), "BOOLEAN": (0, 1)}
"""The least and the greatest code of each type of whole numbers, as far as they fit a word."""
for _bits, _name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INTEGER"), (64, "BIGINT")):
    INTEGERS[_name] = (-(2 ** (_bits - 1)), 2 ** (_bits - 1) - 1) if _bits < 64 else (-_MAX, _MAX)
    if _bits < 64:
        INTEGERS["U" + _name] = (0, 2**_bits - 1)


class Untranslated(Exception):
    """An expression that only DuckDB computes."""


def scale_of(type: str) -> int | None:
    """How many decimal digits a number's code has behind the point; None if the type is no whole number or decimal."""
    if type in INTEGERS:
        return 0
    return int(type[8:-1].split(",")[1]) if type.startswith("DECIMAL(") else None


def bounds(type: str) -> tuple[int, int]:
    """The least and the greatest code of a number's type, as far as they fit a word."""
    if type in INTEGERS:
        return INTEGERS[type]
    high = min(10 ** int(type[8:].split(",")[0]) - 1, _MAX)
    return -high, high


def whole(value: Any) -> int:
    """A whole number as DuckDB stores it in a constant."""
    if isinstance(value, dict):
        value = (value["upper"] << 64) + value["lower"]
    if not isinstance(value, int):
        raise Untranslated
    return int(value)


def alike(left: str, right: str) -> bool:
    """Whether equal codes of two types mean equal values."""
    if left.startswith("DECIMAL(") and right.startswith("DECIMAL("):
        return scale_of(left) == scale_of(right)
    return left == right
