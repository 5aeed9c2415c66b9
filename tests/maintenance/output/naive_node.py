"""A kind of node that only this file knows: all rows are computed anew at each epoch, and compared with those before.

Besides this file two lists name it: `NODES` in maintenance/output/computed_nodes.py, and the cut that plans such rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlfront.maintenance.output.group_store import GroupStore, copies
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.relation.base_relation import Relation
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.maintenance.tree.description import Description, StateEntry
from sqlfront.planner.model.bound import LINEAR_BOUND, Bound
from sqlfront.planner.model.computed_rows import OneShard
from sqlfront.planner.model.cost import LINEAR, Cost

if TYPE_CHECKING:
    from sqlfront.maintenance.output.node import Keeper, Load

ONE_SHARD = OneShard("naive rows are not computed in shards", "they are naive", "do without")


@dataclass(frozen=True)
class NaiveRows:
    """The rows of `query` over a relation; see `ComputedRows`."""

    table: str
    keys: tuple[str, ...]
    query: str
    columns: tuple[tuple[str, str], ...]
    shown_keys: tuple[str, ...] = ()
    label: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    single: bool = False
    sets: object = None
    cost: Cost = LINEAR
    output: Bound = LINEAR_BOUND
    block: str = "the naive rows"
    note: str = "everything is computed anew"
    one_shard: OneShard = ONE_SHARD

    @property
    def tables(self) -> frozenset[str]:
        return frozenset((self.table,))

    def renamed(self, names: Mapping[str, str]) -> NaiveRows:
        return replace(self, table=names.get(self.table, self.table))

    def under(self, settings: tuple[tuple[str, str], ...]) -> NaiveRows:
        return replace(self, settings=settings)


class NaiveNode:
    """Rows computed anew; see `ComputedNode`."""

    inner = True
    own: GroupStore

    def __init__(self, name: str, rows: NaiveRows, number: int, keeper: Keeper) -> None:
        self.name, self.rows, self.number, self._keeper = name, rows, number, keeper
        self.relation = keeper.relations[rows.table]
        self.kept, self._before = GroupStore(self.relation, [()], name), self.relation.changes

    @property
    def relations(self) -> set[str]:
        return {self.relation.name}

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.rows.columns

    def open(self, load: Load) -> None:
        self.kept.open(self._keeper, None, load)

    def feed(self, relation: Relation) -> None:
        self.own = GroupStore(relation, [()], self.name)
        self.own.open(self._keeper, (self._computed().to_batches(), 0))

    def close(self) -> None:
        self._keeper.close_store(self.relation, self.kept.store, self.name)

    def hear(self, wanted: bool) -> None: ...

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        old, counts = self.own.all_rows()
        new = self.own.encoded(self._computed())
        weights = np.concatenate([-counts, np.ones(new.shape[1], np.int64)])
        return OutputChange(self.own.decoded(np.concatenate([old, new], axis=1)), weights, weights)

    def batches(self) -> Iterator[pa.RecordBatch]:
        words, counts = self.own.all_rows()
        yield from self.own.decoded(copies(words, counts)).to_batches()

    @staticmethod
    def planned(name: str, rows: NaiveRows) -> Description:
        notes, facts = (f"naive: {rows.label}",), {"naive": rows.label}
        return Description(
            name, "naive rows", (rows.table,), rows.cost.update, rows.output, rows.label, notes=notes, facts=facts
        )

    def describe(self) -> Description:
        state = (
            StateEntry("naive input", "naive", self.kept.store.table),
            StateEntry("naive", "naive", self.own.store.table),
        )
        steps = int(self._keeper.machine.counters[self.number])
        changes: dict[str, Any] = {self.relation.name: self.relation.changes - self._before}
        return replace(self.planned(self.name, self.rows), state=state, runs=True, steps=steps, changes=changes)

    def _computed(self) -> pa.Table:
        words, counts = self.kept.all_rows()
        types = {column.name: column.type for column in self.relation.columns}
        rows = self.kept.decoded(copies(words, counts))
        self._keeper.machine.counters[self.number] += rows.num_rows
        found = self._keeper.evaluate.query(rows, types, self.rows.query, self.rows.settings)
        return found.rename_columns([name for name, _ in self.rows.columns]).combine_chunks()
