"""Distances of values from their median as numbers, in the arithmetic that interpolation.py has as SQL.

A number of a type is a DOUBLE, a FLOAT, a decimal's digits, or microseconds. Infinite times count as far away.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_FARTHEST = np.iinfo(np.int64)
_DAY, _MOST_DAYS = 86_400_000_000, 10**8


def numbers(values: pa.Array, type_: str) -> np.ndarray:
    """The numbers of values of a type; any number for NULL."""
    own = values.type
    plain = pa.types.is_integer(own) or pa.types.is_floating(own)
    kind = np.dtype(own.to_pandas_dtype() if plain else f"i{own.bit_width // 8}")
    found = np.frombuffer(values.buffers()[1], kind, len(values), values.offset * kind.itemsize)
    if type_ == "DATE":
        return np.clip(found.astype(np.int64), -_MOST_DAYS, _MOST_DAYS) * _DAY
    return found if type_ == "FLOAT" or not plain else found.astype(np.float64)


def middle(low: np.ndarray, high: np.ndarray, parted: np.ndarray, type_: str) -> np.ndarray:
    """The numbers of medians: halfway between two, or, where there is one value in the middle, the low one."""
    first, last = low.astype(np.float64), high.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        if type_ == "FLOAT":
            found = first + (last - first) * 0.5
        elif type_.startswith("DECIMAL("):
            found = np.trunc(first + (last - first) * 0.5)
        elif type_ == "TIME":
            found = _rounded(last * 0.5 + first * 0.5)
        elif type_ == "DATE" or type_.startswith("TIME"):
            return low + np.where(parted, _rounded((last - first) * 0.5), 0).astype(np.int64)
        else:
            found = last * 0.5 + first * 0.5
        return np.where(parted, found.astype(low.dtype), low)


def differences(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Numbers less others; whole ones that are too far apart count as farthest."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = one - other
    if found.dtype != np.int64:
        return found
    beyond = ((one ^ other) & (one ^ found)) < 0
    return np.where(beyond, np.where(one < 0, _FARTHEST.min, _FARTHEST.max), found)


def _rounded(values: np.ndarray) -> np.ndarray:
    """The nearest whole numbers of numbers from 0 on; halves go up."""
    whole = np.trunc(values)
    return whole + (values - whole >= 0.5)
