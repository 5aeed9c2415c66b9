"""The durable log of change tables: their netted rows and their sources' offsets, in tables of the DuckDB file.

Each change table has a table `log_<number>` (epoch, weight, its columns as c0, c1, ...), all share `offsets`. Rows are
appended in the transaction that commits their epoch, so DuckDB's own log makes the two one: after a crash both are
there or neither. `compact` rewrites a log as the net rows that it adds up to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.storage.codecs.transport import arrived_sql, exported
from sqlfront.storage.sql_text import exact, quote

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

COMPACT_FROM = 1 << 17  # Shorter logs are not worth a rewrite between CHECKPOINTs.


INPUT = "__sqlfront_log_input"


class LogInput:
    """What is about to be appended, as a cursor's SQL reads it: registered once, it costs an epoch nothing."""

    def __init__(self) -> None:
        self.rows: pa.Table | None = None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow as pa

        rows = pa.table({"none": pa.array([], pa.null())}) if self.rows is None else self.rows
        return rows.__arrow_c_stream__(requested_schema)


class ChangeLog:
    """The logs in one schema of one database. Methods run in the transaction of the cursor they are given.

    Not locked: the caller lets one epoch commit at a time.
    """

    def __init__(self, database: str, schema: str) -> None:
        self._own, self._schema = quote(schema), f"{quote(database)}.{quote(schema)}"
        self._appended: dict[int, int] = {}
        self._compacted: dict[int, int] = {}
        self.input = LogInput()

    def prepare(self, con: Any) -> None:
        """Make the table of offsets."""
        con.execute(
            f"CREATE TABLE IF NOT EXISTS {self._schema}.offsets "
            "(number BIGINT, source VARCHAR, position VARCHAR, epoch BIGINT)"
        )

    def create(self, con: Any, number: int, types: Sequence[str]) -> None:
        """A new, empty log for a table of these column types."""
        columns = "".join(f", c{i} {type_}" for i, type_ in enumerate(types))
        con.execute(f"CREATE TABLE {self._table(number)} (epoch BIGINT, weight BIGINT{columns})")

    def add_column(self, con: Any, number: int, place: int, type_: str, default: str) -> None:
        """One more column, the last, which has a value (SQL) in all present rows. O(log)."""
        con.execute(f"ALTER TABLE {self._table(number)} ADD COLUMN c{place} {type_} DEFAULT {default}")

    def drop(self, con: Any, number: int) -> None:
        """Forget a log and its offsets; no error if there is none."""
        con.execute(f"DROP TABLE IF EXISTS {self._table(number)}")
        con.execute(f"DELETE FROM {self._schema}.offsets WHERE number = ?", [number])

    def append(
        self, con: Any, number: int, epoch: int, rows: pa.Table, weights: np.ndarray, types: Sequence[str]
    ) -> None:
        """Append netted rows, in the table's column order, with their weights. O(rows).

        `input` must be registered on `con` as INPUT: to register costs three times as much as to append a row.
        """
        import pyarrow as pa

        names = [f"c{i}" for i in range(rows.num_columns)]
        self.input.rows = pa.table([*rows.columns, pa.array(weights, pa.int64())], names=[*names, "weight"])
        columns = zip(names, types, rows.schema.types, strict=True)
        values = ", ".join(arrived_sql(*column) for column in columns)
        try:
            con.execute(f"INSERT INTO {self._table(number)} SELECT {epoch}, weight, {values} FROM {INPUT}").fetchall()
        finally:
            self.input.rows = None

    def note_appended(self, number: int, rows: int) -> None:
        """Count rows whose epoch has been committed."""
        self._appended[number] = self._appended.get(number, 0) + rows

    def wants_compaction(self, number: int, *, now: bool) -> bool:
        """Whether a log has grown: at all (`now`), or by so much that rewriting it costs O(1) for each row appended."""
        grown = self._appended.get(number, 0)
        return grown > 0 if now else grown > max(COMPACT_FROM, 2 * self._compacted.get(number, 0))

    def rows(self, con: Any, number: int, types: Sequence[str]) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """The net rows of a log, as batches (columns c0, c1, ...) and their weights."""
        for batch in exported(con.sql(self._net(self._table(number), types))).to_arrow_reader(65536):
            yield batch.select(range(batch.num_columns - 1)), batch.column(batch.num_columns - 1).to_numpy()

    def net_query(self, number: int, types: Sequence[str]) -> str:
        """The query for a log's net rows: columns c0, c1, ..., and net_weight. It names no database, so it is right in
        the file under any name."""
        return self._net(f"{self._own}.log_{number}", types)

    def count(self, con: Any, number: int) -> int:
        """How many rows a log has, not netted."""
        [(count,)] = con.execute(f"SELECT count(*) FROM {self._table(number)}").fetchall()
        return int(count)

    def compact(self, con: Any, number: int, types: Sequence[str], kept: Sequence[bool] | None = None) -> None:
        """Replace a log by its net rows. Columns that are not `kept` become NULL: nobody reads them. O(log)."""
        table = self._table(number)
        [(last, epoch)] = con.execute(f"SELECT max(rowid), max(epoch) FROM {table}").fetchall()
        if last is not None:
            names = ", ".join(["weight", *(f"c{i}" for i in range(len(types)))])
            order = ", ".join(["net_weight", *(f"c{i}" for i in range(len(types)))])
            net = self._net(table, types, kept)
            con.execute(f"INSERT INTO {table} (epoch, {names}) SELECT {epoch}, {order} FROM ({net})")
            con.execute(f"DELETE FROM {table} WHERE rowid <= {last}")
        self._compacted[number], self._appended[number] = self.count(con, number), 0

    # Offsets -------------------------------------------------------------------------------------

    def note_offset(self, con: Any, number: int, source: str, position: Any, epoch: int) -> None:
        """Write down how far a table has followed a source; `position` is any JSON value."""
        con.execute(f"DELETE FROM {self._schema}.offsets WHERE number = ? AND source = ?", [number, source])
        values = [number, source, json.dumps(position), epoch]
        con.execute(f"INSERT INTO {self._schema}.offsets VALUES (?, ?, ?, ?)", values)

    def offsets(self, con: Any) -> dict[tuple[int, str], Any]:
        """The positions of all sources, by the number of the table and the source's name."""
        found = con.execute(f"SELECT number, source, position FROM {self._schema}.offsets").fetchall()
        return {(number, source): json.loads(position) for number, source, position in found}

    # Inside --------------------------------------------------------------------------------------

    def _table(self, number: int) -> str:
        return f"{self._schema}.log_{number}"

    def _net(self, table: str, types: Sequence[str], kept: Sequence[bool] | None = None) -> str:
        """The query for a log's net rows. Values that differ are not merged, though DuckDB may take them for equal."""
        columns, groups = list[str](), list[str]()
        for i, type_ in enumerate(types):
            if kept is not None and not kept[i]:
                columns.append(f"CAST(NULL AS {type_}) AS c{i}")
                continue
            columns.append(f"c{i}")
            groups += dict.fromkeys((f"c{i}", exact(f"c{i}", type_)))
        grouping = f"GROUP BY {', '.join(groups)} " if groups else ""
        chosen = ", ".join([*columns, "CAST(sum(weight) AS BIGINT) AS net_weight"])
        return f"SELECT {chosen} FROM {table} {grouping}HAVING sum(weight) <> 0"
