"""SUM arguments over several tables, multiplied out into products of one-table factors.

Every expression e becomes two polynomials: its value V, which counts as 0 where e is NULL, and its
presence N, which is 1 where e is not NULL and 0 elsewhere. They follow the expression:

    product    V = V1 * V2                    N = N1 * N2
    sum        V = V1 * N2 + N1 * V2          N = N1 * N2
    CASE p     V = [p] V1 + [not p] V2        N = [p] N1 + [not p] N2

so a row counts only where all that the expression uses is not NULL, as in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlfront.bind.refusals import refusal
from sqlfront.bind.result_types import FLOATS, Typing, is_lossless
from sqlfront.sql.parse_tree import SourceText, Tree, arguments, atoms_of, conjuncts, expression, key, render, span

Part = tuple[str, str]

_LARGEST_EXACT = 9_007_199_254_740_992  # every integer up to 2^53 is a DOUBLE


@dataclass(frozen=True)
class Monomial:
    """coefficient * the values, over rows where all conditions hold.

    Values and conditions are (atom, expression key); a value whose atom is "" scales another value. `guarding` has the
    conditions in the order of their evaluation: a condition is evaluated only where the ones before it are true.
    """

    coefficient: Fraction
    values: tuple[Part, ...] = ()
    guarding: tuple[Part, ...] = field(default=(), compare=False)
    conditions: frozenset[Part] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", frozenset(self.guarding))

    def times(self, other: Monomial) -> Monomial:
        """The product; the conditions of `self` guard the other's."""
        return Monomial(
            self.coefficient * other.coefficient,
            tuple(sorted(self.values + other.values)),
            tuple(dict.fromkeys(self.guarding + other.guarding)),
        )

    def where(self, *conditions: Part) -> Monomial:
        """The same over the rows where these conditions hold too, which are evaluated last."""
        return self.times(Monomial(Fraction(1), (), conditions))


Polynomial = tuple[Monomial, ...]
ONE: Polynomial = (Monomial(Fraction(1)),)


