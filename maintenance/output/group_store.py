"""The rows of a relation as a node reads them: a store of all its columns, grouped, perhaps with the groups in order.

The programs of the relation keep the store, and undo its changes. A node reads it when these have run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.output_change import EncodedChange, with_columns
from sqlfront.maintenance.program.netting import net_words
from sqlfront.maintenance.relation.base_relation import StoreOrder, Summary
from sqlfront.maintenance.relation.filling import refill
from sqlfront.planner.model.query import LeafColumn
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.tables import upkeep
from sqlfront.storage.sql_text import quote
from sqlfront.storage.stores.row_addresses import find_rows, gather_words, list_members

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load, Rows
    from sqlfront.maintenance.relation.base_relation import LeafStore, Relation
    from sqlfront.maintenance.relation.encoded import Encoded
    from sqlfront.storage.codecs.codec import Codec
    from sqlfront.storage.stores.table import Table


Extreme = tuple[Sequence[str], bool]
"""Columns, and whether their greatest values are asked for, or their least."""


class GroupStore:
    """The rows of a relation in a store of all its columns, indexed by those that name a row's group, in each of some
    groupings.

    The words of rows are an array for each word of a row, in the order of the store. With `order` the groups of the
    first grouping are sorted by these columns, each with flags; `numbered`: a row's position in its group is known.
    `extremes`: and the rows with extreme values of columns in a subtree.
    """

    def __init__(
        self,
        relation: Relation,
        groupings: Sequence[Sequence[str]],
        user: str,
        order: Sequence[tuple[str, int]] = (),
        numbered: bool = False,
        extremes: Sequence[Extreme] = (),
    ) -> None:
        columns = tuple(LeafColumn(c.name, quote(c.name), c.type, c.name) for c in relation.columns)
        self.relation, self._names, known = relation, [column.name for column in columns], set(relation.stores)
        self.indexes = [tuple(map(quote, keys)) for keys in groupings]
        by = tuple((quote(name), flags) for name, flags in order)
        self._order, self._numbered = StoreOrder(self.indexes[0], by) if by else None, numbered
        named = ((tuple(map(quote, by)), greatest) for by, greatest in extremes)
        self._summaries = tuple(Summary(by[0], greatest, ties=by[1:]) for by, greatest in named)
        # A store has one order: a sorted one is for those alone who need it.
        copy = f"sorted: {self._order} {self._summaries or ''}".rstrip() if by else 0
        self.store: LeafStore = relation.open_store(columns, (), (), (), copy)
        self._fresh = self.store.key not in known
        self.store.users.add(user)
        self._scratch = np.zeros(at.SCRATCH_WORDS, np.int64)

    def open(self, keeper: Keeper, rows: Rows | None, load: Load | None = None) -> None:
        """Index the store by group; fill it with rows, by default the relation's, unless others have it filled."""
        old, store = self.store.table, self.store
        summed = [False] * len(self.indexes)
        renewed = self.relation.reindex(store, self.indexes, summed, self._order, self._numbered, self._summaries)
        if self._fresh:
            keeper.fill(self.relation, store, rows, load)
        elif renewed:
            refill(keeper.machine, old, store)

    def touched(self, done: Sequence[Encoded], grouping: int = 0) -> np.ndarray:
        """The key words of the groups that changed rows belong to, each once, row after row."""
        if not self.indexes[grouping]:
            return np.zeros((1, 1), np.int64)
        keys, _ = self._delta(done, self.indexes[grouping])
        return net_words(keys, np.ones(len(keys), np.int64))[0]

    def delta(self, done: Sequence[Encoded]) -> tuple[np.ndarray, np.ndarray]:
        """The words of changed rows, row after row, and the change of their counts."""
        return net_words(*self._delta(done, [column.expression for column in self.store.variables]))

    def _delta(self, done: Sequence[Encoded], columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The words of these columns in the changed rows, and their weights."""
        inputs = [self.store.inputs["key " + column] for column in columns]
        places = [place for one in inputs for place in range(one.place, one.place + one.words)]
        rows = [item.keep[: item.rows] for item in done if item.relation is self.relation]
        found = rows[0] if len(rows) == 1 else np.concatenate(rows or [np.empty((0, self.relation.width), np.int64)])
        return found[:, places], found[:, -1]

    def encoded_changes(self, done: Sequence[Encoded]) -> tuple[int, int, Any]:
        """The address and the number of the relation's encoded changes, and what keeps them alive."""
        items = [item for item in done if item.relation is self.relation]
        if not items:
            return 0, 0, None
        if len(items) == 1:
            return items[0].address, items[0].rows, items[0]
        found = np.concatenate([item.keep[: item.rows] for item in items])
        return int(found.ctypes.data), len(found), found

    def source_places(self) -> tuple[int, list[int]]:
        """The width of the relation's encoded rows, and where the words of a row of the store lie in them."""
        inputs = [self.store.inputs["key " + column.expression] for column in self.store.variables]
        return self.relation.width, [place for one in inputs for place in range(one.place, one.place + one.words)]

    def places_of(self, name: str) -> range:
        """The places of a column's words in a row of the store."""
        return self._places[quote(name)]

    def null_words(self, name: str) -> tuple[int, ...]:
        """The words of NULL in a column."""
        return tuple(self.codec_of(name).encode_value(None))

    def members(self, keys: np.ndarray, grouping: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The words of the rows of the groups with these keys, group after group; and how often each is there."""
        table, number = self.store.table, self.index_number(grouping)
        groups = find_rows(table.groups[number], keys, self._scratch)
        return self.rows_at(list_members(table, number, groups, self._scratch)[1])

    def index_number(self, grouping: int = 0) -> int:
        """The number of the index of a grouping."""
        return self.store.indexes.index(self.indexes[grouping])

    def rows_at(self, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The words of the rows at these addresses, and how often each is there."""
        keys = self.store.table.keys
        words = gather_words(addresses, range(keys + 1))
        return words[:-1], words[-1]

    def all_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The words of all rows, and how often each is there."""
        return words_of(self.store.table)

    def encoded(self, rows: pa.Table) -> np.ndarray:
        """The words of rows in the relation's columns."""
        words: list[np.ndarray] = []
        for column in self.store.variables:
            words += self.codec_of(column.name).encode(rows.column(column.name))
        return np.array(words)

    def decoded(self, words: np.ndarray) -> pa.Table:
        """Rows in the relation's columns."""
        import pyarrow as pa

        arrays, places = {}, self._places
        for column in self.store.variables:
            code = [np.ascontiguousarray(words[place]) for place in places[column.expression]]
            arrays[column.name] = self.codec_of(column.name).decode(code)
        fields = [self.codec_of(name).arrow_field(name) for name in self._names]
        return pa.Table.from_arrays([arrays[name] for name in self._names], schema=pa.schema(fields))

    def change(self, words: np.ndarray, weights: np.ndarray, columns: Sequence[str] = ()) -> EncodedChange:
        """Rows that go and come, by their weights, as a change of the relation, or of another with some of its columns
        alone."""
        places, names = self._places, columns or self._names
        found = {name: (self.codec_of(name), [words[place] for place in places[quote(name)]]) for name in names}
        return EncodedChange(
            lambda: found, weights, lambda stamps: with_columns(self.decoded(words).select(names), stamps)
        )

    def codec_of(self, name: str) -> Codec:
        """The codec of a column."""
        codec = self.store.inputs["key " + quote(name)].codec
        assert codec is not None
        return codec

    @cached_property
    def _places(self) -> dict[str, range]:
        """The places of each column's words in a row of the store, by its expression."""
        found, start = {}, 0
        for column, width in zip(self.store.variables, self.store.widths, strict=True):
            found[column.expression] = range(start, start + width)
            start += width
        return found


def words_of(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """The words of the rows of a table, and how often each is there."""
    words = np.empty((table.used, table.keys + table.limbs), np.int64)
    words = words[: upkeep.copy_rows(table.address, 0, table.used, words.ctypes.data)]
    return words[:, : table.keys].T, np.ascontiguousarray(words[:, table.keys])


def copies(words: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The words of rows, each as often as its count says."""
    return words if (counts == 1).all() else np.repeat(words, counts, axis=1)
