"""The collations of values, which DuckDB keeps in their types, and the keys by which it compares them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sqlfront.planner.algebra.scalars import Call, Column, Constant, Ref, Scalar
from sqlfront.planner.algebra.to_sql import quoted, scalar_sql
from sqlfront.storage.codecs.nested_types import parse_nested
from sqlfront.storage.errors import NotSupportedError
from sqlfront.storage.sql_text import literal

_BINARY = ("binary", "c", "posix")
"""Names of the comparison by bytes, which is that of texts without a collation."""


_BY_BYTES = ("MAP", "UNION", "VARIANT")
"""The types in which DuckDB compares texts by their bytes."""
_NOT_WRITTEN = ("UNION", "VARIANT")


@dataclass(frozen=True)
class Collation:
    """A text's collation by name; for a nested value its type and the collations of its parts (None: no collation)."""

    name: str
    parts: tuple[tuple[str, Collation | None], ...] = ()
    is_json: bool = False


INTERVAL_KEY = "normalized_interval({0})"
LENGTH = Collation("")
"""The collation of an INTERVAL, which has no name: DuckDB compares the lengths of 30 days and 1 month."""


class TextTypes:
    """What DuckDB says of the types of expressions. A cursor of DuckDB's is asked; no table is read. `default` is the
    session's default_collation, by which DuckDB compares texts whose type has no collation."""

    def __init__(self, con: Any, default: str) -> None:
        self._con, self.default = con, default
        self._keys: dict[str, str] = {}
        self._filled: dict[tuple[str, Collation | None], Collation | None] = {}

    def of(self, expression: str, columns: Iterable[Column], default: str = "") -> Collation | None:
        """The collation of an expression over columns, whose own collations are written in it."""
        nulls = ", ".join(f"CAST(NULL AS {column.type}) AS {column}" for column in columns)
        plan = self._plan(f"SELECT {expression} FROM (SELECT {nulls or 'NULL AS none'})")
        return _collation_of(_type(plan), default)

    def compared(self, value: Scalar, collation: Collation | None) -> Collation | None:
        """What decides a comparison of values of a type, whose own collation is given; None: their bytes."""
        return _with_lengths(_deciding(self.filled(value, collation)), value.type)

    def decides(self, value: Scalar, collation: Collation | None) -> bool:
        """Whether the collation of a text decides a comparison."""
        return _deciding(self.filled(value, collation)) is not None

    def filled(self, value: Scalar, collation: Collation | None) -> Collation | None:
        """A value's own collation, and the default for its other texts."""
        if not self.holds_text(value):
            return collation
        asked = value.type, collation
        if asked not in self._filled:
            column = Column(0, "value", value.type)
            text = scalar_sql(explicit(Ref(column), collation))
            self._filled[asked] = self.of(text, [column], self.default)
        return self._filled[asked]

    def holds_text(self, value: Scalar) -> bool:
        """Whether the default is the collation of a value, or of a text in it."""
        return bool(self.default) and ("VARCHAR" in value.type or "JSON" in value.type)

    def of_union(self, left: Collation | None, right: Collation | None, type_: str) -> Collation | None:
        """The collation of a column of a set operation, of columns of one type."""
        if left == right:
            return left
        null = Constant(f"CAST(NULL AS {type_})", type_)
        both = " UNION ALL ".join(f"SELECT {scalar_sql(explicit(null, one))} AS value" for one in (left, right))
        return _collation_of(_type(self._plan(f"SELECT value FROM ({both})")), "")

    def key(self, value: Scalar, collation: Collation) -> Call:
        """What DuckDB compares in place of a value: its type is left open."""
        form = self._keyed("{0}", collation)
        return Call(form, (value,), "", strict=not collation.parts, can_fail=False)

    def _keyed(self, text: str, collation: Collation, depth: int = 0) -> str:
        """A form in which each text with a collation is replaced by its key; an ARRAY becomes a LIST."""
        if collation == LENGTH:
            return INTERVAL_KEY.format(text)
        if not collation.parts:
            return self._text_key(collation.name).format(text)
        if collation.name in ("LIST", "ARRAY"):
            [(_, part)], one = collation.parts, f"e{depth}"
            assert part is not None
            return f"list_transform({text}, LAMBDA {one} : {self._keyed(one, part, depth + 1)})"
        fields, is_named = [], collation.name == "STRUCT"
        for place, (field, part) in enumerate(collation.parts, 1):
            name = field.replace("{", "{{").replace("}", "}}")
            one = f"struct_extract({text}, {literal(name) if is_named else place})"
            value = one if part is None else self._keyed(one, part, depth)
            fields.append(f"{quoted(name)} := {value}" if is_named else value)
        return f"CASE WHEN {text} IS NOT NULL THEN {'struct_pack' if is_named else 'row'}({', '.join(fields)}) END"

    def _text_key(self, name: str) -> str:
        """The functions around a text that give the key of a collation."""
        if name not in self._keys:
            plan = self._plan(f"SELECT {_collated('x', Collation(name))} = x FROM (SELECT CAST(NULL AS VARCHAR) AS x)")
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
    form = explicit_form(collation, "{0}")
    return value if form == "{0}" else Call(form, (value,), value.type, can_fail=False)


