"""A base table as the engine sees it: its columns, the leaf stores that views read, and its one program.

A change to the table is encoded once, whatever the number of views: every column, computed column,
factor and predicate that some store needs is one or more words of a row-major array, the weight last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.programs import Assembler
from sqlfront.maintenance.program.shapes import Shape
from sqlfront.maintenance.relation.bad_rows import blamed
from sqlfront.maintenance.relation.expressions import Computation, Expressions
from sqlfront.maintenance.relation.guards import Evaluate as Evaluate
from sqlfront.maintenance.relation.guards import encode_items, set_guards
from sqlfront.maintenance.relation.leaf_store import Input as Input
from sqlfront.maintenance.relation.leaf_store import LeafStore as LeafStore
from sqlfront.maintenance.relation.leaf_store import StoreBoxes as StoreBoxes
from sqlfront.maintenance.relation.leaf_store import StoreLayout
from sqlfront.maintenance.relation.leaf_store import StoreOrder as StoreOrder
from sqlfront.maintenance.relation.leaf_store import Summary as Summary
from sqlfront.maintenance.relation.waiting import Waiting
from sqlfront.planner.model.query import LeafColumn
from sqlfront.storage.canonical_text import canonical
from sqlfront.storage.codecs.casting import Settings
from sqlfront.storage.codecs.encoding import Codec, Dictionaries, codec_for
from sqlfront.storage.codecs.pack import is_declared, pack, whole_number_code
from sqlfront.storage.codecs.sums import FactorRange, encode_factor
from sqlfront.storage.errors import DataError, IntegrityError
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.sql_text import quote
from sqlfront.storage.stores.row_addresses import address_of
from sqlfront.storage.stores.table import Table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """A column of a base table; `type` is DuckDB's name for its type."""

    name: str
    type: str
    not_null: bool = False


