"""The naive oracle of ranked enumeration: join everything, sort it, take the first rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

Row = tuple[Any, ...]


def naive_top(
    tables: Sequence[Sequence[Row]], joins: Callable[[Sequence[Row]], bool], key: Callable[[Sequence[Row]], Any]
) -> list[tuple[Row, ...]]:
    """All combinations of one row per table that join, in the order of their keys."""
    return sorted((rows for rows in product(*tables) if joins(rows)), key=key)
