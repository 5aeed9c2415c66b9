"""The change sources that this process has attached to change tables."""

from __future__ import annotations

import threading

from sqlfront.storage.outside.sources import ChangeSource


class AttachedSources:
    """The sources of a database's change tables, by the tables' numbers; a lock lets one reader at a time take in."""

    def __init__(self) -> None:
        self.sources: dict[int, ChangeSource] = {}
        self._locks: dict[int, threading.Lock] = {}

    def lock(self, number: int) -> threading.Lock:
        return self._locks.setdefault(number, threading.Lock())
