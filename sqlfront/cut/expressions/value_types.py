"""DuckDB's types: which casts keep values apart or in order, which are nested, how two are compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlfront.cut.expressions.scalar_forms import evaluated
from sqlfront.planner.algebra.scalars import Call, Column, Constant, Ref, Scalar, columns_of, is_never_null
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.sql.keywords import quoted
from sqlfront.storage.codecs.nested_types import NestedType, parse_nested
from sqlfront.storage.codecs.types import parse_type
from sqlfront.storage.errors import NotSupportedError, ProgrammingError
from sqlfront.storage.sql_text import literal

INTEGER_BITS = {
    "TINYINT": (True, 7),
    "SMALLINT": (True, 15),
    "INTEGER": (True, 31),
    "BIGINT": (True, 63),
    "HUGEINT": (True, 127),
    "UTINYINT": (False, 8),
    "USMALLINT": (False, 16),
    "UINTEGER": (False, 32),
    "UBIGINT": (False, 64),
    "UHUGEINT": (False, 128),
}
FLOATS = {"FLOAT": 24, "DOUBLE": 53}
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)\Z")
_USUAL = {
    "VARCHAR": "",
    "BOOLEAN": "false",
    "TIME": "00:00:00",
    "TIME_NS": "00:00:00",
    "TIME WITH TIME ZONE": "00:00:00+00",
    "INTERVAL": "0 days",
    "UUID": "00000000-0000-0000-0000-000000000000",
    "BLOB": "",
    "BIT": "0",
    "BIGNUM": "0",
    "JSON": "null",
    "GEOMETRY": "POINT EMPTY",
    "VARIANT": "",
}
_TIMESTAMPS = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS")


@dataclass(frozen=True)
class BoundNode:
    """One node of DuckDB's bound plan: its function (or cast, comparison), result type and argument types."""

    function: str
    type: str
    argument_types: tuple[str, ...]
    is_call: bool = True


class ComparedTypes:
    """In which type DuckDB compares values of two types, each pair asked once."""

    def __init__(self, con: Any) -> None:
        self._con = con
        self._known: dict[tuple[str, str], str | None] = {}

    def common(self, left: str, right: str) -> str | None:
        """The type to which `left = right` casts both sides; None when DuckDB compares them in no other way."""
        if left == right:
            return left
        if left in INTEGER_BITS and right in INTEGER_BITS and is_lossless(left, right):
            return right
        if left in INTEGER_BITS and right in INTEGER_BITS and is_lossless(right, left):
            return left
        if (left, right) not in self._known:
            query = f"SELECT a = b FROM (SELECT CAST(NULL AS {left}) AS a, CAST(NULL AS {right}) AS b)"
            nodes = bound_nodes(self._con, query)
            at = next(i for i, node in enumerate(nodes) if node.function == "=")
            casts = [node.type for node in nodes[at + 1 :] if node.function == "__cast"]
            self._known[left, right] = casts[0] if casts else None
        return self._known[left, right]

    def evaluated(self, value: Scalar) -> object:
        """The value of an expression without columns."""
        return evaluated(self._con, value)

    def has_no_months(self, interval: Scalar) -> bool:
        """Whether a constant INTERVAL has days and parts of days alone; false of NULL."""
        text = (
            f"SELECT date_part('year', i) = 0 AND date_part('month', i) = 0 FROM (SELECT {scalar_sql(interval)} AS i)"
        )
        return bool(self._con.execute(text).fetchall()[0][0])


def bound_nodes(con: Any, query: str) -> list[BoundNode]:
    """All nodes of DuckDB's bound plan for `query`, parents first."""
    text = con.execute("SELECT json_serialize_plan(?)", [query]).fetchall()[0][0]
    if not text:  # DuckDB has no JSON of a plan with a BIT constant.
        raise NotSupportedError(
            "A constant of type BIT is not supported in a view",
            why="DuckDB cannot print its plan, which tells what the expression depends on",
            hint="compare CAST(column AS VARCHAR) with text",
        )
    answer = json.loads(text)
    if answer["error"]:
        raise ProgrammingError(answer["error_message"], where=query)
    return list(_nodes(answer["plans"]))


