"""A copy of a file with its snapshot and the log of that, as of one moment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlfront.database.failures import translated
from sqlfront.snapshots.snapshot_file import folder_of
from sqlfront.storage.errors import OperationalError


def back_up(path: str, target: str) -> list[str]:
    """Copy a file that nobody writes; the paths that have been made. OperationalError, and nothing is made, if another
    process has the file open, or there is something in the way."""
    import duckdb

    if not os.path.isfile(path):
        raise OperationalError(f"there is no file {path}", hint="give the path of a DuckDB database")
    parts = list(_parts(path, target))
    for _, copy in parts:
        if os.path.lexists(copy):
            raise OperationalError(f"{copy} exists already", hint="give a path at which there is no file")
    # Whoever reads the file keeps every writer out.
    with translated(None), duckdb.connect(path, read_only=True), _or_nothing([copy for _, copy in parts]):
        made = [copy for source, copy in parts if _copy(source, copy)]
        _sync(Path(target).resolve().parent)
    return [str(copy) for copy in made]


def _parts(path: str, target: str) -> Iterator[tuple[Path, Path]]:
    """What there may be, and where it goes: the file itself last, so that a copy that has the file is whole."""
    yield folder_of(path), folder_of(target)
    for end in (".wal", ""):
        yield Path(path + end), Path(target + end)


def _copy(source: Path, target: Path) -> bool:
    """Copy a file or folder to the disk; whether there is one."""
    if source.is_dir():
        target.mkdir()
        for one in source.iterdir():
            _copy(one, target / one.name)
    elif source.exists():
        shutil.copyfile(source, target)
    else:
        return False
    _sync(target)
    return True


def _sync(path: Path) -> None:
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return  # Systems that cannot open folders keep their names in order by themselves.
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _or_nothing(made: list[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for one in made:
            shutil.rmtree(one, ignore_errors=True) if one.is_dir() else one.unlink(missing_ok=True)
        raise
