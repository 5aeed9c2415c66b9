"""A node whose rows no relation decides: DuckDB computes them when the node is read, and they never change.

Invariant: `output` is never asked, because no epoch touches a relation of the node. Cost: O(rows) at each build of a
reader, nothing in an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.planner.model.query import ConstantRows
from sqlfront.storage.errors import InternalError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate
    from sqlfront.maintenance.relation.encoded import Encoded


class ConstantNode:
    """Constant rows; see `Node`."""

    inner = True

    def __init__(self, name: str, rows: ConstantRows, number: int, evaluate: Evaluate) -> None:
        self.name, self.rows, self.number = name, rows, number
        self._evaluate = evaluate

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
