"""What a file keeps of its views, without opening it for writing: its snapshot, what fits, what would be built anew."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from sqlfront.database.database import SCHEMA
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.snapshots.adopting import find_snapshot
from sqlfront.snapshots.snapshot_file import SUFFIX, SnapshotFile, folder_of
from sqlfront.storage.capture import setup
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.trigger_sql import delta_sql
from sqlfront.storage.errors import Error, OperationalError


def examine(path: str) -> tuple[list[str], bool]:
    """Lines about a file, and whether everything that it keeps is sound. OperationalError if it cannot be read."""
    if os.path.isdir(path):
        raise OperationalError(
            f"{path} is a folder", why="views are kept in a DuckDB database, which is one file", hint=_database_in(path)
        )
    if not os.path.isfile(path):
        raise OperationalError(f"there is no file {path}", hint="give the path of a DuckDB database")
    import duckdb

    with translated(None), duckdb.connect(path, read_only=True) as con:
        [(name,)] = con.execute("SELECT current_database()").fetchall()
        known = con.execute(
            "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = 'views'",
            [name, SCHEMA],
        ).fetchall()
        if not known:
            return [f"{path}: no materialized views"], True
        views = [
            shown(QualifiedName(*row))
            for row in con.execute(f"SELECT schema, name FROM {SCHEMA}.views ORDER BY scan ASC").fetchall()
        ]
        lines = [f"{path}: {_counted(len(views), 'materialized view')}"]
        lost = list(_captures(con, name, lines))
        return lines, _snapshot(path, con, views, lost, lines)


def _database_in(folder: str) -> str:
    """What to give instead of a folder: the file whose snapshot it is, or the databases in it."""
    path = os.path.realpath(folder)
    of = path.removesuffix(SUFFIX)
    found = [of] if of != path and os.path.isfile(of) else sorted(one.path for one in os.scandir(path) if _is_file(one))
    if not found:
        return "give the path of a DuckDB database, as connect() takes it"
    return f"sqlfront doctor {found[0]}{f', or another of its {len(found)} databases' if found[1:] else ''}"


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a folder is a DuckDB database: a file with DuckDB's mark behind its checksum."""
    if not entry.is_file():
        return False
    with open(entry.path, "rb") as file:
        return file.read(12)[8:] == b"DUCK"


def _captures(con: Any, name: str, lines: list[str]) -> Iterator[str]:
    """Add a line for each captured table with changes that wait; the tables whose changes may have been missed."""
    for captured, triggers in setup.intact(con, name, setup.booked(con, name)).items():
        if not triggers:
            lines.append(f"table {captured.table}: changes may have been missed; its triggers are not ours any more")
            yield str(captured.table)
            continue
        [(waiting,)] = con.execute(f"SELECT count(*) FROM {delta_sql(name, captured)}").fetchall()
        if waiting:
            lines.append(f"table {captured.table}: {_counted(waiting, 'captured change')} to take in")


def _snapshot(path: str, con: Any, views: list[str], lost: list[str], lines: list[str]) -> bool:
    """Add lines about the snapshot and about each view; whether the snapshot is sound or there is none."""
    try:
        found = find_snapshot(path, con)
        if found is not None:
            found.file.verify()
    except Error as error:
        lines.append(f"snapshot in {folder_of(path)}: not used: {error.why}")
        return _all_anew(views, lines, sound=False)
    if found is None:
        lines.append("snapshot: none")
        return _all_anew(views, lines, sound=True)
    file, manifest = found.file, found.file.manifest
    lines.append(
        f"snapshot {file.folder}: epoch {manifest['epoch']}, {_counted(len(file.arrays), 'array')}, "
        f"{_size(file.size)}, all checks hold"
    )
    if found.records:
        lines.append(f"log: {_counted(len(found.records), 'epoch')} since, {_size(found.records[-1].end)}")
    if lost:
        lines.append(f"the snapshot will not be used: changes of {', '.join(lost)} may have been missed")
        return _all_anew(views, lines, sound=False)
    sizes = _sizes(file)
    kept = {view["name"]: view for view in manifest["views"]}
    for view in views:
        if view in kept:
            own = sum(sizes[f"view {node}"] for node in kept[view]["nodes"])
            lines.append(f"view {view}: from the snapshot, {_size(own)} of its own")
        else:
            lines.append(f"view {view}: built anew: {manifest['left out'].get(view, 'it is not in the snapshot')}")
    for relation in manifest["state"]["relations"]:
        lines.append(f"rows of {relation}: {_size(sizes[f'store {relation}'])}")
    return True


def _all_anew(views: list[str], lines: list[str], *, sound: bool) -> bool:
    lines += [f"view {view}: built anew" for view in views]
    return sound


def _sizes(found: SnapshotFile) -> Counter[str]:
    """The bytes of each node's own tables, and of each relation's stores."""
    state, sizes = found.manifest["state"], Counter[str]()
    owners = [*(f"store {name}" for name in state["relations"]), *(f"view {name}" for name in state["views"])]
    for owner in owners:
        sizes[owner] = sum(one.size for name, one in found.arrays.items() if name.startswith(f"{owner} "))
    return sizes


def _size(size: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
