"""Time for temporal filters: which views read a clock, when its time goes on, and what the file remembers of it.

The wall clock goes on before a statement that reads a view over it, if something is due, and with the ticks of the
option `tick`. Inside a transaction it stands still, as `now()` does. The manual clock goes on by `con.advance_time`
alone; its time is in the file.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection, Mapping, Set
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import SCHEMA
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.database.transactions import transaction
from sqlfront.maintenance.clocks import MANUAL, WALL, shown_time
from sqlfront.planner.model.computed_rows import TemporalRows
from sqlfront.storage.errors import NotSupportedError, ProgrammingError
from sqlfront.storage.sql_text import literal, quote

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import StoredView, ViewEntry
    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.epoch import Epoch
    from sqlfront.planner.model.query import Definition

EXAMPLE = "con.advance_time('2026-01-01 00:00:00+00')"


def advance_time(session: Session, moment: Any) -> Epoch | None:
    """Let the manual clock go on to a moment, as one epoch; see Connection.advance_time."""
    session.ready()
    with translated(session.reading_error):
        return _advance(session, _microseconds(session, moment))


def start_clock(database: Database, view: StoredView) -> None:
    """Have a clock for a view that reads one. ProgrammingError if it is the manual one, and has been told no time."""
    clocks, clock = database.engine.clocks, view_clock(view)
    if clocks.time(clock) is not None:
        return
    if clock == MANUAL:
        raise ProgrammingError(
            f"materialized view {shown(view.name)} cannot be built: the manual clock has no time yet",
            why="a view WITH (clock = 'manual') sees the time that con.advance_time has told",
            hint=f"{EXAMPLE} first, or leave the option out",
        )
    clocks.start(WALL, wall_time())


def restore_clock(database: Database, con: Any) -> None:
    """Bring back the manual clock of a file."""
    for (found,) in con.execute(f"SELECT epoch_us(time) FROM {_table(database)}").fetchall():
        database.engine.clocks.start(MANUAL, found)


def late_views(database: Database) -> Set[str]:
    """The views, as the engine calls them, that have to be brought up to date before a statement reads them: deferred
    ones, those over the wall clock, and those of a snapshot that has not been checked."""
    unchecked = () if database.unchecked is None else database.unchecked.names
    return database.engine.deferred.views.union(_over_wall(database), unchecked)


def bring_up_to_date(session: Session, views: Collection[str]) -> None:
    """Check what has not been checked, let the wall clock go on if a view among these is over it, and apply what waits
    for deferred views. In a transaction the clock stands still."""
    database = session.database
    unchecked = database.unchecked  # Another thread may end it meanwhile.
    if unchecked is not None:
        unchecked.settle(views)
    if views and session.transaction is None and not _over_wall(database).isdisjoint(views):
        tick(database)
    database.catch_up_views(views)


def _over_wall(database: Database) -> Set[str]:
    """The views over the wall clock."""
    if database.over_wall[0] != database.revision:
        entries = database.views.values()
        found = {one.maintained.name for one in entries if WALL in clocks_of(one, one.definition, one.sources)}
        database.over_wall = database.revision, found
    return database.over_wall[1]


def tick(database: Database) -> None:
    """Let the wall clock go on to now, if something is due."""
    with database.lock:
        clocks, now = database.engine.clocks, wall_time()
        if clocks.is_due(WALL, now):
            started = time.perf_counter()
            database.engine.commit(database.engine.apply(clocks.change(WALL, now)), started)
            database.note_epoch()


def view_clock(view: StoredView) -> str:
    """The clock that a view's own query reads."""
    return str(view.options.get("clock", WALL))


def clocks_of(view: StoredView, definition: Definition, sources: Mapping[str, ViewEntry]) -> set[str]:
    """The clocks that a view reads, itself or through views. NotSupportedError if they are two."""
    found = {view_clock(view)} if any(isinstance(rows, TemporalRows) for _, rows in definition.derived) else set()
    for source in sources.values():
        read = clocks_of(source, source.definition, source.sources)
        if found | read > found and found:
            raise NotSupportedError(
                f"materialized view {shown(view.name)} would read two clocks",
                why=f"its own now() is the {view_clock(view)} clock's, and {shown(source.name)} has the time of "
                f"the {' and '.join(read)} clock: rows of two times are no result of any query",
                hint=f"give both views one clock: WITH (clock = '{next(iter(read))}')",
            )
        found |= read
    return found


def value_at(moment: int, function: str) -> str:
    """DuckDB SQL for a function of the clock at a moment."""
    value = f"CAST({literal(shown_time(moment))} AS TIMESTAMPTZ)"
    if function in ("current_date", "today"):
        return f"CAST({value} AS DATE)"
    return f"CAST({value} AS TIMESTAMP)" if "local" in function else value


def wall_time() -> int:
    """The time of the machine, in microseconds since 1970."""
    return time.time_ns() // 1000


# Inside ------------------------------------------------------------------------------------------


def _advance(session: Session, target: int) -> Epoch | None:
    database = session.database
    if database.read_only:
        raise ProgrammingError(
            "time cannot go on here",
            why=f"{database.path} is open read-only, and the manual clock is in the file",
            hint="connect without access_mode = 'READ_ONLY'",
        )
    with database.lock:
        clocks = database.engine.clocks
        if clocks.time(MANUAL) is None:
            _start_manual(session, target)
            return None
        if database.in_memory and session.transaction is None:
            started = time.perf_counter()
            return database.engine.commit(database.engine.apply(clocks.change(MANUAL, target)), started)
        with session.in_transaction() as changing:
            changing.advance(MANUAL, target)
            if not database.in_memory:
                session.duck.execute(f"UPDATE {_table(database)} SET time = make_timestamp({target})")
    return changing.epoch


def _microseconds(session: Session, moment: Any) -> int:
    """A moment, as DuckDB casts it to TIMESTAMP WITH TIME ZONE under the session's TimeZone, which is not asked for a
    datetime with a zone of its own."""
    if isinstance(moment, datetime.datetime) and moment.tzinfo is not None:
        return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
    query = "SELECT isfinite(m), epoch_us(m) FROM (SELECT CAST(? AS TIMESTAMP WITH TIME ZONE) AS m)"
    [(finite, found)] = session.duck.execute(query, [moment]).fetchall()
    if not finite:
        raise ProgrammingError(f"{moment} is no time to which a clock can go on", hint=EXAMPLE)
    return int(found)


def _start_manual(session: Session, target: int) -> None:
    """Let the manual clock have its first time, in the file too."""
    database = session.database
    if session.transaction is not None:
        raise ProgrammingError(
            "the manual clock cannot be started inside a transaction",
            why="views see committed times, and this clock has none yet",
            hint=f"COMMIT first, and {EXAMPLE} before BEGIN",
        )
    if not database.in_memory:
        with transaction(con := database.writer_cursor()):
            con.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(database.name)}.{SCHEMA}")
            con.execute(f"CREATE TABLE IF NOT EXISTS {_table(database)} (clock VARCHAR, time TIMESTAMP)")
            con.execute(f"INSERT INTO {_table(database)} VALUES ('{MANUAL}', make_timestamp({target}))")
    database.engine.clocks.start(MANUAL, target)


def _table(database: Database) -> str:
    return f"{quote(database.name)}.{SCHEMA}.clocks"
