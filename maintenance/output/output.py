"""From a walk to Arrow: the raw columns of a view, or the rows of a retained table, in batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.aggregate_columns import Sums, aggregate_column
from sqlfront.maintenance.output.reading import read, rows_of
from sqlfront.maintenance.output.window_columns import WindowColumns
from sqlfront.maintenance.program.rows import BATCH, FIRST_BATCH, Rows, RowSource, numbers
from sqlfront.maintenance.program.shapes import COUNT, Part
from sqlfront.maintenance.program.threads import side_by_side
from sqlfront.maintenance.ranked.cursor import RankedWalk
from sqlfront.maintenance.relation.base_relation import Relation
from sqlfront.maintenance.tree.walk import Walk
from sqlfront.maintenance.view.distinct_values import Groups
from sqlfront.maintenance.view.maintained_view import MaintainedView
from sqlfront.maintenance.view.tuple_count import count_tuples
from sqlfront.maintenance.windows.order_walk import OrderWalk
from sqlfront.planner.model.multiplicity import is_spread
from sqlfront.planner.model.query import Limit, RawColumn
from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.codecs.sums import decode_sum
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE

if TYPE_CHECKING:
    import pyarrow as pa


RANKED_ROW = 20
"""As many rows are read at once and sorted in the time that one row takes along a ranked tree."""
_FEW = 1000
_SHARED = 1 << 16
"""Rows of a batch that one of several threads makes: in smaller ones they wait for each other at each step."""


class Reader:
    """The raw columns of a view as a stream of record batches.

    `where` fixes variables to codes; it narrows the walk where a key, an index or an order allows and is otherwise
    ignored, so the caller filters again. Valid until the state changes: the caller holds the engine's lock for each
    batch and checks its version in between.
    """

    def __init__(self, view: MaintainedView, where: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._view, self._where = view, where
        self._walk = read(view, where, *needed(view))

    @property
    def steps(self) -> int:
        """Elementary steps taken so far."""
        return self._walk.steps

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if isinstance(self._walk, RankedWalk):
            batches = top_batches(self._view, self._walk, self._view.definition.limit or Limit(None))
            yield from self._few(batches) if self._where else batches
            return
        capacity, any_rows = FIRST_BATCH, False
        while rows := self._walk.next(capacity):
            any_rows = True
            yield self._batch(rows)
            capacity = min(2 * capacity, BATCH)
        if self._view.definition.scalar and not any_rows:
            yield empty_group(self._view)

    def all(self, threads: int) -> list[pa.RecordBatch]:
        """All batches, those of a view in one order of windows made on so many threads. The lock is held until then."""
        walk, windows = self._walk, self._view.windows
        if threads == 1 or windows is None or len(windows.kept) > 1 or not isinstance(walk, OrderWalk):
            return list(self)
        batches, turn = enumerate(walk.batches(_SHARED)), Lock()
        found: dict[int, pa.RecordBatch] = {}

        def work() -> None:
            while True:
                with turn:
                    number, batch = next(batches, (0, None))
                if batch is None:
                    return
                found[number] = raw_batch(self._view, batch, batch.rows)

        side_by_side([work] * min(threads, 1 + walk.total // _SHARED))
        return [found[number] for number in sorted(found)]

    def _few(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of constants along an order, or all rows, if so many have the constants that this is sooner."""
        found: list[pa.RecordBatch] = []
        most = crossover(self._view)
        for batch in batches:
            found.append(batch)
            if most is not None and sum(map(len, found)) > most:
                self._walk = read(self._view, self._where, *needed(self._view), by_order=False)
                yield from self
                return
        yield from found

    def count_tuples(self) -> int:
        """The number of distinct tuples of the free variables, by walking them without decoding."""
        total = 0
        while rows := self._walk.next(gather=False):
            total += rows
        return total

    def _batch(self, rows: int) -> pa.RecordBatch:
        return raw_batch(self._view, self._walk, rows, copies_of(self._view, self._walk, rows))


def copies_of(view: MaintainedView, walk: RowSource, rows: int) -> np.ndarray | None:
    """The places of a batch's rows, each as often as the view has it; None if all are there once."""
    if view.definition.mode != "bag" or walk.all_ones(COUNT):
        return None
    return np.repeat(np.arange(rows), numbers(walk, COUNT))


def top_batches(view: MaintainedView, walk: RankedWalk, limit: Limit) -> Iterator[pa.RecordBatch]:
    """The raw columns of the rows that a limit leaves of all, or of each group, in the order of a ranked walk. O(log N)
    each, also those skipped."""
    passed, grouped, anchor = 0, limit.clause is not None, None
    end = np.iinfo(np.int64).max if limit.end is None else limit.end
    capacity = FIRST_BATCH
    while grouped or passed < end:
        rows = walk.next(capacity if grouped else min(end - passed, BATCH if limit.end is not None else capacity))
        if not rows:
            return
        counts = np.ones(rows, np.int64) if view.definition.mode == "set" else numbers(walk, COUNT)
        ends = passed + np.cumsum(counts)
        if grouped:
            words = walk.anchors()
            starts = (words != np.concatenate([words[:1] if anchor is None else anchor, words[:-1]])).any(axis=1)
            ends -= np.maximum.accumulate(np.where(starts, ends - counts, 0))
            anchor = words[-1:]
        skipped = np.maximum(limit.offset - (ends - counts), 0)
        repeats = np.maximum(np.minimum(ends, end) - np.maximum(ends - counts, limit.offset), 0)
        repeat = None if (repeats == 1).all() else np.repeat(np.arange(rows), repeats)
        passed = int(ends[-1])
        if repeat is None or len(repeat):
            yield raw_batch(view, walk, rows, repeat, skipped)
        capacity = min(2 * capacity, BATCH)


