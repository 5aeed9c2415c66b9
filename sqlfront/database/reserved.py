"""What sqlfront keeps for itself in a database: the schema `__sqlfront`, and names that begin so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlfront.sql.name_parts import GAP
from sqlfront.sql.recognise import CATALOG_WORDS, words
from sqlfront.sql.statements import PassThrough
from sqlfront.storage.errors import ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

RESERVED = "__sqlfront"
_SHOW_ALL = re.compile(rf"show{GAP}all\b", re.IGNORECASE | re.DOTALL)


def is_reserved(parts: Sequence[str]) -> bool:
    """Whether a name is in our schema or is one of ours."""
    return any(part.casefold() == RESERVED for part in parts) or parts[-1].casefold().startswith(f"{RESERVED}_")


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
    condition = f"NOT starts_with(lower(name), '{RESERVED}_')"
    if _SHOW_ALL.match(query):
        condition += f" AND lower(schema) <> '{RESERVED}'"
    return f"SELECT * FROM ({query}) WHERE {condition}"


def looks_into_catalog(session: Session, statement: PassThrough) -> bool:
    """Whether a statement only lists what there is, so that our scans need not be, and should not be, among it."""
    from sqlfront.database.reads_ours import reads_ours

    if statement.kind not in ("select", "create_table_as", "copy_to"):
        return False
    return any(word.startswith(CATALOG_WORDS) for word in words(statement.text)) and not reads_ours(session, statement)
