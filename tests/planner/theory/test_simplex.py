"""The simplex method beside an oracle that tries every basis."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import isclose
from random import Random

import pytest

from sqlfront.planner.theory.simplex import greatest, greatest_packing


def solved(rows: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """The one solution of a square system, by elimination; None if there is none or more."""
    size, table = len(rows), [[*row, value] for row, value in zip(rows, right, strict=True)]
    for column in range(size):
        place = next((i for i in range(column, size) if table[i][column]), None)
        if place is None:
            return None
        table[column], table[place] = table[place], table[column]
        table[column] = [value / table[column][column] for value in table[column]]
        for i in range(size):
            if i != column:
                factor = table[i][column]
                table[i] = [value - factor * other for value, other in zip(table[i], table[column], strict=True)]
    return [row[-1] for row in table]


def best_vertex(gains: list[Fraction], rows: list[list[Fraction]], room: list[Fraction]) -> Fraction:
    """The greatest sum over the corners of the polytope, where as many bounds as variables hold with equality."""
    size = len(gains)
    bounds = [*zip(rows, room, strict=True)]
    bounds += [([Fraction(-(i == j)) for j in range(size)], Fraction(0)) for i in range(size)]
    corners = [solved([row for row, _ in some], [most for _, most in some]) for some in combinations(bounds, size)]
    inside = [
        corner
        for corner in corners
        if corner is not None
        and all(sum(a * x for a, x in zip(row, corner, strict=True)) <= most for row, most in bounds)
    ]
    return max(sum((gain * x for gain, x in zip(gains, corner, strict=True)), Fraction(0)) for corner in inside)


@pytest.mark.parametrize("seed", range(40))
def test_random_programmes(seed: int) -> None:
    choose = Random(seed)
    size, more = choose.randint(1, 3), choose.randint(0, 3)
    rows = [[Fraction(choose.randint(-3, 4)) for _ in range(size)] for _ in range(more)]
    rows += [[Fraction(choose.randint(1, 3)) for _ in range(size)]]  # It bounds the sum.
    room = [Fraction(choose.randint(0, 5)) for _ in rows]
    gains = [Fraction(choose.randint(-2, 4)) for _ in range(size)]
    value, found = greatest(gains, rows, room)
    assert value == best_vertex(gains, rows, room) == sum(g * x for g, x in zip(gains, found, strict=True))
    assert min(found) >= 0
    taken = [sum(a * x for a, x in zip(row, found, strict=True)) for row in rows]
    assert all(one <= most for one, most in zip(taken, room, strict=True))
    rounded, _ = greatest([*map(float, gains)], [[*map(float, row)] for row in rows], [*map(float, room)])
    assert isclose(rounded, value, abs_tol=1e-9)


def test_a_sum_without_a_bound_is_an_error() -> None:
    with pytest.raises(ValueError, match="no bound"):
        greatest([1.0], [[-1.0]], [1.0])


def test_the_triangle_is_covered_by_three_halves() -> None:
    assert greatest_packing([[1, 1, 0], [0, 1, 1], [1, 0, 1]], [Fraction(1)] * 3) == Fraction(3, 2)
