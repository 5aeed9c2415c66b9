"""From a walk to Arrow: the raw columns of a view, or the rows of a retained table, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from maintenance.relation import Relation
from maintenance.shapes import COUNT, Part
from maintenance.view import MaintainedView
from maintenance.walk import BLOCK, FIRST_BLOCK, Walk
from planner.query import RawColumn
from storage import layout as at
from storage.errors import DataError, StaleRead
from storage.sums import combine, decode_avg, decode_sum, decode_sum_with_specials

if TYPE_CHECKING:
    import pyarrow as pa

    from maintenance.engine import Engine


class Reader:
    """The raw columns of a view as a stream of record batches, pinned to the state it began in.

    `where` fixes variables to codes; it narrows the walk where an index allows and is otherwise ignored, so
    the caller filters again. Raises StaleRead when the state has changed before the next batch.
    """

    def __init__(
        self, engine: Engine, view: MaintainedView, where: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        self._engine, self._view = engine, view
        with engine.lock:
            self._version, self._epoch = engine.version, engine.epoch
            self._walk = Walk(view.tree, where)

    @property
    def steps(self) -> int:
        """Elementary steps taken so far."""
        return self._walk.steps

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        capacity, any_rows = FIRST_BLOCK, False
        while True:
            with self._engine.lock:
                self._refuse_stale()
                rows = self._walk.next(capacity)
                batch = self._batch(rows) if rows else None
            if batch is None:
                break
            any_rows = True
            yield batch
            capacity = min(2 * capacity, BLOCK)
        if self._view.definition.scalar and not any_rows:
            yield empty_group(self._view)

    def count_tuples(self) -> int:
        """The number of distinct tuples of the free variables, by walking them without decoding."""
        total = 0
        with self._engine.lock:
            self._refuse_stale()
            while rows := self._walk.next(BLOCK):
                total += rows
        return total

    def _refuse_stale(self) -> None:
        if self._engine.version != self._version:
            raise StaleRead(
                f"the view changed while it was being read (begun at epoch {self._epoch}, now {self._engine.epoch})",
                why="a streaming reader never mixes epochs",
                hint="read again, or fetch everything at once with fetchall(), df() or to_arrow_table()",
            )

    def _batch(self, rows: int) -> pa.RecordBatch:
        import pyarrow as pa

        view, walk = self._view, self._walk
        repeat = None
        if view.definition.mode == "bag":
            counts = self._numbers(COUNT)
            if (counts != 1).any():
                repeat = np.repeat(np.arange(rows), counts)
        arrays, fields = [], []
        for raw in view.definition.raw:
            array = self._column(raw, rows)
            arrays.append(array if repeat is None else array.take(pa.array(repeat)))
            fields.append(field(view, raw))
        if not arrays:
            total = rows if repeat is None else len(repeat)
            return pa.RecordBatch.from_arrays([pa.nulls(total, pa.int8())], names=["no column"])
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _column(self, raw: RawColumn, rows: int) -> Any:
        view = self._view
        if raw.kind == "variable":
            assert raw.variable is not None
            return view.codecs[raw.variable].decode(self._walk.words(raw.variable))
        present = None if raw.present is None else self._numbers(self._part(raw.present))
        shift = max((view.shift(self._part(measure)) for _, measure in raw.terms), default=0)
        limbs = combine(
            [
                (coefficient << (shift - view.shift(self._part(measure))), self._values(self._part(measure)))
                for coefficient, measure in raw.terms
            ]
        )
        if raw.kind == "avg":
            specials = None if raw.specials is None else [self._numbers(self._part(s)) for s in raw.specials]
            return decode_avg(limbs, shift, raw.scale, present, raw.argument_type or raw.type, specials)
        if raw.specials is not None:
            specials = [self._numbers(self._part(s)) for s in raw.specials]
            return decode_sum_with_specials(limbs, shift, present, specials)
        return decode_sum(limbs, shift, present, raw.type)

    def _part(self, measure: int) -> Part:
        return frozenset(self._view.definition.measures[measure].factors)

    def _values(self, part: Part) -> np.ndarray:
        limbs = self._view.limbs
        while True:
            values, overflow = self._walk.values(part, limbs)
            if not overflow:
                return values
            limbs += 1

    def _numbers(self, part: Part) -> np.ndarray:
        values = self._values(part)
        if values.shape[1] > 1 and ((values[:, 0] < 0) | (values[:, 1:] != 0).any(axis=1)).any():
            raise DataError("a count is beyond BIGINT", hint="group by more columns, or filter")
        return np.ascontiguousarray(values[:, 0])


def empty_group(view: MaintainedView) -> pa.RecordBatch:
    """The one row of aggregates without GROUP BY over no rows: counts 0, everything else NULL."""
    import pyarrow as pa

    zero = np.zeros((1, 1), np.int64)
    none = np.zeros(1, np.int64)
    arrays = []
    for raw in view.definition.raw:
        if raw.kind == "avg":
            arrays.append(decode_avg(zero, 0, raw.scale, none, raw.argument_type or raw.type, None))
        else:
            arrays.append(decode_sum(zero, 0, none if raw.kind == "sum" else None, raw.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field(view, raw) for raw in view.definition.raw]))


def field(view: MaintainedView, raw: RawColumn) -> pa.Field:
    """The Arrow field of a raw column, with the metadata from which DuckDB restores its type."""
    if raw.kind == "variable":
        assert raw.variable is not None
        return view.codecs[raw.variable].arrow_field(raw.name)
    from storage.sums import result_field

    return result_field(raw.name, raw.type)


def schema(view: MaintainedView) -> pa.Schema:
    """The Arrow schema of a view's raw columns."""
    import pyarrow as pa

    return pa.schema([field(view, raw) for raw in view.definition.raw])


def table_batches(relation: Relation, size: int = 65536) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The distinct rows of a retained table with their multiplicities, as (batch, weights)."""
    import pyarrow as pa

    from storage import table_kernels

    store = relation.base
    assert store is not None
    table = store.table
    width = table.keys + table.limbs
    used = int(table.header[at.USED])
    for first in range(0, used, size):
        count = min(size, used - first)
        words = np.empty((count, width), np.int64)
        kept = table_kernels.copy_rows(table.address, first, count, words.ctypes.data)
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
