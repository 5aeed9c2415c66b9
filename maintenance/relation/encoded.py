"""The encoded changes of one relation in one epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.machine import RelationPrograms
from sqlfront.maintenance.program.netting import net_encoded
from sqlfront.maintenance.relation.base_relation import Relation
from sqlfront.storage.codecs.arrow_batches import as_arrow_rows
from sqlfront.storage.stores.words import words_at

if TYPE_CHECKING:
    import pyarrow as pa


class Encoded:
    """Encoded changes of one relation: `rows` rows of words at `address`, which `keep` keeps alive.

    `given` and `weights` are what was encoded (None: a few rows; and the weights that `given` has, or 1). Where there
    are `weights`, `given` may have a column of the kinds of changes besides the relation's.
    """

    __slots__ = ("address", "given", "keep", "programs", "relation", "rows", "weights")

    def __init__(
        self,
        relation: Relation,
        programs: RelationPrograms,
        address: int,
        rows: int,
        keep: Any,
        given: Any = None,
        weights: np.ndarray | None = None,
    ) -> None:
        self.relation, self.programs, self.address, self.rows = relation, programs, address, rows
        self.keep, self.given, self.weights = keep, given, weights

    @property
    def batch(self) -> pa.RecordBatch | pa.Table | None:
        """What was given as Arrow has it."""
        return as_arrow_rows(self.given)

    def run_by(self, programs: RelationPrograms) -> Encoded:
        """The same rows with other programs of the relation."""
        return Encoded(self.relation, programs, self.address, self.rows, self.keep, self.given, self.weights)

    def bytes(self) -> int:
        """The memory of the words."""
        return 8 * self.rows * self.relation.width

    def part(self, first: int, rows: int) -> Encoded:
        """Some of the rows, without what they were encoded from."""
        address = self.address + 8 * first * self.relation.width
        return Encoded(self.relation, self.programs, address, rows, self.keep)

    def body(self) -> Encoded:
        """The same rows without the checks and sweeps that end an epoch."""
        return self.run_by(self.programs.without_ends())

    def net(self) -> None:
        """Add up equal rows, where a row may meet many. O(rows)."""
        if self.programs.lists and self.rows > 1:
            self.rows = net_encoded(self.address, self.rows, self.relation.width, always=False)

    def brings_rows(self) -> bool:
        """Whether a row has a positive weight."""
        width = self.relation.width
        return bool((words_at(self.address, self.rows * width)[width - 1 :: width] > 0).any())

    def entry(self) -> tuple[int, int, int, int, int]:
        return *self.programs.addresses, self.address, self.rows

    def lay_out(self) -> None:
        """Lay out in groups what an epoch has brought most of, as a bulk build does. O(rows)."""
        for store in self.relation.stores.values():
            table = store.table
            if table.groups and table.live <= 2 * self.rows and not any(True for _ in table.readers):
                table.compact(0)
