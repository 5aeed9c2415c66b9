"""`SELECT count(*) FROM v`: the tree knows the number of a view's rows, so nothing is scanned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlfront.database.names import meant
from sqlfront.sql.statements import PassThrough
from sqlfront.sql.tokens import Token, tokenize
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session

_COUNT = ["select", "count", "(", "*", ")"]


def counted(session: Session, statement: PassThrough) -> str | None:
    """The statement with the number in place of the scan, if it counts all rows of a view and does nothing else.

    Under the engine's lock. O(1) in the rows.
    """
    from sqlfront.maintenance.output.output import row_count

    database = session.database
    references = statement.references or ()
    if statement.kind != "select" or len(references) != 1 or references[0].equalities:
        return None
    name = _column(tokenize(statement.text), references[0].start, references[0].end)
    if name is None:
        return None
    entry = database.views.get(meant(session, references[0].parts) or ("", ""))
    if entry is None or entry.definition.is_filtered:
        return None
    database.refuse_unreadable(entry, session.current_reading())
    return f"SELECT CAST({row_count(entry.maintained)} AS BIGINT) AS {quote(name)}"


def _column(tokens: Sequence[Token], start: int, end: int) -> str | None:
    """What the column is called in `SELECT count(*) [[AS] name] FROM view [[AS] alias]`; None for any other text."""
    words = [token for token in tokens if token.text != ";"]
    before = [token for token in words if token.end <= start]
    after = [token for token in words if token.start >= end]
    head = [token.keyword or token.text for token in before]
    if head[: len(_COUNT)] != _COUNT or head[-1] != "from" or not _is_alias(after):
        return None
    named = before[len(_COUNT) : -1]
    if not named:
        return "count_star()"
    return named[-1].name if _is_alias(named) else None


def _is_alias(tokens: Sequence[Token]) -> bool:
    """Whether this is nothing, a name, or AS and a name."""
    if len(tokens) == 2 and tokens[0].keyword == "as":
        return tokens[1].is_name
    return not tokens or (len(tokens) == 1 and tokens[0].is_name)
