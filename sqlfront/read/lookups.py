"""Point look-ups: `WHERE column = constant` on a view goes to the tree instead of scanning it; so does
ORDER BY ... LIMIT in an order that the view keeps.

The name of the view in the statement's text is replaced by a scan that is narrowed to the constant; DuckDB still
filters, so narrowing can only save work. All other words stay as the user wrote them: printing the whole tree would
need DuckDB's word that it means the same, which costs more than the look-up.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlfront.database.entries import ViewEntry
from sqlfront.database.names import meant
from sqlfront.database.stored_views import view_query
from sqlfront.read.comparing import compares_as, output_variables
from sqlfront.read.constants import MISSING, constant_of
from sqlfront.read.counting import counted
from sqlfront.read.order_defaults import defaults_of
from sqlfront.read.ordered_reads import served_limit
from sqlfront.read.top import ranked_scan
from sqlfront.sql.statements import Equality, PassThrough
from sqlfront.storage.errors import DataError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session


def narrowed(session: Session, statement: PassThrough, params: Any) -> str:
    """The statement's text with narrowed scans in place of views that constants pin down, or without a scan at all."""
    if statement.kind not in ("select", "create_table_as", "copy_to") or not _names_a_view(session, statement.text):
        return statement.text
    database = session.database
    if (answer := counted(session, statement)) is not None:
        return answer
    text = statement.text
    references = statement.references or ()
    for number, reference in reversed(list(enumerate(references))):
        ordered = len(references) == 1 and statement.kind == "select"
        if not reference.equalities and not ordered:
            continue
        entry = database.views.get(meant(session, reference.parts) or ("", ""))
        if entry is None or session.has_moved_on(entry):
            continue
        scan = _ordered_scan(session, statement, entry, params) if ordered else None
        # Narrowed before its LIMIT, a view would have other rows.
        equalities = reference.equalities if entry.definition.limit is None else ()
        where = _codes(session, entry, equalities, params)
        if scan is not None or where is None or where:
            name = f"{session.database.scan_name(entry.scan)}_{number}"
            session.duck.register(name, scan or _narrow_scan(session, entry, where))
            session.scans[name] = None
            alias = "" if reference.alias else f" AS {quote(entry.name.name)}"
            query = view_query(entry.definition, entry, name)
            text = f"{text[: reference.start]}({query}){alias}{text[reference.end :]}"
    return text


def _names_a_view(session: Session, text: str) -> bool:
    """Whether a view's name stands in a text, as a name or not: all other texts need not be read."""
    return _pattern(tuple(name for _, name in session.database.views)).search(text.casefold()) is not None


@functools.lru_cache(maxsize=16)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """The names, or no text if there are none."""
    return re.compile("|".join(rf"(?<!\w){re.escape(quote(name)[1:-1])}(?!\w)" for name in names) or r"(?!)")


def _ordered_scan(session: Session, statement: PassThrough, entry: ViewEntry, params: Any) -> Any:
    """The scan of the first rows of one of the view's orders, or after values, as a query asks for them; else None."""
    served = served_limit(session, statement, entry, params)
    if served is None:
        return None
    number, limit, after = served
    return ranked_scan(session.database, entry, number, limit, session.reading_finder(), after)


def _narrow_scan(session: Session, entry: ViewEntry, where: Mapping[str, tuple[int, ...]] | None) -> Any:
    finder = session.reading_finder()
    if where is None:
        return session.database.scan_of(entry, finder, tuple)
    return session.database.view_scan(entry, finder, where)


def _codes(
    session: Session, entry: ViewEntry, equalities: Sequence[Equality], params: Any
) -> dict[str, tuple[int, ...]] | None:
    """The codes of variables that the equalities fix; None if they name a value that no row has.

    Where DuckDB may compare in another type than the column's, or by a collation, nothing is fixed.
    """
    variables = {} if equalities and defaults_of(session).collated else output_variables(entry)
    codes: dict[str, tuple[int, ...]] = {}
    for equality in equalities:
        variable = variables.get(equality.column.casefold())
        if variable is None:
            continue
        codec = entry.maintained.codecs[variable]
        value = constant_of(session.duck, equality.value, params)
        if value is MISSING or not compares_as(codec.type, value):
            continue
        try:
            code = codec.find_value(value)
        except DataError:
            continue
        if code is None:
            return None
        codes[variable] = code
    return codes
