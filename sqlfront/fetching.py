"""Fetches from a connection's result: in the epoch of its statement, or, before the first row, in the present one.

`fetch` takes the result: DuckDB's, or one that we hold. Under the lock it is looked for once more, as another thread
may have read the rest of DuckDB's (database/open_result.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlfront import dispatch
from sqlfront.database.failures import expect_copy, translated
from sqlfront.database.frames import relations_read
from sqlfront.storage.errors import StaleRead

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.sessions import Session

Fetch = Callable[[Any], Any]


def fetch_some(session: Session, fetch: Fetch) -> Any:
    """Some rows. When another has committed since `execute`, the query runs again before the first."""
    if session.served is not None:
        return fetch(session.served)
    again, session.again = session.again, None
    if again is None or session.reading is None or session.transaction is not None:
        return _fetch(session, fetch)
    with session.database.lock:
        if session.unread is not None or session.is_behind():
            _run_again(session, again)
        return _fetch(session, fetch)


def fetch_all(session: Session, fetch: Fetch) -> Any:
    """All rows, under the lock if views are read. When another has committed since `execute`, the query runs again
    first."""
    if session.served is not None:
        return fetch(session.served)
    again, session.again = session.again, None
    begun = session.unread is None
    # What reads no views may scan a relation of ours: that takes the lock in a thread of DuckDB's.
    if begun and session.reading is None:
        return _fetch(session, fetch)
    with session.database.lock:
        if again is not None and not begun:
            _run_again(session, again)
        try:
            return _fetch(session, fetch)
        except StaleRead:
            if again is None or session.transaction is not None:
                raise
        _run_again(session, again)
        return _fetch(session, fetch)


def fetch_arrow(session: Session) -> pa.Table:
    """All remaining rows as an Arrow table: those of a view that nobody has begun to read without DuckDB, if its types
    are exported as they are."""
    whole = session.unread
    if whole is not None:
        with session.database.lock, translated(session.reading_error):
            table = whole.table(session)
        if table is not None:
            session.end_result()
            session.set_rows(whole.no_rows(session))
            return table
    return fetch_all(session, _arrow_table)


def describe(session: Session) -> list[tuple[Any, ...]] | None:
    """Name and type of each column of the result; None without a result."""
    if session.served is not None:
        return session.served.description
    if session.unread is not None:
        return session.unread.no_rows(session).description
    return session.duck.description if session.has_result else None


def _arrow_table(result: Any) -> pa.Table:
    expect_copy()
    return result.to_arrow_table()


def _fetch(session: Session, fetch: Fetch) -> Any:
    with session.fetching():
        return fetch(session.served or session.duck)


def _run_again(session: Session, again: tuple[Any, Any]) -> None:
    session.end_result()
    text = again[0] if isinstance(again[0], str) else again[0].text
    with translated(session.reading_error), relations_read(session.duck, text):
        dispatch.read(session, *again)
    session.again = None
