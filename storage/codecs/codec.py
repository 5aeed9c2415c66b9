"""What every codec shares: how a column of one DuckDB type becomes int64 words, and comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.casting import Caster
from sqlfront.storage.codecs.dictionary import Dictionary, validity
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.tables.appended_rows import WORD
from sqlfront.storage.kernels.tables.byte_strings import ABSENT

# Stands, as layout.RESERVED_LOW does, for the one value whose own code would be NULL_CODE. As data they are refused;
# they are arbitrary, far from round numbers, zero and the ends of the range.
RESERVED_HIGH = -NULL_CODE - 0x5EED_0DD5_11ED

TWO_WORDS = np.dtype([("low", "<i8"), ("high", "<i8")])
"""A value of 128 bits as Arrow has it."""


class Codec:
    """One DuckDB type's mapping to `words` int64 words.

    Equal words <=> IS NOT DISTINCT FROM, for any two columns of the type. Only the words of intervals tell 30 days
    from 1 month, which are equal in DuckDB. NULL is NULL_CODE in the first word and 0 in the second. `dictionary` is
    where the first word points, for types that have one.
    """

    words = 1
    dictionary: Dictionary | None = None
    layout: int | None = None
    """How Arrow has a value whose first word is beyond layout.RESERVED_LOW, as appended_rows.py says; None for types
    whose words do not say it."""

    def __init__(self, type: str, arrow_type: pa.DataType, caster: Caster) -> None:
        self.type = type
        self.arrow_type = arrow_type
        self._caster = caster

    @property
    def is_word(self) -> bool:
        """Whether the code of a value beyond layout.RESERVED_LOW is its 64 bits in Arrow."""
        return self.layout == WORD

    def layout_in(self, arrow_type: pa.DataType) -> int | None:
        """The layout of values that are shown in an Arrow type; NAMED if they are numbers of a dictionary's texts."""
        return self.layout if arrow_type == self.arrow_type else None

    def encode(self, column: pa.Array | pa.ChunkedArray) -> list[np.ndarray]:
        """The words of a column, each a new C-contiguous int64 array; new strings enter the dictionary.

        Any Arrow type that DuckDB casts to the column's is accepted. DataError if a value does not fit.
        """
        return self._encode_chunks(column, True)

    def find(self, column: pa.Array | pa.ChunkedArray) -> list[np.ndarray]:
        """As `encode`, but a string that the dictionary does not hold gives -1 and does not enter it."""
        return self._encode_chunks(column, False)

    def plain_array(self, words: np.ndarray) -> pa.Array:
        """The array of these codes, all beyond layout.RESERVED_LOW, of a codec that `is_word`; shares their memory."""
        return pa.Array.from_buffers(self.arrow_type, len(words), [None, pa.py_buffer(words)])

    def encode_value(self, value: Any) -> tuple[int, ...]:
        """The words of one Python value, cast as an INSERT casts it. DataError if it does not fit."""
        if value is None:
            return self._null()
        return self._fast_value(value) or self._cast_value(value, True)

    def find_value(self, value: Any) -> tuple[int, ...] | None:
        """As `encode_value`; None if the dictionary does not hold the value (so no row does)."""
        if value is None:
            return self._null()
        words = self._fast_value(value) or self._cast_value(value, False)
        return None if words[0] == ABSENT and self.dictionary is not None else words

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        """The values, as an array of `arrow_type`. It may share memory with `words`: do not change them later."""
        raise NotImplementedError

    def native(self, array: pa.Array) -> pa.Array:
        """The array in the one Arrow representation that the codec reads, cast by DuckDB where needed."""
        native = self._native(array)
        if native is None:
            native = self._native(self._caster.cast(array, self.type))
            assert native is not None, f"DuckDB gave {array.type} for {self.type}"
        return native

    def arrow_field(self, name: str) -> pa.Field:
        """The field under which decoded columns are given to DuckDB."""
        return pa.field(name, self.arrow_type)

    def cast_sql(self, name: str) -> str:
        """SQL that restores the exact type from the decoded column called `name`."""
        return '"' + name.replace('"', '""') + '"'

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        """The words of an array for which `_native` gave a result."""
        raise NotImplementedError

    def _native(self, array: pa.Array) -> pa.Array | None:
        """The array in the representation `_encode_array` reads, or None if DuckDB has to cast it."""
        raise NotImplementedError

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        """The words of a value whose Python type is the column's own; None leaves it to DuckDB."""
        return None

    def _null(self) -> tuple[int, ...]:
        return (NULL_CODE,) if self.words == 1 else (NULL_CODE, 0)

    def _cast_value(self, value: Any, insert: bool) -> tuple[int, ...]:
        words = self._encode_chunk(self._caster.cast_value(value, self.type), insert)
        return tuple(int(word[0]) for word in words)

    def _encode_chunks(self, column: pa.Array | pa.ChunkedArray, insert: bool) -> list[np.ndarray]:
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        parts = [self._encode_chunk(chunk, insert) for chunk in chunks if len(chunk)]
        if not parts:
            return [np.empty(0, np.int64) for _ in range(self.words)]
        return parts[0] if len(parts) == 1 else [np.concatenate(words) for words in zip(*parts, strict=True)]

    def _encode_chunk(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        return self._encode_array(self.native(array), insert)


def opaque_storage(array: pa.Array, name: str) -> pa.Array | None:
    """The storage of DuckDB's own Arrow extension type `name`, or None."""
    is_named = isinstance(array.type, pa.OpaqueType) and array.type.type_name == name
    return array.storage if is_named and array.type.vendor_name == "DuckDB" else None


def safe_cast(array: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Arrow's cast where it is exact, else None."""
    try:
        return array.cast(target, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def fixed_values(array: pa.Array, dtype: Any) -> np.ndarray:
    """A read-only numpy view of an array of fixed-width values; those under NULL are arbitrary."""
    width = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * width)


def nulls_of(array: pa.Array) -> np.ndarray | None:
    """Which rows are NULL, or None if none is."""
    if array.null_count == 0:
        return None
    first = array.offset & 7
    bits = np.frombuffer(array.buffers()[0], np.uint8)[array.offset >> 3 : (array.offset + len(array) + 7) >> 3]
    return np.unpackbits(bits, count=first + len(array), bitorder="little")[first:] == 0


def mark_nulls(array: pa.Array, *words: np.ndarray) -> None:
    """Write NULL's code into the words of the rows that are NULL."""
    nulls = nulls_of(array)
    if nulls is not None:
        for word, code in zip(words, (NULL_CODE, 0), strict=False):
            word[nulls] = code


def escape(array: pa.Array, codes: np.ndarray, type: str, reserved: int) -> None:
    """Replace NULL_CODE, where it is a value, by `reserved`; DataError if that occurs as a value itself."""
    clash = (codes == NULL_CODE) | (codes == reserved)
    if clash.any():
        nulls = nulls_of(array)
        if nulls is not None:
            clash &= ~nulls
        if (codes[clash] == reserved).any():
            raise reserved_error(type)
        codes[clash] = reserved


def unescape(codes: np.ndarray, reserved: int) -> np.ndarray:
    """Undo `escape`; copies only if there is something to undo. NULL is told apart before."""
    if not len(codes) or codes.min() > reserved:  # Nearly always: the reserved code is one of the least.
        return codes
    clash = codes == reserved
    if not clash.any():
        return codes
    codes = codes.copy()
    codes[clash] = NULL_CODE
    return codes


def reserved_error(type: str) -> DataError:
    return DataError(
        f"a {type} value is one that the encoding keeps for itself",
        why="one value among 2^64 stands for another whose code would mean NULL",
        hint="use a wider type, or VARCHAR",
    )


def fixed_array(arrow_type: pa.DataType, codes: np.ndarray, values: np.ndarray) -> pa.Array:
    """An array of fixed-width `values`, NULL where `codes` is NULL_CODE; shares the values' memory."""
    return array_of(arrow_type, validity(codes), values)


def array_of(arrow_type: pa.DataType, bitmap: pa.Buffer | None, values: np.ndarray) -> pa.Array:
    """An array of fixed-width `values`, NULL where the bitmap has no bit; shares the values' memory."""
    buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(values))]
    if not isinstance(arrow_type, pa.BaseExtensionType):
        return pa.Array.from_buffers(arrow_type, len(values), buffers)
    storage = pa.Array.from_buffers(arrow_type.storage_type, len(values), buffers)
    return pa.ExtensionArray.from_storage(arrow_type, storage)
