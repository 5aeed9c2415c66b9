"""A view's rows in SQL as Arrow: all of them, and those that an epoch has changed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlfront.maintenance.output.first_candidates import candidates, first_places, numbers_of
from sqlfront.maintenance.output.output import Reader, schema
from sqlfront.maintenance.output.reading import rows_of
from sqlfront.maintenance.output.row_program import Words, netted_words
from sqlfront.maintenance.program.netting import net
from sqlfront.maintenance.program.rows import BATCH
from sqlfront.maintenance.relation.bad_rows import uncomputable
from sqlfront.maintenance.relation.guards import in_order, unused_names
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import Limit, shown_places
from sqlfront.storage.codecs.arrow_batches import arrow_numbers, short_text
from sqlfront.storage.errors import DataError

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


def view_batches(
    view: MaintainedView, evaluate: Evaluate, raw: Iterable[pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """A view's SQL rows, one per copy; if raw rows are given, those that these make."""
    if raw is None and view.definition.limit is not None and rows_of(view).trees:
        yield from first_rows(view, view.definition.limit, evaluate)
        return
    for batch in Reader(view) if raw is None else raw:
        yield from sql_rows(view, evaluate, batch)[0].to_batches()


def scanned_batches(
    view: MaintainedView, evaluate: Evaluate, raw: Iterable[pa.RecordBatch] | None, computed: bool
) -> Iterator[pa.RecordBatch]:
    """What DuckDB scans for a view: SQL rows, if they are `computed` here, else raw ones, from which it computes them;
    all, or those that raw rows make."""
    if computed:
        return view_batches(view, evaluate, raw)
    return candidates(view, evaluate) if raw is None else iter(raw)


def scanned_schema(view: MaintainedView, evaluate: Evaluate, computed: bool) -> pa.Schema:
    """The Arrow schema of what DuckDB scans for a view."""
    return sql_schema(view, evaluate) if computed else schema(view)


def sql_schema(view: MaintainedView, evaluate: Evaluate) -> pa.Schema:
    """The Arrow schema of a view's SQL rows."""
    import pyarrow as pa

    if view.output_schema is None:
        sql_rows(view, evaluate, pa.Table.from_batches([], schema(view)))
    return view.output_schema


def is_straight(view: MaintainedView, evaluate: Evaluate) -> bool:
    """Whether each of a view's columns is a raw column or a constant, so that none is computed when it is read."""
    import pyarrow as pa

    if shown_places(view.definition) is None:
        return False
    sql_schema(view, evaluate)
    return _straight(view, pa.Table.from_batches([], schema(view))) is not None


def no_rows(view: MaintainedView, evaluate: Evaluate) -> pa.Table:
    """A view's SQL columns without a row."""
    import pyarrow as pa

    return pa.Table.from_batches([], sql_schema(view, evaluate))


def view_rows(view: MaintainedView, evaluate: Evaluate) -> pa.Table | None:
    """All of a view's SQL rows; None if there are none."""
    import pyarrow as pa

    batches = list(view_batches(view, evaluate))
    return pa.Table.from_batches(batches) if batches else None


def first_rows(view: MaintainedView, limit: Limit, evaluate: Evaluate) -> Iterator[pa.RecordBatch]:
    """The rows within a limit of a view that is sorted when it is read. O(rows log rows)."""
    import pyarrow as pa

    table = pa.Table.from_batches(candidates(view, evaluate), schema(view)).combine_chunks()
    for raw in table.to_batches():
        rows, visible = sql_rows(view, evaluate, raw)
        kept = pa.Table.from_batches([raw]).take(arrow_numbers(visible))
        first = first_places(view, kept, limit)
        if first is None:
            first = _numbered(view, kept, limit, evaluate)
        yield from rows.take(arrow_numbers(first)).combine_chunks().to_batches()


def _numbered(view: MaintainedView, rows: pa.Table, limit: Limit, evaluate: Evaluate) -> np.ndarray:
    """The places of the rows that a limit leaves, in order, by DuckDB. O(rows log rows)."""
    sorting = ", ".join(f"({expression}) {direction}" for expression, direction in view.definition.orders[0].sorting)
    number = limit.number(", ".join(f"({expression})" for expression in limit.by), sorting)
    places, numbers = numbers_of(view, rows, number, evaluate)
    within = (numbers > limit.offset) & (numbers <= (len(numbers) if limit.end is None else limit.end))
    return places[within][np.argsort(numbers[within], kind="stable")]


