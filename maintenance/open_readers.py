"""Who has begun to read the state and reads on: before the state changes, the rest is read.

What has to be done once before the state changes is a reader, too: the check of a snapshot's arrays.

A reader that goes away is forgotten by itself. All of this is done under the engine's lock.
"""

from __future__ import annotations

import weakref
from typing import Protocol


class OpenReader(Protocol):
    """A result that is read off the state while it is fetched."""

    def finish(self) -> None:
        """Read the rest, before the state changes. Must not raise. Programs may be other ones afterwards."""


class OpenReaders:
    """`waiting` are the readers that read on, by identity."""

    def __init__(self) -> None:
        self.waiting: dict[int, weakref.ref[OpenReader]] = {}

    def add(self, reader: OpenReader) -> None:
        """Let a reader know before the state changes."""
        number, waiting = id(reader), self.waiting
        waiting[number] = weakref.ref(reader, lambda _: waiting.pop(number, None))

    def discard(self, reader: OpenReader) -> None:
        """Forget a reader that has come to its end."""
        self.waiting.pop(id(reader), None)

    def finish(self) -> None:
        """Let all readers read the rest now."""
        while self.waiting:
            _, reference = self.waiting.popitem()
            if (reader := reference()) is not None:
                reader.finish()
