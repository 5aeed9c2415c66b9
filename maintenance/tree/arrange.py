"""Laying tables out in the order of a walk, so that it reads memory from front to back: when a view is built, and
again when so many walks went astray that it pays.

A row that a walk reads next to the one before costs nothing extra, any other waits for memory. Updates put rows
wherever there is room; their order is restored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlfront.maintenance.program.programs import WordTest
from sqlfront.maintenance.program.shapes import Shape
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.tree.walk import Walk


@dataclass(frozen=True)
class Level:
    """One level of a walk: how rows of `table` are reached from the rows before it (`sources`: (level, place)). Of a
    range, `tests` say of which level's row and how: the bound below, the one above (None: none), others. `missing` is
    the address of the row that stands for none (0: none does)."""

    kind: int
    table: Table
    shape: Shape
    group: Table | None = None
    index: int = 0
    sources: tuple[tuple[int, int], ...] = ()
    tests: tuple[tuple[int, WordTest] | None, ...] = ()
    missing: int = 0

    @property
    def looked_up(self) -> Table:
        """The table that is searched: of groups, or of the rows themselves."""
        return self.group if self.group is not None else self.table


class Arrangement:
    """How far a tree's tables have fallen out of the order of its walk, in rows that were read out of turn."""

    def __init__(self) -> None:
        self.astray = 0

    def note(self, walk: Walk, astray: int) -> None:
        """After a whole walk. Lays the tables out anew once as many rows have been read out of turn, in walks since
        the last time, as twice the rows there are: what that costs is then small beside what it would have saved.
        """
        self.astray += astray
        tables = {table for level in walk.levels for table in (level.table, level.looked_up)}
        if self.astray > 2 * sum(table.live for table in tables) and _nobody_reads(tables, walk):
            arrange(walk.levels)
            self.astray = 0


def arrange(levels: Sequence[Level]) -> None:
    """Lay out the tables of a walk in its order. O(rows). Row numbers change: nothing may be reading them."""
    for level in levels:
        if level.sources:
            visitor = levels[level.sources[0][0]].table
            level.looked_up.align(visitor, [place for _, place in level.sources])
        if level.group is not None:
            level.table.compact(level.index)


def _nobody_reads(tables: Iterable[Table], walk: Walk) -> bool:
    """Whether no other walk is under way in these tables, and no row of theirs waits to be swept."""
    others = (reader for table in tables for reader in table.readers if reader is not walk)
    return next(others, None) is None and not any(table.unswept for table in tables)
