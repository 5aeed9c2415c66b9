"""Building a materialized view: bind, plan, capture its tables, fill the engine from one snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
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
from sqlfront.database.update_mix import update_weights
from sqlfront.define.epsilon import EPSILON, divides, epsilon_of, is_single, with_epsilon
from sqlfront.maintenance import epoch
from sqlfront.maintenance.engine import Engine
from sqlfront.maintenance.program.room import Room
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.cost import BLOCK_SORTED
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition, is_grouped
from sqlfront.planner.model.whole_cost import Block
from sqlfront.planner.passes.merging import merge_branches, merged_definition, unmerged
from sqlfront.planner.rules.materialize import TooManyJoins
from sqlfront.planner.theory.core import minimise
from sqlfront.planner.theory.wording import table_name
from sqlfront.sql.tokens import tokenize
from sqlfront.storage.errors import DataError, NotSupportedError, ProgrammingError

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
    def definitions(self) -> list[Definition]:
        """Those of the query's own derived views, and the query's, each after those it reads."""
        return [*(definition for _, definition in self.definition.derived), self.definition]

    @property
    def fed(self) -> dict[str, ViewEntry]:
        """Those whose rows are the definition's; the others are inlined."""
        tables = {atom.table for definition in self.definitions for atom in definition.atoms}
        return {key: source for key, source in self.sources.items() if key in tables}


def bind(
    catalog: EngineCatalog, con: Any, query: str, *, statement: str | None = None, offset: int = 0, **shape: Any
) -> Bound:
    """Bind and minimise a query; the rest is as for `bind_view`. On any error nothing has changed."""
    found = bind_view(query, con, catalog, statement=statement, offset=offset, **shape)
    definition = minimise(found.definition)
    derived = tuple((table, minimise(inner)) for table, inner in definition.derived)
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
    tables = {atom.table for definition in bound.definitions for atom in definition.atoms} - fed.keys()
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
        parts[-1].definition, maintained, tables, bound.sources,
    )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One of the engine's views that a materialized view consists of: its own is the last.

    The others feed the relation called `feeds`: their own, or that of a union, with its other branches; None, if they
    are merged when the view is read. A `stateless` branch stores no rows.
    """

    name: str
    definition: Definition
    plan: Plan
    feeds: str | None
    stateless: bool = False


def plan_parts(database: Database, con: Any, bound: Bound, name: str, options: Mapping[str, Any]) -> list[Part]:
    """Plans for a query, whose view is called `name`, and for its derived views, for which its epsilon is not meant.

    Views that they read are called as the engine calls them: so those that take their places may be built beside them.
    Of a union whose first rows the query is, the branches are merged if each keeps nothing but a ranked tree.
    """
    if bound.definition.branches and not options.get("strategy"):
        merged = replace(bound, definition=merged_definition(bound.definition))
        parts = _planned_parts(database, con, merged, name, options)
        lacking = unmerged([part.plan for part in parts if part.feeds is None])
        if lacking is None:
            return parts
        note = f"the rows of the branches are stored, as one of them has no ranked tree ({lacking})"
        noted = replace(bound.definition, notes=(*bound.definition.notes, note))
        bound = replace(bound, definition=noted)
    return _planned_parts(database, con, bound, name, options)


def _planned_parts(database: Database, con: Any, bound: Bound, name: str, options: Mapping[str, Any]) -> list[Part]:
    """The parts of a query; without its own if its branches were to be merged and cannot be."""
    blocks = {table: f"{name}/{number}" for number, (table, _) in enumerate(bound.definition.derived, 1)}
    unions = {table: f"{name}/union {number}" for number, (table, _) in enumerate(bound.definition.unions, 1)}
    names = blocks | unions | {table: source.maintained.name for table, source in bound.fed.items()}
    feeds: dict[str, str | None] = {}
    feeds |= {blocks[branch]: unions[table] for table, branches in bound.definition.unions for branch in branches}
    if bound.definition.merged:
        feeds |= {blocks[branch.table]: None for branch in bound.definition.branches}
    unchecked = {database.relation_key(table.name) for table in database.change_tables.values() if not table.retain}
    parts: list[Part] = []
    rates: dict[str, float] = {}  # A derived view changes at most as often as its tables together.
    for own, definition in zip([*blocks.values(), name], bound.definitions, strict=True):
        definition = renamed(definition, names)
        if definition.merged:
            plans = [part.plan for part in parts if part.feeds is None]
            if unmerged(plans) is None:
                merged = replace(merge_branches(definition, plans), blocks=_costs(parts))
                parts.append(Part(own, definition, merged, own))
            return parts
        notes = definition.notes
        if own == name:
            notes = (*notes, *_notes(parts))
        definition = replace(definition, notes=notes)
        weights = update_weights(database, con, definition, options, names)
        weights |= {table: rates[table] for table in {atom.table for atom in definition.atoms} & rates.keys()}
        fed = feeds.get(own, own)
        rates[fed or own] = rates.get(fed or own, 0.0) + sum(weights.values())
        plan = plan_definition(definition, weights, options.get("strategy"))
        epsilon = epsilon_of(options) if own == name else EPSILON
        divided, single = own == name and divides(definition, plan, options), own == name and is_single(options)
        plan = with_epsilon(definition, plan, epsilon, divided=divided, single=single)
        if own == name:
            plan = replace(plan, blocks=_costs(parts))
        stateless = fed is not None and fed != own and _is_stateless(definition, unchecked)
        parts.append(Part(own, definition, plan, fed, stateless))
    return parts


def _is_stateless(definition: Definition, unchecked: Collection[str]) -> bool:
    """Whether what a branch's change is follows from that of its table alone. Of `unchecked` tables the rows are kept,
    as nobody else does: a row is not deleted more often than it is there."""
    is_one = definition.mode == "bag" and len(definition.atoms) == 1 and definition.limit is None
    return is_one and definition.atoms[0].table not in unchecked


def _notes(parts: Sequence[Part]) -> Iterator[str]:
    """What is kept of a query's blocks, those told once that are kept alike, and of the branches of its unions."""
    blocks: Counter[tuple[str, str]] = Counter()
    branches: dict[str, list[str]] = {}
    for part in parts:
        if part.feeds == part.name:
            blocks[_spelled(part.definition), _kept(part)] += 1
        elif part.feeds is not None:
            how = "passed on and not stored" if part.stateless else "kept as a view of its own"
            branches.setdefault(part.feeds, []).append(f"{_spelled(part.definition)} {how} ({_kept(part)})")
    for (block, how), count in blocks.items():
        if count == 1:
            yield f"the block of {block} is kept as a view of its own ({how})"
        else:
            yield f"{count} blocks of {block} are kept as views of their own (each {how})"
    for union, kept in branches.items():
        stored = f"stores the rows of its {len(kept)} branches, O(their number), and changes as they do"
        yield f"{table_name(union)} {stored}: {'; '.join(kept)}"


