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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlfront.storage.capture.setup import columns, unique_keys
from sqlfront.storage.capture.statement_parts import Parts, dissect, number_parameters, parameter_names
from sqlfront.storage.capture.trigger_sql import Captured, delta_sql, table_sql
from sqlfront.storage.errors import InternalError, NotSupportedError
from sqlfront.storage.sql_text import exact, quote

if TYPE_CHECKING:
    import pyarrow as pa

Parameters = Sequence[Any] | Mapping[str, Any] | None

SOURCE = "temp.main.__sqlfront_source"
BEFORE = "temp.main.__sqlfront_before"
AFTER = "temp.main.__sqlfront_after"


@dataclass(frozen=True)
class Target:
    """What is known of the table: its SQL name and its delta table's, and of its columns the type and if generated."""

    captured: Captured
    table: str
    delta: str
    types: dict[str, str]
    generated: frozenset[str]
    keys: tuple[tuple[str, ...], ...]


def run(con: Any, database: str, captured: Captured, statement: str, parameters: Any, many: bool) -> pa.Table:
    """Run the statement for each parameter set, in the open transaction and without triggers; write the delta rows."""
    import pyarrow as pa

    target = _describe(con, database, captured)
    parts = dissect(number_parameters(statement))
    results = [_run_one(con, target, statement, parts, values) for values in (parameters if many else [parameters])]
    con.execute("".join(f"DROP TABLE IF EXISTS {name};" for name in (SOURCE, BEFORE, AFTER)))
    result = pa.concat_tables(results)
    if result.column_names == ["Count"] and result.num_rows > 1:
        return pa.table({"Count": [sum(result.column("Count").to_pylist())]})
    return result


def _describe(con: Any, database: str, captured: Captured) -> Target:
    types, generated = columns(con, database, captured.table)
    if any(name.casefold() == "rowid" for name in types):
        raise NotSupportedError(
            "an upsert or MERGE into a table with a column named rowid",
            where=f"table {captured.table}",
            why="the rows that change are found by DuckDB's rowid, which the column hides",
            hint="write it as UPDATE, DELETE and INSERT, or rename the column",
        )
    keys = unique_keys(con, database, captured.table)
    return Target(captured, table_sql(database, captured.table), delta_sql(database, captured), types, generated, keys)


def _run_one(con: Any, target: Target, statement: str, parts: Parts | None, parameters: Parameters) -> pa.Table:
    before, on_source = _prepare(con, target, parts, parameters) if parts else (None, False)
    query = before or f"SELECT {_images(target, '__t')} FROM {target.table} __t"
    con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_before AS {query}", _used(query, parameters)).fetchall()
    marks = f"SELECT (SELECT max(rowid) FROM {target.table}), (SELECT count(*) FROM {target.table}), min(r), max(r)"
    [(last, rows, low, high)] = con.execute(f"{marks} FROM {BEFORE}").fetchall()
    if parts and on_source:
        source = "SELECT * FROM " + SOURCE if parts.kind == "insert" else f"{SOURCE} AS {parts.source_alias}"
        rewritten = parts.head + source + parts.tail
        result = con.sql(rewritten, params=_used(rewritten, parameters)).to_arrow_table()
    else:
        result = con.sql(statement, params=parameters).to_arrow_table()
    if low is not None:
        _copy_after(con, target, low, high)
    _write_delta(con, target, -1 if last is None else last, rows, low is not None)
    return result


def _used(fragment: str, parameters: Parameters) -> dict[str, Any] | None:
    """Those of the parameters that the fragment names: DuckDB refuses any in excess."""
    if not parameters:
        return None
    if not isinstance(parameters, Mapping):
        parameters = {str(i): value for i, value in enumerate(parameters, 1)}
    names = parameter_names(fragment)
    return {name: value for name, value in parameters.items() if name in names} or None


def _images(target: Target, alias: str) -> str:
    """The rowid as r and the captured columns as c0, c1, ... of a table under an alias."""
    images = (f", {alias}.{quote(name)} AS c{i}" for i, name in enumerate(target.captured.columns))
    return f"{alias}.rowid AS r{''.join(images)}"


def _prepare(con: Any, target: Target, parts: Parts, parameters: Parameters) -> tuple[str | None, bool]:
    """A query for the images of the superset B (None: the whole table), and whether the source is materialised."""
    if parts.kind == "insert":
        return _prepare_insert(con, target, parts, parameters)
    if parts.by_source:
        return None, False
    query = f"SELECT * FROM {parts.source}"
    con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_source AS {query}", _used(query, parameters)).fetchall()
    source = f"{SOURCE} AS {parts.source_alias}"
    return f"SELECT {_images(target, parts.target_name)} FROM {parts.target} SEMI JOIN {source} {parts.condition}", True


