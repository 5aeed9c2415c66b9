"""DDL of DuckDB's on tables that views read: transparent, followed, or refused naming the views."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlfront.binding.freeze import renamed_query
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.names import captured_table, locate, shown
from sqlfront.database.update_mix import renamed_updates
from sqlfront.define import ddl
from sqlfront.define.replacing import dropping
from sqlfront.sql.name_parts import GAP
from sqlfront.sql.search_path import look_up
from sqlfront.sql.statements import PassThrough
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.capture.ddl_effects import Verdict, classify, parse_ddl
from sqlfront.storage.errors import Error, IntegrityError, NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.sessions import Session

_TEMPORARY = re.compile(
    rf"(?:explain\b.{{0,60}}?\b)?create{GAP}(?:or{GAP}replace{GAP})?(?:(?:local|global){GAP})?temp(?:orary)?\b",
    re.IGNORECASE | re.DOTALL,
)


def needs_us(session: Session, statement: PassThrough) -> bool:
    """Whether a DDL statement concerns something of ours."""
    database = session.database
    if _TEMPORARY.match(statement.text):
        return False
    if statement.object == "schema" and statement.verb == "drop":
        return any(_in_schema(session, statement))
    if database.renamed and _takes_former_name(session, statement) is not None:
        return True
    return any(locate(database, session.duck, target.parts) is not None for target in statement.targets)


def alter(session: Session, statement: PassThrough) -> None:
    """Run, follow or refuse a DDL statement on a captured table, a view or a change table."""
    database, con = session.database, session.duck
    _refuse_ours(session, statement)
    _refuse_swap(session, statement)
    if statement.object == "schema":
        names = ", ".join(map(shown, _in_schema(session, statement)))
        raise IntegrityError(
            "DROP SCHEMA is refused",
            why=f"materialized views or change tables live in it, or read it: {names}",
            hint="drop them first",
        )
    captured = {table.key for table in database.capture.tables()}
    keys = [key for target in statement.targets if (key := locate(database, con, target.parts)) in captured]
    tables = [captured_table(database, key) for key in keys]
    if tables and statement.verb == "drop" and statement.object == "table":
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
    con.execute(statement.text)
    session.has_result = True


def _refuse_ours(session: Session, statement: PassThrough) -> None:
    database = session.database
    for target in statement.targets:
        key, name = locate(database, session.duck, target.parts), ".".join(target.parts)
        if key in database.views or key in database.unbuilt:
            raise ProgrammingError(
                f"{name} is a materialized view",
                hint=f"DROP MATERIALIZED VIEW {name}, or CREATE OR REPLACE MATERIALIZED VIEW {name}",
            )
        if key in database.change_tables:
            raise ProgrammingError(f"{name} is a change table", hint=f"DROP CHANGE TABLE {name}")


def _takes_former_name(session: Session, statement: PassThrough) -> tuple[str, QualifiedName] | None:
    """For a table renamed to the former name of another that views read: that name, and the other's name now."""
    if (statement.verb, statement.object, statement.action) != ("alter", "table", "rename to"):
        return None
    database, con = session.database, session.duck
    new, found = classify(parse_ddl(statement.text), ()).renamed_to, look_up(con, statement.targets[0].parts).first()
    if new is None or found is None or found.database != database.name:
        return None
    former = database.renamed.get(QualifiedName(found.schema, new).key)
    if former is None or former == QualifiedName(found.schema, found.name) or not database.readers(former):
        return None
    return new, former


