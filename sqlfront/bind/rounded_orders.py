"""ORDER BY items that are sums of floating numbers of several tables: how DuckDB computes them, and how far that may be
from the exact sum.

DuckDB rounds after each step, in the order in which the query has them. Rows are ordered by that value; how they are
found by bounds of it, which are made part by part, is told in sqlfront.storage.kernels.programs.rounding_bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isfinite
from typing import Any

from sqlfront.bind.composed_orders import Obstacle
from sqlfront.bind.result_types import FLOATS, INTEGER_BITS, Typing, is_lossless
from sqlfront.planner.model.query import Rounding
from sqlfront.sql.parse_tree import Tree, arguments, atoms_of, expression, render
from sqlfront.storage.kernels.layout import EXACT_LIMIT, EXACT_UNIT, MOST_PARTS

_WIDEST = 2**40
_SPARE = 16
"""Steps that bounds are rounded in themselves, generously."""


def read_rounded(
    tree: Tree, typing: Typing, evaluate: Callable[[Tree], Any]
) -> tuple[list[tuple[Tree, str]], Rounding] | None:
    """The parts of a resolved item that is a sum of floating numbers, expressions of one table each with their types;
    None if it is of another type. Obstacle if it is no such sum."""
    kind = typing.type_of(tree)
    if kind not in FLOATS:
        return None
    reading = _Reading(typing, evaluate)
    reading.push(tree, kind, Fraction(1))
    return reading.parts, reading.rounding()


class _Reading:
    """The steps that compute a sum, as far as it has been read."""

    def __init__(self, typing: Typing, evaluate: Callable[[Tree], Any]) -> None:
        self._typing, self._evaluate = typing, evaluate
        self.parts: list[tuple[Tree, str]] = []
        self._steps: list[tuple[str, float, str]] = []
        self._weights: list[Fraction] = []
        self._constants: list[Fraction] = []

    def push(self, tree: Tree, type_: str, weight: Fraction) -> None:
        """Add the steps that compute an expression in a type; `weight` is what it is multiplied by afterwards."""
        atoms, kind = atoms_of(tree), self._typing.type_of(tree)
        if not _WIDEST >= abs(weight) >= Fraction(1, _WIDEST):
            raise Obstacle("its coefficients are too far apart")
        if not atoms:
            value = self._constant(tree, type_)
            self._constants.append(Fraction(value) * weight)
            self._steps.append(("constant", value, type_))
        elif len(atoms) == 1:
            self._steps.append(("part", len(self.parts), type_))
            self.parts.append((tree if kind == type_ else expression(f"CAST(v AS {type_})", v=tree), type_))
            self._weights.append(weight)
        elif kind != type_ and not is_lossless(kind, type_):
            raise Obstacle(f"{render(tree)} in it is {kind} over several tables: cast its numbers to {type_}")
        elif tree["class"] == "CAST" and is_lossless(self._typing.type_of(tree["child"]), kind):
            self.push(tree["child"], "DOUBLE" if kind in INTEGER_BITS else kind, weight)
        else:
            self._push_call(tree, "DOUBLE" if kind in INTEGER_BITS else kind, weight)

    def rounding(self) -> Rounding:
        """How the sum is computed, of all that has been read."""
        numbers = len(self.parts) + len(self._constants)
        if numbers > MOST_PARTS:
            raise Obstacle(f"it is a sum of more than {MOST_PARTS} numbers")
        single = any(type_ == "FLOAT" for _, _, type_ in self._steps)
        error = Fraction(2 * len(self._steps) + _SPARE, 2 ** FLOATS["FLOAT" if single else "DOUBLE"])
        factors = any(what in ("*", "/") for what, _, _ in self._steps)
        few = not single and not factors and all(map(_has_few_digits, self._constants))
        constant, doubt = sum(self._constants), Fraction(0)
        if not few:
            doubt = error * sum(map(abs, self._constants))
        bounds = float(constant - doubt), float(constant + doubt)
        weights = tuple(map(float, self._weights))
        return Rounding(tuple(self._steps), weights, bounds, float(error), numbers if few else 0)

    def _push_call(self, tree: Tree, type_: str, weight: Fraction) -> None:
        name, operands = tree.get("function_name"), arguments(tree) if tree["class"] == "FUNCTION" else []
        if name in ("+", "-") and len(operands) == 2:
            self.push(operands[0], type_, weight)
            self.push(operands[1], type_, -weight if name == "-" else weight)
            self._steps.append((name, 0, type_))
            return
        if name == "-" and len(operands) == 1:
            self.push(operands[0], type_, -weight)
            self._steps.append(("negate", 0, type_))
            return
        varying = [part for part in operands if atoms_of(part)]
        if name not in ("*", "/") or len(operands) != 2 or varying not in (operands[:1], operands[1:]):
            raise Obstacle(f"{render(tree)} is no sum of one table's columns each")
        [factor] = [part for part in operands if not atoms_of(part)]
        value = self._constant(factor, type_)
        if value == 0 or (name == "/" and factor is operands[0]):
            raise Obstacle(f"{render(tree)} is no sum of one table's columns each")
        self.push(varying[0], type_, weight * Fraction(value) if name == "*" else weight / Fraction(value))
        self._steps += [("constant", value, type_), (name, 0, type_)]

    def _constant(self, tree: Tree, type_: str) -> float:
        value = self._evaluate(expression(f"CAST(v AS {type_})", v=tree))
        if value is None or not isfinite(value):
            raise Obstacle(f"{render(tree)} is no finite number")
        return float(value)


def _has_few_digits(number: Fraction) -> bool:
    """Whether a number is one of those of which many are added without rounding."""
    return abs(number) < 2**EXACT_LIMIT and (number * 2**EXACT_UNIT).denominator == 1