def needed(view: MaintainedView, columns: Collection[str] | None = None) -> tuple[list[str], list[Part]]:
    """The variables and the parts that a view's raw columns, or those of these names, are made of."""
    definition = view.definition
    asked = [raw for raw in definition.raw if columns is None or raw.name in columns]
    own = [raw for raw in asked if raw.distinct_set is None and raw.window is None]
    variables = [raw.variable for raw in own if raw.kind == "variable" and raw.variable is not None]
    measures = [measure for raw in own for terms in raw.all_terms for _, measure in terms]
    measures += [raw.present for raw in own if raw.present is not None]
    parts = [frozenset(definition.measures[measure].factors) for measure in measures]
    if definition.mode == "bag" or (definition.scalar and view.distinct_sets):
        parts.append(COUNT)
    return [*variables, *(definition.free if view.distinct_sets or view.windows else ())], parts


def raw_batch(
    view: MaintainedView,
    source: Rows,
    rows: int,
    repeat: np.ndarray | None = None,
    skipped: np.ndarray | None = None,
    columns: Collection[str] | None = None,
) -> pa.RecordBatch:
    """The raw columns of a source's rows, or those of these names, taken at the positions `repeat`; of each row so many
    copies are `skipped`."""
    import pyarrow as pa

    arrays, fields = [], []
    windows = WindowColumns(view, source, rows, repeat, skipped) if view.windows is not None else None
    distinct_sets = [Groups(view, number, source, rows) for number in range(len(view.distinct_sets))]
    for raw in view.definition.raw:
        if columns is not None and raw.name not in columns:
            continue
        if windows is not None and raw.window is not None:
            array = windows.column(raw)
        elif raw.distinct_set is not None:
            array = distinct_sets[raw.distinct_set].column(raw)
        else:
            array = raw_column(view, source, raw)
        if repeat is not None and raw.window is None:
            array = array.take(arrow_numbers(repeat))
        arrays.append(array)
        is_coded = raw.is_list or view.codec(raw) is not None
        fields.append(field(view, raw) if is_coded else pa.field(raw.name, array.type))
    if windows is not None:
        windows.tell()
    if not arrays:
        total = rows if repeat is None else len(repeat)
        return _no_columns(total)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def raw_column(view: MaintainedView, source: Rows, raw: RawColumn) -> Any:
    """A raw column of rows, as Arrow."""
    if raw.kind == "variable":
        assert raw.variable is not None
        return view.codecs[raw.variable].decode(source.words(raw.variable))
    parts = [frozenset(measure.factors) for measure in view.definition.measures]
    return aggregate_column(Sums(parts, view.shift, source.values), raw)


def empty_group(view: MaintainedView) -> pa.RecordBatch:
    """The one row of aggregates without GROUP BY over no rows: counts 0, everything else NULL."""
    import pyarrow as pa

    zero = np.zeros((1, 1), np.int64)
    none = np.zeros(1, np.int64)
    arrays = []
    for raw in view.definition.raw:
        if raw.is_list:
            arrays.append(pa.nulls(1, field(view, raw).type))
        elif (codec := view.codec(raw)) is not None:
            arrays.append(codec.decode([np.array([NULL_CODE])] + [none] * (codec.words - 1)))
        else:
            arrays.append(decode_sum(zero, 0, None if raw.kind == "count" else none, raw.type))
    if not arrays:
        return _no_columns(1)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field(view, raw) for raw in view.definition.raw]))


def _no_columns(rows: int) -> pa.RecordBatch:
    """Rows of a view whose query puts out constants only: Arrow counts the rows of a column."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.nulls(rows, pa.int8())], names=["no column"])


def field(view: MaintainedView, raw: RawColumn) -> pa.Field:
    """The Arrow field of a raw column, with the metadata from which DuckDB restores its type."""
    import pyarrow as pa

    if raw.is_list and raw.variable is None:
        return pa.field(raw.name, pa.list_(pa.int64()))
    if raw.is_list:
        own = view.distinct_sets[raw.distinct_set or 0].codecs[raw.variable or ""]
        values = own.decode([np.zeros(0, np.int64)] * own.words)
        return pa.field(raw.name, pa.list_(values.type))
    if (codec := view.codec(raw)) is not None:
        return codec.arrow_field(raw.name)
    if raw.window is not None:
        raw = replace(raw.over or raw, name=raw.name)
    return pa.field(raw.name, decode_sum(np.zeros((0, 1), np.int64), 0, None, raw.type).type)


def schema(view: MaintainedView) -> pa.Schema:
    """The Arrow schema of a view's raw columns."""
    import pyarrow as pa

    if not view.definition.raw:
        return _no_columns(0).schema
    return pa.schema([field(view, raw) for raw in view.definition.raw])


