"""Turns of threads: readers give way to a writer.

A thread of short reads keeps Python's lock for its whole interval, 5 ms, and takes the engine's lock again before a
waiting thread has woken up. A write comes back from DuckDB several times, and would wait each time. So before a read a
thread waits until nobody writes, or for the time of a small write; and few threads read at a time beside a writer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 1.2e-3
"""Seconds that a read waits for its turn, and for the writer: reads go on beside a writer that never rests."""
_READERS = 2
"""Threads that read at a time beside a writer."""


class Turns:
    """The threads of a database that are writing."""

    def __init__(self) -> None:
        self._writers: set[int] = set()
        self._idle, self._lock, self._readers = threading.Event(), threading.Lock(), threading.Semaphore(_READERS)
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

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let a thread that writes go on before a read. The engine must not be locked."""
        if not self._writers or threading.get_ident() in self._writers:
            yield
            return
        taken = self._readers.acquire(timeout=_LONGEST)
        try:
            self._idle.wait(_LONGEST)
            yield
        finally:
            if taken:
                self._readers.release()
