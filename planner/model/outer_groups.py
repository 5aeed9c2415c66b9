"""The groups of a definition's optional and absent atoms: the joins that are there or missing as a whole."""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.model.query import Atom, Definition


def group_of(definition: Definition, head: Atom) -> tuple[Atom, ...]:
    """The atoms of a head's group: itself, those within it, and those within these."""
    names = {head.name}
    while True:
        found = tuple(atom for atom in definition.atoms if atom.name in names or atom.within in names)
        if len(found) == len(names):
            return found
        names |= {atom.name for atom in found}


def inside(definition: Definition, head: Atom) -> Definition:
    """The join of a head's group alone."""

    def of_join(atom: Atom) -> Atom:
        if atom is head:
            return replace(atom, presence="required", within=None)
        return replace(atom, within=None) if atom.within == head.name else atom

    atoms = tuple(map(of_join, group_of(definition, head)))
    inner = frozenset().union(*(atom.scheme for atom in atoms))
    free = tuple(name for name in definition.free if name in inner)
    return replace(definition, atoms=atoms, free=free, distinct_sets=())


def key_of(definition: Definition, head: Atom) -> frozenset[str]:
    """What a head's group shares with the atoms around it: by it, its rows are looked up."""
    own = frozenset().union(*(atom.scheme for atom in group_of(definition, head)))
    around = (
        atom.scheme
        for atom in definition.atoms
        if atom.name == head.within or (atom.presence == "required" and atom.within == head.within)
    )
    return own & frozenset().union(*around)
