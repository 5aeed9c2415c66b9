"""Record batches over one block of memory: columns of fixed width without NULLs, in Arrow's format for streams.

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
from sqlfront.storage.kernels.tables.appended_rows import FLIPPED, NARROW, SIGNED, WIDE

_write_head = entry_point(arrow_words.write_head)
_read = pa.ipc.read_record_batch
_SAMPLE = 64
"""Rows of a batch whose columns fill whole lines of the cache, so that Arrow leaves no gaps between them."""
_MAX = 2**63 - 1


class WordBatches:
    """Batches of a schema whose types have 32, 64 or 128 bits. A column of 64 bits takes `stride(rows)` words, or any
    greater multiple of 8; the first begins `head` words behind the beginning of the block. `starts` are where the
    columns begin behind it, and where the last ends, in strides of half words. InternalError if Arrow lays messages out
    in another way."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        halves = [type_.bit_width // 32 for type_ in schema.types]
        self.starts = [sum(halves[:number]) for number in range(len(halves) + 1)]
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
        """The words of a column of 64 bits: the rows, rounded up to a line of the cache."""
        return (rows + 7) & ~7

    def batch(
        self,
        block: pa.Buffer,
        rows: int,
        stride: int,
        stamps: tuple[int, int] | None = None,
        schema: pa.Schema | None = None,
    ) -> pa.RecordBatch:
        """The batch of so many rows in a block, which has room for the head and all columns, and may have more behind
        them. All rows of the last two columns get the `stamps`, if there are any. Another `schema` has types of the
        same widths. O(columns); O(rows) with stamps."""
        if stamps is None:
            _write_head(self._address, block.address, rows, stride, -1, 0, 0)
        else:
            _write_head(self._address, block.address, rows, stride, self.starts[-3], *stamps)
        return _read(block, self._schema if schema is None else schema)


def codes_of(layout: int, column: np.ndarray, rows: int) -> list[np.ndarray]:
    """The words of a column's values, from the words in which a block has them."""
    if layout == NARROW:
        return [column.view(np.int32)[:rows].astype(np.int64)]
    if layout == WIDE:
        return [column[1 : 2 * rows : 2], column[: 2 * rows : 2]]
    if layout == SIGNED:
        return [column[: 2 * rows : 2]]
    own = column[:rows]
    return [own ^ ((own >> 63) & _MAX)] if layout == FLIPPED else [own]


def _head_of(schema: pa.Schema, rows: int) -> np.ndarray:
    """The words of a message before its body."""
    columns, size = [], 0
    for type_ in schema.types:
        storage = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
        size += rows * type_.bit_width // 64
        zeros = pa.py_buffer(np.zeros(rows * type_.bit_width // 64, np.int64))
        array = pa.Array.from_buffers(storage, rows, [None, zeros])
        columns.append(array if storage is type_ else pa.ExtensionArray.from_storage(type_, array))
    message = pa.RecordBatch.from_arrays(columns, schema=schema).serialize()
    return np.frombuffer(message, np.int64)[: message.size // 8 - size]