def sql_rows(view: MaintainedView, evaluate: Evaluate, raw: pa.RecordBatch | pa.Table) -> tuple[pa.Table, np.ndarray]:
    """A view's columns from its raw columns; and which of the rows HAVING lets through."""
    import pyarrow as pa

    definition = view.definition
    names = [name for name, _ in definition.columns]
    if not raw.num_rows and view.output_schema is not None:
        return pa.Table.from_batches([], view.output_schema), np.arange(0)
    if (rows := _straight(view, raw)) is not None:
        return rows, np.arange(raw.num_rows)
    types = {column.name: column.type for column in definition.raw} or {"no column": "TINYINT"}
    outputs = zip(definition.projection, definition.columns, strict=True)
    casts = [f"CAST({expression} AS {type_})" for expression, (_, type_) in outputs]
    filters = {}
    if definition.having:
        (name,) = unused_names(types, 1)
        filters = {name: in_order([definition.having])}
        casts = [*(f'CASE WHEN "{name}" THEN {cast} END' for cast in casts), f'"{name}"']
    try:
        rows = evaluate(raw, types, casts, filters, definition.settings)
    except DataError as error:
        raise uncomputable(view.name, "a row", error) from error
    visible = np.arange(raw.num_rows)
    if definition.having:
        visible = np.flatnonzero(rows.column(rows.num_columns - 1).to_numpy())
        rows = rows.select(range(rows.num_columns - 1)).take(arrow_numbers(visible))
    rows = rows.rename_columns(names)
    view.output_schema, view.output_row = rows.schema, rows.take(pa.array([0])) if len(rows) else view.output_row
    return rows, visible


def sql_rows_of_all(
    view: MaintainedView, evaluate: Evaluate, raw: Sequence[pa.RecordBatch]
) -> tuple[pa.Table, np.ndarray]:
    """`sql_rows` of all these batches, one after the other: in one query, if they have one schema and are few."""
    import pyarrow as pa

    if sum(one.num_rows for one in raw) <= BATCH and all(one.schema == raw[0].schema for one in raw):
        return sql_rows(view, evaluate, pa.Table.from_batches(raw).combine_chunks())
    found = [sql_rows(view, evaluate, one) for one in raw]
    starts = np.cumsum([0, *(one.num_rows for one in raw)])
    places = [start + visible for start, (_, visible) in zip(starts, found, strict=False)]
    return pa.concat_tables([rows for rows, _ in found]), np.concatenate(places)


def _straight(view: MaintainedView, raw: pa.RecordBatch | pa.Table) -> pa.Table | None:
    """A view's columns where each is a raw column or a constant. DuckDB has told the constants' types and values once.
    Texts and decimals are cast: they are few."""
    import pyarrow as pa

    places, schema, row = shown_places(view.definition), view.output_schema, view.output_row
    if places is None or schema is None or (row is None and None in places):
        return None
    arrays = []
    for number, (place, type_) in enumerate(zip(places, schema.types, strict=True)):
        if place is None:
            assert row is not None
            arrays.append(row.column(number).take(arrow_numbers(np.zeros(raw.num_rows, np.int64))))
            continue
        array = as_shown(raw.column(place), type_)
        if array is None:
            return None
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def as_shown(array: Any, type_: pa.DataType) -> Any:
    """A raw column in the type in which DuckDB shows it; None if it takes more than another width of texts or
    decimals."""
    import pyarrow as pa

    own = array.type
    if own == type_:
        return array
    if type_ == pa.string() and isinstance(array, pa.LargeStringArray):
        return short_text(array)
    short = type_ == pa.string() and array.nbytes < 2**31
    wider = pa.types.is_decimal(own) and pa.types.is_decimal(type_) and own.scale == type_.scale
    if short or (wider and own.precision == type_.precision):
        array = array.cast(type_)
    return array if array.type == type_ else None


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
