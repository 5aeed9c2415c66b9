"""Ranked groups: each node's rows in the order of the best that they and what is below them can make.

A ranked tree keeps, for each node, the rows of each anchor sorted by a key of rank words: a leaf's own terms, an inner
row's sum of its children's best keys. Keys are added word by word, for each word has one owner or is a sum of numbers;
so a better part makes a better whole. A row whose children do not all have a partner for it is kept, but in no list. An
optional child without a partner gives the key of a row of NULLs; an absent child must have none.
One step per node and batch looks again at the rows whose children's best have changed, and only a changed best goes
on to the parent (the dynamic any-k index after Deep, Hu and Koutris 2022; bottom-up liveness as in Idris et al. 2017).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    CHILD_ABSENT,
    CHILD_REQUIRED,
    DIRTY,
    DIRTY_CAPACITY,
    DIRTY_USED,
    FLAGS,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    KEYS,
    LIMBS,
    LINKS,
    NULL_CODE,
    ORDER,
    ORDER_ENTRY,
    ORDER_KIND,
    ORDER_LOW_WORD,
    PLACED,
    RANK_ADD,
    RANK_COPY,
    RANKS,
    ROWS,
    SHRINK,
    STEPS,
    TAIL,
    TOUCHED,
    TOUCHED_CAPACITY,
    TOUCHED_USED,
    WAITING,
    WIDTH,
)
from sqlfront.storage.kernels.memory import high_product, less_unsigned, load, load32, realloc, store, store32
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.programs.rounding_bounds import add_bound, add_wide
from sqlfront.storage.kernels.tables.delta import buffer
from sqlfront.storage.kernels.tables.hash_table import find, link, new_row, remove_row, reserve, unlink
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words, same_words
from sqlfront.storage.kernels.tables.ordered_group import compared_at, sort_addresses
from sqlfront.storage.kernels.tables.upkeep import wants_shrink

_FEW = 256


@kernel("void(int64,int64)")
def wait(table, row):
    """Note a row as one to look at again, once."""
    address = load(table, ROWS) + row * load(table, WIDTH) * 8
    place = load(table, TAIL) + 1 + load(table, RANKS)
    state = load(address, place)  # Behind the key: whether the row waits, and whether it is in its group's list.
    if state & WAITING:
        return
    store(address, place, state | WAITING)
    used = load(table, DIRTY_USED)
    if used == load(table, DIRTY_CAPACITY):
        store(table, DIRTY, realloc(load(table, DIRTY), max(64, 2 * used) * 8))
        store(table, DIRTY_CAPACITY, max(64, 2 * used))
    store(load(table, DIRTY), used, row)
    store(table, DIRTY_USED, used + 1)


@kernel("int64(int64)")
def mark_once(table):
    """Of the rows that a path has noted, perhaps several times, each once; how many."""
    dirty = load(table, DIRTY)
    pending = load(table, DIRTY_USED)
    store(table, DIRTY_USED, 0)
    for i in range(pending):  # The list is written over no faster than it is read.
        wait(table, load(dirty, i))
    return load(table, DIRTY_USED)


@kernel("void(int64,int64,int64,int64,int64)")
def follow(block, table, scratch, group_address, size):
    """Make the row that stands for a child's group, or leave it without a count; note it."""
    count = load(block, 2)
    key = buffer(scratch, 0, max(1, count))
    for j in range(count):
        store(key, load(block, 3 + j), load(group_address, j))
    h = hash_words(key, count)
    row = find(table, scratch, h, key, 0, 0)
    if size > 0 and row < 0:
        reserve(table, 1)
        row = new_row(table, h)
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        for j in range(count, load(table, WIDTH)):
            store(address, j, 0)
        for j in range(count):
            store(address, j, load(key, j))
        for x in range(1, load(table, INDEXES)):
            entry = load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8
            reserve(load(entry, 0), 1)
            link(table, scratch, row, x, hash_places(address, entry, INDEX_ENTRY, load(entry, 1)))
    if row >= 0:
        store(load(table, ROWS) + row * load(table, WIDTH) * 8, count, 1 if size > 0 else 0)
        wait(table, row)


