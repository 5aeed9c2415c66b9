"""The steps of a path that look other views up: one row, a group's members, an intersection, a group's best."""

from __future__ import annotations

from storage.delta_kernels import buffer, gather_keys, reserve_scratch
from storage.jit import kernel
from storage.layout import (
    CHUNK,
    HASHES,
    KEYS,
    LIMBS,
    LINKS,
    MASK,
    MATCHES,
    ROWS,
    SLOTS,
    STEPS,
    TAIL,
    TEMPORARY,
    WIDTH,
)
from storage.limb_kernels import sign_of
from storage.memory import load, load32, prefetch, store
from storage.table_kernels import find, hash_words

_AHEAD = 12


@kernel("int64(int64,int64,int64,int64,int64)")
def step_probe(at, scratch, delta, width, rows):
    """[PROBE, length, table, emit place, n, places...]: match each delta row with at most one row."""
    table = load(at, 2)
    reserve_scratch(scratch, rows, rows)
    hashes = load(scratch, HASHES)
    matches = load(scratch, MATCHES)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    count = load(at, 4)
    for i in range(rows):
        key = gather_keys(at, 4, delta + i * width * 8, scratch)
        h = hash_words(key, count)
        store(hashes, i, h)
        prefetch(slots + (h & mask) * 8)
    table_rows = load(table, ROWS)
    table_width = load(table, WIDTH)
    found = 0
    for i in range(rows):
        if i + _AHEAD < rows:
            slot = load(slots, load(hashes, i + _AHEAD) & mask)
            if slot != 0:
                prefetch(table_rows + ((slot & 0xFFFFFFFF) - 1) * table_width * 8)
        key = delta + i * width * 8
        row = find(table, scratch, load(hashes, i), key, at, 5)
        if row >= 0:
            store(matches, 2 * found, key)
            store(matches, 2 * found + 1, table_rows + row * table_width * 8)
            found += 1
    store(scratch, STEPS, load(scratch, STEPS) + found)
    return found


@kernel("int64(int64,int64,int64,int64,int64)")
def step_expand(at, scratch, delta, width, rows):
    """[EXPAND, length, group table, emit place, member table, index, next delta row, next member, n, places...].

    Match each delta row with all members of its group, at most CHUNK matches a call; words 6 and 7 say
    where to go on (next delta row = -1: done).
    """
    group = load(at, 2)
    table = load(at, 4)
    index = load(at, 5)
    position = load(at, 6)
    member = load(at, 7)
    reserve_scratch(scratch, 0, CHUNK)
    matches = load(scratch, MATCHES)
    member_rows = load(table, ROWS)
    member_width = load(table, WIDTH)
    next_place = 2 * (load(table, LINKS) + 2 * index)
    group_rows = load(group, ROWS)
    group_width = load(group, WIDTH)
    tail = load(group, TAIL)
    count = load(at, 8)
    found = 0
    while position < rows:
        row = delta + position * width * 8
        if member == 0:
            key = gather_keys(at, 8, row, scratch)
            group_row = find(group, scratch, hash_words(key, count), row, at, 9)
            if group_row >= 0:
                member = load32(group_rows + group_row * group_width * 8, 2 * tail)
        while member != 0 and found < CHUNK:
            address = member_rows + (member - 1) * member_width * 8
            store(matches, 2 * found, row)
            store(matches, 2 * found + 1, address)
            found += 1
            member = load32(address, next_place)
        if member != 0:
            break
        position += 1
        if found >= CHUNK:
            break
    store(at, 6, -1 if position >= rows else position)
    store(at, 7, member)
    store(scratch, STEPS, load(scratch, STEPS) + found)
    return found


