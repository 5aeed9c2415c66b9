"""Arrow data by the shortest way: the record batches of a table, and the columns of a DataFrame of numbers.

`DataFrame.__arrow_c_stream__` goes through pyarrow's `Table.from_pandas`, which writes the frame's description as JSON:
more work than a thousand rows are. Columns of numpy's numbers are the same arrays in Arrow.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa

_NUMBERS = {np.dtype(kind): pa.from_numpy_dtype(kind) for kind in np.typecodes["AllInteger"] + "fd"}
"""The Arrow types of numpy's whole and floating numbers, in the machine's own order of bytes."""
_SMALL = 1 << 14


def arrow_numbers(values: np.ndarray) -> pa.Array:
    """Whole or floating numbers as an Arrow array over the same memory, without NULLs. `pa.array` would first import
    pandas, where that is installed: 0.3 s and 50 MB."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_NUMBERS[values.dtype], len(values), [None, pa.py_buffer(values)])


def numbers_of(column: pa.ChunkedArray) -> np.ndarray:
    """Whole numbers without NULLs, as 64-bit ones: a copy. `to_numpy` would first import pandas, where that is
    installed: 0.3 s and 50 MB."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    parts = [np.frombuffer(c.buffers()[1], dtype, len(c), c.offset * dtype.itemsize) for c in chunks]
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.empty(0, np.int64)


def short_text(array: pa.Array) -> pa.Array | None:
    """A large_string array as one of strings, which shares the bytes; None if these are 2 GiB or more. Arrow's cast
    takes three times as long for few rows. O(rows)."""
    bitmap, offsets, data = array.buffers()
    if data is not None and data.size >= 2**31:
        return None
    if array.offset or offsets is None:
        return array.cast(pa.string())
    ends = np.frombuffer(offsets, np.int64, len(array) + 1).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(array), [bitmap, pa.py_buffer(ends), data])


def as_arrow_rows(data: Any) -> pa.RecordBatch | pa.Table | None:
    """What is pyarrow's as it is, and a DataFrame of numbers as pandas exports it: NaN is NULL. None for others."""
    if isinstance(data, (pa.RecordBatch, pa.Table)):
        return data
    columns = frame_columns(data)
    if columns is None:
        return None
    arrays = [pa.array(values, from_pandas=True) for values in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def in_one_chunk(rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """The same rows, those of a small table in one chunk: there a chunk takes longer than its rows."""
    if not isinstance(rows, pa.Table) or rows.num_rows > _SMALL:
        return rows
    batches = rows.to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else rows


def frame_columns(data: Any) -> dict[str, np.ndarray] | None:
    """The columns of a DataFrame of numpy's numbers that has no index of its own, by name; None for other objects.

    A Series for each column would take as long as the rows: the arrays come from the frame's manager, if it has them.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(data, pandas.DataFrame) or not isinstance(data.index, pandas.RangeIndex):
        return None
    names, arrays = data.columns.tolist(), getattr(data._mgr, "column_arrays", None)
    if arrays is None or not all(isinstance(name, str) for name in names):
        return None
    columns = dict(zip(names, arrays, strict=True))
    numbers = all(values.dtype in _NUMBERS for values in arrays)
    return columns if numbers and len(columns) == len(names) else None
