"""The parts of a materialized view: the query's blocks as views of their own, computed groups, and the view itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlfront.database.database import Database
from sqlfront.database.update_mix import update_weights
from sqlfront.define.epsilon import EPSILON, epsilon_of, with_epsilon
from sqlfront.planner.classify import plan_view
from sqlfront.planner.model.cost import BLOCK_SORTED, TOUCHED, TOUCHED_WHOLE
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import ConstantRows, Definition, TouchedGroups, is_grouped
from sqlfront.planner.model.whole_cost import Block
from sqlfront.planner.passes.merging import merge_branches, merged_definition, unmerged
from sqlfront.planner.rules.materialize import TooManyJoins
from sqlfront.planner.theory.keys import closure
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.errors import NotSupportedError

if TYPE_CHECKING:
    from sqlfront.define.build import Bound


@dataclass(frozen=True)
class ComputedPart:
    """Rows computed by DuckDB that a materialized view reads; they feed the relation of the same name."""

    name: str
    rows: TouchedGroups | ConstantRows
    stateless = False

    @property
    def feeds(self) -> str:
        return self.name


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


Parts = list[Part | ComputedPart]


def plan_parts(database: Database, bound: Bound, name: str, options: Mapping[str, Any]) -> Parts:
    """Plans for a query, whose view is called `name`, and for its derived views, for which its epsilon is not meant.

    Views that they read are called as the engine calls them: so those that take their places may be built beside them.
    Of a union whose first rows the query is, the branches are merged if each keeps nothing but a ranked tree.
    """
    if bound.definition.branches and not options.get("strategy"):
        merged = replace(bound, definition=merged_definition(bound.definition))
        parts = _planned_parts(database, merged, name, options)
        lacking = unmerged([part.plan for part in parts if isinstance(part, Part) and part.feeds is None])
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
    names = blocks | unions | {table: source.maintained.name for table, source in bound.fed.items()}
    feeds: dict[str, str | None] = {}
    feeds |= {blocks[branch]: unions[table] for table, branches in bound.definition.unions for branch in branches}
    if bound.definition.merged:
        feeds |= {blocks[branch.table]: None for branch in bound.definition.branches}
    unchecked = {database.relation_key(table.name) for table in database.change_tables.values() if not table.retain}
    parts: Parts = []
    rates: dict[str, float] = {}  # A derived view changes at most as often as its tables together.
    for own, definition in zip([*blocks.values(), name], bound.definitions, strict=True):
        if isinstance(definition, TouchedGroups):
            parts.append(ComputedPart(own, replace(definition, table=names[definition.table])))
            rates[own] = rates[names[definition.table]]
            continue
        if isinstance(definition, ConstantRows):
            parts.append(ComputedPart(own, definition))
            rates[own] = 0.0
            continue
        definition = renamed(definition, names)
        if definition.merged:
            plans = [part.plan for part in parts if isinstance(part, Part) and part.feeds is None]
            if unmerged(plans) is None:
                merged = replace(merge_branches(definition, plans), blocks=_costs(parts))
                parts.append(Part(own, definition, merged, own))
            return parts
        notes = definition.notes
        if own == name:
            notes = (*notes, *_notes(parts))
        definition = replace(definition, notes=notes)
        weights = update_weights(database, bound.catalog, definition, options, names)
        weights |= {table: rates[table] for table in definition.tables & rates.keys()}
        fed = feeds.get(own, own)
        rates[fed or own] = rates.get(fed or own, 0.0) + sum(weights.values())
        plan = plan_definition(definition, weights, options.get("strategy"))
        epsilon = epsilon_of(options) if own == name else EPSILON
        plan = with_epsilon(definition, plan, epsilon, options if own == name else None)
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


def _notes(parts: Parts) -> Iterator[str]:
    """The state kept for a query's blocks and for the branches of its unions. Blocks kept alike are named once."""
    blocks: Counter[tuple[str, str]] = Counter()
    branches: dict[str, list[str]] = {}
    for part in parts:
        if isinstance(part, ComputedPart):
            yield _told(part.rows)
        elif part.feeds == part.name:
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


def _told(rows: TouchedGroups | ConstantRows) -> str:
    """What is kept of rows that DuckDB computes."""
    if isinstance(rows, ConstantRows):
        return f"{rows.label}: the rows are constant; DuckDB computes them when the view is built"
    kept = "which are kept by group" if rows.keys else "all rows being one group"
    return f"{rows.label}: DuckDB computes the groups that a change touches, from their rows, {kept}"


def _costs(parts: Parts) -> tuple[Block, ...]:
    """The costs of a query's blocks and of its branches. Branches merged at each read are in the query's own cost."""
    return tuple(block for part in parts if part.feeds is not None for block in _cost(part))


def _cost(part: Part | ComputedPart) -> list[Block]:
    """The cost of a part; constant rows have none."""
    if isinstance(part, Part):
        return [block_cost(part.definition, part.plan)]
    return [computed_cost(part.rows)] if isinstance(part.rows, TouchedGroups) else []


def computed_cost(groups: TouchedGroups) -> Block:
    """The cost of groups that DuckDB computes, to the view that reads them."""
    return Block(f"the groups of {groups.label}", TOUCHED if groups.keys else TOUCHED_WHOLE, computed=True)


def block_cost(definition: Definition, plan: Plan) -> Block:
    """The cost of a block to its view. A block with a LIMIT has its first rows read at each epoch as well."""
    cost, decides = plan.stated_cost, definition.free  # The columns that decide a row, or the few rows of a group.
    if definition.limit is not None and not plan.orders[0].is_ranked:
        cost = replace(cost, update=BLOCK_SORTED)
    elif definition.limit is not None and definition.limit.rows is not None:
        decides = plan.orders[0].top
    within = [frozenset(decides) <= closure(atom.scheme, definition.atoms)[0] for atom in definition.atoms]
    visits_all = any(within) and plan.cost.update.power >= 1
    return Block(f"the block of {_spelled(definition)}", cost, not any(within), not (all(within) or visits_all))


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
