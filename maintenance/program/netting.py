"""Netting rows, encoded or in Arrow: equal rows become one, their weights are added up, what cancels goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs.net import net_rows

if TYPE_CHECKING:
    import pyarrow as pa

_net_rows = entry_point(net_rows)
_FEW = 32
"""Up to so many rows are netted one by one: Arrow takes a third of a millisecond before the first row."""


def net_encoded(address: int, rows: int, width: int, *, always: bool) -> int:
    """Net rows of words in place, their weights being the last words; how many there are then. Unless it is `always`,
    rows of one sign are left alone, and those with weights beyond 2^32. O(rows)."""
    slots = netting_slots(rows)
    return int(_net_rows(address, rows, width, int(slots.ctypes.data), len(slots) - 1, always))


def netting_slots(rows: int) -> np.ndarray:
    """Room for the slots that netting so many rows takes."""
    return np.empty(1 << (2 * rows - 1).bit_length(), np.int64)


def net_words(words: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each kind of row of words once, in the order in which they come first, with the sum of its weights. Kinds whose
    sum is 0 are left out. O(rows)."""
    data = np.empty((len(words), words.shape[1] + 1), np.int64)  # Row after row, however the words lie.
    data[:, :-1], data[:, -1] = words, weights
    data = data[: net_encoded(int(data.ctypes.data), len(data), data.shape[1], always=True)] if len(data) else data
    return data[:, :-1], data[:, -1]


def net(columns: Sequence[Any], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first position of each kind of row whose weights do not add up to 0, in order, and the sums. O(rows)."""
    import pyarrow as pa

    if len(weights) < 2:
        return np.flatnonzero(weights), weights[weights != 0]
    if columns and len(weights) <= _FEW:
        return _net_few([_plain(_comparable(column)).to_pylist() for column in columns], weights)
    keys = [str(number) for number in range(len(columns))]
    position = arrow_numbers(np.arange(len(weights)))
    table = pa.table([*map(_comparable, columns), arrow_numbers(weights), position], [*keys, "weight", "position"])
    totals = table.group_by(keys, use_threads=False).aggregate([("weight", "sum"), ("position", "min")])
    sums = totals.column("weight_sum").to_numpy()
    positions = totals.column("position_min").to_numpy()
    kept = np.flatnonzero(sums)
    kept = kept[np.argsort(positions[kept], kind="stable")]
    return positions[kept], sums[kept]


def _net_few(columns: Sequence[Sequence[Any]], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`net` of columns of plain values."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for position, (row, weight) in enumerate(zip(zip(*columns, strict=True), weights.tolist(), strict=True)):
        found.setdefault(row, [position, 0])[1] += weight
    kept = np.array([one for one in found.values() if one[1]], np.int64).reshape(-1, 2)
    return kept[:, 0], kept[:, 1]


def _plain(column: pa.Array) -> pa.Array:
    """A comparable column whose values are equal in Python if Arrow groups them together: NaN is, and 0.0 and -0.0 are
    not."""
    import pyarrow as pa

    if not pa.types.is_floating(column.type) and not pa.types.is_temporal(column.type):
        return column
    return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width])


def _comparable(column: Any) -> pa.Array:
    """A column in a type by which Arrow can group."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_nested(column.type):
        return pa.array([repr(value) for value in column.to_pylist()])
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    return column.view(pa.binary(16)) if column.type == pa.month_day_nano_interval() else column