@kernel("int64(int64,int64,int64,int64,int64)")
def step_intersect(at, scratch, delta, width, rows):
    """[INTERSECT, length, group 1, emit place, table 1, index 1, candidate place 1, group 2, table 2, index 2,
    candidate place 2, n1, group 1 places..., n2, group 2 places..., key 1 template..., key 2 template...].

    For each delta row iterate the shorter of two member lists and look its candidates up in the other table,
    whose key is the template's delta words with the candidate in place of -1. Matches delta rows with rows of
    table 1 (a PROBE of table 2 may follow).
    """
    reserve_scratch(scratch, 0, 16)
    temporary = load(scratch, TEMPORARY)
    places1 = 11
    places2 = places1 + 1 + load(at, places1)
    template1 = places2 + 1 + load(at, places2)
    template2 = template1 + load(load(at, 4), KEYS)
    found = 0
    hops = 0
    for i in range(rows):
        row = delta + i * width * 8
        key = gather_keys(at, places1, row, scratch)
        group1 = find(load(at, 2), scratch, hash_words(key, load(at, places1)), row, at, places1 + 1)
        key = gather_keys(at, places2, row, scratch)
        group2 = find(load(at, 7), scratch, hash_words(key, load(at, places2)), row, at, places2 + 1)
        if group1 < 0 or group2 < 0:
            continue
        tail1 = load(load(at, 2), ROWS) + (group1 * load(load(at, 2), WIDTH) + load(load(at, 2), TAIL)) * 8
        tail2 = load(load(at, 7), ROWS) + (group2 * load(load(at, 7), WIDTH) + load(load(at, 7), TAIL)) * 8
        first = load32(tail1, 1) <= load32(tail2, 1)
        base = 4 if first else 8
        other = load(at, 8) if first else load(at, 4)
        template = template2 if first else template1
        table = load(at, base)
        place = 2 * (load(table, LINKS) + 2 * load(at, base + 1))
        candidate_place = load(at, base + 2)
        member = load32(tail1, 0) if first else load32(tail2, 0)
        keys = load(other, KEYS)
        while member != 0:
            hops += 1
            address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            candidate = load(address, candidate_place)
            for j in range(keys):
                word = load(at, template + j)
                store(temporary, j, candidate if word < 0 else load(row, word))
            partner = find(other, scratch, hash_words(temporary, keys), temporary, 0, 0)
            if partner >= 0:
                reserve_scratch(scratch, 0, 2 * (found + 1))
                matches = load(scratch, MATCHES)
                store(matches, 2 * found, row)
                if first:
                    store(matches, 2 * found + 1, address)
                else:
                    store(matches, 2 * found + 1, load(other, ROWS) + partner * load(other, WIDTH) * 8)
                found += 1
            member = load32(address, place)
    store(scratch, STEPS, load(scratch, STEPS) + hops)
    return found


@kernel("int64(int64,int64,int64,int64,int64)")
def step_best(at, scratch, delta, width, rows):
    """[BEST, length, group table, out buffer, member table, index, value place, n, places...].

    Keep the least value of each touched group in its tail; put out (group key, old best) with count -1 and
    (group key, new best) with count +1 where it changed. O(group) after the deletion of a best member.
    """
    group = load(at, 2)
    table = load(at, 4)
    place = load(at, 6)
    count = load(at, 7)
    out = buffer(scratch, load(at, 3), 2 * rows * (count + 2))
    next_place = 2 * (load(table, LINKS) + 2 * load(at, 5))
    tail = load(group, TAIL)
    made = 0
    hops = 0
    for i in range(rows):
        row = delta + i * width * 8
        key = gather_keys(at, 7, row, scratch)
        group_row = find(group, scratch, hash_words(key, count), row, at, 8)
        address = load(group, ROWS) + group_row * load(group, WIDTH) * 8
        had = load(address, tail + 1)
        old = load(address, tail + 2)
        has = 0
        new = 0
        member = load32(address, 2 * tail)
        while member != 0:
            hops += 1
            member_address = load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8
            if sign_of(member_address, load(table, KEYS), load(table, LIMBS)) > 0:
                value = load(member_address, place)
                if has == 0 or value < new:
                    new = value
                has = 1
            member = load32(member_address, next_place)
        if had == has and (has == 0 or old == new):
            continue
        for change in range(2):
            if (had if change == 0 else has) == 1:
                target = out + made * (count + 2) * 8
                for j in range(count):
                    store(target, j, load(row, load(at, 8 + j)))
                store(target, count, old if change == 0 else new)
                store(target, count + 1, -1 if change == 0 else 1)
                made += 1
        store(address, tail + 1, has)
        store(address, tail + 2, new)
    store(scratch, STEPS, load(scratch, STEPS) + hops + rows)
    return made
