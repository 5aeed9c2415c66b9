"""CREATE, DROP, REFRESH and ALTER of materialized views.

Each runs in autocommit, under the engine's lock, in one DuckDB transaction: the catalog and the
engine change together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maintenance.relation import Column
from maintenance.view import MaintainedView
from planner.classify import plan_view
from planner.plan import Plan
from planner.query import Definition
from planner.refusal import Refusal
from sqlfront import persistence
from sqlfront.binder import bind_view
from sqlfront.catalog import EngineCatalog
from sqlfront.database import SCHEMA, ChangeTable, Database, UnbuiltView, ViewEntry, scan_name
from sqlfront.names import locate, new_name, shown
from sqlfront.options import check_options
from sqlfront.statements import CreateMaterializedView, Name
from sqlfront.transactions import captured, rollback
from storage.capture import QualifiedName
from storage.capture_sql import quote
from storage.errors import IntegrityError, NotSupportedError, ProgrammingError


def create_view(database: Database, con: Any, statement: CreateMaterializedView) -> None:
    """Bind, plan, build and store a view. On any error nothing has changed. O(rows of its tables)."""
    options = check_options("materialized view", statement.options)
    name = new_name(database, con, statement.name.parts)
    with database.engine.lock:
        old = database.views.get(name.key) or database.unbuilt.get(name.key)
        if old is not None and statement.if_not_exists:
            return
        if old is not None and not statement.or_replace:
            raise ProgrammingError(
                f"materialized view {shown(name)} exists already",
                hint="CREATE OR REPLACE MATERIALIZED VIEW, or CREATE MATERIALIZED VIEW IF NOT EXISTS",
            )
        if old is None:
            refuse_other_object(con, name)
        persistence.prepare(database, con)
        scan = database.new_scan()
        entry = build_view(
            database, con, name, statement.query, options, statement.columns, scan,
            statement=statement.text, offset=statement.query_start,
        )  # fmt: skip
        try:
            with transaction(con):
                if old is not None:
                    _forget_view(con, old.name)
                register_scan(database, con, entry)
                create_duckdb_view(con, entry)
                database.save_view(con, entry)
        except BaseException:
            _drop_maintained(database, con, entry)
            raise
        database.unbuilt.pop(name.key, None)
        database.views[name.key] = entry
        if isinstance(old, ViewEntry):
            _drop_maintained(database, con, old)
        database.changed()


def build_view(
    database: Database,
    con: Any,
    name: QualifiedName,
    query: str,
    options: dict[str, Any],
    column_names: tuple[str, ...],
    scan: int,
    *,
    statement: str | None = None,
    offset: int = 0,
) -> ViewEntry:
    """Bind and plan a query and build its maintained view, capturing the tables it reads."""
    catalog = EngineCatalog(database, con)
    definition = bind_view(query, con, catalog, column_names=column_names, statement=statement, offset=offset)
    plan = plan_definition(definition, cardinalities(database, con, definition))
    tables = {atom.table for atom in definition.atoms}
    newly_captured = [table for table in sorted(tables) if _capture(database, con, catalog, table, definition)]
    try:
        maintained = _build(database, con, f"{database.relation_key(name)}#{scan}", definition, plan)
    except BaseException:
        for table in newly_captured:
            _release(database, con, table)
        raise
    return ViewEntry(name, query, options, column_names, scan, definition, maintained, tables)


def plan_definition(definition: Definition, sizes: dict[str, int]) -> Plan:
    """The plan of a definition, or NotSupportedError with the planner's reason."""
    plan = plan_view(definition, sizes)
    if isinstance(plan, Refusal):
        raise NotSupportedError(plan.what, where=plan.witness, why=plan.why, hint=plan.suggestion)
    return plan


def cardinalities(database: Database, con: Any, definition: Definition) -> dict[str, int]:
    """Estimated rows per table, which choose among trees of one class."""
    rows = con.execute(
        "SELECT schema_name, table_name, estimated_size FROM duckdb_tables() WHERE database_name = current_database()"
    ).fetchall()
    return {database.relation_key(QualifiedName(schema, name)): max(1, size) for schema, name, size in rows}


def drop_view(database: Database, con: Any, name: Name, *, if_exists: bool) -> None:
    """Drop a materialized view and what only it needed."""
    with database.engine.lock:
        key = locate(database, con, name.parts, temporary=False)
        if if_exists and key not in database.views and key not in database.unbuilt:
            return
        entry = database.unbuilt.get(key or ("", "")) or database.view(con, name.parts)
        with transaction(con):
            _forget_view(con, entry.name)
        database.unbuilt.pop(entry.name.key, None)
        database.views.pop(entry.name.key, None)
        if isinstance(entry, ViewEntry):
            _drop_maintained(database, con, entry)
        database.changed()


