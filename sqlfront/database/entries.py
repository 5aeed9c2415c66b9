"""What the catalog of a database keeps of each view and change table, and why one of them cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlfront.binding.session_settings import Settings, settled
from sqlfront.database.names import shown
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import Error, Lost, OperationalError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Column
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.planner.model.query import Definition


@dataclass
class StoredView:
    """A materialized view as the file knows it.

    `written` is the query as the user wrote it, `select` the same frozen (freeze.py), `column_names` its columns,
    `scan` the number of its scan, `settings` those of the session that created it, under which it is computed.
    """

    name: QualifiedName
    written: str
    select: str
    options: dict[str, Any]
    column_names: tuple[str, ...]
    scan: int
    settings: Settings

    @property
    def settled(self) -> Settings:
        """The settings under which `select` is computed: the collations of its texts are written out."""
        return settled(self.settings)


class ChangeFeed(Protocol):
    """The held changes of a view that somebody subscribes to (feeds/feed.py)."""

    def follow(self) -> None:
        """Listen to the view, which was built anew."""

    def fail(self, error: Error) -> None:
        """End with a reason, which every subscription raises."""

    def after(self, epoch: int) -> list[pa.Table]:
        """The changes of the epochs after this one."""


class UncheckedViews(Protocol):
    """What a snapshot has of views that nobody has read yet (snapshots/unchecked.py)."""

    @property
    def names(self) -> Collection[str]:
        """The views and change tables, as the engine calls them."""

    def settle(self, names: Iterable[str]) -> None:
        """Check what some of them read. If it has changed, all views are built from their tables."""

    def finish(self) -> None:
        """The same of all."""

    def require(self, name: str) -> None:
        """Check what one of them reads. OperationalError if it has changed."""


@dataclass
class ViewEntry(StoredView):
    """A view that is maintained; the tables it reads, itself or through views, as the engine calls them; the views."""

    definition: Definition
    maintained: MaintainedView
    tables: set[str]
    sources: Mapping[str, ViewEntry]
    feed: ChangeFeed | None = None


@dataclass
class UnbuiltView(StoredView):
    """A view that could not be brought back; REFRESH tries again. `columns` are those of its DuckDB view."""

    columns: tuple[tuple[str, str], ...]
    why: str

    def error(self) -> OperationalError:
        return untrusted(self.name, self.why)


@dataclass
class ChangeTable:
    """A change table in the catalog. `lost` tells the epoch at which its rows were lost, when they are."""

    name: QualifiedName
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...]
    defaults: dict[str, str]
    options: dict[str, Any]
    scan: int
    lost: int | None = None

    @property
    def retain(self) -> bool:
        return bool(self.options.get("retain", True))

    @property
    def durable(self) -> bool:
        return bool(self.options.get("durable"))

    @property
    def types(self) -> list[str]:
        return [column.type for column in self.columns]


def untrusted(view: QualifiedName, why: str) -> OperationalError:
    """The error for reading a view that may be wrong."""
    return OperationalError(
        f"materialized view {shown(view)} cannot be trusted", why=why, hint=f"REFRESH MATERIALIZED VIEW {shown(view)}"
    )


def lost(what: str, table: ChangeTable) -> Lost:
    """The error for reading what went with an earlier process."""
    return Lost(
        f"{what}: lost at epoch {table.lost}",
        why=f"change table {shown(table.name)} is kept in memory only and the database has been closed since",
        hint=f"feed {shown(table.name)} again from empty: TRUNCATE {shown(table.name)}, then con.apply or INSERT",
    )
