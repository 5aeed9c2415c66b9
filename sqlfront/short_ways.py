"""The short ways of a statement, tried before it is read: what concerns nothing of ours, and what asks little of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from sqlfront.database.failures import translated
from sqlfront.database.frames import as_user
from sqlfront.database.transactions import check_all
from sqlfront.sql.recognise import plain_kind
from sqlfront.storage.errors import StaleRead

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session


def run(session: Session, text: str, params: Any, *, many: bool = False) -> bool:
    """Run a plain query or write, with its result left on the connection; False, with nothing done, for other texts.

    What concerns nothing of ours runs as it is, in DuckDB's own time. A small query of a view and a small write of a
    change table do without DuckDB, and a write of a captured table tells its changes. An INSERT of `many` is one batch.
    """
    kind = plain_kind(text) if isinstance(text, str) else None
    if kind is None:
        return False
    session.ready(writes=False)
    if session.is_unconcerned(text):
        return _pass_on(session, kind, text, params, many)
    if session.database.keeps_nothing or (many and kind == "query"):
        return False
    if kind == "query":
        from sqlfront.read import short_reads

        with session.database.turns.reading():
            return short_reads.read_shortly(session, text, params)
    from sqlfront.write import short_writes

    write = short_writes.write_many if many else short_writes.write_shortly
    check_all(session.database)
    with session.database.turns.writing():
        return write(session, text, params)


def _pass_on(session: Session, kind: Literal["query", "write"], text: str, params: Any, many: bool) -> bool:
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
