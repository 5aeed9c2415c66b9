"""`SELECT columns FROM view` as an Arrow table: the batches that DuckDB would scan and write again are the table.

The types are those in which DuckDB exports the columns. A column of a rarer type and settings of the export leave the
query to DuckDB. So does a transaction, whose tables may be older.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlfront.database.held_result import HeldRows, arrow_type, is_exported_plainly
from sqlfront.storage.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session

_FEW = 1 << 12
"""Rows whose columns are computed by one query over all of them."""


@dataclass(frozen=True)
class WholeView:
    """A view whose rows are asked for: the columns that are shown, by their places, and the names and DuckDB types
    that they are shown with."""

    entry: ViewEntry
    places: tuple[int, ...]
    columns: tuple[tuple[str, str], ...]

    def leave_unread(self, session: Session, text: str, params: Any) -> bool:
        """Let the first fetch say how the rows of a query are read. False in a transaction: its result is that of the
        time of the query."""
        if session.transaction is not None:
            return False
        session.has_result, session.unread, session.again = True, self, (text, params)
        return True

    def table(self, session: Session) -> pa.Table | None:
        """The rows of the present epoch; None if DuckDB has to read them. The lock is held."""
        import pyarrow as pa

        database = session.database
        if not is_exported_plainly(session.duck):
            return None
        session.start_reading({self.entry.maintained.name}.intersection, alone=True)
        if session.revision != database.revision or database.views.get(self.entry.name.key) is not self.entry:
            return None  # It is another view by now, or none.
        reading = session.current_reading()
        database.make_readable(self.entry, reading)
        schema = pa.schema([(name, arrow_type(type_)) for name, type_ in self.columns])
        batches = []
        try:
            found = self._batches(database)
            if found is None:
                return None
            for batch in found:
                reading.check()
                pairs = zip(self.places, schema.types, strict=True)
                arrays = [_exported(batch.column(place), kind) for place, kind in pairs]
                batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        except DataError:
            return None  # DuckDB tells the reader which value of the query cannot be computed.
        return pa.Table.from_batches(batches, schema)

    def _batches(self, database: Database) -> Iterable[pa.RecordBatch] | None:
        """The view's SQL rows; None if DuckDB computes them sooner, on its threads."""
        from sqlfront.maintenance.output.output import Reader
        from sqlfront.maintenance.output.sql_rows import is_straight, view_batches

        view, evaluate = self.entry.maintained, database.evaluate
        if view.definition.limit is not None:
            return view_batches(view, evaluate)
        if is_straight(view, evaluate):
            return view_batches(view, evaluate, Reader(view).all(database.engine.machine.threads))
        few: list[pa.RecordBatch] = []
        for batch in Reader(view):
            few.append(batch)
            if sum(map(len, few)) > _FEW:
                return None
        return view_batches(view, evaluate, few)

    def no_rows(self, session: Session) -> HeldRows:
        """A result of these columns without rows."""
        return HeldRows(session.duck, self.columns, [])


def whole_view(entry: ViewEntry, columns: Sequence[tuple[int, str]]) -> WholeView | None:
    """All rows of a view in some of its columns, by their places, with the names that they are shown with; None if
    DuckDB has to export them."""
    types = [entry.definition.columns[place][1] for place, _ in columns]
    if any(arrow_type(type_) is None for type_ in types):
        return None
    names = [name for _, name in columns]
    return WholeView(entry, tuple(place for place, _ in columns), tuple(zip(names, types, strict=True)))


def _exported(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of a scan as DuckDB exports it: of a HUGEINT the same 128 bits as DECIMAL(38, 0)."""
    import pyarrow as pa

    if not isinstance(array.type, pa.OpaqueType):
        return array.cast(kind)
    storage = array.storage
    return pa.Array.from_buffers(kind, len(storage), storage.buffers(), offset=storage.offset)
