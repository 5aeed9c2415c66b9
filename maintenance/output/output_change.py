"""What an epoch changed in a view's rows, as Arrow: from its output delta to rows that come and rows that go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.distinct_change import changed_groups, rewound
from sqlfront.maintenance.output.output import Reader, raw_batch, schema
from sqlfront.maintenance.output.reading import merging, trees_read
from sqlfront.maintenance.program.machine import Machine
from sqlfront.maintenance.program.netting import net
from sqlfront.maintenance.program.shapes import COUNT, Part
from sqlfront.maintenance.ranked.exact import numbers
from sqlfront.maintenance.relation.guards import in_order, unused_names
from sqlfront.maintenance.tree.view_tree import Tree
from sqlfront.maintenance.view.emission import Factor, OutputDelta, factors
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.planner.model.query import Limit, output_keys, raw_places, shown_tuple
from sqlfront.storage.codecs.sums import combine
from sqlfront.storage.kernels import layout as at
from sqlfront.storage.kernels.programs import scan
from sqlfront.storage.kernels.tables import key_lookups

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.relation.base_relation import Evaluate


INSERT, DELETE, UPDATE_PREIMAGE, UPDATE_POSTIMAGE = range(4)
_PLACE = "place in the batch"
CHANGE_TYPES = ("insert", "delete", "update_preimage", "update_postimage")


class OutputChange:
    """Changed rows of a view: each of `rows` is there `weights` times more (or, negative, less) than before.

    `kinds` are positions in CHANGE_TYPES. The two images of a changed row are adjacent, the former one first.
    """

    def __init__(self, rows: pa.Table, weights: np.ndarray, kinds: np.ndarray) -> None:
        self.rows, self.weights, self.kinds = rows, weights, kinds

    def __len__(self) -> int:
        return len(self.weights)

    def weighted(self) -> pa.Table:
        """The rows with their weights as column `_weight`, in plain types."""
        import pyarrow as pa

        return plain(self.rows).append_column("_weight", pa.array(self.weights))


def read_change(view: MaintainedView, machine: Machine, evaluate: Evaluate) -> OutputChange:
    """The view's change since its output delta was cleared, netted. `evaluate` computes SQL over raw columns.

    To be called when the epoch has been applied and before anything else is. O(tuples changed).
    """
    if view.top is not None:
        return _compared(view, view.top.change(lambda: view_rows(view, evaluate)))
    assert view.delta is not None
    gathered = _Gathered(view, view.delta, machine)
    if view.definition.mode == "bag":
        counts = numbers(gathered.rows("change"), COUNT)
        rows, visible = _output(view, evaluate, gathered, "change", np.arange(len(counts)))
        return _netted(view, rows, counts[visible])
    before, after = gathered.live("before"), gathered.live("after")
    with rewound(view, machine):
        gone, old = _output(view, evaluate, gathered, "before", before)
    come, new = _output(view, evaluate, gathered, "after", after)
    return _paired(view, gone, before[old], come, after[new])


def view_batches(
    view: MaintainedView, evaluate: Evaluate, raw: Iterable[pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """A view's SQL rows, one per copy; if raw rows are given, those that these make."""
    if raw is None and view.definition.limit is not None and not view.plan.ranked_only:
        yield from first_rows(view, view.definition.limit, evaluate)
        return
    for batch in Reader(view) if raw is None else raw:
        yield from sql_rows(view, evaluate, batch)[0].to_batches()


def sql_schema(view: MaintainedView, evaluate: Evaluate) -> pa.Schema:
    """The Arrow schema of a view's SQL rows."""
    import pyarrow as pa

    if view.output_schema is None:
        sql_rows(view, evaluate, pa.Table.from_batches([], schema(view)))
    return view.output_schema


def view_rows(view: MaintainedView, evaluate: Evaluate) -> pa.Table | None:
    """All of a view's SQL rows; None if there are none."""
    import pyarrow as pa

    batches = list(view_batches(view, evaluate))
    return pa.Table.from_batches(batches) if batches else None


