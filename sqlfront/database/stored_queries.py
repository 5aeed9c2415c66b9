"""The queries of a file: SQL that computes the rows of a materialized view or change table from tables alone.

Any client of DuckDB's may run them (stored_views.py). A materialized view that a query reads is in WITH, once, and so
is the log of a change table: a stored query reads no view, which DuckDB might not have yet when it imports the file.
The rows may differ from those that sqlfront keeps in three cases: a setting of the session changes the answer, floating
numbers are summed in another order, or an order leaves the choice of rows open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlfront.binding.freeze import over_names
from sqlfront.database.entries import ChangeTable, StoredView, ViewEntry
from sqlfront.database.names import Key, shown
from sqlfront.storage.sql_text import literal, quote

if TYPE_CHECKING:
    from sqlfront.database.database import Database

Relations = Mapping[Key, StoredView | ChangeTable]


def query_over_tables(database: Database, view: StoredView, others: Relations | None = None) -> str:
    """A view's query over tables and logs. `others` are the views and change tables that it may read, itself or through
    views; those of a built view are known."""
    known = _read_by(database, view) if others is None and isinstance(view, ViewEntry) else others or {}
    names = {key: f"__sqlfront_{relation.scan}" for key, relation in known.items()}
    below: dict[Key, str] = {}
    query = _collected(database, view, known, names, below)
    return f"WITH {', '.join(f'{names[key]} AS ({text})' for key, text in below.items())} {query}" if below else query


def rows_of_change_table(database: Database, table: ChangeTable) -> str:
    """The rows of a change table by its log; an error for one that keeps none."""
    if not table.durable:
        message = "is kept in memory only, by the process that opens the file with sqlfront"
    elif not table.retain:
        message = "does not keep its rows: it was created WITH (retain = false); query the views"
    else:
        return _logged(database, table)
    columns = [(column.name, column.type) for column in table.columns]
    return refusing(columns, f"change table {shown(table.name)} {message}")


def refusing(columns: Sequence[tuple[str, str]], message: str) -> str:
    """A query of these columns that raises the message whenever it is run."""
    shown = ", ".join(f"CAST(NULL AS {type_}) AS {quote(name)}" for name, type_ in columns)
    return f"SELECT {shown} FROM (SELECT 1) AS nothing WHERE error({literal(message)})"


def _read_by(database: Database, view: ViewEntry) -> dict[Key, StoredView | ChangeTable]:
    found: dict[Key, StoredView | ChangeTable] = {}
    for source in view.sources.values():
        found |= {**_read_by(database, source), source.name.key: source}
    tables = database.change_tables.values()
    return found | {table.name.key: table for table in tables if database.relation_key(table.name) in view.tables}


def _collected(
    database: Database, view: StoredView, known: Relations, names: Mapping[Key, str], below: dict[Key, str]
) -> str:
    """A view's query; what it reads, by `names`, is `below`, each after what it reads itself."""
    select, read = over_names(view.select, names) if known else (view.select, [])
    for key in read:
        relation = known[key]
        if key in below:
            continue
        if isinstance(relation, ChangeTable):
            below[key] = _logged(database, relation) if relation.durable else rows_of_change_table(database, relation)
        else:
            below[key] = _collected(database, relation, known, names, below)
    return f"SELECT * FROM ({select}) AS query({', '.join(map(quote, view.column_names))})"


def _logged(database: Database, table: ChangeTable) -> str:
    """The net rows of a durable change table, each as often as it is there."""
    net = database.log.net_query(table.scan, table.types)
    columns = ", ".join(f"c{i} AS {quote(column.name)}" for i, column in enumerate(table.columns))
    return f"SELECT {columns} FROM ({net}) AS net, unnest(range(net_weight)) AS copies(number)"
