"""A node that keeps rows by group and lets DuckDB compute the groups that an epoch touches, old against new.

The rows are a store of the relation that the node reads, indexed by the group's columns: the relation's program keeps
the store, and undoes it. The groups of the delta's rows are *touched*. Their rows now are listed from the index. Their
rows before the epoch are those less the delta. One query of DuckDB computes both sides, and the rows that differ are
the node's output. So a change costs O(rows of the touched groups), which are the node's steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.output_change import DELETE, INSERT, OutputChange
from sqlfront.maintenance.program.netting import net
from sqlfront.planner.model.query import SIDE, LeafColumn, TouchedGroups
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import group_reads, key_lookups, upkeep
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.program.machine import Machine
    from sqlfront.maintenance.relation.base_relation import Evaluate, LeafStore, Relation
    from sqlfront.maintenance.relation.encoded import Encoded

OLD, NEW = 0, 1


class TouchedGroupsNode:
    """The groups of one relation; see `Node`. `rows_computed` counts the rows handed to DuckDB."""

    inner = True

    def __init__(
        self, name: str, groups: TouchedGroups, number: int, relation: Relation, machine: Machine, evaluate: Evaluate
    ) -> None:
        self.name, self.groups, self.number, self.relation = name, groups, number, relation
        self.rows_computed = 0
        self._machine, self._evaluate = machine, evaluate
        columns = tuple(LeafColumn(c.name, quote(c.name), c.type, c.name) for c in relation.columns)
        self.store: LeafStore = relation.open_store(columns, (), (), (), 0)
        self.index = tuple(sorted(quote(key) for key in groups.keys))
        self.store.users.add(name)
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)

    @property
    def relations(self) -> set[str]:
        return {self.relation.name}

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return self.groups.columns

    def hear(self, wanted: bool) -> None:
        """The rows are kept whether anybody asks for their groups or not."""

    def begin(self) -> None:
        """Nothing is gathered while the epoch runs."""

    def commit(self) -> None:
        """Nothing is kept of an epoch."""

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        delta = [self._delta(item) for item in done if item.relation is self.relation]
        words = np.concatenate([rows for rows, _ in delta])
        weights = np.concatenate([own for _, own in delta])
        new, counts = self._members(self._touched(words))
        old, old_counts = _netted(np.concatenate([new, words]), np.concatenate([counts, -weights]))
        sides = np.repeat(np.array([OLD, NEW]), [len(old), len(new)])
        found = self._computed(np.concatenate([old, new]), np.concatenate([old_counts, counts]), sides)
        signs = np.where(found.column(SIDE).to_numpy() == NEW, 1, -1)
        rows = found.drop_columns([SIDE])
        positions, sums = net(rows.columns, signs)
        return OutputChange(rows.take(positions), sums, np.where(sums > 0, INSERT, DELETE))

    def batches(self) -> Iterator[pa.RecordBatch]:
        words, counts = self._all()
        found = self._computed(words, counts, np.full(len(words), NEW), (NEW,))
        yield from found.drop_columns([SIDE]).combine_chunks().to_batches()

    # Rows as words, in the columns of the store ------------------------------------------------------

    def _delta(self, item: Encoded) -> tuple[np.ndarray, np.ndarray]:
        """The changed rows of an epoch, and their weights."""
        data = item.keep[: item.rows]
        places = [
            place
            for column in self.store.variables
            for input_ in [self.store.inputs["key " + column.expression]]
            for place in range(input_.place, input_.place + input_.words)
        ]
        return np.ascontiguousarray(data[:, places]), np.ascontiguousarray(data[:, -1])

    def _places(self, expressions: Sequence[str]) -> list[int]:
        """The places of the words of some columns in a row of the store."""
        starts = dict(
            zip([c.expression for c in self.store.variables], np.cumsum([0, *self.store.widths[:-1]]), strict=True)
        )
        widths = dict(zip([c.expression for c in self.store.variables], self.store.widths, strict=True))
        return [int(starts[one]) + word for one in expressions for word in range(widths[one])]

    def _touched(self, words: np.ndarray) -> np.ndarray:
        """The key words of the groups that rows belong to, each once."""
        if not self.index:
            return np.zeros((1, 1), np.int64)
        return np.unique(words[:, self._places(self.index)], axis=0)

    def _members(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the groups with these keys, group after group, and how often each is there."""
        table, number = self.store.table, self.store.indexes.index(self.index)
        group, scratch = table.groups[number], self._scratch.ctypes.data
        keys, places = np.ascontiguousarray(keys), np.arange(keys.shape[1])
        found, sizes = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
        data, count = keys.ctypes.data, len(keys)
        key_lookups.find_rows(
            group.address, scratch, data, keys.shape[1], count, places.ctypes.data, group.keys, 0, found.ctypes.data
        )
        group_reads.sizes(group.address, found.ctypes.data, count, sizes.ctypes.data)
        addresses = np.empty(int(sizes.sum()), np.int64)
        group_reads.members(
            table.address, group.address, number, found.ctypes.data, count, scratch, addresses.ctypes.data
        )
        words = np.empty((table.keys + 1, len(addresses)), np.int64)
        for place in range(table.keys + 1):
            group_reads.word_of(addresses.ctypes.data, len(addresses), place, 0, words[place].ctypes.data)
        return np.ascontiguousarray(words[:-1].T), words[-1]

    def _all(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows, and how often each is there."""
        table = self.store.table
        words = np.empty((table.used, table.keys + table.limbs), np.int64)
        words = words[: upkeep.copy_rows(table.address, 0, table.used, words.ctypes.data)]
        return words[:, : table.keys], np.ascontiguousarray(words[:, table.keys])

    # Groups, by DuckDB --------------------------------------------------------------------------------

    def _computed(
        self, words: np.ndarray, counts: np.ndarray, sides: np.ndarray, shown: tuple[int, ...] = (OLD, NEW)
    ) -> pa.Table:
        """The rows of the groups, with their side; of a group of all rows on each side that is shown."""
        import pyarrow as pa

        taken = np.repeat(np.arange(len(words)), counts)
        self.rows_computed += len(taken)
        self._machine.counters[self.number] += len(taken)
        arrays, names, place = [], [], 0
        for column, width in zip(self.store.variables, self.store.widths, strict=True):
            codec = self.store.inputs["key " + column.expression].codec
            assert codec is not None
            arrays.append(codec.decode([np.ascontiguousarray(words[taken, place + word]) for word in range(width)]))
            names.append(column.name)
            place += width
        rows = pa.table([*arrays, pa.array(sides[taken].astype(np.int8))], names=[*names, SIDE])
        types = {column.name: column.type for column in self.store.variables} | {SIDE: "TINYINT"}
        found = self._evaluate.query(rows, types, self.groups.query)
        found = found.rename_columns([*(name for name, _ in self.groups.columns), SIDE])
        lacking = [] if self.groups.empty is None else sorted(set(shown) - set(sides[taken].tolist()))
        if lacking:
            empty = self._evaluate.query(rows.slice(0, 0), types, self.groups.empty or "")
            stamps = [pa.array(np.full(empty.num_rows, side, np.int8)) for side in lacking]
            parts = [pa.Table.from_arrays([*empty.columns, stamp], schema=found.schema) for stamp in stamps]
            found = pa.concat_tables([found, *parts])
        return found.combine_chunks()


def _netted(words: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows, each once, with the sums of their weights; without those whose weights cancel."""
    if not len(words):
        return words, weights
    found, inverse = np.unique(words, axis=0, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, inverse.reshape(-1), weights)
    kept = sums != 0
    return found[kept], sums[kept]
