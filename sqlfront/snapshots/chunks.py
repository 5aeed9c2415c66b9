"""Arrays of a snapshot in chunks, each with a check and a place in a file: what has not changed is written once.

A chunk begins at a page, and has all of CHUNK bytes but for the last of its array. Where the chunks of an array follow
each other in a file they are one *run*, which is mapped as a whole.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sqlfront.storage.kernels.tables.mapped_memory import check_of

PAGE = max(1 << 12, mmap.PAGESIZE)
CHUNK = 1 << 20
"""Bytes of a chunk: a whole number of pages. A changed row costs writing one chunk of each array that has it."""
_THREADS = min(4, os.cpu_count() or 1)

Chunk: TypeAlias = tuple[str, int, int]
"""The file of a chunk, where the chunk begins, and its check."""


@dataclass(frozen=True)
class Array:
    """An array of `size` bytes, in chunks of `chunk` bytes."""

    size: int
    chunk: int
    chunks: tuple[Chunk, ...]

    def bounds(self) -> list[tuple[int, int]]:
        """Where the chunks are in the array."""
        return bounds(self.size, self.chunk)

    def runs(self) -> Iterator[tuple[int, str, int, int]]:
        """The runs, each as its place in the array, its file, its place there, and its bytes."""
        together = zip(self.bounds(), self.chunks, strict=True)
        places = [(begin, file, start, end - begin) for (begin, end), (file, start, _) in together]
        while places:
            begin, file, start, size = places.pop(0)
            while places and places[0][1:3] == (file, start + size):
                size += places.pop(0)[3]
            yield begin, file, start, size


def bounds(size: int, chunk: int) -> list[tuple[int, int]]:
    """Where the chunks of an array of this size begin and end."""
    return [(begin, min(begin + chunk, size)) for begin in range(0, size, chunk)]


def check(chunk: np.ndarray) -> int:
    """The check of bytes: other bytes have the same by a chance of 1 in 2^64. O(bytes)."""
    words, tail = divmod(len(chunk), 8)
    last = int.from_bytes(chunk[len(chunk) - tail :].tobytes(), "little")
    found: int = check_of(int(chunk.ctypes.data), words, last)
    return found


def side_by_side(call: Callable[[Any], int], parts: Sequence[Any]) -> list[int]:
    """What is called for each part, on several threads. A program that ends can start none."""
    if len(parts) < 2 or not threading.main_thread().is_alive():
        return [call(part) for part in parts]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(call, parts))
