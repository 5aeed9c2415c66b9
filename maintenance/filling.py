"""Filling leaf stores: from a table's rows when they are new, from themselves when they gain a grouping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from maintenance.machine import Machine, Program
from maintenance.programs import Assembler
from maintenance.relation import LeafStore, Relation, Rescale
from storage import layout as at
from storage.table import Table

if TYPE_CHECKING:
    import pyarrow as pa


def fill_store(
    machine: Machine,
    relation: Relation,
    store: LeafStore,
    batches: Iterable[pa.RecordBatch | tuple[pa.RecordBatch, Any]],
    rescale: Callable[[Rescale], None],
) -> None:
    """Put a table's rows (with weights, if they come as pairs) into a new store, then lay them out by its first index.

    O(rows). `rescale` makes room for a factor that does not fit; values widen as they prove needed.
    """
    for batch in batches:
        rows, weights = batch if isinstance(batch, tuple) else (batch, None)
        while True:
            try:
                data = relation.encode(rows, weights)
            except Rescale as needed:
                rescale(needed)
                continue
            program = _store_program(relation, store)
            if machine.run(program, data, len(data)) & at.OVERFLOW == 0:
                break
            machine.run(program, data, len(data), -1)
            store.limbs += 1
            store.table.widen(store.limbs)
    sweep = Assembler()
    sweep.finish(at.SWEEP, [store.table])
    machine.run_once(sweep.program())
    if store.indexes and store.table.live:
        store.table.compact(0)


def copy_rows(machine: Machine, old: Table, store: LeafStore) -> None:
    """Put the rows of a store's former table into its present, empty one. O(rows)."""
    assembler = Assembler()
    assembler.scan(old)
    assembler.path(0)
    assembler.upsert(store.table)
    assembler.path_end()
    machine.run(assembler.program(), rows=int(old.header[at.USED]))
    old.release()


def _store_program(relation: Relation, store: LeafStore) -> Program:
    assembler = Assembler()
    relation.lift(assembler, store)
    assembler.path(0)
    assembler.upsert(store.table)
    assembler.path_end()
    return assembler.program()
