"""Making the kernels' machine code ready before the first of them loads.

A wheel brings a file of machine code. From a source tree the file is built once, in a process of its own and with a bar
that shows its progress; a second process waits for the first.
"""

from __future__ import annotations

import functools
import os
import queue
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from sqlfront.storage.errors import OperationalError
from sqlfront.storage.native import native_file as native
from sqlfront.storage.native.compilers import has_compilers
from sqlfront.storage.native.kernel_cache import ensure_cache

MODULE = "sqlfront.storage.kernels.building"


@functools.cache
def ensure_kernels() -> None:
    """Find, or build, the file of all kernels; or make a place for those that numba compiles. OperationalError if there
    is no way to have them."""
    if native.mode() != "jit" and native.find() is not None:
        return
    if not has_compilers():
        raise OperationalError(
            "there are no compiled kernels for this machine",
            why="this package was installed without them, and numba, which compiles them, is not installed",
            hint="install a wheel for this machine, or pip install 'sqlfront[kernels]'",
        )
    ensure_cache()
    target = native.built_file(native.FILE if compiler() else native.OBJECT)
    if native.mode() != "jit" and (problem := build_file(target)) is not None:
        _say(f"the kernels' file could not be built ({problem}): numba compiles each kernel by itself")


def compiler() -> list[str] | None:
    """The C compiler's command, which links the file: CC, or the first of cc, gcc, clang; None if there is none."""
    given = os.environ.get("CC")
    found = shlex.split(given) if given else list(filter(None, map(which, ("cc", "gcc", "clang"))))[:1]
    return found or None


def build_file(target: Path) -> str | None:
    """Build the file, unless it is there: a process that comes later waits for the first. The problem, if it fails."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.with_suffix(".lock")
    begun = lock.exists()
    with _alone(lock), tempfile.TemporaryFile("w+") as errors:
        if target.exists():
            return None
        environment = dict(os.environ, SQLFRONT_KERNELS="jit", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
        command = [sys.executable, "-m", MODULE, str(target)]
        started = time.monotonic()
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as running:
            assert running.stdout is not None
            _show(running.stdout, "again: the last time did not end" if begun else "once for these sources")
        if running.returncode == 0:
            _say(f"compiled kernels in {time.monotonic() - started:.0f} s")
            return None
        errors.seek(0)
        return (errors.read().strip().splitlines() or ["it gave no reason"])[-1]


def _show(lines: Iterable[str], why: str) -> None:
    """The progress of a build: a bar on a terminal, else one line."""
    what = f"compiling kernels, {why}"
    if not sys.stderr.isatty():
        _say(what)
        for _ in lines:
            pass
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn(f"sqlfront: {what}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=1.0)
        for share in shares(lines):
            progress.update(task, completed=share)


def shares(lines: Iterable[str]) -> Iterator[float]:
    """The share that is done, a few times a second: as told, and on at the same rate while nothing is told."""
    told: queue.SimpleQueue[float | None] = queue.SimpleQueue()

    def read() -> None:
        for line in lines:
            told.put(float(line.split()[0]))
        told.put(None)

    threading.Thread(target=read, daemon=True).start()
    started, shown, rate = time.monotonic(), 0.0, 0.0
    share: float | None = 0.0
    while share is not None:
        shown = max(shown, share)
        yield shown
        taken = time.monotonic() - started
        try:
            share = told.get(timeout=0.2)
            rate = share / taken if share else rate
        except queue.Empty:
            share = min(0.98, rate * taken)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; the end of a process gives the lock back."""
    try:
        import fcntl
    except ImportError:  # Not on Windows, where two processes may both build.
        yield
        return
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process compiles kernels, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(what: str) -> None:
    print(f"sqlfront: {what}", file=sys.stderr, flush=True)