class Expander:
    """Multiplies out expressions; remembers the tree of every part it names."""

    def __init__(
        self, con: Any, typing: Typing, never_null: Callable[[Tree], bool], source: SourceText, first_atom: str
    ) -> None:
        self._con, self._typing, self._never_null, self._source = con, typing, never_null, source
        self.first_atom = first_atom
        self.trees: dict[str, Tree] = {}

    def expand(self, tree: Tree, floating: bool) -> tuple[Polynomial, Polynomial]:
        """(value, presence) of a numeric expression; `floating` when the whole argument is a DOUBLE.

        Raises NotSupportedError for what cannot be multiplied out.
        """
        atoms = atoms_of(tree)
        if not atoms:
            return self._constant(tree, floating)
        if len(atoms) == 1:
            return self.leaf(tree)
        if floating and self._typing.type_of(tree) == "FLOAT":
            why = "FLOAT arithmetic rounds every row to 24 bits, which a product of sums cannot follow"
            raise refusal("FLOAT arithmetic across tables", self._source, span(tree), why, "cast to DOUBLE")
        name = str(tree.get("function_name", "")).lower()
        operands = arguments(tree) if tree["class"] == "FUNCTION" else []
        if name in ("+", "-") and len(operands) == 1:
            value, presence = self.expand(operands[0], floating)
            return (_scaled(value, -1) if name == "-" else value), presence
        if name in ("+", "-", "*") and len(operands) == 2:
            return self._binary(name, operands, floating)
        if name == "/" and len(operands) == 2 and not atoms_of(operands[1]):
            return self._divided(tree, operands, floating)
        if tree["class"] == "CASE" or name == "if":
            return self._case(tree, operands, floating)
        if tree["class"] == "CAST" and self._keeps_value(tree, floating):
            return self.expand(tree["child"], floating)
        raise self._refused(tree)

    def presence(self, tree: Tree) -> Polynomial:
        """1 where an expression of any type is not NULL."""
        atoms = atoms_of(tree)
        if not atoms:
            [(null,)] = self._con.execute(f"SELECT {render(tree)} IS NULL").fetchall()
            return () if null else ONE
        return self.leaf(tree)[1] if len(atoms) == 1 else self.expand(tree, False)[1]

    def leaf(self, tree: Tree) -> tuple[Polynomial, Polynomial]:
        """An expression of one atom is a factor as it stands."""
        atom = next(iter(atoms_of(tree)))
        conditions = () if self._never_null(tree) else (self.part(_not_null(tree), atom),)
        value = Monomial(Fraction(1), (self.part(tree, atom),), conditions)
        return (value,), (Monomial(Fraction(1), (), conditions),)

    def indicator(self, predicate: Tree) -> Monomial:
        """1 where the predicate is true. Raises NotSupportedError unless it is an AND of one-table predicates."""
        conditions = []
        for conjunct in conjuncts(predicate):
            atoms = sorted(atoms_of(conjunct))
            if len(atoms) > 1:
                why = "each condition inside an aggregate must concern one table"
                hint = "split it with AND into conditions on one table each"
                raise refusal("A condition over several tables", self._source, span(conjunct), why, hint)
            conditions.append(self.part(conjunct, atoms[0] if atoms else self.first_atom))
        return Monomial(Fraction(1), (), tuple(dict.fromkeys(conditions)))

    def part(self, tree: Tree, atom: str) -> Part:
        self.trees[key(tree)] = tree
        return atom, key(tree)

    def _binary(self, name: str, operands: list[Tree], floating: bool) -> tuple[Polynomial, Polynomial]:
        (left, left_present), (right, right_present) = (self.expand(operand, floating) for operand in operands)
        present = _product(left_present, right_present)
        if name == "*":
            return _product(left, right), present
        signed = _scaled(right, -1) if name == "-" else right
        return _combined(_product(left, right_present) + _product(left_present, signed)), present

    def _divided(self, tree: Tree, operands: list[Tree], floating: bool) -> tuple[Polynomial, Polynomial]:
        divisor = self._evaluate(operands[1])
        if not floating or not divisor:
            raise self._refused(tree)
        value, presence = self.expand(operands[0], floating)
        scale = Monomial(Fraction(1), (self.part(expression("v / c", c=operands[1]), ""),))
        return _product(value, (scale,)), presence

    def _constant(self, tree: Tree, floating: bool) -> tuple[Polynomial, Polynomial]:
        value = self._evaluate(tree)
        if value is None:
            return (), ()
        if floating and not (float(value).is_integer() and abs(float(value)) <= _LARGEST_EXACT):
            scale = expression(f"v * CAST({float(value)!r} AS DOUBLE)")
            return (Monomial(Fraction(1), (self.part(scale, ""),)),), ONE
        return (Monomial(Fraction(value)),), ONE

    def _evaluate(self, tree: Tree) -> Decimal | float | None:
        """A constant's value; exact for integers and decimals."""
        value = self._con.execute(f"SELECT {render(tree)}").fetchone()[0]
        if value is None:
            return None
        if isinstance(value, (int, Decimal)):
            return Decimal(value)
        if isinstance(value, float) and math.isfinite(value):
            return value
        why = "it is no finite number"
        raise refusal("This constant", self._source, span(tree), why, "use a number")

    def _case(self, tree: Tree, operands: list[Tree], floating: bool) -> tuple[Polynomial, Polynomial]:
        if operands:
            checks, otherwise = [(operands[0], operands[1])], operands[2]
        else:
            checks = [(check["when_expr"], check["then_expr"]) for check in tree["case_checks"]]
            otherwise = tree["else_expr"]
        value, presence = self.expand(otherwise, floating)
        for condition, then in reversed(checks):
            then_value, then_presence = self.expand(then, floating)
            yes = (self.indicator(condition),)
            no = self._negation(condition)
            value = _combined(_product(yes, then_value) + _product(no, value))
            if presence != then_presence:
                presence = _combined(_product(yes, then_presence) + _product(no, presence))
        return value, presence

    def _negation(self, predicate: Tree) -> Polynomial:
        """1 where the predicate is false or NULL: a condition if one atom decides, else 1 minus the indicator."""
        atoms = sorted(atoms_of(predicate)) or [self.first_atom]
        if len(atoms) == 1:
            negated = expression("p IS DISTINCT FROM true", p=predicate)
            return (Monomial(Fraction(1), (), (self.part(negated, atoms[0]),)),)
        return ONE + _scaled((self.indicator(predicate),), -1)

    def _keeps_value(self, cast: Tree, floating: bool) -> bool:
        """Whether a cast over several tables changes no value (to DOUBLE: rounds as all floating sums do)."""
        source, target = self._typing.type_of(cast["child"]), self._typing.type_of(cast)
        return not cast["try_cast"] and (is_lossless(source, target) or (floating and target == "DOUBLE"))

    def _refused(self, tree: Tree) -> Exception:
        return refusal(
            "This expression over several tables",
            self._source,
            span(tree),
            "a sum over a join is kept as products of one-table sums, so the argument may only use "
            "+, -, *, division of a DOUBLE by a constant, and CASE with one-table conditions",
            "compute it from one table's columns, or keep the columns in the view and aggregate when you read it",
        )


def is_floating(kind: str) -> bool:
    """Types that DuckDB sums as DOUBLE."""
    return kind in FLOATS or kind == "UHUGEINT"


def _not_null(tree: Tree) -> Tree:
    return expression("v IS NOT NULL", v=tree)


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    return _combined(tuple(one.times(other) for one in left for other in right))


def _scaled(polynomial: Polynomial, by: int) -> Polynomial:
    return tuple(Monomial(one.coefficient * by, one.values, one.guarding) for one in polynomial)


def _combined(polynomial: Polynomial) -> Polynomial:
    """Like terms added, zeros dropped, order kept."""
    sums: dict[tuple[tuple[Part, ...], frozenset[Part]], Monomial] = {}
    for one in polynomial:
        like = (one.values, one.conditions)
        former = sums.get(like, Monomial(Fraction(0), one.values, one.guarding))
        sums[like] = Monomial(former.coefficient + one.coefficient, one.values, former.guarding)
    return tuple(one for one in sums.values() if one.coefficient)
