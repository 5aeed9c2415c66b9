"""What a view may compute: values that depend on its rows and on the settings it was created under, not on the clock
or chance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sqlfront.binding.function_catalog import PYTHON_FUNCTIONS
from sqlfront.binding.query_binder import Bound
from sqlfront.binding.session_settings import Pairs, Settings, deviating, settled
from sqlfront.cut.expressions.value_types import BoundNode, bound_nodes
from sqlfront.planner.algebra.clock import is_temporal, reads_clock
from sqlfront.planner.algebra.rewriting import walk_once
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Compare,
    Constant,
    Logic,
    Ref,
    Scalar,
    columns_of,
    conjuncts,
    function_name,
    parts_of,
    walk,
)
from sqlfront.planner.algebra.terms import (
    Aggregate,
    Distinct,
    SetOperation,
    Term,
    Top,
    Window,
    scalars_of,
)
from sqlfront.planner.algebra.to_sql import scalar_sql
from sqlfront.storage.codecs.order import has_loose_intervals
from sqlfront.storage.errors import NotSupportedError

_ZONED, _ZONED_TIME = "TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE"
# An instant, a time with an offset, or a nested type that holds one.
_INSTANT = re.compile(r"(TIME|TIMESTAMP)(_NS)? WITH TIME ZONE|TIMESTAMPTZ|TIMETZ")
# Time zones whose offset no day changes.
_FIXED_ZONE = re.compile(r"(Etc/)?(UTC|UCT|GMT|Zulu|Universal)|Etc/GMT[+-]\d+", re.IGNORECASE)
_NAME = re.compile(r'[^\W\d]\w*|"([^"]|"")*"')
_OFFSET = re.compile(r":\d\d(\.\d+)?[+-]\d\d")
_TEXT = re.compile(r"VARCHAR|JSON|STRING_LITERAL")
# Operators and functions whose meaning settings change: divisions, and sorting by default_order.
_SETTINGS_READ = re.compile(r"[/%]|\b(f?mod|divide|\w*(sort|grade_up)|(list|array)_\w+)\b", re.IGNORECASE)
# Functions of texts and floating numbers that no setting changes.
_PLAIN = frozenset(
    (
        *("upper", "lower", "length", "strlen", "concat", "trim", "ltrim", "rtrim", "left", "right", "substring"),
        *("round", "floor", "ceil", "ceiling", "abs", "sign", "isnan", "isinf", "isfinite", "coalesce"),
    )
)
_PLAIN_FORMS = ("CAST({0} AS ", "TRY_CAST({0} AS ", "{0} || {1}", "CASE WHEN ")
_EXTREMES = ("min", "max", "arg")  # The aggregates whose names begin so compare their arguments.
# Functions of an instant that do not ask which time zone the session is in.
_ZONE_FREE = frozenset(
    (
        *("epoch", "epoch_ms", "epoch_us", "epoch_ns", "to_timestamp", "timezone", "hash"),
        *("isfinite", "isinf", "coalesce", "least", "greatest", "count", "=", "<>", "!=", "<", ">", "<=", ">="),
        *("struct_pack", "row", "union_value", "len", "length", "array_length", "cardinality", "map_keys"),
        "timetz_byte_comparable",
    )
)


def check_session(bound: Bound, con: Any, *, reads_clock: bool = False) -> Pairs:
    """The settings under which a query must be computed. `reads_clock`: it compares with the clock, whose date depends
    on the time zone. Raises NotSupportedError for a query whose rows the clock or chance decides otherwise."""
    terms = list(walk_once(bound.term))
    # Outermost operators first.
    scalars = list(dict.fromkeys(value for part in reversed(terms) for value in scalars_of(part)))
    for scalar in scalars:
        for part in walk(scalar):
            _check_part(part, scalar, bound)
    ordered = [value for part in terms for value in _ordered(part)]
    for value in (*ordered, *(one.value for order in bound.more for one in order)):
        if _is_unordered(value):
            raise _unordered(value, bound)
    unions = (term for term in terms if isinstance(term, SetOperation))
    zoned = [_asks_zone(scalar, bound, con) for scalar in scalars if _is_zoned(scalar)]
    return deviating(settled(bound.settings), zoned=reads_clock or any(zoned) or any(map(_casts_zone, unions)))


def has_fixed_zone(settings: Settings) -> bool:
    """Whether the offset of the settings' time zone is the same on each day."""
    return _FIXED_ZONE.fullmatch(settings["TimeZone"]) is not None


