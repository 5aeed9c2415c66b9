"""Change feeds: what each committed epoch changed in a view, held for those who subscribe.

A view has at most one feed, which all its subscriptions read at their own pace. It exists while one of
them does: a view that nobody subscribes to never computes its change.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sqlfront.database.names import shown
from sqlfront.database.transactions import check_all
from sqlfront.feeds.feed_log import FeedLog, HeldChange
from sqlfront.storage.errors import Error, InterfaceError, OperationalError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.database.database import Database
    from sqlfront.database.entries import ViewEntry
    from sqlfront.maintenance.output.output_change import OutputChange

HELD_ROWS = 1_000_000
CONTROL_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
_numbers = itertools.count()


class Feed:
    """The last changes of one view, for all its subscriptions: as many rows as the most patient of them asked for."""

    def __init__(self, database: Database, entry: ViewEntry) -> None:
        self.database, self.entry = database, entry
        self.news = threading.Condition()
        self.failure: Error | None = None
        self.types = dict(entry.definition.columns)
        self._log = FeedLog(database.engine.epoch, self.types)
        self._buffers: dict[int, int] = {}

    def join(self, buffer: int) -> int:
        """One more subscription, for which `buffer` rows are held; its number. The caller holds the engine's lock."""
        if not self._buffers:
            self.follow()
        number = next(_numbers)
        self._buffers[number] = buffer
        return number

    def leave(self, number: int) -> None:
        """One subscription less; with the last one the feed ends."""
        with self.database.lock:
            self.abandon(number)
            if not self._buffers:
                self._end()
        with self.news:
            self.news.notify_all()

    def abandon(self, number: int) -> None:
        """A subscription was forgotten without closing it. Takes no lock: the garbage collector may call it anywhere,
        and the next change finds nobody listening."""
        self._buffers.pop(number, None)

    def follow(self) -> None:
        """Listen to the view as it is kept now: it has just been subscribed to, or rebuilt."""
        if self.failure is None:
            self.database.engine.listen(self.entry.maintained.name, self._take)

    def fail(self, error: Error) -> None:
        """No more changes can be told: readers get those that are held, then the error."""
        with self.news:
            self.failure = self.failure or error
            self.news.notify_all()

    def after(self, version: int) -> list[HeldChange]:
        """The changes of the epochs after `version`, oldest first. OperationalError if they are not all held."""
        with self.news:
            if version < self._log.since:
                raise OperationalError(
                    f"the changes of {shown(self.entry.name)} after epoch {version} are not held any more",
                    why=f"the oldest epoch that can be resumed from is {self._log.since}: changes are held while "
                    "someone subscribes, and only the last `buffer` rows of them",
                    hint="subscribe again, with a snapshot; a larger `buffer` lets readers fall further behind",
                )
            found = self._log.after(version)
            if not found and self.failure is not None:
                raise self.failure
            return found

    def _take(self, epoch: int, change: OutputChange | Error) -> None:
        if isinstance(change, Error):
            self.fail(change)
            self._end()
        elif self.failure is not None or not self._buffers:
            self._end()
        elif len(change):
            with self.news:
                self._log.add(change, epoch, _now(), max([*self._buffers.values()], default=0))
                self.news.notify_all()

    def _end(self) -> None:
        """Listen no more. What is held stays for readers of a failed feed."""
        self.database.engine.forget(self.entry.maintained.name, self._take)
        if not self._buffers:
            self._log.clear()
        if self.entry.feed is self:
            self.entry.feed = None


