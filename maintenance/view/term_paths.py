"""The paths of a view whose atoms all read one store: a term for each way in which they read it or its delta."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from sqlfront.maintenance.program.programs import Assembler

if TYPE_CHECKING:
    from sqlfront.maintenance.tree.symmetric_delta import Term
    from sqlfront.maintenance.view.maintained_view import MaintainedView


def add_terms(view: MaintainedView, assembler: Assembler) -> None:
    """Add the paths of a symmetric view; the atoms that read the delta find it, with indexes, in the delta copy."""
    assert view.delta_copy is not None
    for term in view.terms:
        if not term.others:
            view.add_path(assembler, view.tree.leaves[term.start], 0, term.times)
    with assembler.unless_alone([_joined_words(view, term) for term in view.terms if term.others]):
        assembler.path(view.number)
        assembler.upsert(view.delta_copy)
        assembler.path_end()
        for term in view.terms:
            if term.others:
                _add_mixed(view, assembler, term)
        assembler.clear(view.delta_copy)


def _add_mixed(view: MaintainedView, assembler: Assembler, term: Term) -> None:
    """The path of a term whose other atoms read the delta too, in the delta copy."""
    leaves = [view.tree.leaves[atom] for atom in term.others]
    stored = [leaf.table for leaf in leaves]
    for leaf in leaves:
        leaf.table = view.delta_copy
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
