"""Nested values as byte strings that are equal, and ordered, as DuckDB's values are; and back.

Each value starts with a byte: 1, or 2 for NULL, which is the greatest inside a nested value whatever an ORDER BY
says. Then, by type:

one or two code words    8 bytes each, the highest first, turned so that unsigned order is DuckDB's
strings                  their bytes, 0 and 1 as the pairs (1, 2) and (1, 3); then 0
LIST, MAP                the elements, or the entries; then 0
STRUCT, TUPLE, ARRAY     the fields, or the elements
UNION                    the number of the member, then all members

So no string is the beginning of another, and lists are ordered element by element. Codes are DuckDB's equality-normal
form (one zero, one NaN), so equal values have equal strings. Intervals have one form in a MAP and in a UNION only.
Writing takes time linear in the bytes. Reading takes as many numpy calls as the longest list has elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.arrow_batches import arrow_numbers
from sqlfront.storage.codecs.codec import Codec, nulls_of
from sqlfront.storage.codecs.nested_types import NestedType, tuple_names
from sqlfront.storage.codecs.order import is_orderable, order_places
from sqlfront.storage.kernels.layout import NULL_CODE, ORDER_HIGH, ORDER_LOW_WORD, ORDER_WORD

_VALUE, _NULL, _END, _ESCAPE = 1, 2, 0, 1
_WORD = 8


@dataclass(frozen=True)
class ByteStrings:
    """One byte string per row: their lengths, and all bytes in a row."""

    lengths: np.ndarray
    data: np.ndarray

    @property
    def offsets(self) -> np.ndarray:
        return np.concatenate(([0], np.cumsum(self.lengths)))


class Source:
    """Byte strings to read: `ends` are the places of all zero bytes, where strings and lists may end."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.ends = data, np.flatnonzero(data == _END)


