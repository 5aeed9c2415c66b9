"""What DuckDB has of a materialized view or change table: a view, the query under it, and its definition.

The *stored query* of `v` computes its rows from tables. It is a view that any client of the file can read:
`"!__sqlfront_query_<file id>_<n>"`, in the schema of `v`, and `v` is `SELECT *` from it. In sqlfront's own cursors a
temporary view over the scan of the maintained core has that name. DuckDB looks among temporary views first, then in
the schema of `v`: so the name is not qualified, and whoever reads `v`, by any name, reads the one or the other.

EXPORT DATABASE writes the views of a schema in the order of their names, and IMPORT binds them as they come. So the
name of a stored query begins with `!`, and a stored query reads no other view (stored_queries.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import SCHEMA, Database
from sqlfront.database.entries import ChangeTable, StoredView, UnbuiltView, ViewEntry
from sqlfront.database.scans import Registration, Scan
from sqlfront.database.user_settings import frozen
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.codecs.transport import restored_sql
from sqlfront.storage.outside.change_log import INPUT
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.scans import ReadSession
    from sqlfront.planner.model.query import Definition, Limit


def store_view(database: Database, con: Any, entry: ViewEntry) -> None:
    """Write a view's definition and make the DuckDB view that users see, in the transaction of `con`, a cursor of ours:
    in the user's, temporary tables may hide those of the query. None of the name may be there."""
    from sqlfront.database.stored_queries import query_over_tables  # With sqlglot, which reading a view does not load.

    with frozen(con, entry.settled):
        put_views(database, con, entry.name, entry.scan, query_over_tables(database, entry))
    _save_definition(con, entry)


def _save_definition(con: Any, view: StoredView) -> None:
    """Write a view's definition to the database, in the transaction of `con`."""
    con.execute(
        f"INSERT INTO {SCHEMA}.views VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            view.name.schema,
            view.name.name,
            view.written,
            view.select,
            json.dumps(view.options),
            json.dumps(view.column_names),
            view.scan,
            json.dumps(view.settings),
        ],
    ).fetchall()


def put_views(database: Database, con: Any, name: QualifiedName, scan: int, query: str) -> None:
    """Make the DuckDB view of a view or change table, and the stored query under it."""
    stored = QualifiedName(name.schema, database.query_name(scan))
    con.execute(f"CREATE VIEW {table_sql(database.name, stored)} AS {query}")
    con.execute(f"CREATE VIEW {table_sql(database.name, name)} AS SELECT * FROM {quote(stored.name)}")


def drop_views(database: Database, con: Any, name: QualifiedName, scan: int) -> None:
    """Drop what `put_views` has made, as far as it is there."""
    for one in (name, QualifiedName(name.schema, database.query_name(scan))):
        con.execute(f"DROP VIEW IF EXISTS {table_sql(database.name, one)}")


def forget_view(database: Database, con: Any, view: StoredView) -> None:
    """Drop a view's DuckDB view, and its definition, in the transaction of `con`."""
    drop_views(database, con, view.name, view.scan)
    con.execute(f"DELETE FROM {SCHEMA}.views WHERE schema = ? AND name = ?", [view.name.schema, view.name.name])


def columns_of(
    database: Database, con: Any, views: Sequence[StoredView]
) -> dict[tuple[str, str], tuple[tuple[str, str], ...]]:
    """The columns of views' DuckDB views, by the views' keys. One query, which costs by the columns of the file."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {view.name.key: [] for view in views}
    rows = con.execute(
        "SELECT schema_name, table_name, column_index, column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = ?",
        [database.name],
    ).fetchall()
    for schema, table, _, name, type_ in sorted(rows):
        if (columns := found.get(QualifiedName(schema, table).key)) is not None:
            columns.append((name, type_))
    return {key: tuple(columns) for key, columns in found.items()}


def store_change_table(database: Database, con: Any, table: ChangeTable) -> None:
    """Make the DuckDB view of a change table, in the transaction of `con`. Its log must be there, if it has one."""
    from sqlfront.database.stored_queries import rows_of_change_table

    put_views(database, con, table.name, table.scan, rows_of_change_table(database, table))


def forget_change_table(database: Database, con: Any, table: ChangeTable) -> None:
    """Drop the DuckDB view of a change table, and its definition, in the transaction of `con`."""
    drop_views(database, con, table.name, table.scan)
    name = [table.name.schema, table.name.name]
    con.execute(f"DELETE FROM {SCHEMA}.change_tables WHERE schema = ? AND name = ?", name)


def registrations(database: Database, session: Callable[[], ReadSession]) -> Iterator[Registration]:
    """The scans of all views and change tables; `session()` is the cursor's."""
    if any(table.durable for table in database.change_tables.values()):
        yield Registration(INPUT, database.log.input, lambda: database.log.input)
    for entry in database.views.values():
        name = database.scan_name(entry.scan)
        projection = partial(view_query, entry.definition, entry, name)
        yield Registration(name, entry.maintained, partial(database.view_scan, entry, session), projection)
    for unbuilt in database.unbuilt.values():
        name = database.scan_name(unbuilt.scan)
        yield Registration(
            name, unbuilt, partial(_failing_scan, unbuilt, session), partial(_cast, unbuilt.columns, name)
        )
    for table in database.change_tables.values():
        name, relation = database.scan_name(table.scan), database.engine.relations[database.relation_key(table.name)]
        make, projection = (
            partial(database.table_scan, table, relation, session),
            partial(_table_query, database, table),
        )
        yield Registration(name, table.columns, make, projection)


