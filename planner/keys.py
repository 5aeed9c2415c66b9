"""Declared keys as functional dependencies: which steps of a tree look up at most one row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.plan import Node
from planner.query import Atom, Definition

Key = tuple[str, frozenset[str]]
"""An atom's name and the variables of one of its declared keys."""


def closure(known: frozenset[str], atoms: Iterable[Atom]) -> tuple[frozenset[str], tuple[Key, ...]]:
    """What the values of `known` fix in the join of `atoms` by their declared keys, and the keys that fired."""
    grown, fired = known, list[Key]()
    waiting = [(atom, key) for atom in atoms for key in atom.keys]
    while True:
        usable = next(((atom, key) for atom, key in waiting if key <= grown and not atom.scheme <= grown), None)
        if usable is None:
            return grown, tuple(fired)
        atom, key = usable
        grown |= atom.scheme
        fired.append((atom.name, key))


def constant_keys(root: Node, definition: Definition) -> tuple[Key, ...] | None:
    """The keys under which every change passes every node of the tree in O(1), or None if it does not.

    A change of child c at node X costs one look-up when c determines X: directly (X is inside c), or because
    some sibling over X has, by the keys of the atoms below it, at most one row for the variables c and X share.
    """
    used: dict[Key, None] = {}
    for node in root.walk():
        for child in node.children:
            fired = step_keys(node, child, definition)
            if fired is None:
                return None
            used.update(dict.fromkeys(fired))
    return tuple(used)


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
