"""What a materialized view consists of in the engine: the views of its query's blocks, computed rows, and its own."""

from __future__ import annotations

from dataclasses import dataclass

from sqlfront.planner.model.computed_rows import ComputedRows
from sqlfront.planner.model.heavy_light import EPSILON
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition


@dataclass(frozen=True)
class ComputedPart:
    """Rows computed by DuckDB that a materialized view reads; they feed the relation of the same name."""

    name: str
    rows: ComputedRows
    stateless = False

    @property
    def feeds(self) -> str:
        return self.name

    @property
    def tables(self) -> frozenset[str]:
        return self.rows.tables


@dataclass(frozen=True)
class Part:
    """One of the engine's views that a materialized view consists of: its own is the last.

    The others feed the relation called `feeds`: their own, or that of a union, with its other branches; None, if they
    are merged when the view is read. A `stateless` branch stores no rows. Values are heavy by `epsilon`.
    """

    name: str
    definition: Definition
    plan: Plan
    feeds: str | None
    stateless: bool = False
    epsilon: float = EPSILON

    @property
    def tables(self) -> frozenset[str]:
        return self.definition.tables


Parts = list[Part | ComputedPart]
