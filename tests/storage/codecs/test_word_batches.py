"""Batches over one block of words are the batches that Arrow makes of the same columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sqlfront.storage.codecs.word_batches import WordBatches

TYPES = [pa.int64(), pa.timestamp("us"), pa.float64(), pa.time64("us"), pa.timestamp("us", tz="UTC"), pa.uint64()]


@pytest.mark.parametrize("columns", [1, 2, 5, 6, 64])
@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 64, 1001, 65537])
def test_a_block_is_a_batch(columns: int, rows: int) -> None:
    fields = [pa.field(f"c{n}", TYPES[n % len(TYPES)], metadata={"n": str(n)}) for n in range(columns)]
    schema = pa.schema(fields, metadata={"of": "all"})
    batches = WordBatches(schema)
    stride = batches.stride(rows)
    assert rows <= stride < rows + 8
    block = pa.allocate_buffer(8 * (batches.head + (columns + 1) * stride))
    values = np.random.default_rng(rows).integers(0, 86_400_000_000, (columns, rows))
    lines = np.frombuffer(block, np.int64, offset=8 * batches.head).reshape(columns + 1, stride)
    lines[:columns, :rows] = values
    found = batches.batch(block, rows, stride)
    found.validate(full=True)
    arrays = [pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(row)]) for field, row in zip(fields, values)]
    assert found.equals(pa.RecordBatch.from_arrays(arrays, schema=schema), check_metadata=True)
    assert all(column.null_count == 0 for column in found.columns)
    del block, lines
    assert found.num_columns == columns and found.column(0).to_numpy().view(np.int64).tolist() == values[0].tolist()
