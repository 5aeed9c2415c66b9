"""Rule 2: free-connex acyclic queries get a generalized join tree."""

from __future__ import annotations

from sqlfront.planner.model.cost import AMORTISED, CONSTANT, LINEAR
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.advice import suggest_constant
from sqlfront.planner.search.join_tree import Weights, cheapest_tree
from sqlfront.planner.theory.connex import is_free_connex
from sqlfront.planner.theory.enumerable import enumerable_sets
from sqlfront.planner.theory.gyo import is_acyclic
from sqlfront.planner.theory.hierarchy import find_violation
from sqlfront.planner.theory.keys import Guarantees
from sqlfront.planner.theory.wording import are, labels, spell_guarantees, spell_violation


def plan_free_connex(definition: Definition, weights: Weights) -> Plan | None:
    """A tree whose top part holds the free variables: linear space, constant delay (Idris et al. 2017).

    An update may scan the rows that share one key. With declared keys that make each such scan one row, the tree
    is chosen for them and updates are O(1); the shape's name stays, since the keys are what lowers the cost.
    """
    edges = hypergraph(definition)
    if not is_acyclic(edges):
        return None
    choices = [free for free in enumerable_sets(definition) if is_free_connex(edges, free)]
    trees = [(free, cheapest_tree(definition, free, weights)) for free in choices]
    found = [(free, *tree) for free, tree in trees if tree is not None]
    if not found:
        return None
    return _assemble(definition, *next((option for option in found if option[2] is not None), found[0]))


def _assemble(definition: Definition, free: tuple[str, ...], root: Node, keys: Guarantees | None) -> Plan:
    violation = find_violation(hypergraph(definition), free)
    if violation is None:
        raise AssertionError("q-hierarchical queries are planned before")
    added = tuple(variable for variable in free if variable not in definition.free)
    return Plan(
        shape="free-connex",
        strategy="dynamic Yannakakis",
        root=root,
        free=free,
        variables_added=added,
        cost=LINEAR if keys is None else AMORTISED if keys[1] else CONSTANT,
        reason=_explain(definition, added, keys),
        witness=spell_violation(definition, violation),
        suggestion=suggest_constant(definition, root) if keys is None else None,
    )


def _explain(definition: Definition, added: tuple[str, ...], keys: Guarantees | None) -> str:
    opening = "The query is free-connex acyclic"
    if added:
        opening += f" once {labels(definition, added)} {are(added)} enumerated too, as SELECT without DISTINCT allows"
    opening += ", so rows follow at constant delay (Idris et al. 2017)"
    if keys is not None:
        return f"{opening}; {spell_guarantees(definition, keys)}."
    return (
        f"{opening}, but not q-hierarchical: a change may touch all rows in the worst case, "
        "the fan-out of one key in practice (Berkholz et al. 2017)."
    )
