"""unnest in the SELECT list: the elements of lists, level by level, and the fields of structs as columns.

`max_depth` levels are unfolded, all if it is `recursive`: first those of lists, then those of structs. A list within a
struct stays as it is. DuckDB unfolds the lists of one level side by side, the levels one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.binding.bound_calls import ElementCall
from sqlfront.planner.algebra.scalars import Call, Scalar
from sqlfront.sql import trees
from sqlfront.storage.codecs.nested_types import parse_nested

if TYPE_CHECKING:
    from sqlfront.binding.select_block import SelectBlock

_ALL_LEVELS = 1 << 30
_LISTS, _STRUCTS = ("LIST", "ARRAY"), ("STRUCT", "TUPLE")


def unfolded(node: trees.Call, block: SelectBlock) -> tuple[Scalar, list[tuple[str, Scalar]]]:
    """The element that unnest(...) gives, in each of its rows, and the columns that it makes of a struct: none of
    another value."""
    argument, *rest = node.expressions
    options = {one.name.casefold(): one.expression for one in rest if isinstance(one, exp.Kwarg)}
    depth = int(options["max_depth"].name) if "max_depth" in options else 1
    depth = _ALL_LEVELS if _is_true(options.get("recursive")) else depth
    [value] = block.environment.types.typed([block.expressions.bind(argument)])
    nested = parse_nested(value.type)
    if nested is None:
        raise block.notes.refusal("unnest of NULL", node, "NULL has no elements and no type", "cast it to a list")
    while depth and nested is not None and nested.family in _LISTS:
        [type_] = nested.types
        value = ElementCall("list_extract({0}, 1)", (value,), type_, can_fail=False)
        nested, depth = parse_nested(type_), depth - 1
    return value, list(_fields(value, "", depth, keeps_names=_is_true(options.get("keep_parent_names"))))


def _fields(value: Scalar, name: str, depth: int, *, keeps_names: bool) -> Iterator[tuple[str, Scalar]]:
    """The columns of a struct, down to a depth: nothing of another value."""
    nested = parse_nested(value.type)
    if not depth or nested is None or nested.family not in _STRUCTS:
        return
    for place, (field, type_) in enumerate(zip(nested.names, nested.types, strict=True), start=1):
        held = Call(f"struct_extract_at({{0}}, {place})", (value,), type_, strict=True, can_fail=False)
        called = f"{name}.{field}" if keeps_names and name and nested.family == "STRUCT" else field
        inner = list(_fields(held, called, depth - 1, keeps_names=keeps_names))
        yield from inner or [(called, held)]


def _is_true(option: exp.Expr | None) -> bool:
    return isinstance(option, exp.Boolean) and bool(option.this)
