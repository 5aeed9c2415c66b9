"""Ctrl-C that reaches a running statement at once."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def stoppable(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` as soon as SIGINT arrives while the body runs, even if the body is inside C code.

    Python runs its signal handlers between bytecodes of the main thread, and DuckDB, while its own
    threads work, does not always look for them. A thread that waits on the signal wake-up socket does.
    In another thread than the main one, where Python delivers no signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, pythons = socket.socketpair()
    pythons.setblocking(False)
    before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
    waiter = threading.Thread(target=_wait, args=(ours, interrupt), daemon=True)
    waiter.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        # An end of file tells the waiter to leave.
        pythons.close()
        waiter.join()
        ours.close()


def _wait(wakeups: socket.socket, interrupt: Callable[[], None]) -> None:
    with suppress(OSError):
        while arrived := wakeups.recv(64):
            if signal.SIGINT in arrived:
                interrupt()
