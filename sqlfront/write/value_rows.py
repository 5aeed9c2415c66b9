"""The rows of an INSERT ... VALUES whose shape has nothing but literals and parameters for values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlfront.read.comparing import is_same
from sqlfront.sql.name_parts import NAME, TABLE, listed, listed_names

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Column

_VALUE = r"(?:-\s*\?|\?|null\b)"
_ROW = rf"\(\s*{listed(_VALUE)}\s*\)"
_INSERT = re.compile(
    rf"\s*insert\s+into\s+{TABLE}\s*(?:\(\s*(?P<columns>{listed(NAME)})\s*\)\s*)?"
    rf"values\s*(?P<rows>{listed(_ROW)})\s*;?\s*",
    re.IGNORECASE,
)
_ROWS, _VALUES = re.compile(_ROW, re.IGNORECASE), re.compile(_VALUE, re.IGNORECASE)


@dataclass(frozen=True)
class Given:
    """A value of a text: NULL (`place` is None), or the parameter at a place of its shape, perhaps with a minus."""

    place: int | None
    negative: bool = False

    def value(self, values: Sequence[Any]) -> Any:
        if self.negative:
            return -values[self.place or 0]
        return None if self.place is None else values[self.place]


GivenRows = tuple[tuple[Given, ...], ...]


def given_rows(shape: str, every: Sequence[str], wanted: Sequence[Column]) -> GivenRows | None:
    """The rows of a shape as values of the `wanted` columns, of a table that has `every` one of these; None if the text
    is another, or leaves a wanted column to its default."""
    found = _INSERT.fullmatch(shape)
    if found is None:
        return None
    places = iter(range(len(shape)))
    rows = [tuple(given(value, places) for value in _VALUES.findall(row)) for row in _ROWS.findall(found["rows"])]
    known = [name.casefold() for name in every]
    named = [name.casefold() for name in listed_names(found["columns"] or "")] or known
    names = [column.name.casefold() for column in wanted]
    if len(set(named)) < len(named) or not set(names) <= set(named) <= set(known):
        return None
    if any(len(row) != len(named) for row in rows):
        return None
    return tuple(tuple(row[named.index(name)] for name in names) for row in rows)


def columns_named(shape: str) -> list[str]:
    """The columns that an INSERT ... VALUES names; none if it names none."""
    found = _INSERT.fullmatch(shape)
    return listed_names(found["columns"] or "") if found else []


def exact_rows(rows: GivenRows, columns: Sequence[Column], values: Sequence[Any]) -> list[tuple[Any, ...]] | None:
    """The rows with their values; None if DuckDB would make other ones of these, or refuse one."""
    try:
        found = [tuple([item.value(values) for item in row]) for row in rows]
    except TypeError:  # A minus before a string.
        return None
    for row in found:
        for column, value in zip(columns, row, strict=True):
            if is_same(column.type, value) is not True or (value is None and column.not_null):
                return None
    return found


def given(text: str, places: Iterator[int]) -> Given:
    """A value as it stands in a shape, with the next of the places if it is a parameter."""
    return Given(next(places), text.startswith("-")) if "?" in text else Given(None)
