"""A handle on one materialized view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, overload

from sqlfront.database import arguments
from sqlfront.database.names import shown
from sqlfront.database.transactions import check_all
from sqlfront.database.view_time import late_views
from sqlfront.feeds.feed import HELD_ROWS, CallbackThread, Subscription, subscribe
from sqlfront.read.comparing import is_same, output_variables
from sqlfront.read.order_defaults import defaults_of
from sqlfront.read.short_reads import UNKNOWN, get_directly, get_rows
from sqlfront.storage.capture.trigger_sql import table_sql
from sqlfront.storage.codecs.nested_types import parse_nested, with_fields
from sqlfront.storage.errors import ProgrammingError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.connection import Connection
    from sqlfront.database.entries import ViewEntry
    from sqlfront.explain.explanation import Explanation
    from sqlfront.feeds.copies import Copy


class View:
    """A materialized view of a connection's database: what it holds and what it costs."""

    def __init__(self, connection: Connection, entry: ViewEntry) -> None:
        self._connection, self._entry = connection, entry
        self._variables: dict[str, str] | None = None
        self._quick: tuple[int, tuple[str, ...]] | None = None

    @property
    def name(self) -> str:
        return shown(self._entry.name)

    def count(self) -> int:
        """The number of SQL rows. O(1), but for HAVING, QUALIFY and inside a transaction: then a query counts them.

        A DISTINCT that several nodes hold and whose changes cost more than O(1) is counted, once after a change.
        """
        from sqlfront.maintenance.output.output import row_count

        if not self._entry.definition.is_filtered:
            with self._reading() as at_hand:
                if at_hand:
                    return row_count(self._entry.maintained)
        return self._connection.sql(f"SELECT count(*) FROM {self._in_full}").fetchall()[0][0]

    def get(self, *key: Any) -> tuple[Any, ...] | None:
        """The row of a group by its GROUP BY columns, in the view's column order; None if there is none.

        O(1), without SQL where each column is a key, a count or a sum. Before, other writers of DuckDB's tables are
        looked for, by one small query. Views over change tables do not need it, nor does a database in memory whose
        sessions have told what they wrote.
        ProgrammingError for a view without GROUP BY, or with GROUP BY columns that it does not put out.
        """
        quick, session = self._quick, self._connection.session
        database = session.database
        if quick is not None and quick[0] == database.revision and session.transaction is None and not session.closed:
            with database.lock:
                found = get_directly(self._entry, quick[1], key)
            if found is not UNKNOWN:
                return found
        [found] = self.get_many([key])
        return found

    def get_many(self, keys: Iterable[Sequence[Any]]) -> list[tuple[Any, ...] | None]:
        """As `get` for many keys, all of one epoch: a row or None for each."""
        variables = self._key()
        wanted = [self._checked(key, variables) for key in arguments.several(keys, "keys")]
        with self._reading() as at_hand:
            found = get_rows(self._entry, tuple(variables.values()), wanted) if at_hand else None
            self._note_quick(tuple(variables.values()))
        if found is not None:
            return found
        return [self._selected(list(variables), key) for key in wanted]

    def contains(self, row: Sequence[Any] | Mapping[str, Any]) -> bool:
        """Whether a row (values in column order, or by name) is in the view, compared as DuckDB compares.

        O(1) where an index leads to it, for values of the columns' own types; else a query.
        ProgrammingError for what is no row of the view, DataError for a value that DuckDB cannot compare.
        """
        values = self._values(row)
        names = [name for name, _ in self._entry.definition.columns]
        free = output_variables(self._entry)
        whole = not self._entry.definition.having and not self._entry.definition.limit
        plain = whole and set(free) == {name.casefold() for name in names}
        plain = plain and not defaults_of(self._connection.session).collated
        if plain:
            from sqlfront.maintenance.output.output import contains

            wanted = {free[name.casefold()]: value for name, value in zip(names, values, strict=True)}
            codecs = self._entry.maintained.codecs
            same = [is_same(codecs[variable].type, value) for variable, value in wanted.items()]
            if None not in same:
                with self._reading() as at_hand:
                    if at_hand:
                        return all(same) and contains(self._entry.maintained, wanted)
        tests, given = [], []
        for (name, type_), value in zip(self._entry.definition.columns, values, strict=True):
            # Equalities lead to the tree; IS NOT DISTINCT FROM would not.
            if value is None:
                tests.append(f"{quote(name)} IS NULL")
                continue
            nested = parse_nested(type_)
            tests.append(f"{quote(name)} = " + ("?" if nested is None else f"CAST(? AS {type_})"))
            given.append(value if nested is None else with_fields(value, nested))
        query = f"SELECT EXISTS (SELECT 1 FROM {self._in_full} WHERE {' AND '.join(tests)})"
        return bool(self._connection.execute(query, given).fetchall()[0][0])

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, of one epoch."""
        return self._connection.sql(f"SELECT * FROM {self._in_full}").fetchall()

    def top(self, k: int) -> list[tuple[Any, ...]]:
        """The first k rows in the view's order, that of its ORDER BY and then of its columns.

        O(k log N) with a ranked tree, else a sort of its rows. ProgrammingError if it has no order or k is negative.
        """
        from sqlfront.read.top import top_rows

        self._connection.session.ready()
        return top_rows(self._connection.session, self._entry, arguments.whole(k, "k"))

    def ordered(self) -> Iterator[tuple[Any, ...]]:
        """The view's rows in its order, found one after the other as they are asked for, O(log N) each.

        Raises StaleRead at the next row that is not there yet once the data has changed, NotSupportedError where rows
        are sorted when they are read or a column has to be computed by DuckDB, and in a transaction.
        """
        from sqlfront.read.top import ordered_rows

        self._connection.session.ready()
        return ordered_rows(self._connection.session, self._entry)

    def state(self) -> list[dict[str, Any]]:
        """What the view keeps, one dictionary per stored node, as SHOW STATE FOR it."""
        from sqlfront.explain.state_rows import STATE, state_rows

        with self._looking():
            rows = state_rows(self._connection.session.database, [self._entry])
        return [dict(zip(STATE, row, strict=True)) for row in rows if row[0] is not None]

    def cost(self) -> dict[str, int]:
        """Elementary steps since the view was built: slots looked at, list members visited, rows written, rows that
        DuckDB computes groups from.

        `steps` are those of changes, also of finding what a change makes of the view's rows where somebody asks for
        that; `read_steps` those of reads: by this handle, in SQL, by other views that are built.
        """
        with self._looking():
            engine = self._connection.session.database.engine
            view = self._entry.maintained
            return {"steps": engine.steps(view), "read_steps": engine.read_steps(view)}

    def explain(self) -> Explanation:
        """How the view is maintained."""
        from sqlfront.explain.explanation import explain_view  # With the planner, which reads do not load.

        return explain_view(self._connection.session.database, self._connection.session.duck, self._entry.name.key)

    @overload
    def subscribe(
        self, callback: None = None, *, snapshot: bool | None = None, after: int | None = None,
        timeout: float | None = None, buffer: int = HELD_ROWS,
    ) -> Subscription: ...  # fmt: skip

    @overload
    def subscribe(
        self, callback: Callable[[pa.Table], None], *, snapshot: bool | None = None, after: int | None = None,
        timeout: float | None = None, buffer: int = HELD_ROWS,
    ) -> CallbackThread: ...  # fmt: skip

    def subscribe(
        self,
        callback: Callable[[pa.Table], None] | None = None,
        *,
        snapshot: bool | None = None,
        after: int | None = None,
        timeout: float | None = None,
        buffer: int = HELD_ROWS,
    ) -> Subscription | CallbackThread:
        """The view's committed changes as they happen, one Arrow table per epoch that changed it.

        A table has the view's columns, `_change_type` (insert, delete, or an adjacent pair of update_preimage and
        update_postimage), `_commit_version` (the epoch) and `_commit_timestamp`, one row per copy. With `snapshot` the
        present rows come first, as inserts, unless `after` goes on from an epoch (ProgrammingError with both).
        Iteration ends when `timeout` seconds pass without a change (None: never). With a `callback` the tables are
        handed to it, in a thread of its own, until the result is closed.
        A reader may fall `buffer` changed rows behind, and always one epoch; further, it gets OperationalError with the
        oldest epoch held. So does `after` an epoch that is not held any more: changes are held from the first
        subscription on until the last is closed. The rows are committed ones, also inside a transaction.
        An epoch costs O(update + rows of the view that are joined anew) more while someone subscribes, nothing when
        nobody does.
        """
        connection = self._connection
        connection.session.ready()
        connection.session.start_reading()
        found = subscribe(
            connection.session.database,
            self._entry,
            snapshot=snapshot if snapshot is None else bool(arguments.whole(snapshot, "snapshot")),
            after=after if after is None else arguments.whole(after, "after"),
            timeout=timeout if timeout is None else arguments.number(timeout, "timeout"),
            buffer=arguments.whole(buffer, "buffer"),
        )
        return found if callback is None else CallbackThread(found, callback)

    def copy_to(self, path: str, table: str | None = None, *, format: str = "duckdb") -> Copy:
        """Keep a table outside equal to the view, by merging its changes in, until the result is closed.

        `format` is duckdb (`path` is a file, `table` by default has the view's name), parquet (a directory, whose link
        `current` leads to the last whole snapshot) or delta (a Delta table). It is made if it is not there. Each write
        notes its epoch in its own commit: after a crash nothing is missing or doubled when the view is copied there
        again.
        """
        from sqlfront.feeds.copies import Copy

        self._connection.session.ready()
        self._connection.session.start_reading()
        place, kind = arguments.path_text(path, "path"), arguments.text(format, "format")
        name = table if table is None else arguments.text(table, "table")
        return Copy(self._connection.session.database, self._entry, place, name, kind)

    def _key(self) -> dict[str, str]:
        """The view's GROUP BY columns and their variables."""
        if self._variables is None:
            definition = self._entry.definition
            output = output_variables(self._entry)
            found = {name: output[name.casefold()] for name, _ in definition.columns if name.casefold() in output}
            if (
                definition.mode != "group"
                or definition.limit
                or set(found.values()) != set(definition.free)
                or not found
            ):
                raise ProgrammingError(
                    f"{self.name} has no key by which its rows are got",
                    why="get takes the GROUP BY columns of a view, all of which the view puts out",
                    hint=f"SELECT * FROM {self.name} WHERE ...",
                )
            self._variables = found
        return self._variables

    def _note_quick(self, variables: tuple[str, ...]) -> None:
        """Whether later rows are got without another look at DuckDB: no table of DuckDB's is read, nothing waits."""
        session, entry = self._connection.session, self._entry
        captured = {session.database.relation_key(table) for table in session.database.capture.tables()}
        is_late = entry.maintained.name in late_views(session.database)
        waits = session.database.engine.write_buffers is not None
        is_quick = captured.isdisjoint(entry.tables) and not (is_late or waits) and session.revision >= 0
        self._quick = (session.revision, variables) if is_quick else None

    def _checked(self, key: Any, variables: Mapping[str, str]) -> Sequence[Any]:
        if isinstance(key, (str, bytes)) or not isinstance(key, Sequence) or len(key) != len(variables):
            columns, values = ", ".join(variables), "one value" if len(variables) == 1 else f"{len(variables)} values"
            whole = f"({columns},)" if len(variables) == 1 else f"({columns})"
            raise ProgrammingError(
                f"{key!r} is no key of {self.name}",
                why=f"a key is a tuple of {values}, {whole}",
                hint=f"get({columns}), or get_many([{whole}, ...])",
            )
        return key

    def _selected(self, columns: Sequence[str], key: Sequence[Any]) -> tuple[Any, ...] | None:
        """The row of a key by SQL, compared as a group is: NULL with NULL."""
        tests = " AND ".join(f"{quote(column)} IS NOT DISTINCT FROM ?" for column in columns)
        return self._connection.execute(f"SELECT * FROM {self._in_full} WHERE {tests}", list(key)).fetchone()

    def _values(self, row: Any) -> list[Any]:
        """A row's values in column order. ProgrammingError if it is no row of this view."""
        names = [name for name, _ in self._entry.definition.columns]
        if isinstance(row, Mapping):
            if set(row) != set(names):
                raise ProgrammingError(f"a row of {self.name} has the columns {', '.join(names)}")
            return [row[name] for name in names]
        if not isinstance(row, Sequence) or isinstance(row, (str, bytes)):
            raise ProgrammingError(
                f"{row!r} is no row of {self.name}",
                hint=f"give a value for each of its columns, ({', '.join(names)}), as a tuple or a dict",
            )
        if len(row) != len(names):
            raise ProgrammingError(f"{self.name} has {len(names)} columns, the row has {len(row)} values")
        return list(row)

    @property
    def _in_full(self) -> str:
        """The view's name with its database, whatever the current one is."""
        return table_sql(self._connection.session.database.name, self._entry.name)

    @contextmanager
    def _reading(self) -> Iterator[bool]:
        """Whether what is kept has the rows that a statement would see: not in a transaction with changes of its own,
        nor where the view has moved on."""
        session, database = self._connection.session, self._connection.session.database
        session.ready(writes=False)
        if session.transaction is not None and session.transaction.touched():
            yield False
            return
        with database.lock:
            session.start_reading({self._entry.maintained.name}.intersection, alone=True)
            database.refuse_dropped(self._entry)
            at_hand = not session.has_moved_on(self._entry)
            if at_hand:
                database.make_readable(self._entry, session.current_reading())
            yield at_hand

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Look at what is kept, without bringing a deferred view up to date."""
        session, database = self._connection.session, self._connection.session.database
        session.ready(writes=False)
        with database.lock:
            session.start_reading(alone=True)
            check_all(database)
            database.refuse_dropped(self._entry)
            database.refuse_lost(self._entry)
            database.engine.pulled.catch_up(self._entry.maintained.relations)
            yield
