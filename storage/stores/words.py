"""Words of raw memory as Python reads and makes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import upkeep


def order_list(number: int, compared: Sequence[tuple[int, int, int]]) -> int:
    """The address of words that tell the number of an index and by which key words rows are compared."""
    return copied([number, len(compared), *(one for place in compared for one in place)])


def boxes_of(
    keys: int, group: Sequence[int], first: Sequence[tuple[int, int, int]], second: Sequence[tuple[int, int, int]]
) -> int:
    """The address of what a table with so many key words has for sums over boxes (kernels/layout.py)."""
    rest = [(place, at.ORDER_WORD, 0) for place in range(keys)]
    words = [0] * at.BOX_WORDS
    words[at.BOX_FIRST] = order_list(0, [*((place, at.ORDER_WORD, 0) for place in group), *first, *rest])
    words[at.BOX_SECOND] = order_list(0, second)
    words[at.BOX_NEW + at.LIST_USED] = at.UNMADE
    return copied(words)


def copied(words: Sequence[int]) -> int:
    """The address of words in memory of the C allocator."""
    address: int = upkeep.calloc_words(len(words))
    words_at(address, len(words))[:] = words
    return address


def words_at(address: int, count: int) -> np.ndarray:
    """A view of raw memory as int64 words; valid until the memory moves."""
    import ctypes

    if count == 0 or address == 0:
        return np.empty(0, np.int64)
    return np.ctypeslib.as_array((ctypes.c_int64 * int(count)).from_address(int(address)))


def bytes_of(h: np.ndarray) -> int:
    """The bytes of the table with this header, of its write buffer, and of its entries of sums over boxes."""
    words = h[at.MASK] + 1 + h[at.USED] * h[at.WIDTH] + h[at.DIRTY_CAPACITY] + 2 * h[at.HOT_WORDS] + at.HEADER_WORDS
    buffer, boxes = int(h[at.WRITE_BUFFER]), words_at(h[at.BOXES], at.BOX_WORDS if h[at.BOXES] else 0)
    more = bytes_of(words_at(buffer, at.HEADER_WORDS)) if buffer else 0
    more += int(boxes[at.BOX_BYTES] + 8 * boxes[at.BOX_NEW + at.LIST_ROOM]) if len(boxes) else 0
    return int(8 * words) + more