def explicit_form(collation: Collation | None, text: str) -> str:
    """A text of SQL with a collation written out."""
    if collation is None or collation.name in _NOT_WRITTEN:
        return text
    if not collation.parts:
        return _collated(text, collation)
    listed = f"list_transform({text}, LAMBDA e : e)" if collation.name == "ARRAY" else text
    return f"CASE WHEN FALSE THEN {_null(collation)} ELSE {listed} END"  # A CASE unites the types of its branches.


def _null(collation: Collation | None) -> str:
    """A value whose texts are NULL and have the collations; an ARRAY is a LIST."""
    if collation is None or collation.name in _NOT_WRITTEN:
        return "NULL"
    if not collation.parts:
        return _collated("CAST(NULL AS VARCHAR)", replace(collation, is_json=False))
    parts = [(name.replace("{", "{{").replace("}", "}}"), _null(part)) for name, part in collation.parts]
    if collation.name == "STRUCT":
        return f"struct_pack({', '.join(f'{quoted(name)} := {part}' for name, part in parts)})"
    if collation.name == "TUPLE":
        return f"row({', '.join(part for _, part in parts)})"
    if collation.name == "MAP":
        [(_, entry)] = collation.parts
        assert entry is not None
        return f"map([{_null(entry.parts[0][1])}], [{_null(entry.parts[1][1])}])"
    return f"[{parts[0][1]}]"


def united(left: Collation | None, right: Collation | None) -> Collation | None:
    """The collation of two values that DuckDB compares: it refuses two that differ."""
    if left is None or right is None:
        return left or right
    parts = ((name, united(one, other)) for (name, one), (_, other) in zip(left.parts, right.parts))
    return Collation(left.name, tuple(parts))


def _collated(text: str, collation: Collation) -> str:
    written = f"CAST({text} AS VARCHAR)" if collation.is_json else text
    return f"({written} COLLATE {'.'.join(map(quoted, collation.name.split('.')))})"


def _deciding(collation: Collation | None) -> Collation | None:
    """A collation without the parts that DuckDB compares by bytes."""
    if collation is None or not collation.parts:
        return None if collation is None or collation.name.lower() in _BINARY else collation
    if collation.name in _BY_BYTES:
        return None
    parts = tuple((name, _deciding(part)) for name, part in collation.parts)
    return Collation(collation.name, parts) if any(part is not None for _, part in parts) else None


def _with_lengths(collation: Collation | None, type_: str) -> Collation | None:
    """What decides a comparison of values, and the lengths of the intervals in their type. In a MAP or a UNION one
    interval has one form."""
    if type_ == "INTERVAL":
        return LENGTH
    nested = parse_nested(type_) if "INTERVAL" in type_ else None
    if nested is None or nested.family in _BY_BYTES:
        return collation
    known = [part for _, part in collation.parts] if collation is not None else [None] * len(nested.types)
    parts = tuple(zip(nested.names, map(_with_lengths, known, nested.types), strict=True))
    return Collation(nested.family, parts) if any(part is not None for _, part in parts) else None


def _collation_of(type_: Any, default: str) -> Collation | None:
    """The collation in DuckDB's JSON of a type; the default is that of other texts, as far as it counts."""
    id_ = str((type_ or {}).get("id"))
    default = "" if id_ in _BY_BYTES else default
    info = (type_ or {}).get("type_info") or {}
    if info.get("type") == "STRING_TYPE_INFO" and info.get("collation"):
        return Collation(info["collation"])
    held = [(part["first"], _collation_of(part["second"], default)) for part in info.get("child_types") or ()]
    if info.get("child_type"):
        held.append(("", _collation_of(info["child_type"], default)))
    if not held and default and id_ == "VARCHAR":
        return Collation(default, is_json=info.get("alias") == "JSON")
    return Collation(id_, tuple(held)) if any(part is not None for _, part in held) else None
