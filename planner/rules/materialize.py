"""`strategy = 'materialize'`: every join that the change of a table has to be joined with is stored.

Higher-order incremental maintenance, as DBToaster does it (Koch et al. 2014). The change of a table in a join is that
of the join without it: one stored join for each part that its columns leave connected, looked up by these columns.
The changes of those joins are found in the same way. A stored join has the columns that are put out or joined
elsewhere. It costs what the intermediate results do, takes cyclic joins too, and reading is a scan of one table.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlfront.planner.model.cost import MATERIALIZED, Cost
from sqlfront.planner.model.hypergraph import Edges, components, hypergraph, ordered_variables
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

STRATEGY = "every join materialized"
MAX_JOINS = 256
"""A star of n tables around one has 2**n joins."""

Atoms = frozenset[str]


class TooManyJoins(ValueError):
    """More than MAX_JOINS joins would have to be stored."""


def materialize_joins(definition: Definition, automatic: Plan) -> Plan:
    """The plan with every intermediate join stored, instead of the `automatic` one of the rules.

    A query over one table has no joins to store: its plan stays, as one with optional or absent children does.
    O(joins * atoms * variables); raises TooManyJoins.
    """
    edges = hypergraph(definition)
    if len(edges) < 2 or definition.outer_atoms:
        return automatic
    places = {name: place for place, name in enumerate(edges)}
    stored = sorted(_stored(edges, definition), key=lambda atoms: (len(atoms), sorted(places[name] for name in atoms)))
    joins = tuple(_node(atoms, definition) for atoms in stored)
    result = joins[-1]
    return Plan(
        shape=automatic.shape,
        strategy=STRATEGY,
        root=Node((), (result,), connex=True) if definition.free else result,
        free=tuple(dict.fromkeys(definition.free)),
        variables_added=(),
        cost=MATERIALIZED,
        reason="Every intermediate join is stored, as strategy = 'materialize' asks: a change costs as much as it "
        "changes in all of them (higher-order maintenance, Koch et al. 2014), and reading scans the stored result.",
        witness=automatic.witness,
        suggestion=_suggest(automatic.cost),
        joins=joins,
    )


def shown_variables(atoms: Atoms, definition: Definition) -> frozenset[str]:
    """The variables of a join of these atoms that are put out, that other atoms have, or compared with theirs."""
    inside = frozenset[str]().union(*(atom.scheme for atom in definition.atoms if atom.name in atoms))
    outside = [atom.scheme for atom in definition.atoms if atom.name not in atoms]
    outside += [comparison.scheme for comparison in definition.comparisons if not comparison.scheme <= inside]
    return inside & frozenset(definition.free).union(*outside)


def rest(atoms: Atoms, atom: str, edges: Edges) -> Iterator[Atoms]:
    """What the change of an atom in a join of these atoms is joined with: the parts its variables leave connected."""
    others = {name: edge for name, edge in edges.items() if name in atoms and name != atom}
    return (frozenset(names) for names in components(others, edges[atom]))


def _suggest(automatic: Cost) -> str:
    return f"with strategy = 'auto' a change costs {automatic.update}, and the view takes {automatic.space} space"


def _stored(edges: Edges, definition: Definition) -> set[Atoms]:
    """The joins to store: the whole, and what a change in one is joined with; of single tables those that are summed
    on the way."""
    found: set[Atoms] = set()
    open_ = [frozenset(edges)]
    while open_:
        atoms = open_.pop()
        if atoms in found or (len(atoms) == 1 and shown_variables(atoms, definition) == edges[next(iter(atoms))]):
            continue
        found.add(atoms)
        if len(found) > MAX_JOINS:
            raise TooManyJoins(f"more than {MAX_JOINS} joins of {len(edges)} tables")
        open_ += [part for atom in atoms for part in rest(atoms, atom, edges)]
    return found


def _node(atoms: Atoms, definition: Definition) -> Node:
    wanted = shown_variables(atoms, definition)
    leaves = tuple(
        Node(tuple(column.name for column in atom.variables), atom=atom.name)
        for atom in definition.atoms
        if atom.name in atoms
    )
    variables = tuple(variable for variable in ordered_variables(definition) if variable in wanted)
    inside = frozenset[str]().union(*(leaf.variables for leaf in leaves))
    tested = tuple(comparison for comparison in definition.comparisons if comparison.scheme <= inside)
    return Node(variables, leaves, connex=len(leaves) == len(definition.atoms), comparisons=tested)