class Layout:
    """How the values of one type are written: `arrow_type` is what `read` gives."""

    arrow_type: pa.DataType

    def fits(self, type: pa.DataType) -> bool:
        """Whether `write` takes arrays of an Arrow type; others are cast by DuckDB first."""
        raise NotImplementedError

    def write(self, array: pa.Array) -> ByteStrings:
        raise NotImplementedError

    def read(self, source: Source, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """The values that start at places of the source, and where they end."""
        raise NotImplementedError


class Words(Layout):
    """A type whose code is one or two words."""

    def __init__(self, codec: Codec) -> None:
        self._codec, self.arrow_type = codec, codec.arrow_type
        places = (
            order_places(codec, 0) if is_orderable(codec.type) else [(i, ORDER_WORD, 0) for i in range(codec.words)]
        )
        self._kinds = [(kind, operand) for _, kind, operand in places]

    def fits(self, type: pa.DataType) -> bool:
        return not pa.types.is_nested(type)

    def write(self, array: pa.Array) -> ByteStrings:
        words = self._codec.encode(array)
        present = words[0] != NULL_CODE
        rows = np.empty((len(present), 1 + _WORD * len(words)), np.uint8)
        rows[:, 0] = np.where(present, _VALUE, _NULL)
        for i, (word, kind) in enumerate(zip(words, self._kinds, strict=True)):
            turned = _turned(word, *kind).astype(">i8").view(np.uint8).reshape(-1, _WORD)
            rows[:, 1 + _WORD * i : 1 + _WORD * (i + 1)] = turned
        kept = np.ones(rows.shape, bool)
        kept[~present, 1:] = False
        return ByteStrings(kept.sum(axis=1), rows[kept])

    def read(self, source: Source, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        present, width = source.data[at] == _VALUE, _WORD * len(self._kinds)
        rows = source.data[at[present][:, None] + np.arange(1, 1 + width)]
        words = [np.full(len(at), NULL_CODE), np.zeros(len(at), np.int64)][: len(self._kinds)]
        for i, (word, kind) in enumerate(zip(words, self._kinds, strict=True)):
            turned = np.ascontiguousarray(rows[:, _WORD * i : _WORD * (i + 1)]).view(">i8")[:, 0].astype(np.int64)
            word[present] = _turned_back(turned, *kind)
        return self._codec.decode(words), at + 1 + width * present


class Strings(Layout):
    """A type whose values are strings of bytes in a dictionary."""

    def __init__(self, codec: Codec) -> None:
        self._codec, self.arrow_type = codec, codec.arrow_type
        extension = isinstance(codec.arrow_type, pa.BaseExtensionType)
        self._storage = codec.arrow_type.storage_type if extension else codec.arrow_type

    def fits(self, type: pa.DataType) -> bool:
        return not pa.types.is_nested(type)

    def write(self, array: pa.Array) -> ByteStrings:
        plain = self._codec.native(array).cast(self._storage)
        offsets = np.frombuffer(plain.buffers()[1], np.int64, len(plain) + 1, 8 * plain.offset)
        first, last = offsets[0], offsets[-1]
        held = np.frombuffer(plain.buffers()[2] or b"", np.uint8)[first:last]
        low = held <= _ESCAPE
        data = np.repeat(held, 1 + low)
        if low.any():
            second = np.cumsum(1 + low)[low] - 1
            data[second - 1], data[second] = _ESCAPE, held[low] + 2
        counted = np.concatenate(([0], np.cumsum(1 + low)))
        text = ByteStrings(np.diff(counted[offsets - first]), data)
        return _ended(plain, text)

    def read(self, source: Source, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        present = source.data[at] == _VALUE
        ends = at + 1
        ends[present] = source.ends[np.searchsorted(source.ends, at[present] + 1)]
        lengths = np.where(present, ends - at - 1, 0)
        data = _gathered(source.data, at + 1, lengths)
        escaped = np.concatenate(([False], data[:-1] == _ESCAPE))[: len(data)]
        data[escaped] -= 2
        kept = np.ones(len(data), bool)
        kept[:-1][escaped[1:]] = False
        offsets = np.concatenate(([0], np.cumsum(kept)))[np.concatenate(([0], np.cumsum(lengths)))]
        buffers = [_validity(present), pa.py_buffer(offsets), pa.py_buffer(data[kept])]
        array = pa.Array.from_buffers(self._storage, len(at), buffers)
        if isinstance(self.arrow_type, pa.BaseExtensionType):
            array = pa.ExtensionArray.from_storage(self.arrow_type, array)
        return array, ends + present


class Rows(Layout):
    """STRUCT and TUPLE, and the entries of a MAP."""

    def __init__(self, names: tuple[str, ...], fields: list[Layout], is_named: bool) -> None:
        self._fields, self._names = fields, names if is_named else None
        held = [pa.field(name, field.arrow_type) for name, field in zip(names, fields, strict=True)]
        self.arrow_type = pa.struct(held)

    def fits(self, type: pa.DataType) -> bool:
        if not pa.types.is_struct(type) or type.num_fields != len(self._fields):
            return False
        if self._names is not None and tuple(field.name for field in type) != self._names:
            return False
        return all(layout.fits(field.type) for layout, field in zip(self._fields, type, strict=True))

    def write(self, array: pa.Array) -> ByteStrings:
        nulls = _nulls(array)
        present = array if not nulls.any() else array.filter(pa.array(~nulls))
        fields = [layout.write(present.field(i)) for i, layout in enumerate(self._fields)]
        return _joined([_marks(nulls), *(_spread(field, ~nulls) for field in fields)])

    def read(self, source: Source, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        present = source.data[at] == _VALUE
        places, ends = at[present] + 1, at + 1
        children = []
        for layout in self._fields:
            child, places = layout.read(source, places)
            children.append(child.take(_positions(present)))
        ends[present] = places
        return pa.Array.from_buffers(self.arrow_type, len(at), [_validity(present)], children=children), ends


class Lists(Layout):
    """LIST, and MAP as a list of its entries."""

    def __init__(self, element: Layout, arrow_type: pa.DataType) -> None:
        self._element, self.arrow_type = element, arrow_type

    def fits(self, type: pa.DataType) -> bool:
        if pa.types.is_map(type) or pa.types.is_map(self.arrow_type):
            entry = pa.types.is_map(type) and pa.types.is_map(self.arrow_type)
            return entry and self._element.fits(pa.struct([("key", type.key_type), ("value", type.item_type)]))
        return (pa.types.is_list(type) or pa.types.is_large_list(type)) and self._element.fits(type.value_type)

    def write(self, array: pa.Array) -> ByteStrings:
        if pa.types.is_map(array.type):
            array = _as_list(array)
        # Arrow flattens NULLs alone by a builder, which it has not for every type.
        within = array.values[:0] if array.null_count == len(array) else array.flatten()
        elements = self._element.write(within)
        counts = np.asarray(array.value_lengths().fill_null(0), np.int64)
        lengths = np.diff(elements.offsets[np.concatenate(([0], np.cumsum(counts)))])
        return _ended(array, ByteStrings(lengths, elements.data))

    def read(self, source: Source, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        present = source.data[at] == _VALUE
        ends, rows = at + 1, np.flatnonzero(present)
        parts, owners = [self._element.read(source, at[:0])[0]], [rows[:0]]
        while len(rows := rows[source.data[ends[rows]] != _END]):
            part, ends[rows] = self._element.read(source, ends[rows])
            parts.append(part)
            owners.append(rows)
        owner = np.concatenate(owners)
        values = pa.concat_arrays(parts).take(arrow_numbers(np.argsort(owner, kind="stable")))
        if pa.types.is_map(self.arrow_type):  # Its entries have a type of their own: keys are never NULL.
            entry = [self.arrow_type.key_field, self.arrow_type.item_field]
            values = pa.StructArray.from_arrays([values.field(0), values.field(1)], fields=entry)
        offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(at)))))
        buffers = [_validity(present), pa.py_buffer(offsets.astype(np.int32))]
        return pa.Array.from_buffers(self.arrow_type, len(at), buffers, children=[values]), ends + present


class Arrays(Layout):
    """ARRAY: lists of one length."""

    def __init__(self, element: Layout, size: int) -> None:
        self._element, self._size = element, size
        self.arrow_type = pa.list_(pa.field("l", element.arrow_type), size)

    def fits(self, type: pa.DataType) -> bool:
        sized = pa.types.is_fixed_size_list(type) and type.list_size == self._size
        return sized and self._element.fits(type.value_type)

    def write(self, array: pa.Array) -> ByteStrings:
        nulls = _nulls(array)
        elements = self._element.write(array.flatten())
        lengths = np.diff(elements.offsets[:: self._size])
        return _joined([_marks(nulls), _spread(ByteStrings(lengths, elements.data), ~nulls)])

    def read(self, source: Source, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        present = source.data[at] == _VALUE
        places, ends = at[present] + 1, at + 1
        parts = []
        for _ in range(self._size):
            part, places = self._element.read(source, places)
            parts.append(part.take(_positions(present)))
        ends[present] = places
        order = np.arange(len(at) * self._size).reshape(self._size, len(at)).T.ravel()
        values = pa.concat_arrays(parts).take(arrow_numbers(order))
        return pa.Array.from_buffers(self.arrow_type, len(at), [_validity(present)], children=[values]), ends


def layout_of(nested: NestedType, held: list[Layout]) -> Layout:
    """The layout of a nested type over the layouts of what it holds: of a UNION, the number of the member first."""
    if nested.family == "LIST":
        return Lists(held[0], pa.list_(pa.field("l", held[0].arrow_type)))
    if nested.family == "ARRAY":
        return Arrays(held[0], nested.size)
    if nested.family == "MAP":
        key, value = held
        arrow_type = pa.map_(key.arrow_type, value.arrow_type)
        return Lists(Rows(nested.names, held, False), arrow_type)
    names = nested.names if nested.family != "UNION" else tuple_names(len(held))
    return Rows(names, held, nested.family == "STRUCT")


def strings_of(written: ByteStrings, array: pa.Array) -> pa.Array:
    """The byte strings as an Arrow array that is NULL where `array` is."""
    nulls = nulls_of(array)
    validity = None if nulls is None else _validity(~nulls)
    buffers = [validity, pa.py_buffer(written.offsets), pa.py_buffer(written.data)]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


def values_of(layout: Layout, strings: pa.Array) -> pa.Array:
    """The values of byte strings, NULL where they are."""
    offsets = np.frombuffer(strings.buffers()[1], np.int64, len(strings) + 1)
    data = np.frombuffer(strings.buffers()[2] or b"", np.uint8)
    nulls = _nulls(strings)
    # A NULL reads a string of its own at the end.
    source = Source(np.concatenate((data, np.array([_NULL], np.uint8))))
    return layout.read(source, np.where(nulls, len(data), offsets[:-1]))[0]


def _turned(word: np.ndarray, kind: int, operand: int) -> np.ndarray:
    """A code word as one whose unsigned order is that of the values, as ordered groups compare them."""
    if kind == ORDER_LOW_WORD:
        return word
    if operand:
        word = np.where(word == operand, NULL_CODE, word)
    return (word - 1 if kind == ORDER_HIGH else word) ^ NULL_CODE


def _turned_back(word: np.ndarray, kind: int, operand: int) -> np.ndarray:
    if kind == ORDER_LOW_WORD:
        return word
    word = word ^ NULL_CODE
    if kind == ORDER_HIGH:
        word = word + 1
    return np.where(word == NULL_CODE, operand, word) if operand else word


def _nulls(array: pa.Array) -> np.ndarray:
    nulls = nulls_of(array)
    return np.zeros(len(array), bool) if nulls is None else nulls


def _validity(present: np.ndarray) -> pa.Buffer | None:
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def _positions(present: np.ndarray) -> pa.Array:
    """Where each row's value is among those of the rows that have one."""
    return pa.array(np.cumsum(present) - 1, mask=~present)


def _marks(nulls: np.ndarray) -> ByteStrings:
    return ByteStrings(np.ones(len(nulls), np.int64), np.where(nulls, _NULL, _VALUE).astype(np.uint8))


def _ended(array: pa.Array, held: ByteStrings) -> ByteStrings:
    """A mark, what a value holds, and the end."""
    nulls = _nulls(array)
    lengths = np.where(nulls, 0, held.lengths)
    if nulls.any():  # Arrow may hold bytes under a NULL.
        held = ByteStrings(lengths, _gathered(held.data, held.offsets[:-1], lengths))
    end = ByteStrings((~nulls).astype(np.int64), np.zeros(int((~nulls).sum()), np.uint8))
    return _joined([_marks(nulls), held, end])


def _spread(strings: ByteStrings, present: np.ndarray) -> ByteStrings:
    """Strings of the rows that are present as strings of all rows, empty elsewhere."""
    lengths = np.zeros(len(present), np.int64)
    lengths[present] = strings.lengths
    return ByteStrings(lengths, strings.data)


def _joined(parts: list[ByteStrings]) -> ByteStrings:
    """Row by row, the strings of the parts one after the other."""
    total = np.stack([part.lengths for part in parts]).sum(axis=0)
    start = np.cumsum(total) - total
    data = np.empty(int(total.sum()), np.uint8)
    for part in parts:
        data[_places(start, part.lengths)] = part.data
        start = start + part.lengths
    return ByteStrings(total, data)


def _gathered(data: np.ndarray, start: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return data[_places(start, lengths)]


def _places(start: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start[i], start[i] + 1, ... for `lengths[i]` places, for each i."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(start - before, lengths) + np.arange(int(lengths.sum()))


def _as_list(array: pa.Array) -> pa.Array:
    """A map array as a list array of its entries."""
    entry = [pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)]
    entries = pa.StructArray.from_arrays([array.keys, array.items], fields=entry)  # Those before its offset too.
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(array), array.buffers()[:2], offset=array.offset, children=[entries]
    )
