"""The rows of an as-of join as plan data: each row of a relation with the nearest rows of another, or with the extreme
value within a range or a box of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlfront.planner.model.bound import RESULT_CHANGE, Bound, Term
from sqlfront.planner.model.computed_rows import OneShard
from sqlfront.planner.model.cost import EXTREMES, EXTREMES_IN_BOXES, NEAREST, Cost

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
Compared = tuple[str, str, str]
"""A column of the left, an operator and a column of the right."""


@dataclass(frozen=True)
class NearestRows:
    """Rows of the relation `left`, each with the nearest `count` rows of `right`: of those with equal `keys` whose time
    meets the left's time `operator` the right's. See `ComputedRows`.

    `keys` and `times` are pairs of columns of both. A column of a key has no NULL at the right, unless NULL equals
    NULL there; nor has the right's time. Rows of the right with one time are in the order of `ties` (a column, and
    whether it descends and its NULLs come first), then of all their columns. `columns` are those of the left, in their
    order, then those of the right that are `shown`. With `outer` a row of the left without a partner has NULLs.
    """

    left: str
    right: str
    keys: tuple[tuple[str, str], ...]
    times: tuple[str, str]
    operator: str
    columns: tuple[tuple[str, str], ...]
    shown: tuple[str, ...]
    outer: bool = False
    ties: tuple[tuple[str, tuple[bool, bool]], ...] = ()
    count: int = 1

    @property
    def label(self) -> str:
        several = f" with {self.count} rows" if self.count > 1 else ""
        return ("ASOF LEFT JOIN" if self.outer else "ASOF JOIN") + several

    @property
    def block(self) -> str:
        """The rows as a block of a view's cost."""
        return f"the rows of the {self.label}"

    @property
    def compared(self) -> tuple[Compared, ...]:
        """The comparison of the times."""
        return ((self.times[0], self.operator, self.times[1]),)

    @property
    def nearest(self) -> str:
        """What a row of the left is joined with, in words."""
        return f"{self.count} nearest rows" if self.count > 1 else "nearest row"

    @property
    def _reached(self) -> str:
        return f"to which it is among the {self.nearest}" if self.count > 1 else "to which it is the nearest"

    @property
    def tables(self) -> frozenset[str]:
        return frozenset((self.left, self.right))

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """None: DuckDB computes nothing of the rows."""
        return ()

    @property
    def cost(self) -> Cost:
        return NEAREST

    @property
    def output(self) -> Bound:
        """A row of the right may be the nearest of many."""
        return Bound(terms=(Term(RESULT_CHANGE),))

    @property
    def note(self) -> str:
        return (
            f"{self.label}: both sides are kept in order; a row of the left looks up its {self.nearest}, a row of the "
            f"right lists the rows of the left {self._reached}"
        )

    @property
    def one_shard(self) -> OneShard:
        return OneShard(
            f"shards do not compute an {self.label}",
            "the nearest row may be in another shard",
            "leave it out of the sharded view, and join the shards' rows",
        )

    def renamed(self, names: Mapping[str, str]) -> NearestRows:
        return replace(self, left=names.get(self.left, self.left), right=names.get(self.right, self.right))

    def under(self, settings: tuple[tuple[str, str], ...]) -> NearestRows:
        return self


@dataclass(frozen=True)
class ExtremeRows(NearestRows):
    """Rows of the relation `left`, each with the row of `right` that has the least values of the columns `by`, or the
    greatest, among the rows with equal `keys` that meet the comparison of the times and, if there is one, the `second`.

    NULL is the value where all partners have NULL. The second comparison is of the right's time, in the other direction
    than the first, or of another column of the right, which has no NULL: then the rows lie in a box.
    """

    second: tuple[Compared, ...] = ()
    greatest: bool = False
    by: tuple[str, ...] = ()

    @property
    def beside(self) -> tuple[Compared, ...]:
        """The second comparison, if it is of another column of the right than the time."""
        return tuple(one for one in self.second if one[2] != self.times[1])

    @property
    def label(self) -> str:
        return f"{'ARG_' if len(self.by) > 1 else ''}{'MAX' if self.greatest else 'MIN'} within {self._places}"

    @property
    def nearest(self) -> str:
        extreme = "greatest" if self.greatest else "least"
        return f"row of the {extreme} {self.by[0]}" if len(self.by) > 1 else f"{extreme} value"

    @property
    def cost(self) -> Cost:
        return EXTREMES_IN_BOXES if self.beside and self.by[0] != self.times[1] else EXTREMES

    @property
    def note(self) -> str:
        return (
            f"{self.label}: both sides are kept in order, with extremes of subtrees; a row of the left looks its value "
            f"up, a row of the right lists the rows of the left in whose {self._places} it is"
        )

    @property
    def compared(self) -> tuple[Compared, ...]:
        """The comparisons."""
        return (*super().compared, *self.second)

    @property
    def _places(self) -> str:
        return "boxes" if self.beside else "ranges"