def _check_part(part: Scalar, whole: Scalar, bound: Bound) -> None:
    notes = bound.notes
    if isinstance(part, Ref):
        return
    if _is_ordered(part) and any(map(_is_unordered, parts_of(part))):
        raise _unordered(part, bound)
    if not isinstance(part, Call):
        return
    name = function_name(part.form) or ("" if part.arguments else part.form)
    if name.lower() in PYTHON_FUNCTIONS:
        why = "nothing in the database says what the Python function does"
        hint = "store its value in a column when the row is written, or make it a macro"
        raise notes.refusal(f"The Python function {name}", notes.place_of(part), why, hint)
    if name and bound.functions.is_unstable(name, len(part.arguments)):
        written = f"{name}()" if "(" in part.form else name
        raise _unstable(written, part, whole, bound)
    if not part.arguments and "(" not in part.form and part.form.isidentifier():
        raise _unstable(part.form, part, whole, bound)


def _ordered(term: Term) -> Iterator[Scalar]:
    """The values that an operator orders by, where rows or results depend on it."""
    match term:
        case Top(order=order) if term.limit is not None or term.offset is not None:
            yield from (one.value for one in order)
        case Distinct(order=order):
            yield from (one.value for one in order)
        case Window(functions=functions):
            for one in functions:
                yield from (item.value for item in (*one.order, *one.argument_order))
                yield from one.arguments if function_name(one.form).startswith(_EXTREMES) else ()
        case Aggregate(aggregates=aggregates):
            for each in aggregates:
                yield from (item.value for item in each.order)
                yield from each.arguments if function_name(each.form).startswith(_EXTREMES) else ()


def _is_ordered(part: Scalar) -> bool:
    """Whether an expression compares values by their order."""
    if isinstance(part, Call):
        return " BETWEEN " in part.form or function_name(part.form) in ("greatest", "least")
    return isinstance(part, Compare) and part.operator in ("<", "<=", ">", ">=")


def _is_unordered(value: Scalar) -> bool:
    return has_loose_intervals(value.type)


def _unordered(value: Scalar, bound: Bound) -> NotSupportedError:
    family = "MAP" if "MAP(" in value.type else "UNION"
    why = (
        f"DuckDB orders intervals in a {family} by how they are written, though it takes 30 days and 1 month for equal"
    )
    hint = "order by an entry of the map, or by its keys" if family == "MAP" else "order by a member of the union"
    what = f"An order of intervals in a {family}"
    return bound.notes.refusal(what, bound.notes.place_of(value), why, hint)


def _number(column: Column) -> int:
    return column.number


def _unstable(name: str, part: Scalar, whole: Scalar, bound: Bound) -> NotSupportedError:
    why = "its value changes from query to query, so a stored result cannot stay equal to the query"
    hint = "store the value in a column when the row is written, or filter when you read the view"
    if reads_clock(part):
        hint = _TIMED
        [condition, *_] = [one for one in conjuncts(whole) if part in walk(one)]
        if isinstance(condition, Logic):
            hint = "write a SELECT for each condition of the OR, and UNION between them"
        elif isinstance(condition, Compare) and condition.operator == "<>":
            hint = "compare by < in one SELECT and by > in another one, with UNION ALL between them"
        elif isinstance(condition, Compare) and columns_of(condition) and not is_temporal(condition):
            hint = f"have the clock alone on one side, with what is added to it: {_EXAMPLE}"
    return bound.notes.refusal(name, bound.notes.place_of(part), why, hint)


_EXAMPLE = "ts > now() - INTERVAL 1 HOUR"
_TIMED = f"compare a column with the clock in WHERE, {_EXAMPLE}; compute all else of it when you read the view"


# Time zones -----------------------------------------------------------------------------------------


def _is_zoned(scalar: Scalar) -> bool:
    return any(_INSTANT.search(part.type) for part in walk(scalar))


def _asks_zone(scalar: Scalar, bound: Bound, con: Any) -> bool:
    """Whether TimeZone decides an expression's value. Raises NotSupportedError where the clock decides it."""
    if isinstance(scalar, Ref):
        return False
    nodes = [node for node in bound_nodes(con, _over_nulls(scalar)) if node.is_call]
    constants = [part for part in walk(scalar) if not columns_of(part)]
    for node in (*nodes, *_folded(scalar, constants)):
        if _reads_clock(node) and not (_is_cast(node) and has_fixed_zone(bound.settings)):
            raise _clock(node, scalar, bound)
    return any(map(_asks_time_zone, nodes)) or any(_INSTANT.search(part.type) for part in constants)


def _folded(scalar: Scalar, constants: Sequence[Scalar]) -> Iterator[BoundNode]:
    """The casts and calls of constants, which DuckDB may fold: its plan does not tell then how it computed them. A time
    that is written with its offset depends on nothing."""
    for part in constants:
        if isinstance(part, Call) and not _OFFSET.search(scalar_sql(part)):
            yield BoundNode(_called(part), part.type, tuple(inner.type for inner in part.arguments))
    for part in walk(scalar):
        compared = (
            parts_of(part) if isinstance(part, Compare) or (isinstance(part, Call) and " IN (" in part.form) else ()
        )
        if any(one.type == _ZONED_TIME for one in compared):
            bare = [one for one in compared if _is_text(one) and not _OFFSET.search(scalar_sql(one))]
            yield from (BoundNode("__cast", _ZONED_TIME, ("VARCHAR",)) for _ in bare)


