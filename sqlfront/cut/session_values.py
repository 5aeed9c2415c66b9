"""What a view may compute: values that depend on its rows alone, not on the session, the clock or chance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sqlfront.binding.query_binder import Bound
from sqlfront.cut.scalar_forms import function_name
from sqlfront.cut.value_types import BoundNode, bound_nodes
from sqlfront.planner.algebra.rewriting import walk_once
from sqlfront.planner.algebra.scalars import Call, Column, Compare, Constant, Ref, Scalar, columns_of, parts_of, walk
from sqlfront.planner.algebra.terms import (
    SetOperation,
    Term,
    scalars_of,
)
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.storage.errors import NotSupportedError

_ZONED = "TIMESTAMP WITH TIME ZONE"
# An instant, or a nested type that holds one.
_INSTANT = re.compile(r"TIMESTAMP(_NS)? WITH TIME ZONE|TIMESTAMPTZ")
_OPAQUE = re.compile(r"\b(VARIANT|GEOMETRY)\b")
# Functions of an instant that do not ask which time zone the session is in.
_ZONE_FREE = frozenset(
    (
        *("epoch", "epoch_ms", "epoch_us", "epoch_ns", "to_timestamp", "timezone", "hash"),
        *("isfinite", "isinf", "coalesce", "least", "greatest", "count", "=", "<>", "!=", "<", ">", "<=", ">="),
        *("struct_pack", "row", "union_value", "len", "length", "array_length", "cardinality", "map_keys"),
    )
)


def check_session(bound: Bound, con: Any) -> None:
    """Refuse a query whose rows the session, the clock or chance decides. Raises NotSupportedError."""
    [(collation,)] = con.execute("SELECT current_setting('default_collation')").fetchall()
    if collation:
        raise NotSupportedError(
            "A view under a default_collation is not supported",
            why="equality under a collation is not equality of values, which joins and groups rely on.",
            hint="RESET default_collation",
        )
    scalars = list(dict.fromkeys(_scalars(bound.term)))
    for scalar in scalars:
        for part in walk(scalar):
            _check_part(part, bound)
    if any(_is_zoned(scalar) for scalar in scalars):
        _check_zones(scalars, bound, con)


def _scalars(term: Term) -> Iterator[Scalar]:
    """All expressions of a term, outermost operators first."""
    for part in reversed(list(walk_once(term))):
        yield from scalars_of(part)


def _check_part(part: Scalar, bound: Bound) -> None:
    notes = bound.notes
    collated = columns_of(part) & bound.notes.collated
    if collated and (isinstance(part, Ref) or not parts_of(part)):
        why = "equality under a collation is not equality of values, which joins and groups rely on"
        raise notes.refusal("A collated column", notes.place_of(part), why, "use a column without a collation")
    if isinstance(part, Ref):
        return
    opaque = next((column for column in sorted(columns_of(part), key=_number) if _OPAQUE.search(column.type)), None)
    if opaque is not None:
        why = "DuckDB cannot read its values back from the changed rows, so the expression cannot be computed"
        what = f"An expression over a column of type {opaque.type}"
        raise notes.refusal(what, notes.place_of(part), why, "store its value in a column of a plain type")
    if not isinstance(part, Call):
        return
    if " COLLATE " in part.form:
        why = "equality under a collation is not equality of values, which joins and groups rely on"
        hint = "apply the function itself, for example lower(x), and group or join on that"
        raise notes.refusal("A collation", notes.place_of(part), why, hint)
    name = function_name(part.form) or ("" if part.arguments else part.form)
    if name and bound.functions.is_unstable(name, len(part.arguments)):
        written = f"{name}()" if "(" in part.form else name
        raise _unstable(written, part, bound)
    if not part.arguments and "(" not in part.form and part.form.isidentifier():
        raise _unstable(part.form, part, bound)


def _number(column: Column) -> int:
    return column.number


def _unstable(name: str, part: Scalar, bound: Bound) -> NotSupportedError:
    why = "its value changes from query to query, so a stored result cannot stay equal to the query"
    hint = "store the value in a column when the row is written, or filter when you read the view"
    return bound.notes.refusal(name, bound.notes.place_of(part), why, hint)


# Time zones -----------------------------------------------------------------------------------------


def _is_zoned(scalar: Scalar) -> bool:
    return any(_INSTANT.search(part.type) for part in walk(scalar))


def _check_zones(scalars: Sequence[Scalar], bound: Bound, con: Any) -> None:
    """Refuse what the session's TimeZone decides: constants by their types, the rest by what DuckDB binds."""
    for scalar in scalars:
        for part in walk(scalar):
            if isinstance(part, Call) and not columns_of(part):
                types = tuple(inner.type for inner in part.arguments)
                _refuse_zone(part, [BoundNode(_called(part), part.type, types)], bound)
    zoned = [scalar for scalar in scalars if _is_zoned(scalar) and not isinstance(scalar, Ref | Constant)]
    for scalar in zoned:
        _refuse_zone(scalar, bound_nodes(con, _over_nulls(scalar)), bound)
    for term in walk_once(bound.term):
        if isinstance(term, SetOperation):
            _check_union(term, bound)


