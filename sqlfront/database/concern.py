"""Which texts can concern what is maintained: those with the name of a view, a change table or a captured table, or of
a plain view or macro that reads one.

A set of words answers in time linear in the text, whatever the number of views. What the set cannot know, such as a
plain view made by another connection of DuckDB's, is noticed when the first scan of ours begins (`Session.scanned`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlfront.database.reserved import is_reserved_sql
from sqlfront.sql.recognise import words

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.names import Key

_VIEWS = f"""
    SELECT view_name, sql FROM duckdb_views()
    WHERE database_name <> 'system' AND NOT internal AND NOT {is_reserved_sql("view_name")}"""


class Concern(NamedTuple):
    """Words of names, one for each. A text without a word of `names` concerns nothing of ours; one without a word of
    `reads` reads nothing of ours, though it may write a captured table. None if a name has no word: then any text may
    have the name."""

    names: Set[str] | None
    reads: Set[str] | None


def concerning(database: Database, con: Any) -> Concern:
    """The words that matter, as the transaction of `con` sees the catalog. One query, and a slow one where there are
    new macros."""
    bodies = _bodies(database, con)
    kept = (*database.views, *database.unbuilt, *database.change_tables)
    return Concern(_closed(_names(database.known_keys()), bodies), _closed(_names(kept), bodies))


def _names(keys: Iterable[Key]) -> list[str]:
    return [name for _, name in keys]


def naming(database: Database, con: Any, names: Iterable[str]) -> dict[str, Set[str] | None]:
    """For each name a word of what reads it by it, as `concerning`."""
    bodies = _bodies(database, con)
    return {name: _closed([name.casefold()], bodies) for name in names}


def _bodies(database: Database, con: Any) -> dict[str, Set[str]]:
    """The words of plain views and macros, by name."""
    bodies: dict[str, Set[str]] = {}
    for name, text in [*con.execute(_VIEWS).fetchall(), *database.macro_texts(con).items()]:
        bodies[name] = bodies.get(name, frozenset()) | words(text)
    return bodies


def _closed(names: Iterable[str], bodies: Mapping[str, Set[str]]) -> Set[str] | None:
    """The longest words of names, and of the names of bodies that have such a word, and so on."""
    found: set[str] = set()
    new = {_key(name) for name in names}
    while new:
        if "" in new:
            return None
        found |= new
        new = {_key(name) for name, body in bodies.items() if not found.isdisjoint(body)} - found
    return found


def _key(name: str) -> str:
    return max(words(name), key=len, default="")
