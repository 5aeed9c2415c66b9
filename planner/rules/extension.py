"""Rule 3: acyclic queries that are not free-connex get the tree of their extension, and a maintained projection."""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.model.bound import CONSTANT_BOUND
from sqlfront.planner.model.cost import PROJECTED, PROJECTED_AMORTISED, PROJECTED_CONSTANT
from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.plan import Plan, RowsIn
from sqlfront.planner.model.query import Definition
from sqlfront.planner.passes.advice import suggest_columns
from sqlfront.planner.search.join_tree import Weights, cheapest_tree
from sqlfront.planner.theory.connex import find_free_path, free_connex_extension
from sqlfront.planner.theory.gyo import is_acyclic
from sqlfront.planner.theory.keys import changes_one_tuple
from sqlfront.planner.theory.wording import labels, spell_constants, spell_free_path


def plan_extension(definition: Definition, weights: Weights) -> Plan | None:
    """The tree of the least free-connex extension, projected onto the query's own free variables.

    Idris et al. 2017, section 5.1. Bags never come here: the rule before enumerates all their variables.
    """
    edges = hypergraph(definition)
    if not is_acyclic(edges) or any(atom.within is not None for atom in definition.atoms):
        return None
    own = tuple(dict.fromkeys(definition.free))
    path = find_free_path(edges, own)
    if path is None and definition.outer_atoms:
        return None
    if path is None:
        raise AssertionError("free-connex queries are planned before")
    added = free_connex_extension(edges, own)
    free = own + added
    tree = cheapest_tree(definition, free, weights)
    if tree is None and definition.outer_atoms:
        return None
    if tree is None:
        raise AssertionError("an acyclic query has a tree for its free-connex extension")
    root, keys = tree
    cost = PROJECTED if keys is None else PROJECTED_AMORTISED if keys[1] else PROJECTED_CONSTANT
    if keys is not None and changes_one_tuple(definition, free):
        cost = replace(cost, update=replace(CONSTANT_BOUND, amortised=cost.update.amortised))
    return Plan(
        shape="acyclic",
        strategy="dynamic Yannakakis with a maintained projection",
        root=root,
        free=free,
        variables_added=added,
        cost=cost,
        reason=(
            f"The query is acyclic but not free-connex, so its result is kept as a projection of the query that "
            f"also puts out {labels(definition, added)}: a change costs as much as it changes there "
            f"(Idris et al. 2017, section 5.1){_spell_constants(definition)}."
        ),
        witness=spell_free_path(definition, path),
        suggestion=f"{suggest_columns(definition, added)}: the result is then enumerated, not stored",
        rows_in=RowsIn.PROJECTION,
    )


def _spell_constants(definition: Definition) -> str:
    clause = spell_constants(definition)
    return f"; {clause}" if clause else ""