def is_lossless(source: str, target: str) -> bool:
    """Whether the cast keeps different values different and never loses a digit."""
    if source == target or (source.startswith("ENUM") and target == "VARCHAR"):
        return True
    parts, wider = parse_nested(source), parse_nested(target)
    if parts is not None and wider is not None:
        same = (parts.family, parts.names, parts.size) == (wider.family, wider.names, wider.size)
        return same and all(map(is_lossless, parts.types, wider.types))
    if source in INTEGER_BITS:
        return _integer_fits(*INTEGER_BITS[source], target)
    if decimal_parts(source) and decimal_parts(target):
        (width, scale), (wide, fine) = decimal_parts(source) or (0, 0), decimal_parts(target) or (0, 0)
        return fine >= scale and wide - fine >= width - scale
    if source in _TIMESTAMPS and target in _TIMESTAMPS:
        return _TIMESTAMPS.index(source) <= _TIMESTAMPS.index(target)
    return (source, target) == ("FLOAT", "DOUBLE") or (source == "DATE" and target in _TIMESTAMPS)


def strict_base(value: Scalar, types: ComparedTypes) -> Scalar:
    """The expression with which a value grows strictly: of two rows the same one has the greater value in both. The
    value itself, if no other is known. `types` knows constant INTERVALs.

    Rounded sums, casts that lose digits and months are left out: they are equal in rows in which others differ.
    """
    match value:
        case Call(form="{0} + {1}" | "{0} - {1}", arguments=(one, other)) if not columns_of(other):
            return strict_base(one, types) if _is_exact(value, one, other, types) else value
        case Call(form="{0} + {1}", arguments=(one, other)) if not columns_of(one):
            return strict_base(other, types) if _is_exact(value, other, one, types) else value
        case Call(form="{0} - {1}", arguments=(one, other)) if not columns_of(one) and is_exact_number(value.type):
            return _falling(other, types) if is_exact_number(other.type) else value
        case Call(form="-{0}", arguments=(one,)) if is_exact_number(value.type):
            return _falling(one, types)
        case Call(form=form, arguments=(one,), type=kind) if form == f"CAST({{0}} AS {kind})":
            return strict_base(one, types) if _keeps_order(one.type, kind) else value
    return value


def _falling(value: Scalar, types: ComparedTypes) -> Scalar:
    """What grows strictly where a value falls."""
    base = strict_base(value, types)
    return Call("-{0}", (base,), base.type)


def _is_exact(value: Scalar, one: Scalar, constant: Scalar, types: ComparedTypes) -> bool:
    """Whether a sum with a constant, or the difference, is rounded nowhere. A sum that overflows is an error."""
    if is_exact_number(value.type):
        are_dates = one.type == constant.type == "DATE"
        return are_dates or (is_exact_number(one.type) and is_exact_number(constant.type))
    if one.type == "DATE" and constant.type in INTEGER_BITS:
        return value.type == "DATE"
    return one.type in ("DATE", "TIMESTAMP") and constant.type == "INTERVAL" and types.has_no_months(constant)


def _keeps_order(source: str, target: str) -> bool:
    """Whether a cast keeps all values apart, and in their order."""
    families = (("DATE", *_TIMESTAMPS), FLOATS)
    alike = any(source in family and target in family for family in families)
    return is_lossless(source, target) and (alike or (is_exact_number(source) and is_exact_number(target)))


def decimal_parts(kind: str) -> tuple[int, int] | None:
    """(width, scale) of a DECIMAL type."""
    match = _DECIMAL.match(kind)
    return (int(match[1]), int(match[2])) if match else None


def is_exact_number(kind: str) -> bool:
    return kind in INTEGER_BITS or decimal_parts(kind) is not None


def never_null(scalar: Scalar, has_value: Any) -> bool:
    """Whether an expression has a value in every row where columns that `has_value` have one; sound, not complete."""
    match scalar:
        case Ref(column=column):
            return bool(has_value(column))
        case Constant():
            return is_never_null(scalar, frozenset[Column]())
        case Call(form=form, arguments=arguments):
            is_cast = form.startswith("CAST({0} AS ")
            is_sum = form in ("{0} + {1}", "{0} - {1}", "{0} * {1}", "-{0}") and _is_number(scalar.type)
            return (is_cast or is_sum) and all(never_null(part, has_value) for part in arguments)
    return False