@kernel("void(int64,int64,int64)")
def gather(block, table, scratch):
    """Note the rows of a node that the changed groups of one child concern: all that have the group's key.

    Of the child that holds all of the node's variables (index 0), a group is a row, which comes and goes with it.
    """
    child = load(block, 0)
    index = load(block, 1)
    count = load(block, 2)
    group = load(load(child, INDEX_LIST), 0)
    touched = load(child, TOUCHED)
    stride = 2 + load(child, RANKS)
    hops = 0
    for i in range(load(child, TOUCHED_USED)):
        address = load(group, ROWS) + load(touched, i * stride) * load(group, WIDTH) * 8
        if index == 0:
            follow(block, table, scratch, address, load32(address, 2 * load(group, TAIL) + 1))
            hops += 1
            continue
        own = load(load(table, INDEX_LIST) + index * (INDEX_ENTRY + 32) * 8, 0)
        found = find(own, scratch, hash_words(address, count), address, 0, 0)
        if found < 0:
            continue
        place = 2 * (load(table, LINKS) + 2 * index)
        member = load32(load(own, ROWS) + found * load(own, WIDTH) * 8, 2 * load(own, TAIL))
        while member != 0:
            hops += 1
            wait(table, member - 1)
            member = load32(load(table, ROWS) + (member - 1) * load(table, WIDTH) * 8, place)
    store(scratch, STEPS, load(scratch, STEPS) + hops)


@kernel("void(int64,int64,int64)")
def add_own(entry, code, out):
    """Add what one key word of a leaf's row gives to its key: the word itself, a number times a coefficient, or a bound
    of it.

    A sum takes three words: how many of its numbers are NULL, then the sum of the others in two.
    """
    target = load(entry, 1)
    kind = load(entry, 0)
    if kind == RANK_COPY:
        store(out, target, code + load(entry, 3))
        return
    if code == NULL_CODE:
        store(out, target, load(out, target) + 1)
        return
    if kind != RANK_ADD:
        add_bound(entry, code, out)
        return
    if code == load(entry, 4) and code != 0:  # It stands for the value whose own code would mean NULL.
        code = NULL_CODE
    coefficient = load(entry, 3)
    low = code * coefficient
    # The product of unsigned words takes a negative one for 2^64 more: the other one is taken off the upper word.
    high = high_product(code, coefficient)
    if code < 0:
        high -= coefficient
    if coefficient < 0:
        high -= code
    add_wide(out, target + 1, high, low)


@kernel("void(int64,int64,int64,int64,int64)")
def add_key(order, ranks, target, other, sign):
    """Add a key to another, or take it away: word by word, low words with a carry into the one before."""
    carry = 0
    for i in range(ranks - 1, -1, -1):
        x = load(target, i)
        y = load(other, i)
        is_low = load(order, ORDER_ENTRY + 3 * i + 1) & ORDER_KIND == ORDER_LOW_WORD
        if sign > 0:
            total = x + y + carry
            carry = less_unsigned(total, y) if is_low else 0
        else:
            total = x - y - carry
            carry = less_unsigned(x, y) if is_low else 0
        store(target, i, total)


@kernel("boolean(int64,int64,int64,int64)")
def make_key(at, address, out, scratch):
    """Write the key of a row's best completion; False if there is none."""
    own = load(at, 5)
    children_at = 6 + 5 * own
    ranks = load(load(at, 3), RANKS)
    for j in range(ranks):
        store(out, j, 0)
    for i in range(own):
        entry = at + (6 + 5 * i) * 8
        add_own(entry, load(address, load(entry, 2)), out)
    for c in range(load(at, children_at)):
        block = at + 8 * load(at, children_at + 1 + c)
        child = load(block, 0)
        count = load(block, 2)
        group = load(load(child, INDEX_LIST), 0)
        presence = load(block, 3 + count)
        row = find(group, scratch, hash_places(address, block, 3, count), address, block, 3)
        head = 0
        if row >= 0:
            head = load32(load(group, ROWS) + row * load(group, WIDTH) * 8, 2 * load(group, TAIL))
        if presence == (CHILD_REQUIRED if head == 0 else CHILD_ABSENT):
            return False
        best = block + 8 * (4 + count)  # The key of a missing row.
        if head != 0:  # The head of a sorted list is the group's best.
            best = load(child, ROWS) + (head - 1) * load(child, WIDTH) * 8 + 8 * (load(child, TAIL) + 1)
        add_key(load(child, ORDER), ranks, out, best, 1)
    return True


