"""The part that nodes of computed rows share: they keep rows in stores, whether anybody asks for a change or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.output.node import ComputedNode
from sqlfront.maintenance.relation.bad_rows import blamed_group
from sqlfront.maintenance.tree.description import Description, StateEntry
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.group_store import GroupStore
    from sqlfront.maintenance.output.node import Keeper


class KeptRowsNode(ComputedNode):
    """The part of a `ComputedNode` that does not depend on what it computes. `rows` is the value that plans it."""

    inner = True

    def __init__(self, name: str, rows: Any, number: int, keeper: Keeper) -> None:
        self.name, self.rows, self.number = name, rows, number
        self._keeper, self._machine, self._evaluate = keeper, keeper.machine, keeper.evaluate
        self._before = self._changes()

    @property
    def relations(self) -> set[str]:
        return set(self.rows.tables)

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        found: tuple[tuple[str, str], ...] = self.rows.columns
        return found

    def hear(self, wanted: bool) -> None:
        """The rows are kept whether anybody asks for their change or not."""

    def begin(self) -> None:
        """Nothing is gathered while the epoch runs."""

    def commit(self) -> None:
        """Nothing is kept of an epoch."""

    def stores(self) -> Iterator[tuple[str, str, GroupStore]]:
        """The name, the kind and the place of what is kept."""
        raise NotImplementedError

    def describe(self) -> Description:
        changes = self._changes()
        return replace(
            self.planned(self.name, self.rows),
            state=tuple(
                StateEntry(of, kind, kept.store.table, len(kept.store.users) > 1) for of, kind, kept in self.stores()
            ),
            runs=True,
            steps=int(self._machine.counters[self.number]),
            changes={name: count - self._before[name] for name, count in changes.items()},
        )

    def count_from_now(self) -> None:
        """Leave out of the node's counts what it took to build the node."""
        self._before = self._changes()
        self._machine.counters[self.number] = 0

    def _changes(self) -> dict[str, int]:
        """How many changes each relation of the node has had."""
        return {name: self._keeper.relations[name].changes for name in sorted(self.relations)}


class QueriedRowsNode(KeptRowsNode):
    """The part of nodes of which DuckDB computes some rows anew, by a query over rows of one relation that belong
    together. `rows_computed` counts the rows handed to DuckDB, which are steps."""

    def __init__(self, name: str, rows: Any, number: int, keeper: Keeper) -> None:
        super().__init__(name, rows, number, keeper)
        self.relation, self.rows_computed = keeper.relations[rows.table], 0

    def query(self, rows: pa.Table, more: Mapping[str, str]) -> pa.Table:
        """What the query makes of some rows, with `more` columns of these types than the relation has. DataError with
        the row to blame if DuckDB fails."""
        self.rows_computed += rows.num_rows
        self._machine.counters[self.number] += rows.num_rows
        types = {column.name: column.type for column in self.relation.columns} | dict(more)

        def compute(some: pa.Table) -> pa.Table:
            return self._evaluate.query(some, types, self.rows.query, self.rows.settings)

        try:
            return compute(rows)
        except DataError as error:
            tables = sorted(table_name(name) for name in self._tables_below(self.relation.name))
            raise blamed_group(self.name, self.rows, tables, self.relation, rows, compute, error) from error

    def _tables_below(self, relation: str) -> set[str]:
        """The tables whose rows reach a relation."""
        node = self._keeper.nodes.get(relation)
        return {relation} if node is None else {table for one in node.relations for table in self._tables_below(one)}
