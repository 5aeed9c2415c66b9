"""INSERT and DELETE in autocommit that tell their changes by RETURNING: DuckDB writes each row once and reads none.

The transaction's id is left in a variable, so our triggers pass its writes over. What another writer has committed is
not looked for: it is taken in before the next read, or if the epoch does not fit without it.
"""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.database.failures import expect_copy
from sqlfront.database.frames import as_user
from sqlfront.database.names import Key, captured_table
from sqlfront.database.transactions import Transaction, rollback
from sqlfront.database.user_settings import lossless
from sqlfront.sql.statements import PassThrough
from sqlfront.storage.capture.trigger_sql import begin_told
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.sessions import Session
    from sqlfront.maintenance.relation.base_relation import Relation

_SIGNS = {"insert": 1, "delete": -1}
_PLAIN = re.compile(r"U?(TINY|SMALL|BIG)INT|U?INTEGER|BOOLEAN|VARCHAR|FLOAT|DOUBLE|DATE|TIMESTAMP|DECIMAL\(\d+,\d+\)")
"""Types that Arrow restores without DuckDB's setting for it, which costs two statements."""


def write_returned(session: Session, statement: PassThrough, key: Key, params: Any) -> int | None:
    """Run a write of the captured table `key` as one epoch; how many rows it changed. None, and nothing is changed, if
    the triggers have to capture it."""
    import duckdb

    database, con = session.database, session.duck
    if statement.kind not in _SIGNS or statement.inner or statement.upsert or statement.returning:
        return None
    if not database.capture.takes_returned:
        return None
    relation = database.engine.relations.get(database.relation_key(captured_table(database, key)))
    if relation is None:
        return None
    con.execute(begin_told())
    transaction = session.transaction = Transaction(database, con)
    started = time.perf_counter()
    try:
        rows = _returned(con, relation, statement.text, params)
    except (duckdb.BinderException, duckdb.ParserException):  # A clause that RETURNING does not go with, or no column.
        session.transaction = None
        rollback(con)
        return None
    except BaseException:
        session.transaction = None
        rollback(con)
        raise
    session.transaction = None
    transaction.writing = time.perf_counter() - started
    transaction.commit_returned(relation.name, rows, _SIGNS[statement.kind])
    return int(rows.num_rows)


def _returned(con: Any, relation: Relation, text: str, params: Any) -> pa.Table:
    names = ", ".join(quote(column.name) for column in relation.columns)
    plain = all(_PLAIN.fullmatch(column.type) for column in relation.columns)
    with nullcontext() if plain else lossless(con):
        as_user(partial(con.execute, f"{text}\nRETURNING {names}", params))
        expect_copy()
        return con.to_arrow_table()
