"""Writing the snapshot of a file: when its last connection closes, and at CHECKPOINT.

The snapshot has the state of the last epoch. Its mark is committed after its files are on disk, under the engine's
lock: so the marked state is that of the tables, but for captured changes, which wait in the file to be taken in. The
mark goes before the next change (`database/epoch_numbers.py`).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.durable import compact_logs
from sqlfront.database.epoch_numbers import drop_mark, save_epoch, write_mark
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.define.build import bind_stored, draft
from sqlfront.planner.model.computed_rows import TemporalRows
from sqlfront.snapshots import snapshot_file
from sqlfront.snapshots.snapshot_key import key_of, node_digests, part_digests, stored_views, weights_of
from sqlfront.storage.errors import Error

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.maintenance.snapshot_state import SavedState

log = logging.getLogger("sqlfront")


def close_file(database: Database) -> None:
    """Write down what the next process begins with: short logs, a snapshot, the last epoch."""
    compact_logs(database, now=True)
    with database.lock:
        mark = None
        try:
            mark = save_snapshot(database)
        finally:
            save_epoch(database, mark)


def checkpoint_file(database: Database) -> None:
    """Write a snapshot that holds until the next change."""
    with database.lock:
        mark = save_snapshot(database)
        if mark is not None:
            write_mark(database, mark)
            database.engine.before_change = partial(_unmark, database)


def save_snapshot(database: Database) -> int | None:
    """Write the snapshot of a file whose lock is held; its mark, which the caller commits. None if there is none: it is
    turned off, there is nothing to keep, or it cannot be written, which is logged."""
    if not database.keeps_snapshots or database.read_only or database.epoch_limit is None:
        return None
    mark = secrets.randbits(62) + 1
    try:
        with translated(None):
            database.capture.verify(database.reader_cursor())
            if threading.main_thread().is_alive():  # A program that ends can start no threads, which changes may need.
                _bring_up_to_date(database)
            if database.snapshot is not None and database.snapshot[1] == database.engine.version:
                return database.snapshot[0]  # Nothing has changed since it was written or adopted.
            if not _write(database, f"{mark:x}"):
                return None
    except (Error, OSError) as error:
        log.warning("sqlfront: %s: no snapshot could be written: %s", database.path, error)
        return None
    database.snapshot = mark, database.engine.version
    return mark


def _write(database: Database, name: str) -> bool:
    """Write the snapshot in place of all others; False if no view has a state that can be kept."""
    folder, con = snapshot_file.folder_of(database.file), database.cursor()
    snapshot_file.remove_others(folder, None)
    kept, left_out, stored = list[dict[str, Any]](), dict[str, str](), stored_views(con)
    for entry in sorted(database.views.values(), key=lambda entry: entry.scan):  # Each after those it reads.
        why = _left_out(database, entry, left_out)
        nodes = node_digests(database, entry.maintained) if why is None else {}
        if why is None and not _comes_back(database, con, entry, nodes):
            why = "its query is planned in another way since it has been stored"
        if why is None:
            weights = weights_of(database, entry.maintained)
            described = {"scan": entry.scan, "name": shown(entry.name), "weights": weights, "nodes": nodes}
            kept.append(described | {"stored": stored[entry.scan]})
        else:
            left_out[shown(entry.name)] = why
            log.info("sqlfront: %s: view %s is not in the snapshot: %s", database.path, shown(entry.name), why)
    if kept:
        saved = _state(database, kept)
        manifest = {"key": key_of(database.file, con), "epoch": database.engine.epoch, "views": kept}
        manifest |= {"left out": left_out, "state": saved.facts}
        snapshot_file.write(folder, name, manifest, saved.arrays)
    con.close()
    return bool(kept)


def _comes_back(database: Database, con: Any, entry: ViewEntry, nodes: dict[str, str]) -> bool:
    """Whether a view's stored query is planned as the view is, when the file is opened. A query that is stored has all
    orders completed, and of a few the plan is another one: such a view is built once more."""
    if entry.comes_back != (entry.options, nodes):
        try:
            bound = bind_stored(EngineCatalog(database, con), con, entry)
            parts = draft(database, entry, bound, weights_of(database, entry.maintained)).parts
        except Error:  # Opening the file says what is wrong.
            return False
        if part_digests(parts) != nodes:
            return False
        entry.comes_back = dict(entry.options), nodes
    return True


def _state(database: Database, kept: list[dict[str, Any]]) -> SavedState:
    """The state of views, and of the change tables whose rows are kept."""
    tables = [table for table in database.change_tables.values() if table.retain and table.durable]
    nodes = {name for view in kept for name in view["nodes"]}
    return database.engine.arrays(nodes, {database.relation_key(table.name) for table in tables})


def _bring_up_to_date(database: Database) -> None:
    """Let nothing wait, as far as it can be applied."""
    database.engine.deferred.catch_up(database.engine.deferred.views)
    database.engine.pulled.catch_up_all()


def _left_out(database: Database, entry: ViewEntry, left_out: Collection[str]) -> str | None:
    """Why a view is built from its tables whenever the file is opened; None if its state is kept. The views `left_out`
    are known already."""
    engine = database.engine
    if entry.maintained.broken:
        return f"it cannot be trusted: {entry.maintained.broken}"
    if any(isinstance(rows, TemporalRows) for _, rows in entry.definition.derived):
        return "it compares columns with the clock"
    for table in database.change_tables.values():
        if not table.durable and database.relation_key(table.name) in entry.tables:
            return f"change table {shown(table.name)} is not durable"
    if engine.deferred.rows(entry.maintained.name) or engine.pulled.waits(entry.maintained.relations):
        return "changes wait for it that cannot be applied"
    for source in entry.sources.values():
        if shown(source.name) in left_out:
            return f"it reads view {shown(source.name)}, which is not in the snapshot"
    return None


def _unmark(database: Database) -> None:
    """Before the first change after a CHECKPOINT: its snapshot does not hold any more."""
    drop_mark(database)
    del database.engine.before_change