@kernel("void(int64,int64,boolean)")
def touch(table, group_row, there):
    """Before a group changes: remember whether it was there and its best key, once until the parent's step."""
    group = load(load(table, INDEX_LIST), 0)
    address = load(group, ROWS) + group_row * load(group, WIDTH) * 8
    tail = load(group, TAIL)
    if load32(address, 2 * tail + 3) != 0:  # Touched before: what is remembered is what the parent has seen.
        return
    store32(address, 2 * tail + 3, 1)
    ranks = load(table, RANKS)
    used = load(table, TOUCHED_USED)
    if used == load(table, TOUCHED_CAPACITY):
        store(table, TOUCHED, realloc(load(table, TOUCHED), max(64, 2 * used) * (2 + ranks) * 8))
        store(table, TOUCHED_CAPACITY, max(64, 2 * used))
    entry = load(table, TOUCHED) + used * (2 + ranks) * 8
    store(entry, 0, group_row)
    store(entry, 1, 1 if there else 0)
    if there:
        head = load32(address, 2 * tail)
        best = load(table, ROWS) + (head - 1) * load(table, WIDTH) * 8
        for j in range(ranks):
            store(entry, 2 + j, load(best, load(table, TAIL) + 1 + j))
    store(table, TOUCHED_USED, used + 1)


