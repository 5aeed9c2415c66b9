"""Change feeds: what each committed epoch changed in a view, held for those who subscribe.

A view has at most one feed, which all its subscriptions read at their own pace. It exists while one of
them does: a view that nobody subscribes to never computes its change.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sqlfront.names import shown
from storage.errors import Error, InterfaceError, OperationalError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

    from maintenance.output_change import OutputChange
    from sqlfront.database import Database, ViewEntry

HELD_ROWS = 1_000_000


class Feed:
    """The last changes of one view: at most `HELD_ROWS` rows, and always the last epoch that changed something.

    `since` is the epoch after which all changes are held.
    """

    def __init__(self, database: Database, entry: ViewEntry) -> None:
        self.database, self.entry = database, entry
        self.since = database.engine.epoch
        self.news = threading.Condition()
        self._changes: deque[tuple[int, pa.Table]] = deque()
        self._rows = 0
        self._failure: Error | None = None
        self._subscribers = 0

    def join(self) -> None:
        """One more subscription."""
        if self._subscribers == 0:
            self.follow()
        self._subscribers += 1

    def leave(self) -> None:
        """One subscription less; with the last one the feed ends."""
        self._subscribers -= 1
        if self._subscribers == 0:
            self.database.engine.forget(self.entry.maintained.name, self._take)
            if self.entry.feed is self:
                self.entry.feed = None

    def follow(self) -> None:
        """Listen to the view as it is kept now: it has just been subscribed to, or rebuilt."""
        self.database.engine.listen(self.entry.maintained.name, self._take)

    def fail(self, error: Error) -> None:
        """No more changes can be told: readers get those that are held, then the error."""
        with self.news:
            self._failure = self._failure or error
            self.news.notify_all()

    def after(self, version: int) -> list[pa.Table]:
        """The changes of the epochs after `version`, oldest first. OperationalError if they are not all held."""
        with self.news:
            if version < self.since:
                raise OperationalError(
                    f"the changes of {shown(self.entry.name)} after epoch {version} are not held any more",
                    why=f"the oldest that can be resumed from is epoch {self.since}: a feed holds {HELD_ROWS:,} rows",
                    hint="subscribe again with a snapshot",
                )
            found = [table for number, table in self._changes if number > version]
            if not found and self._failure is not None:
                raise self._failure
            return found

    def _take(self, epoch: int, change: OutputChange | Error) -> None:
        from maintenance.output_change import images

        if isinstance(change, Error):
            self.fail(change)
            return
        if not len(change) or self._failure is not None:
            return
        table = images(change, epoch, _now())
        with self.news:
            self._changes.append((epoch, table))
            self._rows += table.num_rows
            while self._rows > HELD_ROWS and len(self._changes) > 1:
                self.since, gone = self._changes.popleft()
                self._rows -= gone.num_rows
            self.news.notify_all()


class Subscription:
    """A reader of a view's changes. Iterate over it, or `poll`; close it, or use it in a `with` statement.

    Each item is an Arrow table: the view's columns, `_change_type` (insert, delete, update_preimage,
    update_postimage), `_commit_version` (the epoch's number) and `_commit_timestamp` (UTC), one row per copy. A
    changed row of a view whose columns tell its rows apart is an adjacent pair of images. `version` is the last epoch
    delivered: hand it to `View.subscribe(after=...)` to go on from there.
    """

    def __init__(self, feed: Feed, *, snapshot: pa.Table | None, after: int, timeout: float | None) -> None:
        self._feed, self._timeout = feed, timeout
        self._waiting = deque([snapshot] if snapshot is not None else [])
        self.version = after
        self._closed = False

    def poll(self, timeout: float = 0.0) -> pa.Table | None:
        """All changes since the last call as one table, after at most `timeout` seconds; None if there are none.

        Raises OperationalError if the view is gone, or changes were lost because this reader fell behind.
        """
        import pyarrow as pa

        tables = self._fetch(timeout)
        return pa.concat_tables(tables) if tables else None

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        """The next epoch's change; waits for it, at most the subscription's `timeout`, after which iteration ends."""
        if not self._waiting:
            self._waiting += self._fetch(self._timeout)
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def close(self) -> None:
        """Receive nothing more."""
        if not self._closed:
            self._closed = True
            with self._feed.database.engine.lock:
                self._feed.leave()
            with self._feed.news:
                self._feed.news.notify_all()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fetch(self, timeout: float | None) -> list[pa.Table]:
        if self._waiting:
            tables = list(self._waiting)
            self._waiting.clear()
            return tables
        until = None if timeout is None else time.monotonic() + timeout
        with self._feed.news:
            while True:
                if self._closed:
                    raise InterfaceError("the subscription is closed", hint="subscribe again")
                tables = self._feed.after(self.version)
                left = None if until is None else until - time.monotonic()
                if tables or (left is not None and left <= 0):
                    break
                self._feed.news.wait(left)
        if tables:
            self.version = tables[-1].column("_commit_version")[0].as_py()
        return tables


def subscribe(
    database: Database,
    entry: ViewEntry,
    *,
    snapshot: bool = True,
    after: int | None = None,
    timeout: float | None = None,
) -> Subscription:
    """A subscription to a view: its present rows as inserts first (`snapshot`), or its changes after an epoch."""
    from maintenance.output_change import snapshot_images

    with database.engine.lock:
        database.refuse_lost(entry)
        epoch = database.engine.epoch
        if after is not None and after > epoch:
            raise ProgrammingError(f"epoch {after} has not been yet", hint=f"the last one is {epoch}")
        feed = entry.feed or Feed(database, entry)
        if after is not None:
            feed.after(after)
        now = _now()
        rows = None
        if snapshot and after is None:
            rows = snapshot_images(entry.maintained, database.evaluate, epoch, now)
        feed.join()
        entry.feed = feed
    return Subscription(feed, snapshot=rows, after=epoch if after is None else after, timeout=timeout)


class CallbackThread:
    """Calls a function with each change of a subscription, from a thread of its own, until `close`."""

    def __init__(self, subscription: Subscription, callback: Callable[[Any], None]) -> None:
        self._subscription, self._callback = subscription, callback
        self._stopped = False
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="sqlfront subscription", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Call the function no more; a call under way is waited for, unless it is the one that closes."""
        self._stopped = True
        self._subscription.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> CallbackThread:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            for table in self._subscription:
                self._callback(table)
        except Exception as error:
            if not self._stopped:
                self.error = error
                raise


def _now() -> datetime.datetime:
    """The time in UTC, without a zone: DuckDB gives Python no zoned times unless pytz is installed."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
