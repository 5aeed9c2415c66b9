"""The shortest way in for a batch: all columns packed by one call on Arrow's C structures.

It serves record batches, tables and frames whose needed columns are plain numbers, dates and text; everything else, and
every error, goes the general way (`Relation.encode`), which takes the same rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Set
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from sqlfront.maintenance.program.machine import RelationPrograms
from sqlfront.maintenance.relation.base_relation import Relation
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.storage.codecs.arrow_batches import frame_columns
from sqlfront.storage.codecs.dictionary import Dictionary
from sqlfront.storage.codecs.pack import plain_size, text_size
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs.arrow_words import (
    ARRAY_WORDS,
    fill_word,
    is_same_schema,
    pack_column,
    pack_exported,
)

KINDS = {"insert": 1, "delete": -1, "update_preimage": -1, "update_postimage": 1}
"""The weights of the kinds of changes that a column _change_type tells."""
_TEXTS = {kind: np.frombuffer(kind.encode(), np.uint8) for kind in KINDS}
_KINDS = np.array([(weight, len(kind), _TEXTS[kind].ctypes.data) for kind, weight in KINDS.items()], np.int64)

_pack_exported = entry_point(pack_exported)
_pack_column = entry_point(pack_column)
_fill_word = entry_point(fill_word)
_is_same_schema = entry_point(is_same_schema)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_size_t, [ctypes.py_object, ctypes.c_char_p]

_Place: TypeAlias = tuple[int, int, int, int, int, int]
"""A column's number, and of its words: the place or -1, size, whether NULL is refused, dictionary, kinds of changes."""


