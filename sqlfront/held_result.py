"""A result that we hold ourselves, an Arrow table, fetched as from any query."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from sqlfront.failures import expect_copy, translated

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = "__sqlfront_result"


class HeldResult:
    """DuckDB makes rows of the table when they are fetched, all at once: no transaction stays open in between.

    An open result, were it handed to DuckDB, would keep others from building views and from CHECKPOINT.
    """

    def __init__(self, con: Any, table: pa.Table) -> None:
        self._con, self._table = con, table
        self._rows: deque[tuple[Any, ...]] | None = None

    @property
    def description(self) -> list[tuple[Any, ...]]:
        """As of a query, DB-API 2.0."""
        with translated(None):
            description: list[tuple[Any, ...]] = self._query(" LIMIT 0").description
            self._con.fetchall()
        return description

    def fetchone(self) -> tuple[Any, ...] | None:
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        if self._rows is None:
            with translated(None):
                self._rows = deque(self._query().fetchall())
        return [self._rows.popleft() for _ in range(min(size, len(self._rows)))]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.fetchmany(self._table.num_rows)

    def df(self) -> Any:
        return self._rest("df")

    def to_arrow_table(self) -> pa.Table:
        expect_copy()
        return self._rest("to_arrow_table")

    def close(self) -> None:
        """Nothing is open."""

    def _rest(self, how: str) -> Any:
        """What has not been fetched yet."""
        fetched = 0 if self._rows is None else self._table.num_rows - len(self._rows)
        with translated(None):
            found = getattr(self._query(f" OFFSET {fetched}"), how)()
        self._rows = deque()
        return found

    def _query(self, part: str = "") -> Any:
        self._con.abort()  # A statement that failed may have left something of its own half read.
        self._con.register(_NAME, self._table)
        return self._con.execute(f"SELECT * FROM {_NAME}{part}")
