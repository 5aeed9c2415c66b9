"""Epoch numbers in the file, of which none is used twice, and the mark of the snapshot that fits the file.

A row of `state` without a reserved number is the *mark*: the snapshot of this number has the state of the views. Each
rewrite of `state` takes the mark away, that of a release that knows no snapshots too. Invariant: whoever changes what
views read, or takes in captured changes, has had the mark taken away and committed before.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import SCHEMA
from sqlfront.database.transactions import transaction

if TYPE_CHECKING:
    from sqlfront.database.database import Database

EPOCHS_RESERVED = 1 << 32  # More than one process gets through between two looks at the limit.


def reserve_epochs(database: Database) -> None:
    """Write down that epoch numbers up to a limit may be used by this process: after a crash none comes again."""
    database.epoch_limit = database.engine.epoch + EPOCHS_RESERVED
    _write_epoch(database, database.epoch_limit)


def save_epoch(database: Database, mark: int | None) -> None:
    """Write down the last epoch at an orderly end, and the mark of a snapshot: the next process goes on from there."""
    if database.epoch_limit is not None:
        _write_epoch(database, database.engine.epoch, mark)
        database.epoch_limit = None


def read_mark(con: Any) -> int | None:
    """The mark of the snapshot that fits the file; None if no snapshot does."""
    found = con.execute(f"SELECT max(epoch) FROM {SCHEMA}.state WHERE reserved IS NULL").fetchall()
    return None if found[0][0] is None else int(found[0][0])


def _write_epoch(database: Database, reserved: int, mark: int | None = None) -> None:
    with closing(database.cursor()) as con, transaction(con):
        con.execute(f"DELETE FROM {SCHEMA}.state")
        con.execute(f"INSERT INTO {SCHEMA}.state VALUES (?, ?)", [database.engine.epoch, reserved])
        if mark is not None:
            con.execute(f"INSERT INTO {SCHEMA}.state VALUES (?, NULL)", [mark])
