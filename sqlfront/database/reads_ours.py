"""Whether a statement may read what the engine keeps: only then must its transaction's changes be in the views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlfront.database.names import locate
from sqlfront.database.reserved import is_reserved_sql
from sqlfront.sql.statements import PassThrough

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session


def reads_ours(session: Session, statement: PassThrough) -> bool:
    """Whether the statement may read a view or a change table; True where that cannot be told.

    What it names is looked up; plain views and macros may hide ours, prepared statements are not looked into.
    """
    database, con = session.database, session.duck
    if not database.views and not database.change_tables:
        return False
    references = statement.references
    if references is None or statement.kind in ("execute", "other") or database.macro_texts(con):
        return True
    names = set()
    for reference in references:
        key = locate(database, con, reference.parts)
        if key is None:
            names.add(reference.parts[-1].lower())
        elif key in database.views or key in database.unbuilt or key in database.change_tables:
            return True
    return bool(names) and bool(con.execute(_VIEW, {"names": list(names)}).fetchall())


def reads_own_changes(session: Session, statement: PassThrough | str) -> bool:
    """Whether a statement may read, in views, what its own transaction has changed."""
    inside = session.transaction is not None and session.transaction.touched()
    return inside and isinstance(statement, PassThrough) and reads_ours(session, statement)


_VIEW = f"""
    SELECT 1 FROM duckdb_views() WHERE database_name <> 'system' AND NOT internal
    AND list_contains($names, lower(view_name)) AND NOT {is_reserved_sql("view_name")} LIMIT 1"""
