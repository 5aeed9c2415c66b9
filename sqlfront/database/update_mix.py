"""How often the tables of a view change, relative to each other: what its tree is chosen for.

Declared by WITH (updates = 'lineitem: 1000, orders: 100'); else as observed, without loads; else by the tables' sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlfront.planner.model.query import Definition
from sqlfront.sql.tokens import Token, tokenize
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.catalog import EngineCatalog
    from sqlfront.database.database import Database


def update_weights(
    database: Database, con: Any, definition: Definition, options: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, float]:
    """The weight of each table for the planner, by the engine's names: `names` has those of views that are read.

    A declared mix is the whole: a table that it does not name hardly changes.
    """
    from sqlfront.database.catalog import EngineCatalog

    tables = definition.tables
    if options.get("updates"):
        declared = _read(options["updates"], EngineCatalog(database, con))
        numbers = {names.get(table, table): number for table, number in declared.items()}
        return {table: numbers.get(table, 0) for table in tables}
    relations = database.engine.relations
    known = {table: relations[table] for table in tables if table in relations}
    observed = {table: relation.changes - relation.loaded for table, relation in known.items()}
    if any(observed.values()):
        return {table: float(observed.get(table, 0)) for table in tables}
    return {table: size for table, size in _sizes(database, con).items() if table in tables}


def check_updates(options: Mapping[str, Any], definition: Definition, catalog: EngineCatalog) -> None:
    """ProgrammingError when the option `updates` is malformed or names a table that the view does not read."""
    if "updates" not in options:
        return
    blocks = dict(definition.derived)
    names = {table for block in (definition, *blocks.values()) for table in block.tables} - blocks.keys()
    names -= dict(definition.unions).keys()
    tables = {re.sub(r"#\d+$", "", name) for name in names}  # Behind # is which build of a view is read.
    for table, name in _read(options["updates"], catalog, strict=True).items():
        if table not in tables:
            reads = ", ".join(sorted(table.removeprefix("main.") for table in tables))
            raise _error(f"names {name}, which the view does not read", f"the view reads {reads}")


def renamed_updates(options: dict[str, Any], table: QualifiedName, new: str) -> dict[str, Any]:
    """The options after a table was renamed to `new` (SQL text)."""
    if "updates" not in options:
        return options
    text, edits = options["updates"], []
    for item in _items(text):
        names = [token for token in item[: _colon(item)] if token.is_name]
        schema = names[-2].name if len(names) > 1 else table.schema
        if QualifiedName(schema, names[-1].name).key == table.key:
            edits.append((names[0].start, names[-1].end))
    for start, end in reversed(edits):
        text = text[:start] + new + text[end:]
    return options | {"updates": text}


def _colon(item: Sequence[Token]) -> int:
    """Where the colon is; 0 if there is none."""
    return next((place for place, token in enumerate(item) if token.text == ":"), 0)


def _read(text: str, catalog: EngineCatalog, *, strict: bool = False) -> dict[str, Any]:
    """The numbers by table, names as the engine has them; with `strict` the names as written, and errors."""
    found: dict[str, Any] = {}
    for item in _items(text):
        colon = _colon(item)
        if colon == 0:
            raise _error(f"has {_text(text, item)!r} where a table and a number belong")
        written = _text(text, item[:colon])
        number = _number(written, _text(text, item[colon + 1 :]) if item[colon + 1 :] else "")
        table = catalog.resolve(tuple(token.name for token in item[:colon] if token.is_name))
        if table is None and strict:
            raise _error(f"names {written}, and there is no such table")
        if table in found:
            raise _error(f"names {written} twice")
        if table is not None:
            found[table] = written if strict else number
    return found


def _items(text: str) -> list[Sequence[Token]]:
    tokens = tokenize(text)
    items = [list(group) for comma, group in groupby(tokens, lambda token: token.text == ",") if not comma]
    if not items or len(items) != 1 + sum(token.text == "," for token in tokens):
        raise _error("is not a list of tables with their numbers of changes")
    return list(items)


def _number(table: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _error(f"gives {table} {text!r}, which is not a number" if text else f"gives {table} no number")
    if value < 0:
        raise _error(f"gives {table} the negative number {text}")
    return value


def _text(text: str, tokens: Sequence[Token]) -> str:
    return text[tokens[0].start : tokens[-1].end]


def _error(what: str, hint: str = "for example updates = 'lineitem: 1000, orders: 100'") -> ProgrammingError:
    why = "it tells how often each table of the view changes, relative to the others"
    return ProgrammingError(f"option updates {what}", why=why, hint=hint)


def _sizes(database: Database, con: Any) -> dict[str, float]:
    """Estimated rows per table."""
    rows = con.execute(
        "SELECT schema_name, table_name, estimated_size FROM duckdb_tables() WHERE database_name = current_database()"
    ).fetchall()
    return {database.relation_key(QualifiedName(schema, name)): float(max(1, size)) for schema, name, size in rows}
