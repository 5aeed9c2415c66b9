"""Rule 1: q-hierarchical queries get a q-tree."""

from __future__ import annotations

from sqlfront.planner.model.cost import CONSTANT
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.search.join_tree import Weights, build_tree
from sqlfront.planner.theory.enumerable import enumerable_sets
from sqlfront.planner.theory.hierarchy import is_q_hierarchical
from sqlfront.planner.theory.wording import are, labels


def plan_q_hierarchical(definition: Definition, weights: Weights) -> Plan | None:
    """A simple tree: each child holds all variables of its parent, so a change climbs by look-ups alone.

    Berkholz, Keppeler and Schweikardt 2017, Theorem 3.2: such queries, and under OMv only such (for those without
    self-joins), have constant update time with constant delay.
    """
    edges = hypergraph(definition)
    for free in enumerable_sets(definition):
        if is_q_hierarchical(edges, free):
            root = build_tree(definition, free, "simple", weights)
            if root is None and definition.outer_atoms:
                continue
            if root is None:
                raise AssertionError("a q-hierarchical query has a q-tree")
            added = tuple(variable for variable in free if variable not in definition.free)
            return Plan(
                shape="q-hierarchical",
                strategy="q-tree",
                root=root,
                free=free,
                variables_added=added,
                cost=CONSTANT,
                reason=_explain(definition, added),
            )
    return None


def _explain(definition: Definition, added: tuple[str, ...]) -> str:
    if not added:
        return (
            "The query is q-hierarchical: every change touches a constant number of entries, "
            "and rows follow each other at constant delay (Berkholz et al. 2017, Theorem 3.2)."
        )
    return (
        f"The query is q-hierarchical once {labels(definition, added)} {are(added)} enumerated too, as SELECT without "
        "DISTINCT allows: every change touches a constant number of entries (Berkholz et al. 2017, Theorem 3.2)."
    )