def view_query(definition: Definition, entry: ViewEntry, source: str) -> str:
    """SQL that computes a view's columns from the raw columns of a scan, which has computed a frozen projection."""
    from sqlfront.maintenance.output.reading import rows_of

    if definition.is_frozen:
        columns = [
            _output(definition, restored_sql(quote(name), type_), name, type_) for name, type_ in definition.columns
        ]
        return f"SELECT {', '.join(columns)} FROM {source}"
    raw = []
    for column in definition.raw:
        text = quote(column.name)
        if (codec := entry.maintained.codec(column)) is not None:
            text = codec.cast_sql(column.name)
        raw.append(f"{text} AS {quote(column.name)}")
    core = f"SELECT {', '.join(raw) or '1 AS one'} FROM {source}"
    outputs = [
        _output(definition, expression, name, type_)
        for expression, (name, type_) in zip(definition.projection, definition.columns, strict=True)
    ]
    having = f" WHERE {definition.having}" if definition.having else ""
    if definition.limit is None or not rows_of(entry.maintained).trees:
        return f"SELECT {', '.join(outputs)} FROM ({core}) AS core{having}"
    sorting = definition.orders[0].sorting
    places = [f"({expression}) AS {quote(f'{number} sorted by')}" for number, (expression, _) in enumerate(sorting)]
    sort = [f"{quote(f'{number} sorted by')} {direction}" for number, (_, direction) in enumerate(sorting)]
    parts = [f"({expression}) AS {quote(f'part {number}')}" for number, expression in enumerate(definition.limit.by)]
    shown = ", ".join(quote(name) for name, _ in definition.columns)
    computed = f"SELECT {', '.join([*outputs, *places, *parts])} FROM ({core}) AS core{having}"
    return f"SELECT {shown} FROM ({computed}) AS sorted {_first(definition.limit, sort, len(parts))}"


def column_sql(definition: Definition, name: str, type_: str) -> str:
    """A column of rows that have a view's columns by their names."""
    return _output(definition, quote(name), name, type_)


def _output(definition: Definition, expression: str, name: str, type_: str) -> str:
    """An output column, whose texts have the collation of the query's column."""
    collation = next((collation for column, collation in definition.collations if column == name), "")
    collated = f" COLLATE {'.'.join(map(quote, collation.split('.')))}" if collation else ""
    return f"CAST({expression} AS {type_}){collated} AS {quote(name)}"


def _first(limit: Limit, sort: list[str], parts: int) -> str:
    """The clauses that leave the first rows, of all or of each group by `parts` columns."""
    sorting = ", ".join(sort)
    if limit.clause is None:
        rows = "" if limit.rows is None else f" LIMIT {limit.rows}"
        return f"ORDER BY {sorting or 1}{rows} OFFSET {limit.offset}"
    return "QUALIFY " + limit.number_within(", ".join(quote(f"part {number}") for number in range(parts)), sorting)


def _table_query(database: Database, table: ChangeTable) -> str:
    """SQL that computes a change table's columns from those of its scan."""
    from sqlfront.storage.codecs.encoding import codec_for

    texts = [codec_for(column.type, database.engine.dictionaries).cast_sql(column.name) for column in table.columns]
    columns = [
        f"CAST({text} AS {column.type}) AS {quote(column.name)}"
        for text, column in zip(texts, table.columns, strict=True)
    ]
    return f"SELECT {', '.join(columns)} FROM {database.scan_name(table.scan)}"


def _cast(columns: Sequence[tuple[str, str]], source: str) -> str:
    texts = [f"CAST({quote(name)} AS {type_}) AS {quote(name)}" for name, type_ in columns]
    return f"SELECT {', '.join(texts)} FROM {source}"


def _failing_scan(unbuilt: UnbuiltView, session: Callable[[], ReadSession]) -> Scan:
    """What a view that is not built answers to every read: why, and the way out."""
    import pyarrow as pa

    def batches(session: ReadSession) -> Iterator[pa.RecordBatch]:
        raise unbuilt.error()

    return Scan(lambda: pa.schema([(name, pa.null()) for name, _ in unbuilt.columns]), batches, session)