def refresh_view(database: Database, con: Any, name: Name) -> None:
    """Rebuild a view from its sources, and with it the views that share its stores: those are read anew too.

    Refused when a source does not keep its rows. If it fails half-way, the views not yet rebuilt raise until REFRESH.
    """
    with database.engine.lock:
        unbuilt = database.unbuilt.get(locate(database, con, name.parts, temporary=False) or ("", ""))
        if unbuilt is not None:
            register_all(database, con)
            _adopt(database, con, _built_again(database, con, unbuilt))
            database.changed()
            return
        entry = database.view(con, name.parts)
        if _passing(database, entry):
            raise ProgrammingError(
                f"materialized view {shown(entry.name)} cannot be rebuilt",
                why=f"change table {_passing(database, entry)} was created WITH (retain = false) and keeps no rows",
                hint="create the change table WITH (retain = true)",
            )
        group = [entry, *_sharing(database, entry)]
        for member in group:
            database.detach(member)
        try:
            for member in group:
                fresh = _built_again(database, con, member)
                member.maintained, member.definition = fresh.maintained, fresh.definition
                with transaction(con):
                    remake_duckdb_view(database, con, member)
        except BaseException as error:
            for member in group:
                if member.maintained.name not in database.engine.views:
                    member.maintained.broken = f"REFRESH was not completed: {error}"
            raise
        finally:
            database.changed()


def alter_view(database: Database, con: Any, name: Name, options: tuple[tuple[str, Any], ...]) -> None:
    """Set options of a view; unknown ones are errors."""
    entry = database.view(con, name.parts)
    entry.options.update(check_options("materialized view", options))


def drop_readers(database: Database, con: Any, table: QualifiedName, *, cascade: bool, what: str) -> None:
    """Drop the views that read a table, or refuse naming them."""
    readers = database.readers(table)
    if readers and not cascade:
        names = ", ".join(shown(entry.name) for entry in readers)
        raise IntegrityError(
            f"{what} is refused",
            why=f"materialized views read the table: {names}",
            hint="drop the views first, or use CASCADE",
        )
    for entry in readers:
        drop_view(database, con, Name((entry.name.schema, entry.name.name), 0, 0), if_exists=True)


def create_duckdb_view(con: Any, entry: ViewEntry) -> None:
    """Make the DuckDB view that users see: the final projection over the scan of the maintained core."""
    con.execute(f"CREATE VIEW {entry.name} AS {view_query(entry.definition, entry, scan_name(entry.scan))}")


def remake_duckdb_view(database: Database, con: Any, entry: ViewEntry) -> None:
    """The DuckDB view anew: SELECT * may have got more columns."""
    con.execute(f"DROP VIEW IF EXISTS {entry.name}")
    register_scan(database, con, entry)
    create_duckdb_view(con, entry)


def view_query(definition: Definition, entry: ViewEntry, source: str) -> str:
    """SQL that computes a view's columns from its raw columns."""
    codecs = entry.maintained.codecs
    raw = []
    for column in definition.raw:
        text = quote(column.name)
        if column.kind == "variable" and column.variable is not None:
            text = codecs[column.variable].cast_sql(column.name)
        raw.append(f"{text} AS {quote(column.name)}")
    core = f"SELECT {', '.join(raw) or '1 AS one'} FROM {source}"
    outputs = [
        f"CAST({expression} AS {type_}) AS {quote(name)}"
        for expression, (name, type_) in zip(definition.projection, definition.columns, strict=True)
    ]
    having = f" WHERE {definition.having}" if definition.having else ""
    return f"SELECT {', '.join(outputs)} FROM ({core}) AS core{having}"


def register_scan(database: Database, con: Any, entry: ViewEntry) -> None:
    """Bind a view's scan on a plain DuckDB cursor, outside any statement of a user's."""
    con.register(scan_name(entry.scan), database.view_scan(entry, database.session))


def register_all(database: Database, con: Any) -> None:
    for name, scan in database.scans(database.session):
        con.register(name, scan)


@contextmanager
def transaction(con: Any) -> Iterator[None]:
    """A DuckDB transaction that commits, or rolls back on any exception."""
    con.execute("BEGIN")
    try:
        yield
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


# Inside ------------------------------------------------------------------------------------------


