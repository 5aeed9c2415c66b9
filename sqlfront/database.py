"""One database in this process: its engine, what it maintains, and the DuckDB database under it.

All cursors and threads of a database share this object; `Database.open` hands out the same one for
the same file. Catalog changes and epochs happen under the engine's lock.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from maintenance.engine import Engine
from maintenance.relation import Column
from sqlfront.scans import SCAN_PREFIX, ReadSession, Scan
from storage.capture import Capture, QualifiedName
from storage.capture_sql import quote
from storage.casting import connect as private_connection
from storage.errors import Lost, OperationalError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

    from maintenance.view import MaintainedView
    from planner.query import Definition

SCHEMA = "__sqlfront"
_open_databases: weakref.WeakValueDictionary[str, Database] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


@dataclass
class ViewEntry:
    """A materialized view in the catalog; `select` is the user's query, `scan` the number of its scan."""

    name: QualifiedName
    select: str
    options: dict[str, Any]
    column_names: tuple[str, ...]
    scan: int
    definition: Definition
    maintained: MaintainedView
    tables: set[str] = field(default_factory=set)


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


class Database:
    """The shared state of one DuckDB database in this process."""

    def __init__(self, path: str, config: Mapping[str, Any] | None) -> None:
        import duckdb

        self.path = path
        self.root = duckdb.connect(path, config=dict(config or {}))
        self.name = self.root.execute("SELECT current_database()").fetchall()[0][0]
        self._evaluator = private_connection()
        self._evaluator.execute("SET arrow_lossless_conversion = true")
        self.engine = Engine(self.evaluate)
        self.capture = Capture(self.name)
        self.views: dict[tuple[str, str], ViewEntry] = {}
        self.change_tables: dict[tuple[str, str], ChangeTable] = {}
        self.revision = 0
        self._next_scan = 1
        self._reader: Any = None

    @classmethod
    def open(cls, path: str, config: Mapping[str, Any] | None) -> Database:
        """The database of this file, shared within the process; a new one for :memory:."""
        from sqlfront.persistence import restore

        with _registry_lock:
            private = path in ("", ":memory:")
            key = os.path.realpath(path)
            found = None if private else _open_databases.get(key)
            if found is None:
                found = cls(path, config)
                restore(found)
                if not private:
                    _open_databases[key] = found
            return found

    # Names ---------------------------------------------------------------------------------------

    def new_scan(self) -> int:
        number = self._next_scan
        self._next_scan += 1
        return number

    def take_scan(self, number: int) -> None:
        """Note a scan number that a stored view uses."""
        self._next_scan = max(self._next_scan, number + 1)

    def resolve(self, con: Any, parts: Sequence[str]) -> QualifiedName:
        """The qualified name that `[schema.]name` means on this cursor, existing or not."""
        if len(parts) > 1:
            return QualifiedName(parts[-2], parts[-1])
        key = parts[-1].casefold()
        for schema in self.search_path(con):
            for known in (*self.views, *self.change_tables):
                if known == (schema.casefold(), key):
                    return QualifiedName(schema, parts[-1])
        return QualifiedName(con.execute("SELECT current_schema()").fetchall()[0][0], parts[-1])

    def search_path(self, con: Any) -> list[str]:
        return list(con.execute("SELECT current_schemas(false)").fetchall()[0][0])

    def view(self, con: Any, parts: Sequence[str]) -> ViewEntry:
        """The materialized view of this name. ProgrammingError if there is none."""
        name = self.resolve(con, parts)
        entry = self.views.get(name.key)
        if entry is None:
            known = ", ".join(sorted(str(v.name) for v in self.views.values())) or "none"
            raise ProgrammingError(
                f"there is no materialized view {'.'.join(parts)}", hint=f"known materialized views: {known}"
            )
        return entry

    def change_table(self, con: Any, parts: Sequence[str]) -> ChangeTable | None:
        """The change table of this name, or None."""
        return self.change_tables.get(self.resolve(con, parts).key)

    def relation_key(self, name: QualifiedName) -> str:
        """How the engine and the binder call a table."""
        from sqlfront.parse_tree import quoted

        return f"{quoted(name.schema)}.{quoted(name.name)}"

    def readers(self, name: QualifiedName) -> list[ViewEntry]:
        """The materialized views that read a table."""
        key = self.relation_key(name).casefold()
        return [entry for entry in self.views.values() if key in {t.casefold() for t in entry.tables}]

    # Reading -------------------------------------------------------------------------------------

    def scans(self, session: Any) -> Iterator[tuple[str, Scan]]:
        """The registered name and the scan of every view and change table; `session()` is the cursor's."""
        for entry in self.views.values():
            yield scan_name(entry.scan), self.view_scan(entry, session)
        for table in self.change_tables.values():
            yield scan_name(table.scan), self._table_scan(table, session)

    def view_scan(self, entry: ViewEntry, session: Any, where: Mapping[str, tuple[int, ...]] | None = None) -> Scan:
        """The maintained core of a view, perhaps narrowed to some codes of its variables."""
        from maintenance.output import Reader, schema

        def batches() -> Iterator[pa.RecordBatch]:
            self.refuse_lost(entry)
            return iter(Reader(entry.maintained, where))

        return Scan(lambda: schema(entry.maintained), batches, session)

    def refuse_lost(self, entry: ViewEntry) -> None:
        """Raise if the view reads a change table whose rows were lost, or its build has been given up."""
        for table in self.change_tables.values():
            if table.lost is not None and self.relation_key(table.name) in entry.tables:
                raise lost(f"materialized view {entry.name}", table)
        if entry.maintained.broken:
            raise OperationalError(
                f"materialized view {entry.name} cannot be trusted",
                why=entry.maintained.broken,
                hint=f"REFRESH MATERIALIZED VIEW {entry.name}",
            )

    def _table_scan(self, table: ChangeTable, session: Any) -> Scan:
        import pyarrow as pa

        from storage.encoding import codec_for

        relation = self.engine.relations[self.relation_key(table.name)]
        fields = [codec_for(c.type, self.engine.dictionaries).arrow_field(c.name) for c in table.columns]

        def batches() -> Iterator[pa.RecordBatch]:
            import numpy as np

            from maintenance.output import table_batches

            if table.lost is not None:
                raise lost(f"change table {table.name}", table)
            if not table.retain:
                raise ProgrammingError(
                    f"change table {table.name} does not keep its rows",
                    why="it was created WITH (retain = false): only what the views need is kept",
                    hint="query the views, or create it WITH (retain = true)",
                )
            for batch, weights in table_batches(relation):
                if (weights != 1).any():
                    batch = batch.take(pa.array(np.repeat(np.arange(len(weights)), weights)))
                yield batch

        return Scan(lambda: pa.schema(fields), batches, session)

    def reader_cursor(self) -> Any:
        """A DuckDB cursor of our own for bookkeeping reads; use it under the engine's lock."""
        if self._reader is None:
            self._reader = self.root.cursor()
        return self._reader

    def session(self) -> ReadSession:
        return ReadSession(self.engine)

    def evaluate(self, rows: Any, expressions: Sequence[str]) -> pa.Table:
        """SQL expressions over the columns of `rows`, in row order, by DuckDB on a private connection."""
        import duckdb
        import pyarrow as pa

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        self._evaluator.register("__rows", table)
        try:
            select = ", ".join(f"{expression} AS e{i}" for i, expression in enumerate(expressions))
            return self._evaluator.sql(f"SELECT {select} FROM __rows").to_arrow_table().combine_chunks()
        except duckdb.Error as error:
            from storage.errors import DataError

            raise DataError("a computed column of a view fails on a changed row", why=str(error)) from error
        finally:
            self._evaluator.unregister("__rows")

    def load(self, con: Any, relation: str) -> Iterator[pa.RecordBatch]:
        """The rows of an ordinary table as the transaction of `con` sees them, in the relation's column order."""
        columns = ", ".join(quote(c.name) for c in self.engine.relations[relation].columns)
        con.execute("SET SESSION arrow_lossless_conversion = true")
        try:
            yield from con.sql(f"SELECT {columns} FROM {relation}").to_arrow_reader(65536)
        finally:
            con.execute("RESET SESSION arrow_lossless_conversion")

    # Bookkeeping ---------------------------------------------------------------------------------

    def save_view(self, con: Any, entry: ViewEntry) -> None:
        """Write a view's definition to the database, in the transaction of `con`."""
        con.execute(
            f"INSERT INTO {SCHEMA}.views VALUES (?, ?, ?, ?, ?, ?)",
            [
                entry.name.schema,
                entry.name.name,
                entry.select,
                json.dumps(entry.options),
                json.dumps(entry.column_names),
                entry.scan,
            ],
        )

    def changed(self) -> None:
        """Tell cursors to look at the catalog again."""
        self.revision += 1


def scan_name(number: int) -> str:
    return f"{SCAN_PREFIX}{number}"


def lost(what: str, table: ChangeTable) -> Lost:
    """The error for reading what went with an earlier process."""
    return Lost(
        f"{what}: lost at epoch {table.lost}",
        why=f"change table {table.name} is kept in memory only and the database has been closed since",
        hint=f"feed {table.name} again from empty: TRUNCATE {table.name}, then con.apply or INSERT",
    )
