"""The fast way from an Arrow column of plain integers to encoded words, without a temporary array."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlfront.storage.codecs.encoding import Codec
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.programs import arrow_words

_pack_column = entry_point(arrow_words.pack_column)

# DuckDB types whose code is the 4- or 8-byte integer in Arrow's buffer, with that Arrow type; also DECIMAL(<= 18).
_PLAIN = {
    "BIGINT": "int64",
    "INTEGER": "int32",
    "DATE": "date32[day]",
    "TIMESTAMP": "timestamp[us]",
    "TIMESTAMP_NS": "timestamp[ns]",
    "TIME": "time64[us]",
}
_WHOLE = {"BIGINT", "INTEGER", "SMALLINT", "TINYINT", "UINTEGER", "USMALLINT", "UTINYINT", "BOOLEAN"}


def plain_size(type_: str, arrow_type: Any) -> int:
    """Bytes per value when a column's codes are its Arrow values as they are; 0 when they are not."""
    name = str(arrow_type)
    if type_.startswith("DECIMAL("):
        plain = whole_number_code(type_) and name == f"decimal128({type_[8:-1].replace(',', ', ')})"
    else:
        plain = name == _PLAIN.get(type_)
    return arrow_type.bit_width // 8 if plain else 0


def text_size(type_: str, arrow_type: Any) -> int:
    """Bytes per offset when a column's strings are what its dictionary holds; 0 when they are not."""
    return {"string": 4, "large_string": 8}.get(str(arrow_type), 0) if type_ == "VARCHAR" else 0


def is_declared(type_: str, arrow_type: Any) -> bool:
    """Whether Arrow values are sure to be as DuckDB exports a column of this type: nothing is to be cast or checked."""
    return bool(plain_size(type_, arrow_type)) or text_size(type_, arrow_type) == 4


def whole_number_code(type_: str) -> bool:
    """True if a type's one-word code is the (scaled) integer that a sum adds up."""
    if type_.startswith("DECIMAL("):
        return int(type_[8:].split(",")[0]) <= 18
    return type_ in _WHOLE


def pack(codec: Codec, column: Any, data: np.ndarray, place: int) -> bool:
    """Write a column's codes to word `place` of `data`; False if the codec's general way is needed.

    Only for types whose code is the Arrow value itself, in one chunk. O(rows).
    """
    if not plain_size(codec.type, column.type):
        return False
    if hasattr(column, "chunks"):
        if column.num_chunks != 1:
            return column.num_chunks == 0
        column = column.chunk(0)
    validity, values = column.buffers()
    bits = validity.address if validity is not None and column.null_count else 0
    clash = _pack_column(
        data.ctypes.data,
        data.shape[1],
        place,
        values.address,
        column.type.bit_width // 8,
        column.offset,
        bits,
        len(column),
    )
    return clash == 0
