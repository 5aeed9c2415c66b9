"""IVM^eps for the user: which views epsilon is for, what a plan with it costs, and what another epsilon would cost.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates": Theorem 3; the nullary query
with tables partitioned twice. Which trees run is plan data (planner/model/heavy_light.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from sqlfront.planner.heavy_light.rings import find_ring
from sqlfront.planner.heavy_light.unions import exponents, find_union
from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.cost import Cost
from sqlfront.planner.model.heavy_light import Union
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.distinct_plans import add_distinct_sets
from sqlfront.planner.passes.orders import over_part_trees
from sqlfront.planner.rules import cyclic, materialize
from sqlfront.planner.theory.wording import are, enumerate_words, labels, spell_comparison
from sqlfront.storage.errors import ProgrammingError

EPSILON = 0.5
"""The least cost of a change."""

READS = 1.0
"""Nothing declared: a view may be read after every change."""

NOMINAL_ROWS = 1e6
"""For which the planner compares expected costs."""

OPTIONS = ("epsilon", "reads", "partition")
"""The options of a view that are about heavy and light values."""

CHOICES = (0, 0.25, 0.5, 0.75, 1)
"""Those whose costs an explanation compares."""

_SOURCE = "Kara, Nikolic, Ngo, Olteanu and Zhang 2020, Theorem 3"
_RINGS = "the bound of Hanauer, Henzinger and Hua 2022, Fully dynamic four-vertex subgraph counting"
_SPLIT = "after the split of cycles by Deep, Hu and Koutris 2022; the division is ours"
_STARS = "Deep, Hu and Koutris 2022, Theorem 25"
_NULLARY = f"{_SOURCE} and the nullary query with double partitioning"


def epsilon_of(options: Mapping[str, Any]) -> float:
    """The epsilon of a view by its options."""
    return float(options.get("epsilon", EPSILON))


def divides(definition: Definition, plan: Plan, options: Mapping[str, Any]) -> bool:
    """Whether a view is better kept by trees over heavy and light parts than by its plan's one tree.

    As asked by `epsilon`, else by the costs that are expected in the worst case: with the share `reads` of operations
    that read all rows, trees over parts save changes and cost the delay of rows. First rows are only divided if asked.
    """
    union = find_union(definition, plan, single=is_single(options))
    if options.keys() & {"epsilon", "partition"} or union is None:
        return union is not None
    if union.first_rows:
        return False
    reads, size, atoms = float(options.get("reads", READS)), len(_enumerated(union, plan.free)), len(union.edges)
    rows = 0.0 if not size else atoms / (atoms - 1) if size > 2 else 1.0
    _, update, delay, _ = exponents(union, size, Fraction(1, 2))
    costs = []
    for change, wait in ((plan.cost.update.power, 0), (update, delay)):
        costs.append((1 - reads) * NOMINAL_ROWS ** float(change) + reads * NOMINAL_ROWS ** (rows + float(wait)))
    return costs[1] < costs[0]


def epsilon_cost(union: Union, epsilon: float, free: int) -> Cost:
    """What a strategy costs with that many free variables."""
    building, update, delay, space = exponents(union, free, Fraction(str(epsilon)))
    return Cost(Bound(building), Bound(update, amortised=0 < epsilon < 1), Bound(delay), Bound(space))


def is_single(options: Mapping[str, Any]) -> bool:
    """Whether a view's options ask for tables that are partitioned by one column each."""
    return options.get("partition") == "single"


