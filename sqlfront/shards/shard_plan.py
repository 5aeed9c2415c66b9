"""From a query to a plan of its shards: what is sent where, what each shard keeps, how the view is made of it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.names import name_parts
from sqlfront.define.build import Bound, bind, bind_stored
from sqlfront.define.parts import renamed
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.planner.model.query import Atom, Definition
from sqlfront.planner.shards.blocks import Blocks
from sqlfront.planner.shards.combination import Combination, combine
from sqlfront.planner.shards.partitioning import Partitioning, Stream, partition
from sqlfront.sql.dialect import parse_one
from sqlfront.storage.errors import NotSupportedError, ProgrammingError
from sqlfront.storage.sql_text import literal

if TYPE_CHECKING:
    from sqlfront.database.database import Database
    from sqlfront.database.sessions import Session


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
        """Equal for plans by which every row goes to the same shards, and those answer the same query: views that it
        reads may have been replaced under their names."""
        told = (self.query, self.streams, self.sent, _told(self.combination.shards))
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns of what the shards put out."""
        return self.combination.columns


def plan_shards(session: Session, query: str, shards: int, sizes: Mapping[str, float] | None = None) -> ShardPlan:
    """The plan of a SELECT over tables, and materialized views, that the connection knows.

    `sizes` are the expected rows of tables, by name; those of the tables as they are by default.
    ProgrammingError for a number of shards that is none.
    """
    session.ready()
    database, con = session.database, session.duck
    catalog = EngineCatalog(database, con)
    definition = with_views(database, con, bind(catalog, con, query, in_shards=True))
    expected = table_sizes(database, con, definition) | named_tables(session, sizes or {})
    partitioning = spread(definition, shards, expected)
    combination = combined(definition, partitioning)
    tables = {table: _columns(catalog, table) for table, _ in partitioning.sizes}
    atoms = [atom for shard in combination.shards for atom in _atoms(shard)]
    sent = tuple(_needed(stream, atoms, tables[stream.table]) for stream in partitioning.streams)
    return ShardPlan(query, definition, partitioning, combination, tuple(tables.items()), sent)


def with_views(database: Database, con: Any, bound: Bound) -> Definition:
    """The definition of a query, with the materialized views that it reads as blocks."""
    if (windows := bound.definition.windows) is not None:
        raise NotSupportedError(
            f"shards do not compute {windows.label}",
            why="a value depends on other rows, and is computed from rows that one process keeps in order",
            hint="leave it out of the sharded view, and compute it over the shards' rows",
        )
    for _, block in bound.definition.derived:
        if not isinstance(block, Definition):
            what, why, hint = block.one_shard
            raise NotSupportedError(what, why=why, hint=hint)
    derived, unions = list(bound.definition.own_blocks), list(bound.definition.unions)
    for table, view in bound.fed.items():
        own = with_views(database, con, bind_stored(EngineCatalog(database, con), con, view, in_shards=True))
        names = {name: f"{name} of {table}" for name, _ in (*own.own_blocks, *own.unions)}
        derived += [(names[name], renamed(block, names)) for name, block in own.own_blocks]
        derived.append((table, renamed(replace(own, derived=(), unions=()), names)))
        unions += [(names[name], tuple(names[branch] for branch in branches)) for name, branches in own.unions]
    return replace(bound.definition, derived=tuple(derived), unions=tuple(unions))


def spread(definition: Definition, shards: int, sizes: Mapping[str, float]) -> Partitioning:
    """The planner's partitioning. ProgrammingError for a number of shards that is none, NotSupportedError for a view
    that is computed under other settings than DuckDB's defaults."""
    blocks = (definition, *(block for _, block in definition.derived))
    settings = dict.fromkeys(pair for one in blocks for pair in one.settings)
    if settings:
        raise NotSupportedError(
            "A query whose answer depends on settings cannot be spread over shards",
            where=", ".join(f"{name} = {literal(value)}" for name, value in settings),
            why="its rows are combined where they are read, under the reader's settings",
            hint="store what depends on a setting in a column of the table, or RESET the setting",
        )
    try:
        return partition(definition, shards, sizes)
    except ValueError as error:
        raise ProgrammingError(str(error)) from None


def combined(definition: Definition, partitioning: Partitioning) -> Combination:
    """How the rows of a partitioning's shards become the view's."""
    tables = {path: stream.name for stream in partitioning.streams for path in stream.atoms}
    return combine(definition, partitioning.hashed, tables, partitioning.product)


def table_sizes(database: Database, con: Any, definition: Definition) -> dict[str, float]:
    """The rows of a definition's tables as they are: those that the engine keeps, or that DuckDB estimates."""
    estimated = con.execute(
        "SELECT schema_name, table_name, estimated_size FROM duckdb_tables() WHERE database_name = current_database()"
    ).fetchall()
    rows = {tuple(map(str.casefold, (schema, name))): float(size) for schema, name, size in estimated}
    catalog, found = EngineCatalog(database, con), {}
    for table in dict.fromkeys(atom.table for _, atom in Blocks(definition).leaves(definition)):
        relation = database.engine.relations.get(table)
        kept = relation.base.table.live if relation is not None and relation.base is not None else 0
        found[table] = max(1.0, float(kept), rows.get(catalog.name(table).key, 1.0))
    return found


def named_tables(session: Session, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by tables, as definitions call them, from values by tables as users do. ProgrammingError for others."""
    catalog, found = EngineCatalog(session.database, session.duck), {}
    for name, value in values.items():
        table = catalog.resolve(name_parts(name))
        if table is None:
            raise ProgrammingError(f"there is no table {name}", hint="CREATE CHANGE TABLE declares its columns")
        found[table] = value
    return found


def _told(value: Any) -> Any:
    """Plain data with a text that is the same in every process: a set has no order of its own."""
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return tuple(map(_told, value))
    if is_dataclass(value):
        return tuple(_told(getattr(value, own.name)) for own in fields(value) if own.compare)
    return value


def _columns(catalog: EngineCatalog, table: str) -> tuple[Column, ...]:
    name = catalog.name(table)
    catalog.resolve((name.schema, name.name))  # Perhaps nothing but a view that is read has named the table.
    return tuple(Column(*column) for column in catalog.columns(table) or ())


def _atoms(definition: Definition) -> Iterator[Atom]:
    """All that a shard's view has, in distinct values and blocks too."""
    yield from definition.atoms
    for one in definition.distinct_sets:
        yield from _atoms(one.definition)
    for _, block in definition.own_blocks:
        yield from _atoms(block)


def _needed(stream: Stream, atoms: Iterable[Atom], columns: Iterable[Column]) -> tuple[Column, ...]:
    """The columns that atoms read of a stream; one at least, to count rows by."""
    own = dict.fromkeys(text for atom in atoms if atom.table == stream.name for text in _texts(atom))
    read = {name for text in own for name in _names(text)}
    found = [column for column in columns if column.name.casefold() in read]
    return tuple(found or list(columns)[:1])


def _texts(atom: Atom) -> list[str]:
    texts = [column.expression for column in (*atom.variables, *atom.factors)]
    return texts + [condition.text for condition in atom.conditions]


def _names(text: str) -> list[str]:
    return [column.name.casefold() for column in parse_one(f"SELECT {text}").find_all(exp.Column)]
