"""The exact changes of an upsert or MERGE, which triggers cannot see.

The source is evaluated once, into a temporary table. Then a *superset* B of the rows that the
statement can change is copied with their rowids: for INSERT those that equal a source row on the
conflict key, for MERGE those that join a source row. The statement runs; a changed row has then
either kept its rowid or been written anew. DuckDB only ever appends, so with m the largest rowid
before, the table changed by

    - {rows of B}  + {rows now whose rowid is in B}  + {rows now with rowid > m},

whatever the statement did to the keys. The superset is what makes this exact; where it cannot be
shown (volatile or nested conditions, WHEN NOT MATCHED BY SOURCE, defaults in the key, forms
`dissect` does not know) B is the whole table and the statement runs as it was written.
The row count before and after is compared with the sum of the captured weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.capture_parse import Parts, dissect, number_parameters, parameter_names
from storage.capture_setup import column_types
from storage.capture_sql import Captured, QualifiedName, delta_sql, literal, quote, table_sql
from storage.errors import InternalError, NotSupportedError

if TYPE_CHECKING:
    import pyarrow as pa

Parameters = Sequence[Any] | Mapping[str, Any] | None

SOURCE = "temp.main.__sqlfront_source"
BEFORE = "temp.main.__sqlfront_before"
AFTER = "temp.main.__sqlfront_after"


def run(con: Any, database: str, captured: Captured, statement: str, parameters: Any, many: bool) -> pa.Table:
    """Run the statement for each parameter set, in the open transaction and without triggers; write the delta rows."""
    import pyarrow as pa

    if any(name.casefold() == "rowid" for name in column_types(con, database, captured.table)):
        raise NotSupportedError(
            "an upsert or MERGE into a table with a column named rowid",
            where=f"table {captured.table}",
            why="the rows that change are found by DuckDB's rowid, which the column hides",
            hint="write it as UPDATE, DELETE and INSERT, or rename the column",
        )
    parts = dissect(number_parameters(statement))
    results = []
    for values in parameters if many else [parameters]:
        results.append(_run_one(con, database, captured, statement, parts, values))
    for name in (SOURCE, BEFORE, AFTER):
        con.execute(f"DROP TABLE IF EXISTS {name}")
    result = pa.concat_tables(results)
    if result.column_names == ["Count"] and result.num_rows > 1:
        return pa.table({"Count": [sum(result.column("Count").to_pylist())]})
    return result


def _run_one(
    con: Any, database: str, captured: Captured, statement: str, parts: Parts | None, parameters: Parameters
) -> pa.Table:
    table = table_sql(database, captured.table)
    before, on_source = _prepare(con, database, captured, parts, parameters) if parts else (None, False)
    query = before or f"SELECT {_images(captured, '__t')} FROM {table} __t"
    con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_before AS {query}", _used(query, parameters)).fetchall()
    [(last, rows)] = con.execute(f"SELECT coalesce(max(rowid), -1), count(*) FROM {table}").fetchall()
    if parts and on_source:
        source = "SELECT * FROM " + SOURCE if parts.kind == "insert" else f"{SOURCE} AS {parts.source_alias}"
        rewritten = parts.head + source + parts.tail
        result = con.sql(rewritten, params=_used(rewritten, parameters)).to_arrow_table()
    else:
        result = con.sql(statement, params=parameters).to_arrow_table()
    _write_delta(con, database, captured, last, rows)
    return result


def _images(captured: Captured, alias: str) -> str:
    """The rowid as r and the captured columns as c0, c1, ... of a table under an alias."""
    return f"{alias}.rowid AS r" + "".join(f", {alias}.{quote(name)} AS c{i}" for i, name in enumerate(captured.columns))


def _used(fragment: str, parameters: Parameters) -> dict[str, Any] | None:
    """Those of the parameters that the fragment names: DuckDB refuses any in excess."""
    if not parameters:
        return None
    if not isinstance(parameters, Mapping):
        parameters = {str(i): value for i, value in enumerate(parameters, 1)}
    names = parameter_names(fragment)
    return {name: value for name, value in parameters.items() if name in names} or None


def _prepare(
    con: Any, database: str, captured: Captured, parts: Parts, parameters: Parameters
) -> tuple[str | None, bool]:
    """A query for the images of the superset B (None: the whole table), and whether the source is materialised."""
    if parts.kind == "insert":
        return _prepare_insert(con, database, captured, parts, parameters)
    if parts.by_source:
        return None, False
    query = f"SELECT * FROM {parts.source}"
    con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_source AS {query}", _used(query, parameters)).fetchall()
    source = f"{SOURCE} AS {parts.source_alias}"
    return f"SELECT {_images(captured, parts.target_name)} FROM {parts.target} SEMI JOIN {source} {parts.condition}", True


def _prepare_insert(
    con: Any, database: str, captured: Captured, parts: Parts, parameters: Parameters
) -> tuple[str | None, bool]:
    table, target = captured.table, table_sql(database, captured.table)
    types = {name.casefold(): kind for name, kind in column_types(con, database, table).items()}
    keys = _conflict_keys(con, database, table, parts)
    covered = {name for key in keys for name in key}
    if parts.by_name:
        query = f"CREATE OR REPLACE TEMP TABLE __sqlfront_source AS {parts.source}"
        con.execute(query, _used(query, parameters)).fetchall()
        provided = [row[0].casefold() for row in con.execute(f"DESCRIBE {SOURCE}").fetchall()]
    else:
        provided = [name.casefold() for name in parts.columns or column_types(con, database, table, generated=False)]
        if not keys or not covered <= set(provided) or not set(provided) <= set(types):
            return None, False
        columns = ", ".join(quote(name) for name in provided)
        query = f"SELECT {columns} FROM {target} LIMIT 0"  # the column types of the target, so that it casts as INSERT does
        con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_source AS {query}").fetchall()
        query = f"INSERT INTO {SOURCE} {parts.source}"
        con.execute(query, _used(query, parameters)).fetchall()
    if not keys or not covered <= set(provided) & set(types):
        return None, True
    joins = []
    for key in keys:
        pairs = " AND ".join(f"__k.{quote(name)} = __s.{quote(name)}::{types[name]}" for name in key)
        joins.append(f"SELECT {_images(captured, '__k')} FROM {target} __k SEMI JOIN {SOURCE} __s ON {pairs}")
    return joins[0] if len(joins) == 1 else f"SELECT DISTINCT ON (r) * FROM ({' UNION ALL '.join(joins)})", True


def _conflict_keys(con: Any, database: str, table: QualifiedName, parts: Parts) -> list[tuple[str, ...]]:
    """The keys on which the INSERT can meet a row that it changes; none if they are not plain columns."""
    if parts.conflict is not None:
        return [tuple(name.casefold() for name in parts.conflict)]
    there = (
        f"WHERE database_name = {literal(database)} AND schema_name = {literal(table.schema)} "
        f"AND table_name = {literal(table.name)}"
    )
    if con.execute(f"SELECT 1 FROM duckdb_indexes() {there} AND is_unique").fetchall():
        return []
    keys = con.execute(
        f"SELECT constraint_column_names FROM duckdb_constraints() {there} "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
    ).fetchall()
    return [tuple(name.casefold() for name in key) for (key,) in keys]


def _write_delta(con: Any, database: str, captured: Captured, last: int, rows: int) -> None:
    """Write the difference between the images and the table as it is now; `last`, `rows`: as they were before."""
    table, delta = table_sql(database, captured.table), delta_sql(database, captured)
    types = column_types(con, database, captured.table)
    differ, old, new = ["false"], "", ""
    for i, name in enumerate(captured.columns):
        # a collation must not hide a change of case
        exact = ' COLLATE "binary"' if types[name] == "VARCHAR" else ""
        differ.append(f"(__b.c{i}{exact}) IS DISTINCT FROM (__a.c{i}{exact})")
        old, new = f"{old}, __b.c{i}", f"{new}, __a.c{i}"
    changed, names = " OR ".join(differ), "".join(f", {quote(name)}" for name in captured.columns)
    _copy_after(con, captured, table)
    [(gone,)] = con.execute(
        f"INSERT INTO {delta} SELECT -1, txid_current(){old} FROM {BEFORE} __b LEFT JOIN {AFTER} __a USING (r) "
        f"WHERE __a.r IS NULL OR {changed}"
    ).fetchall()
    [(come,)] = con.execute(
        f"INSERT INTO {delta} SELECT 1, txid_current(){new} FROM {AFTER} __a JOIN {BEFORE} __b USING (r) "
        f"WHERE {changed} UNION ALL SELECT 1, txid_current(){names} FROM {table} WHERE rowid > {last}"
    ).fetchall()
    [(now,)] = con.execute(f"SELECT count(*) FROM {table}").fetchall()
    if now - rows != come - gone:
        raise InternalError(
            f"the statement changed the number of rows by {now - rows}, the captured changes by {come - gone}",
            where=f"table {captured.table}",
            why="the change could not be captured exactly; nothing was changed",
        )


def _copy_after(con: Any, captured: Captured, table: str) -> None:
    """The images, now, of the rows of B that kept their rowid.

    Never join on the pseudo-column itself: DuckDB 2.0.0 then loses rows (the Bloom filter that a
    join pushes into the scan goes wrong on rowids of later row groups). OFFSET 0 keeps it out.
    """
    [(low, high)] = con.execute(f"SELECT coalesce(min(r), 0), coalesce(max(r), -1) FROM {BEFORE}").fetchall()
    kept = f"SELECT {_images(captured, '__t')} FROM {table} __t WHERE rowid BETWEEN {low} AND {high} OFFSET 0"
    con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_after AS FROM ({kept}) SEMI JOIN {BEFORE} USING (r)").fetchall()