def with_epsilon(
    definition: Definition, plan: Plan, epsilon: float, *, divided: bool = False, single: bool = False
) -> Plan:
    """A plan that is a union of trees over heavy and light parts, if one is known for its query; else the plan itself.

    A sum over all triangles always is; another view if it is to be `divided`, or was already. `single`: by
    one column of each table.
    """
    union = find_union(definition, plan, single=single) if plan.strategy != materialize.STRATEGY else None
    if plan.union is not None:
        union = plan.union
    if union is None or not (union.covers or divided or plan.union is not None):
        return plan
    strategy = f"IVM^eps with epsilon = {epsilon:g}, {_APART.get(epsilon, 'heavy and light values apart')}"
    if union.covers and not 0 < epsilon < 1:
        strategy = f"{cyclic.STRATEGY} (epsilon = {epsilon:g}: no values apart)"
    cost = epsilon_cost(union, epsilon, len(plan.free))
    ordered = zip(plan.orders, definition.orders, strict=True)
    orders = tuple(over_part_trees(planned, order, union, cost) for planned, order in ordered)
    ranked_only = plan.ranked_only and orders[0].is_ranked
    changed = replace(
        plan, strategy=strategy, cost=orders[0].cost if ranked_only else cost, union=union, root=union.root,
        free=_enumerated(union, plan.free),
        reason=_reason(definition, union, plan.free, epsilon), distinct_sets=(), total=None, orders=orders,
        ranked_only=ranked_only,
    )  # fmt: skip
    distinct_sets = iter(plan.distinct_sets)
    return add_distinct_sets(changed, definition, lambda _: next(distinct_sets))


def _enumerated(union: Union, free: tuple[str, ...]) -> tuple[str, ...]:
    """The variables that a union enumerates: more than are put out where it lists all rows."""
    top = union.root.children[0]
    return top.variables if top.connex and set(top.variables) != set(free) else free


_APART = {0.0: "all values heavy", 1.0: "all values light"}


def check_epsilon(name: str, definition: Definition, plan: Plan, options: Mapping[str, Any]) -> None:
    """ProgrammingError when epsilon, reads or partition is given for a view, called `name`, whose values cannot be told
    apart, or not so."""
    for option in OPTIONS:
        if option in options:
            _check_option(option, name, definition, plan)


def _check_option(option: str, name: str, definition: Definition, plan: Plan) -> None:
    if plan.strategy == materialize.STRATEGY:
        raise _refused(option, name, "every join is stored (strategy = 'materialize')")
    single = option == "partition"
    if (plan.union is not None and not single) or find_union(definition, plan, single=single) is not None:
        return
    if definition.derived:
        block = f"create the block as a materialized view of its own WITH ({option} = ...), and read that"
        raise _refused(option, name, "its query reads a block, which is kept as a view of its own", block)
    if definition.comparisons:
        compared = " and ".join(spell_comparison(definition, test) for test in definition.comparisons)
        raise _refused(option, name, f"its query compares {compared} across tables, and parts are joined by equalities")
    ring = find_ring(definition, 3)
    if ring is not None and not single:
        joining = {edge.first for edge in ring}
        others = labels(definition, [variable for variable in plan.free if variable not in joining])
        why = f"triangles by {others}, which joins no tables, are only told apart if all their rows are put out"
        raise _refused(option, name, why)
    if definition.mode == "set" and definition.limit is None and plan.shape == "acyclic":
        why = "DISTINCT ends of a star are told apart for first rows only, by ORDER BY ... LIMIT"
        raise _refused(option, name, why, "give the view an order and a LIMIT, or leave the option out")
    why = "its query is no join of three tables of which each two share a column of their own, nor one of the others"
    raise _refused(option, name, why)


def refuse_materialized(name: str, options: Mapping[str, Any]) -> None:
    """ProgrammingError when a view's options ask both for heavy and light values and to store every join."""
    for option in OPTIONS:
        if option in options and options.get("strategy") == "materialize":
            why = "strategy = 'materialize' stores every join"
            raise _refused(option, name, why, "create the view anew with one of the two")


