"""The machine that runs programs: scratch memory, step counters, and one call into compiled code."""

from __future__ import annotations

import struct
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sqlfront.maintenance.program.threads import cores, side_by_side
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import interpreter as kernels
from sqlfront.storage.kernels.tables.upkeep import free_words
from sqlfront.storage.kernels.tables.waves import WAVE_WORDS

if TYPE_CHECKING:
    from sqlfront.storage.stores.table import Table

_run = entry_point(kernels.run)
_run_program = entry_point(kernels.run_program)
run_epoch = entry_point(kernels.run_epoch)
run_share = entry_point(kernels.run_share)
run_row = entry_point(kernels.run_row)
run_packed = entry_point(kernels.run_packed)
run_each = entry_point(kernels.run_each)
place_row = entry_point(kernels.place_row)

MAX_VIEWS = 4096
_ENTRY = struct.Struct("=5q")


class Program:
    """The words of a finished program and where they lie."""

    def __init__(self, words: np.ndarray) -> None:
        self.words = words
        self.address = int(words.ctypes.data)


class Runnable(Protocol):
    """Encoded changes as the machine runs them."""

    def entry(self) -> tuple[int, int, int, int, int]:
        """The addresses of the body, the check and the sweep; the rows' address, and their number."""
        ...


class Watch(Protocol):
    """Told of work over a number of rows (0: nobody knows), while which its context is open."""

    def __call__(self, what: str, total: int = 0, /) -> AbstractContextManager[None]: ...


def _unwatched(what: str, total: int = 0, /) -> AbstractContextManager[None]:
    return nullcontext()


_NOTHING = Program(np.array([at.END, 1], np.int64))


class Budget(Protocol):
    """What builds ask before and while they take memory."""

    def opened(self, table: Table) -> None:
        """Before a table is filled."""
        ...

    def check_filling(self, parts: Sequence[Table] = ()) -> None:
        """Between two runs that fill a table, also from `parts` of it: OperationalError if it exceeds the budget."""
        ...

    def has_room(self, count: float) -> bool:
        """Whether there is room for so many bytes more."""
        ...


class Unbounded:
    """A budget that has room for everything."""

    def opened(self, table: Table) -> None:
        pass

    def check_filling(self, parts: Sequence[Table] = ()) -> None:
        pass

    def has_room(self, count: float) -> bool:
        return True


class RelationPrograms:
    """What runs for a change of one relation: the paths, the checks of its stores, the sweeps of all it touches.
    `lists`: a row of the change may meet many others. `barriers`: the words of those that the programs wait at."""

    def __init__(self, body: Program, check: Program, sweep: Program, lists: bool) -> None:
        self.body, self.check, self.sweep, self.lists = body, check, sweep, lists
        self.addresses = body.address, check.address, sweep.address
        self.barriers = np.empty(0, np.int64)

    def without_ends(self) -> RelationPrograms:
        """The body with neither checks nor sweeps, for a part of an epoch."""
        return RelationPrograms(self.body, _NOTHING, _NOTHING, self.lists)


class Scratch:
    """The memory that one thread's programs work in; `words` begin with the flags and the buffers' addresses."""

    def __init__(self, counters: np.ndarray) -> None:
        self.words = np.zeros(at.SCRATCH_WORDS, np.int64)
        self._temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        self._wave = np.zeros(WAVE_WORDS, np.int64)
        self._stack = np.zeros(4 * at.MAX_BUFFERS, np.int64)
        self.words[at.TEMPORARY] = self._temporary.ctypes.data
        self.words[at.WAVES] = self._wave.ctypes.data
        self.words[at.STACK] = self._stack.ctypes.data
        self.words[at.COUNTERS] = counters.ctypes.data
        self.address = int(self.words.ctypes.data)
        weakref.finalize(self, _free_buffers, self.words).atexit = False

    def run(self, program: Program, address: int, first: int, rows: int, sign: int) -> int:
        """Run a program over encoded rows (or, for SCAN, over row numbers) from row `first`; returns the flags."""
        flags: int = _run_program(program.address, self.address, address, first, rows, sign)
        return flags


