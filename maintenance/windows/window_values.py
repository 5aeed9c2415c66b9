"""The values of window functions for rows whose places in their orders are known."""

from __future__ import annotations

import numpy as np

from sqlfront.maintenance.program.shapes import COUNT, Part
from sqlfront.maintenance.windows.located_rows import Bounds, LocatedRows
from sqlfront.maintenance.windows.window_stores import KeptOrder
from sqlfront.planner.model.window_functions import WindowValue


def ranks(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    """The values of a function of positions: whole numbers, or shares of a partition."""
    return _RANKS[value.function](value, rows)


def _row_number(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    return rows.position - rows.first + 1


def _rank(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    return rows.peers(value.peers)[0] - rows.first + 1


def _dense_rank(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    return rows.dense_ranks(value.peers) + 1


def _percent_rank(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    others = rows.behind - rows.first - 1
    before = rows.peers(value.peers)[0] - rows.first
    return np.where(others > 0, before / np.maximum(others, 1), 0.0)


def _cume_dist(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    return (rows.peers(value.peers)[1] - rows.first) / (rows.behind - rows.first)


def _ntile(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    """The first buckets have a row more than the others."""
    size, position = rows.behind - rows.first, rows.position - rows.first
    small, more = size // value.number, size % value.number
    after = position - more * (small + 1)
    return np.where(after < 0, position // (small + 1), more + after // np.maximum(small, 1)) + 1


def _has_lag(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    return (rows.position - value.number >= rows.first).astype(np.int64)


def _has_lead(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    return (rows.position + value.number < rows.behind).astype(np.int64)


_RANKS = {
    "row_number": _row_number, "rank": _rank, "dense_rank": _dense_rank, "percent_rank": _percent_rank,
    "cume_dist": _cume_dist, "ntile": _ntile, "has_lag": _has_lag, "has_lead": _has_lead,
}  # fmt: skip


def other_rows(value: WindowValue, rows: LocatedRows) -> np.ndarray:
    """The position of the row that a function reads its value of, outside the partition where there is none."""
    if value.function in ("lag", "lead"):
        return rows.position + (-value.number if value.function == "lag" else value.number)
    start, end = frame_bounds(value, rows)
    if value.function == "last_value":
        return np.where(start < end, end - 1, -1)
    found = start + max(value.number - 1, 0)
    return np.where(found < end, found, -1)


def frame_bounds(value: WindowValue, rows: LocatedRows) -> Bounds:
    """The positions of the first row of each row's frame, and that behind the last, which is not less."""
    first, last = value.frame.start, value.frame.end
    start, end = _bound(value, first, rows, behind=False), _bound(value, last, rows, behind=True)
    return start, end if first is None or last is None or first <= last else np.maximum(start, end)


def _bound(value: WindowValue, offset: int | None, rows: LocatedRows, behind: bool) -> np.ndarray:
    if offset is None:
        return rows.behind if behind else rows.first
    if value.frame.unit == "ROWS":
        return rows.moved(offset + behind)
    if offset == 0:
        return rows.peers(value.peers)[int(behind)]
    if value.frame.unit == "RANGE":
        return rows.range_edge(offset, behind)
    return rows.group_edge(value.peers, offset, behind)


class FrameSums:
    """The sums of rows' frames in an order."""

    def __init__(self, kept: KeptOrder, rows: LocatedRows, value: WindowValue) -> None:
        self._kept, self._rows = kept, rows
        self._frame = frame_bounds(value, rows)

    def values(self, part: Part) -> np.ndarray:
        """A part's sum over each row's frame, shape (rows, limbs)."""
        if part == COUNT:
            return (self._frame[1] - self._frame[0]).reshape(-1, 1)
        return self._rows.sums(self._kept.shape.parts.index(part), self._frame)
