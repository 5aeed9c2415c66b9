"""Sums that rows are ordered by, exact, in their types."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sqlfront.planner.model.query import Order, Term
from sqlfront.storage.errors import DataError

if TYPE_CHECKING:
    from sqlfront.maintenance.ranked.index import KeyLayout

_LOW = 2**64 - 1
WHOLE = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63}


class Sums(Protocol):
    """Rows of an order: the values of a term that is a sum, times its `whole`."""

    def sums(self, number: int) -> list[int | None]: ...


class RoundedSums(Sums, Protocol):
    """Rows of an order: the values of a term that is a rounded sum, too."""

    def rounded(self, number: int) -> list[float | None]: ...


def sums_in(number: int, term: Term, type_: str) -> Callable[[Sums], list[Any]] | None:
    """What reads the sum that rows have as their term of this number, in a type that holds it; None if that
    is no exact number. What it returns raises BeyondTypeError."""
    if type_ in WHOLE or type_ == "HUGEINT":
        bound, scale = 2 ** WHOLE.get(type_, 127), 0
    elif type_.startswith("DECIMAL("):
        digits, _, places = type_[len("DECIMAL(") : -1].partition(",")
        bound, scale = 10 ** int(digits), int(places)
    else:
        return None

    def read(source: Sums) -> list[Any]:
        values: list[Any] = source.sums(number)
        if term.whole != 10**scale:
            values = [None if value is None else value * 10**scale // term.whole for value in values]
        if any(value is not None and not -bound <= value < bound for value in values):
            raise BeyondTypeError
        return values if scale == 0 else [None if value is None else Decimal(f"{value}e-{scale}") for value in values]

    return read


def values_in(number: int, term: Term, type_: str) -> Callable[[RoundedSums], list[Any]] | None:
    """What reads a sum, exact or rounded, as `sums_in` says."""
    if term.form != "rounded":
        return sums_in(number, term, type_)
    return (lambda source: source.rounded(number)) if type_ in ("FLOAT", "DOUBLE") else None


def key_sums(order: Order, layout: KeyLayout, keys: np.ndarray, number: int) -> list[int | None]:
    """The value of a term that is a sum for rows of rank words, times the term's `whole`; None for NULL."""
    place, constant = layout.starts[number], order.terms[number].constant
    return [
        None if nulls else (high << 64) + (low & _LOW) + constant
        for nulls, high, low in keys[:, place : place + 3].tolist()
    ]


class BeyondTypeError(DataError):
    """A sum does not fit its type."""

    def __init__(self) -> None:
        super().__init__("a sum that rows are ordered by does not fit its type", hint="cast it to HUGEINT")
