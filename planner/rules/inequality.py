"""Rule 0b: other joins by comparisons get a tree over bags that hold what is compared."""

from __future__ import annotations

from sqlfront.planner.model.cost import Cost, bag_cost
from sqlfront.planner.model.hypergraph import components, hypergraph
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.rules.cyclic import STORE
from sqlfront.planner.search.decomposition import Decomposition, decompose_best, spell_cut
from sqlfront.planner.search.join_tree import Weights
from sqlfront.planner.theory.wording import are, enumerate_words, labels, spell_comparison

STRATEGY = "bags of what is compared, delta joins over sorted lists"


def plan_inequality(definition: Definition, weights: Weights) -> Plan | None:
    """The tree whose bags hold the two sides of every comparison; None for a query without comparisons.

    A comparison bounds nothing, so the exponents are those of the join of the atoms below a bag (delta queries, Koch
    et al. 2014, with the comparison tested on each combination).
    """
    if not definition.comparisons:
        return None
    free, found = decompose_best(definition, weights)
    added = tuple(variable for variable in free if variable not in definition.free)
    cost = bag_cost(found.width, found.update, found.space)
    return Plan(
        shape="inequality",
        strategy=STRATEGY,
        root=found.root,
        free=free,
        variables_added=added,
        cost=cost,
        reason=_explain(definition, found, cost, added),
        suggestion=_suggest(definition, found),
    )


def _explain(definition: Definition, found: Decomposition, cost: Cost, added: tuple[str, ...]) -> str:
    tests = list(dict.fromkeys(spell_comparison(definition, one) for one in definition.comparisons))
    bags = list(dict.fromkeys(f"({', '.join(map(definition.label, bag))})" for bag in found.bags))
    widest = (
        f"; {enumerate_words(bags)} {are(bags)} the widest, of at most {cost.preprocessing} combinations"
        if bags
        else ""
    )
    listed = ""
    if added:
        listed = f" {labels(definition, added)} {are(added)} enumerated too, as SELECT without DISTINCT allows."
    verb = "compares" if len(tests) == 1 else "compare"
    return (
        f"{enumerate_words(tests)} {verb} columns of different tables, so the tree is one over bags that hold both "
        f"sides{widest}.{listed} A change is joined with the rest of each bag on its way up, by the equalities (delta "
        "queries, Koch et al. 2014). Of a list that is sorted by what is compared, as the tree says, only the rows "
        "within the bounds are met, after O(log N) steps (Idris et al. 2020); of other lists each combination is met "
        f"and tested. Those that fail are neither stored nor passed on.{spell_cut(definition, found)}"
    )


def _suggest(definition: Definition, found: Decomposition) -> str | None:
    """An equality beside a comparison whose sides none connects; stored joins where a change meets a join of others."""
    offers = [_suggest_equality(definition), _suggest_difference(definition), STORE if found.update > 1 else None]
    return "; or ".join(offer for offer in offers if offer is not None) or None


def _suggest_equality(definition: Definition) -> str | None:
    edges = hypergraph(definition)
    groups = list(components(edges))
    for comparison in definition.comparisons:
        sides = [
            {rank for rank, names in enumerate(groups) if any(variable in edges[name] for name in names)}
            for variable in (comparison.left, comparison.right)
        ]
        if sides[0].isdisjoint(sides[1]):
            return (
                f"beside {spell_comparison(definition, comparison)}, join the tables on an equality too, for example "
                "of a bucket column: a change then meets the rows of its bucket instead of all"
            )
    return None


def _suggest_difference(definition: Definition) -> str | None:
    """Counts and sums of unequal rows as those of all rows without those of equal rows."""
    tests = definition.comparisons
    if definition.mode != "group" or len(tests) > 1 or tests[0].is_order or definition.distinct_sets:
        return None
    left, right = definition.label(tests[0].left), definition.label(tests[0].right)
    equal = f"{left} = {right}" if tests[0].rejects_nulls else f"{left} IS NOT DISTINCT FROM {right}"
    whole = f"all rows without NULL for {left} and {right}" if tests[0].rejects_nulls else "all rows"
    return (
        f"keep counts and sums over {whole}, and over those with {equal}, as two views, and subtract them when you read"
    )