def _refused(option: str, name: str, why: str, hint: str | None = None) -> ProgrammingError:
    views = "sums over all triangles" if option == "partition" else "views over triangles, and the others"
    return ProgrammingError(
        f"option {option} does not apply to materialized view {name}",
        why=f"{why}; {option} is for {views} that the documentation lists",
        hint=hint or "leave the option out",
    )


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    if union.first_rows:
        return _star_reason(definition, union, epsilon)
    variables = dict.fromkeys(variable for edge in union.edges for group in edge.groups for variable in group)
    triangles = "the triangles" if len(variables) == len(union.edges) == 3 else "the joins"
    triangles = "the rings" if union.has_changes or union.joint else triangles
    start = f"The query is {_asks(definition, free)} {triangles} of {labels(definition, sorted(variables))}."
    if union.covers and not 0 < epsilon < 1:
        return (
            f"{start} With epsilon = {epsilon:g} no value is heavy or all are, so nothing is kept beside the sum: a "
            "change is joined with whole lists, the shortest first, in worst-case optimal steps (Ngo et al. 2012). "
            f"epsilon = {EPSILON:g} would take {epsilon_cost(union, EPSILON, 0).update} per change."
        )
    apart = (
        f"{start} A value that N^{epsilon:g} rows of a table have is heavy there: light values have short lists, heavy"
    )
    cost = epsilon_cost(union, epsilon, len(free))
    if union.covers:
        return (
            f"{apart} ones are few, and for pairs of heavy values the sum over light ones is kept as a product. A "
            "change costs N^max(eps, 1-eps), with the rebalances that it makes necessary, and space "
            f"N^max(1, min(1+eps, 2-2eps)) ({_NULLARY})."
        )
    if union.joint:
        return (
            f"{apart} ones are few; what is heavy in one of the two tables that it joins counts as heavy in both. By "
            f"the status of all four values the rings are divided into {len(union.part_trees)} part trees with none "
            "in common, each a tree over bags of three columns, in which a change lists light or heavy values. It "
            f"costs {cost.update}, with the rebalances that it makes necessary, O(N^(2/3)) at epsilon = 1/3; the bags "
            f"take {cost.space}, O(N^1.5) at 0.5, and rows come at {cost.delay} ({_SPLIT})."
        )
    if union.has_changes:
        kept = sum(part_tree.reading == "looked up" for part_tree in union.part_trees)
        return (
            f"{apart} ones are few. What two tables join, by the status of their values, is summed over the column "
            f"that they share where that meets few rows, {kept} sums in all with those of three tables for pairs of "
            f"heavy values. A change lists what is few in the others and looks up the rest. It costs {cost.update}, "
            f"with the rebalances that it makes necessary, and space {cost.space}; epsilon = 2/3 makes a change "
            f"cheapest, O(N^(2/3)) ({_RINGS})."
        )
    return (
        f"{apart} ones are few. The join is divided by the status of its values into {len(union.part_trees)} part "
        f"trees, each a view tree of its own{_how_read(union)}. A change costs {cost.update}, with the "
        f"rebalances that it makes necessary, and {'rows come' if free else 'the answer comes'} at {cost.delay} "
        f"({_source(union)})."
    )


def _star_reason(definition: Definition, union: Union, epsilon: float) -> str:
    groups = [group for edge in union.edges for group in edge.groups]
    ends = [f"({labels(definition, group)})" if len(group) > 1 else labels(definition, group) for group in groups]
    trees = "a ranked tree" if len(ends) == 1 else f"{len(ends)} ranked trees, one for each first light end"
    cost = epsilon_cost(union, epsilon, 0)
    return (
        f"The query is the distinct {enumerate_words(ends)} of a star, whose tables share other columns. What N^"
        f"{epsilon:g} rows of a table have is heavy there. Rows whose ends are all heavy are stored; the others are "
        f"found along {trees}, where a row is come to no more often than its light end has rows. What they find is "
        f"merged. A change meets {cost.update} rows of that store, one of a light end O(1), with the rebalances that "
        f"it makes necessary; a row is come to {cost.delay} times, each in O(log N); space is {cost.space} ({_STARS})."
    )


def _how_read(union: Union) -> str:
    listed = [part_tree.name for part_tree in union.part_trees if part_tree.reading == "enumerated"]
    if len(listed) == len(union.part_trees):
        return ", enumerated: no two have a row in common"
    if not listed:
        return "; all add to one output"
    return f", {len(listed)} of which {are(listed)} enumerated, each row once; the others add to one output"


def _source(union: Union) -> str:
    if len(union.edges) == 2:
        return (
            "Kara, Nikolic, Olteanu and Zhang 2020, Trade-offs in static and dynamic evaluation of hierarchical queries"
        )
    triangle = len(union.edges) == 3 and all(edge.groups for edge in union.edges)
    return _SOURCE if triangle else _SOURCE.replace("Theorem 3", "section 12")


def _asks(definition: Definition, free: tuple[str, ...]) -> str:
    if not free:
        return "a sum over"
    return f"{'the' if definition.mode != 'group' else 'an aggregate by'} {labels(definition, free)} of"
