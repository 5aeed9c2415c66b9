"""Fetches from a connection's result: in the epoch of its statement, or, before the first row, in the present one.

`fetch` takes the result: DuckDB's, or one that we hold. Under the lock it is looked for once more, as another thread
may have read the rest of DuckDB's (database/open_result.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlfront import dispatch
from sqlfront.database.failures import translated
from sqlfront.database.frames import relations_read
from sqlfront.storage.errors import StaleRead

if TYPE_CHECKING:
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
        if session.is_behind():
            _run_again(session, again)
        return _fetch(session, fetch)


def fetch_all(session: Session, fetch: Fetch) -> Any:
    """All rows, under the lock if views are read. When another has committed since `execute`, the query runs again
    first."""
    if session.served is not None:
        return fetch(session.served)
    again, session.again = session.again, None
    if session.reading is None:  # It may scan a relation of ours: that takes the lock in a thread of DuckDB's.
        return _fetch(session, fetch)
    with session.database.lock:
        try:
            return _fetch(session, fetch)
        except StaleRead:
            if again is None or session.transaction is not None:
                raise
        _run_again(session, again)
        return _fetch(session, fetch)


def _fetch(session: Session, fetch: Fetch) -> Any:
    with session.fetching():
        return fetch(session.served or session.duck)


def _run_again(session: Session, again: tuple[Any, Any]) -> None:
    session.end_result()
    with translated(session.reading_error), relations_read(session.duck, again[0].text):
        dispatch.read(session, *again)
    session.again = None