@kernel("void(int64,int64,int64)")
def sort_pending(table, dirty, count):
    """Bring noted rows into the order of their keys. O(count log count)."""
    first = load(table, ROWS) + compared_at(table)
    width = load(table, WIDTH) * 8
    for i in range(count):
        store(dirty, i, first + load(dirty, i) * width)
    sort_addresses(load(table, ORDER), dirty, count)
    for i in range(count):
        store(dirty, i, (load(dirty, i) - first) // width)


@kernel("void(int64,int64,int64)")
def place_all(table, scratch, count):
    """Enter the first `count` noted rows, whose keys are made, in the lists of their groups.

    Many are sorted first: the places that follow each other are then found near each other.
    """
    entry = load(table, INDEX_LIST)
    group = load(entry, 0)
    reserve(group, count)
    dirty = load(table, DIRTY)
    state = load(table, TAIL) + 1 + load(table, RANKS)
    if count > _FEW:
        sort_pending(table, dirty, count)
    for i in range(count):
        row = load(dirty, i)
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        h = hash_places(address, entry, INDEX_ENTRY, load(entry, 1))
        found = find(group, scratch, h, address, entry, INDEX_ENTRY)
        if found >= 0:  # Its best is remembered before the row enters.
            touch(table, found, True)
        link(table, scratch, row, 0, h)
        if found < 0:  # `link` has made the group.
            touch(table, load32(address, 2 * load(table, LINKS) + 2), False)
        store(address, state, PLACED)


@kernel("void(int64,int64)")
def release(group, group_row):
    """The group is no longer touched; if nothing is in it, it goes."""
    address = load(group, ROWS) + group_row * load(group, WIDTH) * 8
    tail = load(group, TAIL)
    store32(address, 2 * tail + 3, 0)
    if load32(address, 2 * tail + 1) == 0:
        remove_row(group, group_row, hash_words(address, load(group, KEYS)))


@kernel("void(int64)")
def keep_changed(table):
    """Of the touched groups, remember those whose best is another one now; forget the others."""
    group = load(load(table, INDEX_LIST), 0)
    tail = load(group, TAIL)
    touched = load(table, TOUCHED)
    ranks = load(table, RANKS)
    kept = 0
    for i in range(load(table, TOUCHED_USED)):
        entry = touched + i * (2 + ranks) * 8
        address = load(group, ROWS) + load(entry, 0) * load(group, WIDTH) * 8
        head = load32(address, 2 * tail)
        same = (head != 0) == (load(entry, 1) != 0)
        if same and head != 0:
            best = load(table, ROWS) + (head - 1) * load(table, WIDTH) * 8
            same = same_words(entry + 16, best + 8 * (load(table, TAIL) + 1), ranks)
        if same:
            release(group, load(entry, 0))
        else:
            for j in range(2 + ranks):
                store(touched + kept * (2 + ranks) * 8, j, load(entry, j))
            kept += 1
    store(table, TOUCHED_USED, kept)


@kernel("void(int64,int64,int64)")
def renew(at, table, scratch):
    """Take the noted rows out of their lists whose key is another one now, and put those that live where they belong.

    Rows go before others come: only rows with their present keys are compared.
    """
    keys = load(table, KEYS)
    ranks = load(table, RANKS)
    limbs = load(table, LIMBS)
    width = load(table, WIDTH) * 8
    first = load(table, TAIL) + 1
    rows = load(table, ROWS)
    dirty = load(table, DIRTY)
    pending = load(table, DIRTY_USED)
    fresh = buffer(scratch, 0, ranks)
    inner = load(at, 6 + 5 * load(at, 5)) > 0
    if not inner:
        pending = mark_once(table)
    kept = 0
    for i in range(pending):
        row = load(dirty, i)
        address = rows + row * width
        here = sign_of(address, keys, limbs) > 0
        alive = here and make_key(at, address, fresh, scratch)
        if load(address, first + ranks) & PLACED:
            if alive and same_words(fresh, address + 8 * first, ranks):  # In its place: the parent sees no change.
                store(address, first + ranks, PLACED)
                continue
            # The group's best is noted before the row goes: it may be the row itself.
            touch(table, load32(address, 2 * load(table, LINKS) + 2), True)
            unlink(table, scratch, row, 0)
        store(address, first + ranks, 0)
        if alive:
            for j in range(ranks):
                store(address, first + j, load(fresh, j))
            store(dirty, kept, row)
            kept += 1
        elif not here:
            for x in range(1, load(table, INDEXES)):
                unlink(table, scratch, row, x)
            remove_row(table, row, hash_words(address, keys))
    place_all(table, scratch, kept)
    store(table, DIRTY_USED, 0)
    store(scratch, STEPS, load(scratch, STEPS) + pending)
    keep_changed(table)


@kernel("void(int64,int64)")
def settle(table, scratch):
    """The parent has seen what has changed: forget it."""
    group = load(load(table, INDEX_LIST), 0)
    stride = 2 + load(table, RANKS)
    for i in range(load(table, TOUCHED_USED)):
        release(group, load(load(table, TOUCHED), i * stride))
    store(table, TOUCHED_USED, 0)
    shrink = wants_shrink(table)
    for x in range(load(table, INDEXES)):
        shrink |= wants_shrink(load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0))
    if shrink != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | SHRINK)


@kernel("void(int64,int64)")
def step_rank(at, scratch):
    """[RANK, length, owner, table, is root, n, own words: (kind, target, place, coefficient, operand) * n,
    children, an offset for each; each: table, index, keys, places..., presence, the key of a missing row].

    Bring a node's groups up to date: a leaf's from the rows that its path has written, an inner node's from the groups
    of its children whose best has changed. What has changed here waits for the parent's step. O(log group) for each.
    """
    table = load(at, 3)
    own = load(at, 5)
    children_at = 6 + 5 * own
    children = load(at, children_at)
    for c in range(children):
        gather(at + 8 * load(at, children_at + 1 + c), table, scratch)
    renew(at, table, scratch)
    for c in range(children):
        settle(load(at + 8 * load(at, children_at + 1 + c), 0), scratch)
    if load(at, 4) == 1:
        settle(table, scratch)
