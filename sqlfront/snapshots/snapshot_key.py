"""What a snapshot depends on: it is adopted only where all of this is as it was when the snapshot was written."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlfront.database.database import SCHEMA
from sqlfront.storage.canonical_text import digest
from sqlfront.storage.capture import setup
from sqlfront.storage.capture.trigger_sql import Captured, delta_sql, table_sql
from sqlfront.storage.native.native_file import fingerprint_of

_HERE = Path(__file__).parents[1]
_HEADER = 1 << 12
"""The bytes of a DuckDB file that hold its random identifier, and do not change while the file exists."""
_DESCRIPTORS = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
"""Where systems with POSIX locks list a process's open descriptors."""
MEANINGS = {
    "code": "another release of sqlfront has written it",
    "duckdb": "another version of DuckDB has written it",
    "byteorder": "a machine of another kind has written it",
    "file": "it is the snapshot of another file",
    "rows": "rows of a table have changed unseen",
    "change tables": "change tables have been made, altered or dropped since",
}
"""Why a snapshot is refused, by the part of its key that differs."""
_DECLARED = (
    "SELECT schema_name, table_name, 'column', column_name, data_type, is_nullable FROM duckdb_columns() "
    "WHERE database_name = ? ORDER BY column_index ASC",
    "SELECT schema_name, table_name, constraint_text, referenced_table, referenced_column_names "
    "FROM duckdb_constraints() WHERE database_name = ? ORDER BY ALL ASC",
    # DuckDB lists collations nowhere but in the table's statement.
    "SELECT schema_name, table_name, sql FROM duckdb_tables() WHERE database_name = ? AND contains(sql, 'COLLATE')",
)
"""What DuckDB knows of the declarations of tables."""


def key_of(path: str, con: Any) -> dict[str, Any]:
    """What all of a file's snapshot depends on, but for its views. `con` is a connection to the file."""
    import duckdb

    tables = con.execute(f"SELECT * FROM {SCHEMA}.change_tables ORDER BY ALL ASC").fetchall()
    [(name,)] = con.execute("SELECT current_database()").fetchall()
    captures = setup.booked(con, name)
    return {
        "code": code_fingerprint(),
        "duckdb": duckdb.__version__,
        "byteorder": sys.byteorder,
        "file": file_identity(path),
        "rows": settled_rows(con, name, captures),
        "declared": declared_tables(con, name, captures),
        "change tables": digest(tables),
    }


def settled_rows(con: Any, database: str, captures: Sequence[Captured]) -> dict[str, int | None]:
    """How many rows each captured table has, without the changes that wait to be taken in; None if it is gone. One
    query, and one for each table if one is gone."""
    import duckdb

    counts = (
        f"SELECT {number}, (SELECT count(*) FROM {table_sql(database, captured.table)}) "
        f"- (SELECT coalesce(sum(w), 0) FROM {delta_sql(database, captured)})"
        for number, captured in enumerate(captures)
    )
    try:
        found = dict(con.execute(" UNION ALL ".join(counts)).fetchall()) if captures else {}
    except duckdb.CatalogException:
        if len(captures) == 1:
            return {str(captures[0].table): None}
        return {name: rows for one in captures for name, rows in settled_rows(con, database, [one]).items()}
    return {str(captured.table): int(found[number]) for number, captured in enumerate(captures)}


def declared_tables(con: Any, database: str, captures: Iterable[Captured]) -> dict[str, str]:
    """How each captured table is declared, on which plans rest: a hash of its constraints, and of the types and
    collations of the columns that are captured. Other columns may come, and defaults may change."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for query in _DECLARED:
        for schema, table, *fact in con.execute(query, [database]).fetchall():
            found[schema, table].append(fact)
    return {
        str(captured.table): digest(
            [
                fact
                for fact in found[captured.table.schema, captured.table.name]
                if fact[0] != "column" or fact[1] in captured.columns
            ]
        )
        for captured in captures
    }


@functools.cache
def code_fingerprint() -> str:
    """A hash of the sources of all packages: what words stand for is up to them."""
    packages = (_HERE, *(_HERE / name for name in ("maintenance", "planner", "storage")))
    return hashlib.sha256(" ".join(fingerprint_of(one.resolve()) for one in packages).encode()).hexdigest()[:20]


def file_identity(path: str) -> str:
    """A hash of the identifier that DuckDB gives a file when it makes the file: a copy has the same, an import not.

    A POSIX lock goes with the first descriptor of the file that its process closes: with one of our own, DuckDB's lock
    would go. So the file is read by DuckDB's descriptor while this process has the file open.
    """
    descriptor = _descriptor_of(path)
    header = _read(path) if descriptor is None else os.pread(descriptor, _HEADER, 0)
    return hashlib.sha256(header).hexdigest()[:20]


def _descriptor_of(path: str) -> int | None:
    """A descriptor by which this process has a file open; None if there is none."""
    if not hasattr(os, "pread"):
        return None  # Windows, where a lock goes with its own descriptor.
    wanted = os.stat(path)
    for name in os.listdir(_DESCRIPTORS):
        with suppress(OSError):  # The descriptor of the list itself is closed by now.
            if os.path.samestat(os.fstat(int(name)), wanted):
                return int(name)
    return None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_HEADER)


def stored_views(con: Any) -> dict[int, str]:
    """The views of the file by their scans, each with a hash of all that the file says of it."""
    found = con.execute(f"SELECT * FROM {SCHEMA}.views")
    place = [column[0] for column in found.description].index("scan")
    return {row[place]: digest(row) for row in found.fetchall()}
