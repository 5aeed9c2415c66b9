"""Reads of what has moved on since its transaction began: DuckDB answers a view's query in its own snapshot, or the
state is rewound for the time of the statement (pinned.py).

In the transaction's cursor the temporary view that hides the stored query of `v` (stored_views.py) gets the text of the
view's query in place of the scan. Whatever reads `v`, by any name, then reads DuckDB's answer. ROLLBACK takes the text
away by itself; after COMMIT the scans are bound anew, as always.

The answer has to be the view's own, to the last bit. It is not where a floating number is summed, where the session has
other settings than the view, or where a change table or a clock is read, of which DuckDB has no snapshot. Then the
statement is read whole, rewound. So is a statement that is read whole for another reason, where it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlfront.binding.session_settings import settings_of
from sqlfront.database.entries import ViewEntry
from sqlfront.database.pinned import Snapshot, sources
from sqlfront.database.recomputed import recomputed, sums_floats
from sqlfront.database.scans import replace_projection
from sqlfront.database.stored_views import column_sql
from sqlfront.database.view_time import clocks_of
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.sessions import Session


def read_older(session: Session, snapshot: Snapshot, moved: Set[str], *, whole: bool) -> None:
    """Let a statement read views and change tables that have `moved` on in the transaction's epoch. The relations to be
    rewound are put into `snapshot.wanted`. If there are any, the caller reads the statement whole."""
    import duckdb

    database = session.database
    views = _with_sources(entry for entry in database.views.values() if entry.maintained.name in moved)
    named = {database.scan_name(entry.scan): entry for entry in views if entry.name.key not in snapshot.rebound}
    answered = {database.scan_name(one.scan) for one in _answered_among(database, session.duck, named.values())}
    needed = {name: sources(entry) for name, entry in named.items() if whole or name not in answered}
    rewound = {name: read for name, read in needed.items() if snapshot.can_rewind(read)}
    tables = {table for table in moved & database.engine.relations.keys() if snapshot.can_rewind([table])}
    snapshot.wanted = tables.union(*rewound.values())
    if not whole and snapshot.wanted:
        return  # It will be read whole.
    answered -= rewound.keys()
    if any(isinstance(session.scans.get(name), ViewEntry) for name in session.scans.keys() - answered):
        session.bind_scans()
    for name in answered:
        if session.scans.get(name) is not (entry := named[name]):
            with suppress(duckdb.BinderException, duckdb.CatalogException):  # The columns are others now.
                replace_projection(session.duck, name, _answer(database, entry))
                session.scans[name] = entry


def _answered_among(database: Database, con: Any, entries: Iterable[ViewEntry]) -> list[ViewEntry]:
    """Those of some views whose rows DuckDB has, too, as the transaction of `con` sees their tables."""
    captured = {database.relation_key(table) for table in database.capture.tables()}
    settings = settings_of(con).items()
    return [entry for entry in entries if _is_answered(entry, captured) and not entry.settled.items() - settings]


def _answer(database: Database, entry: ViewEntry) -> str:
    """DuckDB SQL for the rows of a view."""
    definition = entry.definition
    columns = ", ".join(column_sql(definition, name, type_) for name, type_ in definition.columns)
    names = ", ".join(quote(name) for name, _ in definition.columns)
    return f"SELECT {columns} FROM ({recomputed(database, entry)}\n) AS answer({names})"


def _with_sources(entries: Iterable[ViewEntry]) -> list[ViewEntry]:
    """Views and the views that their queries name, themselves or through views."""
    found: dict[str, ViewEntry] = {}
    waiting = list(entries)
    while waiting:
        entry = waiting.pop()
        if entry.maintained.name not in found:
            found[entry.maintained.name] = entry
            waiting += entry.sources.values()
    return list(found.values())


def _is_answered(entry: ViewEntry, captured: Set[str]) -> bool:
    """Whether DuckDB's answer of a view's query is the view, and of those that the view reads."""
    own = entry.tables <= captured and not entry.maintained.broken and not sums_floats(entry.definition)
    sources: Mapping[str, ViewEntry] = entry.sources
    clocks = clocks_of(entry, entry.definition, sources)
    return own and not clocks and all(_is_answered(source, captured) for source in sources.values())
