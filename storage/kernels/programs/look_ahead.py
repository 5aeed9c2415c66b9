"""Bringing near what the next epochs will look at: a one-row epoch has no other rows to work on while memory is slow.

A path's first tables are looked up by words of the row itself, so their slots and rows can be asked for some epochs
before. A *look-up* is a pair (address of the LIFT, address of the UPSERT, PROBE or EXTEND that its delta meets first).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    END,
    EXTEND,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    KEYS,
    LIFT,
    MOST_LOOKUPS,
    PATH,
    PROBE,
    TEMPORARY,
    UPSERT,
)
from sqlfront.storage.kernels.memory import load, store
from sqlfront.storage.kernels.programs.extend import bring_lists
from sqlfront.storage.kernels.tables.delta import bring
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words


@kernel("int64(int64,int64)")
def list_lookups(program, lookups):
    """Write the first MOST_LOOKUPS look-ups of a program to `lookups`; returns how many there are."""
    pc = program
    lifted = 0
    direct = False
    count = 0
    while load(pc, 0) != END and count < MOST_LOOKUPS:
        operation = load(pc, 0)
        if operation == LIFT:
            lifted = pc
        elif operation == PATH:
            direct = lifted != 0
        elif direct and operation in (UPSERT, PROBE, EXTEND):
            store(lookups, 2 * count, lifted)
            store(lookups, 2 * count + 1, pc)
            count += 1
            direct = operation == UPSERT
        else:
            direct = False
        pc += load(pc, 1) * 8
    return count


@kernel("void(int64,int64,int64,int64,int64)")
def look_ahead(lookups, count, scratch, row, stage):
    """Ask for what the look-ups of an encoded row will want: slots, then what they point to (see `bring`)."""
    key = load(scratch, TEMPORARY)
    for i in range(count):
        lifted = load(lookups, 2 * i)
        at = load(lookups, 2 * i + 1)
        if i == 0 or load(lookups, 2 * i - 2) != lifted:
            places = 9 + load(lifted, 8)
            for j in range(load(lifted, 3)):
                store(key, j, load(row, load(lifted, places + j)))
        operation = load(at, 0)
        table = load(at, 2)
        if operation == EXTEND:
            bring_lists(at, key, stage)
        elif operation == PROBE:
            bring(table, hash_places(key, at, 5, load(at, 4)), stage)
        else:
            bring(table, hash_words(key, load(table, KEYS)), stage)
            for x in range(load(table, INDEXES)):
                entry = load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8
                bring(load(entry, 0), hash_places(key, entry, INDEX_ENTRY, load(entry, 1)), stage)
