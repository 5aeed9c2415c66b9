"""Kernels of the string dictionary: hash, find, insert, sweep, compact and copy out byte strings.

A dictionary is four arrays, owned by `sqlfront.storage.codecs.dictionary.Dictionary`:

    slots    int64  open addressing, linear probing: hash31 << 32 | id + 1, or 0
    entries  int64  two words per id: start in the heap and length; free ids: next free id (-1 = none) and -1
    heap     uint8  the bytes, back to back, dead ones included
    refs     int64  reference counts, written by the stores

and a `state` of STATE_WORDS words: their addresses and sizes, and the counters. Kernels take its address.
Strings come as Arrow buffers: the address of the bytes, and the address of 32 or 64-bit offsets.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.lowering import intrinsic, ir, types
from sqlfront.storage.kernels.memory import high_product, load, prefetch, store

SLOTS, MASK, ENTRIES, IDS, HEAP, HEAP_SIZE, REFS = 0, 1, 2, 3, 4, 5, 6
USED, FREE, LIVE, HEAP_USED, HEAP_DEAD, SEED = 7, 8, 9, 10, 11, 12
STATE_WORDS = 13
ABSENT = -1
FULL = -2
AHEAD = 12
# Bytes behind the heap, and behind what `gather` writes, that may be read and written: short strings are copied whole.
SLACK = 16

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


@kernel("int64(int64,int64,int64)")
def compare_ids(state, i, j):
    """-1, 0 or 1: the order of two strings by their bytes, a prefix first, as DuckDB compares VARCHAR and BLOB."""
    entries, heap = load(state, ENTRIES), load(state, HEAP)
    a, b = heap + load(entries, 2 * i), heap + load(entries, 2 * j)
    own, other = load(entries, 2 * i + 1), load(entries, 2 * j + 1)
    shared = min(own, other)
    at = 0
    while at + 8 <= shared and _word(a + at) == _word(b + at):
        at += 8
    while at < shared:
        x, y = _byte(a + at), _byte(b + at)
        if x != y:
            return -1 if x < y else 1
        at += 1
    return (own > other) - (own < other)


@kernel("void(int64,int64,int64)")
def copy_bytes(source, target, length):
    at = 0
    while at + 8 <= length:
        _put_word(target + at, _word(source + at))
        at += 8
    while at < length:
        _put_byte(target + at, _byte(source + at))
        at += 1


@kernel("int64(int64,int64,int64,int64)")
def find_one(state, address, length, h):
    """The id of a string, or ABSENT."""
    slots, mask = load(state, SLOTS), load(state, MASK)
    entries, heap = load(state, ENTRIES), load(state, HEAP)
    at = h & mask
    slot = load(slots, at)
    while slot != 0:
        if slot >> 32 == h:
            i = (slot & _ID_MASK) - 1
            if load(entries, 2 * i + 1) == length and equal_bytes(address, heap + load(entries, 2 * i), length):
                return i
        at = (at + 1) & mask
        slot = load(slots, at)
    return ABSENT


@kernel("int64(int64,int64,int64,int64)")
def insert_new(state, address, length, h):
    """Insert a string that is not there; FULL, with nothing changed, when an array must grow first."""
    slots, mask, entries = load(state, SLOTS), load(state, MASK), load(state, ENTRIES)
    start, live = load(state, HEAP_USED), load(state, LIVE)
    if 2 * live + 1 > mask or start + length > load(state, HEAP_SIZE):
        return FULL
    i = load(state, FREE)
    if i >= 0:
        store(state, FREE, load(entries, 2 * i))
    else:
        i = load(state, USED)
        if i == load(state, IDS):
            return FULL
        store(state, USED, i + 1)
    copy_bytes(address, load(state, HEAP) + start, length)
    store(entries, 2 * i, start)
    store(entries, 2 * i + 1, length)
    store(state, HEAP_USED, start + length)
    store(state, LIVE, live + 1)
    at = h & mask
    while load(slots, at) != 0:
        at = (at + 1) & mask
    store(slots, at, (h << 32) | (i + 1))
    return i


@kernel("int64(int64,int64,int64)")
def insert_one(state, address, length):
    """The id of a string, inserted if it is new; FULL as `insert_new`."""
    h = hash_bytes(address, length, load(state, SEED))
    i = find_one(state, address, length, h)
    return i if i != ABSENT else insert_new(state, address, length, h)


@kernel("int64(int64,int64,int64)")
def seek_one(state, address, length):
    """As `find_one`, of a string not hashed yet."""
    return find_one(state, address, length, hash_bytes(address, length, load(state, SEED)))


@kernel("int64(int64,int64,int64)")
def offset_at(offsets, wide, row):
    return _word(offsets + 8 * row) if wide else _half(offsets + 4 * row)


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def hash_rows(state, data, offsets, wide, validity, first_bit, out, stride, rows):
    """The hash of every row to word out[row * stride], NULL_CODE for NULL. `validity` is 0 or Arrow's bitmap."""
    if rows == 0:
        return
    start, seed = offset_at(offsets, wide, 0), load(state, SEED)
    for row in range(rows):
        end = offset_at(offsets, wide, row + 1)
        bit = first_bit + row
        h = NULL_CODE
        if validity == 0 or (_byte(validity + (bit >> 3)) >> (bit & 7)) & 1 == 1:
            h = hash_bytes(data + start, end - start, seed)
        store(out, row * stride, h)
        start = end


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def insert_rows(state, data, offsets, wide, row, out, stride, rows):
    """Replace the hashes in `out` by ids from `row` on; the row where an array must grow, or `rows`."""
    slots, mask = load(state, SLOTS), load(state, MASK)
    while row < rows:
        if row + AHEAD < rows:
            prefetch(slots + 8 * (load(out, (row + AHEAD) * stride) & mask))
        h = load(out, row * stride)
        if h != NULL_CODE:
            start = offset_at(offsets, wide, row)
            length = offset_at(offsets, wide, row + 1) - start
            i = find_one(state, data + start, length, h)
            if i == ABSENT:
                i = insert_new(state, data + start, length, h)
                if i == FULL:
                    return row
            store(out, row * stride, i)
        row += 1
    return row


