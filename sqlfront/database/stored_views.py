"""What DuckDB has of a materialized view: a view over the scan of its maintained core, and its definition."""

from __future__ import annotations

from typing import Any

from sqlfront.database.database import SCHEMA, Database
from sqlfront.database.entries import ViewEntry
from sqlfront.planner.model.query import Definition, Limit
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.codecs.transport import restored_sql
from sqlfront.storage.sql_text import quote


def store_view(database: Database, con: Any, entry: ViewEntry) -> None:
    """Write a view's definition and make the DuckDB view that users see, in the transaction of `con`.

    That is the final projection over the scan of the maintained core. None of the name may be there.
    """
    database.register(con, database.scan_name(entry.scan), database.view_scan(entry, database.session))
    query = view_query(entry.definition, entry, database.scan_name(entry.scan))
    con.execute(f"CREATE VIEW {table_sql(database.name, entry.name)} AS {query}")
    database.save_view(con, entry)


def forget_view(database: Database, con: Any, name: QualifiedName) -> None:
    con.execute(f"DROP VIEW IF EXISTS {table_sql(database.name, name)}")
    con.execute(f"DELETE FROM {SCHEMA}.views WHERE schema = ? AND name = ?", [name.schema, name.name])


def view_query(definition: Definition, entry: ViewEntry, source: str) -> str:
    """SQL that computes a view's columns from its raw columns; those of a frozen projection, the scan has computed."""
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
    if definition.limit is None or entry.maintained.plan.ranked_only:
        return f"SELECT {', '.join(outputs)} FROM ({core}) AS core{having}"
    sorting = definition.orders[0].sorting
    places = [f"({expression}) AS {quote(f'{number} sorted by')}" for number, (expression, _) in enumerate(sorting)]
    sort = [f"{quote(f'{number} sorted by')} {direction}" for number, (_, direction) in enumerate(sorting)]
    parts = [f"({expression}) AS {quote(f'part {number}')}" for number, expression in enumerate(definition.limit.by)]
    shown = ", ".join(quote(name) for name, _ in definition.columns)
    computed = f"SELECT {', '.join([*outputs, *places, *parts])} FROM ({core}) AS core{having}"
    return f"SELECT {shown} FROM ({computed}) AS sorted {_first(definition.limit, sort, len(parts))}"


def _output(definition: Definition, expression: str, name: str, type_: str) -> str:
    """An output column, whose texts have the collation of the query's column."""
    collation = next((collation for column, collation in definition.collations if column == name), "")
    collated = f" COLLATE {'.'.join(map(quote, collation.split('.')))}" if collation else ""
    return f"CAST({expression} AS {type_}){collated} AS {quote(name)}"


def register_all(database: Database, con: Any) -> None:
    """Let a cursor of DuckDB's find all scans, for definitions that name them."""
    for name, _, make in database.scans(database.session):
        database.register(con, name, make())


def _first(limit: Limit, sort: list[str], parts: int) -> str:
    """The clauses that leave the first rows, of all or of each group by `parts` columns."""
    sorting = ", ".join(sort)
    if limit.clause is None:
        rows = "" if limit.rows is None else f" LIMIT {limit.rows}"
        return f"ORDER BY {sorting or 1}{rows} OFFSET {limit.offset}"
    return "QUALIFY " + limit.number_within(", ".join(quote(f"part {number}") for number in range(parts)), sorting)
