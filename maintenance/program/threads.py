"""Kernels on several threads: calls that run at the same time, each without the GIL.

Threads wait for calls, and are started only where none waits: to start one takes 100 microseconds, to wake one 10.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.storage.errors import OperationalError

_Result = TypeVar("_Result")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(calls: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """The results of calls that run at the same time, and may wait for each other: the first in this thread, each other
    in one of its own. Ctrl-C waits until all have ended."""
    with Uninterrupted():
        workers = list[_Worker]()
        try:
            for _ in calls[1:]:
                workers.append(_worker())
        except RuntimeError as error:
            idle.extend(workers)
            raise OperationalError(
                "a thread cannot be started",
                why=str(error),
                hint="SET sqlfront_threads = 1 asks for no further threads",
            ) from error
        for worker, call in zip(workers, calls[1:], strict=True):
            worker.start(call)
        outcomes = [_outcome(calls[0]), *(worker.outcome() for worker in workers)]
    for _, failed in outcomes:
        if failed is not None:
            raise failed
    return [result for result, _ in outcomes]


class Background:
    """One call at a time that runs in a thread of its own, until the next one starts or the context ends."""

    def __init__(self) -> None:
        self._worker: _Worker | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *exception: object) -> None:
        self._wait()
        if exception[0] is None:
            self.finish()

    def start(self, call: Callable[[], object]) -> None:
        """Run a call beside what follows; in this thread if no other can be started."""
        self.finish()
        with Uninterrupted():
            try:
                self._worker = _worker()
            except RuntimeError:
                call()
            else:
                self._worker.start(call)

    def finish(self) -> None:
        """Wait for the end of the call; raise its error."""
        self._wait()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _wait(self) -> None:
        """Wait for the end of the call; so does Ctrl-C."""
        with Uninterrupted():
            if self._worker is not None:
                _, self._error = self._worker.outcome()
                self._worker = None


class _Worker:
    """A thread that waits for calls, and runs one at a time. It waits for one of two locks, its caller for the other.
    It ends with the process."""

    def __init__(self) -> None:
        self._given, self._ended = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._ended.acquire()
        self._call: Callable[[], Any] | None = None
        self._outcome: tuple[Any, BaseException | None] = None, None
        threading.Thread(target=self._run, name="sqlfront worker", daemon=True).start()

    def start(self, call: Callable[[], object]) -> None:
        """Begin a call, whose `outcome` is to be fetched."""
        self._call = call
        self._given.release()

    def outcome(self) -> tuple[Any, BaseException | None]:
        """Wait for the end of the call; its result, or its error. The worker is free for others then."""
        self._ended.acquire()
        outcome, self._outcome = self._outcome, (None, None)
        idle.append(self)
        return outcome

    def _run(self) -> None:
        while True:
            self._given.acquire()
            call, self._call = self._call, None
            assert call is not None
            self._outcome = _outcome(call)
            del call  # Else what it holds would live until the next one.
            self._ended.release()


idle: list[_Worker] = []
"""The workers that wait for a call. A forked process has none of their threads."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle.clear)


def _worker() -> _Worker:
    """A worker that nobody else has. RuntimeError if a thread would have to be started and cannot be."""
    try:
        return idle.pop()
    except IndexError:
        return _Worker()


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The result of a call, or its error."""
    try:
        return call(), None
    except BaseException as error:
        return None, error