def _refuse_swap(session: Session, statement: PassThrough) -> None:
    """Refuse the second half of a swap of tables by renaming: views follow the table, a swap means the name."""
    taken = _takes_former_name(session, statement) if session.database.renamed else None
    if taken is None:
        return
    new, former = taken
    name, moved = ".".join(statement.targets[0].parts), shown(former)
    names = ", ".join(shown(entry.name) for entry in session.database.readers(former))
    raise IntegrityError(
        f"ALTER TABLE {name} RENAME TO {new} is refused",
        where=f"table {moved}, which was {new} before",
        why=f"materialized views have followed that table to {moved} and would not read the new {new}: {names}",
        hint=f"ALTER TABLE {moved} RENAME TO {new}, then in one transaction DELETE FROM {new} and INSERT INTO {new} "
        f"FROM {name}; or drop the views first, and create them anew after the swap",
    )


def _note_renaming(database: Database, old: QualifiedName, new: QualifiedName) -> None:
    """Remember the former names of a table, in order. A table with a former name again has not had the later ones."""
    former = [*(key for key, name in database.renamed.items() if name.key == old.key), old.key]
    if new.key in former:
        former = former[: former.index(new.key)]
    others = {key: name for key, name in database.renamed.items() if name.key != old.key}
    database.renamed = others | dict.fromkeys(former, new)


def _drop_tables(session: Session, statement: PassThrough, tables: Sequence[QualifiedName]) -> None:
    import pyarrow as pa

    database, con = session.database, session.duck
    if session.transaction is not None:
        raise NotSupportedError("a table that views read cannot be dropped in a transaction", hint="COMMIT first")
    with database.lock:
        what = f"DROP TABLE {', '.join(map(shown, tables))}"
        readers = ddl.readers_to_drop(database, tables, cascade=statement.cascade, what=what)
        _refuse_renamed(database, tables, what)
        with dropping(database, con, readers):
            database.capture.uninstall(con, tables, in_transaction=True)
            con.execute(statement.text)
        database.renamed = {key: name for key, name in database.renamed.items() if name not in tables}
    dropped = [shown(entry.name) for entry in readers]
    session.set_result(pa.table({"dropped_materialized_view": pa.array(dropped, pa.string())}))


def _refuse_renamed(database: Database, tables: Sequence[QualifiedName], what: str) -> None:
    """Refuse CASCADE from a table whose name the views' author never wrote: a swap of tables ends in such a drop."""
    for former, now in database.renamed.items():
        if now in tables and (readers := database.readers(now)):
            raise IntegrityError(
                f"{what} CASCADE is refused",
                where=f"table {shown(now)}, which was {former[1]} before",
                why="materialized views have followed it to its new name and would be dropped: "
                + ", ".join(shown(entry.name) for entry in readers),
                hint="drop the views by DROP MATERIALIZED VIEW first, or rename the table back",
            )


def _follow(session: Session, statement: PassThrough, table: QualifiedName, verdict: Verdict) -> None:
    """A renaming: the capture, the engine's relation and the views' definitions take the new names."""
    database, con = session.database, session.duck
    new = QualifiedName(table.schema, verdict.renamed_to) if verdict.renamed_to else None
    columns = dict([verdict.renamed_column]) if verdict.renamed_column else None
    with database.lock:
        readers = database.readers(table)
        passing = ddl.why_not_rebuilt(database, readers) if new or columns else None
        if passing is not None:
            raise IntegrityError(
                f"ALTER TABLE {shown(table)} is refused",
                why=f"the views over the table would have to be rebuilt, which is impossible: {passing}",
                hint="drop the view first, and create it with the change table anew",
            )
        database.capture.follow(con, table, statement.text, renamed_to=new, renamed_columns=columns)
        if not new and not columns:
            return
        for entry in reversed(readers):
            database.detach(entry)
        database.engine.drop_table(database.relation_key(table))
        for entry in readers:
            entry.select = entry.written = renamed_query(entry.select, table, new or table, columns or {})
            entry.options = renamed_updates(entry.options, table, database.relation_key(new or table))
            try:
                ddl.rebuild(database, con, entry)
            except Error as error:
                database.give_up(entry, f"it could not follow a renaming: {error.what}")
        if new is not None:
            _note_renaming(database, table, new)
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
