"""The thread that writes snapshots while a file is open.

A snapshot is written if there is none, if views have been made, altered or dropped since, or if its log has grown to a
share of it: so the cost of snapshots is O(1) for each byte of the log.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlfront.database.database import Database


class Background:
    """Looks every `snapshot_every` seconds whether a snapshot is due, until it is stopped or the database is gone."""

    def __init__(self, database: Database) -> None:
        self._database, self._seconds = weakref.ref(database), database.snapshot_every
        self._revision = database.revision if database.logs else -1
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sqlfront snapshots", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write no more snapshots; one under way is finished."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            database = self._database()
            if database is None:
                return
            self._look(database)
            del database

    def _look(self, database: Database) -> None:
        revision = database.revision
        if database.epoch_limit is None or (revision == self._revision and _is_short(database)):
            return
        from sqlfront.snapshots.saving import save_snapshot

        save_snapshot(database)
        self._revision = revision


def _is_short(database: Database) -> bool:
    return bool(database.logs) and database.logs[0].is_short
