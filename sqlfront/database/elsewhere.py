"""Writes while USE names another database: the trigger bodies of our file are found all the same.

DuckDB looks a trigger's body up along the writer's search path (storage/capture/capture.py, Names). So the schemas of
our database are the last entries of the path for the time of a write. The user's path is back after the write; in an
aborted transaction, which takes no SET, after its ROLLBACK.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlfront.database.user_settings import is_owed, owe, restore
from sqlfront.sql import remembered
from sqlfront.sql.search_path import search_path
from sqlfront.storage.capture.trigger_sql import SCHEMA, literal, quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_SETTING = "search_path"


@contextmanager
def bodies_found(session: Session) -> Iterator[None]:
    """Make the bodies of our triggers resolve, for the time of the block, whatever USE says."""
    database, con = session.database, session.duck
    path = None if database.in_memory or is_owed(con, _SETTING) else _foreign_path(session)
    if path is None:
        yield
        return
    ours = quote(database.name)
    owe(con, _SETTING, f"SET SESSION search_path = {literal(path)}")
    con.execute(f"SET SESSION search_path = {literal(f'{path},{ours}.main,{ours}.{SCHEMA}')}")
    remembered.forget()
    try:
        yield
    finally:
        restore(con, _SETTING)
        session.forget_names()


def _foreign_path(session: Session) -> str | None:
    """The search path if it begins in another database, else None."""
    current, path = search_path(session.duck)
    return path if current.casefold() != session.database.name.casefold() else None
