"""Statements that move a whole database: EXPORT, IMPORT, COPY FROM DATABASE, DETACH.

A materialized view lives in three places: its DuckDB views, the bookkeeping in schema `__sqlfront`, and the triggers of
its tables. DuckDB moves all but the triggers, so an export is whole: what imports it computes the views, and sqlfront
captures the tables anew. Two databases of one identity must not be attached together: the views of the one would read
the rows that are kept for the other. So COPY FROM DATABASE of the open database is refused, as is DETACH. The catalog
is asked only when a statement has their words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import SCHEMA
from sqlfront.database.names import shown
from sqlfront.define.persistence import identity, restore
from sqlfront.sql.name_parts import GAP, NAME, OPAQUE, listed_names
from sqlfront.sql.statements import PassThrough, parse_statement
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import IntegrityError, NotSupportedError
from sqlfront.storage.sql_text import literal, quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_KINDS = {"other", "set", "attach", "prepare", "explain"}
_WAY_OUT = "EXPORT DATABASE, then IMPORT DATABASE into another file; or close the database and copy its file"


def check_moving(session: Session, statement: PassThrough) -> Callable[[], None] | None:
    """What must follow a statement that moves a database, if anything; IntegrityError for one that would detach or copy
    what is maintained, naming it."""
    text = statement.text.casefold()
    if statement.kind not in _KINDS or not ("database" in text or "detach" in text):
        return None
    detached = _DETACH.match(statement.text)
    if detached and _named(detached[1]).casefold() == session.database.name.casefold():
        _refuse_source(session, "DETACH", "This connection maintains them", "close the connection instead")
    follow_up = None
    for found in _MOVES.finditer(statement.text):
        if found["copy"] and _named(found["copied"]).casefold() == session.database.name.casefold():
            why = "Views of a copy beside them would read the rows of this database"
            _refuse_source(session, "COPY FROM DATABASE", why, _WAY_OUT)
        elif found["copy"] and _named(found["copied_to"]).casefold() == session.database.name.casefold():
            _refuse_target(session, _named(found["copied"]))
        elif found["export"] or found["import"]:
            folder = Path(_last_string(statement.text))
            follow_up = partial(_order_views, folder) if found["export"] else _restoring(session, folder)
    return follow_up if statement.kind in ("other", "set") else None


_DETACH = re.compile(rf"detach{GAP}(?:database{GAP})?(?:if{GAP}exists{GAP})?({NAME})", re.IGNORECASE | re.DOTALL)
_MOVES = re.compile(
    rf"""{OPAQUE} | "(?:[^"]|"")*"
    | \b(?P<export>export){GAP}database\b
    | \b(?P<copy>copy){GAP}from{GAP}database{GAP}(?P<copied>{NAME}){GAP}to{GAP}(?P<copied_to>{NAME})
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


def _last_string(text: str) -> str:
    """The last string of a statement, which names the folder that DuckDB writes or reads; empty if there is none."""
    quoted, dollars = (_STRING.findall(text) or [("", "")])[-1]
    return quoted.replace("''", "'") or dollars


def _refuse_source(session: Session, what: str, why: str, hint: str) -> None:
    names = ", ".join(map(shown, maintained(session.duck, session.database.name)))
    if names:
        raise IntegrityError(
            f"{what} is refused",
            where=f"database {session.database.name}",
            why=f"materialized views or change tables live in it: {names}. {why}",
            hint=hint,
        )


def _refuse_target(session: Session, source: str) -> None:
    if names := ", ".join(map(shown, maintained(session.duck, source))):
        raise IntegrityError(
            "COPY FROM DATABASE is refused",
            where=f"database {source}",
            why=f"materialized views or change tables live in it: {names}. They would not be maintained here",
            hint="EXPORT DATABASE, then IMPORT DATABASE here",
        )


def _order_views(folder: Path) -> None:
    """Let plain views of an export come after the views that they read, whatever their names: DuckDB writes views by
    name, and its IMPORT would not find what they read."""
    schema = folder / "schema.sql"
    if not schema.is_file():  # It is elsewhere than in a folder.
        return
    statements = [found for found in parse_statement(schema.read_text()) if isinstance(found, PassThrough)]
    views = {found.targets[0].parts[-1].casefold(): found for found in statements if found.object == "view"}
    placed: dict[str, None] = {}

    def place(view: PassThrough) -> None:
        if view.text not in placed:
            for reference in view.references or ():
                read = views.get(reference.parts[-1].casefold())
                if read is not None and read is not view:
                    place(read)
            placed[view.text] = None

    for found in statements:
        if found.object == "view":
            place(found)
        else:
            placed[found.text] = None
    schema.write_text("".join(f"{text};\n" for text in placed))


def _restoring(session: Session, folder: Path) -> Callable[[], None] | None:
    """What brings views and change tables of an imported database to life, if the export has some; refused where there
    are some already."""
    import duckdb

    database = session.database
    with database.cursor() as con:
        found = False
        with suppress(duckdb.Error):  # DuckDB itself tells what is not there.
            query = "SELECT coalesce(bool_or(contains(content, ?)), false) FROM read_text(?)"
            [(found,)] = con.execute(query, [f"CREATE SCHEMA {SCHEMA};", str(folder / "schema.sql")]).fetchall()
        known = con.execute(
            "SELECT 1 FROM duckdb_schemas() WHERE database_name = ? AND schema_name = ?", [database.name, SCHEMA]
        ).fetchall()
    [(current,)] = session.duck.execute("SELECT current_database()").fetchall()
    if not found or current.casefold() != database.name.casefold():
        return None
    if known:
        raise IntegrityError(
            "IMPORT DATABASE is refused",
            where=str(folder),
            why="the export holds materialized views or change tables, and this database has, or has had, its own",
            hint="import into a new database: sqlfront.connect(a new file)",
        )
    if session.transaction is not None:
        raise NotSupportedError(
            "IMPORT DATABASE is not supported inside a transaction here",
            why="the export holds materialized views or change tables, and building them is not part of a transaction",
            hint="COMMIT first",
        )

    def bring_to_life() -> None:
        with database.lock:
            restore(database)

    return bring_to_life


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
            QualifiedName(*row) for row in con.execute(f"SELECT schema, name FROM {whole} ORDER BY ALL ASC").fetchall()
        ]
    return found
