"""Results that we hold ourselves, an Arrow table or rows, fetched as from any query."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from sqlfront.database.failures import expect_copy, translated
from sqlfront.database.user_settings import lossless
from sqlfront.sql.remembered import ask
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = "__sqlfront_result"
_AT_ONCE = 65536


class Served(Protocol):
    """A result that DuckDB does not hold: a table of ours, or the changes of a subscription."""

    @property
    def description(self) -> list[tuple[Any, ...]]: ...
    def fetchone(self) -> tuple[Any, ...] | None: ...
    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...
    def df(self) -> Any: ...
    def fetchnumpy(self) -> dict[str, Any]: ...
    def to_arrow_table(self) -> pa.Table: ...
    def close(self) -> None: ...


class HeldResult:
    """DuckDB makes rows of the table as they are fetched, a slice at a time: no transaction stays open in between.

    An open result, were it handed to DuckDB, would keep others from building views and from CHECKPOINT. `shown` are
    the columns as DuckDB SQL over those of the table.
    """

    def __init__(self, con: Any, table: pa.Table, shown: str = "*") -> None:
        self._con, self._table, self._left, self._shown = con, table, table, shown
        self._rows: deque[tuple[Any, ...]] = deque()

    @property
    def description(self) -> list[tuple[Any, ...]]:
        """As of a query, DB-API 2.0."""
        with translated(None):
            description: list[tuple[Any, ...]] = self._query(self._left.slice(0, 0)).description
            self._con.fetchall()
        return description

    def held(self) -> pa.Table:
        """The whole table, every type kept."""
        if self._shown == "*":
            return self._table
        with translated(None), lossless(self._con):
            return self._query(self._table).to_arrow_table()

    def fetchone(self) -> tuple[Any, ...] | None:
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        missing = size - len(self._rows)
        if missing > 0 and self._left.num_rows:
            part = max(missing, _AT_ONCE)
            with translated(None):
                self._rows.extend(self._query(self._left.slice(0, part)).fetchall())
            self._left = self._left.slice(part)
        return [self._rows.popleft() for _ in range(min(size, len(self._rows)))]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.fetchmany(len(self._rows) + self._left.num_rows)

    def pass_over(self, rows: int) -> None:
        """Go on behind the first rows."""
        self._left = self._table.slice(rows)

    def df(self) -> Any:
        return self._rest("df")

    def fetchnumpy(self) -> dict[str, Any]:
        return self._rest("fetchnumpy")

    def to_arrow_table(self) -> pa.Table:
        expect_copy()
        return self._rest("to_arrow_table")

    def close(self) -> None:
        """Nothing is open."""

    def _rest(self, how: str) -> Any:
        """What has not been fetched yet, as a whole: rows fetched ahead are the end of what was before `_left`."""
        rest = self._table.slice(self._table.num_rows - self._left.num_rows - len(self._rows))
        with translated(None):
            found = getattr(self._query(rest), how)()
        self._rows.clear()
        self._left = rest.slice(rest.num_rows)
        return found

    def _query(self, table: pa.Table) -> Any:
        self._con.abort()  # A statement that failed may have left something of its own half read.
        self._con.register(_NAME, table)
        return self._con.execute(f"SELECT {self._shown} FROM {_NAME}")


class HeldRows:
    """A few rows as Python values, in columns of some names and DuckDB types: what is fetched as rows or, in most
    types, as Arrow asks DuckDB nothing."""

    def __init__(self, con: Any, columns: Sequence[tuple[str, str]], rows: list[tuple[Any, ...]]) -> None:
        self._con, self._columns, self._rows, self._at = con, columns, rows, 0

    @property
    def description(self) -> list[tuple[Any, ...]]:
        """As of a query, DB-API 2.0."""
        return self._typed().description

    def held(self) -> pa.Table:
        """All rows, every type kept."""
        return self._typed().held()

    def fetchone(self) -> tuple[Any, ...] | None:
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        first, self._at = self._at, min(len(self._rows), self._at + size)
        return self._rows[first : self._at]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.fetchmany(len(self._rows))

    def df(self) -> Any:
        return self._rest().df()

    def fetchnumpy(self) -> dict[str, Any]:
        return self._rest().fetchnumpy()

    def to_arrow_table(self) -> pa.Table:
        found = arrow_rows(self._con, self._columns, self._rows[self._at :])
        if found is None:
            return self._rest().to_arrow_table()
        self._at = len(self._rows)
        return found

    def close(self) -> None:
        """Nothing is open."""

    def _typed(self) -> HeldResult:
        """All rows with their types."""
        return typed_rows(self._con, self._columns, self._rows)

    def _rest(self) -> HeldResult:
        rest = self._typed()
        rest.pass_over(self._at)
        self._at = len(self._rows)
        return rest


def typed_rows(con: Any, columns: Sequence[tuple[str, str]], rows: Sequence[tuple[Any, ...]]) -> HeldResult:
    """A few rows of Python values as columns of these names and DuckDB types."""
    import pyarrow as pa

    values: list[list[Any]] = list(map(list, zip(*rows, strict=True))) if rows else [[] for _ in columns]
    table = pa.table({f"c{place}": _array(column) for place, column in enumerate(values)})
    shown = (f"CAST(c{place} AS {kind}) AS {quote(name)}" for place, (name, kind) in enumerate(columns))
    return HeldResult(con, table, ", ".join(shown))


def arrow_rows(con: Any, columns: Sequence[tuple[str, str]], rows: Sequence[tuple[Any, ...]]) -> pa.Table | None:
    """A few rows as DuckDB exports them to Arrow; None where it has to: for other types, or settings of the user's."""
    import pyarrow as pa

    types = [arrow_type(kind) for _, kind in columns]
    if None in types or not is_exported_plainly(con):
        return None
    try:
        values = zip(*rows, strict=True) if rows else [()] * len(columns)
        arrays = [pa.array(column, type_) for column, type_ in zip(values, types, strict=True)]
    except pa.ArrowInvalid:  # A HUGEINT of 39 digits.
        return None
    return pa.Table.from_arrays(arrays, [name for name, _ in columns])


def is_exported_plainly(con: Any) -> bool:
    """Whether the settings of Arrow's export are DuckDB's defaults."""
    con.abort()  # As before each query of ours.
    return ask(con, _EXPORT) == _EXPORT_DEFAULTS


@cache
def arrow_type(kind: str) -> pa.DataType | None:
    """The Arrow type in which DuckDB exports a type, unless settings change it; None for rarer ones."""
    import pyarrow as pa

    if kind.startswith("DECIMAL(") and kind.endswith(")"):
        width, _, scale = kind[len("DECIMAL(") : -1].partition(",")
        return pa.decimal128(int(width), int(scale))
    known = {
        "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(),
        "BIGINT": pa.int64(), "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
        "UBIGINT": pa.uint64(), "HUGEINT": pa.decimal128(38, 0), "FLOAT": pa.float32(), "DOUBLE": pa.float64(),
        "VARCHAR": pa.string(), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"),
    }  # fmt: skip
    return known.get(kind)


_OF_EXPORT = ("arrow_lossless_conversion", "arrow_large_buffer_size", "arrow_output_version")
_EXPORT = "SELECT " + ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in _OF_EXPORT)
_EXPORT_DEFAULTS = ("false", "false", "1.0")


def _array(values: list[Any]) -> pa.Array:
    """Values as DuckDB casts them to their type: as texts, where they are beyond 64 bits."""
    import pyarrow as pa

    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        return pa.array([None if value is None else str(value) for value in values])
    return pa.array(values)
