"""The shortest way in for a batch: all columns packed by one call on Arrow's C structures.

It serves record batches whose needed columns are plain numbers, dates and text; everything else, and every
error, goes the general way (`Relation.encode`), which takes the same batch.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.program.machine import RelationPrograms
from sqlfront.maintenance.relation.base_relation import Relation
from sqlfront.maintenance.relation.encoded import Encoded
from sqlfront.storage.codecs.dictionary import Dictionary
from sqlfront.storage.codecs.pack import plain_size, text_size
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs.arrow_words import fill_word, pack_batch

if TYPE_CHECKING:
    import pyarrow as pa

_pack_batch = entry_point(pack_batch)
_fill_word = entry_point(fill_word)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_size_t, [ctypes.py_object, ctypes.c_char_p]


class Ingest:
    """Packs batches of one relation, remembering how the last schema it saw maps to words."""

    def __init__(self, relation: Relation, programs: RelationPrograms) -> None:
        self.relation, self._programs = relation, programs
        self._schema: pa.Schema | None = None
        self._plan: np.ndarray | None = None
        self._dictionaries: list[Dictionary] = []
        self._weighted = False
        self._buffer = np.empty(0, np.int64)
        self._address = 0

    def pack(self, batch: Any) -> Encoded | None:
        """The encoded rows, valid until the next call, or None if the batch must go the general way. O(rows)."""
        schema = getattr(batch, "schema", None)
        if schema is None or not hasattr(batch, "__arrow_c_array__"):
            return None
        if self._schema is None or not schema.equals(self._schema):
            self._learn(schema)
        if self._plan is None:
            return None
        width, rows = self.relation.width, batch.num_rows
        if rows * width > len(self._buffer):
            self._buffer = np.empty(rows * width + rows * width // 4, np.int64)
            self._address = int(self._buffer.ctypes.data)
        held = batch.__arrow_c_array__()
        array = _pointer(held[1], b"arrow_array")
        if _pack_batch(array, self._plan_address, len(self._plan), self._address, width):
            return None
        computation = self.relation.computation
        if computation is not None and not computation.run(self._address, width, rows):
            return None
        if not self._weighted:
            _fill_word(self._address, width, width - 1, 1, rows)
        for dictionary in self._dictionaries:
            dictionary.note_encoded(rows)
        return Encoded(self.relation, self._programs, self._address, rows, self._buffer, batch)

    def _learn(self, schema: pa.Schema) -> None:
        """Work out where each column goes; no plan if some column needs more than copying."""
        self._schema, self._plan = schema, None
        names = [name.casefold() for name in schema.names]
        if len(set(names)) < len(names) or "_change_type" in names:
            return
        known = {column.name.casefold(): column for column in self.relation.columns}
        if set(known) != set(names) - {"_weight"}:
            return
        wanted = {item.source.casefold(): item for item in self.relation.inputs.values() if item.source is not None}
        if not self.relation.computable:
            return
        rows, dictionaries = [], []
        for number, field in enumerate(schema):
            name = names[number]
            if name == "_weight":
                if str(field.type) != "int64":
                    return
                rows.append((number, self.relation.width - 1, 8, 1, 0))
                continue
            column, item = known[name], wanted.get(name)
            size, text = plain_size(column.type, field.type), text_size(column.type, field.type)
            if size + text == 0 or (column.not_null and item is None):
                return
            if item is None:
                continue
            state = 0
            if text:
                assert item.codec is not None and item.codec.dictionary is not None
                dictionaries.append(item.codec.dictionary)
                state = item.codec.dictionary.state
            rows.append((number, item.place, size + text, int(column.not_null), state))
        self._dictionaries, self._weighted = dictionaries, "_weight" in names
        self._plan = np.array(rows, np.int64)
        self._plan_address = self._plan.ctypes.data
