"""The names of DuckDB's nested types, taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_ROWS = ("STRUCT", "TUPLE", "MAP", "UNION")
_NAMED = ("STRUCT", "UNION")
_OPENING, _CLOSING = "([", ")]"
LOOSE_VARIANTS = (
    "DuckDB compares VARIANTs in a UNION or MAP by how they are written, though it takes 1 and 1.0 for equal"
)


@dataclass(frozen=True)
class NestedType:
    """A LIST, ARRAY (of `size` elements), STRUCT, TUPLE, MAP or UNION: the names and types of what it holds.

    The fields of a MAP's entries are key and value.
    """

    name: str
    family: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    size: int = 0


def parse_nested(name: str) -> NestedType | None:
    """A type's name as DuckDB's DESCRIBE writes it; None for types that are not nested."""
    name = name.strip()
    if name.endswith("]"):
        inner, _, size = name[:-1].rpartition("[")
        return NestedType(name, "ARRAY" if size else "LIST", ("l",), (inner,), int(size or 0))
    family, _, held = name.partition("(")
    if family not in _ROWS or not name.endswith(")"):
        return None
    parts = list(_split(held[:-1]))
    if family in _NAMED:
        pairs = [_named(part) for part in parts]
        return NestedType(name, family, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
    names = ("key", "value") if family == "MAP" else tuple_names(len(parts))
    return NestedType(name, family, names, tuple(parts))


def tuple_names(width: int) -> tuple[str, ...]:
    """DuckDB's names for the fields of a TUPLE in Arrow."""
    return tuple(f"element{i}" for i in range(1, width + 1))


def scalar_types(name: str) -> Iterator[str]:
    """The names of the types that are not nested inside a type; its own if it is none."""
    nested = parse_nested(name)
    if nested is None:
        yield name.strip()
        return
    for part in nested.types:
        yield from scalar_types(part)


def has_loose_variants(name: str) -> bool:
    """Whether a type has VARIANTs that DuckDB compares by how they are written: those in a MAP or a UNION."""
    nested = parse_nested(name)
    if nested is None:
        return False
    is_loose = nested.family in ("MAP", "UNION") and "VARIANT" in scalar_types(name)
    return is_loose or any(map(has_loose_variants, nested.types))


def with_fields(value: Any, nested: NestedType) -> Any:
    """A Python value whose tuples are dictionaries, from which alone DuckDB makes a TUPLE."""
    if nested.family == "TUPLE" and isinstance(value, (tuple, list)) and len(value) == len(nested.names):
        value = dict(zip(nested.names, value))
    inner = [parse_nested(type) for type in nested.types]
    if isinstance(value, (list, tuple)) and nested.family in ("LIST", "ARRAY") and inner[0] is not None:
        return [with_fields(one, inner[0]) for one in value]
    if isinstance(value, dict) and nested.family in ("STRUCT", "TUPLE"):
        parts = dict(zip(nested.names, inner))
        return {name: with_fields(one, part) if (part := parts.get(name)) else one for name, one in value.items()}
    return value


def _named(field: str) -> tuple[str, str]:
    """The name and type of a field: `a INTEGER` or `"a b" INTEGER`."""
    if not field.startswith('"'):
        name, _, type = field.partition(" ")
        return name, type.strip()
    end = 1
    while field[end] != '"' or field[end + 1 : end + 2] == '"':
        end += 1 if field[end] != '"' else 2
    return field[1:end].replace('""', '"'), field[end + 1 :].strip()


def _split(text: str) -> Iterator[str]:
    """The parts between the commas that are outside of quotes and parentheses."""
    depth, quote, start = 0, "", 0
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()
