"""Opening and closing a file, with its snapshot; the modules that a file without views has no use for load later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.define.persistence import restore
from sqlfront.snapshots.background import Background

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.entries import StoredView
    from sqlfront.storage.errors import Error


def open_file(database: Database) -> None:
    """Bring back the views and change tables of a file, and see to snapshots while it is open and when it is closed."""
    restore(database, _adopt)
    background = Background(database) if database.snapshot_every and not database.read_only else None
    database.closing = partial(_close, background)


def _adopt(
    database: Database, con: Any, views: Sequence[StoredView], begin: Callable[[], None], untrusted: Sequence[Error]
) -> set[int]:
    from sqlfront.snapshots.adopting import adopt

    return adopt(database, con, views, begin, untrusted)


def _close(background: Background | None, database: Database) -> None:
    if background is not None:
        background.stop()
    if database.epoch_limit is not None:
        from sqlfront.snapshots.saving import close_file

        close_file(database)
