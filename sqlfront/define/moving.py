"""Statements that move a whole database: EXPORT, IMPORT, COPY FROM DATABASE, DETACH.

A materialized view lives in three places: its DuckDB view, the bookkeeping in schema `__sqlfront`, and the triggers of
its tables. DuckDB moves them without the triggers, and a copied view would read the rows of another database. So these
statements are refused where a materialized view or change table is concerned. The catalog is asked only when a
statement has their words.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import SCHEMA
from sqlfront.database.names import shown
from sqlfront.database.scans import SCAN_PREFIX
from sqlfront.define.persistence import identity
from sqlfront.sql.name_parts import GAP, NAME, OPAQUE, listed_names
from sqlfront.sql.statements import PassThrough
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import IntegrityError
from sqlfront.storage.sql_text import literal, quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_KINDS = {"other", "set", "attach", "prepare", "explain"}
_WAY_OUT = "close the database and copy its file, or move the tables: COPY t TO 'file', and create the views anew there"


def refuse_moving(session: Session, statement: PassThrough) -> None:
    """IntegrityError for a statement that would move or detach what is maintained, naming it."""
    if statement.kind not in _KINDS:
        return
    text = statement.text.casefold()
    if not ("database" in text or "detach" in text):
        return
    detached = _DETACH.match(statement.text)
    if detached and _named(detached[1]).casefold() == session.database.name.casefold():
        _refuse_source(session, "DETACH", _named(detached[1]))
    for found in _MOVES.finditer(statement.text):
        if found["export"]:
            _refuse_source(session, "EXPORT DATABASE", _named(found["exported"]) or _current(session))
        elif found["copy"]:
            _refuse_source(session, "COPY FROM DATABASE", _named(found["copied"]))
        elif found["import"]:
            _refuse_import(session, statement.text)


_DETACH = re.compile(rf"detach{GAP}(?:database{GAP})?(?:if{GAP}exists{GAP})?({NAME})", re.IGNORECASE | re.DOTALL)
_MOVES = re.compile(
    rf"""{OPAQUE} | "(?:[^"]|"")*"
    | \b(?P<export>export){GAP}database\b (?:{GAP}(?P<exported>{NAME}){GAP}to\b)?
    | \b(?P<copy>copy){GAP}from{GAP}database{GAP}(?P<copied>{NAME})
    | \b(?P<import>import(?:{GAP}|_)database)\b""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_STRING = re.compile(r"'((?:[^']|'')*)'|\$\$(.*?)\$\$", re.DOTALL)


def _named(name: str | None) -> str:
    return listed_names(name)[0] if name else ""


def refuse_copy(session: Session) -> None:
    """Detach an attached copy of our own file: its views would read the rows of ours. IntegrityError then."""
    token = session.database.token
    with session.database.cursor() as con:
        attached = con.execute(
            "SELECT DISTINCT database_name FROM duckdb_tables() WHERE schema_name = ? AND database_name <> ?",
            [SCHEMA, session.database.name],
        ).fetchall()
        for (name,) in attached:
            if token and identity(con, name) == token:
                con.execute(f"DETACH {quote(name)}")
                raise IntegrityError(
                    f"{name} is not attached",
                    why="it is a copy of the database that is open: its materialized views would read rows of this one",
                    hint="open the copy by itself: sqlfront.connect(its file)",
                )


def _current(session: Session) -> str:
    [(name,)] = session.duck.execute("SELECT current_database()").fetchall()
    return str(name)


def _refuse_source(session: Session, what: str, database: str) -> None:
    names = ", ".join(map(shown, maintained(session.duck, database)))
    if not names:
        return
    detaching = what == "DETACH"
    raise IntegrityError(
        f"{what} is refused",
        where=f"database {database}",
        why=f"materialized views or change tables live in it: {names}. "
        + ("This connection maintains them" if detaching else "Their copies would not be maintained"),
        hint="close the connection instead" if detaching else _WAY_OUT,
    )


def _refuse_import(session: Session, text: str) -> None:
    """Refuse an export that was made by plain DuckDB of a database with materialized views."""
    import duckdb

    quoted, dollars = (_STRING.findall(text) or [("", "")])[-1]
    folder = quoted.replace("''", "'") or dollars
    with session.database.cursor() as con, suppress(duckdb.Error):  # DuckDB itself tells what is not there.
        [(found,)] = con.execute(
            "SELECT coalesce(bool_or(contains(content, ?)), false) FROM read_text(?)",
            [SCAN_PREFIX, f"{folder}/schema.sql"],
        ).fetchall()
        if found:
            raise IntegrityError(
                "IMPORT DATABASE is refused",
                where=folder,
                why="the export holds materialized views or change tables, whose rows and capture are not in it",
                hint=_WAY_OUT,
            )


def maintained(con: Any, database: str) -> list[QualifiedName]:
    """The materialized views and change tables of an attached database, as its bookkeeping lists them."""
    tables = con.execute(
        f"SELECT table_name FROM duckdb_tables() WHERE lower(database_name) = lower({literal(database)}) "
        f"AND schema_name = {literal(SCHEMA)} AND table_name IN ('views', 'change_tables') ORDER BY table_name DESC"
    ).fetchall()
    found: list[QualifiedName] = []
    for (table,) in tables:
        whole = f"{quote(database)}.{quote(SCHEMA)}.{quote(table)}"
        found += [
            QualifiedName(*row) for row in con.execute(f"SELECT schema, name FROM {whole} ORDER BY ALL").fetchall()
        ]
    return found
