"""Filling a table on several threads, where many rows meet in few keys.

Each thread takes rows that lie together, and adds them to a table of its own. The few rows of these tables are added up
at the end. Where most rows have keys of their own, a second table would cost as much as a second thread saves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from sqlfront.maintenance.program.machine import Budget, Machine, Program
from sqlfront.maintenance.program.programs import Assembler, operations
from sqlfront.maintenance.program.threads import side_by_side
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores import partial_tables
from sqlfront.storage.stores.table import Table

STEP = at.CHUNK
"""So many rows are taken at once by one thread."""
SAMPLE = 1 << 16
"""So many rows are taken by one thread; they tell how many rows meet in a key."""

_MEETING = 8
"""Rows that meet in a key, from which on several threads fill a table."""
_SLOT_BYTES = 32
_FILLING = (at.LIFT, at.SCAN, at.PATH, at.PATH_END, at.SIGN, at.SCALE)
_READING = (at.PROBE, at.EXTEND, at.RANGE, at.RANGE_SUM, at.BOX_SUM, at.PROJECT)


class ParallelFill:
    """A table that programs fill from about `count` rows (0: nobody knows how many): by one thread at first, then
    perhaps by all of the machine's."""

    def __init__(self, machine: Machine, table: Table, count: int) -> None:
        self._machine, self._table, self._count = machine, table, count
        machine.budget.opened(table)
        self._seen = 0
        self._others: list[Table] = []
        self._assembled: tuple[Assembler, Program] | None = None

    def run(
        self, assembler: Assembler, rows: int, data: np.ndarray | None = None, first: int = 0, sign: int = 1
    ) -> int:
        """Run a program that adds to the table over rows of data, or of what it scans, from row `first`; returns the
        flags."""
        if sign > 0 and not self._others and self._pays() and is_parallel(assembler.code, self._table):
            self._others = [partial_tables.partial_table(self._table) for _ in range(self._machine.threads - 1)]
        if self._others:
            flags = self._run_parts(assembler, 0 if data is None else int(data.ctypes.data), first, rows, sign)
        else:
            if self._assembled is None or self._assembled[0] is not assembler:
                self._assembled = assembler, assembler.program()
            flags = self._machine.run(self._assembled[1], data, rows, sign, first)
            if flags == 0 and self._seen < SAMPLE <= self._seen + rows < self._count:
                make_room(self._table, self._seen + rows, self._count, self._machine.budget)
        self._seen += rows * sign
        self._machine.budget.check_filling(self._others)
        return flags

    @property
    def step(self) -> int:
        """How many rows the next run should take: Ctrl-C waits for its end."""
        return SAMPLE if self._others else STEP

    @property
    def is_large(self) -> bool:
        """Whether so many rows have come that another thread pays."""
        return self._machine.threads > 1 and self._seen >= SAMPLE and partial_tables.can_be_divided(self._table)

    def cramped(self) -> bool:
        """Whether values have to be widened before the tables are joined."""
        tables = (self._table, *self._others) if self._others else ()
        return any(partial_tables.cramped(table, self._table.groups) for table in tables)

    def widen(self, limbs: int) -> None:
        """Give the values of all tables so many limbs."""
        for table in (self._table, *self._others):
            table.widen(limbs)

    def join(self) -> None:
        """Add up what the threads have filled."""
        partial_tables.merge(self._table, self._others, self._machine.address)
        self._others = []

    def _pays(self) -> bool:
        """Whether enough rows have come, and may still come, that meet in few keys."""
        left = self._count - self._seen if self._count else SAMPLE
        return self.is_large and left >= SAMPLE and _MEETING * self._table.live <= self._seen

    def _run_parts(self, assembler: Assembler, address: int, first: int, rows: int, sign: int) -> int:
        tables = (self._table, *self._others)
        bounds = [first + rows * number // len(tables) for number in range(len(tables) + 1)]
        calls, flags = list[Callable[[], int]](), 0
        for table, scratch, (start, end) in zip(
            tables, self._machine.scratches(len(tables)), pairwise(bounds), strict=True
        ):
            calls.append(partial(scratch.run, _program(assembler, table), address, start, end - start, sign))
        for found in side_by_side(calls):
            flags |= found
        self._machine.scratch[at.SCANNED] += rows - (bounds[1] - first)
        return flags


def in_parts(machine: Machine, table: Table, call: Callable[[int, int], Any]) -> None:
    """Call what works on one of several parts of a table: for each part at the same time, if the table is large."""
    threads = machine.threads if table.live >= SAMPLE else 1
    side_by_side([partial(call, number, threads) for number in range(threads)])


def fill_table(machine: Machine, assembler: Assembler, rows: int, table: Table) -> int:
    """Run a program that scans `rows` rows and fills a table; returns the flags."""
    filling, flags, first = ParallelFill(machine, table, rows), 0, 0
    while first < rows:
        count = min(filling.step, rows - first)
        flags |= filling.run(assembler, count, first=first)
        first += count
    if filling.cramped():
        return flags | at.OVERFLOW
    filling.join()
    return flags


def is_parallel(code: Sequence[int], table: Table) -> bool:
    """Whether a program may run on several threads, each with a table in the place of this one: it writes no other."""
    written = [words[2] for words in operations(code) if words[0] == at.UPSERT]
    return written == [table.address] and set(kinds_in(code)) <= {at.UPSERT, *_FILLING, *_READING}


def is_copy(code: Sequence[int]) -> bool:
    """Whether a program adds the rows of a table to another one as they are, or with the signs of their counts."""
    return [kind for kind in kinds_in(code) if kind != at.SIGN] == [at.SCAN, at.PATH, at.UPSERT, at.PATH_END]


def kinds_in(code: Sequence[int]) -> list[int]:
    """The kind of each operation of a program."""
    return [words[0] for words in operations(code)]


def _program(assembler: Assembler, table: Table) -> Program:
    """The program as it fills another table."""
    made = Assembler()
    for words in operations(assembler.code):
        made.code += [*words[:2], table.address] if words[0] == at.UPSERT else words
    return made.program()


def make_room(table: Table, seen: int, count: int, budget: Budget) -> None:
    """Make room in a table and its groups for the keys of `count` rows, judging by those of the first `seen`, as far as
    the budget has it.

    As many draws from N equally likely keys repeat one about seen**2 / 2N times, and `count` draws find
    N(1 - e**(-count/N)) of them.
    """
    for part in (table, *table.groups):
        repeated = seen - part.live
        keys = seen * seen / (2 * repeated) if repeated > 0 else math.inf
        expected = count if count < keys / 1000 else int(-keys * math.expm1(-count / keys))
        more = max(0, expected - part.live)
        if budget.has_room(more * (part.row_bytes() + _SLOT_BYTES)):
            part.reserve(more)


def sweep(machine: Machine, *tables: Table) -> None:
    """Free the rows of tables whose counts have come to 0."""
    assembler = Assembler()
    assembler.finish(at.SWEEP, tables)
    machine.run_once(assembler.program())
