"""The plain delta query of directed 3-cycles by hand: one numba kernel over two adjacency lists and a hash of edges.

It is what an engine could at best be for this one query: vertices are small numbers and index arrays, there are no
duplicates, transactions, types, views or errors. A change of (a, b) lists the shorter of b's targets and a's sources
and looks each candidate up among the edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_MULTIPLIER = np.int64(-7046029254386353131)


class PlainDelta:
    """Counts the directed 3-cycles of a changing graph without loops; `apply` takes one change, `apply_all` many."""

    def __init__(self, vertices: int, edges: int, degree: int) -> None:
        size = 1 << (2 * edges - 1).bit_length()
        self._slots = np.full(size, -1, np.int64)
        self._out, self._into = (np.zeros((vertices, 1 + degree), np.int32) for _ in range(2))
        self._places = np.zeros((size, 2), np.int32)
        self.count = 0

    def apply(self, source: int, target: int, weight: int) -> None:
        """O(the shorter list). The weight is 1 or -1; what is deleted is there."""
        self.count += 3 * weight * _change(self._slots, self._places, self._out, self._into, source, target, weight)

    def apply_all(self, changes: np.ndarray) -> None:
        """Rows of source, target, weight, one after the other."""
        self.count += 3 * _change_all(self._slots, self._places, self._out, self._into, changes)


@njit(cache=True)
def _change_all(slots: Any, places: Any, out: Any, into: Any, changes: Any) -> int:
    total = 0
    for source, target, weight in changes:
        total += weight * _change(slots, places, out, into, source, target, weight)
    return total


@njit(cache=True)
def _change(slots: Any, places: Any, out: Any, into: Any, source: int, target: int, weight: int) -> int:
    closed = 0
    if out[target, 0] <= into[source, 0]:
        for i in range(1, 1 + out[target, 0]):
            closed += slots[_find(slots, out[target, i], source)] >= 0
    else:
        for i in range(1, 1 + into[source, 0]):
            closed += slots[_find(slots, target, into[source, i])] >= 0
    if weight > 0:
        _insert(slots, places, out, into, source, target)
    else:
        _delete(slots, places, out, into, source, target)
    return closed


@njit(cache=True, inline="always")
def _home(slots: Any, key: int) -> int:
    return ((key * _MULTIPLIER) >> 33) & (slots.size - 1)


@njit(cache=True)
def _find(slots: Any, source: int, target: int) -> int:
    """The slot of an edge, or the free one where it would be."""
    key = np.int64(source) << 32 | np.int64(target)
    i = _home(slots, key)
    while slots[i] >= 0 and slots[i] != key:
        i = (i + 1) & (slots.size - 1)
    return i


@njit(cache=True)
def _insert(slots: Any, places: Any, out: Any, into: Any, source: int, target: int) -> None:
    i = _find(slots, source, target)
    slots[i] = np.int64(source) << 32 | np.int64(target)
    out[source, 0] += 1
    into[target, 0] += 1
    places[i, 0] = out[source, 0]
    places[i, 1] = into[target, 0]
    out[source, out[source, 0]] = target
    into[target, into[target, 0]] = source


@njit(cache=True)
def _delete(slots: Any, places: Any, out: Any, into: Any, source: int, target: int) -> None:
    i = _find(slots, source, target)
    last = out[source, out[source, 0]]
    out[source, places[i, 0]] = last
    places[_find(slots, source, last), 0] = places[i, 0]
    out[source, 0] -= 1
    last = into[target, into[target, 0]]
    into[target, places[i, 1]] = last
    places[_find(slots, last, target), 1] = places[i, 1]
    into[target, 0] -= 1
    mask = slots.size - 1
    j = i
    while True:
        j = (j + 1) & mask
        if slots[j] < 0:
            break
        home = _home(slots, slots[j])
        if (j - home) & mask >= (j - i) & mask:
            slots[i] = slots[j]
            places[i] = places[j]
            i = j
    slots[i] = -1
