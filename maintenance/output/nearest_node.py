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
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.group_store import Extreme, GroupStore, copies
from sqlfront.maintenance.output.kept_rows import KeptRowsNode
from sqlfront.maintenance.output.ordered_store import OrderedStore
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.tree.description import Description
from sqlfront.maintenance.view.sizes import table_depth
from sqlfront.planner.model.nearest_rows import MIRRORED, ExtremeRows, NearestRows
from sqlfront.planner.theory.wording import table_name
from sqlfront.storage.codecs.order import direction_flags, order_places
from sqlfront.storage.kernels.layout import ORDER_DESCENDING, ORDER_NULLS_LAST
from sqlfront.storage.sql_text import quote
from sqlfront.storage.stores.joined_pairs import NearestPairs, PairTests

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded


LISTED = 6
"""Predicted steps for a row of the left whose range has a changed row, and for its own row."""
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
        self._layout: tuple[object, ...] | None = None

    def _open_left(self, relation: Relation, names: Mapping[str, str] = _SAME) -> OrderedStore:
        """The store of rows that begin with a row of the left, whose columns have these names here."""
        [time, *keys] = (names.get(one, one) for one in (self.rows.times[0], *(mine for mine, _ in self.rows.keys)))
        others = [(name, 0) for name in names.values() if name != time]
        extremes = [([names.get(one, one) for one in by], greatest) for by, greatest in self._extremes_of_left()]
        return OrderedStore(relation, keys, [(time, self._direction), *others], self.name, extremes)

    def _extremes_of_left(self) -> list[Extreme]:
        """The extremes of the left that subtrees know."""
        return []

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
        self.own.open(self._keeper, (self._all_batches(), 0))
        self._pairs_of_now().take_steps()
        self.count_from_now()

    def close(self) -> None:
        for side in (self.left, self.right):
            self._keeper.close_store(side.relation, side.store, self.name)

    @staticmethod
    def planned(name: str, rows: NearestRows) -> Description:
        left, right = table_name(rows.left), table_name(rows.right)
        compared = [(mine, "=", theirs) for mine, theirs in rows.keys]
        compared += rows.compared
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

    def describe(self) -> Description:
        found = super().describe()
        left, right = (one.store.table for one in (self.left, self.right))
        place = 2 * (table_depth(left) + table_depth(right))
        steps = dict.fromkeys(found.inputs, 0.0)
        steps[self.rows.left] += place + self.rows.count
        listed, searched = self._concerned()
        steps[self.rows.right] += place + listed * LISTED + searched * (place + self.rows.count)
        return replace(found, predicted=steps)

    def _concerned(self) -> tuple[float, float]:
        """How many rows of the left a changed row of the right lists on average beside those whose partners it
        changes, and how many these are: each row has so many partners."""
        return 0, self.left.store.table.live * self.rows.count / max(self.right.store.table.live, 1)

    def stores(self) -> Iterator[tuple[str, str, GroupStore]]:
        for name, kept in (
            (self.left.relation.name, self.left), (self.right.relation.name, self.right), (self.name, self.own)
        ):  # fmt: skip
            yield table_name(name), "rows in order", kept

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        rows = self.changed_rows(done)
        return self.own.change(rows[:, :-1].T, rows[:, -1].copy())

    def changed_rows(self, done: Sequence[Encoded]) -> np.ndarray:
        """The words of the node's rows that go and come, netted, each with its weight behind them."""
        pairs = self._pairs_of_now()
        left, left_rows, _left = self.left.encoded_changes(done)
        right, right_rows, _right = self.right.encoded_changes(done)
        rows = pairs.change((left, left_rows), (right, right_rows))
        self._machine.counters[self.number] += pairs.take_steps()
        return rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.own.decoded(copies(*self.own.all_rows())).to_batches()

    def compute_all(self) -> pa.Table:
        """All pairs, computed from both sides. O(N log N)."""
        rows = self._pairs_of_now().all()
        return self.own.decoded(copies(np.ascontiguousarray(rows[:, :-1].T), rows[:, -1]))

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        """All pairs, computed when they are asked for: when their own store is laid out."""
        yield from self.compute_all().to_batches()

    def _pairs_of_now(self) -> NearestPairs:
        """The pairs over the present tables, and the present layout of changes."""
        sides = self.left, self.own, self.right
        layout = *(one.store.table for one in sides), self.left.relation.inputs, self.right.relation.inputs
        if self._layout is None or any(one is not other for one, other in zip(layout, self._layout, strict=True)):
            self._layout = layout
            left, own, right = (one.sorted_rows() for one in sides)
            sources = self.left.source_places(), self.right.source_places()
            self._pairs = NearestPairs(left, own, right, sources, self._tests(), [*self._laid()], [*self._shown()])
        return self._pairs

    def _laid(self) -> Iterator[tuple[int, int]]:
        """The place of each word of a row of the left in the node's rows, and in the left's."""
        for column, (own, _) in zip(self.left.relation.columns, self.rows.columns, strict=False):
            yield from zip(self.own.places_of(own), self.left.places_of(column.name), strict=True)

    def _shown(self) -> Iterator[tuple[int, int, int]]:
        """The place of each word that is shown of the right in the node's rows, and in the right's, and NULL's word."""
        for name, (own, _) in zip(self.rows.shown, self.rows.columns[len(self.left.relation.columns) :], strict=True):
            yield from zip(self.own.places_of(own), self.right.places_of(name), self.own.null_words(own), strict=True)

    def _tests(self) -> PairTests:
        [one] = self.rows.compared
        reached = [self._test_of_left(store, *one) for store in (self.left, self.own)]
        return PairTests(self._test_of_right(*one), None, reached[0], reached[1], self.rows.count, self.rows.outer)

    def _test_of_right(self, mine: str, operator: str, theirs: str) -> list[int]:
        """The test of rows of the right by a column of one of the left. A NULL meets no comparison."""
        is_later = operator in ("<", "<=")
        return self.right.test(theirs, self.left, mine, operator, nulls_last=is_later)

    def _test_of_left(self, store: OrderedStore, mine: str, operator: str, theirs: str) -> list[int]:
        """The test of a column of the left, in a store of its rows or of the node's own, by a row of the right."""
        column = mine if store is self.left else self._own_names[mine]
        is_later = operator in ("<", "<=")
        return store.test(column, self.right, theirs, MIRRORED[operator], nulls_last=is_later)


