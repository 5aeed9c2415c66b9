"""Reading whole groups of a table: how many members each has, its first and last, all of them."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import LINKS, ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.numbers.limbs import add_value


@kernel("void(int64,int64,int64,int64)")
def sizes(group, groups, rows, out):
    """The number of members of the group whose row is at groups[i] (0: no such group, no member)."""
    tail = 2 * load(group, TAIL)
    for i in range(rows):
        address = load(groups, i)
        store(out, i, 0 if address == 0 else load32(address, tail + 1))


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def ends(table, group, groups, rows, last, scratch, out):
    """The address of each ordered group's least member or, with `last`, its greatest; 0 without a group.

    O(1) for the least, O(log group) expected for the greatest.
    """
    tail = 2 * load(group, TAIL)
    sides = 2 * load(table, TAIL)
    width = load(table, WIDTH) * 8
    steps = rows
    for i in range(rows):
        address = 0
        if load(groups, i) != 0:
            member = load32(load(groups, i), tail + 2 if last else tail)
            while member != 0:
                steps += 1
                address = load(table, ROWS) + (member - 1) * width
                member = load32(address, sides + 1) if last else 0
        store(out, i, address)
    store(scratch, STEPS, load(scratch, STEPS) + steps)


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def members(table, group, index, groups, rows, scratch, out):
    """The addresses of all members of the groups, group after group, in the order of their lists of index `index`."""
    tail = 2 * load(group, TAIL)
    place = 2 * (load(table, LINKS) + 2 * index)
    width = load(table, WIDTH) * 8
    made = 0
    for i in range(rows):
        if load(groups, i) != 0:
            member = load32(load(groups, i), tail)
            while member != 0:
                address = load(table, ROWS) + (member - 1) * width
                store(out, made, address)
                made += 1
                member = load32(address, place)
    store(scratch, STEPS, load(scratch, STEPS) + made)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def runs(table, index, begins, ends, rows, scratch, sizes, out):
    """The addresses of the members from begins[i] to ends[i] of a group's list of index `index`, run after run;
    sizes[i] is how many run i has. Returns how many there are; with `out` 0 they are only counted. O(1) a member."""
    place = 2 * (load(table, LINKS) + 2 * index)
    width = load(table, WIDTH) * 8
    made = 0
    for i in range(rows):
        address = load(begins, i)
        size = 1
        while True:
            if out != 0:
                store(out, made, address)
            made += 1
            if address == load(ends, i):
                break
            address = load(table, ROWS) + (load32(address, place) - 1) * width
            size += 1
        store(sizes, i, size)
    store(scratch, STEPS, load(scratch, STEPS) + made)
    return made


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def firsts(table, group, groups, rows, most, last, count, scratch, sizes, out):
    """The addresses of each ordered group's least members, or with `last` its greatest, each as often as the word at
    `count` says (-1: once), `most` of them a group; sizes[i] is how many group i has. Returns how many there are; with
    `out` 0 they are only counted. O(members visited)."""
    tail = 2 * load(group, TAIL)
    place = 2 * load(table, LINKS)
    width = load(table, WIDTH) * 8
    made = 0
    steps = rows
    for i in range(rows):
        left = most
        if load(groups, i) != 0:
            head = load32(load(groups, i), tail)
            member = head
            if last and head != 0:
                member = load32(load(table, ROWS) + (head - 1) * width, place + 1)  # Before the head is the last.
            while member != 0 and left > 0:
                address = load(table, ROWS) + (member - 1) * width
                copies = 1 if count < 0 else min(load(address, count), left)
                if out != 0:
                    for j in range(copies):
                        store(out, made + j, address)
                made += copies
                left -= copies
                steps += 1
                if last:
                    member = 0 if member == head else load32(address, place + 1)
                else:
                    member = load32(address, place)
        store(sizes, i, most - left)
    store(scratch, STEPS, load(scratch, STEPS) + steps)
    return made


@kernel("void(int64,int64,int64,int64,int64,int64)")
def words_of(addresses, rows, places, count, absent, out):
    """The words at `count` places of the row at each address, `absent` where that is 0; all rows' first words first."""
    for i in range(rows):
        address = load(addresses, i)
        for j in range(count):
            store(out, j * rows + i, absent if address == 0 else load(address, load(places, j)))


@kernel("void(int64,int64,int64,int64,int64)")
def add_runs(values, limbs, counts, rows, out):
    """Add up runs of values of `limbs` words each, counts[i] of them for row i of `out`, which is zero before."""
    at = 0
    for i in range(rows):
        for _ in range(load(counts, i)):
            add_value(out, i * limbs, values, at * limbs, limbs)
            at += 1
