"""The steps of a path that look other views up: one row, a group's members, an intersection, a group's best."""

from __future__ import annotations

from storage.delta_kernels import buffer, gather_keys, prefetch_row, reserve_scratch
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
    WAVES,
    WIDTH,
)
from storage.limb_kernels import sign_of
from storage.memory import load, load32, prefetch, store
from storage.table_kernels import find, hash_words
from storage.wave_kernels import ENTRY, MEMBER, OUT, OWN, WAVE, enter_list, list_members

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


@kernel("void(int64,int64,int64,int64,int64)")
def find_groups(at, scratch, delta, width, count):
    """Look up the groups of EXPAND for `count` delta rows: MEMBER of each entry of the wave becomes the address of the
    group's tail (0: no such group), and its first member is brought near; the OWN words hold the rows' addresses."""
    group = load(at, 2)
    table = load(at, 4)
    slots = load(group, SLOTS)
    mask = load(group, MASK)
    wave = load(scratch, WAVES)
    for i in range(count):
        row = delta + i * width * 8
        h = hash_words(gather_keys(at, 9, row, scratch), load(at, 9))
        store(wave, OWN + i, row)
        store(wave + i * ENTRY * 8, OUT, h)
        prefetch(slots + (h & mask) * 8)
    for i in range(count):
        prefetch_row(group, load(wave + i * ENTRY * 8, OUT))
    for i in range(count):
        entry = wave + i * ENTRY * 8
        group_row = find(group, scratch, load(entry, OUT), load(wave, OWN + i), at, 10)
        tail = 0
        if group_row >= 0:
            tail = load(group, ROWS) + (group_row * load(group, WIDTH) + load(group, TAIL)) * 8
            prefetch(load(table, ROWS) + (load32(tail, 0) - 1) * load(table, WIDTH) * 8)
        store(entry, MEMBER, tail)


@kernel("int64(int64,int64,int64,int64,int64)")
def step_expand(at, scratch, delta, width, rows):
    """[EXPAND, length, group table, emit place, member table, index, next delta row, next member, left, n, places...].

    Match each delta row with all members of its group, at most CHUNK matches a call; words 6 to 8 say where to go
    on (next delta row = -1: done).
    """
    table = load(at, 4)
    index = load(at, 5)
    position = load(at, 6)
    member = load(at, 7)
    left = load(at, 8)
    reserve_scratch(scratch, 0, CHUNK)
    matches = load(scratch, MATCHES)
    wave = load(scratch, WAVES)
    found = 0
    while position < rows and found < CHUNK:
        if member != 0:
            store(wave, OWN, delta + position * width * 8)
            taken = min(left, CHUNK)
            enter_list(wave, 0, wave + OWN * 8, member, taken, 0)
            found = taken
            left -= taken
            active = 1
            position += 1
        else:
            count = min(WAVE, rows - position)
            find_groups(at, scratch, delta + position * width * 8, width, count)
            active = 0
            for i in range(count):
                if found == CHUNK:
                    break
                position += 1
                own = wave + (OWN + i) * 8
                group_tail = load(wave + i * ENTRY * 8, MEMBER)
                if group_tail != 0:
                    size = load32(group_tail, 1)
                    taken = min(size, CHUNK - found)
                    enter_list(wave, active, own, load32(group_tail, 0), taken, found)
                    left = size - taken
                    found += taken
                    active += 1
        member = list_members(table, index, matches, 1, active, wave)
        if member != 0:
            position -= 1
    store(at, 6, -1 if position >= rows else position)
    store(at, 7, member)
    store(at, 8, left)
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
