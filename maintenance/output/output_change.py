"""The rows of a view that an epoch has changed, in SQL as Arrow, and the images of them that a feed has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sqlfront.maintenance.output.row_program import Words, netted_words
from sqlfront.maintenance.output.sql_rows import view_rows
from sqlfront.maintenance.program.netting import net
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.storage.codecs.arrow_batches import arrow_numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate, Relation


class Stamps(NamedTuple):
    """What stands behind a view's columns: the change type of each row, and the epoch's number and its time, in
    microseconds since 1970 in UTC."""

    types: pa.Array
    version: int
    moment: int


INSERT, DELETE, UPDATE_PREIMAGE, UPDATE_POSTIMAGE = range(4)
_MOST_REPEATED, _FEW_KINDS = 65536, 4
_NO_TYPES: Mapping[str, str] = {}
CHANGE_TYPES = ("insert", "delete", "update_preimage", "update_postimage")


class OutputChange:
    """Changed rows of a view: each of `rows` is there `weights` times more (or, negative, less) than before.

    `kinds` are positions in CHANGE_TYPES. The two images of a changed row are adjacent, the former one first.
    """

    lasts = True
    """Whether the rows can still be made when dictionaries and stores have changed."""

    def __init__(self, rows: pa.Table, weights: np.ndarray, kinds: np.ndarray) -> None:
        self.rows, self._weights, self._kinds = rows, weights, kinds

    @property
    def weights(self) -> np.ndarray:
        return self._weights

    @property
    def kinds(self) -> np.ndarray:
        return self._kinds

    def __len__(self) -> int:
        return len(self.weights)

    def only_kind(self) -> int | None:
        """The kind of all rows, if each comes or goes once and they are of one kind. There must be rows."""
        kind = int(self.kinds[0])
        return kind if (np.abs(self.weights) == 1).all() and (self.kinds == kind).all() else None

    @property
    def copies(self) -> int:
        """How many rows feeds are told."""
        return int(np.abs(self.weights).sum())

    def stamped(self, stamps: Stamps, types: Mapping[str, str] | None = None) -> pa.Table:
        """The rows with columns behind the view's; in plain types if DuckDB's `types` of columns are given."""
        table = with_columns(self.rows, stamps)
        return table if types is None else plain(table, types)

    def bytes(self) -> int:
        """The memory of the change."""
        return int(self.rows.nbytes + self.weights.nbytes + self.kinds.nbytes)

    def encode(self, relation: Relation) -> np.ndarray:
        """The change as encoded rows of the relation that has the view's rows."""
        return relation.encode(self.rows, self.weights)

    def weighted(self, types: Mapping[str, str] = _NO_TYPES) -> pa.Table:
        """The rows with their weights as column `_weight`, in plain types; `types` are DuckDB's."""

        return plain(self.rows, types).append_column("_weight", arrow_numbers(self.weights))


class EncodedChange(OutputChange):
    """Inserted and deleted rows in words, which are decoded when somebody asks for them, before dictionaries are swept.

    `words` makes the columns, in their order. `decode` makes the rows, with columns behind the view's. `kinds` are
    told if rows have images. If it `repeats`, equal rows may be there more than once, all with weights of one sign.
    """

    lasts = False

    def __init__(
        self,
        words: Callable[[], Words],
        weights: np.ndarray,
        decode: Callable[[Stamps | None], pa.Table],
        *,
        kinds: np.ndarray | None = None,
        repeats: bool = False,
    ) -> None:
        self._make_words, self._decode, self._weights, self._repeats = words, decode, weights, repeats
        self._told_kinds = kinds

    @property
    def kinds(self) -> np.ndarray:
        return np.where(self.weights > 0, INSERT, DELETE) if self._told_kinds is None else self._told_kinds

    @functools.cached_property
    def _words(self) -> Words:
        return self._make_words()

    @functools.cached_property
    def rows(self) -> pa.Table:
        return self._decode(None)

    def stamped(self, stamps: Stamps, types: Mapping[str, str] | None = None) -> pa.Table:
        table = with_columns(self.rows, stamps) if "rows" in vars(self) else self._decode(stamps)
        return table if types is None else plain(table, types)

    def bytes(self) -> int:
        words = sum(word.nbytes for _, words in self._words.values() for word in words)
        return int(words + 2 * self.weights.nbytes)

    def encode(self, relation: Relation) -> np.ndarray:
        if not len(self):
            return np.empty((0, relation.width), np.int64)
        own, weights = netted_words(self._words, self.weights) if self._repeats else (self._words, self.weights)
        data = np.empty((len(weights), relation.width), np.int64)
        data[:, -1] = weights
        named = dict(zip((column.name for column in relation.columns), own.values(), strict=True))
        for item in relation.inputs.values():
            if item.source is None:
                continue
            codec, words = named[item.source]
            if item.codec is None or codec.type != item.codec.type:
                return super().encode(relation)
            for number, word in enumerate(words):
                data[:, item.place + number] = word
        return data if relation.compute(data) else super().encode(relation)

    def weighted(self, types: Mapping[str, str] = _NO_TYPES) -> pa.Table:
        return netted(self.rows, self.weights).weighted(types) if self._repeats else super().weighted(types)


