"""Codecs whose code is an index: into a shared dictionary of byte strings, or into an ENUM's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.casting import Caster
from sqlfront.storage.codecs.codec import Codec, mark_nulls, opaque_storage, safe_cast
from sqlfront.storage.codecs.dictionary import Dictionary, validity
from sqlfront.storage.codecs.nested_bytes import Layout, strings_of, values_of
from sqlfront.storage.codecs.transport import restored_sql
from sqlfront.storage.codecs.types import ScalarType
from sqlfront.storage.errors import DataError
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.tables.appended_rows import NAMED


class TextCodec(Codec):
    """VARCHAR and JSON, which DuckDB compares byte by byte."""

    _storage = pa.large_string()

    def __init__(self, type: str, arrow_type: pa.DataType, caster: Caster, dictionary: Dictionary) -> None:
        super().__init__(type, arrow_type, caster)
        self.dictionary: Dictionary = dictionary

    def layout_in(self, arrow_type: pa.DataType) -> int | None:
        return NAMED if self.type == "VARCHAR" and arrow_type == pa.string() else None

    def find_value(self, value: Any) -> tuple[int, ...] | None:
        own = self._own_bytes(value)
        if own is None:
            return super().find_value(value)
        code = self.dictionary.find_one(own)
        return None if code is None else (code,)

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        array = self.dictionary.decode(words[0], self._storage)
        if isinstance(self.arrow_type, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(self.arrow_type, array)
        return array

    def _native(self, array: pa.Array) -> pa.Array | None:
        if self.type == "JSON":
            return array.storage if isinstance(array.type, pa.JsonType) else None
        if pa.types.is_dictionary(array.type):
            return array if _is_text(array.type.value_type) else None
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            return array
        return safe_cast(array, self._storage) if pa.types.is_string_view(array.type) else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        if pa.types.is_dictionary(array.type):
            return self._encode_indices(array, insert)
        return [self.dictionary.encode(array) if insert else self.dictionary.find(array)]

    def _encode_indices(self, array: pa.DictionaryArray, insert: bool) -> list[np.ndarray]:
        """Encode each distinct value once, unless there are more of them than rows."""
        if len(array.dictionary) > len(array):
            return self._encode_array(array.cast(self._storage), insert)
        values = np.append(self._encode_array(array.dictionary.cast(self._storage), insert)[0], NULL_CODE)
        return [values[array.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)]]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        own = self._own_bytes(value)
        return None if own is None else (self.dictionary.encode_one(own),)

    def _own_bytes(self, value: Any) -> bytes | None:
        if type(value) is not str or self.type == "JSON":
            return None
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise DataError("a string is not valid Unicode", why=str(error), hint="remove lone surrogates") from error


class BytesCodec(TextCodec):
    """BLOB, and BIT and BIGNUM, whose internal bytes are equal exactly when the values are."""

    _storage = pa.large_binary()

    def _native(self, array: pa.Array) -> pa.Array | None:
        if self.type != "BLOB":
            return opaque_storage(array, self.type.lower())
        if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
            return array
        convertible = pa.types.is_binary_view(array.type) or pa.types.is_fixed_size_binary(array.type)
        return safe_cast(array, self._storage) if convertible else None

    def _own_bytes(self, value: Any) -> bytes | None:
        return bytes(value) if self.type == "BLOB" and isinstance(value, bytes | bytearray | memoryview) else None


class GeometryCodec(BytesCodec):
    """GEOMETRY, which DuckDB compares by the bytes of its well-known binary form, as Arrow has it."""

    def cast_sql(self, name: str) -> str:
        return f"CAST({super().cast_sql(name)} AS {self.type})"

    def _native(self, array: pa.Array) -> pa.Array | None:
        is_binary = pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
        return array if is_binary else None


class NestedCodec(Codec):
    """LIST, ARRAY, STRUCT, TUPLE, MAP and UNION: byte strings that are equal, and ordered, as the values are."""

    def __init__(self, type: str, layout: Layout, caster: Caster, dictionary: Dictionary) -> None:
        super().__init__(type, layout.arrow_type, caster)
        self._layout = layout
        self.dictionary: Dictionary = dictionary

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        return values_of(self._layout, self.dictionary.decode(words[0], pa.large_binary()))

    def cast_sql(self, name: str) -> str:
        return f"CAST({restored_sql(super().cast_sql(name), self.type)} AS {self.type})"

    def _native(self, array: pa.Array) -> pa.Array | None:
        return array if self._layout.fits(array.type) else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        strings = strings_of(self._layout.write(array), array)
        return [self.dictionary.encode(strings) if insert else self.dictionary.find(strings)]


class EnumCodec(Codec):
    """ENUM: the position in the type's list of values, which is also its order."""

    def __init__(self, scalar: ScalarType, caster: Caster) -> None:
        super().__init__(scalar.name, pa.dictionary(pa.int32(), pa.string()), caster)
        self._values = pa.array(scalar.values, pa.string())
        self._positions = {value: (i,) for i, value in enumerate(scalar.values)}

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        indices = words[0].astype(np.int32)
        buffers = [validity(words[0]), pa.py_buffer(indices)]
        return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(pa.int32(), len(indices), buffers), self._values)

    def cast_sql(self, name: str) -> str:
        return f"CAST({super().cast_sql(name)} AS {self.type})"

    def _native(self, array: pa.Array) -> pa.Array | None:
        if pa.types.is_dictionary(array.type) and _is_text(array.type.value_type):
            return array
        return safe_cast(array, pa.string()) if _is_text(array.type) else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        import pyarrow.compute as pc

        if pa.types.is_dictionary(array.type) and len(array.dictionary) <= len(array):
            positions = pc.index_in(array.dictionary.cast(pa.string()), self._values)
            found = positions.take(array.indices)
        else:
            found = pc.index_in(array.cast(pa.string()), self._values)
        if found.null_count != array.null_count:
            unknown = pc.filter(array, pc.and_(pc.is_null(found), pc.is_valid(array)))[0].as_py()
            raise DataError(f"{unknown!r} is not a value of the enumeration", where=self.type)
        codes = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        mark_nulls(found, codes)
        return [codes]

    def _fast_value(self, value: Any) -> tuple[int, ...] | None:
        return self._positions.get(value) if type(value) is str else None


class NullCodec(Codec):
    """The type of a bare NULL."""

    def decode(self, words: Sequence[np.ndarray]) -> pa.Array:
        return pa.nulls(len(words[0]))

    def _native(self, array: pa.Array) -> pa.Array | None:
        return array if pa.types.is_null(array.type) else None

    def _encode_array(self, array: pa.Array, insert: bool) -> list[np.ndarray]:
        return [np.full(len(array), NULL_CODE)]


def _is_text(type: pa.DataType) -> bool:
    return pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)
