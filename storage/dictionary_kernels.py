"""Kernels of the string dictionary: hash, find, insert, sweep, compact and copy out byte strings.

A dictionary is five arrays, owned by `storage.dictionary.Dictionary`:

    slots    int64  open addressing, linear probing: hash31 << 32 | id + 1, or 0
    entries  int64  two words per id: start in the heap and length; free ids: next free id (-1 = none) and -1
    heap     uint8  the bytes, back to back, dead ones included
    refs     int64  reference counts, written by the stores
    meta     int64  the counters USED..FREE_IDS below

Strings come as Arrow buffers: the address of the bytes, and the address of 32 or 64-bit offsets.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from storage.jit import kernel
from storage.layout import NULL_CODE
from storage.memory import high_product, prefetch

USED, FREE, LIVE, HEAP_USED, HEAP_DEAD = 0, 1, 2, 3, 4
META_WORDS = 5
ABSENT = -1
FULL = -2
AHEAD = 12

_MIX = -7046029254386353131  # 2^64 divided by the golden ratio, odd
_MIX_LENGTH = -4417276706812531889  # wyhash's second secret
_ID_MASK = 0xFFFFFFFF


def _loader(bits: int):
    @intrinsic
    def load_unaligned(typingctx, address):
        def codegen(context, builder, signature, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            word = builder.load(pointer, align=1)
            return word if bits == 64 else builder.zext(word, ir.IntType(64))

        return types.int64(types.int64), codegen

    return load_unaligned


def _storer(bits: int):
    @intrinsic
    def store_unaligned(typingctx, address, word):
        def codegen(context, builder, signature, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store_unaligned


_word, _half, _byte = _loader(64), _loader(32), _loader(8)
_put_word, _put_byte = _storer(64), _storer(8)


@kernel("int64(int64,int64,int64)")
def hash_bytes(address, length, seed):
    """A keyed 31-bit hash: one 128-bit product, folded, per eight bytes."""
    h = seed ^ (length * _MIX_LENGTH)
    end = address + length
    if length > 8:
        at = address
        while at + 8 < end:
            w = h ^ _word(at)
            h = (w * _MIX) ^ high_product(w, _MIX)
            at += 8
        w = _word(end - 8)
    elif length >= 4:
        w = _half(address) | (_half(end - 4) << 32)
    elif length > 0:
        w = (_byte(address) << 16) | (_byte(address + (length >> 1)) << 8) | _byte(end - 1)
    else:
        w = 0
    w ^= h
    h = (w * _MIX) ^ high_product(w, _MIX)
    w = h ^ seed
    return (((w * _MIX_LENGTH) ^ high_product(w, _MIX_LENGTH)) >> 32) & 0x7FFFFFFF


@kernel("boolean(int64,int64,int64)")
def equal_bytes(a, b, length):
    at = 0
    while at + 8 <= length:
        if _word(a + at) != _word(b + at):
            return False
        at += 8
    if at == length:
        return True
    if length >= 8:
        return _word(a + length - 8) == _word(b + length - 8)
    while at < length:
        if _byte(a + at) != _byte(b + at):
            return False
        at += 1
    return True


@kernel("void(int64,int64,int64)")
def copy_bytes(source, target, length):
    at = 0
    while at + 8 <= length:
        _put_word(target + at, _word(source + at))
        at += 8
    while at < length:
        _put_byte(target + at, _byte(source + at))
        at += 1


@kernel("int64(int64,int64,int64,int64[::1],int64[::1],int64)")
def find_one(address, length, h, slots, entries, heap):
    """The id of a string, or ABSENT."""
    mask = len(slots) - 1
    at = h & mask
    while slots[at] != 0:
        if slots[at] >> 32 == h:
            i = (slots[at] & _ID_MASK) - 1
            if entries[2 * i + 1] == length and equal_bytes(address, heap + entries[2 * i], length):
                return i
        at = (at + 1) & mask
    return ABSENT


@kernel("int64(int64,int64,int64,int64[::1],int64[::1],uint8[::1],int64[::1],int64[::1])")
def insert_new(address, length, h, slots, entries, heap, refs, meta):
    """Insert a string that is not there; FULL, with nothing changed, when an array must grow first."""
    if 2 * (meta[LIVE] + 1) > len(slots) or meta[HEAP_USED] + length > len(heap):
        return FULL
    if meta[FREE] >= 0:
        i = meta[FREE]
        meta[FREE] = entries[2 * i]
    elif meta[USED] < len(refs):
        i = meta[USED]
        meta[USED] += 1
    else:
        return FULL
    copy_bytes(address, heap.ctypes.data + meta[HEAP_USED], length)
    entries[2 * i] = meta[HEAP_USED]
    entries[2 * i + 1] = length
    refs[i] = 0
    meta[HEAP_USED] += length
    meta[LIVE] += 1
    mask = len(slots) - 1
    at = h & mask
    while slots[at] != 0:
        at = (at + 1) & mask
    slots[at] = (h << 32) | (i + 1)
    return i


@kernel("int64(int64,int64,int64,int64[::1],int64[::1],uint8[::1],int64[::1],int64[::1])")
def insert_one(address, length, h, slots, entries, heap, refs, meta):
    """The id of a string, inserted if it is new; FULL as `insert_new`."""
    i = find_one(address, length, h, slots, entries, heap.ctypes.data)
    return i if i != ABSENT else insert_new(address, length, h, slots, entries, heap, refs, meta)


@kernel("int64(int64,int64,int64)")
def offset_at(offsets, wide, row):
    return _word(offsets + 8 * row) if wide else _half(offsets + 4 * row)


@kernel("void(int64,int64,int64,int64,int64,int64,int64[::1])")
def hash_rows(data, offsets, wide, validity, first_bit, seed, out):
    """The hash of every row, NULL_CODE where it is NULL. `validity` is 0 or the address of Arrow's bitmap."""
    start = offset_at(offsets, wide, 0)
    for row in range(len(out)):
        end = offset_at(offsets, wide, row + 1)
        bit = first_bit + row
        if validity != 0 and (_byte(validity + (bit >> 3)) >> (bit & 7)) & 1 == 0:
            out[row] = NULL_CODE
        else:
            out[row] = hash_bytes(data + start, end - start, seed)
        start = end


