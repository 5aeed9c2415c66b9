"""Turns of threads: readers give way to a writer.

A thread of short reads keeps Python's lock for its whole interval, 5 ms, and takes the engine's lock again before a
waiting thread has woken up. A write comes back from DuckDB several times, and would wait each time. So a reader waits
before each read until nobody writes, or for the time of a small write.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 2e-3
"""Seconds that a read waits at most: reads go on beside a writer that never rests, and beside a long write."""


class Turns:
    """The threads of a database that are writing."""

    def __init__(self) -> None:
        self._writers: set[int] = set()
        self._idle, self._lock = threading.Event(), threading.Lock()
        self._idle.set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let readers give way to this thread."""
        own = threading.get_ident()
        with self._lock:
            self._writers.add(own)
            self._idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._writers.discard(own)
                if not self._writers:
                    self._idle.set()

    def give_way(self) -> None:
        """Let a thread that writes go on before the next read. The engine must not be locked."""
        if self._writers and threading.get_ident() not in self._writers:
            self._idle.wait(_LONGEST)
