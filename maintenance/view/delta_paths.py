"""The update paths of a view: a path for each atom, or, where the view looks the same from each, terms of one store."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.tree.symmetric_delta import symmetric_terms

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import LeafStore
    from sqlfront.maintenance.tree.symmetric_delta import Term
    from sqlfront.maintenance.tree.view_tree import Tree, View
    from sqlfront.maintenance.view.maintained_view import MaintainedView
    from sqlfront.storage.stores.table import Table


class DeltaPaths(Protocol):
    """How a change of a view's relations becomes paths through its tree."""

    def alike(self, tree: Tree) -> tuple[str, ...]:
        """The atoms whose changes take the same paths; none where each has paths of its own."""
        ...

    def occurrence(self, before: int) -> int:
        """The number of an atom among those that read the same; `before` is that of the one before, -1 at first."""
        ...

    def entries(self, tree: Tree) -> Sequence[View]:
        """The leaves whose paths a changed row takes."""
        ...

    def bind(self, view: MaintainedView) -> None:
        """Fit to the stores' present tables."""
        ...

    def add(self, view: MaintainedView, assembler: Assembler, store: LeafStore, position: int) -> None:
        """Add the paths of the atoms that read `store` at this position."""
        ...


def delta_paths(tree: Tree) -> DeltaPaths:
    """The update paths of a tree."""
    terms = symmetric_terms(tree)
    return AtomPaths() if terms is None else TermPaths(terms)


class AtomPaths:
    """A path for each leaf; a self-join telescopes over its atoms."""

    def alike(self, tree: Tree) -> tuple[str, ...]:
        return ()

    def occurrence(self, before: int) -> int:
        return before + 1

    def entries(self, tree: Tree) -> Sequence[View]:
        return tree.entries()

    def bind(self, view: MaintainedView) -> None:
        """Leaves have their stores' tables."""

    def add(self, view: MaintainedView, assembler: Assembler, store: LeafStore, position: int) -> None:
        for leaf in view.tree.entries():
            source = view.sources[leaf.node.atom or leaf.node.filters or ""]
            if source.store is store and position == (source.position if leaf.node.filters is None else 1):
                view.add_path(assembler, leaf, position, 1)


class TermPaths:
    """A path for each term of a symmetric delta. All atoms read one store; those that read the delta find it, with
    indexes, in the delta copy."""

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self._terms = terms
        self._copy: Table | None = None

    def alike(self, tree: Tree) -> tuple[str, ...]:
        return tuple(tree.leaves)

    def occurrence(self, before: int) -> int:
        return 0

    def entries(self, tree: Tree) -> Sequence[View]:
        return tree.entries()[:1]

    def bind(self, view: MaintainedView) -> None:
        source = next(iter(view.sources.values()))
        self._copy = source.relation.delta_copy(source.store)

    def add(self, view: MaintainedView, assembler: Assembler, store: LeafStore, position: int) -> None:
        if position != 0:
            return
        assert self._copy is not None
        for term in self._terms:
            if not term.others:
                view.add_path(assembler, view.tree.leaves[term.start], 0, term.times)
        with assembler.unless_alone([_joined_words(view, term) for term in self._terms if term.others]):
            assembler.path(view.number)
            assembler.upsert(self._copy)
            assembler.path_end()
            for term in self._terms:
                if term.others:
                    _add_mixed(view, assembler, term, self._copy)
            assembler.clear(self._copy)


def _add_mixed(view: MaintainedView, assembler: Assembler, term: Term, copy: Table) -> None:
    """The path of a term whose other atoms read the delta too, in its copy."""
    leaves = [view.tree.leaves[atom] for atom in term.others]
    stored = [leaf.table for leaf in leaves]
    for leaf in leaves:
        leaf.table = copy
    view.add_path(assembler, view.tree.leaves[term.start], 0, term.times, alone=False)
    for leaf, table in zip(leaves, stored, strict=True):
        leaf.table = table


def _joined_words(view: MaintainedView, term: Term) -> list[tuple[int, int]]:
    """The places of the words of a row of the store that are equal if it joins itself, read by all the term's atoms
    that read the delta."""
    shapes = []
    for atom in (term.start, *term.others):
        shape = view.tree.leaves[atom].shape
        assert shape is not None
        shapes.append(shape)
    pairs = set()
    for one, other in combinations(shapes, 2):
        shared = [variable for variable in one.variables if variable in other.variables]
        pairs |= set(zip(one.places(shared), other.places(shared), strict=True))
    return sorted((a, b) for a, b in pairs if a != b)
