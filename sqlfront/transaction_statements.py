"""BEGIN, COMMIT and ROLLBACK. A transaction that only reads leaves what the session remembers: it commits nothing, and
its views go on."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from sqlfront.database.entries import ViewEntry
from sqlfront.database.transactions import Transaction, rollback
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.sql.recognise import may_write
from sqlfront.sql.statements import PassThrough, Statement

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session


def begin(session: Session, statement: PassThrough, params: Any, many: bool) -> None:
    """BEGIN."""
    session.reading = None
    with Uninterrupted():
        session.duck.execute(statement.text)
        session.transaction = Transaction(session.database, session.duck, only_reads=True)
        session.transaction.plans, session.transaction.scans = session.plans, session.scans


def end(session: Session, statement: PassThrough) -> None:
    """COMMIT or ROLLBACK of the open transaction."""
    assert session.transaction is not None
    session.is_ending = True
    transaction, session.transaction = session.transaction, None
    session.reading = None
    before = (session.revision, session.scans) if _leaves_names(session, transaction) else None
    session.revision = -1
    if session.scans is not transaction.scans:  # Bound within it: a ROLLBACK may take some away.
        session.scans = dict.fromkeys(session.scans)
    if statement.kind == "rollback":
        rollback(session.duck)
    else:
        with session.database.turns.writing() if before is None else nullcontext():
            transaction.commit()
        if before is None:
            session.database.capture.note_ddl()
        if transaction.defines:
            session.database.definitions += 1
    session.is_ending = False
    if before is not None:
        session.revision, session.scans = before


def writes(session: Session, statement: Statement | PassThrough) -> bool:
    """Whether a statement may change tables, or what captures their changes: not BEGIN, nor the end of a transaction
    that has only read, nor a query without a write in it."""
    if isinstance(statement, PassThrough) and statement.kind == "select":
        return may_write(statement.text)
    if not isinstance(statement, PassThrough) or statement.kind not in ("begin", "commit", "rollback"):
        return True
    return session.transaction is not None and not session.transaction.only_reads()


def _leaves_names(session: Session, transaction: Transaction) -> bool:
    """Whether names mean after a transaction what they have meant in it: nothing has been bound or defined meanwhile.
    Views that DuckDB has answered in its snapshot have to get their scans again."""
    answered = any(isinstance(one, ViewEntry) for one in session.scans.values())
    return transaction.only_reads() and not answered and transaction.plans is session.plans
