"""What a block of a query costs the view that reads it, and the rows that change among the block's rows.

One changed row changes one row of a block if each atom decides the block's row by declared keys. Where one atom only
decides it, and a change visits all of its rows, N rows change at most. Elsewhere nothing but the result bounds them.
Constant rows do not change, and their number is no part of the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlfront.planner.model.bound import CONSTANT_BOUND, LINEAR_BOUND, RESULT_CHANGE, Bound, Term
from sqlfront.planner.model.computed_rows import ComputedRows
from sqlfront.planner.model.cost import BLOCK_SORTED, Cost
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Atom, Definition, is_grouped
from sqlfront.planner.model.whole_cost import Block
from sqlfront.planner.passes.window_plans import reached_rows
from sqlfront.planner.theory.keys import closure


def block_cost(definition: Definition, plan: Plan, feeds: str = "") -> Block:
    """The cost of a block to its view, whose relation `feeds` has the block's rows. A block with a LIMIT has its first
    rows read at each epoch as well."""
    cost = _cost(definition, plan)
    wide = not any(_decides(definition, plan, definition.atoms))
    label = f"the block of {spell_block(definition)}"
    return Block(label, cost, wide, output_bound(definition, plan), feeds=feeds, reads=definition.tables)


def computed_cost(rows: ComputedRows, feeds: str = "") -> list[Block]:
    """The cost of computed rows, to the view that reads them; none of rows that never change."""
    if rows.cost is None:
        return []
    return [Block(rows.block, rows.cost, output=rows.output, computed=True, feeds=feeds, reads=rows.tables)]


def output_bound(definition: Definition, plan: Plan) -> Bound:
    """The rows of a view that one changed row of a table changes."""
    if definition.windows is not None:
        return reached_rows(definition)
    if definition.merged and definition.limit is None:
        return Bound(terms=(Term(RESULT_CHANGE),))
    if all(_decides(definition, plan, definition.changing_atoms)):
        return CONSTANT_BOUND
    if any(_decides(definition, plan, definition.atoms)) and plan.cost.update.power >= 1:
        return LINEAR_BOUND
    within = tuple(term for term in _cost(definition, plan).update.terms if term.quantity.is_result)
    return Bound(terms=within or (Term(RESULT_CHANGE),))


def spell_block(definition: Definition) -> str:
    """A block by the kind of its rows and its tables."""
    tables = ", ".join(dict.fromkeys(atom.name for atom in definition.atoms))
    kind = {"set": "distinct rows", "group": "groups"}.get(definition.mode, "rows")
    if definition.limit is not None:
        kind = f"first {kind}{' of each group' if is_grouped(definition) else ''}"
    return f"{kind} over {tables}"


def _cost(definition: Definition, plan: Plan) -> Cost:
    if not definition.changing_atoms:
        return replace(plan.stated_cost, update=CONSTANT_BOUND)
    if definition.limit is not None and not plan.orders[0].is_ranked:
        return replace(plan.stated_cost, update=BLOCK_SORTED)
    return plan.stated_cost


def _decides(definition: Definition, plan: Plan, atoms: Iterable[Atom]) -> list[bool]:
    """Whether each of these atoms decides a row, by its columns and declared keys: the free columns, or the few rows
    of a group."""
    decides = definition.free
    if definition.limit is not None and plan.orders[0].is_ranked and definition.limit.rows is not None:
        decides = plan.orders[0].top
    return [frozenset(decides) <= closure(atom.scheme, definition.atoms)[0] for atom in atoms]
