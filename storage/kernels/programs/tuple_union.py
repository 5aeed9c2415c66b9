"""The union of trees with overlapping tuples: each tuple once, with its values added up over all of them.

The tuples of a tree are those of its buckets (hop.py). Where keys lie side by side, as (a, b) and (a, e) below a, a
tree has *branches*. A tuple is then a product of one part for each branch, below the same row above, a. Going on to the
next branch is a *turn*: it lists the next branch's buckets below the rows above that have the tuple so far, and keeps
for each of these the sum of the tuple's values. The values of the next branch are multiplied with these sums. So the
buckets of branches are never combined: a tuple costs the sum of its numbers of buckets over the branches, not their
product (Kara, Nikolic, Olteanu and Zhang 2020, "Trade-offs in static and dynamic evaluation of hierarchical queries").

Of several trees, and a *shared* table of tuples at last, each set takes the place of a tuple that it has: it gives its
own next one instead. So each tuple comes once, from one of the sets that have it (the union of two sets, Kara et al.
2020, section 2.4).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, STEPS, TAIL, TEMPORARY, USED
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.numbers.limbs import add_value, copy_value, multiply, sign_of
from sqlfront.storage.kernels.programs.hop import (
    ABOVE,
    BASE,
    BELOW,
    BELOW_GROUP,
    BRANCH,
    BUCKET,
    DEPTH,
    ENTRY,
    FACTORS,
    FOUND_ROWS,
    FROM_ABOVE,
    FROM_OUT,
    FROM_OWN,
    FROM_VALUES,
    LEVEL,
    LEVELS,
    LIST,
    LISTED,
    LOOKED_UP,
    LOOKING_UP,
    MEMBER,
    MET,
    NEXT,
    OWN,
    OWN_LEVELS,
    OWN_PARTS,
    PARTS,
    POSITION,
    SCANNING,
    SPAN,
    SUMS,
    TABLE,
    TUPLE,
    TURN,
    TURN_WORDS,
    TURNS,
    UPPER,
    append,
    branch_of,
    find_part,
    is_guarded,
    meet,
    narrow,
    next_listed,
    next_member,
    row_address,
)
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words

SHARED, CURSOR, TREE, TREES, OUT_KEYS, OUT_VALUES, OUT_LIMBS, PRODUCT = range(8)
UNION_WORDS = 8


@kernel("void(int64,int64,int64,int64,int64,int64)")
def list_below(tree, branch, turn, scratch, row, above):
    """List the buckets of a branch below a row above, which a bucket `row` of the branch before has."""
    table = load(branch, UPPER)
    group = load(branch, BELOW_GROUP)
    next_place = 2 * (load(table, LINKS) + 2 * load(branch, BELOW))
    places = load(branch, FROM_ABOVE)
    found = find(group, scratch, hash_places(row, branch, places, load(group, KEYS)), row, branch, places)
    if found < 0:
        return
    tail = row_address(group, found) + load(group, TAIL) * 8
    bucket = load32(tail, 0)
    store(scratch, STEPS, load(scratch, STEPS) + load32(tail, 1))
    while bucket != 0:
        if is_guarded(tree, branch, scratch, bucket - 1):
            append(load(turn, LISTED), bucket - 1, above, 0)
        bucket = load32(row_address(table, bucket - 1), next_place)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def sums_above(union, tree, branch, turn, scratch, row):
    """Where values are added up for the row above a branch that a bucket `row` of the branch before has. The first time
    in a turn they are 0, and the branch's buckets below are listed."""
    table = load(branch, ABOVE)
    places = load(branch, FROM_ABOVE)
    above = find(table, scratch, hash_places(row, branch, places, load(table, KEYS)), row, branch, places)
    width = load(union, OUT_VALUES) * load(union, OUT_LIMBS)
    sums = load(turn, SUMS) + above * width * 8
    if load(load(turn, MET), above) != load(turn, TURN):
        store(load(turn, MET), above, load(turn, TURN))
        for i in range(width):
            store(sums, i, 0)
        list_below(tree, branch, turn, scratch, row, above)
    return sums


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def add_products(union, branch, scratch, rows, before, out, first):
    """Add the products of the rows of a branch's levels and factors, and of the sums `before` (or 0), to values that
    begin at word `first` of an output row or of sums."""
    limbs = load(union, OUT_LIMBS)
    temporary = load(scratch, TEMPORARY)
    for v in range(load(union, OUT_VALUES)):
        product = load(union, PRODUCT)
        other = product + limbs * 8
        begin = 0
        if before != 0:
            copy_value(product, 0, limbs, before, v * limbs, limbs)
        else:
            part = load(branch, OWN_PARTS)
            own = load(load(part, TABLE), LIMBS)
            copy_value(product, 0, limbs, load(rows, 0), load(part, load(part, FROM_VALUES) + v), own)
            begin = 1
        for i in range(begin, load(branch, OWN_LEVELS) + load(branch, FACTORS)):
            part = load(branch, OWN_PARTS + i)
            own = load(load(part, TABLE), LIMBS)
            value = load(part, load(part, FROM_VALUES) + v)
            multiply(other, 0, limbs, product, 0, limbs, load(rows, i), value, own, temporary)
            product, other = other, product
        add_value(out, first + v * limbs, product, 0, limbs)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def add_values(union, tree, branch, kind, scratch, out, entries, known):
    """Add the values of a tuple in the buckets of a list, which has the rows of a branch's first `known` levels, to an
    output row; before the last branch, to the sums above the next branch, to which this is the turn. Returns in how
    many of the buckets the tuple is."""
    parts = load(branch, OWN_LEVELS) + load(branch, FACTORS)
    upper = load(branch, UPPER)
    rows = load(tree, FOUND_ROWS)
    width = load(union, OUT_VALUES) * load(union, OUT_LIMBS)
    turn = branch + (TURNS + kind * TURN_WORDS) * 8
    following = load(branch, NEXT)
    next_turn = following + (TURNS + kind * TURN_WORDS) * 8
    if following != 0:
        store(next_turn, TURN, load(next_turn, TURN) + 1)
        store(load(next_turn, LISTED), 0, 0)
    made = 0
    for number in range(load(entries, 0)):
        bucket = load(entries, 1 + number * ENTRY)
        place = number
        for i in range(known - 1, -1, -1):
            listed = entries if i == known - 1 else load(load(branch, OWN_PARTS + i), LIST)
            store(rows, i, load(listed, 2 + place * ENTRY))
            place = load(listed, 3 + place * ENTRY)
        there = True
        for i in range(known, parts):
            part = load(branch, OWN_PARTS + i)
            found = find_part(tree, part, upper, scratch, bucket, out)
            if found < 0:
                there = False
                break
            store(rows, i, row_address(load(part, TABLE), found))
        if not there:
            continue
        made += 1
        before = 0
        if load(branch, ABOVE) != 0:  # The place before the first level is that of the bucket in the turn's list.
            before = load(turn, SUMS) + load(load(turn, LISTED), 2 + place * ENTRY) * width * 8
        if following != 0:
            sums = sums_above(union, tree, following, next_turn, scratch, row_address(upper, bucket))
            add_products(union, branch, scratch, rows, before, sums, 0)
        else:
            add_products(union, branch, scratch, rows, before, out, load(union, OUT_KEYS))
    return made


