"""Values that Arrow does not carry as DuckDB has them: how they are written in rows that leave DuckDB, and read again.

UNION      row(number of the member, value of each member): Arrow does not tell NULL from a member that is NULL
VARIANT    row(DuckDB's key of equality and order, the value)

Everything that holds such values is rebuilt around them. Other types pass as they are. `exported` writes the rows of a
query, `arrived_sql` reads a column again, whether it is written that way or as the user gave it.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from sqlfront.storage.codecs.nested_types import NestedType, parse_nested
from sqlfront.storage.sql_text import literal, quote

if TYPE_CHECKING:
    import pyarrow as pa

_NESTED_IDS = frozenset(("union", "variant", "struct", "tuple", "list", "array", "map"))
_VARIANT = "VARIANT"
# DuckDB writes a VARIANT of these types to Arrow as an equal one of another type only.
_VARIANT_SQL = (
    "CASE WHEN variant_typeof({0}) IN ('UINT64', 'INT128', 'UINT128', 'BIGNUM') "
    "THEN CAST(CAST({0} AS VARCHAR) AS DECIMAL(38, 0))::VARIANT "
    "WHEN variant_typeof({0}) IN ('TIMESTAMP_SEC', 'TIMESTAMP_MILIS') THEN CAST({0} AS TIMESTAMP)::VARIANT ELSE {0} END"
)
_WORDS = re.compile(r"\bunion(_value\b|\s*\()|variant", re.IGNORECASE)


@functools.cache
def is_carried(type: str) -> bool:
    """Whether values of a DuckDB type are written in another form."""
    nested = parse_nested(type)
    if nested is None:
        return type.strip() == _VARIANT
    return nested.family == "UNION" or any(map(is_carried, nested.types))


def may_be_carried(query: str) -> bool:
    """Whether a query may have such values; those that have none are asked no further."""
    return bool(_WORDS.search(query))


def carried_sql(value: str, type: str, depth: int = 0) -> str:
    """SQL of the form in which a value, given as SQL, leaves DuckDB."""
    if not is_carried(type):
        return value
    nested = parse_nested(type)
    if nested is None:
        return _unless_null(value, f"row(variant_comparator({value}), {_VARIANT_SQL.format(value)})")
    if nested.family == "UNION":
        members = (f"union_extract({value}, {literal(name)})" for name in nested.names)
        held = (carried_sql(member, part, depth) for member, part in zip(members, nested.types, strict=True))
        return _unless_null(value, f"row(enum_code(union_tag({value})), {', '.join(held)})")
    return _rebuilt(value, nested, depth, carried_sql, carried_type)


def restored_sql(value: str, type: str, depth: int = 0) -> str:
    """SQL of the value that a form stands for: the inverse of `carried_sql`."""
    if not is_carried(type):
        return value
    nested = parse_nested(type)
    if nested is None:
        return f"struct_extract_at({value}, 2)"
    if nested.family == "UNION":
        branches = ""
        for place, (name, part) in enumerate(zip(nested.names, nested.types, strict=True)):
            member = restored_sql(f"struct_extract_at({value}, {place + 2})", part, depth)
            made = f"CAST(union_value({quote(name)} := CAST({member} AS {part})) AS {type})"
            branches += f" WHEN {place} THEN {made}"
        return f"CASE struct_extract_at({value}, 1){branches} END"
    return _rebuilt(value, nested, depth, restored_sql, str)


def carried_type(type: str) -> str:
    """The DuckDB type of a form."""
    nested = parse_nested(type)
    if not is_carried(type):
        return type
    if nested is None:
        return "TUPLE(BLOB, VARIANT)"
    held = [carried_type(part) for part in nested.types]
    match nested.family:
        case "LIST":
            return f"{held[0]}[]"
        case "ARRAY":
            return f"{held[0]}[{nested.size}]"
        case "STRUCT":
            return f"STRUCT({', '.join(f'{quote(name)} {part}' for name, part in zip(nested.names, held))})"
        case "UNION":
            return f"TUPLE(UTINYINT, {', '.join(held)})"
    return f"{nested.family}({', '.join(held)})"


def column_sql(name: str, type: str) -> str:
    """A column as it leaves DuckDB, under its own name."""
    return f"{carried_sql(quote(name), type)} AS {quote(name)}" if is_carried(type) else quote(name)


def exported(relation: Any) -> Any:
    """A relation of DuckDB's with its columns as they leave DuckDB; the relation itself if all leave as they are."""
    types = relation.types
    if not any(type.id in _NESTED_IDS for type in types):
        return relation
    names = [str(type) for type in types]
    if not any(map(is_carried, names)):
        return relation
    columns = zip(relation.columns, names, strict=True)
    return relation.project(", ".join(column_sql(name, type) for name, type in columns))


def arrived_sql(name: str, type: str, arrow: pa.DataType) -> str:
    """A column of a DuckDB type, from an Arrow column that was `exported` or is the user's own."""
    if is_carried(type) and _is_form(arrow, type):
        return f"CAST({restored_sql(quote(name), type)} AS {type})"
    return f"CAST({quote(name)} AS {type})"


def _is_form(arrow: pa.DataType, type: str) -> bool:
    """Whether an Arrow type is that of the form."""
    import pyarrow as pa

    nested = parse_nested(type)
    if not is_carried(type):
        return True
    if nested is None or nested.family == "UNION":
        width = 2 if nested is None else 1 + len(nested.types)
        return pa.types.is_struct(arrow) and [field.name for field in arrow] == [
            f"element{i + 1}" for i in range(width)
        ]
    if pa.types.is_map(arrow):
        return _is_form(arrow.key_type, nested.types[0]) and _is_form(arrow.item_type, nested.types[1])
    if pa.types.is_struct(arrow):
        return all(_is_form(field.type, part) for field, part in zip(arrow, nested.types, strict=False))
    return pa.types.is_nested(arrow) and _is_form(arrow.value_type, nested.types[0])


def _rebuilt(value: str, nested: NestedType, depth: int, inner: Any, type_of: Any) -> str:
    """A LIST, ARRAY, STRUCT, TUPLE or MAP with what it holds turned by `inner`, of the types that `type_of` says."""
    element = f"__element{depth}"
    if nested.family in ("LIST", "ARRAY"):
        source = value if nested.family == "LIST" else f"CAST({value} AS {nested.types[0]}[])"
        if nested.family == "ARRAY" and inner is restored_sql:
            source = f"CAST({value} AS {carried_type(nested.types[0])}[])"
        listed = f"list_transform({source}, lambda {element}: {inner(element, nested.types[0], depth + 1)})"
        return f"CAST({listed} AS {type_of(nested.types[0])}[{nested.size or ''}])"
    if nested.family == "MAP":
        parts = [inner(f"{element}.{name}", part, depth + 1) for name, part in zip(nested.names, nested.types)]
        entry = f"struct_pack(key := {parts[0]}, value := {parts[1]})"
        return _unless_null(value, f"map_from_entries(list_transform(map_entries({value}), lambda {element}: {entry}))")
    held = [
        inner(f"struct_extract_at({value}, {place})", part, depth) for place, part in enumerate(nested.types, start=1)
    ]
    if nested.family == "TUPLE":
        return _unless_null(value, f"row({', '.join(held)})")
    return _unless_null(
        value, f"struct_pack({', '.join(f'{quote(name)} := {part}' for name, part in zip(nested.names, held))})"
    )


def _unless_null(value: str, made: str) -> str:
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {made} END"
