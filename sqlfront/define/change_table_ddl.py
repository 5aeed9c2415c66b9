"""CREATE and DROP of change tables: tables that the engine keeps, views over a scan to DuckDB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlfront.database.database import Database
from sqlfront.database.durable import settle_durability
from sqlfront.database.entries import ChangeTable
from sqlfront.database.names import new_name, shown
from sqlfront.database.stored_views import forget_change_table, store_change_table
from sqlfront.database.transactions import transaction
from sqlfront.database.user_settings import lossless
from sqlfront.define import persistence
from sqlfront.define.ddl import readers_to_drop, refuse_other_object
from sqlfront.define.options import check_options
from sqlfront.define.replacing import dropping
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.sql.search_path import Names
from sqlfront.sql.statements import CreateChangeTable, Name, PassThrough
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import ProgrammingError
from sqlfront.storage.outside.sources import check_source
from sqlfront.storage.sql_text import quote


def create_change_table(database: Database, con: Any, statement: CreateChangeTable) -> None:
    """Register a table that the engine keeps; DuckDB sees it as a view over a scan."""
    options = check_options("change table", statement.options)
    options = settle_durability(database, options)
    if statement.source is not None:
        source = dict(statement.source_options)
        check_source(statement.source, source)
        options["source"] = {"kind": statement.source, "options": source}
    name = new_name(database, con, statement.name.parts)
    with database.lock:
        if name.key in database.change_tables:
            if statement.if_not_exists:
                return
            if not statement.or_replace:
                raise ProgrammingError(
                    f"change table {shown(name)} exists already", hint="CREATE OR REPLACE CHANGE TABLE"
                )
        table = _change_table(database, con, name, statement, options)
        if name.key in database.change_tables:
            drop_change_table(database, con, statement.name, if_exists=False, cascade=False)
        refuse_other_object(database, name, Names(con))
        persistence.prepare(database, con)
        relation = database.relation_key(name)
        database.engine.create_table(relation, table.columns, retain=table.retain)
        database.change_tables[name.key] = table
        try:
            with transaction(con):
                if table.durable:
                    database.log.create(con, table.scan, table.types)
                store_change_table(database, con, table)
                persistence.save_change_table(con, table)
        except BaseException:
            del database.change_tables[name.key]
            database.engine.drop_table(relation)
            raise
        database.changed()


def drop_change_table(database: Database, con: Any, name: Name, *, if_exists: bool, cascade: bool) -> None:
    """Drop a change table; views that read it stop it unless CASCADE drops them too."""
    with database.lock:
        table = database.change_table(con, name.parts)
        if table is None:
            if if_exists:
                return
            raise ProgrammingError(f"there is no change table {name}", hint="SHOW CHANGE TABLES lists them")
        readers = readers_to_drop(database, [table.name], cascade=cascade, what=f"DROP CHANGE TABLE {name}")
        with dropping(database, con, readers):
            forget_change_table(database, con, table)
            database.log.drop(con, table.scan)
        database.attached.sources.pop(table.scan, None)
        database.offsets = {key: at for key, at in database.offsets.items() if key[0] != table.scan}
        del database.change_tables[table.name.key]
        database.engine.drop_table(database.relation_key(table.name))
        database.changed()


def add_column(database: Database, con: Any, table: ChangeTable, statement: PassThrough) -> None:
    """ALTER TABLE ... ADD COLUMN of a change table: present rows get its default. Views stay as they are.

    O(rows), of a table that keeps none O(1). On any error nothing has changed.
    """
    from sqlfront.maintenance.added_column import add_column
    from sqlfront.storage.codecs.encoding import codec_for

    with database.lock:
        found = _added(con, table, statement)
        if found is None:
            return
        column, default, value = found
        relation = database.relation_key(table.name)
        codec_for(column.type, database.engine.dictionaries)
        database.catch_up_views(database.engine.deferred.views)
        for entry in database.readers(table.name):
            database.refuse_waiting(entry)
        with database.cursor() as own, transaction(own):
            if table.durable:
                database.log.add_column(own, table.scan, len(table.columns), column.type, default or "NULL")
            defaults = table.defaults | ({column.name: default} if default is not None else {})
            changed = replace(table, columns=(*table.columns, column), defaults=defaults)
            forget_change_table(database, own, table)
            store_change_table(database, own, changed)
            persistence.save_change_table(own, changed)
            add_column(database.engine, relation, column, value)
        vars(table).update(vars(changed))
        database.changed()


def _added(con: Any, table: ChangeTable, statement: PassThrough) -> tuple[Column, str | None, Any] | None:
    """The column that a statement adds, its default as SQL, and as an Arrow array of one. None if there is nothing to
    add. DuckDB adds it to a table of its own, with one row."""
    import duckdb

    columns = ", ".join(f"{quote(column.name)} {column.type}" for column in table.columns)
    [target] = statement.targets
    text = f"{statement.text[: target.start]}temp.__sqlfront_types{statement.text[target.end :]}"
    con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_types ({columns})")
    try:
        con.execute(f"INSERT INTO temp.__sqlfront_types ({quote(table.columns[0].name)}) VALUES (NULL)")
        con.execute(text)
        made = con.execute(
            "SELECT column_name, data_type, NOT is_nullable, column_default FROM duckdb_columns() "
            "WHERE database_name = 'temp' AND table_name = '__sqlfront_types' ORDER BY column_index ASC"
        ).fetchall()
        if len(made) == len(table.columns):
            return None
        name, type_, not_null, default = made[-1]
        with lossless(con):
            value = con.sql(f"SELECT {quote(name)} FROM temp.__sqlfront_types").to_arrow_table().column(0)
        return Column(name, type_, not_null), default, value.combine_chunks()
    except duckdb.Error as error:
        message = str(error).replace("temp.__sqlfront_types", str(target)).replace("__sqlfront_types", table.name.name)
        raise ProgrammingError(
            f"ALTER TABLE {shown(table.name)}: {message}", hint="ADD COLUMN as DuckDB has it"
        ) from error
    finally:
        con.execute("DROP TABLE IF EXISTS temp.__sqlfront_types")


def _change_table(
    database: Database, con: Any, name: QualifiedName, statement: CreateChangeTable, options: dict[str, Any]
) -> ChangeTable:
    """Check the declared columns by making such a table in DuckDB, and ask it for their types."""
    from sqlfront.storage.codecs.encoding import codec_for

    columns = ", ".join(
        f"{quote(c.name)} {c.type}" + (f" DEFAULT {c.default}" if c.default is not None else "")
        for c in statement.columns
    )
    defaults = {c.name: c.default for c in statement.columns if c.default is not None}
    import duckdb

    try:
        con.execute(f"CREATE OR REPLACE TEMP TABLE __sqlfront_types ({columns})")
        types = con.execute("DESCRIBE __sqlfront_types").fetchall()
        con.execute("DROP TABLE __sqlfront_types")
    except duckdb.Error as error:
        raise ProgrammingError(
            f"CREATE CHANGE TABLE {shown(name)}: {error}", hint="see the types DuckDB supports"
        ) from error
    keys = ([statement.primary_key] if statement.primary_key else []) + list(statement.unique)
    known = {c.name.casefold() for c in statement.columns}
    for key in keys:
        for column in key:
            if column.casefold() not in known:
                raise ProgrammingError(f"the key of {shown(name)} names a column it does not have: {column}")
    primary = {column.casefold() for column in statement.primary_key}
    made = tuple(
        Column(row[0], row[1], declared.not_null or row[0].casefold() in primary)
        for row, declared in zip(types, statement.columns, strict=True)
    )
    for each in made:
        codec_for(each.type, database.engine.dictionaries)
    return ChangeTable(name, made, tuple(map(tuple, keys)), defaults, options, database.new_scan())
