"""The short ways of a statement, tried before it is read: what concerns nothing of ours, and what asks little of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.database.failures import translated
from sqlfront.database.frames import as_user
from sqlfront.sql.recognise import plain_kind
from sqlfront.storage.errors import StaleRead

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session


def pass_on(session: Session, text: str, params: Any, *, many: bool = False) -> bool:
    """Run a text that concerns nothing of ours as it is, in DuckDB's own time; its result is left on the connection.
    False, with nothing done, if it may concern us."""
    kind = session.unconcerned(text)
    if kind is None:
        return False
    session.reading = None
    if kind == "write":
        session.database.unseen.add(id(session))
        session.tell(False)
    try:
        with session.passing_over(), translated(session.reading_error):
            as_user(partial(session.duck.executemany if many else session.duck.execute, text, params))
    except StaleRead:
        if session.transaction is not None:
            raise
        return False
    session.has_result = True
    if kind == "query" and not many and (session.database.views or session.database.change_tables):
        session.again = text, params
    elif kind == "write" and session.transaction is not None:
        session.transaction.touch()
    return True


def run_shortly(session: Session, text: str, params: Any) -> bool:
    """Do without DuckDB what a small query asks of a view, or a small write of a change table, and let single writes of
    captured tables tell their changes; False, with nothing done, for all other texts."""
    database = session.database
    kind = plain_kind(text) if isinstance(text, str) and not database.keeps_nothing else None
    if kind is None:
        return False
    from sqlfront.read import short_reads
    from sqlfront.write import short_writes

    with translated(session.reading_error):
        if kind == "query":
            return short_reads.read_shortly(session, text, params)
        return short_writes.write_shortly(session, text, params)
