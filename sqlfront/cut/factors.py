"""Measures of a block, sums of products of one factor per atom, and the factors as columns of the atoms' leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlfront.cut.expressions.polynomials import Monomial
from sqlfront.cut.expressions.scalar_forms import MULTIPLY, call, guarded, is_not_null
from sqlfront.cut.expressions.value_types import INTEGER_BITS, decimal_parts
from sqlfront.cut.leaf_columns import Leaves
from sqlfront.cut.products import ARGUMENT, both, is_floating
from sqlfront.planner.algebra.scalars import Call, Constant, Scalar, cast
from sqlfront.planner.model.query import Measure

ONE_VALUE = Constant("1", "INTEGER")
WIDEST_INTEGER, WIDEST_DECIMAL = 127, 38
Multiply = Callable[[Sequence[Scalar]], Scalar]
"""The product of the values of one atom's row."""


class Measures:
    """The measures of a block: equal ones are one, equal factors share a leaf column."""

    def __init__(self, leaves: Leaves, first_atom: str) -> None:
        self._leaves, self._first_atom = leaves, first_atom
        self._measures: dict[Measure, int] = {}
        self._factors: dict[tuple[object, ...], Scalar] = {}

    @property
    def all(self) -> tuple[Measure, ...]:
        return tuple(self._measures)

    def measure(self, monomial: Monomial, multiply: Multiply) -> int:
        """The number of the measure that sums a monomial, but for its coefficient, over the rows of the join."""
        atoms = {atom for atom, _ in (*monomial.values, *monomial.conditions) if atom}
        scalers = [value for atom, value in monomial.values if not atom]
        if scalers and not atoms:  # A constant's sum: any atom may carry it.
            atoms = {self._first_atom}
        factors = []
        for i, atom in enumerate(sorted(atoms)):
            value = self._shared_factor(atom, monomial, scalers if i == 0 else [], multiply)
            factors.append((atom, self._leaves.factor(value, atom)))
        return self._measures.setdefault(Measure(tuple(factors)), len(self._measures))

    def _shared_factor(self, atom: str, monomial: Monomial, scalers: list[Scalar], multiply: Multiply) -> Scalar:
        """The factor of an atom; that of an equal product, in whatever order its conditions came, if there is one."""
        values = tuple(value for owner, value in monomial.values if owner == atom)
        conditions = frozenset(value for owner, value in monomial.conditions if owner == atom)
        identity = (atom, values, conditions, tuple(scalers), multiply)
        if identity not in self._factors:
            self._factors[identity] = _factor(atom, monomial, scalers, multiply)
        return self._factors[identity]


def as_doubles(values: Sequence[Scalar]) -> Scalar:
    """A product that is rounded as DuckDB rounds it."""
    return _multiplied([cast(value, "DOUBLE") for value in values])


def in_full(values: Sequence[Scalar]) -> Scalar:
    """A product of whole numbers and decimals, in the widest type."""
    return _multiplied([_wide(value) for value in values] if len(values) > 1 else values)


def exactly(values: Sequence[Scalar]) -> Scalar:
    """The exact product of numbers of one kind (`are_alike`); one that no number type can hold as an ARRAY of its
    factors (see storage/codecs/sums.py)."""
    whole, decimal = all(value.type in INTEGER_BITS for value in values), decimal_parts(values[0].type)
    if len(values) == 1 or (whole and sum(INTEGER_BITS[value.type][1] for value in values) <= WIDEST_INTEGER):
        return in_full(values)
    if decimal is not None and decimal[0] * len(values) <= WIDEST_DECIMAL:
        product = _wide(values[0])
        for number, value in enumerate(values[1:], 2):
            product = call(MULTIPLY, f"DECIMAL({WIDEST_DECIMAL},{decimal[1] * number})", product, _wide(value))
        return product
    element = "HUGEINT" if whole else values[0].type
    places = ", ".join(f"{{{number}}}" for number in range(len(values)))
    elements = (cast(value, element) for value in values)
    return call(f"array_value({places})", f"{element}[{len(values)}]", *elements)


def are_alike(values: Sequence[Scalar]) -> bool:
    """Whether `exactly` can multiply these values: whole numbers, or numbers of one type."""
    types = {value.type for value in values}
    return len(types) <= 1 or types <= INTEGER_BITS.keys()


def in_one_type(values: Sequence[Scalar]) -> list[Scalar]:
    """Numbers as they are if they are alike, else as decimals that hold all of their values, else as DOUBLEs."""
    if are_alike(values) and not any(is_floating(value.type) for value in values):
        return list(values)
    sizes = [_digits(value.type) for value in values]
    known = [size for size in sizes if size is not None]
    before, behind = (max((size[place] for size in known), default=0) for place in (0, 1))
    exact = len(known) == len(values) and before + behind <= WIDEST_DECIMAL
    return [cast(value, f"DECIMAL({before + behind},{behind})" if exact else "DOUBLE") for value in values]


def _digits(type_: str) -> tuple[int, int] | None:
    """How many digits the values of an exact type have before and behind the point."""
    if is_floating(type_):
        return None
    parts = decimal_parts(type_)
    return (parts[0] - parts[1], parts[1]) if parts else (len(str(2 ** INTEGER_BITS[type_][1])), 0)


def _factor(atom: str, monomial: Monomial, scalers: list[Scalar], multiply: Multiply) -> Scalar:
    """CASE WHEN conditions THEN product END, without the conditions that the product's own NULL implies."""
    values = [value for owner, value in monomial.values if owner == atom]
    product = multiply(values) if values else None
    # An ARRAY is not NULL where an element is.
    implied = set() if product is not None and product.type.endswith("]") else {is_not_null(value) for value in values}
    conditions = [value for owner, value in monomial.guarding if owner == atom and value not in implied]
    for scaler in scalers:
        product = _scaled(scaler, product or Constant("CAST(1 AS DOUBLE)", "DOUBLE"))
    if not conditions:
        return product or ONE_VALUE
    condition = conditions[0]
    for other in conditions[1:]:
        condition = both(condition, other)
    return guarded(condition, product or ONE_VALUE)


def _multiplied(values: Sequence[Scalar]) -> Scalar:
    product, *others = values
    for value in others:
        product = call(MULTIPLY, product.type, product, value)
    return product


def _wide(value: Scalar) -> Scalar:
    parts = decimal_parts(value.type)
    return cast(value, f"DECIMAL({WIDEST_DECIMAL},{parts[1]})" if parts else "HUGEINT")


def _scaled(scaler: Scalar, value: Scalar) -> Scalar:
    """A scaler (v * c, v / c) applied to a value."""
    assert isinstance(scaler, Call)
    left, right = scaler.arguments
    return call(scaler.form, scaler.type, value if left == ARGUMENT else left, right)