class Relation:
    """One base table. `retain`: its own rows are kept here, so absent deletes are caught and new views can be built.

    `passed` says that a transaction wrote rows, `counter` holds the number of changes, where kernels add to it,
    `loaded` how many of them came in loads (`is_load` of maintenance/epoch.py).
    `fed_by` are the views, by name, whose rows, together, are its own. `guarded`: an item failed on some row since the
    items last changed (`relation/guards.py`). The changes of `copy_of` wait until the view `owner` is read (`waiting`).
    New stores have the `layouts` of those of a snapshot, by the texts of their keys.
    """

    def __init__(
        self, name: str, columns: Sequence[Column], retain: bool, dictionaries: Dictionaries, evaluate: Evaluate,
        layouts: Mapping[str, StoreLayout] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.columns, self.retain = name, tuple(columns), retain
        self.dictionaries, self.evaluate, self._layouts = dictionaries, evaluate, layouts or {}
        self.inputs: dict[tuple[str, str, str, Settings], Input] = {}
        self.stores: dict[tuple[Any, ...], LeafStore] = {}
        self.computation: Computation | None = None
        self._expressions = Expressions(self.columns, dictionaries, evaluate)
        self.passed = self.guarded = self.has_dictionaries = False
        self.width, self.loaded = 1, 0
        self.counter = np.zeros(1, np.int64)
        self.fed_by: tuple[str, ...] = ()
        self.copy_of, self.owner = "", ""
        self.waiting: Waiting | None = None
        self.base: LeafStore | None = None
        if retain:
            self.base = self.open_store(tuple(map(_plain, self.columns)), (), (), (), "base")
            self.base.users.add("")

    @property
    def is_base(self) -> bool:
        """Whether its changes come from outside: it is a table or a clock."""
        return not (self.is_view or self.copy_of)

    @property
    def is_view(self) -> bool:
        """Whether its rows are those of views."""
        return bool(self.fed_by)

    @property
    def changes(self) -> int:
        """How many changes of rows, net or not, have been committed."""
        return int(self.counter[0])

    @changes.setter
    def changes(self, number: int) -> None:
        self.counter[0] = number

    def open_store(
        self,
        variables: Sequence[LeafColumn],
        factors: Sequence[LeafColumn],
        conditions: Sequence[str],
        required: Iterable[str],
        copy: int | str,
        settings: Settings = (),
        copies: LeafColumn | None = None,
    ) -> LeafStore:
        """The store of these columns, made empty if it is not there. `conditions`, `required` are expressions."""
        if copy != "base":
            variables = sorted(variables, key=lambda c: c.expression)
        factors = sorted(factors, key=lambda c: c.expression)
        required = tuple(sorted(required))
        signature = tuple((c.expression, c.type) for c in variables)
        conditions = tuple(conditions)
        if not (conditions or copies) and all(c.source or c.presence_of for c in (*variables, *factors)):
            settings = ()  # Nothing is computed.
        added = tuple((c.expression, c.type) for c in factors)
        key = (signature, added, conditions, required, copy, settings, copies)
        if key not in self.stores:
            codecs = [codec_for(c.type, self.dictionaries) for c in variables]
            widths = tuple(codec.words for codec in codecs)
            summed = tuple({factor.expression: factor for factor in factors}.values())
            empty = Table(0, 1)
            store = LeafStore(key, tuple(variables), summed, conditions, required, empty, widths, settings, copies)
            if self._layouts and (layout := self._layouts.get(canonical(key))) is not None:
                layout.lay_out(store)
            store.table = self._table(store, store.limbs)
            self._need_inputs(store)
            self.stores[key] = store
            self._place_inputs()
        return self.stores[key]

    def reindex(
        self,
        store: LeafStore,
        indexes: Sequence[tuple[str, ...]],
        summed: Sequence[bool],
        order: StoreOrder | None = None,
        ranges: bool = False,
        summaries: Sequence[Summary] = (),
        boxes: StoreBoxes | None = None,
    ) -> bool:
        """Give a store more groupings (by expressions), and the `order` of one of them unless it has another. With
        `ranges` the order's tree has sums over ranges, with `summaries` subtree summaries. A store without boxes gets
        `boxes`. Returns whether the store has a new, empty table, which the caller fills."""
        fits = store.order in (None, order)
        more = [one for one in summaries if fits and one not in store.summaries]
        ranges = ranges and fits
        changed = bool(more) or (order is not None and store.order is None) or (ranges and not store.ranges)
        store.order, store.ranges = store.order or order, store.ranges or ranges
        store.summaries = (*store.summaries, *more)
        changed |= boxes is not None and store.boxes is None
        store.boxes = store.boxes or boxes
        for index, wanted in zip(indexes, summed, strict=True):
            if index not in store.indexes:
                store.indexes.append(index)
                store.summed.append(wanted)
                changed = True
            elif wanted and not store.summed[store.indexes.index(index)]:
                store.summed[store.indexes.index(index)] = True
                changed = True
        if changed:
            store.table = self._table(store, store.limbs)
        return changed

    def pass_on(self, store: LeafStore) -> None:
        """Keep the rows of a store no longer."""
        store.stateless = True
        store.table.release()
        store.table = self._table(store, store.limbs)

    def close_store(self, store: LeafStore, user: str) -> None:
        """Forget a user of a store; the last one takes it, and inputs that nobody else needs, with it."""
        store.users.discard(user)
        if not store.users:
            del self.stores[store.key]
            self._place_inputs()

    def encode(self, rows: pa.Table | pa.RecordBatch, weights: np.ndarray | None) -> np.ndarray:
        """Rows of the table (its columns, by position) as words, shape (rows, self.width).

        Raises FactorRange before anything else changes if a value does not fit its factor's present range.
        """
        count = rows.num_rows
        data = np.empty((count, self.width), np.int64)
        if weights is None:
            data[:, -1] = 1
        elif count and weights.min() == at.NULL_CODE:
            why, hint = "an epoch must be able to be taken back", "delete fewer rows at once"
            raise DataError("a weight of -2^63", why=why, hint=hint)
        else:
            data[:, -1] = weights
        try:
            encode_items(self, rows, data)
        except DataError as error:
            raise blamed(self, rows, error) from error
        return data

    def encode_row(self, code: Callable[[str, Codec], Sequence[int]], weight: int) -> np.ndarray | None:
        """One row, whose value in a column has the code that `code` tells; None if it needs the batch path."""
        if not self.computable:
            return None
        data = np.empty((1, self.width), np.int64)
        for item in self.inputs.values():
            if item.source is not None and item.codec is not None:
                data[0, item.place : item.place + item.words] = code(item.source, item.codec)
        data[0, -1] = weight
        return data if self.compute(data) else None

    @property
    def computable(self) -> bool:
        """Whether a row's words are codes of its values and what `computation` makes of these."""
        plain = all(item.kind == "key" for item in self.inputs.values() if item.source is not None)
        return plain and (self.computation is not None or all(item.source is not None for item in self.inputs.values()))

    def check_row(self, row: Sequence[Any], weight: int) -> None:
        """Raise DataError unless a row has one value per column, no NULL where the table forbids it, and a weight."""
        if len(row) != len(self.columns):
            raise DataError(
                f"{self.name} has {len(self.columns)} columns, the row has {len(row)} values",
                hint="give them in the table's column order: " + ", ".join(c.name for c in self.columns),
            )
        for column, value in zip(self.columns, row, strict=True):
            if value is None and column.not_null:
                raise IntegrityError(f"column {column.name} of {self.name} is NOT NULL", hint="give a value")
        if not isinstance(weight, int) or not -at.NULL_CODE > weight > at.NULL_CODE:
            raise DataError(f"a weight of {weight!r}", hint="weights are whole numbers of less than 64 bits")

    def as_batch(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Rows of Python values as Arrow, cast as the columns' types say."""
        import pyarrow as pa

        arrays = []
        for place, column in enumerate(self.columns):
            codec = codec_for(column.type, self.dictionaries)
            words = zip(*(codec.encode_value(row[place]) for row in rows), strict=True)
            arrays.append(codec.decode([np.array(word, np.int64) for word in words]))
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.columns])

    def as_declared(self, rows: pa.Table) -> pa.Table:
        """Rows of the table, whatever Arrow types they came in, in those that DuckDB has for the columns' types."""
        import pyarrow as pa

        cast = self.dictionaries.caster.cast
        columns = [
            values if is_declared(column.type, values.type) else cast(values, column.type)
            for column, values in zip(self.columns, rows.columns, strict=True)
        ]
        return pa.table(columns, names=[column.name for column in self.columns])

    def lift(self, assembler: Assembler, store: LeafStore) -> None:
        """Add the operation that makes a store's delta from encoded rows."""
        keys: list[int] = []
        for column in store.variables:
            item = store.inputs["key " + column.expression]
            keys += range(item.place, item.place + item.words)
        predicate = store.inputs["predicate"].place if store.predicate else -1
        required = [store.inputs["key " + expression].place for expression in store.required]
        factors = []
        for column in store.factors:
            item = store.inputs["factor " + column.expression]
            kind = at.FACTOR_LIMBS
            if item.kind == "key":
                kind = at.FACTOR_PRESENCE if column.presence_of else at.FACTOR_CODE
            factors.append((kind, item.place, item.limbs))
        copies = store.inputs["copies"].place if store.copies is not None else -1
        assembler.lift(self.width, store.limbs, predicate, required, keys, factors, copies)

    def delta_copy(self, store: LeafStore) -> Table:
        """An empty table laid out and indexed as a store's, which counts no references."""
        return self._table(store, store.limbs, refer=False)

    def _table(self, store: LeafStore, limbs: int, *, refer: bool = True) -> Table:
        places = Shape(tuple(c.expression for c in store.variables), store.widths, (), 1).places
        references = []
        for column, codec in zip(store.variables, map(self._codec, store.variables), strict=True):
            if refer and codec.dictionary is not None:
                references.append((places([column.expression])[0], int(codec.dictionary.header.ctypes.data)))
        values = 1 + len(store.factors)
        return Table(
            sum(store.widths),
            values,
            limbs,
            [places(index) for index in store.indexes],
            [values if summed else 0 for summed in store.summed],
            references,
            name=self.name,
            order=store.ordered(self._codec),
            ranges=store.ranges,
            summaries=store.summarised(self._codec),
            boxes=store.boxed(self._codec),
        )

    def _codec(self, column: LeafColumn) -> Codec:
        return codec_for(column.type, self.dictionaries)

    def _need_inputs(self, store: LeafStore) -> None:
        for column in store.variables:
            store.inputs["key " + column.expression] = self._input("key", column, store.settings)
        for column in store.factors:
            store.inputs["factor " + column.expression] = self._factor_input(column, store.settings)
        if store.copies is not None:
            store.inputs["copies"] = self._input("key", store.copies, store.settings)
        if store.predicate:
            predicate = LeafColumn("", store.predicate, "BOOLEAN")
            store.inputs["predicate"] = self._input("predicate", predicate, store.settings)
            store.inputs["predicate"].conditions = store.conditions

    def _factor_input(self, column: LeafColumn, settings: Settings) -> Input:
        """A factor that is a plain whole-number column, or tells its presence, shares that column's key words."""
        name = column.presence_of or column.source
        if name is not None:
            source = next(c for c in self.columns if c.name == name)
            if column.presence_of or whole_number_code(source.type):
                return self._input("key", _plain(source))
        return self._input("factor", column, settings)

    def _input(self, kind: str, column: LeafColumn, settings: Settings = ()) -> Input:
        text = quote(column.source) if column.source is not None else column.expression
        item = Input(kind, column.expression, column.type, column.source, () if column.source is not None else settings)
        if kind == "key":
            item.codec = codec_for(column.type, self.dictionaries)
            item.words = item.codec.words
        return self.inputs.setdefault((kind, text, column.type, item.settings), item)

    def _place_inputs(self) -> None:
        """Keep the items that stores use, add the columns that computing them reads, and settle all places."""
        used = {id(item) for store in self.stores.values() for item in store.inputs.values()}
        self.inputs = {key: item for key, item in self.inputs.items() if id(item) in used}
        former = self.computation
        self.computation = self._expressions.translate([item for item in self.inputs.values() if item.source is None])
        for column in self.computation.reads if self.computation else ():
            self._input("key", _plain(column))
        if former is not None:
            former.release()
        order = {column.name: number for number, column in enumerate(self.columns)}
        # In the order of the table's columns, what is computed last: a row's values can then be taken as they come.
        by_column = sorted(self.inputs.items(), key=lambda pair: order.get(pair[1].source or "", len(order)))
        self.inputs = dict(by_column)
        place = 0
        self.has_dictionaries = any(
            i.codec is not None and i.codec.dictionary is not None for i in self.inputs.values()
        )
        for item in self.inputs.values():
            item.place, item.stored = place, id(item) in used
            if item.kind == "factor":
                item.words = item.limbs
            place += item.words
        self.width = place + 1
        set_guards(self.stores.values())
        self.guarded = False
        if self.computation is not None:
            items = [item for item in self.inputs.values() if item.kind == "key"]
            self.computation.place({item.source: item.place for item in items if item.source is not None})

    def brings_texts(self, rows: int, column: Callable[[str], pa.Array | pa.ChunkedArray]) -> bool:
        """Whether DuckDB better computes so many rows, whose columns are told: many have texts for which expressions
        are not memoized. O(1)."""
        return self.computation is not None and self.computation.lacks_most(rows, column)

    def compute(self, data: np.ndarray) -> bool:
        """Fill in the computed items of encoded rows; False if DuckDB has to."""
        if self.computation is not None:
            return self.computation.run(address_of(data), self.width, len(data))
        return all(item.source is not None for item in self.inputs.values())

    def encode_item(self, item: Input, column: Any, data: np.ndarray) -> None:
        """Fill in the words of one item from its values."""
        if item.kind == "key":
            assert item.codec is not None
            if not pack(item.codec, column, data, item.place):
                for j, words in enumerate(item.codec.encode(column)):
                    data[:, item.place + j] = words
        elif item.kind == "predicate":
            data[:, item.place] = column.to_numpy(zero_copy_only=False) if hasattr(column, "type") else column
        else:
            try:
                data[:, item.place : item.place + item.limbs] = encode_factor(column, item.type, item.limbs, item.shift)
            except FactorRange as needed:
                raise Rescale(self, item, max(needed.limbs, item.limbs), max(needed.shift, item.shift)) from None

    def rescale(self, item: Input, limbs: int, shift: int) -> None:
        """Give a factor more limbs or a finer unit; the caller rescales what has been summed."""
        item.limbs, item.shift = limbs, shift
        self._place_inputs()


class Rescale(Exception):
    """A factor's value needs `limbs` limbs or the unit 2**-shift; nothing has been changed yet."""

    def __init__(self, relation: Relation, item: Input, limbs: int, shift: int) -> None:
        super().__init__(item.expression)
        self.relation, self.item, self.limbs, self.shift = relation, item, limbs, shift


def _plain(column: Column) -> LeafColumn:
    """A column of the table as it is."""
    return LeafColumn(column.name, quote(column.name), column.type, column.name)
