"""The path of a database file, as a caller gives it."""

from __future__ import annotations

import os
from typing import Any

from sqlfront.storage.errors import InterfaceError


def path_text(database: Any) -> str:
    """A str or a path as a str. InterfaceError for anything else: its repr would become the name of a file."""
    if isinstance(database, str | os.PathLike):
        path = os.fspath(database)
        if isinstance(path, str):
            return path
    raise InterfaceError(
        f"{database!r} is no database path",
        where=f"the database argument, a {type(database).__name__}",
        why="a database is opened by the path of its file, or in memory",
        hint='give the path as a str or pathlib.Path, or ":memory:"',
    )