def first_rows(view: MaintainedView, limit: Limit, evaluate: Evaluate) -> Iterator[pa.RecordBatch]:
    """The rows within a limit of a view that is sorted when it is read. O(rows log rows)."""
    import pyarrow as pa

    table = pa.Table.from_batches(list(Reader(view)), schema(view)).combine_chunks()
    for raw in table.to_batches():
        rows, visible = sql_rows(view, evaluate, raw)
        items = view.definition.orders[0].sorting
        sorting = ", ".join(f"({expression}) {direction}" for expression, direction in items)
        kept = pa.Table.from_batches([raw]).take(pa.array(visible))
        kept = kept.append_column(_PLACE, pa.array(np.arange(len(visible))))
        types = {column.name: column.type for column in view.definition.raw} | {_PLACE: "BIGINT"}
        number = limit.number(", ".join(f"({expression})" for expression in limit.by), sorting)
        found = evaluate(kept, types, [f'"{_PLACE}"', number], settings=view.definition.settings)
        places, numbers = (column.to_numpy() for column in found.columns)
        within = (numbers > limit.offset) & (numbers <= (len(numbers) if limit.end is None else limit.end))
        first = places[within][np.argsort(numbers[within], kind="stable")]
        yield from rows.take(pa.array(first)).combine_chunks().to_batches()


def sql_rows(view: MaintainedView, evaluate: Evaluate, raw: pa.RecordBatch | pa.Table) -> tuple[pa.Table, np.ndarray]:
    """A view's columns from its raw columns; and which of the rows HAVING lets through."""
    import pyarrow as pa

    definition = view.definition
    names = [name for name, _ in definition.columns]
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
    rows = evaluate(raw, types, casts, filters, definition.settings)
    visible = np.arange(raw.num_rows)
    if definition.having:
        visible = np.flatnonzero(rows.column(rows.num_columns - 1).to_numpy())
        rows = rows.select(range(rows.num_columns - 1)).take(pa.array(visible))
    rows = rows.rename_columns(names)
    view.output_schema = rows.schema
    return rows, visible


def _straight(view: MaintainedView, raw: pa.RecordBatch | pa.Table) -> pa.Table | None:
    """A view's columns where they are raw columns and DuckDB has once told their types; texts are cast, being few."""
    import pyarrow as pa

    places, schema = raw_places(view.definition), view.output_schema
    if places is None or schema is None:
        return None
    arrays = []
    for place, type_ in zip(places, schema.types, strict=True):
        array = raw.column(place)
        if array.type != type_ and type_ == pa.string() and array.nbytes < 2**31:
            array = array.cast(type_)
        if array.type != type_:
            return None
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def _output(
    view: MaintainedView, evaluate: Evaluate, gathered: _Gathered, when: str, picked: np.ndarray
) -> tuple[pa.Table, np.ndarray]:
    """The SQL rows of the tuples at `picked`, and which of those HAVING lets through."""
    return sql_rows(view, evaluate, raw_batch(view, gathered.rows(when, picked), len(picked)))


def _compared(view: MaintainedView, found: tuple[pa.Table, np.ndarray] | None) -> OutputChange:
    import pyarrow as pa

    if found is None:
        return OutputChange(pa.table({}), np.empty(0, np.int64), np.empty(0, np.int64))
    positions, weights = net(found[0].columns, found[1])
    return OutputChange(found[0].take(pa.array(positions)), weights, np.where(weights > 0, INSERT, DELETE))


def _netted(view: MaintainedView, rows: pa.Table, weights: np.ndarray) -> OutputChange:
    import pyarrow as pa

    if view.definition.mode != "bag" or shown_tuple(view.definition) is None:
        positions, weights = net(rows.columns, weights)
        rows = rows.take(pa.array(positions))
    return OutputChange(rows, weights, np.where(weights > 0, INSERT, DELETE))


