"""State within a budget of memory: an epoch that exceeds it is undone, and a view that would is not built.

All memory is in tables, dictionaries, and changes that wait or are kept. These know their sizes: so memory is counted,
not measured. A count takes a look at each table. Work of s steps takes at most s times the widest row, and slots may
double: so after a count, some steps need no other. Builds and large epochs run in parts, with counts in between. Near
the budget the short ways of rows are closed, parts become small, and each epoch is counted.

Changes that are kept for readers of older epochs give way: a reader loses its epoch before an epoch is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sqlfront.maintenance.epoch import shown_relation
from sqlfront.maintenance.kept_changes import KeptChanges
from sqlfront.maintenance.program.room import size_text
from sqlfront.maintenance.replanning import Replanning
from sqlfront.storage.errors import OperationalError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    import threading

    from sqlfront.maintenance.epoch import Applied
    from sqlfront.maintenance.output.output_change import OutputChange
    from sqlfront.maintenance.program.machine import Watch
    from sqlfront.maintenance.program.room import Room
    from sqlfront.maintenance.relation.base_relation import Evaluate, LeafStore, Relation
    from sqlfront.maintenance.relation.encoded import Encoded
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.maintenance.write_buffers import WriteBuffers
    from sqlfront.storage.stores.spill import Spill

SETTING = "sqlfront_memory"
_NEAR = 0.75
"""The share of the budget from which on every epoch is counted."""
_LEAST, _MOST = 64, 32 * at.CHUNK
"""Rows that run between two counts."""


class MemoryBudget(Replanning):
    """State that takes at most `memory_budget` bytes beside those that are spilled."""

    memory_budget = math.inf
    spill: Spill | None = None
    write_buffers: WriteBuffers | None = None
    _uncounted = _left = 0.0
    _widest = 1
    _is_near = False

    def __init__(self, evaluate: Evaluate, lock: threading.RLock | None = None, watch: Watch | None = None) -> None:
        super().__init__(evaluate, lock, watch)
        self.kept = KeptChanges(self.lock, lambda: self.memory_limit())
        self.machine.budget = self
        self._built: list[MaintainedView] = []

    def memory(self) -> int:
        """The bytes of all tables, dictionaries, and changes that wait or are kept. O(tables)."""
        tables = sum(table.bytes() for table in {id(table): table for table in self._all_tables()}.values())
        waiting = sum(one.waiting.bytes for one in self.relations.values() if one.waiting is not None)
        return tables + sum(one.bytes() for one in self.dictionaries) + waiting + self.kept.bytes()

    def spill_to(self, directory: str | None) -> None:
        """Spill large arrays, before there is any, if a directory is given."""
        if directory is None:
            return
        from sqlfront.maintenance.write_buffers import WriteBuffers
        from sqlfront.storage.stores.spill import Spill

        self.spill, self.write_buffers = Spill(directory), WriteBuffers(self)
        for dictionary in self.dictionaries:
            dictionary.spill = self.spill

    def spilled(self) -> int:
        """How many of the bytes of `memory` are spilled."""
        if self.spill is None:
            return 0
        from sqlfront.storage.stores.spill import spilled_bytes

        tables = {id(table): table for table in self._all_tables()}.values()
        return sum(map(spilled_bytes, tables)) + sum(one.spilled_bytes() for one in self.dictionaries)

    def check_memory(self, what: str, more: int = 0) -> None:
        """OperationalError if the state, with so many bytes more, takes more than its budget, or if a spilled array has
        found no room."""
        self._uncounted = 0
        if self.spill is not None and (error := self.spill.take_error()) is not None:
            raise OperationalError(
                f"{what} finds no room in the spill directory {self.spill.directory}",
                why=error,
                hint="make room there, or connect with another sqlfront_spill",
            )
        if self.memory_budget == math.inf:
            return
        taken = self._taken(more)
        if taken > self.memory_budget and self.write_buffers is not None:
            self.write_buffers.give_up()
            taken = self._taken(more)
        if taken > self.memory_budget:
            raise OperationalError(
                f"{what} would let the views take {size_text(taken)} of memory",
                why=f"{SETTING} is {size_text(self.memory_budget)}",
                hint="delete rows, drop views, or connect with a config that has more",
            )

    def shrink(self, relations: Iterable[Relation] | None = None) -> None:
        """Give memory back wherever most of it is unused."""
        for relation in self.relations.values() if relations is None else relations:
            for table in self._touched(relation):
                table.shrink()

    def undo(self, applied: Applied) -> None:
        """Take an applied epoch back."""
        raise NotImplementedError

    def undo_encoded(self, encoded: list[Encoded]) -> None:
        """Run an epoch with all signs turned."""
        raise NotImplementedError

    def look(self) -> None:
        super().look()
        if self._is_due():
            self._count()

    # Epochs --------------------------------------------------------------------------------------

    def _run_programs(self, stage: Sequence[Encoded]) -> int:
        """Run the programs of changes; returns the flags."""
        raise NotImplementedError

    def _run_stage(self, stage: list[Encoded], done: list[Encoded], changes: Collection[OutputChange]) -> int:
        """Run a stage of an epoch that holds `done` and `changes` so far; returns the flags. `done` gets what has run,
        also when this raises. A large stage runs in parts. OperationalError if the state exceeds its budget; the whole
        epoch is undone then."""
        if self.memory_budget == math.inf or not self._brings_many(stage, done):
            return self._run_noted(stage, stage, done)
        first, held = len(done), sum(item.bytes() for item in (*done, *stage)) + sum(one.bytes() for one in changes)
        try:
            self._check_growth("the change", held)
            for part in self._parts(stage):
                if (flags := self._run_noted([part.body()], [part], done)) & at.OVERFLOW:
                    return flags
                self._check_growth("the change", held)
        except OperationalError:
            self.undo_encoded(done)
            done.clear()
            self._give_back()
            raise
        ends = [item.part(item.rows, 0) for item in stage]
        flags = self._run_noted(ends, ends, done)
        done[first:] = stage
        return flags

    def _run_noted(self, stage: Sequence[Encoded], noted: Sequence[Encoded], done: list[Encoded]) -> int:
        """Run programs; if they have run, whatever this raises, add what is `noted` to `done`."""
        runs = self.machine.runs
        try:
            return self._run_programs(stage)
        finally:
            if self.machine.runs != runs:
                done += noted

    @staticmethod
    def _brings_many(stage: Sequence[Encoded], done: Sequence[Encoded]) -> bool:
        """Whether a stage is large, and its epoch does not only delete rows of tables."""
        if sum(item.rows for item in stage) <= at.CHUNK:
            return False
        return any(item.brings_rows() for item in (*done, *stage) if not item.relation.is_view)

    def _parts(self, stage: Iterable[Encoded]) -> Iterator[Encoded]:
        """The changes in parts, as large as the growth by the part before lets expect no great part of the room."""
        size = at.CHUNK
        for item in stage:
            first = 0
            while first < item.rows:
                rows, room = min(size, item.rows - first), self._room()
                yield item.part(first, rows)
                first += rows
                growth, left = room - self._room(), self._room()
                if 4 * growth < left:
                    size = min(2 * size, _MOST)
                elif 2 * growth > left:
                    size = max(size // 2, _LEAST)

    def _admitted(self, applied: Applied) -> Applied:
        """An epoch that has been applied, if it is within the budget. OperationalError if not; it is undone then. An
        epoch that only deletes rows may always go on."""
        held = sum(change.bytes() for change in applied.changes.values()) if self.memory_budget < math.inf else 0
        is_due = self._is_due(held) and self._count()
        if (is_due or self._is_full()) and not applied.deletes_only():
            try:
                self.check_memory("the change", held)
            except OperationalError:
                self.undo(applied)
                self._give_back()
                raise
        return applied

    def _give_back(self) -> None:
        """Give memory back that an undone epoch has taken."""
        for table in {id(table): table for table in self._all_tables()}.values():
            table.give_back()
        if self.spill is not None:
            self.spill.take_error()  # What is left may stay in memory.

    # Builds --------------------------------------------------------------------------------------

    def _build(
        self, view: MaintainedView, fill: Callable[[Relation, LeafStore], None], room: Room | None
    ) -> list[MaintainedView]:
        self._built.append(view)
        try:
            return super()._build(view, fill, room)
        finally:
            self._built.remove(view)

    def opened(self, table: Table) -> None:
        """Before a table is filled."""
        if self.spill is not None:
            self.spill.keep(table)

    def has_room(self, count: float) -> bool:
        """Whether a build may reserve so many bytes more. Then they are counted soon."""
        if self.memory_budget == math.inf:
            return True
        self._measure()
        self._uncounted = 0
        return count <= self._left

    def check_filling(self, parts: Sequence[Table] = ()) -> None:
        """Between two runs that fill a table, also from `parts` of it: OperationalError if the state exceeds its
        budget."""
        if self.memory_budget < math.inf or self.spill is not None:
            name = f"materialized view {shown_relation(self._built[-1].name)}" if self._built else "the view"
            self._check_growth(name, sum(part.bytes() for part in parts))

    # Counting ------------------------------------------------------------------------------------

    def _check_growth(self, what: str, held: int) -> None:
        """`check_memory`, if it is due, amid an epoch or a build that holds so many bytes beside tables."""
        if self._is_due(held):
            self._measure()
            uncounted = self._uncounted
            self.check_memory(what, held)
            self._uncounted = uncounted
        elif self._is_full():
            self.check_memory(what, held)

    def _is_full(self) -> bool:
        """Whether something that is to be spilled has found no room."""
        return self.spill is not None and self.spill.has_failed

    def _is_due(self, held: int = 0) -> bool:
        """Whether so many steps have been taken that the state may be near its budget."""
        return self.memory_budget < math.inf and held >= self._room_uncounted()

    def _room(self) -> float:
        """The bytes that are left at least: of the budget, or, far from it, until the next count."""
        return self._left if self._uncounted == 0 else self._room_uncounted()

    def _room_uncounted(self) -> float:
        return (self._uncounted - int(self.machine.counters.sum())) * self._widest

    def _count(self) -> bool:
        """Count, and settle when to count again; whether the budget is near."""
        is_near = self._measure()
        if is_near != self._is_near:
            self._is_near = is_near
            self._assemble((), self.relations)
        return is_near

    def _measure(self) -> bool:
        """Count, and settle when to count again, with the same programs; whether the budget is near."""
        tables, taken = list(self._all_tables()), self._taken()
        doubling = 0 if self.spill is not None else sum(table.slot_bytes() for table in tables)
        far = _NEAR * self.memory_budget - taken - doubling
        self._widest = max((table.row_bytes() for table in tables), default=1)
        self._left = self.memory_budget - taken
        self._uncounted = 0 if far <= 0 else int(self.machine.counters.sum() + far / self._widest)
        return far <= 0

    def _taken(self, more: int = 0) -> int:
        """The memory with so many bytes more; beyond the budget without changes that are kept for readers."""
        taken = self.memory() - self.spilled() + more
        beyond, kept = taken - self.memory_budget, self.kept.bytes()
        if beyond > 0 and kept:
            self.kept.give_up(max(kept - beyond, 0), SETTING)
        return taken - kept + self.kept.bytes()

    def _make_programs(self, stale: Collection[str]) -> None:
        super()._make_programs(stale)
        if self.write_buffers is not None:
            self.write_buffers.find(self._programs)
        for table in self._all_tables() if self.spill is not None else ():
            self.opened(table)

    def _all_tables(self) -> Iterator[Table]:
        """All tables; some of them several times."""
        for relation in self.relations.values():
            yield from (store.table for store in relation.stores.values())
        for view in (*self.views.values(), *self._built):
            for member in view.members:
                yield from member.all_tables()
