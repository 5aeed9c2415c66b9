"""One database in this process: its engine, what it maintains, and the DuckDB database under it.

All cursors and threads of a database share this object; `Database.open` hands out the same one for
the same file. Catalog changes and epochs happen under the engine's lock.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from sqlfront.database.arguments import split_config
from sqlfront.database.entries import ChangeTable, StoredView, UnbuiltView, UncheckedViews, ViewEntry, lost, untrusted
from sqlfront.database.names import locate, shown
from sqlfront.database.running.forks import not_inherited, note_open
from sqlfront.database.running.progress import Progress
from sqlfront.database.running.turns import Turns
from sqlfront.database.scans import QUERY_PREFIX, SCAN_PREFIX, ReadSession, Scan
from sqlfront.database.user_settings import memory_limit
from sqlfront.sql.remembered import follow
from sqlfront.storage.capture.capture import Capture, QualifiedName
from sqlfront.storage.errors import DataError, InterfaceError, OperationalError, ProgrammingError, StaleRead
from sqlfront.storage.native.starting import starting, uncollected
from sqlfront.storage.outside.change_log import ChangeLog

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.attached_sources import AttachedSources
    from sqlfront.database.loading import Evaluator
    from sqlfront.database.sessions import Session
    from sqlfront.database.ticker import Ticker
    from sqlfront.database.transactions import Snapshot
    from sqlfront.maintenance.engine import Engine
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.storage.outside.epoch_log import EpochLog

SCHEMA = "__sqlfront"
_MACROS = """
    SELECT function_name, coalesce(string_agg(macro_definition, ' '), '') FROM duckdb_functions() WHERE NOT internal
    GROUP BY function_name"""
_open_databases: weakref.WeakValueDictionary[str, Database] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


class Database:
    """The shared state of one DuckDB database in this process."""

    def __init__(self, path: str, config: Mapping[str, Any] | None) -> None:
        import duckdb

        self.path, self.file, self.config = path, os.path.realpath(path), dict(config or {})
        duckdb_config, own = split_config(self.config)
        self.macros: dict[str, str] | None = {} if self.in_memory or not os.path.exists(self.file) else None
        self._root = duckdb.connect(path, config=duckdb_config)
        self.progress = Progress(lambda: self.engine.machine.scanned, wanted=own["sqlfront_progress"])
        [(self.name, self.read_only)] = self._root.execute(
            "SELECT database_name, readonly FROM duckdb_databases() WHERE database_name = current_database()"
        ).fetchall()
        self.threads: int | None = own["sqlfront_threads"]
        self.lock, self.turns = threading.RLock(), Turns()
        self.capture = Capture(self.name)
        self.log = ChangeLog(self.name, SCHEMA)
        self.offsets: dict[tuple[int, str], Any] = {}
        self.spark: Any = None
        self.replaying = self.is_prepared = False  # is_prepared: this process has made the bookkeeping tables.
        self.snapshot_every: float = own["sqlfront_snapshot"]  # Seconds; 0: there are no snapshots.
        self._budget, self._spill = own["sqlfront_memory"], own["sqlfront_spill"]  # Bytes, and a directory.
        self.logs: list[EpochLog] = []  # Those of the snapshot in the file, and of the one that is being written.
        self.snapshot: tuple[int, int] | None = None  # The mark of that in the file, and the engine's version.
        self.unchecked: UncheckedViews | None = None  # What of it nobody has read yet.
        self.closing: Callable[[Database], object] = bool  # What the last session does before the file is closed.
        self.views: dict[tuple[str, str], ViewEntry] = {}
        self.unbuilt: dict[tuple[str, str], UnbuiltView] = {}
        self.change_tables: dict[tuple[str, str], ChangeTable] = {}
        self.revision = self.definitions = 0  # definitions grows when plain views or macros may have been defined.
        self.unseen: set[int] = set()  # Sessions (their id) that may have written past capture since they last looked.
        self.is_alone = self.in_memory  # Whether nobody but our sessions can write: no other way leads to the memory.
        self.epoch_limit: int | None = None
        self.over_wall: tuple[int, Set[str]] = (-1, frozenset())  # The views over the wall clock, at a revision.
        self.ticker: Ticker | None = None
        self._next_scan, self.token = 1, ""
        self._reader: Any = None
        self._writer: Any = None
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        note_open(self)

    @classmethod
    def open(cls, path: str, config: Mapping[str, Any] | None, restore: Callable[[Database], None]) -> Database:
        """The database of this file, shared within the process; a new one for :memory:.

        `restore` brings back what a file has of views and change tables.
        """
        with _registry_lock:
            key = os.path.realpath(path)
            found = None if path in ("", ":memory:") else _open_databases.get(not_inherited(key))
            if found is not None:
                if found.config != dict(config or {}):
                    raise OperationalError(
                        f"{path} is open in this process with another config",
                        where=f"open: {found.config}; asked for: {dict(config or {})}",
                        why="connections of one process to one file share its engine",
                        hint="close the other connections, or leave config the same",
                    )
                return found
            found = cls(path, config)
            try:
                if not found.in_memory:
                    with uncollected():
                        restore(found)
            except BaseException:
                for log in found.logs:
                    log.close()
                found._root.close()
                raise
            if not found.in_memory:
                _open_databases[key] = found
            return found

    @property
    def in_memory(self) -> bool:
        return self.path in ("", ":memory:")

    @property
    def keeps_nothing(self) -> bool:
        """Whether there is neither a view nor a change table: DuckDB alone serves every statement."""
        return not (self.views or self.unbuilt or self.change_tables)

    @functools.cached_property
    def engine(self) -> Engine:
        """What maintains views. Its modules, numpy and pyarrow load with the first view or change table."""
        with self.lock:  # Else two threads make two.
            with starting():
                from sqlfront.maintenance.engine import Engine
            made = self.__dict__.get("engine") or Engine(self.evaluate, self.lock, self.progress.watch)
            made.machine.threads = self.threads or made.machine.threads
            made.memory_limit, made.memory_budget = lambda: memory_limit(self.reader_cursor()), self._budget
            made.spill_to(self._spill)
            return made

    def set_threads(self, number: int) -> None:
        """Fill and change views on so many threads from now on."""
        with self.lock:
            self.threads = number
            if "engine" in self.__dict__:
                self.engine.machine.threads = number

    @functools.cached_property
    def evaluate(self) -> Evaluator:
        """Computes SQL expressions over rows."""
        from sqlfront.database.loading import Evaluator

        return Evaluator()

    @functools.cached_property
    def attached(self) -> AttachedSources:
        """The sources of change tables."""
        from sqlfront.database.attached_sources import AttachedSources

        return AttachedSources()

    def enter(self, session: Session) -> None:
        """Note a session; the database stays open as long as there is one."""
        self._sessions.add(session)

    def leave(self, session: Session) -> None:
        """Forget a session that closes. The last one closes the file, so that other processes may open it."""
        with _registry_lock:
            self._sessions.discard(session)
            if self._sessions:
                return
            if self.ticker is not None:
                self.ticker.stop()
            for entry in self.views.values():
                if entry.feed is not None:
                    entry.feed.fail(InterfaceError("the database is closed", hint="sqlfront.connect again"))
            try:
                self.closing(self)
            finally:
                if _open_databases.get(self.file) is self:
                    del _open_databases[self.file]
                for con in (self._reader, self._writer):
                    if con is not None:
                        con.close()
                self._root.close()

    def let_go(self) -> Iterator[Any]:
        """In a forked child: end all sessions without closing them; DuckDB's objects, which must never be closed."""
        _open_databases.pop(self.file, None)
        yield from (con for con in (self._root, self._reader, self._writer) if con is not None)
        yield from [session.let_go() for session in self._sessions]

    # Names ---------------------------------------------------------------------------------------

    def scan_name(self, number: int) -> str:
        """What DuckDB calls a scan. Names of two files differ: the views of an attached file find no scan of ours."""
        return f"{SCAN_PREFIX}{self.token}{number}"

    def query_name(self, number: int) -> str:
        """What a file calls the query of a view or change table; see stored_views.py."""
        return f"{QUERY_PREFIX}{self.token}{number}"

    def new_scan(self) -> int:
        number = self._next_scan
        self._next_scan += 1
        return number

    def take_scan(self, number: int) -> None:
        """Note a scan number that a stored view uses."""
        self._next_scan = max(self._next_scan, number + 1)

    def known_keys(self) -> set[tuple[str, str]]:
        """The keys of all views, change tables and captured tables."""
        captured = (table.key for table in self.capture.tables())
        return {*self.views, *self.unbuilt, *self.change_tables, *captured}

    def view(self, con: Any, parts: Sequence[str]) -> ViewEntry:
        """The materialized view of this name. ProgrammingError if there is none, OperationalError if not built."""
        key = locate(self, con, parts, temporary=False)
        if key in self.views:
            return self.views[key]
        if key in self.unbuilt:
            raise self.unbuilt[key].error()
        known = ", ".join(sorted(shown(v.name) for v in self.views.values())) or "none"
        raise ProgrammingError(
            f"there is no materialized view {'.'.join(parts)}", hint=f"known materialized views: {known}"
        )

    def change_table(self, con: Any, parts: Sequence[str]) -> ChangeTable | None:
        """The change table of this name, or None."""
        key = locate(self, con, parts, temporary=False)
        return self.change_tables.get(key) if key else None

    def relation_key(self, name: QualifiedName) -> str:
        """How the engine and the binder call a table."""
        from sqlfront.sql.keywords import quoted

        return f"{quoted(name.schema)}.{quoted(name.name)}"

    def readers(self, name: QualifiedName) -> list[ViewEntry]:
        """The materialized views that read a table, each after those it reads."""
        key = self.relation_key(name).casefold()
        found = [entry for entry in self.views.values() if key in {t.casefold() for t in entry.tables}]
        return sorted(found, key=lambda entry: entry.scan)

    def dependents(self, view: StoredView) -> list[ViewEntry]:
        """The materialized views that read a view, themselves or through others, each after those it reads."""
        found: dict[tuple[str, str], ViewEntry] = {}
        for entry in sorted(self.views.values(), key=lambda entry: entry.scan):
            read = {source.name.key for source in entry.sources.values()}
            if read & {view.name.key, *found}:
                found[entry.name.key] = entry
        return list(found.values())

    # Reading -------------------------------------------------------------------------------------

    def view_scan(self, entry: ViewEntry, session: Any, where: Mapping[str, tuple[int, ...]] | None = None) -> Scan:
        """The maintained core of a view, perhaps narrowed to some codes of its variables."""
        from sqlfront.maintenance.output.output import Reader

        return self.scan_of(entry, session, None if where is None else lambda: Reader(entry.maintained, where))

    def scan_of(self, entry: ViewEntry, session: Any, read: Callable[[], Iterable[pa.RecordBatch]] | None) -> Scan:
        """The raw rows that `read` gives, else a view's candidates; of a frozen projection the SQL rows they make."""
        from sqlfront.maintenance.output.sql_rows import scanned_batches, scanned_schema

        frozen = entry.definition.is_frozen

        def batches(session: ReadSession) -> Iterator[pa.RecordBatch]:
            self.make_readable(entry, session)
            return scanned_batches(entry.maintained, self.evaluate, read() if read is not None else None, frozen)

        def columns() -> pa.Schema:
            return scanned_schema(entry.maintained, self.evaluate, frozen)

        return Scan(columns, batches, session)

    def refuse_dropped(self, entry: ViewEntry) -> None:
        """Raise if a handle's view is not the one of this name any more."""
        if self.views.get(entry.name.key) is not entry:
            raise ProgrammingError(
                f"materialized view {shown(entry.name)} was dropped or replaced", hint="get it anew: con.view(...)"
            )

    def make_readable(self, entry: ViewEntry, session: ReadSession) -> None:
        """Take in the groups that wait until a view is read. Raise if it cannot be read now: as `refuse_lost`, and if
        it is newer than the transaction's tables."""
        self.refuse_lost(entry)
        self.refuse_waiting(entry)
        if self.unchecked is not None:
            self.unchecked.require(entry.maintained.name)
        if session.snapshot is not None:
            session.snapshot.refuse_newer(entry)
        self.engine.pulled.catch_up(entry.maintained.relations)

    def catch_up_views(self, views: Collection[str]) -> None:
        """Apply the changes that wait for deferred views, as the engine calls them; see `refuse_waiting`."""
        if views:
            with self.lock:
                self.engine.deferred.catch_up(views)

    def refuse_waiting(self, entry: ViewEntry) -> None:
        """Raise if changes wait for a view: it could not take them, or its statement did not seem to read it."""
        name = entry.maintained.name
        if not entry.options.get("apply") or not self.engine.deferred.rows(name):
            return
        error = self.engine.deferred.error(name)
        if error is None:
            self.definitions += 1
            raise StaleRead(
                f"materialized view {shown(entry.name)} is read by a name that is new here",
                why="changes wait for it, which are applied before a statement that names it",
                hint="run the statement again",
            )
        raise DataError(
            f"materialized view {shown(entry.name)} cannot take the changes that wait for it",
            where=error.where,
            why=": ".join(filter(None, (error.what, error.why))),
            hint=f"{error.hint or 'correct the row'}; the tables have changed, and the view follows when it can",
        ) from error

    def refuse_lost(self, entry: ViewEntry) -> None:
        """Raise if the view reads a change table whose rows were lost, or its build has been given up."""
        for table in self.change_tables.values():
            if table.lost is not None and self.relation_key(table.name) in entry.tables:
                raise lost(f"materialized view {shown(entry.name)}", table)
        if entry.maintained.broken:
            raise untrusted(entry.name, entry.maintained.broken)

    def give_up(self, entry: ViewEntry, why: str) -> None:
        """Stop maintaining a view that may have missed changes: reading it raises until REFRESH."""
        if not entry.maintained.broken:
            for reader in reversed(self.dependents(entry)):
                self.give_up(reader, f"{shown(entry.name)}, which it reads, was given up: {why}")
            self.detach(entry)
            entry.maintained.broken = why
            if entry.feed is not None:
                entry.feed.fail(untrusted(entry.name, why))

    def detach(self, entry: ViewEntry) -> None:
        """Take a view out of the engine, if it is in it."""
        if entry.maintained.name in self.engine.views:
            self.engine.drop_view(entry.maintained.name)

    def table_scan(self, table: ChangeTable, relation: Relation, session: Any) -> Scan:
        import pyarrow as pa

        from sqlfront.storage.codecs.encoding import codec_for

        fields = [codec_for(c.type, self.engine.dictionaries).arrow_field(c.name) for c in table.columns]

        def batches(session: ReadSession) -> Iterator[pa.RecordBatch]:
            import numpy as np

            from sqlfront.maintenance.output.output import table_batches

            if table.lost is not None:
                raise lost(f"change table {shown(table.name)}", table)
            if not table.retain:
                raise ProgrammingError(
                    f"change table {shown(table.name)} does not keep its rows",
                    why="it was created WITH (retain = false): only what the views need is kept",
                    hint="query the views, or create it WITH (retain = true)",
                )
            if session.snapshot is not None:
                session.snapshot.refuse_changed_table(table)
            if self.unchecked is not None:
                self.unchecked.require(relation.name)
            for batch, weights in table_batches(relation):
                if (weights != 1).any():
                    batch = batch.take(pa.array(np.repeat(np.arange(len(weights)), weights)))
                yield batch

        return Scan(lambda: pa.schema(fields), batches, session)

    @property
    def root(self) -> Any:
        """The DuckDB connection: whoever takes it may write past the sessions."""
        self.is_alone = False
        return self._root

    def cursor(self) -> Any:
        """A DuckDB cursor of ours, for sessions and for bookkeeping."""
        return self._root.cursor()

    def reader_cursor(self) -> Any:
        """A DuckDB cursor of our own for bookkeeping reads; use it under the engine's lock."""
        if self._reader is None:
            self._reader = self.cursor()
        return self._reader

    def writer_cursor(self) -> Any:
        """A DuckDB cursor of our own for transactions that store views; use it under the engine's lock."""
        if self._writer is None:
            self._writer = self.cursor()
            follow(self._writer)
        return self._writer

    def session(self, snapshot: Snapshot | None = None) -> ReadSession:
        return ReadSession(self.engine, snapshot)

    def load(self, con: Any, name: str) -> tuple[Iterator[Any], int]:
        """The present rows of a table as the transaction of `con` sees them, perhaps with weights, and their number.

        A change table that keeps no rows has none to load, but from its log when the file is opened: views over it
        are built before the first change.
        """
        from sqlfront.database.durable import logged_rows
        from sqlfront.database.loading import count_rows, load_rows

        for table in self.change_tables.values():
            if self.relation_key(table.name) == name:
                replayed = self.replaying and table.durable
                return (logged_rows(self, con, table), self.log.count(con, table.scan)) if replayed else (iter(()), 0)
        relation = self.engine.relations[name]
        return load_rows(con, self.name, relation), count_rows(con, self.name, relation)

    # Bookkeeping ---------------------------------------------------------------------------------

    def note_epoch(self) -> None:
        """Reserve more epoch numbers in the file when those reserved are used up."""
        if self.epoch_limit is not None and self.engine.epoch >= self.epoch_limit:
            from sqlfront.database.epoch_numbers import reserve_epochs

            reserve_epochs(self)

    def macro_texts(self, con: Any) -> dict[str, str]:
        """The macros that anyone has defined, which could read views unseen, and what they say. One slow query, after
        statements that may have brought some."""
        if self.macros is None:
            self.macros = dict(con.execute(_MACROS).fetchall())
        return self.macros

    def changed(self) -> None:
        """Tell cursors to look at the catalog again."""
        self.revision += 1
        self.forget_names()
        if self.ticker is not None or any("tick" in entry.options for entry in self.views.values()):
            from sqlfront.database.ticker import keep_ticking

            keep_ticking(self)

    def forget_names(self) -> None:
        """Let all sessions look names and settings up again."""
        for session in list(self._sessions):
            session.forget_names()