@kernel("int64(int64,int64,int64,int64,int64[::1],int64[::1],int64[::1],uint8[::1],int64[::1],int64[::1])")
def insert_rows(data, offsets, wide, row, out, slots, entries, heap, refs, meta):
    """Replace the hashes in `out` by ids from `row` on; the row where an array must grow, or len(out)."""
    mask = len(slots) - 1
    base = slots.ctypes.data
    while row < len(out):
        if row + AHEAD < len(out):
            prefetch(base + 8 * (out[row + AHEAD] & mask))
        if out[row] != NULL_CODE:
            start = offset_at(offsets, wide, row)
            length = offset_at(offsets, wide, row + 1) - start
            i = find_one(data + start, length, out[row], slots, entries, heap.ctypes.data)
            if i == ABSENT:
                i = insert_new(data + start, length, out[row], slots, entries, heap, refs, meta)
                if i == FULL:
                    return row
            out[row] = i
        row += 1
    return row


@kernel("void(int64,int64,int64,int64[::1],int64[::1],int64[::1],int64)")
def find_rows(data, offsets, wide, out, slots, entries, heap):
    """Replace the hashes in `out` by ids, ABSENT where a string is not in the dictionary."""
    for row in range(len(out)):
        if out[row] != NULL_CODE:
            start = offset_at(offsets, wide, row)
            length = offset_at(offsets, wide, row + 1) - start
            out[row] = find_one(data + start, length, out[row], slots, entries, heap)


@kernel("int64(int64[::1],int64[::1],int64[::1],int64[::1])")
def measure(codes, entries, meta, offsets):
    """Fill the offsets of the decoded strings; the first row whose code is not a live id, or -1."""
    total = 0
    offsets[0] = 0
    for row in range(len(codes)):
        i = codes[row]
        if i != NULL_CODE:
            if i < 0 or i >= meta[USED] or entries[2 * i + 1] < 0:
                return row
            total += entries[2 * i + 1]
        offsets[row + 1] = total
    return -1


@kernel("void(int64[::1],int64[::1],uint8[::1],int64[::1],int64)")
def gather(codes, entries, heap, offsets, target):
    """Copy the strings of `codes` to `target` at `offsets`."""
    source = heap.ctypes.data
    for row in range(len(codes)):
        if codes[row] != NULL_CODE:
            copy_bytes(source + entries[2 * codes[row]], target + offsets[row], entries[2 * codes[row] + 1])


@kernel("int64(int64[::1],int64[::1])")
def count_unused(refs, meta):
    """Ids that nothing refers to, the free ones included."""
    unused = 0
    for i in range(meta[USED]):
        unused += refs[i] == 0
    return unused


@kernel("void(int64[::1],int64[::1],int64[::1])")
def free_unused(entries, refs, meta):
    """Free every id whose reference count is 0; chain free ids in ascending order, below the last live one."""
    last = -1
    live = 0
    for i in range(meta[USED]):
        if entries[2 * i + 1] >= 0:
            if refs[i] == 0:
                meta[HEAP_DEAD] += entries[2 * i + 1]
                entries[2 * i + 1] = -1
            else:
                last = i
                live += 1
    meta[USED] = last + 1
    meta[LIVE] = live
    meta[FREE] = -1
    for i in range(last, -1, -1):
        if entries[2 * i + 1] < 0:
            entries[2 * i] = meta[FREE]
            meta[FREE] = i


@kernel("void(int64[::1],int64[::1],int64[::1],int64[::1])")
def rebuild_slots(old, entries, meta, new):
    """Enter the live ids of `old` into `new`, whose size may differ; reads no string."""
    mask = len(new) - 1
    for slot in old:
        i = (slot & _ID_MASK) - 1
        if 0 <= i < meta[USED] and entries[2 * i + 1] >= 0:
            at = (slot >> 32) & mask
            while new[at] != 0:
                at = (at + 1) & mask
            new[at] = slot


@kernel("void(int64[::1],uint8[::1],int64[::1],uint8[::1])")
def compact(entries, old, meta, new):
    """Copy the live strings to a new heap, in the order of their ids."""
    at = 0
    for i in range(meta[USED]):
        length = entries[2 * i + 1]
        if length >= 0:
            copy_bytes(old.ctypes.data + entries[2 * i], new.ctypes.data + at, length)
            entries[2 * i] = at
            at += length
    meta[HEAP_USED] = at
    meta[HEAP_DEAD] = 0
