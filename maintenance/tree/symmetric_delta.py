"""Self-joins that look the same from each of their atoms, such as the count of a graph's triangles.

Where every atom reads one store and rotations of the query (its automorphisms that keep the output) carry each
atom to each other, the change of the join of n copies is, from (old + delta)^n - old^n, a sum over the sets of atoms
that read the delta; sets that a rotation carries into each other contribute the same, so one of each kind is
computed and counted as often as there are. The store is needed once and one path alone meets it with lists of any
length: the others start from two or more rows of the delta itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations

from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.planner.model.query import Atom, Definition, Measure

MAX_ATOMS = 4


@dataclass(frozen=True)
class Term:
    """Of the atoms that read the delta, the one a path starts from and the others; how many such sets there are."""

    start: str
    others: tuple[str, ...]
    times: int


def symmetric_terms(tree: Tree) -> tuple[Term, ...] | None:
    """The terms of a view's change, or None where atom by atom is as good, or where part trees take it so. O(atoms! *
    variables), at most 4 atoms."""
    definition = tree.definition
    if tree.is_shared:
        return None
    if not 3 <= len(definition.atoms) <= MAX_ATOMS or len({reading(atom) for atom in definition.atoms}) > 1:
        return None
    if definition.comparisons or definition.outer_atoms:
        return None
    parents = {id(leaf.parent): leaf.parent for leaf in tree.leaves.values()}
    bag = next(iter(parents.values()))
    if (
        len(parents) > 1
        or bag is None
        or not bag.node.is_bag
        or len(tree.stored_inner()) > 1
        or tree.output is not None
    ):
        return None
    rotations = list(_automorphisms(definition))
    names = [atom.name for atom in definition.atoms]
    if {rotation[names[0]] for rotation in rotations} != set(names):
        return None
    return tuple(_terms(names, rotations))


def reading(atom: Atom) -> tuple[object, ...]:
    """What a store must have to serve an atom: two atoms with the same can read the same."""
    expressions = {column.name: column.expression for column in atom.variables}
    return (
        atom.table,
        tuple(sorted((column.expression, column.type) for column in atom.variables)),
        tuple(sorted((column.expression, column.type) for column in atom.factors)),
        atom.predicate,
        atom.copies,
        tuple(sorted(expressions[variable] for variable in atom.required)),
    )


def _automorphisms(definition: Definition) -> Iterator[dict[str, str]]:
    """The permutations of the atoms that keep the joins, each output variable and each measure."""
    atoms = {atom.name: atom for atom in definition.atoms}
    for image in permutations(atoms):
        carried = dict(zip(atoms, image, strict=True))
        if _keeps_joins(atoms, carried, definition.free) and all(
            _summed(measure, atoms, carried) == _summed(measure, atoms, {}) for measure in definition.measures
        ):
            yield carried


def _keeps_joins(atoms: Mapping[str, Atom], carried: Mapping[str, str], free: Iterable[str]) -> bool:
    """Whether the columns of each atom are joined as those of the atom it is carried to; output variables stay."""
    found: dict[str, str] = {}
    for name, atom in atoms.items():
        images = {column.expression: column.name for column in atoms[carried[name]].variables}
        for column in atom.variables:
            if found.setdefault(column.name, images[column.expression]) != images[column.expression]:
                return False
    return len(set(found.values())) == len(found) and all(found[variable] == variable for variable in free)


def _summed(measure: Measure, atoms: Mapping[str, Atom], carried: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The factors of a measure by what they compute, each at the atom it is carried to."""
    expressions = {(atom.name, factor.name): factor.expression for atom in atoms.values() for factor in atom.factors}
    return frozenset((carried.get(atom, atom), expressions[atom, factor]) for atom, factor in measure.factors)


def _terms(names: list[str], rotations: list[dict[str, str]]) -> Iterator[Term]:
    seen: set[frozenset[str]] = set()
    for size in range(1, len(names) + 1):
        for chosen in combinations(names, size):
            orbit = {frozenset(rotation[name] for name in chosen) for rotation in rotations}
            if frozenset(chosen) not in seen:
                seen |= orbit
                yield Term(chosen[0], chosen[1:], len(orbit))
