"""The result of SUBSCRIBE: rows are fetched as from any query, and later fetches give what has come since."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlfront.storage.codecs.transport import arrived_sql
from sqlfront.storage.errors import Error
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.database import Database
    from sqlfront.feeds.feed import Subscription
    from sqlfront.planner.model.query import Definition

_NAME = "__sqlfront_changes"


class FeedCursor:
    """Fetches the changes of a subscription; never blocks."""

    def __init__(self, database: Database, definition: Definition, subscription: Subscription) -> None:
        self._subscription = subscription
        self._con = database.cursor()
        self._columns = [
            *definition.columns,
            ("_change_type", "VARCHAR"),
            ("_commit_version", "BIGINT"),
            ("_commit_timestamp", "TIMESTAMP"),
        ]
        self._table: pa.Table | None = None
        self._rows: deque[tuple[Any, ...]] = deque()

    @property
    def description(self) -> list[tuple[Any, ...]]:
        """As of a query, DB-API 2.0."""
        return self._con.execute(self._select(None)).description

    def fetchone(self) -> tuple[Any, ...] | None:
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        if len(self._rows) < size:
            self._rows = deque(self._query().fetchall())
        return [self._rows.popleft() for _ in range(min(size, len(self._rows)))]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._whole(self._query().fetchall)

    def df(self) -> Any:
        return self._whole(self._query().df)

    def fetchnumpy(self) -> dict[str, Any]:
        return self._whole(self._query().fetchnumpy)

    def to_arrow_table(self) -> pa.Table:
        return self._whole(self._query().to_arrow_table)

    def close(self) -> None:
        """End the subscription."""
        self._subscription.close()
        self._con.close()

    def _query(self) -> Any:
        """What has not been fetched yet, with the changes since the last fetch, as a DuckDB result."""
        import pyarrow as pa

        tables = [self._table.slice(self._table.num_rows - len(self._rows))] if self._table and self._rows else []
        try:
            news = self._subscription.poll()
        except Error:
            if not tables:
                raise
        else:
            tables += [news] if news else []
        self._table = pa.concat_tables(tables) if tables else None
        return self._con.execute(self._select(self._table))

    def _whole(self, fetch: Callable[[], Any]) -> Any:
        found = fetch()
        self._rows.clear()
        self._table = None
        return found

    def _select(self, table: pa.Table | None) -> str:
        if table is None:
            columns = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in self._columns)
            return f"SELECT {columns} WHERE false"
        names = [f"c{number}" for number in range(len(self._columns))]
        self._con.register(_NAME, table.rename_columns(names))
        arrows = zip(names, self._columns, table.schema.types, strict=True)
        columns = ", ".join(
            f"{arrived_sql(own, type_, arrow)} AS {quote(name)}" for own, (name, type_), arrow in arrows
        )
        return f"SELECT {columns} FROM {_NAME}"
