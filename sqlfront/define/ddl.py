"""CREATE, DROP, REFRESH and ALTER of materialized views.

Each runs in autocommit, under the engine's lock, in one DuckDB transaction: the catalog and the
engine change together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlfront.binding.freeze import frozen_tree, with_database
from sqlfront.binding.from_tables import named_tables
from sqlfront.database.catalog import EngineCatalog
from sqlfront.database.database import SCHEMA, Database
from sqlfront.database.entries import StoredView, ViewEntry
from sqlfront.database.names import locate, new_name, require_own, shown
from sqlfront.database.stored_views import forget_view, store_view
from sqlfront.database.ticker import seconds_of
from sqlfront.database.transactions import transaction
from sqlfront.database.update_mix import check_updates
from sqlfront.database.view_time import clocks_of
from sqlfront.define import persistence
from sqlfront.define.at_worst import check_at_worst, warn_of_cost
from sqlfront.define.build import (
    Bound,
    bind,
    bind_stored,
    build_view,
    building,
    counting_columns,
    draft,
    orders_of,
    refusing_depth,
)
from sqlfront.define.drafts import Draft, fill
from sqlfront.define.epsilon import OPTIONS, is_adaptive
from sqlfront.define.epsilon_checks import check_epsilon, refuse_materialized
from sqlfront.define.following import following
from sqlfront.define.linear_space import saves_space
from sqlfront.define.options import check_options
from sqlfront.define.part import Part
from sqlfront.define.replacing import built_anew, dropping, refuse_circle
from sqlfront.define.row_errors import null_on_error
from sqlfront.maintenance.clocks import WALL
from sqlfront.maintenance.program.critical import Uninterrupted
from sqlfront.planner.heavy_light.division import divide
from sqlfront.planner.model.query import Definition
from sqlfront.sql.dialect import parse_query, printed
from sqlfront.sql.guard import query_columns
from sqlfront.sql.search_path import Names
from sqlfront.sql.statements import CreateMaterializedView, Name
from sqlfront.storage.capture.capture import QualifiedName
from sqlfront.storage.errors import IntegrityError, InternalError, NotSupportedError, ProgrammingError

if TYPE_CHECKING:
    from sqlglot import exp


def create_view(database: Database, con: Any, statement: CreateMaterializedView) -> None:
    """Bind, plan, build and store a view. On any error nothing has changed. O(rows of its tables)."""
    with database.lock:
        created = drafted_view(database, con, statement)
        if created is not None:
            persistence.prepare(database, con, created.names)
            put_in_place(database, con, created.draft, created.bound, created.replaced)
            warn_of_cost(database, database.views[created.draft.view.name.key])


@dataclass(frozen=True)
class Created:
    """A view that a CREATE makes: bound, checked and planned, not yet built. `replaced` is the one that it replaces."""

    draft: Draft
    bound: Bound
    replaced: StoredView | None
    names: Names


def drafted_view(database: Database, con: Any, statement: CreateMaterializedView) -> Created | None:
    """What a CREATE makes; None if it leaves a view of the same name as it is. Raises what is wrong with the statement.

    The engine must be locked. Nothing changes.
    """
    options = check_options("materialized view", statement.options)
    catalog = EngineCatalog(database, con)
    tree = statement.take_tree() or parse_query(statement.query, statement.text, statement.query_start)
    if options.get("on_error") == "null":
        statement = null_on_error(con, statement, tree)
        tree = parse_query(statement.query, statement.text, statement.query_start)
    require_own(database, catalog.names.current)
    catalog.expect(named_tables(tree), [*persistence.BOOKKEEPING, statement.name.parts[-1]])
    name = new_name(database, con, statement.name.parts, catalog.names)
    old = database.views.get(name.key) or database.unbuilt.get(name.key)
    if old is not None and statement.if_not_exists:
        return None
    if old is not None and not statement.or_replace:
        raise ProgrammingError(
            f"materialized view {shown(name)} exists already",
            hint="CREATE OR REPLACE MATERIALIZED VIEW, or CREATE MATERIALIZED VIEW IF NOT EXISTS",
        )
    if old is None:
        refuse_other_object(database, name, catalog.names)
    with counting_columns(con, shown(name), statement):
        bound = bind(
            catalog, con, statement.query,
            column_names=statement.columns, order_by=orders_of(options),
            statement=statement.text, offset=statement.query_start, tree=tree, saves_space=saves_space(options),
        )  # fmt: skip
    if old is not None:
        refuse_circle(database, old, bound)
    check_updates(options, bound.definition, catalog)
    view = _stored_view(database, con, name, options, bound, catalog)
    drafted = draft(database, view, bound)
    own = drafted.parts[-1]
    assert isinstance(own, Part)
    if "at_worst" in options:
        check_at_worst(shown(name), own.definition, own.plan, options["at_worst"])
    if options.keys() & set(OPTIONS):
        check_epsilon(shown(name), own.definition, own.plan, options)
    return Created(drafted, bound, old, catalog.names)


def _stored_view(
    database: Database, con: Any, name: QualifiedName, options: dict[str, Any], bound: Bound, catalog: EngineCatalog
) -> StoredView:
    """A bound view as it is stored. ProgrammingError for a tick that its query has no use for."""
    columns = tuple(column for column, _ in bound.definition.columns)
    assert bound.tree is not None
    with refusing_depth():
        select = _frozen(con, bound.tree, catalog, bound.definition)
    view = StoredView(name, bound.query, select, options, columns, database.new_scan(), bound.settings)
    if bound.sources or bound.reads_clock or "tick" in options:
        _check_clock(view, clocks_of(view, bound.definition, bound.sources))
    return view


def drop_view(database: Database, con: Any, name: Name, *, if_exists: bool, cascade: bool) -> None:
    """Drop a materialized view and what only it needed; with CASCADE, the views that read it too."""
    with database.lock:
        key = locate(database, con, name.parts, temporary=False) or ("", "")
        found = database.views.get(key) or database.unbuilt.get(key)
        if found is None and if_exists:
            return
        view = found or database.view(con, name.parts)
        if not cascade:
            _refuse_dependents(database, view)
        with dropping(database, con, [view, *database.dependents(view)]):
            pass


def _refuse_dependents(database: Database, view: StoredView) -> None:
    """IntegrityError naming the materialized views that read this one, if there are any."""
    found = database.dependents(view)
    if found:
        raise IntegrityError(
            f"DROP MATERIALIZED VIEW {shown(view.name)} is refused",
            why=f"materialized views read it: {', '.join(shown(entry.name) for entry in found)}",
            hint="drop them first, or use DROP ... CASCADE",
        )


def refresh_view(database: Database, con: Any, name: Name) -> None:
    """Rebuild a view from its sources, and with it the views that share its stores: those are read anew too.

    Refused when a source does not keep its rows. If it fails half-way, the views not yet rebuilt raise until REFRESH.
    """
    with database.lock:
        key = locate(database, con, name.parts, temporary=False) or ("", "")
        unbuilt = database.unbuilt.get(key)
        if unbuilt is not None:
            bound = bind_stored(EngineCatalog(database, con), con, unbuilt)
            put_in_place(database, con, draft(database, unbuilt, bound), bound, unbuilt)
            return
        entry = database.views.get(key) or database.view(con, name.parts)
        refuse_passed(database, entry)
        _rebuild_group(database, con, entry)


def rebuild_with(database: Database, con: Any, entry: ViewEntry, options: dict[str, Any]) -> None:
    """Build a view anew with other options, as REFRESH does; nothing has changed if that is refused."""
    refuse_passed(database, entry)
    _check_space(database, con, entry, options)
    with transaction(con):
        _save_options(con, entry, options)
    entry.options = options
    _rebuild_group(database, con, entry)


def _rebuild_group(database: Database, con: Any, entry: ViewEntry) -> None:
    """Rebuild a view and those that share its stores."""
    group = _rebuilt_with(database, entry)
    for member in reversed(group):
        database.detach(member)
    try:
        for member in group:
            rebuild(database, con, member)
    except BaseException as error:
        for member in group:
            if member.maintained.name not in database.engine.views:
                database.give_up(member, f"REFRESH was not completed: {error}")
        raise
    finally:
        database.changed()


def _save_options(con: Any, entry: ViewEntry, options: dict[str, Any]) -> None:
    con.execute(
        f"UPDATE {SCHEMA}.views SET options = ? WHERE schema = ? AND name = ?",
        [json.dumps(options), entry.name.schema, entry.name.name],
    )


def alter_view(database: Database, con: Any, name: Name, options: tuple[tuple[str, Any], ...]) -> None:
    """Set options of a view; unknown ones are errors. Its tree is chosen anew by the next REFRESH; a triangle's values
    are told apart by a new epsilon at once, O(N^1.5). On any error nothing has changed."""
    checked = check_options("materialized view", options)
    with database.lock:
        entry = database.view(con, name.parts)
        check_updates(checked, entry.definition, EngineCatalog(database, con))
        entry_options = entry.options | checked
        if checked.get("on_error", now := entry.options.get("on_error", "raise")) != now:
            raise _fixed(entry, "on_error", "it is part of the view's query, which is fixed at CREATE")
        if checked.get("clock", now := entry.options.get("clock", "wall")) != now:
            raise _fixed(entry, "clock", "the view's rows are those of its clock's time")
        if "at_worst" in checked:
            maintained = entry.maintained
            check_at_worst(shown(entry.name), maintained.definition, maintained.plan, checked["at_worst"])
        if "tick" in checked:
            _check_clock(replace(entry, options=entry_options), clocks_of(entry, entry.definition, entry.sources))
        check_epsilon(shown(entry.name), entry.maintained.definition, entry.maintained.plan, checked)
        refuse_materialized(shown(entry.name), entry_options)
        _check_space(database, con, entry, entry_options)
        if checked.get("apply", entry.options.get("apply", "at commit")) != entry.options.get("apply", "at commit"):
            rebuild_with(database, con, entry, entry_options)
            return
        with transaction(con) as undo:
            _save_options(con, entry, entry_options)
            maintained = entry.maintained
            before, after = maintained.epsilon, checked.get("epsilon", maintained.epsilon)
            stated, plan = maintained.plan, divide(maintained.definition, maintained.plan, after)
            if after != before and plan is not stated:
                database.engine.replan(maintained.name, plan, after)
                undo.callback(database.engine.replan, maintained.name, stated, before)
        entry.options = entry_options
        database.engine.adapt(entry.maintained.name, wanted=is_adaptive(entry_options))
        if "tick" in checked:
            database.changed()


def _check_space(database: Database, con: Any, entry: ViewEntry, options: dict[str, Any]) -> None:
    """NotSupportedError if a view with these options is to take linear space, and no plan does."""
    if saves_space(options):
        altered = replace(entry, options=options)
        draft(database, altered, bind_stored(EngineCatalog(database, con), con, altered))


def _check_clock(view: StoredView, clocks: Collection[str]) -> None:
    """ProgrammingError for a tick of a view that does not have the time of the wall clock."""
    if "tick" in view.options:
        seconds_of(view.options["tick"])
        if WALL not in clocks:
            raise ProgrammingError(
                f"materialized view {shown(view.name)} cannot tick",
                why="the manual clock goes on by con.advance_time alone"
                if clocks
                else "it compares nothing with now()",
                hint="leave tick out",
            )


def _fixed(entry: ViewEntry, option: str, why: str) -> ProgrammingError:
    """The error for an option that is fixed at CREATE."""
    return ProgrammingError(
        f"option {option} of {shown(entry.name)} cannot be altered",
        why=why,
        hint=f"CREATE OR REPLACE MATERIALIZED VIEW {shown(entry.name)} WITH ({option} = ...) AS ...",
    )


def readers_to_drop(
    database: Database, tables: Sequence[QualifiedName], *, cascade: bool, what: str
) -> list[ViewEntry]:
    """The views that read any of the tables, which CASCADE drops. Without it, IntegrityError naming them."""
    readers = {entry.name.key: entry for table in tables for entry in database.readers(table)}
    if readers and not cascade:
        names = ", ".join(shown(entry.name) for entry in readers.values())
        raise IntegrityError(
            f"{what} is refused",
            why=f"materialized views read the table: {names}",
            hint="drop the views first, or use CASCADE",
        )
    return list(readers.values())


def why_not_rebuilt(database: Database, views: Sequence[ViewEntry]) -> str | None:
    """Why not all the views can be built anew: one reads a change table that keeps no rows. None if they can."""
    for view in views:
        for table in database.change_tables.values():
            if database.relation_key(table.name) in view.tables and not table.retain:
                created = f"change table {shown(table.name)} was created WITH (retain = false) and keeps no rows"
                return f"{created}, and {shown(view.name)} reads it"
    return None


def build_anew(database: Database, con: Any, entry: ViewEntry) -> None:
    """Build a detached view from its query."""
    fresh = build_view(database, con, entry)
    entry.definition, entry.maintained, entry.tables = fresh.definition, fresh.maintained, fresh.tables
    entry.sources = fresh.sources
    if entry.feed is not None:
        entry.feed.follow()


def rebuild(database: Database, con: Any, entry: ViewEntry) -> None:
    """Build a detached view, and store it."""
    build_anew(database, con, entry)
    own = database.writer_cursor()
    with transaction(own):
        forget_view(database, own, entry)
        store_view(database, own, entry)


def put_in_place(database: Database, con: Any, drafted: Draft, bound: Bound, old: StoredView | None) -> None:
    """Build and store a view, whose query is bound. If it replaces another, the readers of that are built anew over it.

    IntegrityError names a view that cannot be built. On any error nothing has changed. O(rows of the views' tables).
    Ctrl-C is looked for between batches of rows and before COMMIT; elsewhere, what is half done would be left behind.
    """
    readers = database.dependents(old) if old is not None else []
    replaced = [*([old] if old is not None else []), *readers]
    within, own = partial(building, database), database.writer_cursor()
    with (
        Uninterrupted() as critical,
        following(database, con, drafted.view, bound),
        dropping(database, own, replaced, within=within) as (undo, entries),
    ):
        entries.append(fill(database, own, drafted, undo, critical.check))
        store_view(database, own, entries[0])
        for reader in readers:
            entries.append(built_anew(database, own, reader, entries, undo))
        critical.check()  # A signal since the last batch still undoes everything: COMMIT is the next step.


def refuse_passed(database: Database, entry: ViewEntry) -> None:
    """ProgrammingError for a view that cannot be built anew: the view, or a reader of it, needs rows that are gone."""
    passing = why_not_rebuilt(database, [entry, *database.dependents(entry)])
    if passing is not None:
        raise ProgrammingError(
            f"materialized view {shown(entry.name)} cannot be rebuilt",
            why=passing,
            hint="create the change table WITH (retain = true)",
        )


# Inside ------------------------------------------------------------------------------------------


def _frozen(con: Any, query: exp.Expr, catalog: EngineCatalog, definition: Definition) -> str:
    """The query as it is stored, checked to give the same columns. The tree is changed."""
    import duckdb

    frozen = frozen_tree(query, catalog)
    select = printed(frozen)
    qualified = printed(with_database(frozen, catalog.database))
    try:
        types = [type_ for _, type_ in query_columns(con, qualified)]
    except duckdb.Error as error:
        raise NotSupportedError(
            "this query cannot be stored",
            why=f"written out, so that later columns of its tables do not change it, DuckDB refuses it: {error}",
            hint="give each table in FROM an alias, and name columns by it",
        ) from error
    if types != [type_ for _, type_ in definition.columns]:
        raise InternalError("the query has other columns when it is written out", where=select)
    return select


def _rebuilt_with(database: Database, entry: ViewEntry) -> list[ViewEntry]:
    """A view, those that share its stores, and those that read any of them, each after what it reads."""
    group = {entry.name.key: entry}
    waiting = [entry]
    while waiting:
        member = waiting.pop()
        for other in [*_sharing(database, member), *database.dependents(member)]:
            if other.name.key not in group:
                group[other.name.key] = other
                waiting.append(other)
    return sorted(group.values(), key=lambda member: member.scan)


def _sharing(database: Database, entry: ViewEntry) -> list[ViewEntry]:
    """The other views that read a store which this one reads, as far as they can be rebuilt."""
    read = [source.store for member in entry.maintained.members for source in member.sources.values()]
    users = set().union(*(store.users for store in read))
    return [
        other
        for other in database.views.values()
        if other is not entry
        and other.maintained.name in users
        and why_not_rebuilt(database, [other, *database.dependents(other)]) is None
    ]


def refuse_other_object(database: Database, name: QualifiedName, names: Names) -> None:
    """ProgrammingError if DuckDB has a table or view of this name."""
    found = names.at(database.name, name.schema, name.name)
    if found is not None:
        kind = "view" if found.is_view else "table"
        raise ProgrammingError(f"a {kind} named {shown(name)} exists already", hint="choose another name, or drop it")
