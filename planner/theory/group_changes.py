"""Which changes of one row move many groups of a query, more than its view tree touches."""

from __future__ import annotations

from sqlfront.planner.model.hypergraph import hypergraph
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.gyo import is_acyclic
from sqlfront.planner.theory.hierarchy import is_q_hierarchical
from sqlfront.planner.theory.keys import closure, reduct


def spreading_atom(definition: Definition) -> str | None:
    """The first atom whose row may change more groups than the update visits; None if there is none.

    A row changes one group if its atom fixes all group columns, by declared keys too. A q-hierarchical query is updated
    in O(1), however many groups a row changes. Other acyclic queries cost O(N) an update. There are at most N groups if
    one atom has all group columns.
    """
    free = frozenset(definition.free)
    fixed = {atom.name: closure(atom.scheme, definition.atoms)[0] for atom in definition.atoms}
    spreading = [atom.name for atom in definition.changing_atoms if not free <= fixed[atom.name]]
    if not spreading or definition.comparisons:
        return next(iter(spreading), None)
    reduced = reduct(definition)
    edges = hypergraph(reduced)
    is_linear = is_acyclic(edges) and not is_q_hierarchical(edges, reduced.free)
    bounded = any(free <= variables for variables in fixed.values())
    return None if is_linear and bounded else spreading[0]
