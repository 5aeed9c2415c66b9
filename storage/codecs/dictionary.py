"""Dictionaries: byte strings become small integers, and are forgotten when nothing refers to them.

A code is an id >= 0 that stays valid while its reference count is positive; ids of forgotten strings
are used again. Stores count references inside their kernels through `Dictionary.header`, so a window
that slides over ever new strings takes the memory of the window.

Not thread-safe: callers hold the engine's lock.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from sqlfront.storage.codecs.casting import Caster
from sqlfront.storage.errors import InternalError
from sqlfront.storage.kernels.jit import entry_point
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.tables import byte_strings as kernels
from sqlfront.storage.kernels.tables.byte_strings import (
    ENTRIES,
    FREE,
    FULL,
    HEAP,
    HEAP_DEAD,
    HEAP_SIZE,
    HEAP_USED,
    IDS,
    LIVE,
    MASK,
    REFS,
    SEED,
    SLACK,
    SLOTS,
    STATE_WORDS,
    USED,
)

if TYPE_CHECKING:
    from sqlfront.storage.codecs.memo import Memos

_FEW_SLOTS, _FEW_IDS, _SMALL_HEAP, _SMALL_BUFFER = 64, 32, 1024, 256
_COUNTERS = {"used": USED, "free": FREE, "live": LIVE, "heap": HEAP_USED, "dead": HEAP_DEAD, "seed": SEED}
"""The words of the state that are no addresses and sizes of memory, as a snapshot calls them."""
_ARRAYS: dict[str, tuple[type, int, int]] = {
    "slots": (np.int64, _FEW_SLOTS, 0),
    "entries": (np.int64, 2 * _FEW_IDS, 0),
    "refs": (np.int64, _FEW_IDS, 0),
    "heap": (np.uint8, _SMALL_HEAP + SLACK, SLACK),
}
"""The arrays of a snapshot: kind, least length, and the room behind them."""
Fill = Callable[[str, np.ndarray], None]
"""Fills the array of a snapshot that has this name."""
_insert_one, _seek_one = entry_point(kernels.insert_one), entry_point(kernels.seek_one)
_measure, _gather = entry_point(kernels.measure), entry_point(kernels.gather)


class Arrays(Protocol):
    """Where large arrays live instead of memory."""

    def zeros(self, count: int, kind: type) -> np.ndarray:
        """A new array."""
        ...

    def spilled(self, *arrays: np.ndarray) -> int:
        """The bytes of those of the arrays that are not in memory."""
        ...


class Dictionary:
    """A set of byte strings, each with an id and a reference count.

    `refs[id]` is the number of references. `header[0]` is always the address of the current `refs`
    data, at a stable address of its own: a store's kernel adds 1 to refs[code] when it creates a row
    and subtracts 1 when it frees it, skipping negative codes (NULL_CODE is one).
    Look-up and insertion take expected constant time and the string's length, growth and sweeps
    are amortised; the hash is keyed per dictionary, so its collisions cannot be prepared.
    """

    def __init__(self) -> None:
        self.spill: Arrays | None = None
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._at = int(self._state.ctypes.data)
        self._state[SEED] = int.from_bytes(os.urandom(8), "little", signed=True)
        self._state[FREE] = -1
        self._activity = self._loose = 0
        self._pins: dict[int, int] = {}
        self._memos: Memos | None = None
        self.header = np.zeros(1, np.int64)
        self._set_slots(np.zeros(_FEW_SLOTS, np.int64))
        self._set_ids(np.zeros(2 * _FEW_IDS, np.int64), np.zeros(_FEW_IDS, np.int64))
        self._set_heap(np.zeros(_SMALL_HEAP + SLACK, np.uint8))
        self._set_buffer(_SMALL_BUFFER)

    def encode(self, array: pa.Array) -> np.ndarray:
        """Codes of a string or binary array (32 or 64-bit offsets), new strings inserted; NULL_CODE for NULL."""
        codes, rows = self._hashes(array)
        row = 0
        while row < len(codes):
            row = kernels.insert_rows(self._at, *rows, row, codes.ctypes.data, 1, len(codes))
            if row < len(codes):
                self._grow(kernels.offset_at(*rows[1:], row + 1) - kernels.offset_at(*rows[1:], row))
        self.note_encoded(len(codes))
        return codes

    def find(self, array: pa.Array) -> np.ndarray:
        """Codes of a string or binary array; ABSENT (-1) for strings never inserted, NULL_CODE for NULL."""
        codes, rows = self._hashes(array)
        kernels.find_rows(self._at, *rows, codes.ctypes.data, len(codes))
        return codes

    def encode_one(self, value: bytes) -> int:
        """The code of one string, inserted if it is new."""
        address, length = self._place(value), len(value)
        self._activity += 1
        code = _insert_one(self._at, address, length)
        while code == FULL:
            self._grow(length)
            code = _insert_one(self._at, address, length)
        return code

    def find_one(self, value: bytes) -> int | None:
        """The code of one string, or None if the dictionary does not hold it."""
        code = _seek_one(self._at, self._place(value), len(value))
        return code if code >= 0 else None

    def pin(self, value: bytes) -> int:
        """The code of one string, which stays valid until `unpin`."""
        code = self.encode_one(value)
        self.hold(code)
        return code

    def hold(self, code: int) -> None:
        """Let the code of a string that is held stay valid until `unpin`."""
        self.refs[code] += 1
        self._pins[code] = self._pins.get(code, 0) + 1

    def unpin(self, code: int) -> None:
        """Take one `pin` or `hold` back."""
        self.refs[code] -= 1
        self._pins[code] -= 1
        if self._pins[code] == 0:
            del self._pins[code]

    @property
    def memos(self) -> Memos:
        """What expressions make of the strings."""
        if self._memos is None:
            from sqlfront.storage.codecs.memo import Memos  # Most views need none.

            self._memos = Memos(self)
        return self._memos

    @property
    def pinned(self) -> int:
        """Strings that are pinned."""
        return len(self._pins)

    def decode(self, codes: np.ndarray, arrow_type: pa.DataType) -> pa.Array:
        """The strings of int64 codes as large_string or large_binary; NULL_CODE becomes NULL."""
        codes = np.ascontiguousarray(codes)
        offsets = np.empty(len(codes) + 1, np.int64)
        at = codes.ctypes.data, offsets.ctypes.data
        bad = _measure(self._at, *at, len(codes))
        if bad >= 0:
            raise InternalError(f"code {codes[bad]} is not in the dictionary", why="it was freed or never made")
        data = np.empty(int(offsets[-1]) + SLACK, np.uint8)
        _gather(self._at, *at, data.ctypes.data, len(codes))
        buffers = [validity(codes), pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])]
        return pa.Array.from_buffers(arrow_type, len(codes), buffers)

    @property
    def state(self) -> int:
        """The address of the state that kernels take; it never moves."""
        return self._at

    def note_encoded(self, rows: int) -> None:
        """Tell that a kernel has encoded so many rows: `needs_sweep` weighs its work against theirs."""
        self._activity += rows

    def needs_sweep(self) -> bool:
        """Whether a sweep would free enough to pay for itself; amortised constant time per encoded row."""
        live = self.live()
        if self._activity <= max(1024, live // 2):
            return False
        self._activity = 0
        return kernels.count_unused(self._at) - self._loose > max(1024, live // 4)

    def sweep(self, *, all_unused: bool = True) -> None:
        """Forget every string whose reference count is 0, and give memory back. Call between epochs.

        Strings that `memos` make of others stay with these, and without `all_unused` strings that memos know. Linear in
        the strings and capacity held; with `needs_sweep`, amortised constant per encoded row.
        """
        self._free_unused(all_unused)
        self._activity = 0
        size, live = len(self._slots), self.live()
        while size > _FEW_SLOTS and size > 8 * live:
            size //= 2
        self._rebuild(size)
        self._shrink_ids()
        if 2 * self._state[HEAP_DEAD] > self._state[HEAP_USED]:
            self._compact(0)
        if len(self._buffer) > _SMALL_BUFFER:
            self._set_buffer(_SMALL_BUFFER)

    def _free_unused(self, all_unused: bool) -> None:
        """Forget unused strings. A string that memos keep has a reference until the kernel is done."""
        self._loose, held = 0, np.empty(0, np.int64)
        if self._memos:
            refs = self.refs[: self._state[USED]]
            alive = refs > 0
            self._memos.settle(alive, all_referred=all_unused)
            held = np.flatnonzero(alive & (refs == 0))
            self._loose = len(held)
        try:
            self.refs[held] = 1
            kernels.free_unused(self._at)
        finally:
            self.refs[held] = 0

    def arrays(self) -> tuple[dict[str, int], dict[str, np.ndarray]]:
        """Counters and memory, for a snapshot. References by pins are left out: whoever pins does so anew."""
        state, used = self._state, int(self._state[USED])
        refs = self.refs[:used].copy()
        for code, pins in self._pins.items():
            refs[code] -= pins
        sizes = {name: int(state[place]) for name, place in _COUNTERS.items()}
        heap = self._heap[: state[HEAP_USED]]
        return sizes, {"slots": self._slots, "entries": self._entries[: 2 * used], "refs": refs, "heap": heap}

    def adopt(self, sizes: Mapping[str, int], lengths: Mapping[str, int], read: Fill) -> None:
        """Take the memory of another dictionary, by its `arrays`: `read(name, array)` fills an array whose length is
        given. Codes stay what they were. Nothing may be pinned here."""
        if self._pins:
            raise InternalError("a dictionary with pinned strings takes no others")
        arrays: dict[str, np.ndarray] = {
            name: np.zeros(max(least, lengths[name] + more), kind) for name, (kind, least, more) in _ARRAYS.items()
        }
        for name, array in arrays.items():
            read(name, array[: lengths[name]])
        for name, place in _COUNTERS.items():
            self._state[place] = sizes[name]
        if self._memos:
            self._memos.clear()
        self._set_slots(arrays["slots"])
        self._set_ids(arrays["entries"], arrays["refs"])
        self._set_heap(arrays["heap"])
        self._activity = 0

    def count_anew(self, codes: Iterable[np.ndarray]) -> None:
        """Let the references be those of stores, one for each code, and those of pins. O(ids + codes)."""
        self.refs[:] = 0
        for each in codes:
            np.add.at(self.refs, each, 1)
        for code, pins in self._pins.items():
            self.refs[code] += pins

    def live(self) -> int:
        """Strings held, those waiting for a sweep included."""
        return int(self._state[LIVE])

    def bytes(self) -> int:
        """Memory allocated."""
        arrays = (self._slots, self._entries, self._heap, self.refs, self._state, self._buffer)
        return sum(array.nbytes for array in arrays) + sum(memo.bytes() for memo in self._memos or ())

    def spilled_bytes(self) -> int:
        """How many of `bytes()` are spilled."""
        return self.spill.spilled(self._slots, self._entries, self._heap, self.refs) if self.spill is not None else 0

    def _hashes(self, array: pa.Array) -> tuple[np.ndarray, tuple[int, int, int]]:
        """A hash per row, and (address of the bytes, address of the offsets, wide) for the other kernels."""
        wide = int(pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))
        valid, offsets, data = array.buffers()
        codes = np.empty(len(array), np.int64)
        first = (offsets.address if offsets else 0) + (8 if wide else 4) * array.offset
        rows = (data.address if data else 0, first, wide)
        nulls = valid.address if valid is not None and array.null_count else 0
        kernels.hash_rows(self._at, *rows, nulls, array.offset, codes.ctypes.data, 1, len(codes))
        return codes, rows

    def _place(self, value: builtins.bytes) -> int:
        """Put one string where kernels can read it: its address."""
        if len(value) > len(self._buffer):
            self._set_buffer(2 * len(value))
        self._view[: len(value)] = value
        return self._address

    def _grow(self, length: int) -> None:
        """Make room for one more id and for `length` bytes."""
        state = self._state
        if 2 * (state[LIVE] + 1) > len(self._slots):
            self._rebuild(2 * len(self._slots))
        if state[FREE] < 0 and state[USED] == len(self.refs):
            self._resize_ids(2 * len(self.refs))
        if state[HEAP_USED] + length > state[HEAP_SIZE]:
            self._compact(length)

    def _zeros(self, count: int, kind: type) -> np.ndarray:
        return np.zeros(count, kind) if self.spill is None else self.spill.zeros(count, kind)

    def _rebuild(self, size: int) -> None:
        slots = self._zeros(size, np.int64)
        kernels.rebuild_slots(self._at, slots.ctypes.data, size)
        self._set_slots(slots)

    def _compact(self, length: int) -> None:
        """Move the live strings to a new heap with room for `length` bytes and as much again as they take."""
        needed = int(self._state[HEAP_USED] - self._state[HEAP_DEAD]) + length
        heap = self._zeros(max(_SMALL_HEAP, 2 * needed) + SLACK, np.uint8)
        kernels.compact(self._at, heap.ctypes.data)
        self._set_heap(heap)

    def _shrink_ids(self) -> None:
        size = len(self.refs)
        while size > _FEW_IDS and size > 4 * self._state[USED]:
            size //= 2
        if size < len(self.refs):
            self._resize_ids(size)

    def _resize_ids(self, size: int) -> None:
        used = int(self._state[USED])
        entries, refs = self._zeros(2 * size, np.int64), self._zeros(size, np.int64)
        entries[: 2 * used] = self._entries[: 2 * used]
        refs[:used] = self.refs[:used]
        self._set_ids(entries, refs)

    def _set_slots(self, slots: np.ndarray) -> None:
        self._slots = slots
        self._state[SLOTS], self._state[MASK] = slots.ctypes.data, len(slots) - 1

    def _set_ids(self, entries: np.ndarray, refs: np.ndarray) -> None:
        self._entries, self.refs = entries, refs
        self._state[ENTRIES], self._state[REFS], self._state[IDS] = entries.ctypes.data, refs.ctypes.data, len(refs)
        self.header[0] = refs.ctypes.data

    def _set_heap(self, heap: np.ndarray) -> None:
        self._heap = heap
        self._state[HEAP], self._state[HEAP_SIZE] = heap.ctypes.data, len(heap) - SLACK

    def _set_buffer(self, size: int) -> None:
        """The place where single strings are handed to kernels."""
        self._buffer = np.zeros(size, np.uint8)
        self._view = self._buffer.data
        self._address = self._buffer.ctypes.data

    def _check(self) -> None:
        """Assert the invariants: slots hold exactly the live ids, free ids form one chain, bytes add up."""
        state = self._state
        used, live = int(state[USED]), self.live()
        lengths = self._entries[1 : 2 * used : 2]
        held = np.flatnonzero(lengths >= 0)
        taken = self._slots[self._slots != 0]
        assert len(held) == live
        assert 2 * live <= len(self._slots)
        assert np.array_equal(np.sort((taken & 0xFFFFFFFF) - 1), held)
        assert sorted(self._free_chain()) == list(np.flatnonzero(lengths < 0))
        assert np.all(self.refs[:used] >= 0)
        assert np.all(self.refs[:used][lengths < 0] == 0)
        assert self.header[0] == state[REFS] == self.refs.ctypes.data
        assert lengths[held].sum() == state[HEAP_USED] - state[HEAP_DEAD]
        assert state[HEAP_USED] <= state[HEAP_SIZE] == len(self._heap) - SLACK
        assert np.array_equal(self.find(self.decode(held, pa.large_binary())), held)
        for memo in self._memos or ():
            memo._check(lengths >= 0)

    def _free_chain(self) -> Iterator[int]:
        i = int(self._state[FREE])
        while i >= 0:
            yield i
            i = int(self._entries[2 * i])


class Dictionaries:
    """The engine's dictionaries, one per kind of value, shared by all columns so that equal values have equal codes.

    `caster` casts what is put into a column of another type.
    """

    def __init__(self, caster: Caster | None = None) -> None:
        self.varchar = Dictionary()
        self.blob = Dictionary()
        self.caster = caster or Caster()

    def __iter__(self) -> Iterator[Dictionary]:
        return iter((self.varchar, self.blob))

    def due(self) -> list[Dictionary]:
        """Those that need a sweep, between epochs only: codes that nothing refers to yet are freed."""
        return [dictionary for dictionary in self if dictionary.needs_sweep()]


def validity(codes: np.ndarray) -> pa.Buffer | None:
    """Arrow's bitmap of the codes that are not NULL_CODE, or None when all are values."""
    if codes.min(initial=0) != NULL_CODE:  # It is the least word.
        return None
    return pa.py_buffer(np.packbits(codes != NULL_CODE, bitorder="little"))
