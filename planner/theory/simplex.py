"""Small linear programmes by the simplex method: exact with fractions, rounded with floats.

Bland's rule lets the method end: of the columns that gain and of the rows that bind, the first are taken (Bland,
Mathematics of Operations Research 1977). The programmes here have some ten rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Number: TypeAlias = Any
"""A Fraction or a float; one kind in a programme."""

_NOTHING = 1e-12
"""What rounding leaves of a zero."""


def greatest(
    gains: Sequence[Number], rows: Sequence[Sequence[Number]], room: Sequence[Number]
) -> tuple[Number, list[Number]]:
    """The greatest sum of gains * x, and such an x, where x >= 0 and rows * x <= room. No room is negative.

    Exponential at worst, a few pivots of O(rows * columns) each in practice. ValueError if the sum has no bound.
    """
    kind, size = type(room[0]), len(gains)
    table = [
        [*row, *(kind(i == j) for j in range(len(rows))), most]
        for i, (row, most) in enumerate(zip(rows, room, strict=True))
    ]
    left = [*gains, *(kind(0) for _ in range(len(rows) + 1))]
    basis = list(range(size, size + len(rows)))
    while (column := next((j for j, gain in enumerate(left[:-1]) if gain > _NOTHING), None)) is not None:
        bounds = [(row[-1] / row[column], basis[i], i) for i, row in enumerate(table) if row[column] > _NOTHING]
        if not bounds:
            raise ValueError("the sum has no bound")
        place = min(bounds)[2]
        _pivot(table, left, place, column)
        basis[place] = column
    found = dict(zip(basis, (row[-1] for row in table), strict=True))
    return -left[-1], [found.get(j, kind(0)) for j in range(size)]


def greatest_packing(edges: Sequence[Sequence[int]], room: Sequence[Number]) -> Number:
    """The greatest total weight of vertices such that those of each edge weigh at most its room: by duality the least
    fractional cover. `edges` are rows of 0 and 1, a column for each vertex; every vertex is in an edge."""
    kind = type(room[0])
    return greatest([kind(1)] * len(edges[0]), [list(map(kind, edge)) for edge in edges], room)[0]


def _pivot(rows: list[list[Number]], left: list[Number], place: int, column: int) -> None:
    """Let the column enter the basis in place of that of a row."""
    divisor = rows[place][column]
    chosen = rows[place] = [value / divisor for value in rows[place]]
    for row in (*rows[:place], *rows[place + 1 :], left):
        factor = row[column]
        if factor:
            row[:] = [value - factor * other if other else value for value, other in zip(row, chosen, strict=True)]
