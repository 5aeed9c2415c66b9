"""DDL of DuckDB's on tables that views read: transparent, followed, or refused naming the views."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlfront.binding.freeze import renamed_query
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.names import captured_table, locate, shown
from sqlfront.define import change_table_ddl, ddl
from sqlfront.define.rebinding import follows, has_followers, rebinding_of
from sqlfront.define.replacing import dropping
from sqlfront.sql.name_parts import GAP
from sqlfront.sql.search_path import look_up
from sqlfront.sql.statements import PassThrough
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.ddl_effects import Verdict, classify, parse_ddl
from sqlfront.storage.errors import Error, IntegrityError, NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.entries import ChangeTable, ViewEntry
    from sqlfront.database.sessions import Session

_TEMPORARY = re.compile(
    rf"(?:explain\b.{{0,60}}?\b)?create{GAP}(?:or{GAP}replace{GAP})?(?:(?:local|global){GAP})?temp(?:orary)?\b",
    re.IGNORECASE | re.DOTALL,
)

_REPLACES = re.compile(rf"create{GAP}or{GAP}replace\b", re.IGNORECASE | re.DOTALL)


def needs_us(session: Session, statement: PassThrough) -> bool:
    """Whether a DDL statement concerns something of ours."""
    database = session.database
    if _TEMPORARY.match(statement.text):
        return False
    if statement.object == "schema" and statement.verb == "drop":
        return any(_in_schema(session, statement))
    if any(locate(database, session.duck, target.parts) is not None for target in statement.targets):
        return True
    if not _may_rebind(session, statement):
        return False
    return _change_of(session, statement) is not None or _drops_followed(session, statement)


def alter(session: Session, statement: PassThrough, run: Callable[[], None]) -> None:
    """Follow, refuse or, by `run`, let run a DDL statement on a captured table, a view or a change table."""
    database, con = session.database, session.duck
    if (widened := _widened(session, statement)) is not None:
        change_table_ddl.add_column(database, con, widened, statement)
        return
    _refuse_ours(session, statement)
    if statement.object == "schema":
        names = ", ".join(map(shown, _in_schema(session, statement)))
        raise IntegrityError(
            "DROP SCHEMA is refused",
            why=f"materialized views or change tables live in it, or read it: {names}",
            hint="drop them first",
        )
    change = _change_of(session, statement)
    if change is not None:
        _rebind(session, change, run)
        return
    captured = {table.key for table in database.capture.tables()}
    keys = [key for target in statement.targets if (key := locate(database, con, target.parts)) in captured]
    tables = [captured_table(database, key) for key in keys]
    drops = statement.verb == "drop" and statement.object == "table"
    if drops and (tables or _drops_followed(session, statement)):
        _drop_tables(session, statement, tables)
        return
    for table in tables:
        verdict = classify(parse_ddl(statement.text), database.capture.columns(table))
        if verdict.action == "transparent":
            continue
        if verdict.action == "follow" and session.transaction is None:
            _follow(session, statement, table, verdict)
            return
        names = ", ".join(shown(entry.name) for entry in database.readers(table))
        why = verdict.reason if verdict.action == "refuse" else "it cannot be followed inside a transaction"
        raise IntegrityError(
            f"{statement.verb.upper()} {statement.object.upper()} on {shown(table)} is refused",
            why=f"{why}; materialized views read the table: {names}",
            hint="drop the views first" if verdict.action == "refuse" else "COMMIT first",
        )
    run()


def _widened(session: Session, statement: PassThrough) -> ChangeTable | None:
    """The change table to which a statement adds a column. NotSupportedError inside a transaction."""
    if statement.action != "add column":
        return None
    table = session.database.change_table(session.duck, statement.targets[0].parts)
    if table is not None and session.transaction is not None:
        raise NotSupportedError(
            f"a column of change table {shown(table.name)} cannot be added inside a transaction", hint="COMMIT first"
        )
    return table


def _refuse_ours(session: Session, statement: PassThrough) -> None:
    database = session.database
    for target in statement.targets:
        key, name = locate(database, session.duck, target.parts), ".".join(target.parts)
        if key in database.views or key in database.unbuilt:
            raise ProgrammingError(
                f"{name} is a materialized view",
                hint=f"DROP MATERIALIZED VIEW {name}, CREATE OR REPLACE MATERIALIZED VIEW {name}, or "
                f"ALTER MATERIALIZED VIEW {name} RENAME TO another name",
            )
        if key in database.change_tables:
            raise ProgrammingError(f"{name} is a change table", hint=f"DROP CHANGE TABLE {name}")


@dataclass(frozen=True)
class _Change:
    """What a statement does to the tables of views: `old`, or no table of a view, is called `new` from then on."""

    old: QualifiedName | None
    new: QualifiedName
    replaces: bool = False

    def __str__(self) -> str:
        """The statement, for errors."""
        if self.replaces:
            return f"CREATE OR REPLACE TABLE {shown(self.new)}"
        new = shown(self.new)
        return f"CREATE TABLE {new}" if self.old is None else f"ALTER TABLE {shown(self.old)} RENAME TO {new}"


def _may_rebind(session: Session, statement: PassThrough) -> bool:
    """Whether a statement may give a table a name that views follow to another, or that the transaction has changed."""
    if statement.object != "table" or statement.verb not in ("alter", "create", "drop"):
        return False
    changed = session.transaction is not None and session.transaction.rebinding is not None
    return changed or has_followers(session.database)


def _change_of(session: Session, statement: PassThrough) -> _Change | None:
    """What a statement does to the tables that views read, by their names in this transaction; None if nothing."""
    database, con = session.database, session.duck
    if statement.object != "table" or not statement.targets:
        return None
    rebinding = rebinding_of(session.transaction, database)
    lookup = look_up(con, statement.targets[0].parts, temporary=False)
    found = lookup.first()
    old = QualifiedName(found.schema, found.name) if found is not None and found.database == database.name else None
    if statement.verb == "alter" and statement.action == "rename to" and old is not None:
        name = classify(parse_ddl(statement.text), ()).renamed_to
        change = None if name is None else _Change(old, QualifiedName(old.schema, name))
    elif statement.verb == "create" and old is not None and _REPLACES.match(statement.text):
        change = _Change(old, old, replaces=True)
    elif statement.verb == "create" and found is None and lookup.places[0][0] == database.name.casefold():
        change = _Change(None, QualifiedName(lookup.places[0][1], statement.targets[0].parts[-1]))
    else:
        change = None
    if change is None or not (
        (change.old is not None and rebinding.readers(change.old)) or rebinding.followers(change.new)
    ):
        return None
    return change


def _drops_followed(session: Session, statement: PassThrough) -> bool:
    """Whether a statement drops a table that views read by the name it has in this transaction alone."""
    if statement.verb != "drop" or statement.object != "table" or session.transaction is None:
        return False
    rebinding = rebinding_of(session.transaction, session.database)
    found = [look_up(session.duck, target.parts, temporary=False).first() for target in statement.targets]
    return any(one is not None and rebinding.readers(QualifiedName(one.schema, one.name)) for one in found)


def _rebind(session: Session, change: _Change, run: Callable[[], None]) -> None:
    """Run a statement that renames or replaces a table under views, and bind these by name; see rebinding.py."""
    import duckdb

    database, con, alone = session.database, session.duck, session.transaction is None
    with database.lock, session.in_transaction() as transaction:
        transaction.look()
        rebinding = rebinding_of(transaction, database)
        concerned = rebinding.followers(change.new)
        if change.old is not None:
            concerned += rebinding.readers(change.old)
        if (passing := ddl.why_not_rebuilt(database, concerned)) is not None:
            raise IntegrityError(
                f"{change} is refused",
                why=f"the views over the table would have to be rebuilt, which is impossible: {passing}",
                hint="drop the view first, and create it with the change table anew",
            )
        transaction.rebinding = rebinding
        rebinding.statement = str(change) if alone else "COMMIT"
        if change.old is not None:
            rebinding.release(con, change.old)
        run()
        if change.replaces:
            rebinding.replace(change.new)
        elif change.old is not None:
            rebinding.move(change.old, change.new)
        else:
            rebinding.take(change.new)
        assert transaction.snapshot is not None
        transaction.snapshot.rebound |= {entry.name.key for entry in rebinding.views}
        try:
            rebinding.check(con, str(change))
        except IntegrityError:
            with suppress(duckdb.Error):
                con.execute("SELECT error('a materialized view does not fit')").fetchall()  # Nothing of it may stay.
            raise
    session.has_result = True


def _drop_tables(session: Session, statement: PassThrough, tables: Sequence[QualifiedName]) -> None:
    import pyarrow as pa

    database, con = session.database, session.duck
    if session.transaction is not None:
        raise NotSupportedError("a table that views read cannot be dropped in a transaction", hint="COMMIT first")
    with database.lock:
        what = f"DROP TABLE {', '.join(map(shown, tables))}"
        readers = ddl.readers_to_drop(database, tables, cascade=statement.cascade, what=what)
        _refuse_followed(tables, readers, what)
        with dropping(database, con, readers):
            database.capture.uninstall(con, tables, in_transaction=True)
            con.execute(statement.text)
    dropped = [shown(entry.name) for entry in readers]
    session.set_result(pa.table({"dropped_materialized_view": pa.array(dropped, pa.string())}))


def _refuse_followed(tables: Sequence[QualifiedName], readers: Sequence[ViewEntry], what: str) -> None:
    """Refuse CASCADE from a table whose name the views' author never wrote: a swap of tables ends in such a drop."""
    for table in tables:
        if followers := [entry for entry in readers if follows(entry, table)]:
            raise IntegrityError(
                f"{what} CASCADE is refused",
                where=f"table {shown(table)}, which had another name before",
                why="materialized views have followed it to its new name and would be dropped: "
                + ", ".join(shown(entry.name) for entry in followers),
                hint="drop the views by DROP MATERIALIZED VIEW first, or rename the table back",
            )


