"""Words of raw memory as Python reads and makes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlfront.storage.kernels.tables import upkeep


def order_list(number: int, compared: Sequence[tuple[int, int, int]]) -> int:
    """The address of words that tell the number of an index and by which key words rows are compared."""
    return copied([number, len(compared), *(one for place in compared for one in place)])


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