class Machine:
    """Scratch space shared by all programs of an engine, which run one at a time, or share by share on `threads`.

    `watch(what, rows)` surrounds what may take long: it may show how far `scanned` has come.
    """

    def __init__(self, watch: Watch = _unwatched) -> None:
        self.watch, self.threads = watch, cores()
        self.budget: Budget = Unbounded()
        self.counters = np.zeros(MAX_VIEWS, np.int64)
        self._own, self._others = Scratch(self.counters), list[Scratch]()
        self.scratch, self.address = self._own.words, self._own.address
        self._words = self.scratch.data
        self._reserve_entries(40)

    def run(
        self, program: Program, data: np.ndarray | None = None, rows: int = 0, sign: int = 1, first: int = 0
    ) -> int:
        """Run a program over encoded rows (or, for SCAN, over row numbers) from row `first`; returns the flags."""
        address = 0 if data is None else data.__array_interface__["data"][0]
        return self._own.run(program, address, first, rows, sign)

    def run_some(self, program: Program, first: int, rows: int) -> int:
        """Run a program over `rows` (at most CHUNK) rows of a scanned table from row `first`; returns the flags."""
        self.scratch[at.FLAGS] = 0
        _run(program.address, self.address, 0, first, rows, 1)
        return int(self.scratch[at.FLAGS])

    def run_epoch(self, encoded: Sequence[Runnable], sign: int = 1) -> int:
        """Run (or, with sign -1, undo) a whole epoch in one uninterruptible call; returns the flags."""
        count = len(encoded)
        if _ENTRY.size * count > len(self._entries):
            self._reserve_entries(10 * count)
        for number, item in enumerate(encoded):
            _ENTRY.pack_into(self._entries, _ENTRY.size * number, *item.entry())
        return run_epoch(self._entries_address, count, self.address, sign)

    def run_shares(self, shares: Sequence[Sequence[Runnable]]) -> int:
        """Run an epoch on several threads, each the entries of its share; returns the flags."""
        team = np.zeros(at.TEAM_WORDS, np.int64)
        team[at.TEAM_SIZE] = len(shares)
        calls = []
        for number, (share, scratch) in enumerate(zip(shares, self.scratches(len(shares)), strict=True)):
            entries = np.array([item.entry() for item in share], np.int64)
            calls.append(partial(_run_share, entries, len(share), scratch.address, team, number == 0))
        return side_by_side(calls)[0]

    def scratches(self, count: int) -> list[Scratch]:
        """Scratch space for so many threads; the first has this machine's own."""
        self._others += [Scratch(self.counters) for _ in range(count - 1 - len(self._others))]
        return [self._own, *self._others[: count - 1]]

    def _reserve_entries(self, words: int) -> None:
        entries = np.zeros(8 * words, np.uint8)
        self._entries, self._entries_address = entries.data, int(entries.ctypes.data)

    @property
    def scanned(self) -> int:
        """How many rows programs have been run over; any thread may read it while one runs."""
        return self._words[at.SCANNED]

    @property
    def runs(self) -> int:
        """How many epochs have been run or undone: tells whether an interrupted call had taken place."""
        return self._words[at.RUNS]

    @property
    def epochs(self) -> int:
        """How many epochs have been committed."""
        return self._words[at.EPOCHS]

    @epochs.setter
    def epochs(self, number: int) -> None:
        self._words[at.EPOCHS] = number

    def run_once(self, program: Program) -> int:
        """Run a program that reads no data: checks and sweeps. Returns the flags."""
        return self.run_some(program, 0, 0)


def _run_share(entries: np.ndarray, count: int, scratch: int, team: np.ndarray, leads: bool) -> int:
    flags: int = run_share(int(entries.ctypes.data), count, scratch, int(team.ctypes.data), leads)
    return flags


def _free_buffers(scratch: np.ndarray) -> None:
    places = [at.HASHES, at.MATCHES, *range(at.BUFFERS, at.SCRATCH_WORDS, 3)]
    for place in places:
        if scratch[place]:
            free_words(int(scratch[place]))
