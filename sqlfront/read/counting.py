"""`SELECT count(*) FROM v`: the tree knows the number of a view's rows, so nothing is scanned."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from sqlglot import exp

from sqlfront.database.names import meant
from sqlfront.sql.dialect import printed
from sqlfront.sql.query_trees import SHORT, clauses, only_table, query_tree
from sqlfront.sql.statements import PassThrough
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    from sqlfront.database.sessions import Session


def counted(session: Session, statement: PassThrough) -> str | None:
    """The statement with the number in place of the scan, if it counts all rows of a view and does nothing else.

    Under the engine's lock. O(1) in the rows.
    """
    from sqlfront.maintenance.output.output import row_count

    database = session.database
    references = statement.references or ()
    if statement.kind != "select" or len(references) != 1 or references[0].equalities:
        return None
    name = _column(statement.text) if len(statement.text) <= SHORT else None
    if name is None:
        return None
    entry = database.views.get(meant(session, references[0].parts) or ("", ""))
    if entry is None or entry.definition.is_filtered or session.has_moved_on(entry):
        return None
    database.make_readable(entry, session.current_reading())
    return f"SELECT CAST({row_count(entry.maintained)} AS BIGINT) AS {quote(name)}"


@functools.lru_cache(maxsize=512)
def _column(text: str) -> str | None:
    """The name of the column in `SELECT count(*) [AS name] FROM view [AS alias]`; None for any other query."""
    tree = query_tree(text)
    if not isinstance(tree, exp.Select) or clauses(tree) != {"expressions", "from_"} or only_table(tree) is None:
        return None
    item = tree.expressions[0]
    is_count = len(tree.expressions) == 1 and printed(item.unalias()).lower() == "count(*)"
    return item.alias or "count_star()" if is_count else None
