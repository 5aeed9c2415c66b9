"""Changes of spilled rows that wait in memory until somebody reads them: which tables may have a write buffer.

A row that is not in memory costs a page that is read and one that is written when it changes in its place. So a
spilled table that programs only add to has a buffer (storage/kernels/tables/write_buffer.py): changes wait there for
others of the same pages. Reads merge the buffer first, as they take in groups that wait.

Invariant: a table is marked as BUFFERED only while nothing reads it as an epoch runs. Its address is in no operation of
a program but UPSERT, and in checks and sweeps, which ask for the rows that the epoch has emptied. No node tells its
changes, and none is read by another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from threading import Lock
from typing import TYPE_CHECKING

from sqlfront.maintenance.output.node import TreeNode
from sqlfront.maintenance.program.programs import operations
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.buffered import buffer_changes, may_buffer, merge_buffer, waiting_rows

if TYPE_CHECKING:
    from sqlfront.maintenance.memory_budget import MemoryBudget
    from sqlfront.maintenance.program.machine import Program, RelationPrograms
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.storage.stores.table import Table


class WriteBuffers:
    """The tables of an engine that may have write buffers, by the relations whose changes they take. The engine's lock
    is held."""

    def __init__(self, engine: MemoryBudget) -> None:
        self._engine = engine
        self._tables: dict[str, list[Table]] = {}
        # DuckDB may read several views at once, in threads of its own, under one hold of the engine's lock.
        self._merging = Lock()

    def find(self, programs: Mapping[str, RelationPrograms]) -> None:
        """Find the tables again, after programs or listeners have come or gone."""
        before = self.tables()
        used = {name: _added_and_read(program.body) for name, program in programs.items()}
        read = set[int]().union(*(read for _, read in used.values()))
        self._tables = {name: self._added_to(name, added - read) for name, (added, _) in used.items()}
        now = self.tables()
        for table in before + now:
            buffer_changes(table, table in now)

    def merge(self, relations: Collection[str]) -> None:
        """Let tables take in what waits for rows of these relations. O(rows that wait)."""
        tables = [table for name in relations for table in self._tables.get(name, ())]
        if any(map(waiting_rows, tables)):
            with self._merging:
                for table in tables:
                    merge_buffer(table)

    def merge_all(self) -> None:
        """Let nothing wait."""
        self.merge(list(self._tables))

    def give_up(self) -> None:
        """Let nothing wait until programs are made again: the memory is needed."""
        for table in self.tables():
            buffer_changes(table, False)
        self._tables = {}

    def tables(self) -> list[Table]:
        """The tables that may have a write buffer."""
        return [table for tables in self._tables.values() for table in tables]

    def _added_to(self, name: str, addresses: Set[int]) -> list[Table]:
        """The stores of a relation at these addresses whose changes may wait."""
        engine, relation = self._engine, self._engine.relations[name]
        nodes = [node for node in engine.nodes.values() if name in node.relations]
        if not all(isinstance(node, TreeNode) and all(map(_only_adds, node.view.members)) for node in nodes):
            return []
        # The rows of a change table itself are read by all that reads the table.
        tables = [store.table for store in relation.stores.values() if store is not relation.base]
        return [table for table in tables if table.address in addresses and may_buffer(table)]


def _added_and_read(body: Program) -> tuple[set[int], set[int]]:
    """The words of a program that may be addresses of tables: of those that it adds to, and of those that it reads."""
    added, read = set[int](), set[int]()
    for kind, _, *words in operations(body.words.tolist()):
        (added if kind == at.UPSERT else read).update(words)
    return added, read


def _only_adds(view: MaintainedView) -> bool:
    """Whether nobody is told a view's changes, nothing else is kept of them, and no rows move between its parts."""
    return not (view.is_heard or view.attachments) and view.balance is None