@kernel("int64(int64,int64,int64,int64)")
def add_found(union, tree, scratch, out):
    """Look an output row's words up in a tree, and add the values that they have there. Returns in how many buckets of
    the last branch."""
    meet(tree, scratch, out, -1, load(tree, LOOKED_UP))
    branch = branch_of(tree, 0)
    made = add_values(union, tree, branch, LOOKING_UP, scratch, out, load(tree, LOOKED_UP), 1)
    while load(branch, NEXT) != 0:
        branch = load(branch, NEXT)
        listed = load(branch, TURNS + LOOKING_UP * TURN_WORDS + LISTED)
        made = add_values(union, tree, branch, LOOKING_UP, scratch, out, listed, 0)
    return made


@kernel("void(int64,int64,int64)")
def clear_values(union, out, shared):
    """Set an output row's values to those of a row of the shared table, or to 0 without one (0)."""
    keys = load(union, OUT_KEYS)
    limbs = load(union, OUT_LIMBS)
    own = load(load(union, SHARED), LIMBS)
    for v in range(load(union, OUT_VALUES)):
        if shared == 0:
            for i in range(limbs):
                store(out, keys + v * limbs + i, 0)
        else:
            copy_value(out, keys + v * limbs, limbs, shared, keys + v * own, own)


@kernel("int64(int64,int64)")
def next_shared(union, out):
    """Begin an output row with the next row of the shared table; 0 if there is none."""
    table = load(union, SHARED)
    row = load(union, CURSOR)
    used = load(table, USED)
    keys = load(table, KEYS)
    while row < used:
        address = row_address(table, row)
        row += 1
        if sign_of(address, keys, load(table, LIMBS)) != 0:
            for j in range(keys):
                store(out, j, load(address, j))
            clear_values(union, out, address)
            store(union, CURSOR, row)
            return 1
    store(union, CURSOR, row)
    return 0