def _paired(
    view: MaintainedView, gone: pa.Table, gone_tuples: np.ndarray, come: pa.Table, come_tuples: np.ndarray
) -> OutputChange:
    """Rows that went and came; those of one tuple are a pair if the tuple tells the view's rows apart."""
    import pyarrow as pa

    rows = pa.concat_tables([gone, come])
    tuples = np.concatenate([gone_tuples, come_tuples])
    weights = np.repeat(np.array([-1, 1]), [len(gone_tuples), len(come_tuples)])
    if not output_keys(view.definition):
        return _netted(view, rows, weights)
    positions, sums = net([pa.array(tuples), *rows.columns], weights)
    order = np.lexsort((sums, tuples[positions]))
    positions, sums = positions[order], sums[order]
    same = tuples[positions]
    paired = np.zeros(len(same), bool)
    paired[:-1] = same[:-1] == same[1:]
    paired[1:] |= paired[:-1]
    kinds = np.where(sums > 0, INSERT, DELETE)
    kinds[paired] = np.where(sums > 0, UPDATE_POSTIMAGE, UPDATE_PREIMAGE)[paired]
    return OutputChange(rows.take(pa.array(positions)), sums, kinds)


class _Gathered:
    """An output delta read out: the tuples in which something changed."""

    def __init__(self, view: MaintainedView, delta: OutputDelta, machine: Machine) -> None:
        self._view, self._delta = view, delta
        self.data = changed_groups(view, delta, machine)
        self._values: dict[tuple[str, Part], np.ndarray] = {}
        self._addresses: dict[int, np.ndarray] = {}
        self._zeros: list[np.ndarray] = []

    def live(self, when: str) -> np.ndarray:
        """Which tuples are in the view before, or after, the change; aggregates without GROUP BY always are."""
        if self._view.definition.scalar:
            return np.arange(len(self.data))
        return np.flatnonzero((self.values(when, COUNT) != 0).any(axis=1))

    def rows(self, when: str, picked: np.ndarray | None = None) -> _Rows:
        return _Rows(self, when, np.arange(len(self.data)) if picked is None else picked)

    def words(self, variable: str) -> list[np.ndarray]:
        return [np.ascontiguousarray(self.data[:, place]) for place in self._delta.shape.places([variable])]

    def values(self, when: str, part: Part) -> np.ndarray:
        """A part's change, or its value before or after, for each tuple."""
        if (when, part) not in self._values:
            if when == "change":
                shape = self._delta.shape
                place = shape.keys + shape.parts.index(part) * shape.limbs
                found = np.ascontiguousarray(self.data[:, place : place + shape.limbs])
            elif when == "before":
                found = combine([(1, self.values("after", part)), (-1, self.values("change", part))])
            else:
                found = self._present(part)
            self._values[when, part] = found
        return self._values[when, part]

    def _present(self, part: Part) -> np.ndarray:
        """A part's value as it is now, the sum over the trees that are read."""
        merged = merging(self._view)
        if merged is not None:
            words = [self.words(variable) for variable in merged.shape.variables]
            merged.look_up(np.column_stack([column for columns in words for column in columns]))
            return merged.values(part)
        found = [self._product(tree, part) for tree in trees_read(self._view)]
        return found[0] if len(found) == 1 else combine([(1, values) for values in found])

    def _product(self, tree: Tree, part: Part) -> np.ndarray:
        """A part's value in a tree: the product over the tables that hold the tuple, else 0."""
        found = factors(tree)
        if id(tree) not in self._addresses:
            self._addresses[id(tree)] = self._locate(found)
        addresses = self._addresses[id(tree)]
        words = []
        for number, factor in enumerate(found):
            own = frozenset(pair for pair in part if pair[0] in factor.atoms)
            words += [number, factor.shape.keys + factor.shape.parts.index(own) * factor.shape.limbs]
            words.append(factor.shape.limbs)
        operands = np.array(words, np.int64)
        temporary = np.zeros(at.TEMPORARY_WORDS, np.int64)
        limbs = max(factor.shape.limbs for factor in found)
        while True:
            out = np.zeros((len(self.data), limbs), np.int64)
            block, data = addresses.ctypes.data, operands.ctypes.data
            if not scan.gather_product(
                block, len(found), data, len(found), out.ctypes.data, limbs, len(out), temporary.ctypes.data
            ):
                return (out != 0).any(axis=1, keepdims=True).astype(np.int64) if self._delta.supports else out
            limbs += 1

    def _locate(self, found: Sequence[Factor]) -> np.ndarray:
        """The address of each tuple's row in each table; where it has none, of a row of zeros."""
        widest = max(factor.shape.keys + len(factor.shape.parts) * factor.shape.limbs for factor in found)
        zeros = np.zeros(widest, np.int64)
        self._zeros.append(zeros)
        scratch = np.zeros(at.SCRATCH_WORDS, np.int64)
        addresses = np.empty((len(self.data), len(found)), np.int64)
        for number, factor in enumerate(found):
            places = np.array(self._delta.shape.places(factor.shape.variables) or [0], np.int64)
            out = np.empty(len(self.data), np.int64)
            key_lookups.find_rows(
                factor.table.address,
                scratch.ctypes.data,
                self.data.ctypes.data,
                self.data.shape[1],
                len(self.data),
                places.ctypes.data,
                factor.shape.keys,
                zeros.ctypes.data,
                out.ctypes.data,
            )
            addresses[:, number] = out
        return addresses