def _follow(session: Session, statement: PassThrough, table: QualifiedName, verdict: Verdict) -> None:
    """A renaming of a column: the capture, the engine's relation and the views' definitions take the new name."""
    database, con = session.database, session.duck
    columns = dict([verdict.renamed_column]) if verdict.renamed_column else None
    with database.lock:
        readers = database.readers(table)
        passing = ddl.why_not_rebuilt(database, readers) if columns else None
        if passing is not None:
            raise IntegrityError(
                f"ALTER TABLE {shown(table)} is refused",
                why=f"the views over the table would have to be rebuilt, which is impossible: {passing}",
                hint="drop the view first, and create it with the change table anew",
            )
        database.capture.follow(con, table, statement.text, renamed_columns=columns)
        if not columns:
            return
        for entry in reversed(readers):
            database.detach(entry)
        database.engine.drop_table(database.relation_key(table))
        for entry in readers:
            entry.select = entry.written = renamed_query(entry.select, {}, {table.key: columns})
            try:
                ddl.rebuild(database, con, entry)
            except Error as error:
                database.give_up(entry, f"it could not follow a renaming: {error.what}")
        database.changed()


def _in_schema(session: Session, statement: PassThrough) -> Iterator[QualifiedName]:
    """The views and change tables that live in the schemas a statement names, and the views that read them."""
    database = session.database
    dropped = {target.parts[-1].casefold() for target in statement.targets}
    for entry in database.views.values():
        catalog = EngineCatalog(database, session.duck)
        schemas = {entry.name.schema, *(catalog.name(table).schema for table in entry.tables)}
        if {schema.casefold() for schema in schemas} & dropped:
            yield entry.name
    others = [view.name for view in database.unbuilt.values()] + [t.name for t in database.change_tables.values()]
    yield from (name for name in others if name.schema.casefold() in dropped)
