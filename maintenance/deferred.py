"""Views that are applied when they are read, and the changes that wait for them.

A deferred view reads no table's relation, but a *copy* of it: a relation of its own, with its own stores. The programs
of the copy run only when the view is brought up to date. So no store is ahead of the view, and a self-join telescopes
over stores of one state. Until then the changes of the relation wait here, as Arrow rows with weights: an epoch pays
for copying its rows, and for nothing else. Rows are netted before they are encoded: rows that came and went are never
looked at. An epoch reaches a deferred view at once while somebody listens to the view, a view that is applied at commit
reads it, or a transaction reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.maintenance.relation.waiting import HELD_ROWS, Waiting
from sqlfront.storage.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.engine import Engine
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded


class DeferredViews:
    """The deferred views of an engine. `copied` are the relations that have copies, `refused` why a view could not be
    brought up to date when it was last tried. The engine's lock is held."""

    def __init__(self, engine: Engine) -> None:
        self.refused: dict[str, Error] = {}
        self.copied: dict[str, list[Relation]] = {}
        self._engine = engine
        self._listened, self._read = set[str](), set[str]()

    @property
    def views(self) -> set[str]:
        """The deferred views, as the engine calls them."""
        return {copy.owner for copy in self._all()}

    def find(self, listened: Iterable[str]) -> set[str]:
        """Find the copies again, after relations have come or gone, or listeners of the nodes `listened`. Returns the
        relations whose copies are reached at once now and were not before, or the reverse."""
        self.copied = {}
        for copy in self._all():
            self.copied.setdefault(copy.copy_of, []).append(copy)
        before, self._listened = self._listened, self._with_read([*listened, *self._read_at_commit()])
        return {copy.copy_of for copy in self._all() if copy.owner in before ^ self._listened}

    def copies(self, stage: Sequence[Encoded], *, at_once: bool) -> list[tuple[Relation, Encoded]]:
        """The copies of changed relations with the changes: those whose views this epoch reaches, or the others."""
        if not self.copied:
            return []
        found = [(copy, item) for item in stage for copy in self.copied.get(item.relation.name, ())]
        reached = self._listened | self._read
        return [(copy, item) for copy, item in found if (copy.owner in reached) == at_once]

    def is_heard(self, relation: str) -> bool:
        """Whether epochs reach a copy of the relation at once."""
        return any(copy.owner in self._listened for copy in self.copied.get(relation, ()))

    def wait_row(self, relation: str, row: Sequence[Any], weight: int) -> None:
        """Let one row of Python values wait for the copies of its relation."""
        for copy in self.copied[relation]:
            if copy.waiting is not None:
                copy.waiting.add_row(row, weight)
                if copy.waiting.rows > HELD_ROWS:
                    self.bound([copy])

    def wait(self, changes: Iterable[tuple[Relation, Encoded]]) -> None:
        """Let changes wait for copies, as far as these are there still."""
        for copy, item in changes:
            if copy.waiting is not None and self._engine.relations.get(copy.name) is copy:
                copy.waiting.add(item)

    def rows(self, view: str) -> int:
        """How many rows wait for a view, or for the deferred views that it reads."""
        return sum(waiting.rows for waiting in self._waiting(self._with_read([view])))

    def error(self, view: str) -> Error | None:
        """Why a view, or a deferred view that it reads, could not take its changes."""
        return next((self.refused[name] for name in self._with_read([view]) if name in self.refused), None)

    def figures(self, view: str) -> tuple[int, int]:
        """How many rows wait for a view itself, and the memory that they take."""
        found = self._waiting([view])
        return sum(waiting.rows for waiting in found), sum(waiting.bytes for waiting in found)

    def catch_up(self, views: Iterable[str]) -> None:
        """Apply the changes that wait for these views, and for the deferred views that they read. If a view cannot take
        them, the error is in `refused`, and they go on waiting."""
        owners = self._with_read(views)
        for owner in dict.fromkeys(copy.owner for copy in self._all() if copy.owner in owners):
            try:
                self._take(owner)
                self.refused.pop(owner, None)
            except Error as error:
                self.refused[owner] = error

    @contextmanager
    def at_once(self, views: Iterable[str]) -> Iterator[None]:
        """Let epochs reach these views at once, for the time of the body; not a view that could not take its waiting
        changes."""
        current = [view for view in views if not self.rows(view)]
        before, self._read = self._read, self._with_read(current)
        try:
            yield
        finally:
            self._read = before

    def bound(self, copies: Iterable[Relation]) -> None:
        """Apply the views for which too many rows wait. A view that cannot take the rows is broken: they go."""
        for copy in copies:
            if copy.waiting is None or not copy.waiting.is_too_long():
                continue
            self.catch_up([copy.owner])
            error = self.refused.pop(copy.owner, None)
            if error is not None and copy.owner in self._engine.views:
                why = f"more than {HELD_ROWS} rows waited for it, and it cannot take them: {error.what}"
                self._engine.views[copy.owner].broken = why
                for waiting in self._waiting([copy.owner]):
                    waiting.clear()

    def _take(self, owner: str) -> None:
        """Apply what waits for the copies of a view."""
        copies = [(copy.name, copy.waiting) for copy in self._all() if copy.owner == owner]
        changes = {name: waiting.netted() for name, waiting in copies if waiting is not None and waiting.rows}
        with Uninterrupted():
            if changes:
                self._engine.take(changes)
            for waiting in self._waiting([owner]):
                waiting.clear()

    def _all(self) -> list[Relation]:
        """All copies, in the order in which they were made."""
        return [relation for relation in self._engine.relations.values() if relation.waiting is not None]

    def _waiting(self, owners: Iterable[str]) -> list[Waiting]:
        return [copy.waiting for copy in self._all() if copy.waiting is not None and copy.owner in set(owners)]

    def _read_at_commit(self) -> set[str]:
        """The deferred views that a node reads which is not deferred: it listens to their changes."""
        read = {name for node in self._engine.nodes.values() for name in node.relations}
        return self.views & read

    def _with_read(self, views: Iterable[str]) -> set[str]:
        """Those of the views that are deferred, and the deferred views that they read, themselves or through others."""
        deferred = self.views
        found = deferred & set(views)
        for copy in reversed(self._all()):
            if copy.owner in found and copy.copy_of in deferred:
                found.add(copy.copy_of)
        return found


def joined(changes: Sequence[tuple[pa.Table, np.ndarray]]) -> tuple[pa.Table, np.ndarray]:
    """The changes of several nodes as rows and weights."""
    import pyarrow as pa

    if len(changes) == 1:
        return changes[0]
    names = changes[0][0].column_names
    rows = pa.concat_tables([rows.rename_columns(names) for rows, _ in changes])
    return rows, np.concatenate([weights for _, weights in changes])
