"""The parts of a materialized view: the query's blocks as views of their own, computed groups, and the view itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import Database
from sqlfront.database.update_mix import update_weights
from sqlfront.define.epsilon import epsilon_of
from sqlfront.define.linear_space import STRATEGY, check_linear_space, saves_space
from sqlfront.define.part import ComputedPart, Part, Parts
from sqlfront.maintenance.clocks import WALL, clock_relation
from sqlfront.planner.classify import plan_view
from sqlfront.planner.heavy_light.division import divide
from sqlfront.planner.model.computed_rows import CLOCK, TemporalRows
from sqlfront.planner.model.heavy_light import EPSILON
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.model.whole_cost import Block
from sqlfront.planner.passes.block_costs import block_cost, computed_cost, spell_block
from sqlfront.planner.passes.merging import merge_branches, merged_definition, unmerged
from sqlfront.planner.rules.materialize import TooManyJoins
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.define.build import Bound


def plan_parts(database: Database, bound: Bound, name: str, options: Mapping[str, Any]) -> Parts:
    """Plans for a query, whose view is called `name`, and for its derived views, for which its epsilon is not meant.

    Views that they read are called as the engine calls them: so those that take their places may be built beside them.
    A union whose rows, or first rows, the query is stores nothing if its branches can be read in its place: where the
    query is first rows, each branch must keep nothing but a ranked tree. NotSupportedError for a view that is to take
    linear space and has no such plan.
    """
    parts = _with_union(database, bound, name, options)
    own = parts[-1]
    if saves_space(options) and isinstance(own, Part):
        check_linear_space(own.plan)
    return parts


def _with_union(database: Database, bound: Bound, name: str, options: Mapping[str, Any]) -> Parts:
    """The parts of a query, with the rows of a union stored or read from its branches."""
    if bound.definition.branches and options.get("strategy") != "materialize":
        merged = replace(bound, definition=merged_definition(bound.definition))
        parts = _planned_parts(database, merged, name, options)
        plans = [part.plan for part in parts if isinstance(part, Part) and part.feeds is None]
        lacking = unmerged(bound.definition, plans)
        if lacking is None:
            return parts
        note = f"the rows of the branches are stored, as one of them has no ranked tree ({lacking})"
        noted = replace(bound.definition, notes=(*bound.definition.notes, note))
        bound = replace(bound, definition=noted)
    return _planned_parts(database, bound, name, options)


def _planned_parts(database: Database, bound: Bound, name: str, options: Mapping[str, Any]) -> Parts:
    """The parts of a query; without its own if its branches were to be merged and cannot be."""
    blocks = {table: f"{name}/{number}" for number, (table, _) in enumerate(bound.definition.derived, 1)}
    unions = {table: f"{name}/union {number}" for number, (table, _) in enumerate(bound.definition.unions, 1)}
    names = {CLOCK: clock_relation(options.get("clock", WALL))} | blocks | unions
    names |= {table: source.maintained.name for table, source in bound.fed.items()}
    feeds: dict[str, str | None] = {}
    feeds |= {blocks[branch]: unions[table] for table, branches in bound.definition.unions for branch in branches}
    if bound.definition.merged:
        feeds |= {blocks[branch.table]: None for branch in bound.definition.branches}
    unchecked = {database.relation_key(table.name) for table in database.change_tables.values() if not table.retain}
    parts: Parts = []
    rates: dict[str, float] = {}  # A derived view changes at most as often as its tables together.
    for own, definition in zip([*blocks.values(), name], bound.definitions, strict=True):
        if not isinstance(definition, Definition):
            parts.append(ComputedPart(own, definition.renamed(names)))
            if isinstance(definition, TemporalRows):
                _pass_on(parts, names[definition.table], unchecked)
            rates[own] = sum(rates[names[table]] for table in definition.tables)
            continue
        definition = renamed(definition, names)
        if definition.merged:
            plans = [part.plan for part in parts if isinstance(part, Part) and part.feeds is None]
            if unmerged(definition, plans) is None:
                merged = _with_blocks(merge_branches(definition, plans), definition, parts)
                parts.append(Part(own, definition, merged, own, epsilon=epsilon_of(options)))
            return parts
        notes = definition.notes
        if own == name:
            notes = (*notes, *_notes(parts))
        definition = replace(definition, notes=notes)
        weights = update_weights(database, bound.catalog, definition, options, names)
        weights |= {table: rates[table] for table in definition.tables & rates.keys()}
        fed = feeds.get(own, own)
        rates[fed or own] = rates.get(fed or own, 0.0) + sum(weights.values())
        strategy = options.get("strategy")
        if strategy == STRATEGY and own != name:
            strategy = None  # A block's rows are stored by those who read them.
        plan = plan_definition(definition, weights, strategy)
        epsilon = epsilon_of(options) if own == name else EPSILON
        plan = divide(definition, plan, epsilon, options if own == name else None)
        if own == name and parts:
            plan = _with_blocks(plan, definition, parts)
        stateless = fed is not None and fed != own and _is_stateless(definition, unchecked)
        parts.append(Part(own, definition, plan, fed, stateless, epsilon))
    return parts


def _pass_on(parts: Parts, block: str, unchecked: Collection[str]) -> None:
    """Let a block of one table pass its changes on to the temporal filter that alone reads it and keeps its rows."""
    for place, part in enumerate(parts):
        if isinstance(part, Part) and part.name == block and _is_stateless(part.definition, unchecked):
            parts[place] = replace(part, stateless=True)


def _is_stateless(definition: Definition, unchecked: Collection[str]) -> bool:
    """Whether what a branch's change is follows from that of its table alone. Of `unchecked` tables the rows are kept,
    as nobody else does: a row is not deleted more often than it is there."""
    is_one = definition.mode == "bag" and len(definition.atoms) == 1 and definition.limit is None
    return is_one and definition.atoms[0].table not in unchecked


def _notes(parts: Parts) -> Iterator[str]:
    """The state kept for a query's blocks and for the branches of its unions. What is kept alike is named once."""
    blocks: Counter[tuple[str, str]] = Counter()
    branches: dict[str, Counter[str]] = {}
    yield from dict.fromkeys(part.rows.note for part in parts if isinstance(part, ComputedPart))
    for part in parts:
        if isinstance(part, ComputedPart):
            continue
        if part.feeds == part.name:
            blocks[spell_block(part.definition), "" if part.stateless else _kept(part)] += 1
        elif part.feeds is not None:
            how = "passed on and not stored" if part.stateless else "kept as a view of its own"
            branches.setdefault(part.feeds, Counter())[f"{spell_block(part.definition)} {how} ({_kept(part)})"] += 1
    for (block, how), count in blocks.items():
        if not how:
            yield f"the {block} are passed on and not stored"
        elif count == 1:
            yield f"the block of {block} is kept as a view of its own ({how})"
        else:
            yield f"{count} blocks of {block} are kept as views of their own (each {how})"
    for union, kept in branches.items():
        stored = f"stores the rows of its {kept.total()} branches, O(their number), and changes as they do"
        alike = (how if count == 1 else f"{count} times {how}" for how, count in kept.items())
        yield f"{table_name(union)} {stored}: {'; '.join(alike)}"


def _with_blocks(plan: Plan, definition: Definition, parts: Parts) -> Plan:
    """The plan with the costs of its query's blocks and branches. Branches that are merged at each read are in the
    query's own cost: it reads what they read."""
    blocks: list[Block] = []
    inputs = set(definition.tables)
    for part in parts:
        if part.feeds is None:
            inputs |= part.tables
        elif isinstance(part, Part):
            blocks.append(block_cost(part.definition, part.plan, part.feeds))
        else:
            blocks += computed_cost(part.rows, part.feeds)
    return replace(plan, blocks=tuple(blocks), inputs=frozenset(inputs))


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
        return plan_view(definition, weights, materialize=strategy == "materialize", saves_space=strategy == STRATEGY)
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
