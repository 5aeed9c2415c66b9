"""Progress of what takes longer than a second: rows, rows a second and the time left, on a terminal or in a notebook.

The thread that works says what it does and of how many rows (`watch`); compiled code counts them in memory that another
thread may read (Machine.scanned). That thread draws the bar, and only after DELAY seconds: shorter work shows nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

DELAY = 1.0
"""Seconds before a bar appears."""


@dataclass
class Work:
    """Something that runs over `total` rows (0: nobody knows), and the counter of rows when it began."""

    what: str
    total: int
    before: int


class Progress:
    """The bar of one database. `rows` counts the rows that have been worked through since it was opened."""

    def __init__(self, rows: Callable[[], int], wanted: bool) -> None:
        self._rows, self._wanted = rows, wanted
        self._turn = threading.RLock()
        self._works: list[Work] = []

    @contextmanager
    def watch(self, what: str, total: int = 0) -> Iterator[None]:
        """Show that the body works, if it takes long. Within another `watch` its words stand for that one's meanwhile;
        a second thread's are not shown."""
        if not (self._wanted and _is_seen() and self._turn.acquire(blocking=False)):
            yield
            return
        self._works.append(Work(what, total, self._rows()))
        try:
            with self._drawn() if len(self._works) == 1 else nullcontext():
                yield
        finally:
            self._works.pop()
            self._turn.release()

    @contextmanager
    def _drawn(self) -> Iterator[None]:
        """Draw what `_works` says for the time of the body."""
        ended = threading.Event()
        thread = threading.Thread(target=self._draw, args=(ended,), name="sqlfront progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _draw(self, ended: threading.Event) -> None:
        if ended.wait(DELAY):
            return
        from sqlfront.database.running.progress_bar import ProgressBar

        with suppress(OSError), ProgressBar() as bar:  # The terminal may go away.
            while True:
                for work in self._works[-1:]:
                    bar.show(work.what, self._rows() - work.before, work.total)
                if ended.wait(0.1):
                    return


def _is_seen() -> bool:
    """Whether anybody looks: standard error is a terminal, or this is a notebook."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
