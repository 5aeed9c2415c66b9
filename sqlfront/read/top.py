"""The first rows of a view in its order: from a ranked tree, or by a query that sorts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.database.scans import Scan
from sqlfront.database.stored_views import view_query
from sqlfront.database.user_settings import frozen
from sqlfront.planner.model.query import Definition, Limit, is_grouped
from sqlfront.storage.errors import NotSupportedError, ProgrammingError, StaleRead

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.ranked.keyset_start import KeysetBound
    from sqlfront.maintenance.view.maintained_view import FirstRowsReader, MaintainedView


_FIRST = 64


def top_rows(session: Session, entry: ViewEntry, k: int) -> list[tuple[Any, ...]]:
    """The first k rows of a view in its first order; see View.top."""
    from sqlfront.maintenance.output.output import is_sooner_in_order

    if k < 0:
        raise ProgrammingError(f"there are no first {k} rows")
    database = session.database
    definition = entry.definition
    _refuse_parted(entry)
    if not definition.orders:
        raise ProgrammingError(
            f"materialized view {shown(entry.name)} has no order",
            why="its query has neither ORDER BY nor LIMIT, and it has no order_by",
            hint="create it with ORDER BY, or SELECT ... ORDER BY ... LIMIT",
        )
    with session.reading_own({entry.maintained.name}.intersection):
        database.refuse_dropped(entry)
        database.make_readable(entry, session.current_reading())
        if 0 in entry.maintained.ranked and is_sooner_in_order(entry.maintained, k):
            return _ranked_rows(session, entry, k)
        return _computed_rows(session, replace(definition, limit=within(entry, Limit(k))), entry)


def ordered_rows(session: Session, entry: ViewEntry) -> Iterator[tuple[Any, ...]]:
    """All rows of a view in its order, one after the other; see View.ordered."""
    database, view = session.database, entry.maintained
    _refuse_parted(entry)
    reader = None
    if 0 in view.ranked:
        with session.reading_own({entry.maintained.name}.intersection):
            database.make_readable(entry, session.current_reading())
            reader = reader_for(view)
    if not reader or session.transaction is not None:
        raise NotSupportedError(
            f"the rows of {shown(entry.name)} cannot be read one after the other in their order",
            why="a transaction is open"
            if reader
            else "they have no ranked tree, or a column that DuckDB has to compute (con.explain tells which)",
            hint="View.top(k), or SELECT ... ORDER BY ... LIMIT",
        )
    return _in_turn(session, entry, reader.batches(within(entry, Limit(None)), _FIRST), database.engine.version)


def _refuse_parted(entry: ViewEntry) -> None:
    """ProgrammingError for a view that is the first rows of each group: its groups have no order."""
    if is_grouped(entry.definition):
        raise ProgrammingError(
            f"the rows of materialized view {shown(entry.name)} have no order",
            why="its QUALIFY orders the rows of each group",
            hint="SELECT ... ORDER BY ... LIMIT",
        )


def _in_turn(
    session: Session, entry: ViewEntry, batches: Iterator[list[tuple[Any, ...]]], version: int
) -> Iterator[tuple[Any, ...]]:
    engine = session.database.engine
    while True:
        with engine.lock:
            if engine.version != version:
                raise StaleRead(
                    f"{shown(entry.name)} changed while it was being read in order",
                    why="a reader never mixes epochs",
                    hint="begin again, or take the rows at once with View.top(k)",
                )
            batch = next(batches, None)
        if batch is None:
            return
        yield from batch


def reader_for(view: MaintainedView) -> FirstRowsReader | None:
    """How the first rows of a view are read without DuckDB; None if it has to compute a column."""
    from sqlfront.maintenance.output.first_rows import reader_of

    if view.reader is None:
        view.reader = reader_of(view) or False
    return view.reader or None


def ranked_scan(
    database: Database, entry: ViewEntry, number: int, limit: Limit, session: Any, after: KeysetBound | None = None
) -> Scan:
    """The maintained core of a view's first rows in one of its orders, or of the first `after` given values; of all
    rows if it is sooner to read these than to pass over those before the values."""
    from sqlfront.maintenance.output.output import Reader, crossover, top_batches
    from sqlfront.maintenance.ranked.cursor import RankedWalk
    from sqlfront.maintenance.ranked.keyset_start import KeysetStart, TooFar

    def read() -> Any:
        view, index = entry.maintained, entry.maintained.ranked[number]
        if after is None:
            return top_batches(view, RankedWalk(index, None, view.reads), limit)
        try:
            start = KeysetStart(index, after, after.codes(view.codecs), crossover(view))
            found = top_batches(view, RankedWalk(index, start, view.reads), limit)
            return chain([batch for batch in [next(found, None)] if batch is not None], found)
        except TooFar:  # All rows, of which DuckDB leaves those that are asked for.
            return Reader(view)

    return database.scan_of(entry, session, read)


def within(entry: ViewEntry, limit: Limit) -> Limit:
    """Some of a view's rows as rows of its order, of which the view may be a part itself."""
    own = entry.definition.limit
    if own is None:
        return limit
    left = None if own.rows is None else max(0, own.rows - limit.offset)
    rows = min((count for count in (left, limit.rows) if count is not None), default=None)
    return Limit(rows, own.offset + limit.offset)


def _ranked_rows(session: Session, entry: ViewEntry, k: int) -> list[tuple[Any, ...]]:
    """Rows decoded here if all columns are variables or the sums that rows are ordered by; else computed by DuckDB."""
    limit, reader = within(entry, Limit(k)), reader_for(entry.maintained)
    found = reader.read(limit) if reader is not None else None
    return found if found is not None else _computed_rows(session, entry.definition, entry, limit)


def _computed_rows(
    session: Session, definition: Definition, entry: ViewEntry, ranked: Limit | None = None
) -> list[tuple[Any, ...]]:
    """The rows of a definition over a view's raw rows, all or those `ranked` first, by DuckDB under the view's
    settings."""
    name, database, finder = "__sqlfront_scan_top", session.database, session.reading_finder()
    definition = replace(definition, is_frozen=False)
    raw = replace(entry, definition=definition)
    scan = database.view_scan(raw, finder) if ranked is None else ranked_scan(database, raw, 0, ranked, finder)
    session.duck.register(name, scan)
    try:
        with translated(session.reading_error), frozen(session.duck, entry.settled):
            rows: list[tuple[Any, ...]] = session.duck.execute(view_query(definition, entry, name)).fetchall()
        return rows
    finally:
        session.duck.unregister(name)
