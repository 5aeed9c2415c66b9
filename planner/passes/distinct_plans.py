"""Distinct values in a plan: each is planned as a view of its own whose result is kept as rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from sqlfront.planner.model.bound import (
    CONSTANT_BOUND,
    GROUP_VALUES,
    LIST_VALUES,
    LOGARITHMIC_BOUND,
    VALUES_CHANGE,
    VALUES_KEPT,
    Bound,
    Term,
)
from sqlfront.planner.model.cost import MATERIALIZED, Cost
from sqlfront.planner.model.hypergraph import components, hypergraph
from sqlfront.planner.model.plan import Plan, RowsIn
from sqlfront.planner.model.query import Atom, Definition, DistinctValues
from sqlfront.planner.theory.keys import changes_one_tuple
from sqlfront.planner.theory.wording import labels


def add_distinct_sets(plan: Plan, definition: Definition, plan_view: Callable[[Definition], Plan]) -> Plan:
    """`plan` with the plans of the definition's distinct values, and the `total` cost.

    What a view of distinct values keeps changes by more than a constant when its argument and its group columns come
    from several tables; so its update costs the change.
    """
    if not definition.distinct_sets:
        return plan
    planned = (plan_view(distinct_set.definition) for distinct_set in definition.distinct_sets)
    plans = [replace(plan, rows_in=RowsIn.PROJECTION) for plan in planned]
    total = _cost(plan, definition, plans)
    return replace(plan, distinct_sets=tuple(plans), total=total, reason=_reason(plan, definition, total))


def deciding_atoms(
    definition: Definition, group: Collection[str], argument: Collection[str], filtered: Collection[str]
) -> tuple[Atom, ...]:
    """The atoms that decide which values of the `argument` a group has, if the view has the group.

    With the group's columns fixed, a join by equalities is the product of its components beyond them. That of the
    argument has the values; the others are not empty, but for those with `filtered` atoms, which meet more conditions
    here than in the view. All atoms, where comparisons join them too.
    """
    if definition.comparisons:
        return definition.atoms
    edges, fixed, kept = hypergraph(definition), frozenset(group), set[str]()
    for names in components(edges, fixed):
        inside = frozenset().union(*(edges[name] for name in names)) - fixed
        if inside & set(argument) or set(names) & set(filtered):
            kept |= set(names)
    for variable in argument:
        holders = [name for name, edge in edges.items() if variable in edge]
        if kept.isdisjoint(holders):
            kept.add(holders[0])
    return tuple(atom for atom in definition.atoms if atom.name in kept)


def _cost(plan: Plan, definition: Definition, plans: list[Plan]) -> Cost:
    ordered = any(distinct_set.ordered for distinct_set in definition.distinct_sets)
    delay = _delay(definition, plan.cost.delay)
    if MATERIALIZED in (plan.cost, *(one.cost for one in plans)):
        terms = tuple(replace(term, logs=int(ordered)) for term in MATERIALIZED.update.terms)
        return replace(MATERIALIZED, update=replace(MATERIALIZED.update, terms=terms), delay=delay)
    costs = [one.cost for one in (plan, *plans)]
    update, building, space = (
        max(getattr(cost, field).leading for cost in costs) for field in ("update", "preprocessing", "space")
    )
    alone = all(len(distinct_set.definition.atoms) == 1 for distinct_set in definition.distinct_sets)
    few = all(changes_one_tuple(one.definition, one.definition.free) for one in definition.distinct_sets)
    if few and update.is_constant:
        update = LOGARITHMIC_BOUND if ordered else plan.cost.update
    else:
        update = replace(update, terms=(Term(VALUES_CHANGE, logs=int(ordered)),))
    if not alone:
        building, space = building.plus(VALUES_KEPT), space.plus(VALUES_KEPT)
    return Cost(building.in_order() if ordered else building, update, delay, space)


def _delay(definition: Definition, delay: Bound) -> Bound:
    kept = {column.kind for column in definition.raw if column.distinct_set is not None}
    if kept & {"sum", "avg"}:
        return CONSTANT_BOUND.plus(GROUP_VALUES)
    if any(column.kind in ("greatest", "last", "rank") and not column.first for column in definition.raw):
        delay = LOGARITHMIC_BOUND
    if any(column.rank is not None and column.rank.by_distance for column in definition.raw):
        delay = Bound(logs=2)  # A binary search, whose steps look up values by their positions.
    if "list" in kept:
        return delay.plus(LIST_VALUES)
    return delay.plus(LIST_VALUES) if any(column.first for column in definition.raw) else delay


def _per(distinct_set: DistinctValues, definition: Definition) -> str:
    """For what the values are kept, of a group's columns those that decide them."""
    deciding = tuple(variable for variable, _ in distinct_set.group)
    if set(deciding) == set(definition.free):
        return "per group"
    return f"per {labels(definition, deciding)}" if deciding else "once for all groups"


def _reason(plan: Plan, definition: Definition, total: Cost) -> str:
    notes = []
    for distinct_set in definition.distinct_sets:
        how = "sorted" if distinct_set.ordered else "counted"
        per = _per(distinct_set, definition)
        notes.append(f"The values of {distinct_set.label} are kept {per}, {how}, with how often they come about.")
    if any(column.kind in ("sum", "avg") for column in definition.raw if column.distinct_set is not None):
        notes.append("A sum of distinct values is added up when it is read.")
    if plan.cost.update.amortised and total.update != plan.cost.update:  # The reason of parts states their cost.
        notes.append(f"With them a change costs {total.update}.")
    return " ".join((*notes, plan.reason.replace("The query", "Without them the query", 1)))
