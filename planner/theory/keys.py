"""Declared keys as functional dependencies: which steps of a tree look up at most one row, or none.

A foreign key says more: its table's rows refer to rows that come before them and go after them. So a change of a row
that is referred to meets none of those that could refer to it, and its delta ends where they are joined; what one
epoch changes of both is paid for by the referring rows (Wang and Yi 2020, acyclic foreign-key joins).

Constant rows say most: no change comes from them, and a step that lists them alone meets as many as the query has, a
number that does not grow with the tables. To the cost of a change they are one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Atom, Definition

Key = tuple[str, frozenset[str]]
"""An atom's name and the variables of one of its declared keys."""

Dependency = tuple[str, str]
"""The names of an atom and of the atom that it refers to."""

Guarantees = tuple[tuple[Key, ...], tuple[Dependency, ...]]
"""The keys that make steps look up one row, and the references at which changes end."""


def closure(known: frozenset[str], atoms: Iterable[Atom]) -> tuple[frozenset[str], tuple[Key, ...]]:
    """What the values of `known` fix in the join of `atoms` by their declared keys, and the keys that fired. Constant
    rows are fixed by nothing, up to their number."""
    grown, fired = known, list[Key]()
    waiting = [(atom, key) for atom in atoms for key in ((frozenset[str](),) if atom.is_constant else atom.keys)]
    while True:
        usable = next(((atom, key) for atom, key in waiting if key <= grown and not atom.scheme <= grown), None)
        if usable is None:
            return grown, tuple(fired)
        atom, key = usable
        grown |= atom.scheme
        fired.append((atom.name, key))


def changes_one_tuple(definition: Definition, variables: Iterable[str]) -> bool:
    """Whether the keys fix these variables for any row that may change: then it changes one tuple of them."""
    wanted = frozenset(variables)
    return all(wanted <= closure(atom.scheme, definition.atoms)[0] for atom in definition.changing_atoms)


def reduct(definition: Definition) -> Definition:
    """The query in which every atom and the output hold what the declared keys fix (Olteanu, Huang and Koch 2009).

    A variable that others fix does not break a class: the reduct's class is the query's under its keys.
    """

    def grown(variables: Iterable[str]) -> frozenset[str]:
        return closure(frozenset(variables), definition.atoms)[0]

    columns = {column.name: column for atom in definition.atoms for column in atom.variables}
    atoms = tuple(
        replace(atom, variables=(*atom.variables, *(columns[v] for v in sorted(grown(atom.scheme) - atom.scheme))))
        for atom in definition.atoms
    )
    free = (*definition.free, *sorted(grown(definition.free) - frozenset(definition.free)))
    return replace(definition, atoms=atoms, free=free)


def refers(atom: Atom, other: Atom) -> bool:
    """Whether a foreign key of `atom` is joined with just the columns of `other` that it refers to."""
    columns = {column.source: column.name for column in other.variables}
    return any(
        reference.table == other.table and all(columns.get(column) == name for name, column in reference.columns)
        for reference in atom.references
    )


def constant_keys(root: Node, definition: Definition) -> Guarantees | None:
    """The keys and foreign keys under which every change passes the whole tree in O(1), or None if it does not.

    A change of child c at node X costs one look-up when c determines X: directly (X is inside c), or because
    some sibling over X has, by the keys of the atoms below it, at most one row for the variables c and X share.
    It costs one look-up, and ends, where an atom that refers to the changed one is joined; foreign keys are named only
    where keys are not enough.
    """
    by_keys = _guarantees(root, definition, referring=False)
    return by_keys if by_keys is not None else _guarantees(root, definition, referring=True)


def _guarantees(root: Node, definition: Definition, *, referring: bool) -> Guarantees | None:
    keys: dict[Key, None] = {}
    ends: dict[Dependency, None] = {}

    def changing(name: str) -> frozenset[str]:
        return frozenset[str]() if definition.atom(name).is_constant else frozenset({name})

    def climb(node: Node) -> frozenset[str] | None:
        """The atoms below `node` whose changes leave it upwards; None when some step meets many rows."""
        if node.atom is not None:
            return changing(node.atom)
        leaving = frozenset[str]()
        for child in node.children:
            below = climb(child)
            if below is None:
                return None
            stopped = ending(child, node, below, definition) if referring else []
            ends.update(dict.fromkeys(stopped))
            going = below - {name for _, name in stopped}
            fired = step_keys(node, child, definition) if going else ()
            if fired is None:
                return None
            keys.update(dict.fromkeys(fired))
            leaving |= going
        return leaving

    return None if climb(root) is None else (tuple(keys), tuple(ends))


def step_keys(node: Node, child: Node, definition: Definition) -> tuple[Key, ...] | None:
    """The keys by which a row of `child` meets at most one row of `node`; None when it may meet many."""
    label = frozenset(node.variables)
    known = label & frozenset(child.variables)
    guards = [
        [definition.atom(leaf.atom) for leaf in sibling.leaves() if leaf.atom is not None]
        for sibling in node.children
        if label <= frozenset(sibling.variables)
    ]
    return fixing_keys(known, label, guards)


def fanning_atoms(root: Node, definition: Definition) -> list[Atom]:
    """The atoms of which a changed row may meet many rows at a step of the tree."""
    found: dict[str, None] = {}
    steps = ((node, child) for node in root.walk() for child in node.children)
    for node, child in steps:
        if step_keys(node, child, definition) is None:
            below = frozenset(leaf.atom for leaf in child.leaves() if leaf.atom is not None)
            found |= dict.fromkeys(sorted(below - {name for _, name in ending(child, node, below, definition)}))
    return [atom for atom in map(definition.atom, found) if not atom.is_constant]


def ending(child: Node, node: Node, below: frozenset[str], definition: Definition) -> list[Dependency]:
    """Of the atoms `below` child, those whose changes end at `node`, each with the atom that refers to it."""
    label = frozenset(node.variables)
    scope = label & frozenset(child.variables)
    siblings = [
        (label & frozenset(sibling.variables), [definition.atom(leaf.atom) for leaf in sibling.leaves() if leaf.atom])
        for sibling in node.children
        if sibling is not child
    ]
    return ended(scope, siblings, [definition.atom(name) for name in sorted(below)])


def ended(
    scope: frozenset[str], siblings: Sequence[tuple[frozenset[str], Sequence[Atom]]], changed: Iterable[Atom]
) -> list[Dependency]:
    """Of the atoms `changed`, those that a sibling met before any fan-out refers to.

    A sibling is what it shares with the node, and its atoms. Those inside `scope` are looked up first, each one row;
    then the one that shares most with `scope` is listed: by then a change must have ended.
    """
    first = [atom for link, atoms in siblings if link <= scope for atom in atoms]
    listed = [(link, atoms) for link, atoms in siblings if not link <= scope]
    if listed:
        first += max(listed, key=lambda sibling: len(sibling[0] & scope))[1]
    found = ((next((atom for atom in first if refers(atom, other)), None), other) for other in changed)
    return [(atom.name, other.name) for atom, other in found if atom is not None]


def fixing_keys(
    known: frozenset[str], label: frozenset[str], guards: Sequence[Sequence[Atom]]
) -> tuple[Key, ...] | None:
    """The keys by which `known` fixes `label` inside one of the guards (each given by the atoms below it)."""
    if label <= known:
        return ()
    for atoms in guards:
        fixed, fired = closure(known, atoms)
        if label <= fixed:
            return fired
    return None
