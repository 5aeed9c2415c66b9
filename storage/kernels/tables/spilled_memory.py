"""Slots and rows in temporary files: the system may write them to disk and take their memory back.

A table with the address of a spill in its header spills arrays from the spill's least size on. Each has a file of its
own, without a name: the file goes with its mapping, also when the process dies. The room on the disk is taken before
the file is mapped, so no write fails later. Where there is no room, the array stays in memory, and SPILL_ERROR tells
the engine.

Growth copies to a larger file. Nothing is read ahead, and no huge pages are asked for: a look-up would read and write
2 MB.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    CAPACITY,
    ROWS,
    ROWS_MAPPED,
    SPILL,
    SPILL_ERROR,
    SPILL_LEAST,
    SPILL_PATH,
    SPILL_PATH_WORDS,
    SPILLED,
    USED,
    WIDTH,
)
from sqlfront.storage.kernels.memory import (
    advise,
    calloc,
    close_file,
    free,
    load,
    make_file,
    memcpy,
    realloc,
    share_file,
    store,
    take_room,
    unlink,
)
from sqlfront.storage.kernels.tables.huge_pages import use_huge_pages
from sqlfront.storage.kernels.tables.mapped_memory import free_part

_NO_FILE, _NO_MEMORY = 5, 12
# MADV_RANDOM of Linux.
_AT_RANDOM = 1


@kernel("boolean(int64,int64)")
def spills(table, size):
    """Whether an array of `size` bytes belongs into a file."""
    to = load(table, SPILL)
    return to != 0 and size >= load(to, SPILL_LEAST)


@kernel("int64(int64,int64)")
def new_file(to, size):
    """The address of `size` bytes of zeros in a new file; 0, and the error is noted, if there is no room for it."""
    words = load(to, SPILL_PATH_WORDS)
    path = realloc(0, words * 8)
    memcpy(path, load(to, SPILL_PATH), words * 8)
    handle = make_file(path)
    address = 0
    error = _NO_FILE
    if handle >= 0:
        unlink(path)
        error = take_room(handle, size)
        if error == 0:
            address = share_file(handle, size)
            error = _NO_MEMORY
        close_file(handle)
    free(path)
    if address != 0:
        advise(address, size, _AT_RANDOM)
    else:
        store(to, SPILL_ERROR, error)
    return address


@kernel("int64(int64,int64)")
def new_part(table, size):
    """The address of `size` bytes of zeros for a table, plus SPILLED if they are those of a file."""
    address = new_file(load(table, SPILL), size) if spills(table, size) else 0
    if address != 0:
        return address + SPILLED
    address = calloc(max(1, size), 1)
    use_huge_pages(address, size)
    return address


@kernel("void(int64,int64,int64,int64,int64)")
def replace_part(table, part, mapped, made, size):
    """Let a table have a `new_part` in the place of its slots or rows, which are given back; see `free_part`."""
    free_part(table, part, mapped)
    spilled = made & SPILLED
    store(table, part, made - spilled)
    store(table, mapped, size + spilled if spilled != 0 else 0)


@kernel("void(int64,int64)")
def resize_rows(table, capacity):
    """Let a table have room for so many rows, not less than it uses."""
    width = load(table, WIDTH) * 8
    if load(table, ROWS_MAPPED) == 0 and not spills(table, capacity * width):
        store(table, ROWS, realloc(load(table, ROWS), capacity * width))
        use_huge_pages(load(table, ROWS), capacity * width)
    else:
        made = new_part(table, capacity * width)
        memcpy(made & -2, load(table, ROWS), load(table, USED) * width)
        replace_part(table, ROWS, ROWS_MAPPED, made, capacity * width)
    store(table, CAPACITY, capacity)
