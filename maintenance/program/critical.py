"""Ctrl-C waits while shared state changes: an epoch goes through whole or is undone whole."""

from __future__ import annotations

# Without the conversion of handlers to enums that signal.signal does: ten times faster, and on the path of every epoch.
from _signal import SIGINT
from _signal import signal as set_handler
from collections.abc import Callable
from threading import get_ident, main_thread
from types import FrameType
from typing import Any


class Uninterrupted:
    """SIGINT that arrives in the body is handled at its end, or at `check`. Only the main thread gets any."""

    __slots__ = ("_arrived", "_before", "_frame")

    def __enter__(self) -> Uninterrupted:
        self._arrived, self._before = False, None
        self._frame: FrameType | None = None
        if get_ident() == main_thread().ident:
            self._before = set_handler(SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            set_handler(SIGINT, self._before)
            if exception[0] is None:
                self.check()

    def check(self) -> None:
        """Handle a SIGINT that has arrived: by default, raise KeyboardInterrupt."""
        if not self._arrived:
            return
        self._arrived = False
        if callable(self._before):
            self._before(SIGINT, self._frame)

    def _note(self, number: int, frame: Any) -> None:
        self._arrived, self._frame = True, frame


def insist(call: Callable[[], None]) -> None:
    """Call until a call has come to its end, whenever Ctrl-C arrives; it is raised afterwards."""
    interrupted = None
    ended = False
    while not ended:
        try:
            with Uninterrupted():
                call()
                ended = True
        except KeyboardInterrupt as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted
