"""Query minimisation: the homomorphic core of a view that ignores multiplicity.

A homomorphism sends each atom to an atom of the same table and each variable to a term: a variable, or a column that
the query does not name. It fixes the free variables. An atom may go where its filter is implied, conjunct by conjunct
(the same text, or an equality that follows from others), and where the columns that must not be NULL are not.
When a query maps into some of its atoms the others are redundant, since every answer over those is one over all
(Chandra and Merlin 1977; Berkholz et al. 2017, section 3). What is left in the end is unique up to renaming.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlfront.planner.model.hypergraph import occurrences
from sqlfront.planner.model.multiplicity import ignores_multiplicity
from sqlfront.planner.model.query import Atom, Condition, Definition
from sqlfront.planner.theory.wording import enumerate_words

BUDGET = 10_000
"""Trials of one atom against another; a view definition that people write takes some tens."""

Node = tuple[str, str]
"""A variable as ("", name), or what an atom's row holds as (atom, expression)."""


def minimise(definition: Definition, budget: int = BUDGET) -> Definition:
    """The definition without the atoms that fold onto others, and `notes` that say which do.

    Unchanged when multiplicity counts (bags, aggregates), with outer atoms, or when nothing folds; unchanged but for a
    note when the search, which is NP-hard in the number of atoms, takes more than `budget` trials. Later atoms go
    first. A variable that only a folded atom shared leaves its atom too, whose filter then demands that the column is
    not NULL.
    """
    distinct_sets = tuple(replace(one, definition=minimise(one.definition, budget)) for one in definition.distinct_sets)
    if distinct_sets != definition.distinct_sets:
        definition = replace(definition, distinct_sets=distinct_sets)
    repeated = len({atom.table for atom in definition.atoms}) < len(definition.atoms)
    if not ignores_multiplicity(definition) or not repeated or definition.outer_atoms:
        return definition
    try:
        onto = _Search(definition, budget).core()
    except _OutOfBudget:
        note = f"{enumerate_words(_repeated(definition))} may be redundant, but deciding it takes more than "
        return replace(definition, notes=(*definition.notes, f"{note}{budget} trials: the query is kept as written"))
    kept = tuple(atom for atom in definition.atoms if atom.name not in onto)
    if len(kept) == len(definition.atoms):
        return definition
    notes = tuple(f"{name} folds onto {target}: {_ignoring(definition)} multiplicity" for name, target in onto.items())
    atoms = _without_lone_variables(kept, _fixed(definition))
    named = frozenset().union(*(atom.scheme for atom in atoms))
    labels = tuple((name, label) for name, label in definition.labels if name in named)
    return replace(definition, atoms=atoms, labels=labels, notes=definition.notes + notes)


def _ignoring(definition: Definition) -> str:
    if definition.mode == "set":
        return "DISTINCT ignores"
    if definition.boolean:
        return "EXISTS ignores"
    return "the aggregates ignore" if definition.distinct_sets else "GROUP BY without aggregates ignores"


class _OutOfBudget(Exception):
    """The search has used all its trials."""


class _Target:
    """The atoms that a homomorphism may use, with what is equal and what is never NULL in each of their answers."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.atoms = {atom.name: atom for atom in atoms}
        self._parent: dict[Node, Node] = {}
        known: list[Node] = []
        for atom in atoms:
            for column in atom.variables:
                self._unite((atom.name, column.expression), ("", column.name))
                known += [("", column.name)] if column.not_null or column.name in atom.required else []
            for left, right in filter(None, map(_equality, atom.conditions)):
                self._unite((atom.name, left), (atom.name, right))
                known.append((atom.name, left))
        self._never_null = {self.term(node) for node in known}

    def term(self, node: Node) -> Node:
        """What stands for all that equals `node`."""
        while (above := self._parent.get(node, node)) != node:
            node = above
        return node

    def rests(self, atom: Atom, image: dict[str, Node]) -> bool:
        """Whether `atom` may stay where it is: it is there, and none of its variables went elsewhere."""
        own = ((column.name, self.term(("", column.name))) for column in atom.variables)
        return atom.name in self.atoms and all(image.get(name, term) == term for name, term in own)

    def extend(self, image: dict[str, Node], atom: Atom, onto: Atom) -> dict[str, Node] | None:
        """`image` and what sending `atom` to `onto` adds to it; None if it may not go there."""
        if atom.table != onto.table or not all(self._implies(onto, condition) for condition in atom.conditions):
            return None
        grown = dict(image)
        for column in atom.variables:
            term = self.term((onto.name, column.expression))
            needed = column.name in atom.required and not column.not_null
            if grown.setdefault(column.name, term) != term or (needed and term not in self._never_null):
                return None
        return grown

    def _implies(self, atom: Atom, condition: Condition) -> bool:
        sides = _equality(condition)
        if sides is not None:
            term = self.term((atom.name, sides[0]))
            return term in self._never_null and term == self.term((atom.name, sides[1]))
        return condition.text in {other.text for other in atom.conditions}

    def _unite(self, one: Node, other: Node) -> None:
        self._parent[self.term(one)] = self.term(other)


class _Search:
    """Folds away one atom after another, each by a backtracking search for a homomorphism."""

    def __init__(self, definition: Definition, budget: int) -> None:
        self._definition, self._left = definition, budget

    def core(self) -> dict[str, str]:
        """Each redundant atom with the atom of the core that it goes to. Raises _OutOfBudget.

        One pass is enough: what cannot go while there is more to go to cannot go later.
        """
        kept, onto = self._definition.atoms, dict[str, str]()
        for atom in reversed(self._definition.atoms):
            found = self._fold(atom, kept)
            if found is not None:
                kept = tuple(other for other in kept if other is not atom)
                onto = {name: found[target] for name, target in onto.items()} | {atom.name: found[atom.name]}
        return {atom.name: onto[atom.name] for atom in self._definition.atoms if atom.name in onto}

    def _fold(self, removed: Atom, atoms: Sequence[Atom]) -> dict[str, str] | None:
        """Where each of `atoms` goes when none goes to `removed`; None if there is no such homomorphism."""
        target = _Target([atom for atom in atoms if atom is not removed])
        image = {name: target.term(("", name)) for name in _fixed(self._definition)}
        moved = self._extend(target, [removed, *target.atoms.values()], image, {})
        return None if moved is None else {atom.name: moved.get(atom.name, atom.name) for atom in atoms}

    def _extend(
        self, target: _Target, waiting: Sequence[Atom], image: dict[str, Node], moved: dict[str, str]
    ) -> dict[str, str] | None:
        """Send an atom that cannot stay somewhere else; when all can stay where they are, that is a homomorphism."""
        atom = next((atom for atom in waiting if not target.rests(atom, image)), None)
        if atom is None:
            return moved
        rest = [other for other in waiting if other is not atom]
        for onto in target.atoms.values():
            self._left -= 1
            if self._left < 0:
                raise _OutOfBudget
            grown = target.extend(image, atom, onto)
            if grown is not None:
                found = self._extend(target, rest, grown, moved | {atom.name: onto.name})
                if found is not None:
                    return found
        return None


def _fixed(definition: Definition) -> frozenset[str]:
    """The variables that a homomorphism leaves where they are: the free ones, and those that are compared or ordered
    by."""
    compared = (comparison.scheme for comparison in definition.comparisons)
    return frozenset(definition.free).union(*compared, *(order.variables for order in definition.orders))


def _equality(condition: Condition) -> tuple[str, str] | None:
    """The two expressions that it equates; x = x says only that x is not NULL."""
    sides = condition.equates
    return sides if sides is not None and sides[0] != sides[1] else None


def _repeated(definition: Definition) -> list[str]:
    tables = [atom.table for atom in definition.atoms]
    return [atom.name for atom in definition.atoms if tables.count(atom.table) > 1]


def _without_lone_variables(atoms: Sequence[Atom], free: frozenset[str]) -> tuple[Atom, ...]:
    """The atoms without bound variables that no other atom has; those that joined must still not be NULL."""
    holders = occurrences({atom.name: atom.scheme for atom in atoms})
    return tuple(
        _restrict(atom, frozenset(v for v in atom.scheme if v in free or len(holders[v]) > 1)) for atom in atoms
    )


def _restrict(atom: Atom, kept: frozenset[str]) -> Atom:
    dropped = [column for column in atom.variables if column.name not in kept]
    implied = {side for condition in atom.conditions for side in condition.equates or ()}
    tested = [
        Condition(f"({column.expression} IS NOT NULL)")
        for column in dropped
        if column.name in atom.required and not column.not_null and column.expression not in implied
    ]
    return replace(
        atom,
        variables=tuple(column for column in atom.variables if column.name in kept),
        required=atom.required & kept,
        conditions=(*atom.conditions, *tested),
        keys=tuple(key for key in atom.keys if key <= kept),
        references=tuple(r for r in atom.references if all(name in kept for name, _ in r.columns)),
    )