class _Rows:
    """Some tuples of a gathered change at one time, as a source of raw columns."""

    def __init__(self, gathered: _Gathered, when: str, picked: np.ndarray) -> None:
        self._gathered, self._when, self._picked = gathered, when, picked

    def words(self, variable: str) -> list[np.ndarray]:
        return [np.ascontiguousarray(words[self._picked]) for words in self._gathered.words(variable)]

    def values(self, part: Part) -> np.ndarray:
        return np.ascontiguousarray(self._gathered.values(self._when, part)[self._picked])


def images(change: OutputChange, version: int, timestamp: Any) -> pa.Table:
    """The change as feed rows, one per copy: the view's columns, _change_type, _commit_version, _commit_timestamp."""
    import pyarrow as pa

    copies = np.repeat(np.arange(len(change)), np.abs(change.weights))
    return _stamped(change.rows.take(pa.array(copies)), change.kinds[copies], version, timestamp)


def snapshot_images(view: MaintainedView, evaluate: Evaluate, version: int, timestamp: Any) -> pa.Table | None:
    """All rows of a view as inserts; None if it has none. O(rows)."""
    rows = view_rows(view, evaluate)
    if rows is None or not rows.num_rows:
        return None
    return _stamped(rows, np.full(rows.num_rows, INSERT), version, timestamp)


def plain(table: pa.Table) -> pa.Table:
    """HUGEINT as decimals of 38 digits, in place of the bytes that DuckDB restores all of it from. O(columns)."""
    import pyarrow as pa

    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if getattr(column.type, "type_name", None) == "hugeint":
            type_, chunks = pa.decimal128(38, 0), [chunk.storage for chunk in column.chunks]
            views = [pa.Array.from_buffers(type_, len(c), c.buffers(), offset=c.offset) for c in chunks]
            table = table.set_column(place, name, pa.chunked_array(views, type_))
    return table


def _stamped(rows: pa.Table, kinds: np.ndarray, version: int, timestamp: Any) -> pa.Table:
    import pyarrow as pa

    types = pa.array(CHANGE_TYPES).take(pa.array(kinds.astype(np.int8)))
    rows = rows.append_column("_change_type", types)
    rows = rows.append_column("_commit_version", pa.array(np.full(len(kinds), version, np.int64)))
    stamps = pa.repeat(pa.scalar(timestamp, pa.timestamp("us")), len(kinds))
    return rows.append_column("_commit_timestamp", stamps)
