"""Building a materialized view: bind, plan, capture its tables, fill the engine from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlfront.binding.freeze import qualified_query
from sqlfront.binding.session_settings import Settings
from sqlfront.cut.view_query import bind_view
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import Database
from sqlfront.database.durable import log_epoch
from sqlfront.database.entries import StoredView, ViewEntry
from sqlfront.database.names import shown
from sqlfront.database.transactions import captured, transaction
from sqlfront.database.user_settings import frozen
from sqlfront.define.deferring import copies_for, with_copies
from sqlfront.define.drafts import Draft, fill
from sqlfront.define.following import following
from sqlfront.define.linear_space import saves_space
from sqlfront.define.parts import plan_parts
from sqlfront.planner.model.computed_rows import TemporalRows
from sqlfront.planner.model.query import BlockRows, Definition
from sqlfront.planner.theory.core import minimise
from sqlfront.sql.dialect import more_levels
from sqlfront.sql.guard import query_columns
from sqlfront.sql.statements import CreateMaterializedView
from sqlfront.sql.tokens import split
from sqlfront.storage.errors import NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlglot import exp


@dataclass(frozen=True)
class Bound:
    """A query's definition, the materialized views it reads, as the binder calls them, and the text that was bound.

    `catalog` is the one it was bound with. `tree` is the query's, with orders that leave nothing open; `settings` are
    those of the session that bound it.
    """

    definition: Definition
    sources: Mapping[str, ViewEntry]
    query: str
    catalog: EngineCatalog
    tree: exp.Expr | None = None
    settings: Settings = field(default_factory=dict)

    @property
    def definitions(self) -> list[BlockRows]:
        """Those of the query's own blocks, and the query's, each after those it reads."""
        return [*(definition for _, definition in self.definition.derived), self.definition]

    @property
    def reads_clock(self) -> bool:
        """Whether the query itself compares columns with the clock."""
        return any(isinstance(rows, TemporalRows) for _, rows in self.definition.derived)

    @property
    def fed(self) -> dict[str, ViewEntry]:
        """Those whose rows are the definition's; the others are inlined."""
        tables = {table for definition in self.definitions for table in definition.tables}
        return {key: source for key, source in self.sources.items() if key in tables}

    @property
    def tables(self) -> set[str]:
        """The tables and change tables that are read."""
        made = {table for table, _ in (*self.definition.derived, *self.definition.unions)}
        return {table for one in self.definitions for table in one.tables} - self.fed.keys() - made


def bind(
    catalog: EngineCatalog, con: Any, query: str, *, statement: str | None = None, offset: int = 0, **shape: Any
) -> Bound:
    """Bind and minimise a query; the rest is as for `bind_view`. On any error nothing has changed."""
    with refusing_depth():
        found = bind_view(query, con, catalog, statement=statement, offset=offset, **shape)
    definition = minimise(found.definition)
    derived = tuple(
        (table, minimise(inner) if isinstance(inner, Definition) else inner) for table, inner in definition.derived
    )
    definition = replace(definition, derived=derived)
    bound = Bound(definition, dict(catalog.views_read), query, catalog, found.tree, found.settings)
    notes = [
        f"{shown(source.name)} is read {_FED if key in bound.fed else _INLINED}"
        for key, source in bound.sources.items()
    ]
    return replace(bound, definition=replace(definition, notes=(*definition.notes, *notes)))


_INLINED = "as its text: it only selects, projects and joins"
_FED = "through its changes, which are computed at each epoch; its rows are stored here as a table's are"


def orders_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The orders of the option order_by and of the view's indexes, each as one would write it after ORDER BY."""
    text = options.get("order_by", "")
    return (*(text[start:end] for start, end in split(text)), *options.get("indexes", {}).values())


def bind_stored(catalog: EngineCatalog, con: Any, view: StoredView, *, in_shards: bool = False) -> Bound:
    """Bind a stored view's query, as `bind` does, under the settings that it was created under; `in_shards` as
    one whose rows are stored, whatever its strategy is."""
    select = qualified_query(view.select, catalog.database)
    with frozen(con, view.settled):
        return bind(
            catalog, con, select, column_names=view.column_names, order_by=orders_of(view.options),
            saves_space=saves_space(view.options) and not in_shards, in_shards=in_shards,
        )  # fmt: skip


@contextmanager
def counting_columns(con: Any, name: str, statement: CreateMaterializedView) -> Iterator[None]:
    """ProgrammingError naming the view where a CREATE gives more column names than its query has columns."""
    import duckdb

    try:
        yield
    except ProgrammingError as error:
        columns: tuple[object, ...] = statement.columns
        if columns:
            with suppress(duckdb.Error):  # The query itself is wrong: its own error says that.
                columns = query_columns(con, statement.query)
        given, found = len(statement.columns), len(columns)
        if given <= found:
            raise
        counted = f"{found} column{'s' if found > 1 else ''}"
        raise ProgrammingError(
            f"materialized view {name} has {given} column names, and its query {counted}",
            why=f"the names are ({', '.join(statement.columns)}), and each is the name of a column of the query",
            hint=f"give {name} at most {found} of the names, or SELECT {given} columns",
        ) from error


@contextmanager
def refusing_depth() -> Iterator[None]:
    """NotSupportedError for a query whose tree is too deep for Python's stack."""
    try:
        with more_levels():
            yield
    except RecursionError:
        raise NotSupportedError(
            "a query that is nested this deeply is not supported in a view",
            why="with the plain views and macros that it names, its levels are more than Python's stack takes",
            hint="make materialized views of some parts, and read these",
        ) from None


def draft(database: Database, view: StoredView, bound: Bound) -> Draft:
    """Plan a view's parts."""
    name = f"{database.relation_key(view.name)}#{view.scan}"
    copies = copies_for(database, view, bound.tables, list(bound.fed.values()))
    parts = plan_parts(database, bound, name, view.options)
    return Draft(view, bound, with_copies(parts, copies) if copies else parts, copies)


def build_view(database: Database, con: Any, view: StoredView, bound: Bound | None = None) -> ViewEntry:
    """Build a stored view, whose query may have been bound already, in a transaction of its own.

    On any error nothing has changed. O(rows of its tables).
    """
    if bound is None:
        bound = bind_stored(EngineCatalog(database, con), con, view)
    drafted = draft(database, view, bound)
    with following(database, con, view, bound), building(database, con) as undo:
        return fill(database, con, drafted, undo)


@contextmanager
def building(database: Database, con: Any) -> Iterator[ExitStack]:
    """A transaction in which views are built: the engine has taken in what other writers have committed up to it.

    The stack takes what undoes it, as that of `transaction`.
    """
    engine, applied = database.engine, None
    with transaction(con) as undo:
        changes = captured(database, con, own=False, consume=True)
        if changes:
            applied = engine.apply(changes)
            undo.callback(engine.undo, applied)
            log_epoch(database, undo, {name: (one.rows, one.weights) for name, one in changes.items()})
        yield undo
    if applied is not None:
        engine.commit(applied)
