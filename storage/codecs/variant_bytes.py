"""VARIANT: DuckDB's key of a value's equality and order as a byte string, and the value that the key stands for.

Equal values have one key: 1, 1.0 and 1::HUGEINT, or a DATE and the TIMESTAMP of its midnight. A value is read back from
its key in one form: a whole number or a DECIMAL without zeros at its end, a DATE where the time is midnight, fields by
their names. It is written as Arrow has it, in Parquet's binary encoding of variants (VariantEncoding.md of its format).
Reading takes time in proportion to the bytes, in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.nested_bytes import ByteStrings, Layout, Source, Strings
from sqlfront.storage.codecs.nested_types import tuple_names
from sqlfront.storage.errors import DataError

_NULL, _OBJECT, _ARRAY = 0x10, 0x0F, 0x0E
_DAY = 86_400_000_000_000
_SHIFT = 1 << 127
_NULL_VALUE, _NO_FIELDS = b"\0", b"\x0f\0"
_INT8, _DOUBLE, _DECIMAL16, _DATE, _TIMESTAMP_TZ, _TIMESTAMP = 3, 7, 10, 11, 12, 13
_BINARY, _STRING, _TIME, _NANOS_TZ, _NANOS, _UUID = 15, 16, 17, 18, 19, 20


class VariantType(pa.ExtensionType):
    """The Arrow type in which DuckDB takes and gives a VARIANT."""

    def __init__(self) -> None:
        held = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())])
        super().__init__(held, "arrow.parquet.variant")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> VariantType:
        return cls()


def as_variant(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of the storage of VARIANTs as one of VARIANTs."""
    kind = VariantType()
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([as_variant(chunk) for chunk in column.chunks], kind)
    return pa.ExtensionArray.from_storage(kind, column.cast(kind.storage_type))


