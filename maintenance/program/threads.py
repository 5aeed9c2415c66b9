"""Kernels on several threads: calls that run at the same time, each without the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.storage.errors import OperationalError

_Result = TypeVar("_Result")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(calls: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """The results of calls that run at the same time, and may wait for each other: the first in this thread, each other
    in one of its own. Ctrl-C waits until all have ended."""
    results = dict[int, _Result]()
    errors: list[BaseException] = []
    signal = _StartSignal()

    def run(number: int) -> None:
        try:
            if signal.comes():
                results[number] = calls[number]()
        except BaseException as error:
            errors.append(error)

    with Uninterrupted():
        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(1, len(calls))]
        started = []
        try:
            for thread in threads:
                thread.start()
                started.append(thread)
        except RuntimeError as error:
            signal.give(False)
            raise OperationalError(
                "a thread cannot be started",
                why=str(error),
                hint="SET sqlfront_threads = 1 asks for no further threads",
            ) from error
        signal.give(True)
        run(0)
        for thread in started:
            thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(calls))]


class Background:
    """One call at a time that runs in a thread of its own, until the next one starts or the context ends."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._errors: list[BaseException] = []

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *exception: object) -> None:
        with Uninterrupted():
            self._join()
        if exception[0] is None:
            self.finish()

    def start(self, call: Callable[[], object]) -> None:
        """Run a call beside what follows; in this thread if no other can be started."""
        self.finish()
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            call()

    def finish(self) -> None:
        """Wait for the end of the call; raise its error."""
        self._join()
        if self._errors:
            raise self._errors.pop()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            self._errors.append(error)


class _StartSignal:
    """Threads wait here until it is known whether all of them have been started."""

    def __init__(self) -> None:
        self._given, self._go = threading.Event(), False

    def give(self, go: bool) -> None:
        self._go = go
        self._given.set()

    def comes(self) -> bool:
        """Whether to go on, once that is known."""
        self._given.wait()
        return self._go
