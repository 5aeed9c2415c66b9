"""The collations of values, which DuckDB keeps in their types, and the keys by which it compares them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlfront.planner.algebra.scalars import Call, Column, Constant, Scalar
from sqlfront.planner.algebra.to_sql import quoted, scalar_sql
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.sql_text import literal

_BYTES = ("binary", "c", "posix")
"""Names of the comparison by bytes, which is that of texts without a collation."""


@dataclass(frozen=True)
class Collation:
    """A text's collation by name; for a nested value its type and the collations of its parts (None: no collation)."""

    name: str
    parts: tuple[tuple[str, Collation | None], ...] = ()


class TextTypes:
    """What DuckDB says of the types of expressions. A cursor of DuckDB's is asked; no table is read."""

    def __init__(self, con: Any) -> None:
        self._con = con
        self._keys: dict[str, str] = {}

    def of(self, expression: str, columns: Iterable[Column]) -> Collation | None:
        """The collation of an expression over columns, whose own collations are written in it."""
        nulls = ", ".join(f"CAST(NULL AS {column.type}) AS {column}" for column in columns)
        plan = self._plan(f"SELECT {expression} FROM (SELECT {nulls or 'NULL AS none'})")
        return _collation_of(_type(plan))

    def of_union(self, left: Collation | None, right: Collation | None, type_: str) -> Collation | None:
        """The collation of a column of a set operation, of columns of one type."""
        if left == right:
            return left
        null = Constant(f"CAST(NULL AS {type_})", type_)
        both = " UNION ALL ".join(f"SELECT {scalar_sql(explicit(null, one))} AS value" for one in (left, right))
        return _collation_of(_type(self._plan(f"SELECT value FROM ({both})")))

    def key(self, value: Scalar, collation: Collation) -> Call:
        """What DuckDB compares in place of a value: its type is left open."""
        form = _mapped("{0}", collation, lambda text, name: self._text_key(name).format(text))
        return Call(form, (value,), "", strict=not collation.parts, can_fail=False)

    def _text_key(self, name: str) -> str:
        """The functions around a text that give the key of a collation."""
        if name not in self._keys:
            plan = self._plan(f"SELECT {_collated('x', name)} = x FROM (SELECT CAST(NULL AS VARCHAR) AS x)")
            node, form = plan["expressions"][0]["children"][0], "{}"
            while "qname" in node:
                form = form.format(f"{node['qname']['path'][-1]}({{}})")
                node = node["children"][0]
            self._keys[name] = form
        return self._keys[name]

    def _plan(self, query: str) -> Any:
        """The projection at the top of DuckDB's plan."""
        text = self._con.execute("SELECT json_serialize_plan(?)", [query]).fetchall()[0][0]
        answer: Any = json.loads(text) if text else {"error": True, "error_message": "it prints no plan"}
        if answer["error"]:
            raise NotSupportedError(
                "This query over texts with a collation is not supported in a view",
                why=f"DuckDB does not tell the collations of its values: {answer['error_message']}",
                hint='take the collation away with COLLATE "binary"',
            )
        plan = answer["plans"][0]
        while plan["type"] != "LOGICAL_PROJECTION":
            [plan] = plan["children"]
        return plan


def _type(plan: Any) -> Any:
    """The type of the only expression of a projection."""
    expression = plan["expressions"][0]
    return expression["return_type"] if "return_type" in expression else expression["value"]["type"]


def explicit(value: Scalar, collation: Collation | None) -> Scalar:
    """A column's value with the collation of its type written out, for DuckDB."""
    if collation is None:
        return value
    return Call(_mapped("{0}", collation, _collated), (value,), value.type, strict=not collation.parts, can_fail=False)


def united(left: Collation | None, right: Collation | None) -> Collation | None:
    """The collation of two values that DuckDB compares: it refuses two that differ."""
    if left is None or right is None:
        return left or right
    parts = ((name, united(one, other)) for (name, one), (_, other) in zip(left.parts, right.parts))
    return Collation(left.name, tuple(parts))


def _collated(text: str, name: str) -> str:
    return f"({text} COLLATE {'.'.join(map(quoted, name.split('.')))})"


def _mapped(text: str, collation: Collation, change: Callable[[str, str], str], depth: int = 0) -> str:
    """A form in which each text with a collation is changed."""
    if not collation.parts:
        return change(text, collation.name)
    if collation.name == "LIST":
        [(_, part)], one = collation.parts, f"e{depth}"
        assert part is not None
        return f"list_transform({text}, LAMBDA {one} : {_mapped(one, part, change, depth + 1)})"
    if collation.name in ("STRUCT", "TUPLE"):
        fields, is_named = [], collation.name == "STRUCT"
        for place, (field, part) in enumerate(collation.parts, 1):
            name = field.replace("{", "{{").replace("}", "}}")
            one = f"struct_extract({text}, {literal(name) if is_named else place})"
            value = one if part is None else _mapped(one, part, change, depth)
            fields.append(f"{quoted(name)} := {value}" if is_named else value)
        return f"CASE WHEN {text} IS NOT NULL THEN {'struct_pack' if is_named else 'row'}({', '.join(fields)}) END"
    raise NotSupportedError(
        f"A comparison of {collation.name}s of texts with a collation is not supported in a view",
        why="DuckDB tells no key by which it compares them",
        hint='compare the texts one by one, or take the collation away with COLLATE "binary"',
    )


def _collation_of(type_: Any) -> Collation | None:
    """The collation in DuckDB's JSON of a type."""
    info = (type_ or {}).get("type_info") or {}
    if info.get("type") == "STRING_TYPE_INFO":
        name = info.get("collation") or _BYTES[0]
        return None if name.lower() in _BYTES else Collation(name)
    held = [(part["first"], _collation_of(part["second"])) for part in info.get("child_types") or ()]
    if info.get("child_type"):
        held.append(("", _collation_of(info["child_type"])))
    return Collation(type_["id"], tuple(held)) if any(part is not None for _, part in held) else None
