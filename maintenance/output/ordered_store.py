"""The rows of a relation in an order within each group: what is nearest to a time, and what is at a position.

Cost: O(log group) for each row that asks, and the rows that are listed (storage/stores/joined_pairs.py, and
ordered_rows.py there). A position counts copies, from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlfront.maintenance.output.group_store import Extreme, GroupStore
from sqlfront.maintenance.program.programs import PASSING, WordTest
from sqlfront.storage.codecs.order import order_places
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.stores.joined_pairs import SortedRows
from sqlfront.storage.stores.ordered_rows import OrderedRows

if TYPE_CHECKING:
    from sqlfront.maintenance.relation.base_relation import Relation


class OrderedStore(GroupStore):
    """The rows of a relation grouped by `keys` and sorted by `order`, whose first column is the time."""

    def __init__(
        self,
        relation: Relation,
        keys: Sequence[str],
        order: Sequence[tuple[str, int]],
        user: str,
        extremes: Sequence[Extreme] = (),
    ) -> None:
        super().__init__(relation, [keys], user, order, extremes=extremes)
        self._keys = keys

    @cached_property
    def key_places(self) -> list[int]:
        """The places of the words of a row's key."""
        return [place for name in self._keys for place in self.places_of(name)]

    def sorted_rows(self) -> SortedRows:
        """The rows as they lie now."""
        return SortedRows(self.store.table, self.index_number(), self.key_places)

    def test(self, column: str, asking: OrderedStore, asked: str, operator: str, *, nulls_last: bool) -> list[int]:
        """The test of a member's column by a column of a row of `asking`, which stands left of the operator."""
        flags = at.ORDER_NULLS_LAST if nulls_last else 0
        places = [(place, kind + flags, operand) for place, kind, operand in order_places(self.codec_of(column), 0)]
        theirs, mine = asking.places_of(asked)[0], self.places_of(column)[0]
        return WordTest(PASSING[operator], theirs, mine, places).words()


class Run(NamedTuple):
    """Copies of rows at adjacent positions, run after run: their words, which run each is in, and which copy of its row
    it is, from 0."""

    words: np.ndarray
    number: np.ndarray
    copy: np.ndarray


class NumberedStore(GroupStore):
    """The rows of a relation grouped by `keys` and sorted by `order`, of which the first `compared` columns say where a
    probe stands. Rows that ask come row after row."""

    def __init__(
        self, relation: Relation, keys: Sequence[str], order: Sequence[tuple[str, int]], compared: int, user: str
    ) -> None:
        super().__init__(relation, [keys], user, order, numbered=True)
        self._keys, self._compared = keys, [name for name, _ in order[:compared]]

    def now(self) -> OrderedRows:
        """The rows as they are now, with a count of steps of its own."""
        return OrderedRows(self.store.table)

    @cached_property
    def key_places(self) -> list[int]:
        """The places of the words of a row's key."""
        return [place for name in self._keys for place in self.places_of(name)]

    @cached_property
    def compared_places(self) -> list[int]:
        """The places of the words by which a probe is compared, in the order of the columns."""
        return [place for name in self._compared for place in self.places_of(name)]

    def before(self, rows: OrderedRows, groups: np.ndarray, probes: np.ndarray, *, inclusive: bool) -> np.ndarray:
        """How many copies of each group come before a probe, with those that tie if `inclusive`. Probes have the first
        words of `compared_places`, as many as they like."""
        words = probes.shape[1]
        laid = np.zeros((len(probes), self.store.table.keys), np.int64)
        laid[:, self.compared_places[:words]] = probes
        addresses = laid.ctypes.data + np.arange(len(laid), dtype=np.int64) * laid.strides[0]
        return rows.positions_of(groups, addresses, words, inclusive=inclusive)

    def compared(self, rows: OrderedRows, addresses: np.ndarray) -> np.ndarray:
        """The words of rows that a probe has, row after row."""
        return rows.gather(addresses, self.compared_places).T

    def run(self, rows: OrderedRows, groups: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> Run:
        """The copies at the positions from `begins` to before `ends` of each group."""
        some = np.flatnonzero(ends > begins)
        groups, begins, ends = groups[some], begins[some], ends[some]
        first, skipped = rows.select(groups, begins)
        sizes, addresses = rows.runs(first, rows.select(groups, ends - 1)[0])
        words, counts = self.rows_at(addresses)
        heads = np.cumsum(np.append(0, counts))
        starts = heads[np.cumsum(sizes) - sizes] + skipped  # A run may begin and end among the copies of a row.
        lengths = ends - begins
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        copies = np.repeat(starts, lengths) + within
        row = np.searchsorted(heads, copies, side="right") - 1
        return Run(words[:, row], np.repeat(some, lengths), copies - heads[row])

    def numbers(self, name: str, words: np.ndarray) -> np.ndarray:
        """The whole numbers of a column in rows, 0 for NULL."""
        code = [np.ascontiguousarray(words[place]) for place in self.places_of(name)]
        return self.codec_of(name).decode(code).fill_null(0).to_numpy()

    def with_numbers(self, name: str, words: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Rows with other numbers in a column, but for NULLs."""
        import pyarrow as pa

        found, places = words.copy(), self.places_of(name)
        for place, word in zip(places, self.codec_of(name).encode(pa.array(numbers)), strict=True):
            found[place] = np.where(words[places[0]] == at.NULL_CODE, words[place], word)
        return found
