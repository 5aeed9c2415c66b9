"""Dictionaries: byte strings become small integers, and are forgotten when nothing refers to them.

A code is an id >= 0 that stays valid while its reference count is positive; ids of forgotten strings
are used again. Stores count references inside their kernels through `Dictionary.header`, so a window
that slides over ever new strings takes the memory of the window.

Not thread-safe: callers hold the engine's lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from storage import dictionary_kernels as kernels
from storage.dictionary_kernels import FREE, FULL, HEAP_DEAD, HEAP_USED, LIVE, USED
from storage.errors import InternalError
from storage.jit import entry_point
from storage.layout import NULL_CODE

_SLOTS, _IDS, _HEAP = 64, 32, 1024
_hash_one = entry_point(kernels.hash_bytes)
_insert_one = entry_point(kernels.insert_one)
_find_one = entry_point(kernels.find_one)


class Dictionary:
    """A set of byte strings, each with an id and a reference count.

    `refs[id]` is the number of references. `header[0]` is always the address of the current `refs`
    data, at a stable address of its own: a store's kernel adds 1 to refs[code] when it creates a row
    and subtracts 1 when it frees it, skipping negative codes (NULL_CODE is one).
    Look-up and insertion take expected constant time and the string's length, growth and sweeps
    are amortised; the hash is keyed per dictionary, so its collisions cannot be prepared.
    """

    def __init__(self) -> None:
        self._seed = int.from_bytes(os.urandom(8), "little", signed=True)
        self._slots = np.zeros(_SLOTS, np.int64)
        self._entries = np.zeros(2 * _IDS, np.int64)
        self._heap = np.zeros(_HEAP, np.uint8)
        self._meta = np.zeros(kernels.META_WORDS, np.int64)
        self._meta[FREE] = -1
        self._set_buffer(256)
        self._activity = 0
        self.header = np.zeros(1, np.int64)
        self._set_refs(np.zeros(_IDS, np.int64))

    def encode(self, array: pa.Array) -> np.ndarray:
        """Codes of a string or binary array (32 or 64-bit offsets), new strings inserted; NULL_CODE for NULL."""
        codes, rows = self._hashes(array)
        row = 0
        while len(codes):
            row = kernels.insert_rows(
                *rows, row, codes, self._slots, self._entries, self._heap, self.refs, self._meta
            )
            if row == len(codes):
                break
            self._grow(kernels.offset_at(*rows[1:], row + 1) - kernels.offset_at(*rows[1:], row))
        self._activity += len(codes)
        return codes

    def find(self, array: pa.Array) -> np.ndarray:
        """Codes of a string or binary array; ABSENT (-1) for strings never inserted, NULL_CODE for NULL."""
        codes, rows = self._hashes(array)
        kernels.find_rows(*rows, codes, self._slots, self._entries, self._heap.ctypes.data)
        return codes

    def encode_one(self, value: bytes) -> int:
        """The code of one string, inserted if it is new."""
        address, h = self._hash(value)
        length = len(value)
        self._activity += 1
        while True:
            code = _insert_one(
                address, length, h, self._slots, self._entries, self._heap, self.refs, self._meta
            )
            if code != FULL:
                return code
            self._grow(length)

    def find_one(self, value: bytes) -> int | None:
        """The code of one string, or None if the dictionary does not hold it."""
        address, h = self._hash(value)
        code = _find_one(address, len(value), h, self._slots, self._entries, self._heap.ctypes.data)
        return code if code >= 0 else None

    def decode(self, codes: np.ndarray, arrow_type: pa.DataType) -> pa.Array:
        """The strings of int64 codes as large_string or large_binary; NULL_CODE becomes NULL."""
        codes = np.ascontiguousarray(codes)
        offsets = np.empty(len(codes) + 1, np.int64)
        bad = kernels.measure(codes, self._entries, self._meta, offsets)
        if bad >= 0:
            raise InternalError(f"code {codes[bad]} is not in the dictionary", why="it was freed or never made")
        data = np.empty(max(int(offsets[-1]), 1), np.uint8)
        kernels.gather(codes, self._entries, self._heap, offsets, data.ctypes.data)
        buffers = [validity(codes), pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(arrow_type, len(codes), buffers)

    def needs_sweep(self) -> bool:
        """Whether a sweep would free enough to pay for itself; amortised constant time per encoded row."""
        live = int(self._meta[LIVE])
        if self._activity <= max(1024, live // 2):
            return False
        self._activity = 0
        return self._unused() > max(1024, live // 4)

    def sweep(self) -> None:
        """Forget every string whose reference count is 0, and give memory back. Call between epochs."""
        kernels.free_unused(self._entries, self.refs, self._meta)
        self._activity = 0
        live = int(self._meta[LIVE])
        slots = len(self._slots)
        while slots > _SLOTS and slots > 8 * live:
            slots //= 2
        self._rebuild(slots)
        self._shrink_ids()
        if 2 * self._meta[HEAP_DEAD] > self._meta[HEAP_USED]:
            self._compact(0)

    def live(self) -> int:
        """Strings held, those waiting for a sweep included."""
        return int(self._meta[LIVE])

    def bytes(self) -> int:
        """Memory allocated."""
        return sum(a.nbytes for a in (self._slots, self._entries, self._heap, self.refs, self._meta, self._buffer))

    def _hashes(self, array: pa.Array) -> tuple[np.ndarray, tuple[int, int, int]]:
        """A hash per row, and (address of the bytes, address of the offsets, wide) for the other kernels."""
        wide = int(pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))
        valid, offsets, data = array.buffers()
        codes = np.empty(len(array), np.int64)
        rows = (data.address if data else 0, (offsets.address if offsets else 0) + (8 if wide else 4) * array.offset, wide)
        if len(codes):
            nulls = valid.address if valid is not None and array.null_count else 0
            kernels.hash_rows(*rows, nulls, array.offset, self._seed, codes)
        return codes, rows

    def _hash(self, value: bytes) -> tuple[int, int]:
        """Put one string into our buffer: its address and its hash."""
        length = len(value)
        if length > len(self._buffer):
            self._set_buffer(2 * length)
        self._view[:length] = value
        return self._address, _hash_one(self._address, length, self._seed)

    def _grow(self, length: int) -> None:
        """Make room for one more id and for `length` bytes."""
        if 2 * (self._meta[LIVE] + 1) > len(self._slots):
            self._rebuild(2 * len(self._slots))
        if self._meta[FREE] < 0 and self._meta[USED] == len(self.refs):
            self._resize_ids(2 * len(self.refs))
        if self._meta[HEAP_USED] + length > len(self._heap):
            self._compact(length)

    def _compact(self, length: int) -> None:
        """Move the live strings to a new heap with room for `length` bytes and as much again as they take."""
        needed = int(self._meta[HEAP_USED] - self._meta[HEAP_DEAD]) + length
        heap = np.empty(max(_HEAP, 2 * needed), np.uint8)
        kernels.compact(self._entries, self._heap, self._meta, heap)
        self._heap = heap

    def _rebuild(self, size: int) -> None:
        slots = np.zeros(size, np.int64)
        kernels.rebuild_slots(self._slots, self._entries, self._meta, slots)
        self._slots = slots

    def _shrink_ids(self) -> None:
        size = len(self.refs)
        while size > _IDS and size > 4 * self._meta[USED]:
            size //= 2
        if size < len(self.refs):
            self._resize_ids(size)

    def _resize_ids(self, size: int) -> None:
        used = int(self._meta[USED])
        entries, refs = np.zeros(2 * size, np.int64), np.zeros(size, np.int64)
        entries[: 2 * used] = self._entries[: 2 * used]
        refs[:used] = self.refs[:used]
        self._entries = entries
        self._set_refs(refs)

    def _set_buffer(self, size: int) -> None:
        """The place where single strings are handed to kernels."""
        self._buffer = np.zeros(size, np.uint8)
        self._view = memoryview(self._buffer)  # type: ignore[arg-type]
        self._address = self._buffer.ctypes.data

    def _set_refs(self, refs: np.ndarray) -> None:
        self.refs = refs
        self.header[0] = refs.ctypes.data

    def _unused(self) -> int:
        """Strings that a sweep would free."""
        free = int(self._meta[USED] - self._meta[LIVE])
        return int(kernels.count_unused(self.refs, self._meta)) - free

    def _check(self) -> None:
        """Assert the invariants: slots hold exactly the live ids, free ids form one chain, bytes add up."""
        used, live = int(self._meta[USED]), int(self._meta[LIVE])
        lengths = self._entries[1 : 2 * used : 2]
        held = np.flatnonzero(lengths >= 0)
        assert len(held) == live and np.all(self.refs[:used] >= 0)
        assert self.header[0] == self.refs.ctypes.data and 2 * len(self.refs) == len(self._entries)
        taken = self._slots[self._slots != 0]
        assert np.array_equal(np.sort((taken & 0xFFFFFFFF) - 1), held) and 2 * live <= len(self._slots)
        assert sorted(self._free_chain()) == list(np.flatnonzero(lengths < 0))
        assert np.all(self.refs[:used][lengths < 0] == 0)
        assert lengths[held].sum() == self._meta[HEAP_USED] - self._meta[HEAP_DEAD]
        assert self._meta[HEAP_USED] <= len(self._heap)
        strings = self.decode(held, pa.large_binary())
        assert np.array_equal(self.find(strings), held)

    def _free_chain(self) -> Iterator[int]:
        i = int(self._meta[FREE])
        while i >= 0:
            yield i
            i = int(self._entries[2 * i])


class Dictionaries:
    """The engine's dictionaries, one per kind of value, shared by all columns so that equal values have equal codes."""

    def __init__(self) -> None:
        self.varchar = Dictionary()
        self.blob = Dictionary()

    def __iter__(self) -> Iterator[Dictionary]:
        return iter((self.varchar, self.blob))

    def sweep_if_needed(self) -> None:
        """Sweep those that need it. Call between epochs only: codes that nothing refers to yet are freed."""
        for dictionary in self:
            if dictionary.needs_sweep():
                dictionary.sweep()


def validity(codes: np.ndarray) -> pa.Buffer | None:
    """Arrow's bitmap of the codes that are not NULL_CODE, or None when all are values."""
    valid = codes != NULL_CODE
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