class Ingest:
    """Packs batches of one relation, remembering how the last schema it saw maps to words."""

    def __init__(self, relation: Relation, programs: RelationPrograms) -> None:
        self.relation, self.programs = relation, programs
        self._schema: pa.Schema | None = None
        self._kinds: list[tuple[str, np.dtype[Any]]] | None = None
        self._plan: np.ndarray | None = None
        self._read: list[int] = []
        self._columns: list[_Place] = []
        self._dictionaries: list[Dictionary] = []
        self._weighted = False
        self._has_kinds = False
        self._buffer = np.empty(0, np.int64)
        self._array = np.empty(ARRAY_WORDS, np.int64)
        self._room = int(self._array.ctypes.data)
        self._address = 0

    def pack(self, changes: Any) -> Encoded | None:
        """The encoded rows, valid until the next call, or None if they must go the general way. O(rows)."""
        if isinstance(changes, (pa.RecordBatch, pa.Table)):
            return self._pack_batches(changes)
        columns = frame_columns(changes)
        return None if columns is None else self._pack_frame(changes, columns)

    def _pack_batches(self, data: pa.RecordBatch | pa.Table) -> Encoded | None:
        if not self._knows(data.schema):
            self._learn(data.schema)
        if self._plan is None or self.relation.brings_texts(data.num_rows, lambda name: _column(data, name)):
            return None
        address = self._reserve(data.num_rows)
        read = data.select(self._read)  # To hand a column over costs as much as to pack one of a few rows.
        for batch in [read] if isinstance(read, pa.RecordBatch) else read.to_batches():
            batch._export_to_c(self._room)  # Without the schema, which takes as long as the columns.
            if _pack_exported(self._room, self._plan_address, len(self._plan), address, self.relation.width):
                return None
            address += 8 * self.relation.width * batch.num_rows
        return self._finished(data, data.num_rows)

    def _knows(self, schema: pa.Schema) -> bool:
        """Whether a schema is the one that was learnt. A pyarrow schema takes twice as long to compare as to export."""
        if self._schema is None:
            return False
        exported = schema.__arrow_c_schema__()
        if _is_same_schema(_pointer(exported, b"arrow_schema"), self._schema_address):
            return True
        return bool(schema.equals(self._schema))

    def _pack_frame(self, frame: Any, columns: dict[str, np.ndarray]) -> Encoded | None:
        """Pack the columns of a DataFrame of numbers, which are contiguous unless it is a view of another array."""
        kinds = [(name, values.dtype) for name, values in columns.items()]
        if self._kinds != kinds:
            self._learn(pa.schema([(name, pa.from_numpy_dtype(kind)) for name, kind in kinds]))
            self._kinds = kinds
        if self._plan is None:
            return None
        rows, arrays = len(frame), list(columns.values())
        address, width = self._reserve(rows), self.relation.width
        for number, place, size, *_ in self._columns:
            if place < 0:  # Numbers of a frame are never NULL.
                continue
            held = pa.py_buffer(np.ascontiguousarray(arrays[number]))
            if _pack_column(address, width, place, held.address, size, 0, 0, rows):
                return None
        return self._finished(frame, rows)

    def _reserve(self, rows: int) -> int:
        """The address of room for so many rows."""
        words = rows * self.relation.width
        if words > len(self._buffer):
            buffer = np.empty(words + words // 4, np.int64)
            address = int(buffer.ctypes.data)
            self._buffer, self._address = buffer, address  # No call between the two, at which Ctrl-C could come.
        return self._address

    def _finished(self, data: Any, rows: int) -> Encoded | None:
        """Compute what is no column, and let the rows that have been packed count once unless they have weights."""
        width, computation = self.relation.width, self.relation.computation
        if computation is not None and not computation.run(self._address, width, rows):
            return None
        if not self._weighted:
            _fill_word(self._address, width, width - 1, 1, rows)
        for dictionary in self._dictionaries:
            dictionary.note_encoded(rows)
        weights = None
        if self._has_kinds:
            weights = self._buffer[: rows * width].reshape(rows, width)[:, -1].copy()
        return Encoded(self.relation, self.programs, self._address, rows, self._buffer, data, weights)

    def _learn(self, schema: pa.Schema) -> None:
        """Work out where each column goes; no plan if some column needs more than copying."""
        exported = schema.__arrow_c_schema__()
        schema_address = _pointer(exported, b"arrow_schema")
        control = {"_weight", "_change_type"}.intersection(name.casefold() for name in schema.names)
        found = self._places(schema, control)
        columns, dictionaries = found or ([], [])
        plan = np.array([(child, *row[1:]) for child, row in enumerate(columns)], np.int64)
        plan_address = int(plan.ctypes.data)
        read = [number for number, *_ in columns]
        # No call between these, at which Ctrl-C could come: it leaves all of them as they were, or none.
        self._schema, self._exported, self._schema_address = schema, exported, schema_address
        self._kinds, self._plan, self._plan_address = None, None if found is None else plan, plan_address
        self._columns, self._read = columns, read
        self._dictionaries, self._weighted, self._has_kinds = dictionaries, bool(control), "_change_type" in control

    def _places(self, schema: pa.Schema, control: Set[str]) -> tuple[list[_Place], list[Dictionary]] | None:
        """Where each column goes that is read, or checked for NULL, and the dictionaries of texts."""
        names = [name.casefold() for name in schema.names]
        known = {column.name.casefold(): column for column in self.relation.columns}
        if len(set(names)) < len(names) or len(control) > 1 or set(known) != set(names) - control:
            return None
        wanted = {item.source.casefold(): item for item in self.relation.inputs.values() if item.source is not None}
        if not self.relation.computable:
            return None
        places, dictionaries = list[_Place](), list[Dictionary]()
        for number, field in enumerate(schema):
            name = names[number]
            if name == "_weight":
                if str(field.type) != "int64":
                    return None
                places.append((number, self.relation.width - 1, 8, 1, 0, 0))
                continue
            if name == "_change_type":
                if (size := text_size("VARCHAR", field.type)) == 0:
                    return None
                places.append((number, self.relation.width - 1, size, 1, 0, int(_KINDS.ctypes.data)))
                continue
            column, item = known[name], wanted.get(name)
            size, text = plain_size(column.type, field.type), text_size(column.type, field.type)
            if size + text == 0:
                return None
            if item is None:
                if column.not_null:
                    places.append((number, -1, size + text, 1, 0, 0))
                continue
            state = 0
            if text:
                assert item.codec is not None and item.codec.dictionary is not None
                dictionaries.append(item.codec.dictionary)
                state = item.codec.dictionary.state
            places.append((number, item.place, size + text, int(column.not_null), state, 0))
        return places, dictionaries


def _column(data: pa.RecordBatch | pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """The column of a name, as SQL compares names."""
    return data.column([own.casefold() for own in data.schema.names].index(name.casefold()))
