"""`SELECT columns FROM view` as an Arrow table: the batches that DuckDB would scan and write again are the table.

The types are those in which DuckDB exports the columns. A view whose columns are computed from others, a column of a
rarer type, and settings of the export leave the query to DuckDB. So does a transaction, whose tables may be older.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.database.held_result import HeldRows, arrow_type, is_exported_plainly
from sqlfront.sql.query_trees import column_name, query_tree

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.entries import ViewEntry
    from sqlfront.database.sessions import Session


@dataclass(frozen=True)
class WholeView:
    """A view whose rows are asked for: the raw columns that are shown, by their numbers, and the names and DuckDB types
    that they are shown with."""

    entry: ViewEntry
    raw: tuple[int, ...]
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

        from sqlfront.maintenance.output.output import Reader

        database = session.database
        if not is_exported_plainly(session.duck):
            return None
        session.start_reading({self.entry.maintained.name}.intersection, alone=True)
        if session.revision != database.revision or database.views.get(self.entry.name.key) is not self.entry:
            return None  # It is another view by now, or none.
        database.make_readable(self.entry, session.current_reading())
        schema = pa.schema([(name, arrow_type(type_)) for name, type_ in self.columns])
        pairs, batches = list(zip(self.raw, schema.types, strict=True)), []
        for batch in Reader(self.entry.maintained).all(database.engine.machine.threads):
            arrays = [_exported(batch.column(number), kind) for number, kind in pairs]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return pa.Table.from_batches(batches, schema)

    def no_rows(self, session: Session) -> HeldRows:
        """A result of these columns without rows."""
        return HeldRows(session.duck, self.columns, [])


def whole_view(entry: ViewEntry, columns: Sequence[tuple[int, str]]) -> WholeView | None:
    """All rows of a view in some of its columns, by their places, with the names that they are shown with; None if
    DuckDB has to compute them."""
    definition = entry.definition
    if definition.is_frozen or definition.having is not None or definition.limit is not None:
        return None
    tree = query_tree(f"SELECT {', '.join(definition.projection)}")
    raw = {one.name.casefold(): number for number, one in enumerate(definition.raw)}
    numbers = [raw.get(column_name(item) or "") for item in tree.expressions] if isinstance(tree, exp.Select) else []
    found = list[int]()
    for place, _ in columns:
        number, type_ = numbers[place] if numbers else None, definition.columns[place][1]
        if number is None or definition.raw[number].type != type_ or arrow_type(type_) is None:
            return None
        found.append(number)
    shown = tuple((name, definition.columns[place][1]) for place, name in columns)
    return WholeView(entry, tuple(found), shown)


def _exported(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of a scan as DuckDB exports it: of a HUGEINT the same 128 bits as DECIMAL(38, 0)."""
    import pyarrow as pa

    if not isinstance(array.type, pa.OpaqueType):
        return array.cast(kind)
    storage = array.storage
    return pa.Array.from_buffers(kind, len(storage), storage.buffers(), offset=storage.offset)
