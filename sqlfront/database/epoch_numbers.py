"""Epoch numbers in the file: none is used twice, not even after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlfront.database.database import SCHEMA
from sqlfront.database.transactions import transaction

if TYPE_CHECKING:
    from sqlfront.database.database import Database

EPOCHS_RESERVED = 1 << 32  # More than one process gets through between two looks at the limit.


def reserve_epochs(database: Database) -> None:
    """Write down that epoch numbers up to a limit may be used by this process: after a crash none comes again."""
    database.epoch_limit = database.engine.epoch + EPOCHS_RESERVED
    _write_epoch(database, database.epoch_limit)


def save_epoch(database: Database) -> None:
    """Write down the last epoch at an orderly end: the next process goes on from there."""
    if database.epoch_limit is not None:
        _write_epoch(database, database.engine.epoch)
        database.epoch_limit = None


def _write_epoch(database: Database, reserved: int) -> None:
    con = database.cursor()
    with transaction(con):
        con.execute(f"DELETE FROM {SCHEMA}.state")
        con.execute(f"INSERT INTO {SCHEMA}.state VALUES (?, ?)", [database.engine.epoch, reserved])
    con.close()
