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

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.group_store import GroupStore, copies
from sqlfront.maintenance.output.kept_rows import KeptRowsNode
from sqlfront.maintenance.output.ordered_store import OrderedStore
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.program.netting import net_words
from sqlfront.maintenance.tree.description import Description
from sqlfront.planner.model.nearest_rows import MIRRORED, ExtremeRows, NearestRows
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.codecs.order import direction_flags
from sqlfront.storage.kernels.layout import ORDER_DESCENDING, ORDER_NULLS_LAST
from sqlfront.storage.stores.row_addresses import gather_words

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded


_SAME: Mapping[str, str] = {}


class NearestRowsNode(KeptRowsNode):
    """The rows of an as-of join; see `Node`."""

    own: OrderedStore
    rows: NearestRows

    def __init__(self, name: str, rows: NearestRows, number: int, keeper: Keeper) -> None:
        super().__init__(name, rows, number, keeper)
        self._is_later = rows.operator in ("<", "<=")  # The nearest row is the least that is later.
        self.left = self._open_left(keeper.relations[rows.left])
        self.right = self._open_right(keeper.relations[rows.right], [other for _, other in rows.keys])

    def _open_left(self, relation: Relation, names: Mapping[str, str] = _SAME) -> OrderedStore:
        """The store of rows that begin with a row of the left, whose columns have these names here."""
        [time, *keys] = (names.get(one, one) for one in (self.rows.times[0], *(mine for mine, _ in self.rows.keys)))
        others = [(name, 0) for name in names.values() if name != time]
        extreme = self._extreme_of_left()
        if extreme is not None:
            extreme = (names.get(extreme[0], extreme[0]), extreme[1])
        return OrderedStore(relation, keys, [(time, self._direction), *others], self.name, extreme)

    def _extreme_of_left(self) -> tuple[str, bool] | None:
        """The column of the left whose extremes subtrees know, and whether these are the greatest; None without one."""
        return None

    def _open_right(self, relation: Relation, keys: Sequence[str]) -> OrderedStore:
        """The store of the rows of the right."""
        time, ties = self.rows.times[1], dict(self.rows.ties)
        others = [column.name for column in relation.columns if column.name not in (time, *ties)]
        by = [(time, 0 if self._is_later else ORDER_DESCENDING)]
        by += [(name, direction_flags(direction)) for name, direction in ties.items()]
        by += [(name, ORDER_NULLS_LAST) for name in others]
        return OrderedStore(relation, keys, by, self.name)

    @property
    def _direction(self) -> int:
        """The flags by which the left's rows that meet a comparison follow those that do not, NULLs among these."""
        return ORDER_DESCENDING if self._is_later else 0

    def open(self, load: Load) -> None:
        self.left.open(self._keeper, None, load)
        self.right.open(self._keeper, None, load)

    def feed(self, relation: Relation) -> None:
        """Keep the node's rows as those of the relation that it feeds."""
        self._own_names = {
            mine.name: own.name for mine, own in zip(self.left.relation.columns, relation.columns, strict=False)
        }
        self.own = self._open_left(relation, self._own_names)
        self.own.open(self._keeper, (self.compute_all().to_batches(), 0))
        self._take_steps()
        self.count_from_now()

    def close(self) -> None:
        for side in (self.left, self.right):
            self._keeper.close_store(side.relation, side.store, self.name)

    @staticmethod
    def planned(name: str, rows: NearestRows) -> Description:
        left, right = table_name(rows.left), table_name(rows.right)
        compared = [(mine, "=", theirs) for mine, theirs in rows.keys]
        compared += [(mine, operator, rows.times[1]) for mine, operator in rows.compared]
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
        mine, owned = self._reached(self._appeared(done))
        old, counts = self.own.rows_at(_each([self.own.at(self._own_words(moved.T)), owned]))
        new, weights = self._pairs(*self.left.rows_at(_each([self.left.rows(moved), mine])))
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

    def _reached(self, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The addresses of the left's rows, and of the node's own, whose partners change with rows of the right."""
        keys, before = theirs[:, self.right.key_places], self.right.before(theirs, self.rows.count)
        return (
            self.left.ranges(keys, theirs, self._by_right, before),
            self.own.ranges(keys, theirs, self._own_by_right, before),
        )

    def _partners(self, asking: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The addresses of the partners of rows of the left, how many copies of each count, and how many partners each
        row has."""
        return self.right.first(asking[:, self.left.key_places], asking, self._by_left, self.rows.count)

    def _pairs(self, words: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The node's rows that rows of the left make, and how often each is there."""
        partners, taken, sizes = self._partners(np.ascontiguousarray(words.T))
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
        """The test of rows of the right by one of the left."""
        return self._test_of_right(*self.rows.compared[0])

    @cached_property
    def _by_right(self) -> np.ndarray:
        """The test of rows of the left by one of the right."""
        return self._test_of_left(self.left, *self.rows.compared[0])

    @cached_property
    def _own_by_right(self) -> np.ndarray:
        """The test of the node's own rows by one of the right."""
        return self._test_of_left(self.own, *self.rows.compared[0])

    def _test_of_right(self, mine: str, operator: str) -> np.ndarray:
        """The test of rows of the right by a column of one of the left. A NULL meets no comparison."""
        is_later = operator in ("<", "<=")
        return self.right.test(self.rows.times[1], self.left, mine, operator, nulls_last=is_later)

    def _test_of_left(self, store: OrderedStore, mine: str, operator: str) -> np.ndarray:
        """The test of a column of the left, in a store of its rows or of the node's own, by a row of the right."""
        column = mine if store is self.left else self._own_names[mine]
        is_later = operator in ("<", "<=")
        return store.test(column, self.right, self.rows.times[1], MIRRORED[operator], nulls_last=is_later)

    def _take_steps(self) -> int:
        return sum(store.take_steps() for store in (self.left, self.right, self.own))


class ExtremeRowsNode(NearestRowsNode):
    """The extreme value of the right's rows within a range of each row of the left; see `Node`.

    The right is sorted by time, and subtrees know their extreme value: a row of the left finds its own in O(log N). The
    left is sorted by one bound, and subtrees know the extreme of the other: a changed row of the right lists the rows
    whose ranges have it, O(log N) for each.
    """

    rows: ExtremeRows

    def _open_right(self, relation: Relation, keys: Sequence[str]) -> OrderedStore:
        extreme = (self.rows.shown[0], self.rows.greatest)
        return OrderedStore(relation, keys, [(self.rows.times[1], 0)], self.name, extreme)

    def _extreme_of_left(self) -> tuple[str, bool] | None:
        return next(((mine, operator in (">", ">=")) for mine, operator in self.rows.second), None)

    def _reached(self, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = theirs[:, self.right.key_places]
        beside = [self._test_of_left(store, *one) for store in (self.left, self.own) for one in self.rows.second]
        mine, own = beside or (None, None)
        return (
            self.left.ranges(keys, theirs, self._by_right, beside=mine),
            self.own.ranges(keys, theirs, self._own_by_right, beside=own),
        )

    def _partners(self, asking: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        bounds = {operator[0]: self._test_of_right(mine, operator) for mine, operator in self.rows.compared}
        keys = asking[:, self.left.key_places]
        partners = self.right.extremes(keys, asking, bounds.get("<"), bounds.get(">"))
        found = partners[partners != 0]
        return found, np.ones(len(found), np.int64), (partners != 0).astype(np.int64)


def _each(addresses: Sequence[np.ndarray]) -> np.ndarray:
    """Each address once, without 0."""
    found = np.unique(np.concatenate(addresses))
    return found[found != 0]
