"""DDL of DuckDB's on tables that views read: transparent, followed, or refused naming the views."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from sqlfront import ddl
from sqlfront.catalog import EngineCatalog
from sqlfront.names import captured_table, locate, shown
from sqlfront.statements import PassThrough
from sqlfront.tokens import tokenize
from storage.capture import QualifiedName
from storage.capture_ddl import Verdict, classify
from storage.errors import Error, IntegrityError, NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlglot import exp

    from sqlfront.connection import Connection
    from sqlfront.database import Database, ViewEntry


def needs_us(connection: Connection, statement: PassThrough) -> bool:
    """Whether a DDL statement concerns something of ours."""
    database = connection._database
    if statement.verb == "create" and any(
        t.keyword in ("temp", "temporary") for t in tokenize(statement.text[:60])[:4]
    ):
        return False
    if statement.object == "schema" and statement.verb == "drop":
        return any(_in_schema(connection, statement))
    return any(locate(database, connection._duck, target.parts) is not None for target in statement.targets)


def alter(connection: Connection, statement: PassThrough) -> None:
    """Run, follow or refuse a DDL statement on a captured table, a view or a change table."""
    import sqlglot

    database, con = connection._database, connection._duck
    _refuse_ours(connection, statement)
    if statement.object == "schema":
        names = ", ".join(map(shown, _in_schema(connection, statement)))
        raise IntegrityError(
            "DROP SCHEMA is refused",
            why=f"materialized views or change tables live in it, or read it: {names}",
            hint="drop them first",
        )
    for target in statement.targets:
        key = locate(database, con, target.parts)
        if key not in {table.key for table in database.capture.tables()}:
            continue
        table = captured_table(database, key)
        tree = sqlglot.parse_one(statement.text, dialect="duckdb")
        verdict = classify(tree, database.capture.columns(table))
        if verdict.action == "transparent":
            continue
        if statement.verb == "drop" and statement.object == "table":
            _drop_table(connection, statement, table)
            return
        if verdict.action == "follow" and connection._transaction is None:
            _follow(connection, statement, table, verdict)
            return
        names = ", ".join(shown(entry.name) for entry in database.readers(table))
        why = verdict.reason if verdict.action == "refuse" else "it cannot be followed inside a transaction"
        raise IntegrityError(
            f"{statement.verb.upper()} {statement.object.upper()} on {shown(table)} is refused",
            why=f"{why}; materialized views read the table: {names}",
            hint="drop the views first" if verdict.action == "refuse" else "COMMIT first",
        )
    con.execute(statement.text)
    connection._has_result = True


def _refuse_ours(connection: Connection, statement: PassThrough) -> None:
    database = connection._database
    for target in statement.targets:
        key, name = locate(database, connection._duck, target.parts), ".".join(target.parts)
        if key in database.views or key in database.unbuilt:
            raise ProgrammingError(
                f"{name} is a materialized view",
                hint=f"DROP MATERIALIZED VIEW {name}, or CREATE OR REPLACE MATERIALIZED VIEW {name}",
            )
        if key in database.change_tables:
            raise ProgrammingError(f"{name} is a change table", hint=f"DROP CHANGE TABLE {name}")


def _drop_table(connection: Connection, statement: PassThrough, table: QualifiedName) -> None:
    database, con = connection._database, connection._duck
    if connection._transaction is not None:
        raise NotSupportedError("a table that views read cannot be dropped in a transaction", hint="COMMIT first")
    with database.engine.lock:
        ddl.drop_readers(database, con, table, cascade=statement.cascade, what=f"DROP TABLE {shown(table)}")
        con.execute(statement.text)
        database.capture.uninstall(con, table)


def _follow(connection: Connection, statement: PassThrough, table: QualifiedName, verdict: Verdict) -> None:
    """A renaming: the capture, the engine's relation and the views' definitions take the new names."""
    database, con = connection._database, connection._duck
    new = QualifiedName(table.schema, verdict.renamed_to) if verdict.renamed_to else None
    columns = dict([verdict.renamed_column]) if verdict.renamed_column else None
    with database.engine.lock:
        readers = database.readers(table)
        renamed = bool(new or columns)
        texts = [_renamed(database, entry, table, verdict) for entry in readers] if renamed else []
        database.capture.follow(con, table, statement.text, renamed_to=new, renamed_columns=columns)
        if not renamed:
            return
        for entry in readers:
            database.detach(entry)
        database.engine.drop_table(database.relation_key(table))
        for entry, text in zip(readers, texts, strict=True):
            _rebuild(database, con, entry, text)
        database.changed()


def _rebuild(database: Database, con: Any, entry: ViewEntry, query: str) -> None:
    """Build a view anew from its query under new names; its columns keep theirs."""
    names = tuple(name for name, _ in entry.definition.columns)
    entry.select, entry.column_names = query, names
    try:
        fresh = ddl.build_view(database, con, entry.name, query, entry.options, names, database.new_scan())
        entry.maintained, entry.definition, entry.tables = fresh.maintained, fresh.definition, fresh.tables
        with ddl.transaction(con):
            con.execute(
                f"UPDATE {ddl.SCHEMA}.views SET query = ?, column_names = ? WHERE schema = ? AND name = ?",
                [query, json.dumps(names), entry.name.schema, entry.name.name],
            )
            ddl.remake_duckdb_view(database, con, entry)
    except Error as error:
        database.give_up(entry, f"it could not follow a renaming: {error.what}")


def _renamed(database: Database, entry: ViewEntry, table: QualifiedName, verdict: Verdict) -> str:
    """A view's query under the new names. NotSupportedError where it does not say enough to be rewritten."""
    key = database.relation_key(table)
    others = {
        column.name.casefold() for name in entry.tables - {key} for column in database.engine.relations[name].columns
    }
    try:
        return renamed_query(entry.select, table, verdict, others)
    except NotSupportedError as error:
        error.args = (f"{error}\nView: {shown(entry.name)}",)
        raise


