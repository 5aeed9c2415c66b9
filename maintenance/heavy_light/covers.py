"""Covers: the sum over a triangle, kept without a tree of its own.

A change R(a, b) needs the sum over c of S(b, c) * T(c, a). Where a value is light, its list is short; for two heavy
ones the lists are cut up into parts, of which one pair is kept joined. Which pairs these are is plan data
(planner/model/heavy_light.py). At most O(N^max(eps, 1-eps)) a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlfront.maintenance.heavy_light.part_trees import PartTrees
from sqlfront.maintenance.program.programs import Assembler, Join
from sqlfront.maintenance.program.shapes import Shape, parts_of, shape_of
from sqlfront.maintenance.relation.base_relation import LeafStore
from sqlfront.maintenance.tree.paths import Delta, side_of
from sqlfront.maintenance.tree.view_tree import View
from sqlfront.planner.model.heavy_light import Cover, PartKey
from sqlfront.storage.stores.table import Table


@dataclass(frozen=True)
class Operand:
    """A table to join a delta with: its layout, the atoms whose factors it sums, the variables of its indexes."""

    table: Table
    shape: Shape
    atoms: frozenset[str]
    indexes: Sequence[tuple[str, ...]] = ()


def add_part_paths(
    part_trees: PartTrees, assembler: Assembler, leaf: View, store: LeafStore, position: int, limbs: int, times: int
) -> None:
    """The paths of a leaf's delta, counted `times` times in the sum, in a union of trees. The sum of what has been
    before joins the parts before they change."""
    i = [edge.atom for edge in part_trees.union.edges].index(leaf.node.atom or "")
    part_trees.add_status(assembler, part_trees.partition_of(store), _status_of_partners(part_trees, i))
    if position == 0:
        _add_sum_paths(part_trees, assembler, i, limbs, times)
    part_trees.add_paths(assembler, store, position, limbs)
    if position == 1:
        _add_sum_paths(part_trees, assembler, i, limbs, times)


def _status_of_partners(part_trees: PartTrees, i: int) -> list[tuple[Table, tuple[int, ...]]]:
    """What covers test a row of edge i's delta for: its second value in the next atom, its first in the one before."""
    if not part_trees.union.covers:
        return []
    edges, shape = part_trees.union.edges, part_trees.base.leaves[part_trees.union.edges[i].atom].shape
    assert shape is not None
    after, before = edges[(i + 1) % 3], edges[(i + 2) % 3]
    return [
        (part_trees.column(after, (after.first,)).heavy, shape.places([edges[i].second])),
        (part_trees.column(before, (before.second,)).heavy, shape.places([edges[i].first])),
    ]


def _add_sum_paths(part_trees: PartTrees, assembler: Assembler, i: int, limbs: int, times: int) -> None:
    """Add what a delta of edge i, counted `times` times, changes in the sum; its status is known.

    Covers of two heavy values are passed over where a delta has none.
    """
    for cover in (one for one in part_trees.union.covers if not one.both):
        _Path(part_trees, assembler, i, limbs, times).add(cover)
    with assembler.unless_light():
        for cover in (one for one in part_trees.union.covers if one.both):
            _Path(part_trees, assembler, i, limbs, times).add(cover)


class _Path:
    """The path of one cover for a delta of one edge."""

    def __init__(self, part_trees: PartTrees, assembler: Assembler, i: int, limbs: int, times: int) -> None:
        self.part_trees, self.assembler, self.limbs, self.times = part_trees, assembler, limbs, times
        self.tree, edges = part_trees.base, part_trees.union.edges
        self.here, self.after, self.before = edges[i], edges[(i + 1) % 3], edges[(i + 2) % 3]

    def add(self, cover: Cover) -> None:
        leaf = self.tree.leaves[self.here.atom]
        assert leaf.shape is not None
        first = len(self.part_trees.partition(self.here.atom).columns)
        self.assembler.path(self.part_trees.number)
        self.assembler.route({first: True, first + 1: True}, cover.both)
        delta = Delta(leaf.shape, frozenset({self.here.atom}))
        if not cover.listed:
            self._add_up(delta, self._joined(cover))
            return
        listed = self._part(self.after.atom, cover.after)
        partner = self._part(self.before.atom, cover.before)
        delta = self._extend(delta, [(listed, self.here.second), (partner, self.here.first)], partner.shape.variables)
        self._add_up(delta, partner)

    def _part(self, atom: str, part: PartKey) -> Operand:
        leaf = self.tree.leaves[atom]
        assert leaf.table is not None and leaf.shape is not None
        if part.is_whole:
            return Operand(leaf.table, leaf.shape, leaf.atoms, leaf.indexes)
        edge = next(edge for edge in self.part_trees.union.edges if edge.atom == atom)
        table, indexes = self.part_trees.part(edge, part)
        assert table is not None
        return Operand(table, leaf.shape, leaf.atoms, indexes)

    def _joined(self, cover: Cover) -> Operand:
        """The part tree that joins the two parts, in these atoms' variables."""
        kept = self.part_trees.joining({self.after.atom: cover.after, self.before.atom: cover.before})
        atoms = frozenset({self.after.atom, self.before.atom})
        parts = parts_of(self.tree.definition.measures, atoms)
        shape = shape_of((self.after.first, self.before.second), self.tree.widths, parts, self.limbs)
        assert kept.tree.root.table is not None
        return Operand(kept.tree.root.table, shape, atoms)

    def _extend(self, delta: Delta, lists: Sequence[tuple[Operand, str]], variables: Sequence[str]) -> Delta:
        """Bind the third variable by the shortest of the lists, and multiply with the rows of the first of them."""
        operand = lists[0][0]
        atoms = delta.atoms | operand.atoms
        out = shape_of(variables, self.tree.widths, parts_of(self.tree.definition.measures, atoms), self.limbs)
        sides = []
        for listed, key in lists:
            fresh = [variable for variable in listed.shape.variables if variable != key]
            number = listed.indexes.index((key,))
            sides.append(side_of(listed.table, listed.shape, number, delta.shape, (key,), fresh))
        self.assembler.extend(sides, Join(delta.shape, delta.atoms, operand.shape, out))
        return Delta(out, atoms)

    def _add_up(self, delta: Delta, operand: Operand) -> None:
        """End the path: multiply with the row of the last operand, and add to the sum."""
        root = self.tree.root
        assert root.table is not None
        out = shape_of((), self.tree.widths, parts_of(self.tree.definition.measures, root.atoms), self.limbs)
        places = delta.shape.places(operand.shape.variables)
        self.assembler.probe(operand.table, places, Join(delta.shape, delta.atoms, operand.shape, out))
        if self.times != 1:
            self.assembler.scale(out, self.times)
        self.assembler.upsert(root.table)
        self.assembler.path_end()
