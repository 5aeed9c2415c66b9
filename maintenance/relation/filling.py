"""Filling leaf stores: from a table's rows when they are new, from themselves when they gain a grouping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.program.machine import Machine, Program
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.room import make_room
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
    with store.table.unsorted(), machine.watch(f"reading {relation.name}", count):
        seen = 0
        for batch in batches:
            if 0 < seen < count:
                make_room(store.table, seen, count)
                count = 0
            rows, weights = batch if isinstance(batch, tuple) else (batch, None)
            seen += _add_rows(machine, relation, store, rows, weights, rescale)
        sweep(machine, store.table)
    if store.table.live:
        store.table.compact()


def sweep(machine: Machine, *tables: Table) -> None:
    """Free the rows of tables whose counts have come to 0."""
    assembler = Assembler()
    assembler.finish(at.SWEEP, tables)
    machine.run_once(assembler.program())


def _add_rows(
    machine: Machine,
    relation: Relation,
    store: LeafStore,
    rows: pa.RecordBatch,
    weights: Any,
    rescale: Callable[[Rescale], None],
) -> int:
    """Add a batch to a store, after making room for its values; the number of rows."""
    while True:
        try:
            data = relation.encode(rows, weights)
        except Rescale as needed:
            rescale(needed)
            continue
        program = _store_program(relation, store)
        if machine.run(program, data, len(data)) & at.OVERFLOW == 0:
            return len(data)
        machine.run(program, data, len(data), -1)
        store.limbs += 1
        store.table.widen(store.limbs)


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
    assembler = Assembler()
    assembler.scan(old)
    assembler.path(0)
    assembler.upsert(store.table)
    assembler.path_end()
    with store.table.unsorted():
        machine.run(assembler.program(), rows=old.used)
    old.release()


def _store_program(relation: Relation, store: LeafStore) -> Program:
    assembler = Assembler()
    relation.lift(assembler, store)
    assembler.path(0)
    assembler.upsert(store.table)
    assembler.path_end()
    return assembler.program()
