"""Filling leaf stores: from a table's rows when they are new, from themselves when they gain a grouping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.parallel_fill import ParallelFill, in_parts, sweep
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.threads import Background
from sqlfront.maintenance.relation.base_relation import LeafStore, Relation, Rescale
from sqlfront.maintenance.tree.arrange import arrange
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    import pyarrow as pa


def fill_store(
    machine: Machine,
    relation: Relation,
    store: LeafStore,
    batches: Iterable[pa.RecordBatch | tuple[pa.RecordBatch, Any]],
    count: int,
    rescale: Callable[[Rescale], None],
) -> None:
    """Put a table's rows (with weights, if they come as pairs) into a new store.

    O(rows). `count` is how many rows will come, or 0 if nobody knows: it saves growing step by step. `rescale` makes
    room for a factor that does not fit; values widen as they prove needed.
    """
    filling, filler = ParallelFill(machine, store.table, count), Background()

    def make_finer(needed: Rescale) -> None:
        filler.finish()
        _join(filling, store)
        rescale(needed)

    sorting = store.table.unsorted(partial(in_parts, machine, store.table))
    with sorting, machine.watch(f"reading {relation.name}", count):
        with filler:
            for batch in batches:
                data = _encode(relation, batch, make_finer)
                filler.finish()
                add = partial(_add_rows, filling, relation, store, data)
                if filling.is_large and not (relation.is_view or relation.copy_of):
                    filler.start(add)  # The next batch is read and encoded meanwhile.
                else:
                    add()
        _join(filling, store)
        sweep(machine, store.table)
    if store.table.live:
        store.table.compact()


def _join(filling: ParallelFill, store: LeafStore) -> None:
    if filling.cramped():
        _widen(filling, store)
    filling.join()


def _widen(filling: ParallelFill, store: LeafStore) -> None:
    store.limbs += 1
    filling.widen(store.limbs)


def _encode(
    relation: Relation, batch: pa.RecordBatch | tuple[pa.RecordBatch, Any], rescale: Callable[[Rescale], None]
) -> np.ndarray:
    """A batch as words, after making room for its values."""
    rows, weights = batch if isinstance(batch, tuple) else (batch, None)
    while True:
        try:
            return relation.encode(rows, weights)
        except Rescale as needed:
            rescale(needed)


def _add_rows(filling: ParallelFill, relation: Relation, store: LeafStore, data: np.ndarray) -> None:
    """Add encoded rows to a store, with wider values as they prove needed."""
    while filling.run(assembler := _store_program(relation, store), len(data), data) & at.OVERFLOW:
        filling.run(assembler, len(data), data, sign=-1)
        _widen(filling, store)


def lay_out(trees: Iterable[Tree], fresh: Iterable[Table]) -> None:
    """Lay out the tables of new trees in the order in which they will be enumerated, other new stores by their first
    index. O(rows)."""
    walks = [Walk(tree).levels for tree in trees]
    walked = [level.table for levels in walks for level in levels]
    for table in fresh:
        if table.groups and table not in walked:
            table.compact(0)
    for levels in walks:
        arrange(levels)


def refill(machine: Machine, old: Table, store: LeafStore) -> None:
    """Put the rows of a store's former table into its present, empty one. O(rows)."""
    _copy(machine, old, store)
    old.release()


def fill_alike(machine: Machine, store: LeafStore, other: LeafStore) -> None:
    """Put the rows of a store into a new one of the same columns and conditions. O(rows)."""
    if other.limbs > store.limbs:
        store.limbs = other.limbs
        store.table.widen(store.limbs)
    _copy(machine, other.table, store)


def _copy(machine: Machine, table: Table, store: LeafStore) -> None:
    assembler = Assembler()
    assembler.scan(table)
    assembler.path(0)
    assembler.upsert(store.table)
    assembler.path_end()
    with store.table.unsorted():
        machine.run(assembler.program(), rows=table.used)


def _store_program(relation: Relation, store: LeafStore) -> Assembler:
    assembler = Assembler()
    relation.lift(assembler, store)
    assembler.path(0)
    assembler.upsert(store.table)
    assembler.path_end()
    return assembler
