"""One shard: the engine over the rows that are sent to it, hot in this process, and equal to its log.

The log (log.py) is the truth. The engine of a shard is served only if it is exactly where the log is, at the same
number and token; one that is behind catches up from the log, any other is built anew. A task that failed after it had
changed its engine leaves one whose token the log does not have.
"""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from maintenance.output_change import OutputChange, plain, view_rows
from sqlfront.build import Bound, build_view
from sqlfront.connection import connect
from sqlfront.database import StoredView
from sqlfront.shards.log import START, At, Piece, ShardLog, unpack
from sqlfront.shards.plan import ShardPlan
from storage.capture import QualifiedName
from storage.capture_sql import quote
from storage.errors import Error, OperationalError

if TYPE_CHECKING:
    import pyarrow as pa

_hot: dict[tuple[str, int], Shard] = {}


@atexit.register
def _let_go() -> None:
    """Close the engines while DuckDB's module is still there."""
    while _hot:
        _hot.popitem()[1].close()


def advance(plan: ShardPlan, query: str, number: int, log: ShardLog, pieces: Iterable[Piece]) -> pa.Table | None:
    """One epoch of a shard: its pieces are applied and logged; the changed rows of the shard's view, with `_weight`.

    None if there are none; the first epoch gives what the view of empty tables has too. The engine of (query, number)
    stays in this process. Whoever keeps the log commits it, or forgets what was written. OperationalError if the log is
    another plan's.
    """
    import pyarrow as pa

    known = log.at().token
    if known and not known.startswith(plan.fingerprint):
        raise OperationalError(
            f"shard {number} has been kept by another plan",
            why="its checkpoint is that of another query, number of shards or sizes of tables: rows would be elsewhere",
            hint="start with the same ones, or with a new checkpoint and all changes from the beginning",
        )
    shard = _hot.pop((query, number), None)
    if shard is not None and not shard.reach(log):
        shard.close()
        shard = None
    if shard is None:
        shard = Shard(plan)
        shard.rebuild(log)
    first = shard.rows() if shard.at == START else None
    new = list(pieces)
    change = shard.apply(new)
    shard.at = At(log.at().number + 1, f"{plan.fingerprint} {uuid.uuid4().hex}")
    log.append(shard.at, new)
    _hot[query, number] = shard
    found = [table for table in (first, change) if table is not None]
    return pa.concat_tables(found) if found else None


class Shard:
    """The engine of one shard: change tables of the streams' rows, which are not kept, and the shard's view."""

    def __init__(self, plan: ShardPlan) -> None:
        self._plan, self.at = plan, START
        self.connection = connect(":memory:", config={"threads": 1})
        for stream, columns in zip(plan.streams, plan.sent, strict=True):
            types = ", ".join(f"{quote(c.name)} {c.type}{' NOT NULL' if c.not_null else ''}" for c in columns)
            self.connection.execute(f"CREATE CHANGE TABLE {stream.name} ({types}) WITH (retain = false)")
        database = self.connection._database
        names = tuple(name for name, _ in plan.columns)
        view = StoredView(QualifiedName("main", "shard"), "", "", {}, names, database.new_scan())
        entry = build_view(database, self.connection._duck, view, Bound(plan.combination.shard, {}, plan.query))
        database.views[view.name.key] = entry
        self._entry = entry
        database.engine.listen(entry.maintained.name, _ignore)

    def reach(self, log: ShardLog) -> bool:
        """Whether the engine is, or could be brought, to where the log is. O(what it has missed)."""
        at = log.at()
        if self.at != at:
            missed = log.after(self.at)
            if missed is None:
                return False
            self.apply(missed)
            self.at = at
        return True

    def rebuild(self, log: ShardLog) -> None:
        """Fill a new engine from the log. O(rows)."""
        self.apply(log.all())
        self.at = log.at()

    def apply(self, pieces: Iterable[Piece]) -> pa.Table | None:
        """Apply pieces as one epoch; the view's changed rows with `_weight`, None if there are none."""
        import pyarrow as pa

        rows: dict[str, list[pa.Table]] = {}
        for piece in pieces:
            rows.setdefault(self._plan.streams[piece.stream].name, []).append(unpack(piece.rows))
        if not rows:
            return None
        epoch = self.connection.apply({name: pa.concat_tables(tables) for name, tables in rows.items()})
        assert epoch is not None
        return next(iter(epoch.changes.values()), None)

    def rows(self) -> pa.Table | None:
        """All rows of the view, with `_weight`; None if there are none."""
        found = view_rows(self._entry.maintained, self.connection._database.evaluate)
        if found is None or not found.num_rows:
            return None
        ones = np.ones(found.num_rows, np.int64)
        return OutputChange(plain(found), ones, ones).weighted()

    def close(self) -> None:
        self.connection.close()


def _ignore(epoch: int, change: OutputChange | Error) -> None:
    """A view that someone listens to tells its changes with the epoch, where they are read."""
