"""How DuckDB reads views and change tables: Arrow streams, registered in each cursor under reserved names.

A view `v` is a DuckDB view over a *scan*, a name that each cursor binds to a Python object with
`__arrow_c_stream__`. DuckDB asks that object for a new stream at each scan, possibly from its own
threads, so a stream finds its epoch in the **read session** of the cursor's current statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from storage.errors import StaleRead

if TYPE_CHECKING:
    import pyarrow as pa

    from maintenance.engine import Engine

SCAN_PREFIX = "__sqlfront_scan_"


class ReadSession:
    """The reading of one statement: all its scans see the state in which it began.

    While the reading thread holds the engine's lock it says so in `held`, so that DuckDB's threads, which
    produce its rows, go on without the lock instead of waiting for it forever. `error` keeps what a scan
    raised, as DuckDB passes on only its text.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.version, self.epoch = engine.version, engine.epoch
        self.held = False
        self.error: BaseException | None = None

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Read on under the engine's lock: nobody can commit in between."""
        with self._engine.lock:
            before, self.held = self.held, True
            try:
                yield
            finally:
                self.held = before

    @contextmanager
    def guard(self) -> Iterator[None]:
        """The lock, for one batch; raises StaleRead if the state is no longer that of this session."""
        owned = False
        while not self.held and not owned:
            owned = self._engine.lock.acquire(timeout=0.005)
        try:
            if self._engine.version != self.version:
                raise StaleRead(
                    f"the data changed while it was being read (begun at epoch {self.epoch}, "
                    f"now epoch {self._engine.epoch})",
                    why="a streaming reader never mixes epochs",
                    hint="read again, or take everything at once with fetchall(), df() or to_arrow_table()",
                )
            yield
        finally:
            if owned:
                self._engine.lock.release()


class Scan:
    """One relation of the engine as DuckDB sees it. `open()` gives its batches, made anew at every scan."""

    def __init__(
        self,
        schema: Callable[[], pa.Schema],
        batches: Callable[[], Iterator[pa.RecordBatch]],
        session: Callable[[], ReadSession],
    ) -> None:
        self._schema, self._batches, self._session = schema, batches, session

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self._schema(), self._stream(self._session()))
        return reader.__arrow_c_stream__()

    def _stream(self, session: ReadSession) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] | None = None
        while True:
            try:
                with session.guard():
                    if batches is None:
                        batches = iter(self._batches())
                    batch = next(batches, None)
            except BaseException as error:
                session.error = error
                raise
            if batch is None:
                return
            yield batch
