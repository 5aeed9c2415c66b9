"""Turns of threads: readers give way to a writer.

A thread of short reads keeps Python's lock for its whole interval, 5 ms, and takes the engine's lock again before a
waiting thread has woken up. A write comes back from DuckDB several times, and would wait each time. So a reader sleeps
for a moment after each read while somebody writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_MOMENT = 50e-6
"""Seconds in which a waiting thread wakes up."""


class Turns:
    """The threads of a database that are writing."""

    def __init__(self) -> None:
        self._writers: set[int] = set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let readers give way to this thread."""
        own = threading.get_ident()
        self._writers.add(own)
        try:
            yield
        finally:
            self._writers.discard(own)

    def give_way(self) -> None:
        """Let a thread that writes go on before the next read. The engine must not be locked."""
        if self._writers and threading.get_ident() not in self._writers:
            time.sleep(_MOMENT)
