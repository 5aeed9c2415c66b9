"""Many small epochs of one table by one call of a kernel, which goes from one to the next by itself.

All rows are encoded first; then the kernel runs and commits an epoch for every so many of them. It comes back for an
epoch that asks for something: one that may stay is committed here, one that may not is taken back, and left to
`Engine.apply`. As with single rows, nobody notes where the time of such an epoch went.

Nothing is done where something must be done after every epoch (a view's change is heard, a copy of the table waits for
changes), and for epochs so large that a call each does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.epoch import commit_asking, is_load
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.program.machine import run_each
from sqlfront.maintenance.program.netting import netting_slots
from sqlfront.maintenance.relation.base_relation import Rescale
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.storage.errors import Error
from sqlfront.storage.kernels import layout as at

if TYPE_CHECKING:
    from sqlfront.maintenance.engine import Change, Engine

MOST_EACH = 4096
"""Epochs of so many rows are applied one by one."""


def apply_each(engine: Engine, name: str, changes: Any, each: int, read: Callable[[], Change]) -> int:
    """Commit epochs of `each` rows (the last one of what is left) from the first row on, until one needs another way;
    the number of rows that are in. `read` makes a Change of all `changes`."""
    with engine.lock:
        engine.readers.finish()
        waits = name in engine.deferred.copied or engine.kept.pinned
        if each >= MOST_EACH or engine.gates[name].heard or waits:
            return 0
        item = _encoded(engine, name, changes, read)
        if item is None:
            return 0
        relation, before = item.relation, item.relation.changes
        with Uninterrupted():
            done = _run(engine, item, each)
            relation.passed = True
            relation.loaded += _loaded(before, relation.changes, each)
            engine.pulled.bound()
            if relation.has_dictionaries:
                engine.sweep_dictionaries()
            engine.look_after(done)
        return done


def _encoded(engine: Engine, name: str, changes: Any, read: Callable[[], Change]) -> Encoded | None:
    """All rows encoded; None if some row cannot be, or only in a wider form."""
    ingest = engine.ingests[name]
    packed = ingest.pack(changes)
    if packed is not None:
        return packed
    try:
        change = read()
        data = ingest.relation.encode(change.rows, change.weights)
    except (Error, Rescale):
        return None
    return Encoded(ingest.relation, ingest.programs, int(data.ctypes.data), len(data), data)


def _run(engine: Engine, item: Encoded, each: int) -> int:
    """Run the epochs; how many rows they were. Ctrl-C waits."""
    relation, stage = item.relation, np.zeros(1, np.int64)
    counter = int(relation.counter.ctypes.data)
    entry = np.array([*item.entry(), int(stage.ctypes.data), engine.machine.address, counter], np.int64)
    address = int(entry.ctypes.data)
    slots = netting_slots(each) if item.programs.lists and each > 1 else np.empty(1, np.int64)
    lookups = np.empty(2 * at.MOST_LOOKUPS, np.int64)
    size = 8 * relation.width
    end = item.address + size * item.rows
    while True:
        slots_at, mask = int(slots.ctypes.data), len(slots) - 1
        flags = run_each(address, end, each, relation.width, slots_at, mask, int(lookups.ctypes.data))
        place, rows = int(entry[3]), int(entry[4])
        done = (place - item.address) // size
        if flags == 0:
            return item.rows
        if flags & (at.OVERFLOW | at.VIOLATION):
            engine.undo_encoded([Encoded(relation, item.programs, place, rows, item.keep)])
            return done
        commit_asking(engine, relation, flags, rows)
        done = min(done + each, item.rows)
        if engine.ingests[relation.name].programs is not item.programs:
            return done
        entry[3] = item.address + size * done


def _loaded(before: int, after: int, each: int) -> int:
    """How many of the rows between came in epochs that load the table."""
    loaded = 0
    while before + loaded < after and is_load(each, before + loaded):
        loaded += each
    return min(loaded, after - before)