def renamed_query(query: str, table: QualifiedName, verdict: Verdict, others: Collection[str]) -> str:
    """A query under the new names: every reference to the table or its column is rewritten.

    `others` are the columns of the query's other tables, in lower case.
    """
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(query, dialect="duckdb")
    references = [t for t in tree.find_all(exp.Table) if t.name.casefold() == table.name.casefold()]
    if verdict.renamed_column:
        _rename_column(tree, [t.alias_or_name for t in references], *verdict.renamed_column, others)
    for reference in references if verdict.renamed_to else ():
        if not reference.alias:
            reference.set("alias", exp.TableAlias(this=exp.to_identifier(reference.name, quoted=True)))
        reference.set("this", exp.to_identifier(verdict.renamed_to, quoted=True))
    return tree.sql(dialect="duckdb")


def _rename_column(tree: exp.Expr, aliases: list[str], old: str, new: str, others: Collection[str]) -> None:
    from sqlglot import exp

    name = old.casefold()
    joins = list(tree.find_all(exp.Join))
    natural = any(join.args.get("method") == "NATURAL" for join in joins)
    using = any(column.name.casefold() == name for join in joins for column in join.args.get("using") or ())
    alias = any(other.alias.casefold() == name for other in tree.find_all(exp.Alias))
    plain = any(c.name.casefold() == name and not c.table for c in tree.find_all(exp.Column))
    if natural or using or (plain and (alias or name in others)):
        raise NotSupportedError(
            f"renaming column {old} is refused",
            why=f"a view's query uses {old} by NATURAL, USING or an alias, or without saying of which table",
            hint="qualify the column in the view (CREATE OR REPLACE), or drop the view first",
        )
    owners = {other.casefold() for other in aliases}
    for column in tree.find_all(exp.Column):
        if column.name.casefold() == name and (not column.table or column.table.casefold() in owners):
            if not column.table:
                column.set("table", exp.to_identifier(aliases[0], quoted=True))
            column.set("this", exp.to_identifier(new, quoted=True))


def _in_schema(connection: Connection, statement: PassThrough) -> Iterator[QualifiedName]:
    """The views and change tables that live in the schemas a statement names, and the views that read them."""
    database = connection._database
    dropped = {target.parts[-1].casefold() for target in statement.targets}
    for entry in database.views.values():
        catalog = EngineCatalog(database, connection._duck)
        schemas = {entry.name.schema, *(catalog.name(table).schema for table in entry.tables)}
        if {schema.casefold() for schema in schemas} & dropped:
            yield entry.name
    others = [view.name for view in database.unbuilt.values()] + [t.name for t in database.change_tables.values()]
    yield from (name for name in others if name.schema.casefold() in dropped)
