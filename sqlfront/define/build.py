"""Building a materialized view: bind, plan, capture its tables, fill the engine from one snapshot."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlfront.binding.freeze import qualified_query
from sqlfront.cut.view_query import bind_view
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import Database
from sqlfront.database.entries import ChangeTable, StoredView, ViewEntry
from sqlfront.database.failures import translated
from sqlfront.database.names import shown
from sqlfront.database.transactions import captured, transaction
from sqlfront.define.epsilon import EPSILON, epsilon_of
from sqlfront.define.parts import ComputedPart, Part, Parts, plan_parts
from sqlfront.maintenance import epoch
from sqlfront.maintenance.engine import Engine
from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import Definition, TouchedGroups
from sqlfront.planner.theory.core import minimise
from sqlfront.sql.tokens import tokenize
from sqlfront.storage.errors import DataError, ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Bound:
    """A query's definition, the materialized views it reads, as the binder calls them, and the text that was bound.

    `completed` is the text with orders that leave nothing open. `catalog` is the one it was bound with in this
    statement, None if it came from elsewhere.
    """

    definition: Definition
    sources: Mapping[str, ViewEntry]
    query: str
    completed: str = ""
    catalog: EngineCatalog | None = None

    @property
    def definitions(self) -> list[Definition | TouchedGroups]:
        """Those of the query's own blocks, and the query's, each after those it reads."""
        return [*(definition for _, definition in self.definition.derived), self.definition]

    @property
    def fed(self) -> dict[str, ViewEntry]:
        """Those whose rows are the definition's; the others are inlined."""
        tables = {table for definition in self.definitions for table in definition.tables}
        return {key: source for key, source in self.sources.items() if key in tables}


def bind(
    catalog: EngineCatalog, con: Any, query: str, *, statement: str | None = None, offset: int = 0, **shape: Any
) -> Bound:
    """Bind and minimise a query; the rest is as for `bind_view`. On any error nothing has changed."""
    found = bind_view(query, con, catalog, statement=statement, offset=offset, **shape)
    definition = minimise(found.definition)
    derived = tuple(
        (table, minimise(inner) if isinstance(inner, Definition) else inner) for table, inner in definition.derived
    )
    definition = replace(definition, derived=derived)
    bound = Bound(definition, dict(catalog.views_read), query, found.completed, catalog)
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
    ends = [token.start for token in tokenize(text) if token.text == ";"]
    starts = [0, *(end + 1 for end in ends)]
    parts = (text[start:end].strip() for start, end in zip(starts, [*ends, len(text)], strict=True))
    return (*(part for part in parts if part), *options.get("indexes", {}).values())


def bind_stored(catalog: EngineCatalog, con: Any, view: StoredView) -> Bound:
    """Bind a stored view's query, as `bind` does."""
    select = qualified_query(view.select, catalog.database)
    return bind(catalog, con, select, column_names=view.column_names, order_by=orders_of(view.options))


def build_view(
    database: Database, con: Any, view: StoredView, bound: Bound | None = None, undo: ExitStack | None = None
) -> ViewEntry:
    """Build a stored view, whose query may have been bound already, capturing the tables it reads.

    In the transaction `building` whose stack is `undo`, if that is given: its tables must have been captured then.
    On any error nothing has changed. O(rows of its tables).
    """
    if bound is None:
        bound = bind_stored(EngineCatalog(database, con), con, view)
    fed = bound.fed
    parts = plan_parts(database, con, bound, f"{database.relation_key(view.name)}#{view.scan}", view.options)
    tables = {table for definition in bound.definitions for table in definition.tables} - fed.keys()
    tables -= {table for table, _ in (*bound.definition.derived, *bound.definition.unions)}
    kept = {database.relation_key(table.name): table for table in database.change_tables.values()}
    for table in tables & kept.keys():
        _refuse_passed_rows(database, kept[table])
    fresh: list[str] = []
    try:
        for table in sorted(tables - kept.keys()):
            if _capture(database, con, table, bound.catalog or EngineCatalog(database, con)):
                fresh.append(table)
        for source in fed.values():
            database.engine.expose(source.maintained.name)
        with _naming(view), building(database, con) if undo is None else nullcontext(undo) as opened:
            maintained = _fill(database, con, parts, epsilon_of(view.options), opened)
    except BaseException:
        for table in fresh:
            _release(database, con, table)
        database.engine.drop_unread()
        raise
    tables = tables.union(*(source.tables for source in fed.values()))
    return ViewEntry(
        view.name, view.written, view.select, view.options, view.column_names, view.scan,
        maintained.definition, maintained, tables, bound.sources,
    )  # fmt: skip


