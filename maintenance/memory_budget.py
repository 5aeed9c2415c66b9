"""State within a budget of memory: an epoch that exceeds it is undone, and a view that would is not built.

All memory is in tables and dictionaries, which know their sizes: so it is counted, not measured. To count takes a look
at each table. An epoch of s steps takes at most s times the widest row, and slots may double: so after a count, some
steps need no other. Near the budget the short ways of rows are closed, and each epoch is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sqlfront.maintenance.program.room import size_text
from sqlfront.maintenance.replanning import Replanning
from sqlfront.storage.errors import OperationalError
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.epoch import Applied
    from sqlfront.maintenance.relation.base_relation import Relation

_NEAR = 0.75
"""The share of the budget from which on every epoch is counted."""


class MemoryBudget(Replanning):
    """State that takes at most `memory_budget` bytes."""

    memory_budget = math.inf
    _uncounted = 0
    _is_near = False

    def memory(self) -> int:
        """The bytes of all tables, dictionaries and waiting changes. O(tables)."""
        tables = sum(table.bytes() for table in {id(table): table for table in self._all_tables()}.values())
        waiting = (relation.waiting for relation in self.relations.values() if relation.waiting is not None)
        return tables + sum(one.bytes() for one in self.dictionaries) + sum(one.bytes() for one in waiting)

    def check_memory(self, what: str, more: int = 0) -> None:
        """OperationalError if the state, with so many bytes more, takes more than its budget."""
        self._uncounted = 0
        if self.memory_budget < math.inf and (taken := self.memory() + more) > self.memory_budget:
            raise OperationalError(
                f"{what} would let the views take {size_text(taken)} of memory",
                why=f"sqlfront_memory is {size_text(self.memory_budget)}",
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

    def look(self) -> None:
        super().look()
        if self._is_due():
            self._count()

    def _admitted(self, applied: Applied) -> Applied:
        """An epoch that has been applied, if it is within the budget. OperationalError if not; it is undone then. An
        epoch that only deletes rows may always go on."""
        if self._is_due() and self._count() and not applied.deletes_only():
            try:
                self.check_memory("the change")
            except OperationalError:
                self.undo(applied)
                for table in {id(table): table for table in self._all_tables()}.values():
                    table.give_back()
                raise
        return applied

    def _is_due(self) -> bool:
        """Whether so many steps have been taken that the state may be near its budget."""
        return self.memory_budget < math.inf and int(self.machine.counters.sum()) >= self._uncounted

    def _count(self) -> bool:
        """Count, and settle when to count again; whether the budget is near."""
        tables = list(self._all_tables())
        left = _NEAR * self.memory_budget - self.memory() - sum(table.slot_bytes() for table in tables)
        widest = max((table.row_bytes() for table in tables), default=1)
        is_near = left <= 0
        self._uncounted = 0 if is_near else int(self.machine.counters.sum() + left / widest)
        if is_near != self._is_near:
            self._is_near = is_near
            self._assemble((), self.relations)
        return is_near

    def _all_tables(self) -> Iterator[Table]:
        """All tables; some of them several times."""
        for relation in self.relations.values():
            yield from (store.table for store in relation.stores.values())
        for view in self._members():
            yield from view.all_tables()
