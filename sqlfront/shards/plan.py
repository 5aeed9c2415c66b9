"""From a query to a plan of its shards: what is sent where, what each shard keeps, how the view is made of it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintenance.relation import Column
from planner.combination import Combination, combine
from planner.partitioning import NoPartitioning, Partitioning, Stream, partition
from planner.query import Atom, Definition
from planner.wording import table_name
from sqlfront.build import bind
from sqlfront.catalog import EngineCatalog
from sqlfront.names import name_parts, shown
from sqlfront.parse_tree import expression, walk
from storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlfront.connection import Connection
    from sqlfront.database import Database


@dataclass(frozen=True)
class ShardPlan:
    """How a `query` is kept in shards: plain data that travels to them.

    `tables` are the columns of the query's tables, as the definition calls them; `sent` those of them that each stream
    needs, by the streams' order.
    """

    query: str
    definition: Definition
    partitioning: Partitioning
    combination: Combination
    tables: tuple[tuple[str, tuple[Column, ...]], ...]
    sent: tuple[tuple[Column, ...], ...]

    @property
    def streams(self) -> tuple[Stream, ...]:
        return self.partitioning.streams

    @functools.cached_property
    def fingerprint(self) -> str:
        """Equal for plans by which every row goes to the same shards, and those answer the same query."""
        told = (self.query, self.streams, self.sent)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of what the shards put out."""
        return self.combination.columns


def plan_shards(connection: Connection, query: str, shards: int, sizes: Mapping[str, float] | None = None) -> ShardPlan:
    """The plan of a SELECT, or of the query of a materialized view, over tables that the connection knows.

    `sizes` are the expected rows of tables, by name; those of the tables as they are by default.
    NotSupportedError, with the reason, for a view that cannot be spread over shards.
    """
    connection._ready()
    database, con = connection._database, connection._duck
    catalog = EngineCatalog(database, con)
    bound = bind(catalog, con, query)
    if bound.fed:
        names = ", ".join(shown(source.name) for source in bound.fed.values())
        raise NotSupportedError(
            f"shards of a view that reads {names}",
            why="it is a materialized view of its own, whose changes are not sent to shards",
            hint="write its query as a part of this one, or shard it alone",
        )
    definition = bound.definition
    expected = table_sizes(database, con, definition) | named_tables(connection, sizes or {})
    partitioning = spread(definition, shards, expected)
    read = {atom: f"main.{stream.name}" for stream in partitioning.streams for atom in stream.atoms}
    combination = combine(definition, partitioning.hashed, read, partitioning.product)
    tables = {atom.table: _columns(catalog, atom.table) for atom in definition.atoms}
    sent = tuple(_needed(definition, stream, tables[stream.table]) for stream in partitioning.streams)
    return ShardPlan(query, definition, partitioning, combination, tuple(tables.items()), sent)


def spread(definition: Definition, shards: int, sizes: Mapping[str, float]) -> Partitioning:
    """The planner's partitioning. NotSupportedError for a view that has none, ProgrammingError for a wrong number."""
    try:
        return partition(definition, shards, sizes)
    except NoPartitioning as problem:
        raise NotSupportedError(
            f"a view over {', '.join(dict.fromkeys(table_name(atom.table) for atom in definition.atoms))} in shards",
            why=str(problem),
            hint=problem.hint,
        ) from None
    except ValueError as error:
        raise ProgrammingError(str(error)) from None


def table_sizes(database: Database, con: Any, definition: Definition) -> dict[str, float]:
    """The rows of a definition's tables as they are: those that the engine keeps, or that DuckDB estimates."""
    estimated = con.execute(
        "SELECT schema_name, table_name, estimated_size FROM duckdb_tables() WHERE database_name = current_database()"
    ).fetchall()
    rows = {tuple(map(str.casefold, (schema, name))): float(size) for schema, name, size in estimated}
    catalog, found = EngineCatalog(database, con), {}
    for table in dict.fromkeys(atom.table for atom in definition.atoms):
        relation = database.engine.relations.get(table)
        kept = relation.base.table.live if relation is not None and relation.base is not None else 0
        found[table] = max(1.0, float(kept), rows.get(catalog.name(table).key, 1.0))
    return found


def named_tables(connection: Connection, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by tables, as definitions call them, from values by tables as users do. ProgrammingError for others."""
    catalog, found = EngineCatalog(connection._database, connection._duck), {}
    for name, value in values.items():
        table = catalog.resolve(name_parts(name))
        if table is None:
            raise ProgrammingError(f"there is no table {name}", hint="CREATE CHANGE TABLE declares its columns")
        found[table] = value
    return found


def _columns(catalog: EngineCatalog, table: str) -> tuple[Column, ...]:
    return tuple(Column(*column) for column in catalog.columns(table) or ())


def _needed(definition: Definition, stream: Stream, columns: Iterable[Column]) -> tuple[Column, ...]:
    """The columns that the stream's atoms read, in companions too; one at least, to count rows by."""
    own = [*definition.atoms, *(atom for one in definition.companions for atom in one.definition.atoms)]
    read = {name for atom in own if atom.name in stream.atoms for text in _texts(atom) for name in _names(text)}
    found = [column for column in columns if column.name.casefold() in read]
    return tuple(found or list(columns)[:1])


def _texts(atom: Atom) -> list[str]:
    texts = [column.expression for column in (*atom.variables, *atom.factors)]
    return texts + [condition.text for condition in atom.conditions]


def _names(text: str) -> list[str]:
    return [tree["column_names"][-1].casefold() for tree in walk(expression(text)) if tree["class"] == "COLUMN_REF"]
