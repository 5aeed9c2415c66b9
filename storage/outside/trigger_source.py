"""A table of another DuckDB file as a source: triggers in that file record the changes of all its clients.

The triggers write signed rows to a table of changes beside the table, in the writer's transaction. A read gives all
rows that have no number yet the next one, in a transaction of that file; the number is the offset. Rows up to the
offset are deleted at the next read, when the epoch that took them in has surely been committed. So each row is taken
in exactly once, in whatever order writers commit and wherever the reader dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sqlfront.storage.errors import OperationalError
from sqlfront.storage.outside.change_shapes import Wanted, shape_of, signed_rows
from sqlfront.storage.outside.sources import DUCKDB, fetched, relation_columns
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

_EVENTS = (
    ("insert", "NEW TABLE AS __new", "SELECT {}, 1, NULL FROM __new"),
    ("delete", "OLD TABLE AS __old", "SELECT {}, -1, NULL FROM __old"),
    ("update", "OLD TABLE AS __old NEW TABLE AS __new",
     "SELECT {}, -1, NULL FROM __old UNION ALL SELECT {}, 1, NULL FROM __new"),
)  # fmt: skip


class TriggerSource:
    """A table under triggers; the first read gives its rows. `open` gives a connection to its file, for one read.

    Triggers name what they write to without the file's name, so it may change; a client that has ATTACHed the file can
    write after USE of it.

    OperationalError if the triggers have been dropped since: changes may have been missed.
    """

    def __init__(self, name: str, open: Callable[[], Any], schema: str, table: str) -> None:
        self.name, self._open, self._named = name, open, table
        self._table = f"{quote(schema)}.{quote(table)}"
        self._changes = f"{quote(schema)}.{quote('__sqlfront_changes_' + table)}"

    def read(self, after: Any | None, wanted: Wanted) -> Iterator[tuple[pa.Table, Any]]:
        with self._open() as con:
            rows = self._next(con, after, wanted)
        if rows.num_rows:
            yield rows, (after or 0) + 1

    def _next(self, con: Any, after: Any | None, wanted: Wanted) -> pa.Table:
        """The rows of the batch after an offset."""
        done = after or 0
        self._prepare(con, after)
        con.execute(f"DELETE FROM {self._changes} WHERE _batch <= {done}")
        [(left,)] = con.execute(f"SELECT count(*) FROM {self._changes} WHERE _batch = {done + 1}").fetchall()
        if not left:  # Else a reader has died with them: they are the same batch again.
            con.execute(f"UPDATE {self._changes} SET _batch = {done + 1} WHERE _batch IS NULL")
        rows = f"(SELECT * FROM {self._changes} WHERE _batch = {done + 1})"
        shape = shape_of("weight", relation_columns(con, self._changes), wanted)
        return fetched(con, signed_rows(rows, shape, wanted, DUCKDB))

    def _prepare(self, con: Any, after: Any | None) -> None:
        """Make the triggers and record the present rows, in one transaction; or see that the triggers are there."""
        query = (
            "SELECT count(*) FROM duckdb_triggers() "
            "WHERE table_name = ? AND starts_with(trigger_name, '__sqlfront_source_')"
        )
        [(found,)] = con.execute(query, [self._named]).fetchall()
        if found == len(_EVENTS):
            return
        if found or after is not None:
            raise OperationalError(
                f"the changes of {self._named} may have been missed",
                why="the triggers that record them were dropped",
                hint="DROP CHANGE TABLE and make it anew: it begins with the table's present rows",
            )
        names = ", ".join(quote(name) for name in relation_columns(con, self._table))
        con.execute("BEGIN")
        try:
            con.execute(
                f"CREATE OR REPLACE TABLE {self._changes} AS "
                f"SELECT {names}, 1::BIGINT AS _weight, NULL::BIGINT AS _batch FROM {self._table}"
            )
            for event, tables, body in _EVENTS:
                con.execute(
                    f"CREATE TRIGGER __sqlfront_source_{event} AFTER {event.upper()} ON {self._table} "
                    f"REFERENCING {tables} FOR EACH STATEMENT INSERT INTO {self._changes} {body.format(names, names)}"
                )
            con.execute("COMMIT")
        except BaseException:
            con.execute("ROLLBACK")
            raise
