"""Netting rows in Arrow: equal rows become one, their weights are added up, what cancels goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def net(columns: Sequence[Any], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first position of each kind of row whose weights do not add up to 0, in order, and the sums. O(rows)."""
    import pyarrow as pa

    if len(weights) < 2:
        return np.flatnonzero(weights), weights[weights != 0]
    keys = [str(number) for number in range(len(columns))]
    position = pa.array(np.arange(len(weights)))
    table = pa.table([*map(_comparable, columns), pa.array(weights), position], [*keys, "weight", "position"])
    totals = table.group_by(keys, use_threads=False).aggregate([("weight", "sum"), ("position", "min")])
    sums = totals.column("weight_sum").to_numpy()
    positions = totals.column("position_min").to_numpy()
    kept = np.flatnonzero(sums)
    kept = kept[np.argsort(positions[kept], kind="stable")]
    return positions[kept], sums[kept]


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
