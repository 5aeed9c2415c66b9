"""Views that a file brings back from its snapshot, if nothing but captured changes has happened since.

The views are made over no rows, and then take the memory of the snapshot. What cannot be proved to be as it was
refuses the whole snapshot: the engine begins anew, and all views are built from their tables. Changes that DuckDB's
triggers have captured meanwhile stay in the file; the first read takes them in, as those of any other writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.entries import StoredView
from sqlfront.database.epoch_numbers import read_mark
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.define.build import bind_stored, draft, fill
from sqlfront.define.earlier_files import columns_of
from sqlfront.define.following import columns_of_table, following
from sqlfront.snapshots import snapshot_file
from sqlfront.snapshots.snapshot_file import SnapshotFile
from sqlfront.snapshots.snapshot_key import MEANINGS, key_of, node_digests, stored_views
from sqlfront.storage.errors import Error, OperationalError

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.define.build import Bound
    from sqlfront.define.parts import Weights

log = logging.getLogger("sqlfront")


def adopt(
    database: Database, con: Any, views: Sequence[StoredView], begin: Callable[[], None], untrusted: Sequence[Error]
) -> set[int]:
    """Bring back what a snapshot has; the scans of its views. Without one that fits, there are none, and `begin`, which
    makes the change tables, has been called all the same. Captures that cannot be trusted are `untrusted`."""
    if database.keeps_snapshots and not database.read_only:
        try:
            with translated(None):
                found = find_snapshot(database.file, con)
            if found is not None:
                for error in untrusted:
                    raise error
                with translated(None), database.progress.watch("reading the snapshot"), found:
                    return _restored(database, con, found, views, begin)
        except (Error, OSError) as error:
            why = ": ".join(filter(None, (error.what, error.why))) if isinstance(error, Error) else str(error)
            log.warning("sqlfront: %s: views are built from their tables: %s", database.path, why)
            _begin_anew(database)
    begin()
    return set()


def find_snapshot(path: str, con: Any) -> SnapshotFile | None:
    """The snapshot that fits the file; None if the file has none. OperationalError, which says why, if the file has one
    that does not fit."""
    folder, mark = snapshot_file.folder_of(path), read_mark(con)
    if mark is None:
        if not folder.is_dir():
            return None
        raise _refused("the file has changed since, or was not closed")
    if not (folder / f"{mark:x}").is_dir():
        raise _refused("it is not there")
    found = SnapshotFile(folder / f"{mark:x}")
    key = key_of(path, con)
    for part, meaning in MEANINGS.items():
        if found.manifest["key"].get(part) != key[part]:
            raise _refused(meaning)
    stored = stored_views(con)
    for view in found.manifest["views"]:
        if stored.get(view["scan"]) != view["stored"]:
            raise _refused(f"view {view['name']} has been altered or dropped since")
    return found


def _restored(
    database: Database, con: Any, found: SnapshotFile, views: Sequence[StoredView], begin: Callable[[], None]
) -> set[int]:
    engine, state = database.engine, found.manifest["state"]
    kept = {view["scan"]: view for view in found.manifest["views"]}
    engine.prepare(state, found.read)
    begin()
    with engine.assembling_once():
        for view in views:
            if view.scan in kept:
                _make_empty(database, con, view, kept[view.scan]["weights"])
    for view in views:
        if view.scan in kept:
            entry = database.views[view.name.key]
            nodes = node_digests(database, entry.maintained)
            if nodes != kept[view.scan]["nodes"]:
                raise _refused(f"view {shown(view.name)} is planned in another way")
            if columns_of(database, con, view) != entry.definition.columns:
                raise _refused(f"view {shown(view.name)} has other columns")
            entry.comes_back = dict(entry.options), nodes
    engine.adopt(state, found.read)
    database.snapshot = int(found.folder.name, 16), engine.version
    return set(kept)


def _make_empty(database: Database, con: Any, view: StoredView, weights: Weights) -> None:
    """Make a view over no rows, planned as it was."""
    bound = bind_stored(EngineCatalog(database, con), con, view)
    _refuse_uncaptured(database, con, bound)
    drafted = draft(database, view, bound, weights)
    with following(database, con, view, bound), ExitStack() as undo:
        database.views[view.name.key] = fill(database, con, drafted, undo, load=_no_rows)
        undo.pop_all()


def _refuse_uncaptured(database: Database, con: Any, bound: Bound) -> None:
    """OperationalError if changes of a table may have gone unseen."""
    own = {database.relation_key(table.name) for table in database.change_tables.values()}
    needed = {
        bound.catalog.name(table): [column.name for column in columns_of_table(database, table, bound.catalog)]
        for table in bound.tables - own
    }
    for table in sorted(needed.keys() - database.capture.covered(con, needed), key=str):
        raise _refused(f"changes of table {table} may have been missed")


def _begin_anew(database: Database) -> None:
    """Forget what has been restored so far."""
    database.__dict__.pop("engine", None)
    database.views.clear()
    database.change_tables.clear()


def _no_rows(relation: str) -> tuple[Iterator[Any], int]:
    return iter(()), 0


def _refused(why: str) -> OperationalError:
    return OperationalError("the snapshot is not used", why=why)
