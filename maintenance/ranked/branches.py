"""The order of a view whose rows are those of several views, its branches, each with a ranked tree of its own.

What reads it sees a row as one block of words, those of the union's columns and how often it occurs, which a walk makes
of a branch's row when it comes to it. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.rows import numbers
from sqlfront.maintenance.program.shapes import COUNT, shape_of
from sqlfront.maintenance.ranked.cursor import RankedWalk
from sqlfront.maintenance.ranked.exact import values_in
from sqlfront.maintenance.ranked.index import RankedIndex, RankedNode, layout_of
from sqlfront.maintenance.ranked.merged_cursor import MergedCursor
from sqlfront.maintenance.ranked.ranked_order import RankedOrder
from sqlfront.maintenance.ranked.tree_cursor import Block, CursorOver
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import BranchColumn, Definition, Order
from sqlfront.storage.codecs.encoding import Codec
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Evaluate

    ReadColumn = Callable[[RankedWalk], list[np.ndarray]]


@dataclass(frozen=True)
class BranchRows:
    """A branch: its ranked tree, whether its rows are counted, and what reads the words of each of the union's
    columns."""

    index: RankedIndex
    counted: bool
    columns: tuple[ReadColumn, ...]


class RankedBranches(RankedOrder):
    """One order of a view of mode "bag" or "set" over `indexes`, the ranked trees of its branches."""

    def __init__(
        self, definition: Definition, codecs: Mapping[str, Codec], indexes: Sequence[RankedIndex], evaluate: Evaluate
    ) -> None:
        self.order: Order = definition.orders[0]
        self.layout, self.distinct = layout_of(self.order, codecs), definition.mode == "set"
        self._settings = definition.settings
        self._held: list[tuple[Codec, int]] = []
        variables = tuple(raw.variable for raw in definition.raw if raw.variable is not None)
        widths = {variable: codecs[variable].words for variable in variables}
        self.root = RankedNode(Node(variables), None, 0, shape_of(variables, widths, (COUNT,), 1), ())
        order = 0, self.layout.entries
        self.root.table = Table(self.root.shape.keys, 1, 1, [()], name="order of a union", order=order, ranked=True)
        self.branches = [
            BranchRows(
                index,
                not self.distinct and branch.definition.mode == "bag",
                tuple(
                    self._reader(column, codecs[variable], index, evaluate)
                    for variable, column in zip(variables, branch.columns, strict=True)
                ),
            )
            for branch, index in zip(definition.branches, indexes, strict=True)
        ]

    @property
    def arity(self) -> int:
        return 1

    @property
    def leaves(self) -> dict[str, RankedNode]:
        return {"": self.root}

    @property
    def copied(self) -> np.ndarray:
        """Which word of a row each rank word is."""
        places = np.zeros(len(self.layout.entries), np.int64)
        for variable, own in self.layout.own.items():
            words = self.root.shape.places([variable])
            for _, target, word, _, _ in own:
                places[target] = words[word]
        return places

    def source(self, variable: str) -> np.ndarray:
        return np.array([(0, place) for place in self.root.shape.places([variable])], np.int64)

    def cursor(self, begin: int = 0) -> MergedCursor:
        """The rows by their keys; they are read from the first on."""
        read = [WordsCursor(self, branch) for branch in self.branches]
        return MergedCursor(read, self.root, self.arity, distinct=self.distinct)

    def close(self) -> None:
        """Let go of the constants."""
        for codec, code in self._held:
            assert codec.dictionary is not None
            codec.dictionary.unpin(code)
        self._held.clear()

    def _reader(self, column: BranchColumn, codec: Codec, index: RankedIndex, evaluate: Evaluate) -> ReadColumn:
        if column.variable is not None:
            variable = column.variable
            return lambda walk: walk.words(variable)
        if column.term is not None:
            read = values_in(column.term, index.order.terms[column.term], column.type)
            assert read is not None, column.type
            return lambda walk: _encoded(codec, read, walk)
        words = self._constant(column.constant, codec, evaluate)
        return lambda walk: [np.full(walk.rows, word) for word in words]

    def _constant(self, text: str, codec: Codec, evaluate: Evaluate) -> list[int]:
        """The words of a constant, which its dictionary holds until the order is closed."""
        import pyarrow as pa

        value = evaluate(pa.table({"one": [1]}), {"one": "BIGINT"}, [text], settings=self._settings).column(0)
        words = [int(word[0]) for word in codec.encode(value)]
        if codec.dictionary is not None and words[0] >= 0:
            codec.dictionary.hold(words[0])
            self._held.append((codec, words[0]))
        return words


class WordsCursor(CursorOver):
    """The rows of a branch as words of the union's columns, with how often each occurs; they stay as long as this."""

    def __init__(self, union: RankedBranches, branch: BranchRows) -> None:
        self._walk, self._branch = RankedWalk(branch.index), branch
        super().__init__(self._walk)
        self._keys, self._copied = union.root.shape.keys, union.copied
        self._made: list[np.ndarray] = []

    def fetch(self, capacity: int) -> Block:
        """The address of each row's words, and keys; fewer than `capacity` rows are the last."""
        words = np.ones((capacity, self._keys + 1), np.int64)
        rows = 0
        while rows < capacity and self._walk.next(capacity - rows):
            block = words[rows : rows + self._walk.rows]
            rows += self._walk.rows
            place = 0
            for read in self._branch.columns:
                for word in read(self._walk):
                    block[:, place] = word
                    place += 1
            if self._branch.counted:
                block[:, place] = numbers(self._walk, COUNT)
        self._made.append(words)
        addresses = words.__array_interface__["data"][0] + np.arange(rows) * words.strides[0]
        return addresses.reshape(-1, 1), words[:rows, self._copied]


def _encoded(codec: Codec, read: Callable[[RankedWalk], list[Any]], walk: RankedWalk) -> list[np.ndarray]:
    rows = [codec.encode_value(value) for value in read(walk)]
    return list(np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, codec.words).T))
