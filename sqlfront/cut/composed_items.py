"""ORDER BY items that values of several tables make together: GREATEST, LEAST, and the product of two numbers of 0 or
more.

Rows can be ordered by such an item part by part only if what ties in it is settled by the same values (see
kernels/tables/composed_terms.py). After the last item of ORDER BY that is open to us, so there *tie-breakers* follow:
the second greatest value and so on, or the factor beside a factor of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from sqlglot import exp

from sqlfront.cut.expressions.scalar_forms import MULTIPLY, is_cast
from sqlfront.cut.expressions.value_types import decimal_parts, is_lossless
from sqlfront.cut.join_core import JoinCore
from sqlfront.planner.algebra.scalars import (
    Call,
    Column,
    Constant,
    Ref,
    Scalar,
    cast,
    columns_of,
    function_name,
)
from sqlfront.sql import trees
from sqlfront.sql.dialect import parse_one

Form = Literal["greatest", "least", "product"]
SUMMABLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_COMPARED = SUMMABLE | {"DATE", "TIMESTAMP", "FLOAT", "DOUBLE"}
_WIDEST = 18
_FORMS: dict[str, Form] = {"greatest": "greatest", "least": "least"}


class Obstacle(Exception):
    """Why rows cannot be compared part by part."""


@dataclass(frozen=True)
class Composed:
    """What such an item is made of: expressions of one table each, of one type, and the items that settle its ties."""

    form: Form
    operands: tuple[Scalar, ...]
    tie_breakers: tuple[Scalar, ...]


class Composing:
    """Reads such items. `is_natural(column)` tells whether a column is declared to be 0 or more."""

    def __init__(self, core: JoinCore, is_natural: Callable[[Column], bool]) -> None:
        self._core, self._is_natural = core, is_natural

    def read(self, value: Scalar) -> Composed | None:
        """The parts of an item; None if it is no such call. Obstacle if rows are not ordered by its parts."""
        form = form_of(value)
        if form is None:
            return None
        assert isinstance(value, Call)
        operands = _operands(value)
        for operand in operands:
            if len(self._core.atoms_of(operand)) > 1:
                raise Obstacle(f"{self._core.spelled(operand)} in it is over several tables")
            if form == "product" and not self._is_at_least_zero(operand):
                hint = "declare CHECK (column >= 0) or an unsigned type"
                raise Obstacle(f"{self._core.spelled(operand)} is not known to be 0 or more ({hint})")
        return Composed(form, self._cast(value, form, operands), tuple(tie_breakers(value)))

    def _is_at_least_zero(self, value: Scalar) -> bool:
        while isinstance(value, Call) and is_cast(value) and is_lossless(value.arguments[0].type, value.type):
            value = value.arguments[0]
        return isinstance(value, Ref) and self._is_natural(value.column)

    def _cast(self, value: Call, form: Form, operands: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """The operands in one type, in which their codes compare."""
        common = value.type
        if form == "product":
            numbers = [decimal_parts(operand.type) for operand in operands]
            scales = {0 if parts is None else parts[1] for parts in numbers}
            common = "" if len(scales) == 1 else f"DECIMAL({_WIDEST},{max(scales)})"
        found = []
        for operand in operands:
            wanted, shown = common or operand.type, self._core.spelled(operand)
            parts = decimal_parts(wanted)
            if wanted not in (_COMPARED if form != "product" else SUMMABLE) and (parts is None or parts[0] > _WIDEST):
                raise Obstacle(f"{shown} is compared as {wanted}, of which no such order is kept")
            if not is_lossless(operand.type, wanted):
                raise Obstacle(f"{shown} is {operand.type}, which not always fits {wanted}")
            found.append(cast(operand, wanted))
        return tuple(found)


def form_of(value: Scalar) -> Form | None:
    """Which kind of such an item a call is."""
    if not isinstance(value, Call) or len(_operands(value)) < 2:
        return None
    return "product" if value.form == MULTIPLY else _FORMS.get(function_name(value.form))


def tie_breakers(value: Call) -> list[Scalar]:
    """The items that settle what ties in a call."""
    operands = _operands(value)
    form, whole = form_of(value), len(operands) == len(value.arguments)
    types = [value.type if form != "product" else operands[0].type] * len(operands)
    texts = _tie_texts(form, len(operands), whole)
    return [Call(text, tuple(operands), type_, can_fail=False) for text, type_ in zip(texts, types)]


def written_tie_breakers(node: exp.Expr) -> list[str]:
    """The same for a call as it is written, over the same names."""
    from sqlfront.sql.dialect import printed

    form: Form | None = None
    parts: list[exp.Expr] = []
    if isinstance(node, exp.Mul):
        form, parts = "product", [node.this, node.expression]
    elif isinstance(node, trees.Call):
        form, parts = _FORMS.get(node.name.casefold()), node.expressions
    operands = [part for part in parts if part.find(exp.Column) is not None]
    if form is None or len(operands) < 2:
        return []
    texts = _tie_texts(form, len(operands), len(operands) == len(parts))
    return [text.format(*(f"({printed(operand)})" for operand in operands)) for text in texts]


def natural_columns(checks: Iterable[str]) -> frozenset[str]:
    """The columns, in lower case, that are 0 or more by one of the CHECK constraints."""
    return frozenset(name for check in checks for name in _natural(parse_one(f"SELECT {check}").expressions[0]))


def _natural(node: exp.Expr) -> list[str]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return _natural(node.this) + _natural(node.expression)
    match node:
        case exp.GTE() | exp.GT():
            column, bound = node.this, node.expression
        case exp.LTE() | exp.LT():
            column, bound = node.expression, node.this
        case exp.Between():
            column, bound = node.this, node.args["low"]
        case _:
            return []
    is_number = isinstance(bound, exp.Literal) and not bound.is_string
    return [column.name.lower()] if isinstance(column, exp.Column) and is_number and Decimal(bound.name) >= 0 else []


def _tie_texts(form: Form | None, count: int, whole: bool) -> list[str]:
    if form == "product":
        return ["CASE WHEN ({0} = 0) THEN {1} WHEN ({1} = 0) THEN {0} END"]
    direction = "DESC" if form == "greatest" else "ASC"
    slots = ", ".join(f"{{{place}}}" for place in range(count))
    ordered = f"list_sort([{slots}], '{direction}', 'NULLS LAST')"
    return [f"({ordered})[{place}]" for place in range(2 if whole else 1, count + 1)]


def _operands(value: Call) -> list[Scalar]:
    """The arguments that read columns."""
    return [part for part in value.arguments if columns_of(part) and not isinstance(part, Constant)]
