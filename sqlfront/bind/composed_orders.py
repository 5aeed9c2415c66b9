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

from sqlfront.bind.result_types import Typing, decimal_parts, is_lossless
from sqlfront.sql.parse_tree import (
    SourceText,
    Tree,
    arguments,
    atoms_of,
    columns_of,
    conjuncts,
    expression,
    parse_select,
    render,
    walk,
)

Form = Literal["greatest", "least", "product"]
SUMMABLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
_COMPARED = SUMMABLE | {"DATE", "TIMESTAMP", "FLOAT", "DOUBLE"}
_WIDEST = 18
_FORMS: dict[str | None, Form] = {"greatest": "greatest", "least": "least", "*": "product"}


class Obstacle(Exception):
    """Why rows cannot be compared part by part."""


@dataclass(frozen=True)
class Composed:
    """What such an item is made of: expressions of one table each, of one type, and the items that settle its ties."""

    form: Form
    operands: tuple[Tree, ...]
    tie_breakers: tuple[Tree, ...]


class Composing:
    """Reads such items. `is_natural(atom, column)` tells whether a column is declared to be 0 or more."""

    def __init__(self, typing: Typing, is_natural: Callable[[str, str], bool]) -> None:
        self._typing, self._is_natural = typing, is_natural

    def read(self, tree: Tree) -> Composed | None:
        """The parts of a resolved item; None if it is no such call. Obstacle if rows are not ordered by its parts."""
        form = form_of(tree)
        if form is None:
            return None
        operands = _operands(tree)
        for operand in operands:
            if len(atoms_of(operand)) > 1:
                raise Obstacle(f"{render(operand)} in it is over several tables")
            if form == "product" and not self._is_at_least_zero(operand):
                hint = "declare CHECK (column >= 0) or an unsigned type"
                raise Obstacle(f"{render(operand)} is not known to be 0 or more ({hint})")
        return Composed(form, self._cast(tree, form, operands), tuple(tie_breakers(tree)))

    def _is_at_least_zero(self, tree: Tree) -> bool:
        while tree["class"] == "CAST" and is_lossless(self._typing.type_of(tree["child"]), self._typing.type_of(tree)):
            tree = tree["child"]
        if tree["class"] != "COLUMN_REF":
            return False
        [(atom, column)] = columns_of(tree)
        return self._is_natural(atom, column)

    def _cast(self, tree: Tree, form: Form, operands: Sequence[Tree]) -> tuple[Tree, ...]:
        """The operands in one type, in which their codes compare."""
        types = [self._typing.type_of(operand) for operand in operands]
        common = self._typing.type_of(tree)
        if form == "product":
            numbers = [decimal_parts(kind) for kind in types]
            scales = {0 if parts is None else parts[1] for parts in numbers}
            common = "" if len(scales) == 1 else f"DECIMAL({_WIDEST},{max(scales)})"
        found = []
        for operand, kind in zip(operands, types, strict=True):
            wanted = common or kind
            parts = decimal_parts(wanted)
            if wanted not in (_COMPARED if form != "product" else SUMMABLE) and (parts is None or parts[0] > _WIDEST):
                raise Obstacle(f"{render(operand)} is compared as {wanted}, of which no such order is kept")
            if not is_lossless(kind, wanted):
                raise Obstacle(f"{render(operand)} is {kind}, which not always fits {wanted}")
            found.append(operand if wanted == kind else expression(f"CAST(v AS {wanted})", v=operand))
        return tuple(found)


def form_of(tree: Tree) -> Form | None:
    """Which kind of such an item a call is, resolved or not."""
    name = tree.get("function_name") if tree["class"] == "FUNCTION" else None
    if name not in _FORMS or len(_operands(tree)) < 2:
        return None
    return _FORMS[name]


def tie_breakers(tree: Tree) -> list[Tree]:
    """The items that settle what ties in a call, over the same names."""
    operands = _operands(tree)
    if form_of(tree) == "product":
        return [expression("CASE WHEN p = 0 THEN q WHEN q = 0 THEN p END", p=operands[0], q=operands[1])]
    direction = "DESC" if form_of(tree) == "greatest" else "ASC"
    names = [f"v{number}" for number in range(len(operands))]
    ordered = f"list_sort([{', '.join(names)}], '{direction}', 'NULLS LAST')"
    first = 2 if len(operands) == len(arguments(tree)) else 1
    return [
        expression(f"{ordered}[{place}]", **dict(zip(names, operands, strict=True)))
        for place in range(first, len(operands) + 1)
    ]


def natural_columns(checks: Iterable[str]) -> frozenset[str]:
    """The columns, in lower case, that are 0 or more by one of the CHECK constraints."""
    found = set()
    for check in checks:
        [tree] = parse_select(f"SELECT {check}", SourceText(check))["select_list"]
        for condition in conjuncts(tree):
            sides = {
                "COMPARE_GREATERTHANOREQUALTO": ("left", "right"), "COMPARE_GREATERTHAN": ("left", "right"),
                "COMPARE_LESSTHANOREQUALTO": ("right", "left"), "COMPARE_LESSTHAN": ("right", "left"),
                "COMPARE_BETWEEN": ("input", "lower"),
            }.get(condition["type"])  # fmt: skip
            if sides is None:
                continue
            column, bound = condition[sides[0]], condition[sides[1]]
            literal = bound.get("literal") or {}
            is_bound = column["class"] == "COLUMN_REF" and literal.get("kind") in ("INTEGER", "NUMERIC")
            if is_bound and Decimal(literal["text"]) >= 0:
                found.add(column["column_names"][-1].lower())
    return frozenset(found)


def _operands(tree: Tree) -> list[Tree]:
    """The arguments that read columns."""
    return [part for part in arguments(tree) if any(node["class"] == "COLUMN_REF" for node in walk(part))]