def table_batches(relation: Relation, size: int = 65536) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The distinct rows of a retained table with their multiplicities, as (batch, weights)."""
    import pyarrow as pa

    from sqlfront.storage.kernels.tables import upkeep

    store = relation.base
    assert store is not None
    table = store.table
    width = table.keys + table.limbs
    used = table.used
    for first in range(0, used, size):
        count = min(size, used - first)
        words = np.empty((count, width), np.int64)
        kept = upkeep.copy_rows(table.address, first, count, words.ctypes.data)
        arrays, place = [], 0
        for column, own in zip(store.variables, store.widths, strict=True):
            codec = store.inputs["key " + column.expression].codec
            assert codec is not None
            code = [np.ascontiguousarray(words[:kept, place + j]) for j in range(own)]
            arrays.append(codec.decode(code))
            place += own
        names = [column.name for column in store.variables]
        if kept:
            yield pa.RecordBatch.from_arrays(arrays, names=names), np.ascontiguousarray(words[:kept, place])


def row_count(view: MaintainedView) -> int:
    """The number of a view's rows before HAVING and QUALIFY. O(1); O(rows) along a ranked tree, and in turn; where no
    number is kept (see tuple_count.py), what building the view costs, once after a change."""
    if view.plan.turns is not None:
        return Reader(view).count_tuples()
    if not rows_of(view).trees:
        return sum(batch.num_rows for batch in Reader(view))
    view.reads.steps += 1
    return _rows(view)


def _rows(view: MaintainedView, *, about: bool = False) -> int:
    limit, rows = view.definition.limit, _core_rows(view, about=about)
    return rows if limit is None else limit.rows_of(rows)


def _core_rows(view: MaintainedView, *, about: bool = False) -> int:
    """The number of tuples, or `about` so many, at least, if they would have to be counted first."""
    if view.branches:  # The first rows of branches are counted as they are read.
        return sum(_core_rows(branch, about=about) for branch in view.branches)
    tree = view.tree
    if tree.projection is not None:
        return tree.projection.live
    if view.definition.mode == "bag":
        assert tree.root.table is not None
        return tree.root.table.count_of(())
    if view.definition.scalar:
        return 1
    if view.tuple_count is not None:
        return view.tuple_count.total
    if is_spread(view.definition, view.plan) and rows_of(view).single is not None:
        if about:
            held = [one.table for one in tree.root.walk() if one.node.connex and one.table is not None]
            return max((table.live for table in held), default=0)
        return Reader(view).count_tuples() if view.plan.has_outer_children else _counted(view)
    walk = read(view)
    if isinstance(walk, Walk):
        return 0 if walk.empty else walk.levels[0].table.live
    return Reader(view).count_tuples()


def _counted(view: MaintainedView) -> int:
    """The number of tuples that is not kept: counted once after a change."""
    assert view.machine is not None
    runs = view.machine.runs
    if view.counted is None or view.counted[0] != runs:
        view.counted = runs, count_tuples(view.tree, view.limbs, view.reads)
    return view.counted[1]


def sorted_rows(view: MaintainedView) -> int:
    """About how many rows are read at each epoch, to sort them, as somebody hears of the view's first rows; 0 where a
    ranked tree has the first ones, and where all rows are the view's. O(1)."""
    if view.definition.limit is None or view.ranked or not view.is_heard:
        return 0
    return _core_rows(view, about=True)


def crossover(view: MaintainedView) -> int | None:
    """How many first rows are read sooner along a ranked tree than all are read at once and sorted; None if nothing but
    the ranked tree is kept. O(1)."""
    return None if not rows_of(view).trees else max(_FEW, _rows(view, about=True) // RANKED_ROW)


def is_sooner_in_order(view: MaintainedView, rows: int) -> bool:
    """Whether so many first rows are read along a ranked tree, as `crossover` says. O(1)."""
    if rows <= _FEW:
        return True
    most = crossover(view)
    return most is None or rows <= most


def contains(view: MaintainedView, values: Mapping[str, Any]) -> bool:
    """Whether a tuple of the free variables is in the view; `values` gives one Python value per variable.

    A value counts as what an INSERT makes of it; one that does not fit its type is in no row.
    O(1) where a key or an index leads to it, else a scan of what the given values leave; in a union of overlapping
    trees what one row costs.
    """
    codes = {}
    for variable, value in values.items():
        try:
            code = view.codecs[variable].find_value(value)
        except DataError:
            return False
        if code is None:
            return False
        codes[variable] = code
    walk = read(view, codes, codes)
    while walk.next(FIRST_BATCH):
        match = np.ones(walk.rows, bool)
        for variable, code in codes.items():
            for words, word in zip(walk.words(variable), code, strict=True):
                match &= words == word
        if match.any():
            return True
    return False
