"""What a forked process has of the databases that were open: nothing that it may use.

The threads of DuckDB and the lock on its file stay in the parent. So the child lets go of every connection without
closing it: closing would wait for threads that are not there, and might write into the file. DuckDB's objects are kept
for good, so that no destructor closes them either.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable
from typing import Protocol

from sqlfront.storage.errors import InterfaceError, OperationalError


class Inherited(Protocol):
    """A database that a fork takes along."""

    file: str

    def let_go(self) -> Iterable[object]:
        """End all sessions without closing them; what must never be closed."""


_open: weakref.WeakSet[Inherited] = weakref.WeakSet()
_inherited: set[str] = set()


def note_open(database: Inherited) -> None:
    """Note what a child has to let go of."""
    _open.add(database)


def not_inherited(file: str) -> str:
    """The file. OperationalError in a child if it was open at the fork: DuckDB would hand out the parent's database."""
    if file in _inherited:
        raise OperationalError(
            f"{file} was open when this process was forked",
            why=f"its connections belong to process {os.getppid()}, which holds the lock on the file",
            hint="fork before the parent connects, or start the child with multiprocessing's 'spawn'",
        )
    return file


def refused() -> InterfaceError:
    """The error of a connection that came with a fork."""
    return InterfaceError(
        "the connection was opened before this process was forked",
        why="a fork takes neither DuckDB's threads nor its lock on the file along",
        hint="connect in the child, start it with multiprocessing's 'spawn', or use threads, each with con.cursor()",
    )


def _let_go() -> None:
    """In a child, right after the fork."""
    for database in list(_open):
        _inherited.add(database.file)
        for one in database.let_go():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
