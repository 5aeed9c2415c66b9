"""The layout of a delta or a view: which variables its key words hold and which partial sums its values are.

A measure is a sum of products of factors, one per atom. Restricted to the atoms that a view covers it
is a **part**, a set of (atom, factor) pairs; the empty part is the row count. A view stores one value
per distinct part, so measures that agree on a subtree share their work there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlfront.planner.model.query import Measure

Part = frozenset[tuple[str, str]]
COUNT: Part = frozenset()
TOUCHES: Part = frozenset({("", "touches")})
"""Not a sum: how many rows of a delta were added up, which is positive also where they cancel."""


@dataclass(frozen=True)
class Shape:
    """`variables` in key order with their widths in words; `parts` in value order, the count first."""

    variables: tuple[str, ...]
    widths: tuple[int, ...]
    parts: tuple[Part, ...]
    limbs: int

    @property
    def keys(self) -> int:
        return sum(self.widths)

    def places(self, variables: Iterable[str]) -> tuple[int, ...]:
        """The key words that hold these variables, in this order."""
        return tuple(place for variable in variables for place in self.starts[variable])

    @functools.cached_property
    def starts(self) -> dict[str, range]:
        """The key words of each variable."""
        starts, at = {}, 0
        for variable, width in zip(self.variables, self.widths, strict=True):
            starts[variable] = range(at, at + width)
            at += width
        return starts


def parts_of(measures: Iterable[Measure], atoms: Iterable[str]) -> tuple[Part, ...]:
    """The distinct parts of the measures on these atoms, the row count first."""
    covered = set(atoms)
    distinct = {COUNT: None}
    for measure in measures:
        distinct[frozenset(pair for pair in measure.factors if pair[0] in covered)] = None
    return tuple(distinct)


def shape_of(variables: Iterable[str], widths: Mapping[str, int], parts: tuple[Part, ...], limbs: int) -> Shape:
    variables = tuple(variables)
    return Shape(variables, tuple(widths[v] for v in variables), parts, limbs)


def pair_parts(out: Shape, delta: Shape, delta_atoms: set[str], table: Shape | None) -> list[tuple[int, int]]:
    """For each value of `out`: which delta value times which table value (-1: the number 1) makes it."""
    pairs = []
    for part in out.parts:
        if part == TOUCHES:
            pairs.append((-1, -1))
            continue
        left = frozenset(pair for pair in part if pair[0] in delta_atoms)
        right = part - left
        pairs.append((delta.parts.index(left), -1 if table is None else table.parts.index(right)))
    return pairs
