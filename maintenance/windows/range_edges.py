"""Edges of frames by RANGE: where in its partition the values begin or end that are so far from a row's value."""

from __future__ import annotations

import numpy as np

from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.storage.kernels.layout import NULL_CODE, RESERVED_LOW
from sqlfront.storage.stores.ordered_rows import OrderedRows

_LEAST, _GREATEST = NULL_CODE, 2**63 - 1


def range_edge(
    kept: KeptOrder, rows: OrderedRows, groups: np.ndarray, codes: np.ndarray, distance: int, behind: bool
) -> np.ndarray:
    """The position in each group of the first row, or that `behind` the last one, whose code in the order's first item
    is `distance` after one of `codes`; none of these is NULL. Beyond the greatest code there are no rows. O(log group)
    each."""
    [place] = kept.item_places(1)
    step = -distance if kept.order.items[0].descending else distance
    values = np.where(codes == RESERVED_LOW, _LEAST, codes)
    if step < 0:
        values = np.where(values < _LEAST - step, _LEAST, values + min(step, 0))
    else:
        values = np.where(values > _GREATEST - step, _GREATEST, values + step)
    probes = np.zeros((len(codes), place + 1), np.int64)
    probes[:, place] = np.where(values == _LEAST, RESERVED_LOW, values)
    addresses = probes.ctypes.data + np.arange(len(probes), dtype=np.int64) * probes.strides[0]
    return rows.positions_of(groups, addresses, 1, inclusive=behind)
