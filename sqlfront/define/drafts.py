"""Filling the views that a materialized view consists of: the engine makes them, from rows that are loaded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlfront.database.database import Database
from sqlfront.database.entries import StoredView, ViewEntry
from sqlfront.database.names import shown
from sqlfront.database.user_settings import memory_limit
from sqlfront.database.view_time import start_clock
from sqlfront.define.epsilon import is_adaptive
from sqlfront.define.part import ComputedPart, Part, Parts
from sqlfront.maintenance import epoch
from sqlfront.maintenance.engine import Engine
from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.computed_rows import TemporalRows

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Load


class Reads(Protocol):
    """What a view reads, as the engine and the binder call it."""

    @property
    def tables(self) -> set[str]:
        """The tables and change tables that are read."""

    @property
    def sources(self) -> Mapping[str, ViewEntry]:
        """The materialized views that the query reads."""

    @property
    def fed(self) -> Mapping[str, ViewEntry]:
        """Those whose rows are the view's input; the others are inlined."""


@dataclass(frozen=True)
class Draft:
    """A view that is to be built: its parts are planned, and `reads` tells what they read.

    `copies` are those that a deferred view needs of the relations that it reads.
    """

    view: StoredView
    reads: Reads
    parts: Parts
    copies: Mapping[str, str]


def fill(
    database: Database, con: Any, drafted: Draft, undo: ExitStack, check: Callable[[], object] = bool,
    load: Load | None = None,
) -> ViewEntry:  # fmt: skip
    """Fill a view from the snapshot of the transaction `building` whose stack is `undo`, `following` its tables.
    `check` is called between batches of rows, and may raise; `load` gives other rows than those of the tables.

    O(rows of its tables).
    """
    view, reads = drafted.view, drafted.reads
    for source in reads.fed.values():
        database.catch_up_views([source.maintained.name])
        database.refuse_waiting(source)
    maintained = _fill(database, con, drafted, undo, check, load)
    tables = reads.tables.union(*(source.tables for source in reads.fed.values()))
    return ViewEntry(
        view.name, view.written, view.select, view.options, view.column_names, view.scan,
        view.settings, maintained.definition, maintained, tables, reads.sources,
    )  # fmt: skip


# Inside ------------------------------------------------------------------------------------------


def _room(con: Any, part: Part) -> Room | None:
    """What memory a view may take that stores combinations of several tables' rows, by DuckDB's memory_limit."""
    if not part.plan.stores_combinations:
        return None
    return Room(epoch.shown_relation(part.name), memory_limit(con), part.plan.suggestion)


def _fill(
    database: Database, con: Any, drafted: Draft, undo: ExitStack, check: Callable[[], object], given: Load | None
) -> MaintainedView:  # fmt: skip
    """Build views from the snapshot of the open transaction; the last of them."""
    engine, parts = database.engine, drafted.parts

    def load(relation: str) -> tuple[Iterator[pa.RecordBatch], int]:
        rows, count = database.load(con, relation) if given is None else given(relation)
        if isinstance(rows, Generator):
            undo.callback(rows.close)  # A reader left half-way would be in the way of ROLLBACK.
        return _checked(rows, within), count

    def within() -> None:
        check()
        engine.check_memory(f"materialized view {shown(drafted.view.name)}")

    with engine.assembling_once():
        undo.callback(engine.drop_unread)
        for name, copy in drafted.copies.items():
            engine.copy_relation(name, copy, parts[-1].name)
        for part in parts:
            within()
            if isinstance(part, ComputedPart):
                if isinstance(part.rows, TemporalRows):
                    start_clock(database, drafted.view)
                engine.create_computed(part.name, part.rows, load)
                undo.callback(_drop, engine, part.name)
                continue
            room = _room(con, part)
            maintained = engine.create_view(
                part.name, part.definition, part.plan, load, part.epsilon, room, stateless=part.stateless
            )
            undo.callback(_drop, engine, part.name)
            feeding = [one.name for one in parts if one.feeds == part.feeds]
            if part is not parts[-1] and part.feeds is not None and part.name == feeding[-1]:
                engine.expose(part.feeds, feeding, inner=True)
        for part in parts:
            if part.stateless:
                engine.pass_on(part.name)
        within()
        engine.adapt(maintained.name, wanted=is_adaptive(drafted.view.options))
    return maintained


def _checked(rows: Iterable[pa.RecordBatch], check: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        check()
        yield batch


def _drop(engine: Engine, name: str) -> None:
    """Drop a node that may have gone with its last reader."""
    if name in engine.nodes:
        engine.drop_view(name)
