"""Record batches over one block of memory: columns of 64-bit words without NULLs, in Arrow's format for streams.

A message of Apache Arrow's (Columnar Format, "Serialization and Interprocess Communication") is a head, and a body with
the columns one after the other. The head tells the rows and where each column lies. It is the same for all batches of a
schema but for these numbers, each of which is proportional to the rows. So the head is made once. Arrow reads a message
as a batch that shares its memory: one call, where an array for each column takes six times as long.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sqlfront.storage.errors import InternalError
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import arrow_words

_write_head = entry_point(arrow_words.write_head)
_read = pa.ipc.read_record_batch
_SAMPLE = 64
"""Rows of a batch whose columns fill whole lines of the cache, so that Arrow leaves no gaps between them."""


class WordBatches:
    """Batches of a schema whose types all have 64 bits. Their columns lie `stride(rows)` words apart, and begin `head`
    words from the beginning of their block. InternalError if Arrow lays messages out in another way."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        heads = [_head_of(schema, number * _SAMPLE) for number in (1, 2, 3)]
        self.head, factors = len(heads[0]), (heads[1] - heads[0]) // _SAMPLE
        fixed = heads[0] - factors * _SAMPLE
        if any((fixed + factors * _SAMPLE * number != one).any() for number, one in enumerate(heads, 1)):
            raise InternalError("the heads of Arrow's messages do not grow with their rows")
        by_rows = factors == 1
        words = np.column_stack([fixed, np.where(by_rows, 1, 0), np.where(by_rows, 0, factors)])
        self._words = np.array([self.head, *words.ravel()], np.int64)
        self._address = int(self._words.ctypes.data)

    @staticmethod
    def stride(rows: int) -> int:
        """The words from one column to the next: the rows, rounded up to a line of the cache."""
        return (rows + 7) & ~7

    def batch(self, block: pa.Buffer, rows: int) -> pa.RecordBatch:
        """The batch of so many rows in a block, which has room for the head and all columns, and may have more behind
        them. O(columns)."""
        _write_head(self._address, block.address, rows, self.stride(rows))
        return _read(block, self._schema)


def _head_of(schema: pa.Schema, rows: int) -> np.ndarray:
    """The words of a message before its body."""
    words = pa.py_buffer(np.zeros(rows, np.int64))
    columns = [pa.Array.from_buffers(type_, rows, [None, words]) for type_ in schema.types]
    message = pa.RecordBatch.from_arrays(columns, schema=schema).serialize()
    return np.frombuffer(message, np.int64)[: message.size // 8 - len(columns) * rows]