class Subscription:
    """A reader of a view's changes. Iterate over it, or `poll`; close it, or use it in a `with` statement.

    Each item is an Arrow table: the view's columns, `_change_type` (insert, delete, update_preimage,
    update_postimage), `_commit_version` (the epoch's number) and `_commit_timestamp` (UTC), one row per copy. A
    changed row of a view whose columns tell its rows apart is an adjacent pair of images. `version` is the last epoch
    delivered: hand it to `View.subscribe(after=...)` to go on from there.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        snapshot: pa.Table | None,
        after: int,
        timeout: float | None,
        buffer: int,
        lossless: bool,
    ) -> None:
        self._feed, self._timeout, self._lossless = feed, timeout, lossless
        self._waiting = deque([HeldChange(snapshot, feed.types, after, after)] if snapshot is not None else [])
        self._fetched = self.version = after
        self._number = feed.join(buffer)
        self._finalizer = weakref.finalize(self, feed.abandon, self._number)
        self._finalizer.atexit = False
        self._closed = False

    @property
    def failure(self) -> Error | None:
        """Why no more changes come; None while they may. An InterfaceError if the database is closed."""
        return self._feed.failure

    def poll(self, timeout: float = 0.0) -> pa.Table | None:
        """All changes since the last call as one table, after at most `timeout` seconds; None if there are none.

        Raises OperationalError if the view is gone, or changes were lost because this reader fell behind;
        InterfaceError if the subscription is closed.
        """
        import pyarrow as pa

        had_some = bool(self._waiting)
        changes = self._fetch(timeout)
        if changes is None:
            raise InterfaceError("the subscription is closed", hint="subscribe again")
        if not changes:
            return None
        if had_some:
            with contextlib.suppress(Error):  # What is here is delivered first; the next call raises.
                self._gather(changes)
        tables = [self._shown(change) for change in (changes if len(changes) == 1 else HeldChange.in_few(changes))]
        changes.clear()
        self.version = self._fetched
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        """The next epoch's change; waits for it, at most the subscription's `timeout`, after which iteration ends.

        It also ends when the subscription is closed, perhaps by another thread. Raises as `poll` does.
        """
        changes = self._fetch(self._timeout)
        if not changes:
            raise StopIteration
        change = changes.popleft()
        self.version = change.first
        first, rest = change.split(self.version)
        assert first is not None
        if rest is not None:
            changes.appendleft(rest)
        return self._shown(first)

    def close(self) -> None:
        """Receive nothing more."""
        if not self._closed:
            self._closed, self._waiting = True, deque()
            self._feed.leave(self._number)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fetch(self, timeout: float | None) -> deque[HeldChange] | None:
        """What is not delivered yet, when there is something or `timeout` seconds have passed. None: it is closed."""
        waiting = self._waiting
        with self._feed.news:
            if not waiting and not self._closed:
                self._gather(waiting)
            if not waiting and timeout != 0:
                self._wait(waiting, timeout)
        return None if self._closed else waiting

    def _wait(self, waiting: deque[HeldChange], timeout: float | None) -> None:
        """Wait for a change, or until the subscription is closed, at most so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._closed and not waiting:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            self._feed.news.wait(left)
            if not self._closed:
                self._gather(waiting)

    def _shown(self, change: HeldChange) -> pa.Table:
        return change.lossless if self._lossless else change.plain

    def _gather(self, waiting: deque[HeldChange]) -> None:
        waiting += self._feed.after(self._fetched)
        if waiting:
            self._fetched = waiting[-1].last


def subscribe(
    database: Database,
    entry: ViewEntry,
    *,
    snapshot: bool | None = None,
    after: int | None = None,
    timeout: float | None = None,
    buffer: int = HELD_ROWS,
    lossless: bool = False,
) -> Subscription:
    """A subscription to a view: its present rows as inserts first (`snapshot`, the default), or its changes after an
    epoch.

    `lossless`: in Arrow types from which DuckDB restores all of its own.
    """
    from sqlfront.maintenance.output.output_change import snapshot_images

    taken = [name for name, _ in entry.definition.columns if name.casefold() in CONTROL_COLUMNS]
    if taken:
        raise ProgrammingError(
            f"{shown(entry.name)} cannot be subscribed to: it has a column {taken[0]}",
            why=f"changes have the columns {', '.join(CONTROL_COLUMNS)} beside the view's",
            hint="give the column another name in the view's SELECT",
        )
    if buffer < 1:
        raise ProgrammingError(f"a subscription's buffer is a number of rows, not {buffer}", hint="leave it out")
    if snapshot and after is not None:
        raise ProgrammingError(
            f"a subscription to {shown(entry.name)} begins with a snapshot or after an epoch, not with both",
            why=f"the snapshot has the present rows, in which the changes after epoch {after} are already",
            hint="leave snapshot out to go on after the epoch, or after to begin with the present rows",
        )
    with database.lock:
        check_all(database)
        database.refuse_dropped(entry)
        database.refuse_lost(entry)
        database.catch_up_views([entry.maintained.name])
        database.refuse_waiting(entry)
        database.engine.pulled.catch_up(entry.maintained.relations)
        epoch = database.engine.epoch
        if after is not None and after > epoch:
            raise ProgrammingError(f"epoch {after} has not been yet", hint=f"the last one is {epoch}")
        feed = entry.feed if isinstance(entry.feed, Feed) and entry.feed.failure is None else Feed(database, entry)
        if after is not None:
            feed.after(after)
        rows = None
        if after is None and snapshot is not False:
            rows = snapshot_images(entry.maintained, database.evaluate, epoch, _now())
        entry.feed = feed
        start = epoch if after is None else after
        return Subscription(feed, snapshot=rows, after=start, timeout=timeout, buffer=buffer, lossless=lossless)


class CallbackThread:
    """Calls a function with each change of a subscription, from a thread of its own, until `close`.

    It also ends, and the subscription with it, when the subscription's timeout passes, when the database is closed, and
    when the function or the feed raises: `error` is the exception then.
    """

    def __init__(self, subscription: Subscription, callback: Callable[[pa.Table], None]) -> None:
        self._subscription, self._callback = subscription, callback
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="sqlfront subscription", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The last epoch that was handed to the function."""
        return self._subscription.version

    def close(self) -> None:
        """Call the function no more; a call under way is waited for, unless it is the one that closes."""
        self._subscription.close()
        self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the thread has ended, at most `timeout` seconds. Whether it has."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> CallbackThread:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with self._subscription:
                for table in self._subscription:
                    self._callback(table)
        except Exception as error:
            self.error = error
            if error is not self._subscription.failure or not isinstance(error, InterfaceError):
                raise  # The thread's traceback is printed: nobody waits for it. That the database is closed is no news.


def _now() -> int:
    """The time in UTC, in microseconds since 1970."""
    return time.time_ns() // 1000