def _reads_clock(node: BoundNode) -> bool:
    """Whether a function gives a time of day the offset that a zone has at present."""
    if _is_cast(node):
        return node.type == _ZONED_TIME and not {"TIME", "TIME_NS", "VARCHAR"}.isdisjoint(node.argument_types)
    return node.function == "timezone" and node.argument_types == ("VARCHAR", _ZONED_TIME)


def _clock(node: BoundNode, scalar: Scalar, bound: Bound) -> NotSupportedError:
    is_cast = _is_cast(node)
    what = f"A cast from {node.argument_types[0]} to {node.type}" if is_cast else f"{node.function} on {_ZONED_TIME}"
    why = f"the offset of a {_ZONED_TIME} in a time zone is that of the present day, which changes"
    place = bound.notes.place_of(_placed(scalar, node))
    hint = f"use a {_ZONED}, whose day decides the offset" + ("; or SET TimeZone = 'UTC' first" if is_cast else "")
    return bound.notes.refusal(what, place, why, hint)


def _is_cast(node: BoundNode) -> bool:
    return node.function == "__cast"


def _called(part: Call) -> str:
    return "__cast" if part.form.startswith(("CAST(", "TRY_CAST(")) else function_name(part.form) or part.form


def _placed(scalar: Scalar, node: BoundNode) -> Scalar:
    """The part of an expression that calls a function; the comparison, or the whole, for an implicit cast."""
    for part in walk(scalar):
        is_called = isinstance(part, Call) and _called(part).lower() == node.function.lower()
        if is_called and [inner.type for inner in parts_of(part)][-1:] == [node.argument_types[-1]]:
            return part
    return next((part for part in walk(scalar) if isinstance(part, Compare)), scalar)


def _asks_time_zone(node: BoundNode) -> bool:
    """Whether TimeZone decides: between instants and civil times, and arithmetic on instants."""
    function, result, arguments = node.function, node.type, node.argument_types
    zoned = any(map(_INSTANT.search, (*arguments, result)))
    if function == "__cast":
        return zoned and not set(arguments) <= {"NULL", '"NULL"', ""} and {result, *arguments} != {_ZONED}
    if function == "timezone":
        return len(arguments) < 2
    if function == "make_timestamptz":
        return len(arguments) > 1
    return zoned and function not in _ZONE_FREE


def _casts_zone(term: SetOperation) -> bool:
    """Whether a branch of a union is cast to, or from, an instant."""
    pairs = [(own.type, all.type) for side in (term.left, term.right) for own, all in zip(side.columns, term.columns)]
    return any(own != wanted and _INSTANT.search(f"{own} {wanted}") for own, wanted in pairs)


def _over_nulls(scalar: Scalar) -> str:
    nulls = (f"CAST(NULL AS {column.type}) AS {column}" for column in sorted(columns_of(scalar), key=_number))
    text = ", ".join(nulls)
    return f"SELECT {scalar_sql(scalar)}{f' FROM (SELECT {text})' if text else ''}"


# What is computed when the view is read -------------------------------------------------------------


def depends_on_session(value: Scalar, *, ordered: bool = False) -> bool:
    """Whether a setting of the session that computes an expression over raw columns may change its value; or, if it is
    `ordered` by, its place. It is asked without DuckDB, and answers True where it cannot tell."""
    if ordered and _is_text(value):
        return True
    if _is_named(value):
        return False
    return bool(_SETTINGS_READ.search(scalar_sql(value))) or any(map(_reads_setting, walk(value)))


def _reads_setting(part: Scalar) -> bool:
    if _is_named(part):
        return False
    if any(_INSTANT.search(one.type) for one in (part, *parts_of(part))):
        return True
    if not isinstance(part, Call):
        return isinstance(part, Compare) and (_is_text(part.left) or _is_text(part.right))
    name = function_name(part.form)
    if name in _PLAIN or part.form.startswith(_PLAIN_FORMS):
        return False
    # A collation changes what is equal, ieee_floating_point_ops what overflows.
    return any(_is_text(one) or (bool(name) and one.type in ("FLOAT", "DOUBLE")) for one in part.arguments)


def _is_named(value: Scalar) -> bool:
    """Whether an expression is a column as it is."""
    return isinstance(value, Ref) or (isinstance(value, Constant) and bool(_NAME.fullmatch(value.sql)))


def _is_text(value: Scalar) -> bool:
    return bool(_TEXT.search(value.type))