def _capture(database: Database, con: Any, catalog: EngineCatalog, table: str, definition: Definition) -> bool:
    """Make the engine follow a table; True if it did not before."""
    name = catalog.name(table)
    if name.key in database.change_tables:
        _refuse_passed_rows(database, database.change_tables[name.key])
        return False
    columns = [Column(*column) for column in catalog.columns(table) or []]
    fresh = table not in database.engine.relations
    database.capture.install(con, name, [column.name for column in columns])
    if fresh:
        database.engine.create_table(table, columns, retain=False)
    elif columns != list(database.engine.relations[table].columns):
        database.engine.relations[table].columns = tuple(columns)  # Columns were added since.
    return fresh


def _refuse_passed_rows(database: Database, table: ChangeTable) -> None:
    relation = database.engine.relations[database.relation_key(table.name)]
    if not table.retain and relation.passed:
        raise ProgrammingError(
            f"a view over change table {shown(table.name)} cannot be built any more",
            why="rows have passed already, and WITH (retain = false) they are not kept",
            hint="create views before the first change, or the table WITH (retain = true)",
        )


def _build(database: Database, con: Any, name: str, definition: Definition, plan: Plan) -> MaintainedView:
    """Build a view from one snapshot, after taking in what other writers have committed up to it."""
    engine = database.engine
    con.execute("BEGIN")
    applied, maintained, committed = None, None, False
    try:
        changes = captured(database, con, own=False, consume=True)
        applied = engine.apply(changes) if changes else None
        maintained = engine.create_view(name, definition, plan, lambda relation: database.load(con, relation))
        con.execute("COMMIT")
        committed = True
    finally:
        if not committed:
            if maintained is not None:
                engine.drop_view(name)
            if applied is not None:
                engine.undo(applied)
            rollback(con)
    if applied is not None:
        engine.commit(applied)
    return maintained


def _release(database: Database, con: Any, table: str) -> None:
    """Stop following a table that no view reads."""
    relation = database.engine.relations.get(table)
    if relation is None or any(table in entry.tables for entry in database.views.values()):
        return
    if any(database.relation_key(t.name) == table for t in database.change_tables.values()):
        return
    database.engine.drop_table(table)
    name = EngineCatalog(database, con).name(table)
    database.capture.uninstall(con, name)


def _drop_maintained(database: Database, con: Any, entry: ViewEntry) -> None:
    database.detach(entry)
    for table in entry.tables:
        _release(database, con, table)


def _forget_view(con: Any, name: QualifiedName) -> None:
    con.execute(f"DROP VIEW IF EXISTS {name}")
    con.execute(f"DELETE FROM {SCHEMA}.views WHERE schema = ? AND name = ?", [name.schema, name.name])


def _adopt(database: Database, con: Any, fresh: ViewEntry) -> None:
    """Put a view that could not be built before among the others: its columns are made anew."""
    with transaction(con):
        _forget_view(con, fresh.name)
        register_scan(database, con, fresh)
        create_duckdb_view(con, fresh)
        database.save_view(con, fresh)
    del database.unbuilt[fresh.name.key]
    database.views[fresh.name.key] = fresh


def _built_again(database: Database, con: Any, entry: ViewEntry | UnbuiltView) -> ViewEntry:
    return build_view(database, con, entry.name, entry.select, entry.options, entry.column_names, database.new_scan())


def _passing(database: Database, entry: ViewEntry) -> str | None:
    """A change table that the view reads and that keeps no rows."""
    for table in database.change_tables.values():
        if database.relation_key(table.name) in entry.tables and not table.retain:
            return shown(table.name)
    return None


def _sharing(database: Database, entry: ViewEntry) -> list[ViewEntry]:
    """The other views that read a store which this one reads, as far as they can be rebuilt."""
    users = set().union(*(source.store.users for source in entry.maintained.sources.values()))
    return [
        other
        for other in database.views.values()
        if other is not entry and other.maintained.name in users and not _passing(database, other)
    ]


def refuse_other_object(con: Any, name: QualifiedName) -> None:
    found = con.execute(
        "SELECT 'table' FROM duckdb_tables() WHERE lower(schema_name) = ? AND lower(table_name) = ? "
        "AND database_name = current_database() UNION ALL "
        "SELECT 'view' FROM duckdb_views() WHERE lower(schema_name) = ? AND lower(view_name) = ? "
        "AND database_name = current_database()",
        [*name.key, *name.key],
    ).fetchall()
    if found:
        raise ProgrammingError(
            f"a {found[0][0]} named {shown(name)} exists already", hint="choose another name, or drop it"
        )
