"""Slots and rows that are arrays of a file: mapped copy-on-write, until the table needs other memory.

A mapped array has exactly the slots or rows that it was written with. What changes is a page of this process, the file
stays. Growth copies to memory of the C allocator; the mapping is then given back, as it is when the table goes.
"""

from __future__ import annotations

from sqlfront.storage.kernels import memory
from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import SPILLED
from sqlfront.storage.kernels.memory import free, load, store
from sqlfront.storage.kernels.tables.hashing import mix


@kernel("int64(int64,int64,int64,int64)")
def map_file(place, handle, start, size):
    """The address of `size` bytes of an open file from `start`, a page's: `place`, where mapped bytes give way, or any
    if it is 0. 0 if they cannot be mapped. Bytes behind the end of the file may be mapped, but not read."""
    return memory.map_file(place, handle, start, size)


@kernel("void(int64,int64)")
def unmap(address, size):
    """Give back what `map_file` has mapped, if no table has it."""
    memory.unmap(address, size)


@kernel("void(int64,int64,int64)")
def free_part(table, part, mapped):
    """Give a table's slots or rows back. `part` is the header's word with their address, `mapped` that with the size of
    their mapping."""
    size = load(table, mapped)
    if size != 0:
        memory.unmap(load(table, part), size - (size & SPILLED))
        store(table, mapped, 0)
    else:
        free(load(table, part))


@kernel("int64(int64,int64,int64)")
def check_of(address, words, tail):
    """A check of `words` words and of one more. Every word counts by its place: no change of one word leaves it."""
    a, b, c, d = words, 1, 2, 3
    for i in range(0, words // 4 * 4, 4):  # Four at a time, as none has to wait for another.
        a = mix(a, load(address, i))
        b = mix(b, load(address, i + 1))
        c = mix(c, load(address, i + 2))
        d = mix(d, load(address, i + 3))
    for i in range(words // 4 * 4, words):
        a = mix(a, load(address, i))
    return mix(mix(mix(mix(mix(words, a), b), c), d), tail)  # In turn: no two of the four take each other's place.
