"""The rest of a result that is read off the views while it is fetched: it is read into memory before the views change.

DuckDB makes rows as they are fetched, and asks our scans for more. So an epoch that finds a result open has it read to
its end first, in the thread of the epoch, under the lock that each fetch takes, too. The rest may take as much memory
as DuckDB's memory_limit. Beyond that it is lost, and the next fetch raises StaleRead.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sqlfront.database.failures import translated
from sqlfront.database.held_result import HeldRows
from sqlfront.maintenance.program.critical import Uninterrupted

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_AT_ONCE = 16384


def hold_rest(session: Session) -> Exception | None:
    """Hold what is left of a session's result, as streams or as rows; the error that its next fetch raises."""
    with Uninterrupted():
        reading, room = session.current_reading(), session.database.engine.memory_limit()
        try:
            with translated(session.reading_error), reading.holding():
                streams = session.streams()
                is_held = all(one.hold(room) for one in streams) if streams else _hold_rows(session, room)
        except Exception as error:
            return error
        return None if is_held else reading.too_old(room)


def _hold_rows(session: Session, room: float) -> bool:
    """Hold the rows that are left; False, and they are lost, if they need more bytes than `room`."""
    columns = [(name, str(type_)) for name, type_, *_ in session.duck.description]
    rows: list[tuple[Any, ...]] = []
    while found := session.duck.fetchmany(_AT_ONCE):
        rows += found
        room -= len(found) * (sys.getsizeof(found[0]) + sum(map(sys.getsizeof, found[0])))
        if room < 0:
            return False
    session.set_rows(HeldRows(session.duck, columns, rows))
    return True
