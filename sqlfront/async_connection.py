"""A connection for asyncio: each call awaits its answer in a thread of the connection's own, and the loop goes on.

DuckDB and the kernels release Python's lock while they work. A call that is cancelled interrupts its statement.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sqlfront.connection import Connection, connect
from sqlfront.storage.errors import InterfaceError

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa

    from sqlfront.maintenance.epoch import Epoch

T = TypeVar("T")


async def aconnect(
    database: str | os.PathLike[str] = ":memory:", read_only: bool = False, *, config: Mapping[str, Any] | None = None
) -> AsyncConnection:
    """As `connect`, without blocking the loop: the views of a file are brought back in a thread."""
    thread = ThreadPoolExecutor(1, "sqlfront")
    try:
        made = partial(connect, database, read_only, config=config)
        return AsyncConnection(await asyncio.get_running_loop().run_in_executor(thread, made), thread)
    except BaseException:
        thread.shutdown(wait=False)
        raise


class AsyncConnection:
    """A Connection whose methods are awaited. Calls of one connection run one after the other; `cursor()` gives another
    one, with its own thread and transaction.

    `connection` is the Connection itself; use it only while no call is awaited. Python variables are no tables here:
    `register` gives data a name.
    """

    def __init__(self, connection: Connection, thread: Executor) -> None:
        self.connection, self._thread = connection, thread
        self._is_closed = False

    async def execute(
        self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, dialect: str | None = None
    ) -> Self:
        """Run one or more statements; see Connection.execute."""
        await self.run(partial(self.connection.execute, sql, params, dialect=dialect))
        return self

    async def executemany(self, sql: str, parameter_sets: Iterable[Any]) -> Self:
        """Run one statement with each set of parameters, as one epoch."""
        await self.run(partial(self.connection.executemany, sql, parameter_sets))
        return self

    async def fetchone(self) -> tuple[Any, ...] | None:
        """The next row of the result, or None."""
        return await self.run(self.connection.fetchone)

    async def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows of the result, at most `size`."""
        return await self.run(partial(self.connection.fetchmany, size))

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """All remaining rows, of one epoch."""
        return await self.run(self.connection.fetchall)

    async def df(self) -> pandas.DataFrame:
        """All remaining rows as a pandas DataFrame."""
        return await self.run(self.connection.df)

    async def to_arrow_table(self) -> pa.Table:
        """All remaining rows as an Arrow table."""
        return await self.run(self.connection.to_arrow_table)

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        """The remaining rows, one after the other."""
        while rows := await self.fetchmany(1024):
            for row in rows:
                yield row

    async def apply(self, changes: Mapping[str, Any]) -> Epoch | None:
        """Apply changes of several tables as one atomic epoch; see Connection.apply."""
        return await self.run(partial(self.connection.apply, changes))

    async def append(self, table: str, data: Any, *, by_name: bool = False) -> Self:
        """Insert Arrow data or a DataFrame into a table."""
        await self.run(partial(self.connection.append, table, data, by_name=by_name))
        return self

    async def register(self, name: str, data: Any) -> Self:
        """Give Arrow data or a DataFrame a name in this connection's SQL."""
        await self.run(partial(self.connection.register, name, data))
        return self

    async def begin(self) -> Self:
        """BEGIN."""
        return await self.execute("BEGIN")

    async def commit(self) -> Self:
        """COMMIT the open transaction, if there is one."""
        await self.run(self.connection.commit)
        return self

    async def rollback(self) -> Self:
        """ROLLBACK the open transaction, if there is one."""
        await self.run(self.connection.rollback)
        return self

    async def cursor(self) -> AsyncConnection:
        """Another connection to the same database, with its own thread and transaction."""
        return AsyncConnection(await self.run(self.connection.cursor), ThreadPoolExecutor(1, "sqlfront"))

    async def run(self, call: Callable[[], T]) -> T:
        """Await any call in the connection's thread, such as `lambda: con.connection.view("v").get(1)`.

        InterfaceError if the connection is closed."""
        if self._is_closed:
            raise InterfaceError("the connection is closed", hint="await aconnect again")
        running = self._thread.submit(call)
        answer = asyncio.wrap_future(running)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # Nobody asks any more.
            while not (running.cancel() or running.done()):  # It has begun, and perhaps not yet reached DuckDB.
                self.connection.interrupt()
                await asyncio.sleep(0.01)
            raise

    async def close(self) -> None:
        """End the connection; an open transaction is rolled back. Nothing happens if it has ended."""
        if not self._is_closed:
            await self.run(self.connection.close)
            self._is_closed = True
            self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
