"""A node of an as-of join: each row of the left with the nearest `count` rows of the right.

Both sides are stores of the relations that the node reads, grouped by the keys and sorted by time. The node's own rows
are a store of the relation that it feeds, sorted as the left. The programs of the relations keep the stores, and undo
them. The order of the right is total, and the nearest rows are the first that meet the comparison. So when a row x of
the right comes or goes, only the left's rows change that have or had x among their nearest: those that meet the
comparison with x, but not with the row y that is `count` copies before x in the order. They are one range of the left.
Rows between x and y, old ones as well as new ones, change too, and have ranges of their own: the first changed row of a
left row's nearest lists it. The node computes the pairs of these ranges and of the changed rows of the left anew; what
differs from its own rows is its output.

Cost: O(log N + count) for a changed row, and for each row of the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.group_store import GroupStore, copies
from sqlfront.maintenance.output.kept_rows import KeptRowsNode
from sqlfront.maintenance.output.ordered_store import OrderedStore
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.program.netting import net_words
from sqlfront.maintenance.tree.description import Description
from sqlfront.planner.model.nearest_rows import NearestRows
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.codecs.order import direction_flags
from sqlfront.storage.kernels.layout import ORDER_DESCENDING, ORDER_NULLS_LAST
from sqlfront.storage.stores.row_addresses import gather_words

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded


class NearestRowsNode(KeptRowsNode):
    """The rows of an as-of join; see `Node`."""

    own: OrderedStore
    rows: NearestRows

    def __init__(self, name: str, rows: NearestRows, number: int, keeper: Keeper) -> None:
        super().__init__(name, rows, number, keeper)
        self._is_later = rows.operator in ("<", "<=")  # The nearest row is the least that is later.
        left, right = keeper.relations[rows.left], keeper.relations[rows.right]
        mine, theirs = rows.times
        ties = dict(rows.ties)
        others = [column.name for column in right.columns if column.name not in (theirs, *ties)]
        by = [(theirs, 0 if self._is_later else ORDER_DESCENDING)]
        by += [(name, direction_flags(direction)) for name, direction in ties.items()]
        by += [(name, ORDER_NULLS_LAST) for name in others]
        self.left = OrderedStore(left, [one for one, _ in rows.keys], [(mine, self._direction)], name)
        self.right = OrderedStore(right, [other for _, other in rows.keys], by, name)

    @property
    def _direction(self) -> int:
        """The flags by which the left's rows that meet a comparison follow those that do not, NULLs among these."""
        return ORDER_DESCENDING if self._is_later else 0

    def open(self, load: Load) -> None:
        self.left.open(self._keeper, None, load)
        self.right.open(self._keeper, None, load)

    def feed(self, relation: Relation) -> None:
        """Keep the node's rows as those of the relation that it feeds."""
        names = dict(zip((one.name for one in self.left.relation.columns), (one.name for one in relation.columns)))
        time = names.pop(self.rows.times[0])
        keys = [names.get(one, time) for one, _ in self.rows.keys]
        by = [(time, self._direction), *((name, 0) for name in names.values())]
        self.own = OrderedStore(relation, keys, by, self.name)
        self.own.open(self._keeper, (self.compute_all().to_batches(), 0))
        self._take_steps()
        self.count_from_now()

    def close(self) -> None:
        for side in (self.left, self.right):
            self._keeper.close_store(side.relation, side.store, self.name)

    @staticmethod
    def planned(name: str, rows: NearestRows) -> Description:
        left, right = table_name(rows.left), table_name(rows.right)
        compared = [*((mine, "=", theirs) for mine, theirs in rows.keys), (rows.times[0], rows.operator, rows.times[1])]
        tie = " AND ".join(f"{left}.{mine} {operator} {right}.{theirs}" for mine, operator, theirs in compared)
        return Description(
            name,
            "nearest rows",
            (rows.left, rows.right),
            rows.cost.update,
            rows.output,
            rows.label,
            notes=(
                f"nearest rows: each row of {left} with the {rows.nearest} of {right} ON {tie}",
                f"found along trees of {left} by {rows.times[0]} and of {right} by {rows.times[1]}"
                + (" for each key" if rows.keys else ""),
            ),
            facts={"joined": rows.label, "left": left, "right": right, "on": tie},
        )

    def stores(self) -> Iterator[tuple[str, str, GroupStore]]:
        for name, kept in (
            (self.left.relation.name, self.left), (self.right.relation.name, self.right), (self.name, self.own)
        ):  # fmt: skip
            yield table_name(name), "rows in order", kept

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        moved, _ = self.left.delta(done)
        shown = self._own_words(moved.T)
        theirs = self._appeared(done)
        keys, before = theirs[:, self.right.key_places], self.right.before(theirs, self.rows.count)
        mine = [self.left.rows(moved), self.left.ranges(keys, theirs, self._by_right, before)]
        owned = [self.own.at(shown), self.own.ranges(keys, theirs, self._own_by_right, before)]
        old, counts = self.own.rows_at(_each(owned))
        new, weights = self._pairs(*self.left.rows_at(_each(mine)))
        self._machine.counters[self.number] += len(counts) + len(weights) + self._take_steps()
        rows, weights = net_words(np.concatenate([old, new], axis=1).T, np.concatenate([-counts, weights]))
        return self.own.change(rows.T, weights)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.own.decoded(copies(*self.own.all_rows())).to_batches()

    def compute_all(self) -> pa.Table:
        """All pairs, computed from both sides. O(N log N)."""
        return self.own.decoded(copies(*self._pairs(*self.left.all_rows())))

    def _appeared(self, done: Sequence[Encoded]) -> np.ndarray:
        """The rows of the right that have come or gone, row after row. Copies beyond those that are joined are one."""
        words, weights = self.right.delta(done)
        [counts] = gather_words(self.right.rows(words), [words.shape[1]])
        most = self.rows.count
        return np.ascontiguousarray(words[np.minimum(counts, most) != np.minimum(counts - weights, most)])

    def _pairs(self, words: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The node's rows that rows of the left make, and how often each is there."""
        asking = np.ascontiguousarray(words.T)
        partners, taken, sizes = self.right.first(
            asking[:, self.left.key_places], asking, self._by_left, self.rows.count
        )
        if self.rows.outer:
            alone = np.cumsum(sizes)[sizes == 0]
            partners, taken = np.insert(partners, alone, 0), np.insert(taken, alone, 1)
            sizes = np.maximum(sizes, 1)
        found = self._own_words(np.repeat(words, sizes, axis=1))
        for name, (own, _) in zip(self.rows.shown, self.rows.columns[len(self.left.relation.columns) :], strict=True):
            places = zip(self.own.places_of(own), self.right.places_of(name), self.own.null_words(own), strict=True)
            for place, theirs, null in places:
                found[:, place] = gather_words(partners, [theirs], null)[0]
        return found.T, np.repeat(counts, sizes) * taken

    def _own_words(self, words: np.ndarray) -> np.ndarray:
        """Rows of the left at their places in the node's rows, row after row."""
        found = np.zeros((words.shape[1], self.own.store.table.keys), np.int64)
        for column, (own, _) in zip(self.left.relation.columns, self.rows.columns, strict=False):
            for place, mine in zip(self.own.places_of(own), self.left.places_of(column.name), strict=True):
                found[:, place] = words[mine]
        return found

    @cached_property
    def _by_left(self) -> np.ndarray:
        """The test of rows of the right by one of the left. A NULL meets no comparison."""
        return self.right.test(self.left, self.rows.operator, nulls_last=self._is_later)

    @cached_property
    def _by_right(self) -> np.ndarray:
        """The test of rows of the left by one of the right."""
        return self.left.test(self.right, self.rows.mirrored, nulls_last=self._is_later)

    @cached_property
    def _own_by_right(self) -> np.ndarray:
        """The test of the node's own rows by one of the right."""
        return self.own.test(self.right, self.rows.mirrored, nulls_last=self._is_later)

    def _take_steps(self) -> int:
        return sum(store.take_steps() for store in (self.left, self.right, self.own))


def _each(addresses: Sequence[np.ndarray]) -> np.ndarray:
    """Each address once, without 0."""
    found = np.unique(np.concatenate(addresses))
    return found[found != 0]