def _called(part: Call) -> str:
    return "__cast" if part.form.startswith(("CAST(", "TRY_CAST(")) else function_name(part.form) or part.form


def _refuse_zone(scalar: Scalar, nodes: Sequence[BoundNode], bound: Bound) -> None:
    for node in nodes:
        if node.is_call and _asks_time_zone(node.function, node.type, node.argument_types):
            kinds = f"{node.argument_types[0]} to {node.type}" if node.argument_types else node.type
            what = f"A cast from {kinds}" if node.function == "__cast" else f"{node.function} on {_ZONED}"
            why = "the result depends on the session's TimeZone setting"
            hint = "use epoch_us(x), or keep a TIMESTAMP column in UTC"
            raise bound.notes.refusal(what, bound.notes.place_of(_placed(scalar, node.function)), why, hint)


def _placed(scalar: Scalar, function: str) -> Scalar:
    """The part of an expression that calls a function; the whole for an implicit cast."""
    for part in walk(scalar):
        if isinstance(part, Call) and _called(part).lower() == function.lower():
            return part
    return (
        next((part for part in walk(scalar) if isinstance(part, Compare)), scalar) if function == "__cast" else scalar
    )


def _check_union(term: SetOperation, bound: Bound) -> None:
    for side in (term.left, term.right):
        for column, wanted in zip(side.columns, term.columns, strict=True):
            if column.type != wanted.type and (_INSTANT.search(column.type) or _INSTANT.search(wanted.type)):
                why, hint = "the result depends on the session's TimeZone setting", "cast the columns to one type"
                what = f"A cast from {column.type} to {wanted.type}"
                raise bound.notes.refusal(what, bound.notes.place(column, term.columns), why, hint)


def _asks_time_zone(function: str, result: str, arguments: tuple[str, ...]) -> bool:
    """Whether the session's TimeZone decides: between instants and civil times, and arithmetic on instants."""
    zoned = any(map(_INSTANT.search, (*arguments, result)))
    if function == "__cast":
        return zoned and not set(arguments) <= {"NULL", '"NULL"', ""} and {result, *arguments} != {_ZONED}
    if function == "timezone":
        return len(arguments) < 2
    if function == "make_timestamptz":
        return len(arguments) > 1
    return zoned and function not in _ZONE_FREE


def _over_nulls(scalar: Scalar) -> str:
    nulls = (f"CAST(NULL AS {column.type}) AS {column}" for column in sorted(columns_of(scalar), key=_number))
    text = ", ".join(nulls)
    return f"SELECT {scalar_sql(scalar)}{f' FROM (SELECT {text})' if text else ''}"
