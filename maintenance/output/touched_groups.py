"""A node that keeps rows by group and lets DuckDB compute the groups that an epoch touches.

The rows are a store of the relation that the node reads, indexed by the group's columns. The node's own rows are a
store of the relation that it feeds, indexed likewise. The programs of the two relations keep the stores, and undo them.
The groups of the delta's rows are *touched*. DuckDB computes their rows anew, in one query over the kept rows; what
differs from the rows that the node has stored is its output. So a change costs O(rows of the touched groups), which are
the node's steps. The former rows are not computed again: a floating aggregate rounds another order of rows otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.group_store import GroupStore, copies
from sqlfront.maintenance.output.kept_rows import QueriedRowsNode
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.program.netting import net_words
from sqlfront.maintenance.tree.description import Description
from sqlfront.planner.model.computed_rows import TouchedGroups
from sqlfront.planner.theory.wording import table_name

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded


class TouchedGroupsNode(QueriedRowsNode):
    """The groups of one relation; see `Node`. `kept` are the rows of the relation, `own` those of the node, which
    `feed` opens."""

    own: GroupStore
    rows: TouchedGroups

    def __init__(self, name: str, rows: TouchedGroups, number: int, keeper: Keeper) -> None:
        super().__init__(name, rows, number, keeper)
        self.kept = GroupStore(self.relation, rows.groupings, name)

    def open(self, load: Load) -> None:
        self.kept.open(self._keeper, None, load)

    def feed(self, relation: Relation) -> None:
        """Keep the node's rows as those of the relation that it feeds."""
        groups = self.rows
        tag = (groups.sets.shown_tag,) if groups.sets is not None else ()
        self.own = GroupStore(relation, [(*groups.shown_keys, *tag)], self.name)
        self.own.open(self._keeper, (self.compute_all().to_batches(), 0))
        self.count_from_now()

    def close(self) -> None:
        self._keeper.close_store(self.relation, self.kept.store, self.name)

    @staticmethod
    def planned(name: str, rows: TouchedGroups) -> Description:
        by = f"by {', '.join(rows.keys)}" if all(rows.groupings) else "all rows are one group"
        return Description(
            name,
            "touched groups",
            (rows.table,),
            rows.cost.update,
            rows.output,
            rows.label,
            notes=(f"touched groups of {table_name(rows.table)} {by}", rows.label),
            facts={"computed": rows.label, "of": table_name(rows.table), "keys": list(rows.keys), "sql": rows.query},
        )

    def stores(self) -> Iterator[tuple[str, str, GroupStore]]:
        block = table_name(self.name)
        yield f"rows of {block}", "groups", self.kept
        yield block, "groups", self.own

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        touched = [self.kept.touched(done, number) for number in range(len(self.rows.groupings))]
        old, counts = self.own.members(self._own_keys(touched))
        new = self.own.encoded(self._computed([self.kept.members(keys, one) for one, keys in enumerate(touched)]))
        weights = np.concatenate([-counts, np.ones(new.shape[1], np.int64)])
        rows, weights = net_words(np.concatenate([old, new], axis=1).T, weights)
        return self.own.change(rows.T, weights)

    def _own_keys(self, touched: Sequence[np.ndarray]) -> np.ndarray:
        """The keys of the node's own rows of the groups with these keys of each grouping."""
        if self.rows.sets is None:
            return touched[0]
        found = []
        for number, (names, keys) in enumerate(zip(self.rows.groupings, touched, strict=True)):
            words, place = list[np.ndarray](), 0
            for name in self.rows.keys:
                nulls = self.kept.null_words(name)
                if name in names:
                    words += list(keys[:, place : place + len(nulls)].T)
                    place += len(nulls)
                else:
                    words += [np.full(len(keys), word) for word in nulls]
            found.append(np.column_stack([*words, np.full(len(keys), number)]))
        return np.concatenate(found)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.own.decoded(copies(*self.own.all_rows())).to_batches()

    def compute_all(self) -> pa.Table:
        """The rows of all groups, computed from the kept rows. O(rows)."""
        return self._computed([self.kept.all_rows()] * len(self.rows.groupings))

    def _computed(self, members: Sequence[tuple[np.ndarray, np.ndarray]]) -> pa.Table:
        """The computed rows of some groups of each grouping: all rows of these groups, and how often each is there."""
        found = [copies(*one) for one in members]
        rows, groups, more = self.kept.decoded(np.concatenate(found, axis=1)), self.rows, dict[str, str]()
        if groups.sets is not None:
            numbers = np.repeat(np.arange(len(found)), [one.shape[1] for one in found])
            rows, more = rows.append_column(groups.sets.tag, [numbers]), {groups.sets.tag: "INTEGER"}
        return self.query(rows, more).rename_columns([name for name, _ in groups.columns]).combine_chunks()
