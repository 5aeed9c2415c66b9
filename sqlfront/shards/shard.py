"""One shard: the engine over the rows that are sent to it, hot in this process, and equal to its log.

The log (log.py) is the truth. The engine of a shard is served only if it is exactly where the log is, at the same
number and token; one that is behind catches up from the log, any other is built anew. A task that failed after it had
changed its engine leaves one whose token the log does not have.
"""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import Database
from sqlfront.database.entries import StoredView, ViewEntry
from sqlfront.database.names import shown
from sqlfront.database.sessions import Session
from sqlfront.define.build import Bound, build_view
from sqlfront.define.change_table_ddl import create_change_table
from sqlfront.define.persistence import restore
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.output.sql_rows import view_rows
from sqlfront.shards.routes import WEIGHT
from sqlfront.shards.shard_log import START, At, ShardDelta, ShardLog, unpack
from sqlfront.shards.shard_plan import ShardPlan
from sqlfront.sql.statements import CreateChangeTable, parse_statement
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import Error, OperationalError
from sqlfront.storage.sql_text import quote
from sqlfront.write.apply import apply

if TYPE_CHECKING:
    import pyarrow as pa

_hot: dict[tuple[str, int], Shard] = {}


@atexit.register
def _let_go() -> None:
    """Close the engines while DuckDB's module is still there."""
    while _hot:
        _hot.popitem()[1].close()


def advance(plan: ShardPlan, query: str, number: int, log: ShardLog, pieces: Iterable[ShardDelta]) -> pa.Table | None:
    """One epoch of a shard: its pieces are applied and logged; the changed rows of the shard's views, with `_weight`.

    None if there are none; the first epoch gives what the view of empty tables has too. The engine of (query, number)
    stays in this process. Whoever keeps the log commits it, or forgets what was written. OperationalError if the log is
    another plan's.
    """
    known = log.at().token
    if known and not known.startswith(plan.fingerprint):
        raise OperationalError(
            f"shard {number} has been kept by another plan",
            why="its checkpoint is that of another query, number of shards or sizes of tables, or a view that it "
            "reads has been replaced: rows would be others, or elsewhere",
            hint="start with the same ones (`sizes` says what to expect of tables, whatever they hold), or with a new "
            "checkpoint and all changes from the beginning",
        )
    shard = _hot.pop((query, number), None)
    if shard is not None and not shard.reach(log):
        shard.close()
        shard = None
    if shard is None:
        shard = Shard(plan)
        shard.rebuild(log)
    found = shard.rows() if shard.at == START else []
    new = list(pieces)
    found += shard.apply(new)
    shard.at = At(log.at().number + 1, f"{plan.fingerprint} {uuid.uuid4().hex}")
    log.append(shard.at, new)
    _hot[query, number] = shard
    return shard.together(found) if found else None


class Shard:
    """The engine of one shard: change tables of the streams' rows, which are not kept, and a view of each component."""

    def __init__(self, plan: ShardPlan) -> None:
        self._plan, self.at = plan, START
        self.session = Session(Database.open(":memory:", {"threads": 1}, restore))
        database, con = self.session.database, self.session.duck
        for stream, columns in zip(plan.streams, plan.sent, strict=True):
            types = ", ".join(f"{quote(c.name)} {c.type}{' NOT NULL' if c.not_null else ''}" for c in columns)
            [statement] = parse_statement(f"CREATE CHANGE TABLE {stream.name} ({types}) WITH (retain = false)")
            assert isinstance(statement, CreateChangeTable)
            create_change_table(database, con, statement)
        self._entries: list[ViewEntry] = []
        for number, definition in enumerate(plan.combination.shards, 1):
            names = tuple(name for name, _ in definition.columns)
            view = StoredView(QualifiedName("main", f"component_{number}"), "", "", {}, names, database.new_scan(), {})
            entry = build_view(database, con, view, Bound(definition, {}, plan.query, EngineCatalog(database, con)))
            database.views[view.name.key] = entry
            database.engine.listen(entry.maintained.name, _ignore)
            self._entries.append(entry)

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

    def apply(self, pieces: Iterable[ShardDelta]) -> list[pa.Table]:
        """Apply pieces as one epoch; the changed rows of views, with `_weight`."""
        import pyarrow as pa

        rows: dict[str, list[pa.Table]] = {}
        for piece in pieces:
            rows.setdefault(self._plan.streams[piece.stream].name, []).append(unpack(piece.rows))
        if not rows:
            return []
        self.session.ready()
        epoch = apply(self.session, {name: pa.concat_tables(tables) for name, tables in rows.items()})
        assert epoch is not None
        changes = epoch.changes
        named = [(number, shown(entry.name)) for number, entry in enumerate(self._entries, 1)]
        return [self._marked(number, changes[name]) for number, name in named if name in changes]

    def rows(self) -> list[pa.Table]:
        """All rows of the views, with `_weight`."""
        found = []
        self.session.database.engine.pulled.catch_up_all()
        for number, entry in enumerate(self._entries, 1):
            rows = view_rows(entry.maintained, self.session.database.evaluate)
            if rows is not None and rows.num_rows:
                ones = np.ones(rows.num_rows, np.int64)
                found.append(
                    self._marked(number, OutputChange(rows, ones, ones).weighted(dict(entry.definition.columns)))
                )
        return found

    def together(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Changed rows of views as one table, with the columns of the plan."""
        import pyarrow as pa

        found = pa.concat_tables(tables, promote_options="default")
        for name, _ in self._plan.columns:
            if name not in found.column_names:
                found = found.append_column(name, pa.nulls(found.num_rows))
        return found.select([*(name for name, _ in self._plan.columns), WEIGHT])

    def _marked(self, number: int, rows: pa.Table) -> pa.Table:
        """The rows of one of several views, with its number."""
        import pyarrow as pa

        mark = self._plan.combination.mark
        if mark is None:
            return rows
        return rows.append_column(mark, pa.array(np.full(rows.num_rows, number, np.int32)))

    def close(self) -> None:
        self.session.close()


def _ignore(epoch: int, change: OutputChange | Error) -> None:
    """A view that someone listens to tells its changes with the epoch, where they are read."""
