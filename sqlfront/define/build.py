"""Building a materialized view: bind, plan, capture its tables, fill the engine from one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
from sqlfront.database.user_settings import frozen, memory_limit
from sqlfront.database.view_time import start_clock
from sqlfront.define.deferring import copies_for, with_copies, without_copies
from sqlfront.define.epsilon import epsilon_of, is_adaptive
from sqlfront.define.following import following
from sqlfront.define.parts import ComputedPart, Part, Parts, Weights, plan_parts
from sqlfront.maintenance import epoch
from sqlfront.maintenance.engine import Engine
from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.heavy_light.division import EPSILON
from sqlfront.planner.model.computed_rows import TemporalRows
from sqlfront.planner.model.query import BlockRows, Definition
from sqlfront.planner.theory.core import minimise
from sqlfront.sql.dialect import more_levels
from sqlfront.sql.tokens import split
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

    from sqlfront.maintenance.output.node import Load


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


def bind_stored(catalog: EngineCatalog, con: Any, view: StoredView) -> Bound:
    """Bind a stored view's query, as `bind` does, under the settings that it was created under."""
    select = qualified_query(view.select, catalog.database)
    with frozen(con, view.settled):
        return bind(catalog, con, select, column_names=view.column_names, order_by=orders_of(view.options))


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


@dataclass(frozen=True)
class Draft:
    """A view that is to be built: its query has been bound, and its parts planned.

    `copies` are those that a deferred view needs of the relations that it reads.
    """

    view: StoredView
    bound: Bound
    parts: Parts
    copies: Mapping[str, str]


def draft(database: Database, view: StoredView, bound: Bound, weights: Weights | None = None) -> Draft:
    """Plan a view's parts, perhaps by the `weights` of tables that an earlier process has planned each of them by."""
    name = f"{database.relation_key(view.name)}#{view.scan}"
    copies = copies_for(database, view, bound.tables, list(bound.fed.values()))
    parts = plan_parts(database, bound, name, view.options, without_copies(weights, copies))
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


def fill(
    database: Database, con: Any, drafted: Draft, undo: ExitStack, check: Callable[[], object] = bool,
    load: Load | None = None,
) -> ViewEntry:  # fmt: skip
    """Fill a view from the snapshot of the transaction `building` whose stack is `undo`, `following` its tables.
    `check` is called between batches of rows, and may raise; `load` gives other rows than those of the tables.

    O(rows of its tables).
    """
    view, bound = drafted.view, drafted.bound
    for source in bound.fed.values():
        database.catch_up_views([source.maintained.name])
        database.refuse_waiting(source)
    maintained = _fill(database, con, drafted, epsilon_of(view.options), undo, check, load)
    tables = bound.tables.union(*(source.tables for source in bound.fed.values()))
    return ViewEntry(
        view.name, view.written, view.select, view.options, view.column_names, view.scan,
        view.settings, maintained.definition, maintained, tables, bound.sources,
    )  # fmt: skip


# Inside ------------------------------------------------------------------------------------------


def _room(con: Any, part: Part) -> Room | None:
    """What memory a view may take that stores combinations of several tables' rows, by DuckDB's memory_limit."""
    if not part.plan.stores_combinations:
        return None
    return Room(epoch.shown_relation(part.name), memory_limit(con), part.plan.suggestion)


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


def _fill(
    database: Database, con: Any, drafted: Draft, epsilon: float, undo: ExitStack, check: Callable[[], object],
    given: Load | None,
) -> MaintainedView:  # fmt: skip
    """Build views from the snapshot of the open transaction; the last of them, whose `epsilon` is given."""
    engine, parts = database.engine, drafted.parts

    def load(relation: str) -> tuple[Iterator[pa.RecordBatch], int]:
        rows, count = database.load(con, relation) if given is None else given(relation)
        if isinstance(rows, Generator):
            undo.callback(rows.close)  # A reader left half-way would be in the way of ROLLBACK.
        return _checked(rows, within), count

    def within() -> None:
        check()
        engine.check_memory(f"materialized view {shown(drafted.view.name)}")

    with engine.assembling_once():
        undo.callback(engine.drop_unread)
        for name, copy in drafted.copies.items():
            engine.copy_relation(name, copy, parts[-1].name)
        for part in parts:
            within()
            if isinstance(part, ComputedPart):
                if isinstance(part.rows, TemporalRows):
                    start_clock(database, drafted.view)
                engine.create_computed(part.name, part.rows, load)
                undo.callback(_drop, engine, part.name)
                continue
            own = epsilon if part is parts[-1] else EPSILON
            room = _room(con, part)
            maintained = engine.create_view(
                part.name, part.definition, part.plan, load, own, room, stateless=part.stateless
            )
            undo.callback(_drop, engine, part.name)
            feeding = [one.name for one in parts if one.feeds == part.feeds]
            if part is not parts[-1] and part.feeds is not None and part.name == feeding[-1]:
                engine.expose(part.feeds, feeding, inner=True)
        for part in parts:
            if part.stateless:
                engine.pass_on(part.name)
        within()
        engine.adapt(maintained.name, wanted=is_adaptive(drafted.view.options))
    return maintained


def _checked(rows: Iterable[pa.RecordBatch], check: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        check()
        yield batch


def _drop(engine: Engine, name: str) -> None:
    """Drop a node that may have gone with its last reader."""
    if name in engine.nodes:
        engine.drop_view(name)