class ExtremeRowsNode(NearestRowsNode):
    """The extreme one of the right's rows within a range or a box of each row of the left; see `Node`.

    The right is sorted by time, and subtrees know their extreme row, and that of the second column: a row of the left
    finds its own in O(log N), in a box in O(log N) for each row of the box at worst. The left is sorted by one bound,
    and subtrees know the extreme of the other: a changed row of the right lists the rows whose ranges have it, O(log N)
    for each. Those with a better value than the changed row's stay as they are.
    """

    rows: ExtremeRows

    def _open_right(self, relation: Relation, keys: Sequence[str]) -> OrderedStore:
        extremes: list[Extreme] = [(self.rows.by, self.rows.greatest)]
        extremes += [((theirs,), operator in ("<", "<=")) for _, operator, theirs in self.rows.beside]
        return OrderedStore(relation, keys, [(self.rows.times[1], 0)], self.name, extremes)

    def _concerned(self) -> tuple[float, float]:
        """Those whose ranges have the row, by a sample; and those of them whose extreme it is."""
        from sqlfront.maintenance.view.range_shares import PairTest, measured_share

        table = self.left.store.table
        tests = [
            PairTest(quote(mine), operator, quote(theirs), order_places(self.left.codec_of(mine), 0))
            for mine, operator, theirs in self.rows.compared
        ]
        keys = [(quote(mine), quote(theirs)) for mine, theirs in self.rows.keys]
        share = measured_share(self.left.store, self.right.store, keys, tests)
        groups = table.groups[self.left.index_number()].live
        listed = table.live / max(groups, 1) * (0.5 if share is None else share)
        return listed, listed if self._better() is None else min(listed, super()._concerned()[1])

    def _extremes_of_left(self) -> list[Extreme]:
        return [((mine,), operator in (">", ">=")) for mine, operator, _ in self.rows.second]

    def _tests(self) -> PairTests:
        rows, sides = self.rows, (self.left, self.own)
        first, *others = rows.compared
        reached = [self._test_of_left(store, *first) for store in sides]
        beside = [self._test_of_left(store, *one) for store in sides for one in others]
        mine, own = beside or (None, None)
        bounds = {one[1][0]: self._test_of_right(*one) for one in rows.compared if one not in rows.beside}
        second = next((self._test_of_right(*one) for one in rows.beside), None)
        lower, upper = bounds.get("<"), bounds.get(">")
        return PairTests(lower, upper, reached[0], reached[1], 0, rows.outer, second, mine, own, self._better())

    def _better(self) -> list[int] | None:
        """The test of own rows whose value is better than that of a row of the right; None if rows do not show by what
        they are found. NULL is the worst value."""
        if len(self.rows.by) > 1:
            return None
        shown, _ = self.rows.columns[-1]
        operator = "<" if self.rows.greatest else ">"
        return self.own.test(shown, self.right, self.rows.by[0], operator, nulls_last=not self.rows.greatest)
