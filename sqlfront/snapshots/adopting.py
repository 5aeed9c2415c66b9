"""Views that a file brings back from its snapshot, if nothing but captured changes has happened since.

The views are made over no rows, and then take the memory of the snapshot. What cannot be proved to be as it was
refuses the whole snapshot: the engine begins anew, and all views are built from their tables. Large arrays are checked
later (unchecked.py). Changes that DuckDB's triggers have captured meanwhile stay in the file; the first read takes them
in, as those of any other writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlfront.database.entries import StoredView
from sqlfront.database.epoch_numbers import read_mark
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.database.stored_views import columns_of
from sqlfront.define.drafts import fill
from sqlfront.maintenance.engine import Change
from sqlfront.snapshots import contents, kept_views, snapshot_file
from sqlfront.snapshots.snapshot_file import LOG, SnapshotFile
from sqlfront.snapshots.snapshot_key import MEANINGS, key_of, stored_views
from sqlfront.snapshots.unchecked import Unchecked
from sqlfront.storage.errors import Error, OperationalError
from sqlfront.storage.outside import epoch_log
from sqlfront.storage.outside.epoch_log import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.database import Database
    from sqlfront.snapshots.kept_views import Described

log = logging.getLogger("sqlfront")


def adopt(
    database: Database, con: Any, views: Sequence[StoredView], begin: Callable[[], None], untrusted: Sequence[Error]
) -> set[int]:
    """Bring back what a snapshot has; the scans of its views. Without one that fits, there are none, and `begin`, which
    makes the change tables, has been called all the same. Captures that cannot be trusted are `untrusted`."""
    if database.snapshot_every and not database.read_only:
        try:
            with translated(None):
                found = find_snapshot(database.file, con)
            if found is not None:
                for error in untrusted:
                    raise error
                with translated(None), database.progress.watch("reading the snapshot"):
                    return _restored(database, con, found, views, begin)
        except (Error, OSError) as error:
            why = ": ".join(filter(None, (error.what, error.why))) if isinstance(error, Error) else str(error)
            log.warning("sqlfront: %s: views are built from their tables: %s", database.path, why)
            _begin_anew(database)
    begin()
    return set()


@dataclass(frozen=True)
class Found:
    """A snapshot that fits a file, with the changes that its log has besides: rows with `_weight`, by relation; and
    the records of the log."""

    file: SnapshotFile
    changes: Mapping[str, pa.Table]
    records: Sequence[Record]


def find_snapshot(path: str, con: Any) -> Found | None:
    """The snapshot that fits the file; None if the file has none. OperationalError, which says why, if the file has one
    that does not fit."""
    folder, mark = snapshot_file.folder_of(path), read_mark(con)
    if mark is not None:
        if not (folder / f"{mark:x}").is_dir():
            raise _refused("it is not there")
        found = SnapshotFile(folder / f"{mark:x}")
        key = key_of(path, con)
        _compare(found, key, stored_views(con))
        return Found(found, {}, ())
    if not folder.is_dir():
        return None
    refused = _refused("the file has changed since, or was not closed")
    for one in snapshot_file.all_in(folder):
        try:
            return _with_log(path, con, one)
        except OperationalError as error:
            refused = error
    raise refused


def _with_log(path: str, con: Any, folder: Path) -> Found:
    """A snapshot whose log leads to the present tables."""
    found, records = SnapshotFile(folder), epoch_log.records(folder / LOG)
    if records is None:
        raise _refused("the file has changed since, or was not closed")
    key = key_of(path, con)
    _compare(found, key | {"rows": found.manifest["key"].get("rows")}, stored_views(con))
    changes, committed = contents.changes_since(con, found.manifest["contents"], records)
    return Found(found, changes, records[:committed])


def _compare(found: SnapshotFile, key: Mapping[str, Any], stored: Mapping[int, str]) -> None:
    """OperationalError, which says why, if a snapshot has another key, or views are stored in another way."""
    for part, meaning in MEANINGS.items():
        if found.manifest["key"].get(part) != key[part]:
            raise _refused(meaning)
    for table, declared in found.manifest["declared"].items():
        if key["declared"].get(table) != declared:
            raise _refused(f"table {table} has been altered since")
    for view in found.manifest["views"]:
        if stored.get(view["scan"]) != view["stored"]:
            raise _refused(f"view {view['name']} has been altered or dropped since")


def _restored(
    database: Database, con: Any, found: Found, views: Sequence[StoredView], begin: Callable[[], None]
) -> set[int]:
    engine, file = database.engine, found.file
    state = file.manifest["state"]
    kept = {view["scan"]: view for view in file.manifest["views"]}
    engine.check_memory("the snapshot", file.size)
    engine.prepare(state, file.read)
    begin()
    with engine.assembling_once():
        kept_views.follow(database, con, kept.values(), file.manifest["columns"])
        for view in views:
            if view.scan in kept:
                _make_empty(database, con, view, kept[view.scan])
    adopted = [view for view in views if view.scan in kept]
    columns = columns_of(database, con, adopted)
    for view in adopted:
        if columns[view.name.key] != database.views[view.name.key].definition.columns:
            raise _refused(f"view {shown(view.name)} has other columns")
    unchecked = Unchecked(database, file)
    engine.adopt(state, file.read, unchecked.mapped, unchecked.check)
    version = engine.version
    if found.changes or len(kept) < len(views):  # The state changes at once.
        unchecked.check()
    unchecked.wait()
    if found.changes:
        engine.commit(engine.apply({name: _change(rows) for name, rows in found.changes.items()}))
    database.snapshot = int(file.folder.name, 16), -1 if found.records else version
    end = found.records[-1].end if found.records else 0
    database.logs = [contents.open_log(file.folder / LOG, file.manifest["contents"], file.size, end)]
    return set(kept)


def _change(rows: pa.Table) -> Change:
    return Change(rows.drop_columns(["_weight"]), rows.column("_weight").to_numpy())


def _make_empty(database: Database, con: Any, view: StoredView, described: Described) -> None:
    """Make a view over no rows, planned as it was."""
    with ExitStack() as undo:
        drafted = kept_views.drafted(database, view, described)
        database.views[view.name.key] = fill(database, con, drafted, undo, load=_no_rows)
        undo.pop_all()


def _begin_anew(database: Database) -> None:
    """Forget what has been restored so far."""
    database.__dict__.pop("engine", None)
    database.unchecked = None
    database.views.clear()
    database.change_tables.clear()


def _no_rows(relation: str) -> tuple[Iterator[Any], int]:
    return iter(()), 0


def _refused(why: str) -> OperationalError:
    return OperationalError("the snapshot is not used", why=why)
