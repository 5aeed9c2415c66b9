"""Writing the snapshot of a file: when its last connection closes, at CHECKPOINT, and from time to time.

A snapshot has the state of the last epoch, and with it begins a log: all later epochs go there too. Until the snapshot
is on disk under its own name, the one before and its log stay. When the file is closed, a mark in the file names the
snapshot: it has the state of the tables, but for captured changes, which wait in the file to be taken in.

Cost: under the engine's lock, the chunks of arrays that have changed since the present snapshot are found and written
to the system's cache, and DuckDB adds up hashes of the rows.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlfront.database.durable import compact_logs
from sqlfront.database.epoch_numbers import save_epoch
from sqlfront.database.failures import logged, translated
from sqlfront.database.names import shown
from sqlfront.database.transactions import check_all, transaction
from sqlfront.planner.model.computed_rows import TemporalRows
from sqlfront.snapshots import contents, kept_views, snapshot_file
from sqlfront.snapshots.snapshot_key import key_of, stored_views
from sqlfront.snapshots.unfinished import Unfinished
from sqlfront.storage.errors import Error
from sqlfront.storage.outside.epoch_log import EpochLog

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.maintenance.snapshot_state import SavedState

log = logging.getLogger("sqlfront")
_one_at_a_time = threading.RLock()


@dataclass(frozen=True)
class _Begun:
    """A snapshot whose arrays are written, with its log, which has begun."""

    mark: int
    version: int
    folder: Path
    file: Unfinished
    manifest: dict[str, Any]
    log: EpochLog


def close_file(database: Database) -> None:
    """Write down what the next process begins with: short logs, a snapshot, the last epoch. A part that cannot be
    written for want of room is logged. The file has all rows without this part, and the next process builds its views
    from the rows."""
    with logged(database.path, "logs of change tables stay as long as they are"):
        compact_logs(database, now=True)
    mark = None
    try:
        mark = save_snapshot(database)
    finally:
        with database.lock, logged(database.path, "views will be built from their tables"):
            publish(database, None)
            save_epoch(database, mark)


def save_snapshot(database: Database) -> int | None:
    """Write the snapshot of a file; its mark. None if there is none: it is turned off, there is nothing to keep, or it
    cannot be written, which is logged. Epochs wait only until its arrays are written."""
    if not database.snapshot_every or database.read_only or database.epoch_limit is None:
        return None
    try:
        with translated(None), _one_at_a_time:
            with database.lock:
                begun = _begin(database)
            if not isinstance(begun, _Begun):
                return begun
            try:
                begun.file.finish(begun.manifest)
            except BaseException:
                with database.lock:
                    database.logs.remove(begun.log)
                    begun.log.close()
                raise
            with database.lock:
                publish(database, begun)
                snapshot_file.remove_others(begun.folder, f"{begun.mark:x}")
    except (Error, OSError) as error:
        log.warning("sqlfront: %s: no snapshot could be written: %s", database.path, error)
        return None
    return begun.mark


def publish(database: Database, begun: _Begun | None) -> None:
    """Let a snapshot that is whole, or none, be that of the file, and its log the only one that goes on."""
    logs, database.logs = database.logs, [] if begun is None else [begun.log]
    for epochs in logs:
        if epochs not in database.logs:
            epochs.close()
    database.snapshot = None if begun is None else (begun.mark, begun.version)


def _begin(database: Database) -> _Begun | int | None:
    """Write the arrays of a snapshot, and begin its log. The mark of the present snapshot if nothing has changed since;
    None if no view has a state that can be kept."""
    database.capture.verify(database.reader_cursor())
    if threading.main_thread().is_alive():  # A program that ends can start no threads, which changes may need.
        _bring_up_to_date(database)
    if database.snapshot is not None and database.snapshot[1] == database.engine.version:
        return database.snapshot[0]
    check_all(database)
    folder, con = snapshot_file.folder_of(database.file), database.cursor()
    kept, left_out = _kept(database, con)
    if not kept:
        publish(database, None)
        snapshot_file.remove_others(folder, None)
        return None
    saved, mark = _state(database, kept), secrets.randbits(62) + 1
    relations = _contents(database, con, saved)
    key = key_of(database.file, con)
    manifest = {"declared": key.pop("declared"), "key": key, "epoch": database.engine.epoch, "views": kept}
    manifest |= {"left out": left_out, "state": saved.facts, "contents": relations}
    manifest["columns"] = kept_views.columns_of_tables(database)
    con.close()
    file = Unfinished(folder, f"{mark:x}", saved.arrays, _former(database, folder))
    try:
        epochs = contents.open_log(file.log, relations, sum(array.nbytes for array in saved.arrays.values()))
    except OSError:
        file.drop()
        raise
    database.logs.append(epochs)
    return _Begun(mark, database.engine.version, folder, file, manifest, epochs)


def _former(database: Database, folder: Path) -> snapshot_file.SnapshotFile | None:
    """The present snapshot, whose chunks may be shared; None if there is none, or it is not as it was written."""
    if database.snapshot is None:
        return None
    try:
        return snapshot_file.SnapshotFile(folder / f"{database.snapshot[0]:x}")
    except Error:
        return None


def _kept(database: Database, con: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The views whose state can be kept, each after those it reads, and why the others are left out."""
    kept, left_out, stored = list[dict[str, Any]](), dict[str, str](), stored_views(con)
    for entry in sorted(database.views.values(), key=lambda entry: entry.scan):
        why = _left_out(database, entry, left_out)
        if why is None:
            kept.append(kept_views.describe(database, entry) | {"stored": stored[entry.scan]})
        else:
            left_out[shown(entry.name)] = why
            log.info("sqlfront: %s: view %s is not in the snapshot: %s", database.path, shown(entry.name), why)
    return kept, left_out


def _contents(database: Database, con: Any, saved: SavedState) -> dict[str, Any]:
    """The tables of a state, described, with what they hold."""
    with transaction(con):
        names = contents.in_the_file(con) & saved.facts["relations"].keys()
        described = {name: contents.describe(database.engine.relations[name]) for name in sorted(names)}
        held = contents.sums(con, described)
    # JSON of other programs has no numbers of this size.
    return {name: one | {"rows": held[name][0], "hash": str(held[name][1])} for name, one in described.items()}


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
