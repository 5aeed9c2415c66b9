"""What a name means on a cursor: a view or table of ours, or something that only DuckDB knows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.database.reserved import is_reserved, reserved
from sqlfront.sql.keywords import quoted
from sqlfront.sql.name_parts import split_name
from sqlfront.sql.search_path import Lookup, Names, Place, look_up, search_path
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session

Key = tuple[str, str]


def locate(database: Database, con: Any, parts: Sequence[str], *, temporary: bool = True) -> Key | None:
    """The key of the view, change table or captured table that `[[catalog.]schema.]name` means here, or None.

    Whatever DuckDB finds first hides ours (temporary tables only with `temporary`). A name that none of ours has
    costs no query.
    """
    ours = _ours(database, parts)
    return _first(database, look_up(con, parts, temporary=temporary), ours)[0] if ours else None


def meant(session: Session, parts: Sequence[str]) -> Key | None:
    """As `locate` on a connection. One of ours that only its temporary relations could hide is remembered until a
    statement may make such a one or change where names are looked for; not `sc.v`: anybody may attach a database sc,
    but none called main."""
    database = session.database
    ours = _ours(database, parts)
    if not ours:
        return None
    known = session.meant.get(tuple(parts))
    if known is None or known[0] != ours:
        key, before = _first(database, look_up(session.duck, parts), ours)
        open_to_others = len(parts) == 2 and parts[0].casefold() not in ("main", database.name.casefold())
        if key is None or open_to_others or any(place[0] != "temp" for place in before):
            return key
        known = session.meant[tuple(parts)] = ours, key
    return known[1]


def view_named(session: Session, parts: Sequence[str]) -> ViewEntry:
    """The materialized view of this name, remembered as by `meant`; temporary relations do not hide it. Raises what
    `Database.view` raises."""
    found = session.database.views.get(meant(session, parts) or ("", ""))
    return found or session.database.view(session.duck, parts)


def _ours(database: Database, parts: Sequence[str]) -> set[Key]:
    """The keys of this name, in any schema."""
    name = parts[-1].casefold()
    return {key for key in database.known_keys() if key[1] == name}


def _first(database: Database, lookup: Lookup, ours: Collection[Key]) -> tuple[Key | None, list[Place]]:
    """The one of ours that a name means, if it does, and the places that are looked into before."""
    for number, place in enumerate(lookup.places):
        key = next((key for key in ours if place == (database.name.casefold(), key[0])), None)
        if key is not None or place in lookup.relations:
            return key, list(lookup.places[:number])
    return None, list(lookup.places)


def new_name(database: Database, con: Any, parts: Sequence[str], names: Names | None = None) -> QualifiedName:
    """Where a view or change table of this name is created, perhaps by what this statement has looked up.

    NotSupportedError for another database.
    """
    catalog, schema = (names or Names(con)).look_up(parts, temporary=False).places[0]
    if catalog != database.name.casefold():
        raise NotSupportedError(
            f"{'.'.join(parts)} would be in database {catalog}",
            why=f"views and change tables live in the database that was opened, {database.name}",
            hint=f"qualify the name with {database.name}, or sqlfront.connect to the other database",
        )
    if is_reserved([schema, parts[-1]]):
        raise reserved(".".join(parts))
    if schema == "main":  # It is always there.
        return QualifiedName(schema, parts[-1])
    spelled = con.execute(
        "SELECT schema_name FROM duckdb_schemas() WHERE database_name = ? AND lower(schema_name) = ?",
        [database.name, schema.lower()],
    ).fetchall()
    if not spelled:
        raise ProgrammingError(f"there is no schema {schema}", hint=f"CREATE SCHEMA {quoted(schema)}")
    return QualifiedName(spelled[0][0], parts[-1])


def require_current(database: Database, con: Any) -> None:
    """NotSupportedError when USE has made another database the current one: definitions are read in their own."""
    require_own(database, search_path(con)[0])


def require_own(database: Database, current: str) -> None:
    """As `require_current`, by the name of the current database."""
    if current.casefold() != database.name.casefold():
        raise NotSupportedError(
            f"this statement is not supported while {current} is the current database",
            why=f"views and change tables live in the database that was opened, {database.name}",
            hint=f"USE {quoted(database.name)}",
        )


def captured_table(database: Database, key: Key) -> QualifiedName:
    """The captured table of this key, spelled as the catalog spells it."""
    table = database.capture.named(key)
    assert table is not None, f"{key} is not captured"
    return table


def shown(name: QualifiedName) -> str:
    """A name as a user would write it: quoted where it must be, without the schema if that is main."""
    own = quoted(name.name)
    return own if name.schema == "main" else f"{quoted(name.schema)}.{own}"


def name_parts(name: str) -> list[str]:
    """The parts of a name written as in SQL: any case, quoted, qualified. ProgrammingError if it is none."""
    parts = split_name(name) if isinstance(name, str) else []
    if not parts:
        raise ProgrammingError(f"{name!r} is not a name", hint='write it as in SQL: orders, main.orders, "my table"')
    return parts
