"""The rows of a base table that leaves of view trees read, and the items that its programs compute for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlfront.maintenance.program.shapes import COUNT, Shape
from sqlfront.maintenance.relation.guards import Guard
from sqlfront.planner.model.query import Atom, LeafColumn
from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.order import Places, order_places
from sqlfront.storage.kernels.layout import ORDER_DESCENDING, SUMMARY_EXTREME, SUMMARY_PEERS
from sqlfront.storage.stores.table import Table


@dataclass
class Input:
    """One item of a row, computed under `settings`: `kind` is "key", "factor" or "predicate", with `conditions`. A
    column that is not `stored` is read to compute others."""

    kind: str
    expression: str
    type: str
    source: str | None
    settings: Settings = ()
    place: int = 0
    words: int = 1
    codec: Codec | None = None
    limbs: int = 1
    shift: int = 0
    conditions: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    stored: bool = True


class StoreOrder(NamedTuple):
    """How the groups of the index over these expressions are sorted: by further expressions, each with the flags that
    kernels/layout.py adds to a word's kind."""

    grouping: tuple[str, ...]
    by: tuple[tuple[str, int], ...]


class StoreBoxes(NamedTuple):
    """Sums of the rows that have a key in common, of these expressions, within bounds of two further expressions."""

    key: tuple[str, ...]
    first: str
    second: str


class Summary(NamedTuple):
    """What rows of sorted groups know of those below them in the groups' trees: the greatest or the least value of an
    expression, of equal ones the one with the greatest or least values of the expressions `ties`; or, without one, how
    many groups of peers there are, which tie in the first `items` of the order."""

    expression: str = ""
    greatest: bool = False
    items: int = 0
    ties: tuple[str, ...] = ()


@dataclass
class LeafStore:
    """The rows of one (table, predicate, columns, settings), shared by all atoms that read just that.

    `copy` tells apart the stores of a self-join with three or more equal atoms: a store is read as old
    by the first of its (at most two) atoms and as new by the second, so every pair of atoms needs one.
    A `stateless` one keeps none: its only atom is joined with no other. A row counts as often as `copies` says.
    `order` says how the groups of an index are sorted; `ranges`: with sums over ranges; `summaries`: what else is known
    of subtrees; `boxes`: what sums over boxes are kept of.
    """

    key: tuple[Any, ...]
    variables: tuple[LeafColumn, ...]
    factors: tuple[LeafColumn, ...]
    conditions: tuple[str, ...]
    required: tuple[str, ...]
    table: Table
    widths: tuple[int, ...]
    settings: Settings = ()
    copies: LeafColumn | None = None
    limbs: int = 1
    indexes: list[tuple[str, ...]] = field(default_factory=list)
    summed: list[bool] = field(default_factory=list)
    order: StoreOrder | None = None
    ranges: bool = False
    summaries: tuple[Summary, ...] = ()
    boxes: StoreBoxes | None = None
    stateless: bool = False
    users: set[str] = field(default_factory=set)
    inputs: dict[str, Input] = field(default_factory=dict)

    @property
    def predicate(self) -> str | None:
        """The conditions as one; None when there are none."""
        return " AND ".join(self.conditions) or None

    def shape(self, atom: Atom) -> Shape:
        """The store's layout in the names that one atom gives its columns."""
        names = {column.expression: column.name for column in atom.variables}
        factors = {column.expression: column.name for column in atom.factors}
        parts = (COUNT, *(frozenset({(atom.name, factors[f.expression])}) for f in self.factors))
        variables = tuple(names[column.expression] for column in self.variables)
        return Shape(variables, self.widths, parts, self.limbs)

    def ordered(self, codec_of: Callable[[LeafColumn], Codec]) -> tuple[int, Places] | None:
        """The ordered index of the store's table, and the places of its words to compare."""
        if self.order is None:
            return None
        return self.indexes.index(self.order.grouping), self._order_places(len(self.order.by), codec_of)

    def summarised(self, codec_of: Callable[[LeafColumn], Codec]) -> list[tuple[int, Places]]:
        """The subtree summaries of the table's rows: their kinds, and the words to compare."""
        found = list[tuple[int, Places]]()
        for expression, greatest, items, ties in self.summaries:
            if expression:
                flags = 0 if greatest else ORDER_DESCENDING
                places = [one for each in (expression, *ties) for one in self._places(each, flags, codec_of)]
                found.append((SUMMARY_EXTREME, places))
            else:
                found.append((SUMMARY_PEERS, self._order_places(items, codec_of)))
        return found

    def boxed(self, codec_of: Callable[[LeafColumn], Codec]) -> tuple[Sequence[int], Places, Places] | None:
        """Of a store with sums over boxes: the places of the key, and the words to compare in both orders."""
        if self.boxes is None:
            return None
        key, *orders = self.boxes
        first, second = (self._places(expression, 0, codec_of) for expression in orders)
        return Shape(tuple(c.expression for c in self.variables), self.widths, (), 1).places(key), first, second

    def _order_places(self, items: int, codec_of: Callable[[LeafColumn], Codec]) -> Places:
        """How to compare the words of the first items of the order."""
        assert self.order is not None
        return [one for item in self.order.by[:items] for one in self._places(*item, codec_of)]

    def _places(self, expression: str, flags: int, codec_of: Callable[[LeafColumn], Codec]) -> Places:
        """How to compare the words of an expression."""
        columns = {column.expression: column for column in self.variables}
        [first, *_] = Shape(tuple(columns), self.widths, (), 1).places([expression])
        words = order_places(codec_of(columns[expression]), first)
        return [(place, kind + flags, operand) for place, kind, operand in words]


class StoreLayout(NamedTuple):
    """How a store is laid out: its indexes in their order, what is kept in them, and the width of its values."""

    indexes: tuple[tuple[str, ...], ...]
    summed: tuple[bool, ...]
    order: StoreOrder | None
    ranges: bool
    summaries: tuple[Summary, ...]
    boxes: StoreBoxes | None
    limbs: int

    @classmethod
    def of(cls, store: LeafStore) -> StoreLayout:
        """The layout of a store."""
        indexes, summed = tuple(store.indexes), tuple(store.summed)
        return cls(indexes, summed, store.order, store.ranges, store.summaries, store.boxes, store.limbs)

    def lay_out(self, store: LeafStore) -> None:
        """Let a store that has no table yet have this layout."""
        store.indexes, store.summed = list(self.indexes), list(self.summed)
        store.order, store.ranges, store.summaries = self.order, self.ranges, self.summaries
        store.boxes, store.limbs = self.boxes, self.limbs