def _costs(parts: Sequence[Part]) -> tuple[Block, ...]:
    """What a query's blocks cost, and the branches of its unions; those merged when it is read are in its own cost."""
    return tuple(block_cost(part.definition, part.plan) for part in parts if part.feeds is not None)


def block_cost(definition: Definition, plan: Plan) -> Block:
    """What a block costs its view: also reading its first rows at each epoch, if it is these."""
    cost, decides = plan.stated_cost, definition.free  # The columns that decide a row, or the few rows of a group.
    if definition.limit is not None and not plan.orders[0].is_ranked:
        cost = replace(cost, update=BLOCK_SORTED)
    elif definition.limit is not None and definition.limit.rows is not None:
        decides = plan.orders[0].top
    schemes = [frozenset(column.name for column in atom.variables) for atom in definition.atoms]
    within = [frozenset(decides) <= scheme for scheme in schemes]
    return Block(f"the block of {_spelled(definition)}", cost, not any(within), not all(within))


def _spelled(definition: Definition) -> str:
    tables = ", ".join(dict.fromkeys(atom.name for atom in definition.atoms))
    kind = {"set": "distinct rows", "group": "groups"}.get(definition.mode, "rows")
    if definition.limit is not None:
        kind = f"first {kind}{' of each group' if is_grouped(definition) else ''}"
    return f"{kind} over {tables}"


def _kept(part: Part) -> str:
    kept = f"{part.plan.shape}, {part.plan.cost.update} per change"
    if part.definition.limit is None:
        return kept
    order, label = part.plan.orders[0], part.definition.orders[0].label
    if order.is_ranked:
        return f"{kept}, and at each epoch its first rows by {label} are read"
    return f"{kept}, and at each epoch its rows are sorted by {label}: {order.obstacle}"


def plan_definition(definition: Definition, weights: dict[str, float], strategy: str | None = None) -> Plan:
    """The plan of a definition. `strategy` is the view's option. Raises NotSupportedError for too many joins."""
    try:
        return plan_view(definition, weights, materialize=strategy == "materialize")
    except TooManyJoins as error:
        raise NotSupportedError(
            "strategy = 'materialize' would store too many joins",
            why=f"each change must find its join with all other tables ready, and that makes {error}",
            hint="leave the option out: strategy = 'auto' stores no join that a tree can do without",
        ) from None


def renamed(definition: Definition, names: Mapping[str, str]) -> Definition:
    """The definition and its distinct values with tables called by `names`."""
    atoms = tuple(replace(atom, table=names.get(atom.table, atom.table)) for atom in definition.atoms)
    distinct_sets = tuple(replace(one, definition=renamed(one.definition, names)) for one in definition.distinct_sets)
    branches = tuple(replace(one, table=names.get(one.table, one.table)) for one in definition.branches)
    return replace(definition, atoms=atoms, distinct_sets=distinct_sets, branches=branches)


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


def _fill(database: Database, con: Any, parts: Sequence[Part], epsilon: float, undo: ExitStack) -> MaintainedView:
    """Build views from the snapshot of the open transaction; the last of them, whose `epsilon` is given."""
    engine = database.engine

    def load(relation: str) -> tuple[Iterator[pa.RecordBatch], int]:
        rows, count = database.load(con, relation)
        if isinstance(rows, Generator):
            undo.callback(rows.close)  # A reader left half-way would be in the way of ROLLBACK.
        return rows, count

    for part in parts:
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
    """Drop a view that may have gone with its last reader."""
    if name in engine.views:
        engine.drop_view(name)
