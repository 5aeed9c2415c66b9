"""The GYO reduction (Graham; Yu and Ozsoyoglu), and the cycle it gets stuck on."""

from __future__ import annotations

from dataclasses import dataclass

from sqlfront.planner.model.hypergraph import Edges, occurrences, restrict


def is_acyclic(edges: Edges) -> bool:
    """Whether the hypergraph is alpha-acyclic, that is, has a join tree. O(|edges|^2 * |variables|)."""
    return not reduce_gyo(edges)


def reduce_gyo(edges: Edges) -> dict[str, frozenset[str]]:
    """What is left after deleting, for as long as possible, variables of one edge and edges inside another.

    Empty exactly when the hypergraph is acyclic; else the cyclic core. The rules are confluent.
    """
    left = dict(edges)
    while True:
        holders = occurrences(left)
        shared = [variable for variable, names in holders.items() if len(names) > 1]
        cut = restrict(left, shared)
        kept = _without_subsets(cut)
        if kept == left:
            return kept
        left = kept


def _without_subsets(edges: Edges) -> dict[str, frozenset[str]]:
    """The maximal non-empty edges, one of each."""
    names = list(edges)
    kept = {}
    for rank, name in enumerate(names):
        edge = edges[name]
        covered = any(edge < edges[other] for other in names) or any(edge == edges[other] for other in names[:rank])
        if edge and not covered:
            kept[name] = edge
    return kept


@dataclass(frozen=True)
class Cycle:
    """A minimal reason for a hypergraph to be cyclic.

    Either a ring (atom i holds variables i and i+1, and no others of the ring), or a clique of k > 3 variables:
    each k-1 of them meet in an atom, all k in none (Loomis-Whitney). The triangle counts as a ring.
    """

    variables: tuple[str, ...]
    atoms: tuple[str, ...]
    ring: bool


def find_cycle(edges: Edges) -> Cycle:
    """A minimal cycle of a cyclic hypergraph; ValueError when it is acyclic.

    Deleting variables while a cycle remains ends in one of these two forms (Beeri, Fagin, Maier and
    Yannakakis 1983: acyclic = chordal and conformal).
    """
    core = reduce_gyo(edges)
    if not core:
        raise ValueError("the hypergraph is acyclic")
    kept = [variable for name in core for variable in sorted(core[name])]
    kept = list(dict.fromkeys(kept))
    for variable in list(kept):
        fewer = [other for other in kept if other != variable]
        if not is_acyclic(restrict(core, fewer)):
            kept = fewer
    sides = _without_subsets(restrict(core, kept))
    if any(len(side) > 2 for side in sides.values()):
        return Cycle(tuple(kept), tuple(sides), ring=False)
    return _walk_ring(kept[0], sides)


def _walk_ring(start: str, sides: Edges) -> Cycle:
    """The ring's variables in walking order from `start`, and the atom between each and its successor."""
    variables, atoms = [start], []
    rest = dict(sides)
    while rest:
        here = variables[-1]
        atom = next(name for name, side in rest.items() if here in side)
        (after,) = rest.pop(atom) - {here}
        atoms.append(atom)
        variables.append(after)
    return Cycle(tuple(variables[:-1]), tuple(atoms), ring=True)
