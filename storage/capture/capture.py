"""Exact capture of the changes of ordinary DuckDB tables, by statement triggers.

Three triggers on a table write the signed rows of every statement, with its transaction's id, into
a delta table. They see every writer of the database (SQL, COPY, the Appender, TRUNCATE, other
connections) and roll back with the transaction. What DuckDB refuses on such tables is done by
`run_upsert_or_merge` (capture_upsert.py) and `follow` (capture_ddl.py).

**Transactions.** A row is *own* when the transaction that reads it has written it, and *foreign*
otherwise: a writer that bypassed us has committed it. Own rows that are consumed before COMMIT never
reach the table: the delta table stays empty. Two transactions never touch one delta row, so the
bookkeeping adds no conflicts. Foreign rows are consumed by one connection at a time (the caller
holds its engine's lock), best in a transaction that does nothing else; until CHECKPOINT they leave
dead rows, see `compact`.

**Integrity.** DuckDB refuses every ALTER that would change a captured column, a row or the name of a
table under triggers; dropping or replacing the table drops them; no statement disables them. So a
table is captured without a gap exactly as long as the three triggers *with the oids we created*
exist, which `verify` checks in one catalog query. At `open` oids are new, so the definitions and
the column types are compared instead. One gap would remain, a transaction older than the triggers
that writes after them: `install` waits for those to end (`settle`).

**Names.** DuckDB looks a trigger's body up along the writer's search path, not in the database of its table. In a file
the body names the schema alone: the file may be renamed, or attached under any name. A writer must then have the file
as its current database (`USE`), else its statement fails and changes nothing. DuckDB lets no transaction write two
databases, so a body never reaches the delta table of another file. Triggers that name a database are renewed at `open`.

**Cost**, as multiples of the same statement without capture (two busy cores): a one-row INSERT 2, with
`pending` and `consume` in one transaction 4; an INSERT of 2 million rows 4; an upsert into a million rows 13 for one
row, 6 for 10,000; 17 where the whole table is compared. As multiples of an empty SELECT: `verify` 3,
`check` 4 to 5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlfront.storage.capture import setup
from sqlfront.storage.capture.all_or_nothing import unit
from sqlfront.storage.capture.trigger_sql import (
    NEVER,
    Captured,
    QualifiedName,
    changed_query,
    delta_name,
    delta_sql,
    drop_triggers_ddl,
    filled_query,
    pending_query,
    take_statement,
    whose,
)
from sqlfront.storage.capture.watch import Watch
from sqlfront.storage.codecs.transport import exported
from sqlfront.storage.errors import InternalError, OperationalError
from sqlfront.storage.sql_text import quote

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Capture", "Pending", "QualifiedName"]

DEAD_ROWS_BEFORE_CHECKPOINT = 1 << 16


@dataclass(frozen=True)
class Pending:
    """Captured changes as read: per table with changes its columns and `_weight` (int64).

    Values are as DuckDB exports them to Arrow, which has no 128-bit integers: HUGEINT and UHUGEINT come
    as the same bits under decimal128(38, 0), so a UHUGEINT from 2**127 on looks negative there.
    """

    tables: dict[QualifiedName, pa.Table]
    own: bool | None
    marks: dict[QualifiedName, tuple[int, int]]  # (last rowid read, number of rows)


class Capture:
    """Change capture on the tables of one DuckDB database (its catalog name).

    Each method works on the connection or cursor it is given, in that one's transaction. Not locked:
    the caller serialises `install`, `uninstall`, `open` and the consumption of foreign rows.
    """

    def __init__(self, database: str) -> None:
        self.database = database
        self._captured: dict[tuple[str, str], Captured] = {}
        self._watch = Watch(database)
        self._dead = 0

    # -- what is captured

    def tables(self) -> list[QualifiedName]:
        """The captured tables."""
        return [captured.table for captured in self._captured.values()]

    def named(self, key: tuple[str, str]) -> QualifiedName | None:
        """The captured table of this key, spelled as the catalog spells it."""
        captured = self._captured.get(key)
        return None if captured is None else captured.table

    def columns(self, table: QualifiedName) -> tuple[str, ...]:
        """The captured columns of a table; empty if it is not captured."""
        captured = self._captured.get(table.key)
        return captured.columns if captured else ()

    def covered(self, con: Any, tables: Mapping[QualifiedName, Collection[str]]) -> set[QualifiedName]:
        """Those of the tables whose given columns are captured without a gap: `install` would do nothing. One catalog
        query."""
        known = [captured for table in tables if (captured := self._captured.get(table.key)) is not None]
        broken = {table.key for table in self._watch.broken(con, known)} if known else set()
        return {
            table
            for table, columns in tables.items()
            if table.key in self._captured.keys() - broken and _folded(columns) <= _folded(self.columns(table))
        }

    @property
    def alone(self) -> bool:
        """Whether a write changes nothing but its own table, as far as is known without a query: there are no triggers
        but ours."""
        return self._watch.alone

    @property
    def looked(self) -> bool:
        """Whether somebody has looked for triggers since there may be new ones."""
        return self._watch.looked

    @property
    def untold(self) -> bool:
        """Whether there were writes, since the last look, that our triggers have not told."""
        return self._watch.untold

    def note_returned(self) -> None:
        """A write has told its changes by RETURNING, after `tell`."""
        self._watch.untold = True

    def note_ddl(self) -> None:
        """There may be new triggers: look before RETURNING is trusted again."""
        self._watch.alone = self._watch.looked = False

    # -- set up and tear down

    def open(self, con: Any) -> list[OperationalError]:
        """Adopt what an earlier process has installed; call once, before anything else.

        Leftover changes become foreign. Returns one error per table that cannot be trusted (its
        triggers or columns are not what was installed): `verify` raises for it until it is
        installed again or uninstalled.
        """
        problems = []
        there = setup.intact(con, self.database, setup.booked(con, self.database))
        trusted: dict[Captured, Sequence[setup.Trigger]] = {
            one: triggers for one, triggers in there.items() if triggers
        }
        if trusted:
            trusted |= setup.renew_triggers(con, self.database, trusted)
            deltas = (delta_sql(self.database, captured) for captured in trusted)
            con.execute(";".join(f"UPDATE {delta} SET tx = {NEVER} WHERE tx <> {NEVER}" for delta in deltas)).fetchall()
        for captured in there:
            if captured in trusted:
                self._publish(captured, setup.oids_of(trusted[captured]))
            else:
                problems.append(_untrusted(captured.table, "its triggers or columns are not those that were installed"))
                self._captured[captured.table.key] = captured
        return problems

    def install(
        self,
        con: Any,
        tables: Mapping[QualifiedName, Collection[str]],
        *,
        in_transaction: bool = False,
        patience: float = 2.0,
    ) -> set[QualifiedName]:
        """Capture these columns of these tables from now on, all or none; the tables for which anything had to be made.

        Idempotent; columns captured already are kept, so several readers share one capture. A
        broken capture is made anew, and what it held is dropped. Read the tables only *after*
        this returns: the capture is complete from then on. Waits up to `patience` seconds for
        transactions older than the triggers (a wider capture need not: DuckDB fails the older ones,
        as their delta table is gone). In an open transaction it cannot wait: after COMMIT the caller
        runs `settle`, after ROLLBACK `reload`. Nine calls of DuckDB for new tables, however many.

        Errors: ProgrammingError (no such table or column), NotSupportedError (not a plain table),
        OperationalError (unread changes in the way of a wider capture, or older transactions).
        """
        covered = self.covered(con, tables)
        wanted = {table: columns for table, columns in tables.items() if table not in covered}
        if not wanted:
            return set()
        known = [captured for table in wanted if (captured := self._captured.get(table.key)) is not None]
        broken = {table.key for table in self._watch.broken(con, known)} if known else set()
        wider = {captured.table.key: captured.columns for captured in known if captured.table.key not in broken}
        names = {
            table: list(dict.fromkeys([*wider.get(table.key, ()), *columns]))
            for table, columns in setup.resolve(con, self.database, wanted).items()
        }
        with unit(con, in_transaction):
            made = setup.make(con, self.database, names, kept=wider)
        for captured, oids in made.items():
            self._publish(captured, oids)
        fresh = [table for table in wanted if table.key not in wider]
        if fresh and not in_transaction:
            try:
                self.settle(con, fresh, patience)
            except BaseException:
                self.uninstall(con, fresh)
                raise
        return set(wanted)

    def uninstall(self, con: Any, tables: Sequence[QualifiedName], *, in_transaction: bool = False) -> None:
        """Stop capturing tables (dropped or not) and drop the changes they held; no error if they are not captured."""
        with unit(con, in_transaction):
            setup.remove(con, self.database, tables)
        for table in tables:
            self._forget(table)

    def settle(self, con: Any, tables: Sequence[QualifiedName], patience: float = 2.0) -> None:
        """Wait until no transaction is older than the triggers: such a one would write past them.

        DuckDB lists no transactions, but CHECKPOINT is refused while one is open that began before
        the latest change of the catalog. Call in autocommit, right after the COMMIT.
        """
        import duckdb

        deadline = time.monotonic() + patience
        while True:
            try:
                con.execute(f"CHECKPOINT {quote(self.database)}").fetchall()
                return
            except duckdb.TransactionException as error:
                if time.monotonic() >= deadline:
                    raise OperationalError(
                        "another transaction is in the way",
                        where=", ".join(f"table {table}" for table in tables),
                        why="it began before the changes of the table were captured and could still write to it unseen",
                        hint="end it (COMMIT, ROLLBACK, or drain its result), then run the statement again",
                    ) from error
                time.sleep(0.005)

    def reload(self, con: Any) -> None:
        """Read anew what is captured, after a transaction with `install`, `uninstall` or DDL in it ended."""
        self._captured.clear()
        self._watch.set([])
        for captured in setup.booked(con, self.database):
            self._publish(captured)

    # -- what DuckDB refuses on tables with triggers

    def run_upsert_or_merge(
        self,
        con: Any,
        table: QualifiedName,
        statement: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        in_transaction: bool = False,
        many: bool = False,
    ) -> pa.Table:
        """Run INSERT OR REPLACE, INSERT ... ON CONFLICT DO UPDATE or MERGE INTO a captured table.

        Returns what DuckDB would: the rows of RETURNING, else one row `Count`. `many`: `parameters`
        is a sequence of parameter sets (executemany); the counts are added, RETURNING rows appended.
        On an error nothing is changed; inside a user's transaction that transaction is aborted, as
        DuckDB does on any error. Python objects that the statement names must be registered on `con`.
        """
        from sqlfront.storage.capture.upsert import run

        captured = self._get(table)
        with unit(con, in_transaction):
            self._suspend(con, table)
            result = run(con, self.database, captured, statement, parameters, many)
            named = setup.named_for(con, self.database)
            made = setup.create_triggers(con, self.database, named, [captured])
            self._watch.remember(table, setup.oids_of(made[captured]))
        return result

    def follow(
        self,
        con: Any,
        table: QualifiedName,
        statement: str,
        renamed_columns: Mapping[str, str] | None = None,
    ) -> None:
        """Run an ALTER TABLE that DuckDB refuses under triggers, and capture the table on under its columns' new names.

        `classify` (ddl_effects.py) says what the statement does. Unread changes are kept under the new names.
        """
        old, renamed = self._get(table), {k.casefold(): v for k, v in (renamed_columns or {}).items()}
        columns = tuple(renamed.get(name.casefold(), name) for name in old.columns)
        new = Captured(old.table, old.number, columns)
        with unit(con, False):
            self._suspend(con, table)
            con.execute(statement).fetchall()
            named = setup.named_for(con, self.database)
            made = setup.create_triggers(con, self.database, named, [new])
            setup.unbook(con, self.database, [new])
            setup.book(con, self.database, named, made)
        self._forget(table)
        self._publish(new, setup.oids_of(made[new]))

    # -- reading changes

    def pending(self, con: Any, tables: Iterable[QualifiedName] | None = None, own: bool | None = None) -> Pending:
        """The captured, unconsumed changes that the transaction of `con` sees, of all or the given tables.

        own: True = made by this transaction, False = left behind by others, None = both.
        """
        from sqlfront.storage.codecs.arrow_batches import numbers_of

        found, marks = {}, {}
        for captured in self._chosen(tables):
            rows = exported(con.sql(pending_query(self.database, captured, own))).to_arrow_table()
            if rows.num_rows:
                marks[captured.table] = int(numbers_of(rows.column(rows.num_columns - 1)).max()), rows.num_rows
                found[captured.table] = rows.select(range(rows.num_columns - 1))
        return Pending(found, own, marks)

    def consume(self, con: Any, pending: Pending) -> None:
        """Delete precisely the rows that were read, in the transaction that read them."""
        for table, (last, count) in pending.marks.items():
            delta = delta_sql(self.database, self._get(table))
            [(deleted,)] = con.execute(f"DELETE FROM {delta} WHERE {whose(pending.own)} AND rowid <= {last}").fetchall()
            if deleted != count:
                raise InternalError(
                    f"{count} captured changes were read, but {deleted} consumed",
                    where=f"table {table}",
                    why="reading and consuming must happen in one transaction",
                )
            self._dead += 0 if pending.own else count

    def take(
        self,
        con: Any,
        tables: Iterable[QualifiedName] | None = None,
        own: bool | None = None,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> dict[QualifiedName, pa.Table]:
        """`pending` and `consume` in one statement for each changed table: cheaper, when they are wanted once. The rows
        are read `within` a context of the caller's, if there are any. Where nobody has left changes, those of others
        cost one query, however many tables there are."""
        chosen, found = self._chosen(tables), {}
        if own is False and chosen:
            filled = {name for (name,) in con.execute(filled_query(self.database)).fetchall()}
            chosen = [captured for captured in chosen if delta_name(captured) in filled]
        changed = con.execute(changed_query(self.database, chosen, own)).fetchall() if chosen else []
        with within() if changed else nullcontext():
            for captured in chosen:
                if (captured.number,) in changed:
                    rows = exported(con.sql(take_statement(self.database, captured, own))).to_arrow_table()
                    found[captured.table] = rows
                    self._dead += 0 if own else rows.num_rows
        return found

    def take_own(self, con: Any, table: QualifiedName, columns: Mapping[str, str]) -> None:
        """Take out what the transaction of `con` has changed in one table: these columns, with their types, and
        `_weight` are left as the result of `con`. What it has changed in other tables is foreign after COMMIT."""
        con.execute(take_statement(self.database, self._get(table), True, columns))

    def compact(self, con: Any) -> bool:
        """Give back the space of consumed foreign changes when there are many; True if it was done.

        Needs autocommit, and no old transactions: it is put off while there are.
        """
        import duckdb

        if self._dead < DEAD_ROWS_BEFORE_CHECKPOINT:
            return False
        try:
            con.execute(f"CHECKPOINT {quote(self.database)}").fetchall()
        except duckdb.TransactionException:
            return False
        self._dead = 0
        return True

    # -- integrity

    def verify(self, con: Any, tables: Iterable[QualifiedName] | None = None) -> None:
        """Raise OperationalError if writers may have gone unseen on any of the tables. One catalog query."""
        for table in self._watch.broken(con, self._chosen(tables)):
            raise _untrusted(table, _DROPPED)

    def check(self, con: Any) -> bool:
        """Whether another transaction's changes are unconsumed; raises as `verify` does, for all tables. One query, for
        the start of every read."""
        broken, foreign = self._watch.look(con, self._chosen(None))
        for table in broken:
            raise _untrusted(table, _DROPPED)
        return foreign

    def look(self, con: Any) -> tuple[list[QualifiedName], bool]:
        """`check` without raising: the tables whose changes may have been missed, and if there are foreign changes."""
        broken, foreign = self._watch.look(con, self._chosen(None))
        return broken, foreign or (bool(broken) and self._watch.foreign(con))

    # -- inside

    def _get(self, table: QualifiedName) -> Captured:
        captured = self._captured.get(table.key)
        if captured is None:
            raise InternalError("the table is not captured", where=f"table {table}")
        return captured

    def _chosen(self, tables: Iterable[QualifiedName] | None) -> list[Captured]:
        return list(self._captured.values()) if tables is None else [self._get(table) for table in tables]

    def _suspend(self, con: Any, table: QualifiedName) -> None:
        import duckdb

        self.verify(con, [table])
        try:
            con.execute(";".join(drop_triggers_ddl(self.database, table)))
        except duckdb.TransactionException as error:
            raise OperationalError(
                "another transaction is in the way",
                where=f"table {table}",
                why="it has run an upsert, a MERGE or an ALTER on the table since this one began",
                hint="run the transaction again after it has ended",
            ) from error

    def _publish(self, captured: Captured, oids: Iterable[int] = ()) -> None:
        self._captured[captured.table.key] = captured
        self._watch.remember(captured.table, oids)
        self._watch.set(self._captured.values())

    def _forget(self, table: QualifiedName) -> None:
        self._captured.pop(table.key, None)
        self._watch.set(self._captured.values())


def _folded(names: Iterable[str]) -> set[str]:
    return {name.casefold() for name in names}


_DROPPED = "the table or its capture triggers were dropped, replaced or made anew"


def _untrusted(table: QualifiedName, why: str) -> OperationalError:
    return OperationalError(
        f"view cannot be trusted: changes of table {table} may have been missed",
        where=f"table {table}",
        why=why,
        hint="REFRESH MATERIALIZED VIEW rebuilds the view from its tables",
    )