@kernel("void(int64,int64,int64,int64,int64,int64)")
def find_rows(state, data, offsets, wide, out, rows):
    """Replace the hashes in `out` by ids, ABSENT where a string is not in the dictionary."""
    for row in range(rows):
        h = load(out, row)
        if h != NULL_CODE:
            start = offset_at(offsets, wide, row)
            store(out, row, find_one(state, data + start, offset_at(offsets, wide, row + 1) - start, h))


@kernel("int64(int64,int64,int64,int64)")
def measure(state, codes, offsets, rows):
    """Fill the offsets of the decoded strings; the first row whose code is not a live id, or -1."""
    entries, used, total = load(state, ENTRIES), load(state, USED), 0
    store(offsets, 0, 0)
    for row in range(rows):
        i = load(codes, row)
        if i != NULL_CODE:
            if i < 0 or i >= used or load(entries, 2 * i + 1) < 0:
                return row
            total += load(entries, 2 * i + 1)
        store(offsets, row + 1, total)
    return -1


@kernel("void(int64,int64,int64,int64,int64)")
def gather(state, codes, offsets, target, rows):
    """Copy the strings of `codes` to `target` at `offsets`, which ascend: what is written too far is written over."""
    entries, heap = load(state, ENTRIES), load(state, HEAP)
    for row in range(rows):
        code, start = load(codes, row), load(offsets, row)
        if code != NULL_CODE:
            source, goal, length = heap + load(entries, 2 * code), target + start, load(offsets, row + 1) - start
            # Short strings are two words without a loop or a branch.
            _put_word(goal, _word(source))
            _put_word(goal + 8, _word(source + 8))
            if length > SLACK:
                copy_bytes(source + SLACK, goal + SLACK, length - SLACK)


@kernel("int64(int64)")
def count_unused(state):
    """Strings that nothing refers to."""
    refs, used, unused = load(state, REFS), load(state, USED), 0
    for i in range(used):
        unused += load(refs, i) == 0
    return unused - (used - load(state, LIVE))


@kernel("void(int64)")
def free_unused(state):
    """Free every id whose reference count is 0; chain free ids in ascending order, below the last live one."""
    entries, refs = load(state, ENTRIES), load(state, REFS)
    last, live, dead = -1, 0, load(state, HEAP_DEAD)
    for i in range(load(state, USED)):
        length = load(entries, 2 * i + 1)
        if length >= 0:
            if load(refs, i) == 0:
                dead += length
                store(entries, 2 * i + 1, -1)
            else:
                last = i
                live += 1
    store(state, USED, last + 1)
    store(state, LIVE, live)
    store(state, HEAP_DEAD, dead)
    chain = -1
    for i in range(last, -1, -1):
        if load(entries, 2 * i + 1) < 0:
            store(entries, 2 * i, chain)
            chain = i
    store(state, FREE, chain)


@kernel("void(int64,int64,int64)")
def rebuild_slots(state, new, size):
    """Enter the live ids into `new`, of another size perhaps; reads no string."""
    old, entries, used = load(state, SLOTS), load(state, ENTRIES), load(state, USED)
    mask = size - 1
    for j in range(load(state, MASK) + 1):
        slot = load(old, j)
        i = (slot & _ID_MASK) - 1
        if 0 <= i < used and load(entries, 2 * i + 1) >= 0:
            at = (slot >> 32) & mask
            while load(new, at) != 0:
                at = (at + 1) & mask
            store(new, at, slot)


@kernel("void(int64,int64)")
def compact(state, target):
    """Copy the live strings to a new heap at `target`, in the order of their ids."""
    entries, heap, at = load(state, ENTRIES), load(state, HEAP), 0
    for i in range(load(state, USED)):
        length = load(entries, 2 * i + 1)
        if length >= 0:
            copy_bytes(heap + load(entries, 2 * i), target + at, length)
            store(entries, 2 * i, at)
            at += length
    store(state, HEAP_USED, at)
    store(state, HEAP_DEAD, 0)
