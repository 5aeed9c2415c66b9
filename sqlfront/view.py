"""A handle on one materialized view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from sqlfront.explanation import Explanation, explain_view
from sqlfront.lookups import output_variables
from sqlfront.names import shown
from sqlfront.state import state_rows
from storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database import ViewEntry


class View:
    """A materialized view of a connection's database: what it holds and what it costs."""

    def __init__(self, connection: Connection, entry: ViewEntry) -> None:
        self._connection, self._entry = connection, entry

    @property
    def name(self) -> str:
        return shown(self._entry.name)

    def count(self) -> int:
        """The number of SQL rows. O(1) for bags and one-table results; else a walk over the tuples."""
        from maintenance.output import row_count

        transaction = self._connection._transaction
        if self._entry.definition.having or (transaction is not None and transaction.touched()):
            return self._connection.sql(f"SELECT count(*) FROM {self._entry.name}").fetchall()[0][0]
        with self._reading():
            return row_count(self._entry.maintained)

    def contains(self, row: Sequence[Any] | Mapping[str, Any]) -> bool:
        """Whether a row (values in column order, or by name) is in the view. O(1) where an index leads to it."""
        names = [name for name, _ in self._entry.definition.columns]
        if isinstance(row, Mapping):
            unknown = set(row) - set(names)
            if unknown or len(row) != len(names):
                raise ProgrammingError(f"a row of {self.name} has the columns {', '.join(names)}")
            values = [row[name] for name in names]
        elif len(row) != len(names):
            raise ProgrammingError(f"{self.name} has {len(names)} columns, the row has {len(row)} values")
        else:
            values = list(row)
        transaction = self._connection._transaction
        free = output_variables(self._entry)
        plain = set(free) == {name.casefold() for name in names} and not self._entry.definition.having
        if plain and (transaction is None or not transaction.touched()):
            from maintenance.output import contains

            with self._reading():
                return contains(
                    self._entry.maintained, {free[n.casefold()]: v for n, v in zip(names, values, strict=True)}
                )
        types = [type_ for _, type_ in self._entry.definition.columns]
        where = " AND ".join(f'"{n}" IS NOT DISTINCT FROM CAST(? AS {t})' for n, t in zip(names, types, strict=True))
        query = f"SELECT EXISTS (SELECT 1 FROM {self._entry.name} WHERE {where})"
        return bool(self._connection.execute(query, values).fetchall()[0][0])

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, of one epoch."""
        return self._connection.sql(f"SELECT * FROM {self._entry.name}").fetchall()

    def top(self, k: int) -> list[tuple[Any, ...]]:
        """The first k rows of the view's order; views have no order yet."""
        raise NotSupportedError(
            "View.top is not supported yet", why="views with ORDER BY come later", hint="SELECT ... ORDER BY ... LIMIT"
        )

    def state(self) -> list[dict[str, Any]]:
        """What the view keeps, one dictionary per stored node, as SHOW STATE FOR it."""
        keys = ("view", "node", "kind", "rows", "entries", "bytes", "load", "longest_probe", "shared")
        with self._reading():
            rows = state_rows(self._connection._database, [self._entry])
        return [dict(zip(keys, row, strict=True)) for row in rows if row[0] is not None]

    def cost(self) -> dict[str, int]:
        """Elementary steps of updates since the view was built: slots looked at, list members visited, rows written."""
        with self._reading():
            return {"steps": self._connection._database.engine.counters(self._entry.maintained)}

    def explain(self) -> Explanation:
        """How the view is maintained."""
        return explain_view(self._connection._database, self._connection._duck, self._entry.name.key)

    def subscribe(self, *arguments: Any, **options: Any) -> None:
        """Changes of the view as they happen; not supported yet."""
        raise NotSupportedError("View.subscribe is not supported yet", why="change feeds of views come next")

    def _reading(self) -> AbstractContextManager[None]:
        self._connection._ready()
        self._connection._start_reading()
        self._connection._database.refuse_lost(self._entry)
        return self._connection._current_session().holding()
