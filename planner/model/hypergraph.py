"""A definition's hypergraph: one edge per atom, the set of its variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sqlfront.planner.model.query import Comparison, Definition

Edges = Mapping[str, frozenset[str]]
"""Edge name (an atom's) to its variables; iteration order is the order in FROM."""


def hypergraph(definition: Definition) -> dict[str, frozenset[str]]:
    """The edges of `definition`.

    Raises ValueError when two atoms share a name, or a free variable occurs in no atom: the binder's fault.
    """
    edges = {atom.name: atom.scheme for atom in definition.atoms}
    if len(edges) != len(definition.atoms):
        raise ValueError("two atoms have the same name")
    unknown = set(definition.free) - vertices(edges)
    if unknown:
        raise ValueError(f"free variables that no atom has: {sorted(unknown)}")
    return edges


def comparison_edges(definition: Definition) -> dict[str, Comparison]:
    """The comparisons, by names that no atom has: edges that join what they compare, and bound nothing."""
    found: dict[str, Comparison] = {}
    taken = {atom.name for atom in definition.atoms}
    for comparison in definition.comparisons:
        name = f"{comparison.left} {comparison.operator} {comparison.right}"
        while name in taken:
            name += "'"
        taken.add(name)
        found[name] = comparison
    return found


def constrained(definition: Definition) -> dict[str, frozenset[str]]:
    """The edges of the atoms, then those of the comparisons: what must be joined to be compared."""
    compared = {name: comparison.scheme for name, comparison in comparison_edges(definition).items()}
    return hypergraph(definition) | compared


def vertices(edges: Edges) -> frozenset[str]:
    """All variables."""
    return frozenset().union(*edges.values())


def ordered_variables(definition: Definition) -> tuple[str, ...]:
    """All variables, the free ones first, then as the atoms list them."""
    columns = (column.name for atom in definition.atoms for column in atom.variables)
    return tuple(dict.fromkeys((*definition.free, *columns)))


def occurrences(edges: Edges) -> dict[str, frozenset[str]]:
    """For each variable the atoms that contain it: atoms(v) of the papers."""
    holders: dict[str, set[str]] = {}
    for name, edge in edges.items():
        for variable in edge:
            holders.setdefault(variable, set()).add(name)
    return {variable: frozenset(names) for variable, names in holders.items()}


def restrict(edges: Edges, kept: Iterable[str]) -> dict[str, frozenset[str]]:
    """Each edge cut down to the variables in `kept` (the induced hypergraph)."""
    wanted = frozenset(kept)
    return {name: edge & wanted for name, edge in edges.items()}


def components(edges: Edges, separator: frozenset[str] = frozenset()) -> Iterator[tuple[str, ...]]:
    """The groups of edges connected through variables outside `separator`, in order of their first edge.

    An edge inside the separator is a group of its own.
    """
    groups: list[tuple[set[str], set[str]]] = []
    for name, edge in edges.items():
        names, outside = {name}, set(edge - separator)
        apart = []
        for group in groups:
            if group[1].isdisjoint(outside):
                apart.append(group)
            else:
                names |= group[0]
                outside |= group[1]
        groups = [*apart, (names, outside)]
    ranked = {name: rank for rank, name in enumerate(edges)}
    found = [tuple(sorted(names, key=ranked.__getitem__)) for names, _ in groups]
    yield from sorted(found, key=lambda group: ranked[group[0]])


def neighbours(edges: Edges) -> dict[str, frozenset[str]]:
    """The Gaifman graph: for each variable those that share an edge with it.

    Sorted by name, so that searches over the graph find the same in every process.
    """
    adjacent: dict[str, set[str]] = {}
    for edge in edges.values():
        for variable in edge:
            adjacent.setdefault(variable, set()).update(edge - {variable})
    return {variable: frozenset(adjacent[variable]) for variable in sorted(adjacent)}