class Variants(Layout):
    """The keys, as `keys` writes strings; Arrow has key and value beside each other (`transport`)."""

    def __init__(self, keys: Codec) -> None:
        self._keys, self._names = Strings(keys), tuple_names(2)
        self.arrow_type = pa.struct(list(zip(self._names, (keys.arrow_type, VariantType()), strict=True)))

    def fits(self, type: pa.DataType) -> bool:
        return pa.types.is_struct(type) and tuple(field.name for field in type) == self._names

    def write(self, array: pa.Array) -> ByteStrings:
        keys = array.flatten()[0]
        for key in keys.to_pylist():
            if key is not None and _NO_FIELDS in key:
                value_of_key(key)
        return self._keys.write(keys)

    def read(self, source: Source, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        keys, ends = self._keys.read(source, at)
        values = [(b"\1\0\0", _NULL_VALUE) if key is None else value_of_key(key) for key in keys.to_pylist()]
        parts = [pa.array([value[place] for value in values], pa.binary()) for place in (0, 1)]
        kind = VariantType()
        held = pa.StructArray.from_arrays(parts, fields=list(kind.storage_type))
        array = pa.StructArray.from_arrays(
            [keys, pa.ExtensionArray.from_storage(kind, held)], fields=list(self.arrow_type), mask=keys.is_null()
        )
        return array, ends


def value_of_key(key: bytes) -> tuple[bytes, bytes]:
    """The metadata and the value, in Parquet's encoding, of a key that DuckDB has made. DataError for a key that is
    read in two ways: DuckDB writes a field without a name as it writes the end of the fields."""
    reader = _Key(key)
    try:
        value = reader.value()
        if reader.at < len(key):
            raise IndexError(reader.at)
    except (IndexError, KeyError, ValueError) as error:
        raise DataError(
            "a VARIANT has a field whose name is empty",
            why="DuckDB's key of the value does not tell it from an object without fields",
            hint="give the field a name",
        ) from error
    names = list(reader.names)
    offsets = np.cumsum([0, *map(len, names)]).astype("<u4").tobytes()
    return b"\xc1" + len(names).to_bytes(4, "little") + offsets + b"".join(names), value


class _Key:
    """Reads a key from its start. `names` are those of all fields, each with its number."""

    def __init__(self, key: bytes) -> None:
        self._key, self.at = key, 0
        self.names: dict[bytes, int] = {}

    def value(self) -> bytes:
        kind = self._take(1)[0]
        if kind == _NULL:
            return _NULL_VALUE
        return _READERS[kind](self)

    def boolean(self) -> bytes:
        return _primitive(1 if self._take(1)[0] else 2)

    def number(self) -> bytes:
        sign = self._take(1)[0] - 1
        if sign == 0:
            return _primitive(_INT8, b"\0")
        exponent = int.from_bytes(self._take(8), "big") - (1 << 63)
        end = self._key.index(0 if sign > 0 else 0xFF, self.at)
        digits = [byte - 1 if sign > 0 else 0xFE - byte for byte in self._take(end - self.at)]
        self.at += 1
        if sign < 0:
            exponent = -exponent - 1
        decimal = Decimal((0 if sign > 0 else 1, tuple(digits), exponent - len(digits) + 1))
        return _number(decimal)

    def double(self) -> bytes:
        word = int.from_bytes(self._take(8), "big")
        special = {(1 << 64) - 1: float("nan"), (1 << 64) - 2: float("inf"), 0: float("-inf")}
        if word in special:
            return _primitive(_DOUBLE, np.array(special[word], "<f8").tobytes())
        bits = word ^ (1 << 63) if word >> 63 else word ^ ((1 << 64) - 1)
        return _primitive(_DOUBLE, bits.to_bytes(8, "little"))

    def text(self) -> bytes:
        return _sized(_STRING, self._text())

    def blob(self) -> bytes:
        found = bytearray()
        while byte := self._take(1)[0]:
            found += self._take(1) if byte == 1 else bytes((byte,))
        return _sized(_BINARY, bytes(found))

    def uuid(self) -> bytes:
        return _primitive(_UUID, self._take(16))

    def timestamp(self) -> bytes:
        return self._timestamp(_TIMESTAMP, _NANOS)

    def timestamp_tz(self) -> bytes:
        return self._timestamp(_TIMESTAMP_TZ, _NANOS_TZ)

    def time(self) -> bytes:
        nanos = int.from_bytes(self._take(8), "big") - (1 << 63)
        return _primitive(_TIME, (nanos // 1000).to_bytes(8, "little", signed=True))

    def array(self) -> bytes:
        values = []
        while self._key[self.at]:
            values.append(self.value())
        self.at += 1
        return bytes((0b11111,)) + _listed(b"", values)

    def object(self) -> bytes:
        numbers, values = [], []
        while self._key[self.at]:
            numbers.append(self.names.setdefault(self._text(), len(self.names)))
            values.append(self.value())
        self.at += 1
        return bytes((0b1111110,)) + _listed(np.array(numbers, "<u4").tobytes(), values)

    def _timestamp(self, micros: int, nanos: int) -> bytes:
        time = int.from_bytes(self._take(16), "big") - _SHIFT
        days, rest = divmod(time, _DAY)
        if rest == 0 and micros == _TIMESTAMP and -(2**31) <= days < 2**31:
            return _primitive(_DATE, days.to_bytes(4, "little", signed=True))
        kind, time = (nanos, time) if time % 1000 else (micros, time // 1000)
        return _primitive(kind, time.to_bytes(8, "little", signed=True))

    def _text(self) -> bytes:
        end = self._key.index(0, self.at)
        found = bytes(byte - 1 for byte in self._take(end - self.at))
        self.at += 1
        return found

    def _take(self, count: int) -> bytes:
        self.at += count
        return self._key[self.at - count : self.at]


_READERS: dict[int, Callable[[_Key], bytes]] = {
    0x01: _Key.boolean,
    0x02: _Key.number,
    0x03: _Key.double,
    0x04: _Key.text,
    0x05: _Key.blob,
    0x06: _Key.uuid,
    0x07: _Key.timestamp,
    0x08: _Key.timestamp_tz,
    0x09: _Key.time,
    _ARRAY: _Key.array,
    _OBJECT: _Key.object,
}


def _number(decimal: Decimal) -> bytes:
    exponent = decimal.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent >= 0:
        whole = int(decimal)
        for kind, width in ((5, 4), (6, 8)):
            if -(1 << (8 * width - 1)) <= whole < 1 << (8 * width - 1):
                return _primitive(kind, whole.to_bytes(width, "little", signed=True))
        return _primitive(_DECIMAL16, b"\0" + whole.to_bytes(16, "little", signed=True))
    unscaled = int(decimal.scaleb(-exponent))
    return _primitive(_DECIMAL16, bytes((-exponent,)) + unscaled.to_bytes(16, "little", signed=True))


def _primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes((kind << 2,)) + data


def _sized(kind: int, data: bytes) -> bytes:
    return _primitive(kind, len(data).to_bytes(4, "little") + data)


def _listed(numbers: bytes, values: list[bytes]) -> bytes:
    """The count of an array's or object's values, the numbers of their names, where each starts, and the values."""
    offsets = np.cumsum([0, *map(len, values)]).astype("<u4").tobytes()
    return len(values).to_bytes(4, "little") + numbers + offsets + b"".join(values)
