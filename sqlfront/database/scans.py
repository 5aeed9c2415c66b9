"""How DuckDB reads views and change tables: Arrow streams, registered in each cursor under reserved names.

A *scan* is a name that each cursor binds to a Python object with `__arrow_c_stream__`. DuckDB asks that object for a
new stream at each scan, possibly from its own threads, so a stream finds its epoch in the **read session** of the
cursor's current statement. A temporary view over the scan hides the query that the file has for every other client
(stored_views.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlfront.storage.errors import OperationalError, StaleRead
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.sessions import Session
    from sqlfront.database.transactions import Snapshot
    from sqlfront.maintenance.engine import Engine
    from sqlfront.storage.outside.change_log import LogInput

SCAN_PREFIX, QUERY_PREFIX = "__sqlfront_scan_", "!__sqlfront_query_"


class ReadSession:
    """The reading of one statement: all its scans see the state in which it began.

    While the reading thread holds the engine's lock (`holding`), DuckDB's threads, which produce its rows,
    go on under that lock instead of waiting for it forever. `error` keeps what a scan raised, as DuckDB
    passes on only its text. `snapshot` is that of the statement's transaction.
    """

    def __init__(self, engine: Engine, snapshot: Snapshot | None = None) -> None:
        self._engine = engine
        self.snapshot = snapshot
        self.version, self.epoch = engine.version, engine.epoch
        self.error: BaseException | None = None
        self._turn = threading.Condition()
        self._held = 0
        self._inside = 0
        self._stopped = False

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Read on under the engine's lock: nobody can commit in between."""
        with self._engine.lock:
            self._held += 1
            try:
                yield
            finally:
                self._release()

    def stop(self) -> None:
        """Let the next `check` raise. Any thread may call it."""
        self._stopped = True

    def check(self) -> None:
        """OperationalError if the statement has been interrupted while DuckDB, which looks itself, did not run."""
        if self._stopped:
            raise OperationalError(
                "the statement was interrupted", why="con.interrupt() was called", hint="execute it again"
            )

    @contextmanager
    def guard(self) -> Iterator[None]:
        """The lock, for one batch; raises StaleRead if the state is no longer that of this session."""
        borrowed = self._enter()
        try:
            if self._engine.version != self.version:
                raise StaleRead(
                    f"the data changed while it was being read ({self._what_changed()})",
                    why="a streaming reader never mixes epochs",
                    hint="read again, or take everything at once with fetchall(), df() or to_arrow_table()",
                )
            yield
        finally:
            self._leave(borrowed)

    def too_old(self, room: float) -> StaleRead:
        """The error of a result whose rest cannot be held while the data goes on."""
        return StaleRead(
            f"the rest of a result that began at epoch {self.epoch} is too large to be held",
            why=f"the data goes on, and the rest takes more than memory_limit, {room / 2**20:,.0f} MiB",
            hint="read it faster than others write, take less of it, or SET memory_limit",
        )

    def _what_changed(self) -> str:
        if self._engine.epoch != self.epoch:
            return f"begun at epoch {self.epoch}, now epoch {self._engine.epoch}"
        return f"still epoch {self.epoch}, but a transaction has read its own changes, or a view was built or dropped"

    def _enter(self) -> bool:
        """Come under the lock: True if the reading thread holds it for us, False if it is our own."""
        while True:
            with self._turn:
                if self._held:
                    self._inside += 1
                    return True
            # The reader may take the lock and wait for this very batch: never wait for the lock alone.
            if self._engine.lock.acquire(timeout=0.005):
                return False

    def _leave(self, borrowed: bool) -> None:
        if not borrowed:
            self._engine.lock.release()
            return
        with self._turn:
            self._inside -= 1
            self._turn.notify_all()

    def _release(self) -> None:
        """Give the lock up only after the batches that are being made under it are done."""
        with self._turn:
            self._held -= 1
            while self._inside:
                self._turn.wait()


class Scan:
    """One relation of the engine as DuckDB sees it. `batches(session)` gives its batches, made anew at every scan."""

    def __init__(
        self,
        schema: Callable[[], pa.Schema],
        batches: Callable[[ReadSession], Iterator[pa.RecordBatch]],
        session: Callable[[], ReadSession],
    ) -> None:
        self._schema, self._batches, self._session = schema, batches, session

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow as pa

        session = self._session()
        try:
            return pa.RecordBatchReader.from_batches(self._schema(), self._stream(session)).__arrow_c_stream__()
        except BaseException as error:
            session.error = error
            raise

    def _stream(self, session: ReadSession) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] | None = None
        while True:
            try:
                with session.guard():
                    if batches is None:
                        batches = iter(self._batches(session))
                    batch = next(batches, None)
            except BaseException as error:
                session.error = error
                raise
            if batch is None:
                return
            yield batch


@dataclass(frozen=True)
class Registration:
    """A scan as it is bound in a cursor: its name, the object whose rows it gives, and what makes it.

    `projection` makes the SQL of the temporary view over the scan; there is none over a scan that only we read.
    """

    name: str
    scanned: object
    make: Callable[[], Scan | LogInput]
    projection: Callable[[], str] | None = None

    def bind(self, con: Any) -> None:
        """Let a cursor find the scan, and the temporary view before the query of the file."""
        con.register(self.name, self.make())
        if self.projection is not None:
            replace_projection(con, self.name, self.projection())


def replace_projection(con: Any, scan: str, text: str) -> None:
    """Let the temporary view over a scan be this query."""
    con.execute(f"CREATE OR REPLACE TEMP VIEW {quote(_query_name(scan))} AS {text}").fetchall()


def unbind(con: Any, name: str) -> None:
    """Take a scan, and the temporary view over it, out of a cursor."""
    con.execute(f"DROP VIEW IF EXISTS temp.main.{quote(_query_name(name))}").fetchall()
    con.unregister(name)


def _query_name(scan: str) -> str:
    return f"{QUERY_PREFIX}{scan.removeprefix(SCAN_PREFIX)}"


class Passing:
    """Lets no scan of a session begin. A class, as each statement enters it: a generator takes three times as long."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._session.passing = True

    def __exit__(self, *exception: object) -> None:
        self._session.passing = False
