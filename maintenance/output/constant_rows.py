"""A node whose rows no relation decides: DuckDB computes them when the node is read, and they never change.

Invariant: `output` is never asked, because no epoch touches a relation of the node. Cost: O(rows) at each build of a
reader, nothing in an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.tree.description import Description
from sqlfront.planner.model.bound import CONSTANT_BOUND
from sqlfront.planner.model.computed_rows import ConstantRows
from sqlfront.storage.errors import InternalError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded


class ConstantNode:
    """Constant rows; see `Node`."""

    inner = True

    def __init__(self, name: str, rows: ConstantRows, number: int, keeper: Keeper) -> None:
        self.name, self.rows, self.number = name, rows, number
        self._evaluate = keeper.evaluate

    def open(self, load: Load) -> None:
        """The rows are read from nothing."""

    def feed(self, relation: Relation) -> None:
        """The rows are computed when they are read."""

    def close(self) -> None:
        """No store is open."""

    @staticmethod
    def planned(name: str, rows: ConstantRows) -> Description:
        return Description(
            name,
            "constant rows",
            (),
            CONSTANT_BOUND,
            rows.output,
            rows.label,
            notes=("constant rows: no change reaches them",),
            facts={"constant": list(rows.columns), "sql": rows.query},
        )

    def describe(self) -> Description:
        return replace(self.planned(self.name, self.rows), runs=True)

    @property
    def relations(self) -> set[str]:
        return set()

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.rows.columns

    def hear(self, wanted: bool) -> None:
        """No epoch changes the rows."""

    def begin(self) -> None:
        """No epoch changes the rows."""

    def commit(self) -> None:
        """No epoch changes the rows."""

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        raise InternalError(f"the constant rows of {self.name} were asked for a change")

    def batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        one = pa.table({"one": pa.array([1], pa.int32())})
        found = self._evaluate.query(one, {"one": "INTEGER"}, self.rows.query, self.rows.settings)
        yield from found.rename_columns([name for name, _ in self.rows.columns]).to_batches()