def _prepare_insert(con: Any, target: Target, parts: Parts, parameters: Parameters) -> tuple[str | None, bool]:
    types = {name.casefold(): kind for name, kind in target.types.items()}
    keys = target.keys if parts.conflict is None else (tuple(name.casefold() for name in parts.conflict),)
    covered = {name for key in keys for name in key}
    if parts.by_name:
        query = f"CREATE OR REPLACE TEMP TABLE __sqlfront_source AS {parts.source}"
        con.execute(query, _used(query, parameters)).fetchall()
        provided = [row[0].casefold() for row in con.execute(f"DESCRIBE {SOURCE}").fetchall()]
    else:
        listed = parts.columns or [name for name in target.types if name not in target.generated]
        provided = [name.casefold() for name in listed]
        if not set(provided) <= set(types):
            return None, False
        names = ", ".join(quote(name) for name in provided)
        query = f"SELECT {names} FROM {target.table} LIMIT 0"  # the target's types: it casts as the INSERT does
        con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_source AS {query}").fetchall()
        query = f"INSERT INTO {SOURCE} {parts.source}"
        con.execute(query, _used(query, parameters)).fetchall()
    if not keys or not covered <= set(provided) & set(types):
        return None, True
    joins = []
    for key in keys:
        pairs = " AND ".join(f"__k.{quote(name)} = __s.{quote(name)}::{types[name]}" for name in key)
        joins.append(f"SELECT {_images(target, '__k')} FROM {target.table} __k SEMI JOIN {SOURCE} __s ON {pairs}")
    return joins[0] if len(joins) == 1 else f"SELECT DISTINCT ON (r) * FROM ({' UNION ALL '.join(joins)})", True


def _copy_after(con: Any, target: Target, low: int, high: int) -> None:
    """The images, now, of the rows of B that kept their rowid; `low`, `high`: the range of rowids in B.

    Never join on the pseudo-column itself: DuckDB 2.0.0 then loses rows (the Bloom filter that a
    join pushes into the scan goes wrong on rowids of later row groups). OFFSET 0 keeps it out.
    """
    kept = f"SELECT {_images(target, '__t')} FROM {target.table} __t WHERE rowid BETWEEN {low} AND {high} OFFSET 0"
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE __sqlfront_after AS FROM ({kept}) SEMI JOIN {BEFORE} USING (r)"
    ).fetchall()


def _write_delta(con: Any, target: Target, last: int, rows: int, images: bool) -> None:
    """Write the difference between the images and the table as it is now; `last`, `rows`: as they were before."""
    differ, old, new = ["false"], "", ""
    for i, name in enumerate(target.captured.columns):
        # DuckDB's equality must not hide a change of case, or of 30 days to 1 month.
        was, is_ = (exact(f"{image}.c{i}", target.types[name]) for image in ("__b", "__a"))
        differ.append(f"{was} IS DISTINCT FROM {is_}")
        old, new = f"{old}, __b.c{i}", f"{new}, __a.c{i}"
    changed, names = " OR ".join(differ), "".join(f", {quote(name)}" for name in target.captured.columns)
    gone, come = 0, 0
    if images:
        [(gone,)] = con.execute(
            f"INSERT INTO {target.delta} SELECT -1, txid_current(){old} FROM {BEFORE} __b "
            f"LEFT JOIN {AFTER} __a USING (r) WHERE __a.r IS NULL OR {changed}"
        ).fetchall()
    kept = f"SELECT 1, txid_current(){new} FROM {AFTER} __a JOIN {BEFORE} __b USING (r) WHERE {changed} UNION ALL "
    [(come,)] = con.execute(
        f"INSERT INTO {target.delta} {kept if images else ''}"
        f"SELECT 1, txid_current(){names} FROM {target.table} WHERE rowid > {last}"
    ).fetchall()
    [(now,)] = con.execute(f"SELECT count(*) FROM {target.table}").fetchall()
    if now - rows != come - gone:
        raise InternalError(
            f"the statement changed the number of rows by {now - rows}, the captured changes by {come - gone}",
            where=f"table {target.captured.table}",
            why="the change could not be captured exactly; nothing was changed",
        )