def netted(rows: pa.Table, weights: np.ndarray) -> OutputChange:
    """Rows with weights as a change: equal rows once, without those whose weights cancel."""

    if rows.num_columns:
        positions, weights = net(rows.columns, weights)
        rows = rows.take(arrow_numbers(positions))
    return OutputChange(rows, weights, np.where(weights > 0, INSERT, DELETE))


def images(change: OutputChange, version: int, moment: int, types: Mapping[str, str] | None = None) -> pa.Table:
    """The change as feed rows, one per copy: the view's columns, _change_type, _commit_version, _commit_timestamp. The
    last is `moment`, in microseconds since 1970 in UTC. In plain types if DuckDB's `types` of columns are given."""
    if (kind := change.only_kind()) is not None:
        return change.stamped(Stamps(_repeated(kind, len(change)), version, moment), types)
    kinds = change.kinds
    if change.copies == len(change):
        return change.stamped(Stamps(types_of(kinds), version, moment), types)
    places = np.repeat(np.arange(len(change)), np.abs(change.weights))
    rows, kinds = change.rows.take(arrow_numbers(places)), kinds[places]
    table = with_columns(rows, Stamps(types_of(kinds), version, moment))
    return table if types is None else plain(table, types)


def snapshot_images(view: MaintainedView, evaluate: Evaluate, version: int, moment: int) -> pa.Table | None:
    """All rows of a view as inserts; None if it has none. O(rows)."""
    rows = view_rows(view, evaluate)
    if rows is None or not rows.num_rows:
        return None
    return with_columns(rows, Stamps(_repeated(INSERT, rows.num_rows), version, moment))


@functools.cache
def _change_types() -> pa.Array:
    import pyarrow as pa

    return pa.array(CHANGE_TYPES)


def types_of(kinds: np.ndarray) -> pa.Array:
    """The names of change types."""
    if len(kinds) <= _FEW_KINDS:
        return _few_types(kinds.astype(np.int8).tobytes())
    return _change_types().take(arrow_numbers(kinds))


@functools.lru_cache(1024)
def _few_types(kinds: bytes) -> pa.Array:
    import pyarrow as pa

    return pa.array([CHANGE_TYPES[kind] for kind in kinds], pa.string())


def _repeated(kind: int, rows: int) -> pa.Array:
    """The name of a change type for each of so many rows."""
    import pyarrow as pa

    if rows <= _FEW_KINDS:
        return _few_types(bytes((kind,)) * rows)
    if rows > _MOST_REPEATED:
        return pa.repeat(CHANGE_TYPES[kind], rows)
    return _most_repeated(kind).slice(0, rows)


@functools.cache
def _most_repeated(kind: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(CHANGE_TYPES[kind], _MOST_REPEATED)


def is_plain(type_: str) -> bool:
    """Whether `plain` leaves columns of a DuckDB type as they are."""
    from sqlfront.storage.codecs.transport import is_carried

    return type_ != "HUGEINT" and not is_carried(type_)


def plain(table: pa.Table, types: Mapping[str, str] = _NO_TYPES) -> pa.Table:
    """Columns as Arrow has them, in place of what DuckDB restores its own from: HUGEINT as decimals of 38 digits, and
    UNIONs and VARIANTs, which `types` tells. O(columns), and O(rows) where there are such."""
    import pyarrow as pa

    from sqlfront.storage.codecs.casting import in_own_types

    table = in_own_types(table, types)
    for place, kind in enumerate(table.schema.types):
        if getattr(kind, "type_name", None) == "hugeint":
            column, name = table.column(place), table.column_names[place]
            type_, chunks = pa.decimal128(38, 0), [chunk.storage for chunk in column.chunks]
            views = [pa.Array.from_buffers(type_, len(c), c.buffers(), offset=c.offset) for c in chunks]
            table = table.set_column(place, name, pa.chunked_array(views, type_))
    return table


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that `plain` gives columns without UNIONs and VARIANTs."""
    import pyarrow as pa

    own = (field.name if getattr(field.type, "type_name", None) == "hugeint" else None for field in schema)
    wide = pa.decimal128(38, 0)
    return pa.schema([field if name is None else pa.field(name, wide) for name, field in zip(own, schema)])


def stamp_columns(stamps: Stamps) -> Sequence[tuple[str, pa.Array]]:
    """The columns that tell what each row is, the same epoch and time for all."""
    import pyarrow as pa

    return (
        ("_change_type", stamps.types),
        ("_commit_version", _constants(pa.int64(), stamps.version, len(stamps.types))),
        ("_commit_timestamp", _constants(pa.timestamp("us"), stamps.moment, len(stamps.types))),
    )


def stamped_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a view's rows with stamps."""
    import pyarrow as pa

    for name, column in stamp_columns(Stamps(_change_types(), 0, 0)):
        schema = schema.append(pa.field(name, column.type))
    return schema


def with_columns(rows: pa.Table, stamps: Stamps | None) -> pa.Table:
    """Rows with columns behind their own, if there are stamps."""
    for name, column in () if stamps is None else stamp_columns(stamps):
        rows = rows.append_column(name, column)
    return rows


def _constants(type_: pa.DataType, word: int, rows: int) -> pa.Array:
    """A word of 64 bits for each of so many rows. Arrow's own `repeat` takes four times as long."""
    import pyarrow as pa

    words = np.empty(rows, np.int64)
    words.fill(word)
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(words)])