@kernel("int64(int64,int64,int64)")
def next_tuple(union, tree, scratch):
    """Go on to the next tuple of a tree, and list the buckets that have it; 0 at the end."""
    number = load(tree, DEPTH)
    words = load(tree, TUPLE)
    while True:
        found = next_member(tree, scratch) if number == 0 else next_listed(tree, number, scratch)
        if found == 0:
            if number == 0:
                store(tree, DEPTH, 0)
                return 0
            number -= 1
            continue
        level = load(tree, PARTS + number)
        row = row_address(load(level, TABLE), load(level, MEMBER))
        for j in range(load(level, OWN)):
            store(words, load(level, load(level, FROM_OUT) + j), load(row, load(level, load(level, FROM_OWN) + j)))
        if number == 0:
            meet(tree, scratch, words, load(tree, BUCKET), load(level, LIST))
        else:
            narrow(tree, number, scratch)
        if number == load(tree, LEVELS) - 1:
            store(tree, DEPTH, number)
            return 1
        number += 1
        before, level = level, load(tree, PARTS + number)
        branch = load(level, BRANCH)
        if load(branch, LEVEL) == number:
            own = load(load(before, BRANCH), OWN_LEVELS)
            add_values(union, tree, load(before, BRANCH), SCANNING, scratch, words, load(before, LIST), own)
        store(level, POSITION, -1)
        store(level, BASE, load(level, BASE) + load(level, SPAN))


@kernel("int64(int64,int64,int64,int64)")
def next_of_tree(union, tree, scratch, out):
    """Make an output row of a tree's next tuple; 0 if there is none."""
    if next_tuple(union, tree, scratch) == 0:
        return 0
    for j in range(load(union, OUT_KEYS)):
        store(out, j, load(load(tree, TUPLE), j))
    clear_values(union, out, 0)
    last = load(tree, PARTS + load(tree, LEVELS) - 1)
    branch = load(last, BRANCH)
    add_values(union, tree, branch, SCANNING, scratch, out, load(last, LIST), load(branch, OWN_LEVELS))
    return 1


@kernel("int64(int64,int64,int64,int64,int64)")
def next_union(union, trees, scratch, out, capacity):
    """Write up to `capacity` output rows, key words and values; how many, 0 at the end. `trees` are addresses."""
    keys = load(union, OUT_KEYS)
    width = 8 * (keys + load(union, OUT_VALUES) * load(union, OUT_LIMBS))
    shared = load(union, SHARED)
    last = load(union, TREES)
    made = 0
    while made < capacity:
        row = out + made * width
        found = 0
        for i in range(load(union, TREE), last + 1):  # Earlier ones have come to their ends.
            tree = load(trees, i) if i < last else 0
            if found != 0 and tree != 0:
                if add_found(union, tree, scratch, row) == 0:
                    continue
            elif found != 0 and find(shared, scratch, hash_words(row, keys), row, 0, 0) < 0:
                continue
            # This set has the tuple, or no earlier one has any left: it gives its own next one.
            found = next_of_tree(union, tree, scratch, row) if tree != 0 else next_shared(union, row)
            if found == 0:
                store(union, TREE, i + 1)
                continue
            for j in range(i):
                add_found(union, load(trees, j), scratch, row)
        if found == 0:
            break
        made += 1
    store(scratch, STEPS, load(scratch, STEPS) + made)
    return made


@kernel("void(int64,int64,int64,int64,int64)")
def union_values(union, trees, scratch, out, rows):
    """Set the values of output rows whose key words are given: 0 if they are in none of the sets."""
    keys = load(union, OUT_KEYS)
    width = keys + load(union, OUT_VALUES) * load(union, OUT_LIMBS)
    shared = load(union, SHARED)
    for i in range(rows):
        row = out + i * width * 8
        found = find(shared, scratch, hash_words(row, keys), row, 0, 0)
        clear_values(union, row, row_address(shared, found) if found >= 0 else 0)
        for t in range(load(union, TREES)):
            add_found(union, load(trees, t), scratch, row)
    store(scratch, STEPS, load(scratch, STEPS) + rows)
