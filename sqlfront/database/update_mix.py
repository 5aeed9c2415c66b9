"""How often the tables of a view change, relative to each other: what its tree is chosen for.

Declared by WITH (updates = 'lineitem: 1000, orders: 100'); else as observed, without loads; else by the tables' sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlfront.planner.model.query import Definition
from sqlfront.sql.name_parts import split_name
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import ProgrammingError

if TYPE_CHECKING:
    from sqlfront.database.catalog import EngineCatalog
    from sqlfront.database.database import Database


def update_weights(
    database: Database,
    catalog: EngineCatalog,
    definition: Definition,
    options: Mapping[str, Any],
    names: Mapping[str, str],
) -> dict[str, float]:
    """The weight of each table for the planner, by the engine's names: `names` has those of views that are read.

    A declared mix is the whole: a table that it does not name hardly changes.
    """
    tables = definition.tables
    if options.get("updates"):
        declared = _read(options["updates"], catalog)
        numbers = {names.get(table, table): number for table, number in declared.items()}
        return {table: numbers.get(table, 0) for table in tables}
    relations = database.engine.relations
    known = {table: relations[table] for table in tables if table in relations}
    observed = {table: relation.changes - relation.loaded for table, relation in known.items()}
    if any(observed.values()):
        return {table: float(observed.get(table, 0)) for table in tables}
    return {table: size for table in tables if (size := catalog.size(table)) is not None}


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
    mix = []
    for written, number in _items(options["updates"]):
        *schema, name = split_name(written)
        renamed = QualifiedName(schema[-1] if schema else table.schema, name).key == table.key
        mix.append(f"{new if renamed else written}: {number}")
    return options | {"updates": ", ".join(mix)}


def _read(text: str, catalog: EngineCatalog, *, strict: bool = False) -> dict[str, Any]:
    """The numbers by table, names as the engine has them; with `strict` the names as written, and errors."""
    found: dict[str, Any] = {}
    for written, text_of_number in _items(text):
        number = _number(written, text_of_number)
        parts = split_name(written)
        table = catalog.resolve(parts) if parts else None
        if table is None and strict:
            raise _error(f"names {written}, and there is no such table")
        if table in found:
            raise _error(f"names {written} twice")
        if table is not None:
            found[table] = written if strict else number
    return found


def _items(text: str) -> list[tuple[str, str]]:
    """The tables and numbers as written."""
    pairs = [tuple(map(str.strip, _COLON.split(item, 1))) for item in _COMMA.split(text)]
    if ("",) in pairs:
        raise _error("is not a list of tables with their numbers of changes")
    if alone := next((pair for pair in pairs if len(pair) == 1 or not pair[0]), None):
        raise _error(f"has {': '.join(alone)!r} where a table and a number belong")
    return [(table, number) for table, number in pairs]


_COMMA, _COLON = (re.compile(rf'{sign}(?=(?:[^"]*"[^"]*")*[^"]*\Z)') for sign in ",:")
"""A sign outside of quotes."""


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


def _error(what: str, hint: str = "for example updates = 'lineitem: 1000, orders: 100'") -> ProgrammingError:
    why = "it tells how often each table of the view changes, relative to the others"
    return ProgrammingError(f"option updates {what}", why=why, hint=hint)
