"""DDL of DuckDB's on tables that views read: transparent, followed, or refused naming the views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlfront import ddl
from sqlfront.names import captured_table, locate
from sqlfront.statements import Name, PassThrough
from storage.capture import QualifiedName
from storage.capture_ddl import classify
from storage.errors import IntegrityError, NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.connection import Connection


def needs_us(connection: Connection, statement: PassThrough) -> bool:
    """Whether a DDL statement concerns something of ours."""
    database = connection._database
    if statement.object == "schema" and statement.verb == "drop":
        return any(_in_schema(connection, statement))
    for target in statement.targets:
        if locate(database, connection._duck, target.parts) is not None:
            return True
    return False


def alter(connection: Connection, statement: PassThrough) -> None:
    """Run, follow or refuse a DDL statement on a captured table, a view or a change table."""
    import sqlglot

    database, con = connection._database, connection._duck
    _refuse_ours(connection, statement)
    if statement.object == "schema":
        names = ", ".join(str(entry.name) for entry in _in_schema(connection, statement))
        raise IntegrityError(
            "DROP SCHEMA is refused", why=f"materialized views live in it or read it: {names}", hint="drop them first"
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
        names = ", ".join(str(entry.name) for entry in database.readers(table))
        why = verdict.reason if verdict.action == "refuse" else "it cannot be followed inside a transaction"
        raise IntegrityError(
            f"{statement.verb.upper()} {statement.object.upper()} on {table} is refused",
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
        ddl.drop_readers(database, con, table, cascade=statement.cascade, what=f"DROP TABLE {table}")
        con.execute(statement.text)
        database.capture.uninstall(con, table)


def _follow(connection: Connection, statement: PassThrough, table: QualifiedName, verdict) -> None:
    """A renaming: the capture, the engine's relation and the views' definitions take the new names."""
    database, con = connection._database, connection._duck
    readers = database.readers(table)
    with database.engine.lock:
        new = QualifiedName(table.schema, verdict.renamed_to) if verdict.renamed_to else None
        columns = dict([verdict.renamed_column]) if verdict.renamed_column else None
        changed = verdict.renamed_to or verdict.renamed_column
        if changed and readers:
            texts = {str(entry.name): renamed_query(entry.select, table, verdict) for entry in readers}
        database.capture.follow(con, table, statement.text, renamed_to=new, renamed_columns=columns)
        if not (changed and readers):
            return
        for entry in readers:
            entry.select = texts[str(entry.name)]
            fresh = ddl.build_view(
                database, con, entry.name, entry.select, entry.options, entry.column_names, database.new_scan()
            )
            database.engine.drop_view(entry.maintained.name)
            entry.maintained, entry.definition, entry.tables = fresh.maintained, fresh.definition, fresh.tables
            with ddl.transaction(con):
                con.execute(
                    f"UPDATE {ddl.SCHEMA}.views SET query = ? WHERE schema = ? AND name = ?",
                    [entry.select, entry.name.schema, entry.name.name],
                )
                con.execute(f"DROP VIEW {entry.name}")
                ddl.register_scan(database, con, entry)
                ddl.create_duckdb_view(con, entry)
        if new is not None:
            relation = database.relation_key(table)
            if relation in database.engine.relations:
                database.engine.drop_table(relation)
        database.changed()


def renamed_query(query: str, table: QualifiedName, verdict) -> str:
    """A view's query under the new names, by sqlglot: every reference to the table or its column is rewritten."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(query, dialect="duckdb")
    aliases = set()
    for reference in tree.find_all(exp.Table):
        if reference.name.casefold() == table.name.casefold():
            aliases.add(reference.alias_or_name.casefold())
            if verdict.renamed_to:
                if not reference.alias:
                    reference.set("alias", exp.TableAlias(this=exp.to_identifier(reference.name, quoted=True)))
                reference.set("this", exp.to_identifier(verdict.renamed_to, quoted=True))
    if verdict.renamed_column:
        old, new = verdict.renamed_column
        several = len(list(tree.find_all(exp.Table))) > 1
        for column in tree.find_all(exp.Column):
            if column.name.casefold() != old.casefold():
                continue
            if column.table and column.table.casefold() not in aliases:
                continue
            if not column.table and several:
                raise NotSupportedError(
                    f"renaming column {old} is refused",
                    why=f"a view's query uses {old} without saying of which table",
                    hint="qualify the column in the view (CREATE OR REPLACE), or drop the view first",
                )
            if isinstance(column.parent, exp.Select) and not isinstance(column.parent, exp.Alias):
                column.replace(exp.alias_(column.copy().transform(_rename(old, new)), old, quoted=True))
            else:
                column.set("this", exp.to_identifier(new, quoted=True))
    return tree.sql(dialect="duckdb")


def _rename(old: str, new: str):
    from sqlglot import exp

    def change(node):
        if isinstance(node, exp.Identifier) and node.name.casefold() == old.casefold():
            return exp.to_identifier(new, quoted=True)
        return node

    return change


def _in_schema(connection: Connection, statement: PassThrough):
    names = {Name(t.parts, t.start, t.end).parts[-1].casefold() for t in statement.targets}
    for entry in connection._database.views.values():
        schemas = {entry.name.schema.casefold()} | {table.split(".")[0].strip('"').casefold() for table in entry.tables}
        if schemas & names:
            yield entry
