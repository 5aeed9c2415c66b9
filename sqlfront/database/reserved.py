"""What sqlfront keeps for itself in a database: the schema `__sqlfront`, and names that begin so, perhaps after `!`.

Lists of the catalog leave these names out: SHOW TABLES, and queries over the views and functions in `_LISTS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlfront.sql.name_parts import GAP, OPAQUE
from sqlfront.sql.recognise import CATALOG_WORDS, words
from sqlfront.sql.statements import PassThrough, parse_statement
from sqlfront.storage.errors import ProgrammingError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

RESERVED = "__sqlfront"
_LISTS = {
    "information_schema.tables": "table_name",
    "information_schema.columns": "table_name",
    "information_schema.views": "table_name",
    "duckdb_views": "view_name",
    "duckdb_columns": "table_name",
    "sqlite_master": "name",
    "sqlite_schema": "name",
    "pg_catalog.pg_class": "relname",
    "pg_catalog.pg_views": "viewname",
}
"""What lists relations, and the column with their names."""
_CALL = re.compile(rf"{OPAQUE}|(?P<list>\bduckdb_(?:views|columns))\s*\(\s*\)", re.IGNORECASE | re.DOTALL)
_SHOW_ALL = re.compile(rf"show{GAP}all\b", re.IGNORECASE | re.DOTALL)


def is_reserved(parts: Sequence[str]) -> bool:
    """Whether a name is in our schema or is one of ours."""
    own = parts[-1].casefold().lstrip("!")
    return any(part.casefold() == RESERVED for part in parts) or own.startswith(f"{RESERVED}_")


def is_reserved_sql(column: str) -> str:
    """SQL for whether the name in a column is one of ours."""
    return f"starts_with(ltrim(lower({column}), '!'), '{RESERVED}_')"


def refuse_reserved(statement: PassThrough) -> None:
    """Raise ProgrammingError for a statement that would write what is ours, or put our schema on the search path."""
    for target in statement.targets:
        if is_reserved(target.parts):
            raise reserved(".".join(target.parts))
    if statement.kind in ("use", "set") and RESERVED in statement.text.casefold():
        raise reserved(RESERVED)


def reserved(name: str) -> ProgrammingError:
    """The error for writing to a name of ours."""
    return ProgrammingError(
        f"{name} is kept by sqlfront and cannot be written or used",
        why="it holds what materialized views, change tables and captured changes are brought back from",
        hint="DROP MATERIALIZED VIEW and DROP CHANGE TABLE take away what they keep there",
    )


def without_reserved(statement: PassThrough) -> str:
    """SHOW [ALL] TABLES without what is ours."""
    query = statement.text.rstrip().rstrip(";")
    condition = f"NOT {is_reserved_sql('name')}"
    if _SHOW_ALL.match(query):
        condition += f" AND lower(schema) <> '{RESERVED}'"
    return f"SELECT * FROM ({query}) WHERE {condition}"


def listing(statement: PassThrough) -> PassThrough:
    """A statement that lists the catalog, without what is ours."""
    text = statement.text
    found = [
        (reference.start, reference.end, column, "" if reference.alias else f" AS {quote(reference.parts[-1])}")
        for reference in statement.references or ()
        if (column := _LISTS.get(".".join(reference.parts[-2:]).casefold()))
    ]
    for call in _CALL.finditer(text):
        if call["list"]:
            found.append((*call.span(), _LISTS[call["list"].casefold()], ""))
    for start, end, column, alias in sorted(found, reverse=True):
        text = f"{text[:start]}(FROM {text[start:end]} WHERE NOT {is_reserved_sql(column)}){alias}{text[end:]}"
    [changed] = parse_statement(text)
    return changed if isinstance(changed, PassThrough) else statement


def looks_into_catalog(session: Session, statement: PassThrough) -> bool:
    """Whether a statement only lists what there is, so that our scans need not be, and should not be, among it."""
    from sqlfront.database.reads_ours import reads_ours

    if statement.kind not in ("select", "create_table_as", "copy_to"):
        return False
    return any(word.startswith(CATALOG_WORDS) for word in words(statement.text)) and not reads_ours(session, statement)
