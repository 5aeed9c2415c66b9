"""Merging tables that threads have filled side by side."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import CHUNK, KEYS, LIMBS, ROWS, STATUSES, USED, VALUES, WIDTH
from sqlfront.storage.kernels.memory import free, load, memcpy, realloc, store
from sqlfront.storage.kernels.tables.delta import buffer, step_upsert

_OPERATION = 3


@kernel("void(int64,int64,int64)")
def merge(table, scratch, other):
    """Add the rows of a table that is laid out alike and has never freed a row. Flags are left in the scratch."""
    width = load(table, KEYS) + load(table, VALUES) * load(table, LIMBS)
    size = load(other, WIDTH) * 8
    operation = realloc(0, _OPERATION * 8)
    store(operation, 2, table)
    for first in range(0, load(other, USED), CHUNK):
        count = min(CHUNK, load(other, USED) - first)
        rows = buffer(scratch, STATUSES, width * CHUNK)
        for i in range(count):
            memcpy(rows + i * width * 8, load(other, ROWS) + (first + i) * size, width * 8)
        step_upsert(operation, scratch, rows, count)
    free(operation)
