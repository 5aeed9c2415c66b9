"""What a view keeps beside its tree: its output delta, the number of its tuples, ranked trees, partitions.

An attachment takes part in all that happens to the view. A hook that it does not override does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.shapes import Shape
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.program.machine import Machine
    from sqlfront.maintenance.program.room import Room
    from sqlfront.maintenance.relation.base_relation import LeafStore
    from sqlfront.maintenance.tree.view_tree import Route, View


class Attachment:
    """Something kept beside a view's tree. It is filled when the view is built, and follows through these hooks."""

    def swept(self) -> list[Table]:
        """The tables that are swept after each change of the view's relations."""
        return []

    def kept(self) -> list[Table]:
        """All tables, for their memory: those that no change may empty too."""
        return self.swept()

    def add_row_paths(self, assembler: Assembler, store: LeafStore, position: int, atoms: Mapping[str, Shape]) -> None:
        """Add paths that begin with the delta of a store, of which `atoms` read rows of these shapes at a position,
        before those of the tree."""

    def add_path(
        self, leaf: View, assembler: Assembler, owner: int, position: int, times: int = 1, route: Route = ()
    ) -> None:
        """Add the path of a leaf's delta, after the one that updates the tree on the same route.

        At position 0 the leaf's store still is as before the delta, which counts `times` times.
        """

    def add_ranking(self, assembler: Assembler, atoms: set[str]) -> None:
        """Add steps that bring the orders up to date with changes of these atoms, after all paths."""

    def add_requests(self, assembler: Assembler, stores: list[LeafStore]) -> None:
        """Add steps that ask for attention if changes of these stores, which have been swept, make it necessary."""

    def widen(self, limbs: int) -> None:
        """Give values more limbs; programs have to be assembled again."""

    def rescale(self, names: Set[tuple[str, str]], bits: int) -> None:
        """Multiply every sum that contains one of these factors by 2**bits, once for each that it does."""

    def refresh(self, machine: Machine, stores: Mapping[str, LeafStore], room: Room | None) -> None:
        """Fit to the stores of the atoms, after tables, listeners or widths have changed."""

    def close(self) -> None:
        """The view is no longer there."""
