"""DataFrames of numbers: the same batch as pandas itself makes, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sqlfront.storage.codecs.arrow_batches import as_arrow_rows, frame_columns, in_one_chunk, short_text

FRAMES: dict[str, Any] = {
    "whole numbers": {"a": [1, -2], "b": np.array([3, 2**63], "u8"), "c": np.array([1, 2], "i2")},
    "floating numbers": {"a": [1.5, float("nan")], "b": np.array([1.5, -0.0], "f4")},
    "nothing": {},
    "no rows": {"a": np.array([], "i8"), "b": np.array([], "f8")},
}
OTHERS: dict[str, Any] = {
    "text": pd.DataFrame({"a": ["x"]}),
    "booleans": pd.DataFrame({"a": [True]}),
    "nullable": pd.DataFrame({"a": pd.array([1, None], "Int64")}),
    "dates": pd.DataFrame({"a": [pd.Timestamp("2026-01-01")]}),
    "other bytes": pd.DataFrame({"a": np.array([1, 2], ">i8")}),
    "an index": pd.DataFrame({"a": [1]}, index=["x"]),
    "two of a name": pd.DataFrame([[1, 2]], columns=["a", "a"]),
    "a number as name": pd.DataFrame([[1, 2]]),
    "no frame": [1, 2],
}


@pytest.mark.parametrize("name", FRAMES)
def test_numbers_are_what_pandas_exports(name: str) -> None:
    for frame in (pd.DataFrame(FRAMES[name]), pd.DataFrame(FRAMES[name]).iloc[::-1].reset_index(drop=True)):
        batch, wanted = as_arrow_rows(frame), pa.table(frame)
        assert batch is not None and pa.Table.from_batches([batch]).equals(wanted.replace_schema_metadata())


@pytest.mark.parametrize("name", OTHERS)
def test_other_objects_have_no_short_way(name: str) -> None:
    assert frame_columns(OTHERS[name]) is None


def test_a_small_table_of_many_chunks_is_put_into_one():
    some = pa.table({"a": [1, 2], "b": ["x", None]})
    many, large = pa.concat_tables([some] * 3), pa.concat_tables([pa.table({"a": np.zeros(9_000, "i8")})] * 2)
    found = in_one_chunk(many)
    assert isinstance(found, pa.RecordBatch) and pa.Table.from_batches([found]).equals(many)
    assert in_one_chunk(large) is large and in_one_chunk(some.schema.empty_table()).num_rows == 0


@pytest.mark.parametrize("values", [[], [None], ["a", None, "", "bcd"], ["x" * 1000] * 3000])
def test_large_text_is_short_text_over_the_same_bytes(values: list[str | None]) -> None:
    array = pa.array(values, pa.large_string())
    for part in (array, array.slice(1), array.slice(len(values))):
        found = short_text(part)
        assert found is not None and found.equals(part.cast(pa.string()))
        found.validate(full=True)
    if len(values) > 1:
        assert short_text(array).buffers()[2].address == array.buffers()[2].address


def test_text_of_two_gigabytes_has_no_short_form() -> None:
    """Nobody reads the bytes: they are memory that the system has only promised."""
    size = 2**31
    data = pa.py_buffer(np.empty(size, np.uint8))
    array = pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(np.array([0, size])), data])
    assert short_text(array) is None