def _is_number(kind: str) -> bool:
    return kind.endswith("INT") or kind == "INTEGER" or kind.startswith("DECIMAL")


def usual_value(kind: str) -> str | None:
    """A value of a type, as DuckDB SQL; None for types that have none here."""
    if _is_number(kind) or kind in (*INTEGER_BITS, *FLOATS):
        return f"CAST(0 AS {kind})"
    if kind == "DATE" or kind in _TIMESTAMPS:
        return f"CAST('2000-01-01' AS {kind})"
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"CAST('2000-01-01 00:00:00+00' AS {kind})"
    if (nested := parse_nested(kind)) is not None:
        return f"CAST({_usual_nested(nested)} AS {kind})"
    if kind.startswith("ENUM("):
        values = parse_type(kind).values
        return f"CAST({literal(values[0])} AS {kind})" if values else None
    family = kind.partition("(")[0]  # GEOMETRY has parameters, too.
    return f"CAST({literal(_USUAL[family])} AS {kind})" if family in _USUAL else None


def _usual_nested(nested: NestedType) -> str:
    if nested.family in ("LIST", "ARRAY"):
        return f"[{', '.join(['NULL'] * nested.size)}]"
    if nested.family == "MAP":
        return "MAP()"
    if nested.family == "UNION":
        return f"union_value({quoted(nested.names[0])} := CAST(NULL AS {nested.types[0]}))"
    if nested.family == "TUPLE":
        return f"row({', '.join(['NULL'] * len(nested.names))})"
    return f"{{{', '.join(f'{quoted(name)}: NULL' for name in nested.names)}}}"


def _integer_fits(signed: bool, bits: int, target: str) -> bool:
    if target in INTEGER_BITS:
        other_signed, other_bits = INTEGER_BITS[target]
        return bits <= other_bits and (other_signed or not signed)
    if target in FLOATS:
        return bits <= FLOATS[target]
    parts = decimal_parts(target)
    return parts is not None and 10 ** (parts[0] - parts[1]) > 2**bits


def _nodes(tree: Any) -> Iterator[BoundNode]:
    values: Iterable[Any] = tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        if "expression_class" in tree:
            path = (tree.get("qname") or {}).get("path")
            argument_types = [_type_name(argument) for argument in tree.get("arguments", []) if "id" in argument]
            is_call = path is not None or tree["expression_class"] == "BOUND_UNNEST"
            name = path[-1] if path else tree["type"].removeprefix("BOUND_").lower()
            yield BoundNode(name, _type_name(tree.get("return_type")), tuple(argument_types), is_call)
        values = tree.values()
    for value in values:
        if isinstance(value, (dict, list)):
            yield from _nodes(value)


def _type_name(kind: Any) -> str:
    """The type's name as DESCRIBE writes it, from DuckDB's JSON of it."""
    if not kind:
        return ""
    info = kind.get("type_info") or {}
    held = info.get("child_type")
    match kind["id"]:
        case "DECIMAL" if info:
            return f"DECIMAL({info['width']},{info['scale']})"
        case "ENUM" if info:
            return f"ENUM({', '.join(map(literal, info['values']))})"
        case "LIST" if held:
            return f"{_type_name(held)}[]"
        case "ARRAY" if held:
            return f"{_type_name(held)}[{info['size']}]"
        case "MAP" if held:
            return f"MAP({', '.join(_type_name(part['second']) for part in held['type_info']['child_types'])})"
    fields = [(part["first"], _type_name(part["second"])) for part in info.get("child_types") or ()]
    if kind["id"] == "UNION":
        fields = fields[1:]  # The first is the number of the member.
    if not fields:
        return str(kind["id"])
    return f"{kind['id']}({', '.join(f'{quoted(name)} {type_}' if name else type_ for name, type_ in fields)})"
