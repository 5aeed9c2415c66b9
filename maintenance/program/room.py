"""Building within a memory limit: how large a view of combinations will be is foreseen while it is filled.

The rows that a path scans are taken in an order that spreads over the whole table, so that what the first of them make
tells how much all of them will (a sample without replacement, of which nothing is done twice). No view has more rows
than the sizes of the tables below it allow (Atserias, Grohe and Marx 2013), so a view that sums out most of what it is
given is not taken for a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.parallel_fill import fill_table
from sqlfront.maintenance.program.programs import Assembler
from sqlfront.storage.errors import OperationalError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

MARKS = 64
"""Rows that are scanned one by one, evenly spread, before the runs between them."""

_ALWAYS = 1 << 20
"""So many bytes are there at any time."""
_JUDGED = 16
_DOUBT = 4
_SLOT_BYTES = 24  # 16 to 32, by how full the slots are.


@dataclass(frozen=True)
class Room:
    """At most `limit` bytes for the tables of a view called `name`; `hint` is a way to need less."""

    name: str
    limit: int
    hint: str | None = None


@dataclass(frozen=True)
class Goal:
    """A table to be filled with the combinations of `variables`, called `labels`, that the join of atoms with the
    variables and sizes of `joined` has."""

    table: Table
    variables: Sequence[str]
    labels: Sequence[str]
    joined: Sequence[tuple[frozenset[str], int]]

    def most(self) -> float:
        """The most rows the table can come to have."""
        from sqlfront.planner.theory.cover import largest_join

        return largest_join(self.variables, self.joined)


def fill(machine: Machine, assembler: Assembler, rows: int, goal: Goal, taken: int, room: Room | None) -> int:
    """Run a program that scans `rows` rows and fills a table; returns the flags.

    Raises OperationalError when the table has no room left beside the `taken` bytes, or will by far not find it.
    """
    with machine.watch(f"joining by {', '.join(goal.labels)}" if goal.labels else "adding up", rows):
        if room is None:
            return fill_table(machine, assembler, rows, goal.table)
        flags = done = 0
        machine.budget.opened(goal.table)
        program = assembler.program()
        for number, (first, count) in enumerate(_spread(rows)):
            flags |= machine.run_some(program, first, count)
            machine.budget.check_filling()
            done += count
            if number >= _JUDGED or done == rows:
                _judge(goal, taken, done / rows, room)
        return flags


def check_change(name: str, rows: int, each: int, limit: Callable[[], float]) -> None:
    """OperationalError if so many changed rows of a view, of `each` bytes, do not find room."""
    needed = rows * each
    if needed < _ALWAYS or needed <= (most := limit()):
        return
    raise OperationalError(
        f"the change of {name} would need about {size_text(needed)} of memory",
        where=f"for {rows:,} rows whose window functions have other values now",
        why=f"memory_limit is {size_text(most)}",
        hint="SET memory_limit to more if the machine has it; or let QUALIFY leave fewer rows of a partition",
    )


def _spread(rows: int) -> Iterator[tuple[int, int]]:
    """All of 0..rows-1 as (first, count), at most CHUNK at once: evenly spread ones alone, then what lies between."""
    if not rows:
        return
    marks = sorted({rows * number // MARKS for number in range(MARKS)})
    for mark in (*marks[::2], *marks[1::2]):  # The first few are spread too.
        yield mark, 1
    for mark, after in zip(marks, [*marks[1:], rows], strict=True):
        for first in range(mark + 1, after, at.CHUNK):
            yield first, min(at.CHUNK, after - first)


def _judge(goal: Goal, taken: int, share: float, room: Room) -> None:
    """OperationalError if the table, of which this share is there, will have too many rows."""
    table = goal.table
    each = _bytes_per_row(table)
    # Rows that meet in one key make the sample say too much.
    margin = room.limit if taken + table.live * each > room.limit else _DOUBT * room.limit
    rows = table.live / share
    if taken + rows * each <= margin:
        return
    rows = max(table.live, min(rows, goal.most()))
    if taken + rows * each <= margin:
        return
    combinations = ", ".join(goal.labels)
    raise OperationalError(
        f"materialized view {room.name} would need about {size_text(taken + rows * each)} of memory",
        where=f"for about {round(rows):,} combinations of {combinations}, which it would have to store",
        why=f"memory_limit is {size_text(room.limit)}",
        hint="; or ".join(filter(None, ("SET memory_limit to more if the machine has it", room.hint))),
    )


def _bytes_per_row(table: Table) -> float:
    """What a row takes, with its share of the groups that there are so far."""
    own = 8 * table.width + _SLOT_BYTES
    groups = sum(group.live * (8 * group.width + _SLOT_BYTES) for group in table.groups)
    return float(own + groups / max(1, table.live))


def size_text(count: float) -> str:
    """A number of bytes, for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:,.1f} {unit}" if unit != "bytes" else f"{count:,.0f} bytes"
