"""The option `tick`: a thread that lets the wall clock of a database go on, so that subscribers hear of it."""

from __future__ import annotations

import re
import threading
import weakref
from typing import TYPE_CHECKING

from sqlfront.database.view_time import late_views, tick
from sqlfront.storage.errors import Error, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.database import Database

_TICK = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """The seconds of a tick. ProgrammingError for what is none."""
    found = _TICK.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found is not None else 0.0
    if seconds < 0.001:
        raise ProgrammingError(
            f"option tick cannot be {text!r}",
            why="it takes a number of ms, s, min or h, one millisecond at least",
            hint="for example tick = '1s'",
        )
    return seconds


def keep_ticking(database: Database) -> None:
    """Have a thread that ticks as often as the views ask for; none if no view does."""
    ticks = [seconds_of(entry.options["tick"]) for entry in database.views.values() if "tick" in entry.options]
    if database.ticker is not None:
        database.ticker.stop()
        database.ticker = None
    if ticks:
        database.ticker = Ticker(database, min(ticks))


class Ticker:
    """A thread that ticks every so many seconds, until it is stopped or the database is gone."""

    def __init__(self, database: Database, seconds: float) -> None:
        self._database, self._seconds, self._stopped = weakref.ref(database), seconds, threading.Event()
        threading.Thread(target=self._run, name="sqlfront ticks", daemon=True).start()

    def stop(self) -> None:
        """Tick no more; a tick under way goes on to its end."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            database = self._database()
            if database is None:
                return
            with database.lock:
                if not self._stopped.is_set():
                    _tick(database)
            del database


def _tick(database: Database) -> None:
    """Let the wall clock go on. If a row that comes cannot be computed, the subscribers get the error. Time stands
    still until the row is corrected, and statements that read a view over the clock get the error."""
    try:
        tick(database)
    except Error as error:
        over = late_views(database)
        for entry in database.views.values():
            if entry.feed is not None and entry.maintained.name in over:
                entry.feed.fail(error)