def discard(database: Database, con: Any, entry: ViewEntry) -> None:
    """Take a view that was built and not stored out of the engine, with what only it needs."""
    database.detach(entry)
    for table in unneeded_tables(database, [entry]):
        _release(database, con, table)


def unneeded_tables(
    database: Database, views: Sequence[StoredView], replaced_by: Sequence[ViewEntry] = ()
) -> list[str]:
    """The captured tables that no view reads when others have taken the places of these."""
    staying = [entry.tables for entry in database.views.values() if not any(entry is view for view in views)]
    staying += [entry.tables for entry in replaced_by]
    kept = {database.relation_key(table.name) for table in database.change_tables.values()}
    read = set().union(*(view.tables for view in views if isinstance(view, ViewEntry)))
    return sorted((read & database.engine.relations.keys()) - kept.union(*staying))


# Inside ------------------------------------------------------------------------------------------


def _capture(database: Database, con: Any, table: str, catalog: EngineCatalog) -> bool:
    """Make the engine follow a table; True if it did not before. The rows of a read-only file never change."""
    name = catalog.name(table)
    known = catalog.columns(table)
    if known is None:  # The binding has not looked the table up.
        known = catalog.columns(catalog.resolve((database.name, name.schema, name.name)) or "")
    columns = [Column(*column) for column in known or ()]
    fresh = table not in database.engine.relations
    if fresh:
        database.engine.create_table(table, columns, retain=False)
    try:
        if not database.read_only:
            database.capture.install(con, name, [column.name for column in columns])
    except BaseException:
        if fresh:
            database.engine.drop_table(table)
        raise
    if columns != list(database.engine.relations[table].columns):
        database.engine.relations[table].columns = tuple(columns)  # Columns were added since.
    return fresh


def _release(database: Database, con: Any, table: str) -> None:
    """Stop following a table that no view reads."""
    database.engine.drop_table(table)
    if not database.read_only:
        database.capture.uninstall(con, EngineCatalog(database, con).name(table))


def _refuse_passed_rows(database: Database, table: ChangeTable) -> None:
    relation = database.engine.relations[database.relation_key(table.name)]
    if not table.retain and relation.passed:
        raise ProgrammingError(
            f"a view over change table {shown(table.name)} cannot be built any more",
            why="rows have passed already, and WITH (retain = false) they are not kept",
            hint="create views before the first change, or the table WITH (retain = true)",
        )


@contextmanager
def _naming(view: StoredView) -> Iterator[None]:
    """DataError that names the view, when a row or a sum of its tables has no value."""
    try:
        with translated(None):
            yield
    except DataError as error:
        raise DataError(
            f"materialized view {shown(view.name)} cannot be built",
            where=error.where,
            why=": ".join(filter(None, (error.what, error.why))),
            hint=error.hint or "correct the rows, or leave them out of the query: WHERE, CASE, TRY_CAST",
        ) from error


def _room(con: Any, part: Part) -> Room | None:
    """What memory a view may take that stores combinations of several tables' rows, by DuckDB's memory_limit."""
    if part.plan.shape not in ("cyclic", "inequality") and not part.plan.projected:
        return None
    ((setting,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    amount, unit = setting.split()
    limit = float(amount) * 1024 ** ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit)
    return Room(epoch.shown_relation(part.name), int(limit), part.plan.suggestion)


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
        yield undo
    if applied is not None:
        engine.commit(applied)


def _fill(database: Database, con: Any, parts: Parts, epsilon: float, undo: ExitStack) -> MaintainedView:
    """Build views from the snapshot of the open transaction; the last of them, whose `epsilon` is given."""
    engine = database.engine

    def load(relation: str) -> tuple[Iterator[pa.RecordBatch], int]:
        rows, count = database.load(con, relation)
        if isinstance(rows, Generator):
            undo.callback(rows.close)  # A reader left half-way would be in the way of ROLLBACK.
        return rows, count

    for part in parts:
        if isinstance(part, ComputedPart):
            engine.create_groups(part.name, part.groups, load)
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
    return maintained


def _drop(engine: Engine, name: str) -> None:
    """Drop a node that may have gone with its last reader."""
    if name in engine.nodes:
        engine.drop_view(name)
