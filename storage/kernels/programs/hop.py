"""The union of many overlapping sets without duplicates: a scan of one after the other that hops over what it has had.

The sets are *buckets*: a row of an upper table, with the members that a lower table has for it; members of different
buckets are equal if they have the same output words. When one is put out, the other buckets exclude it: where a run
of excluded members begins, `to` names the member after it, and there `back` names its beginning (Kara et al. 2020,
section 2.4: hop iterators and their union, with its two errors mended: the current bucket excludes nothing, and a
bucket without the member is left alone). A member is found in all its buckets by a group of the lower table, at a delay
of as many steps. Values are added up over the buckets; what a *shared* table has of the same output counts too, and
takes the place of a member that it has (the union of two sets, section 2.4).

Members are row numbers of the lower table, buckets those of the upper one; a bucket's end is the number of lower
rows plus its own. A tree is an array of words: tables and index numbers, the state of the scan, then places, of the
upper key in a lower row, of the closing key there, of the lower group's key in an upper row, (lower value, closing
value) pairs, and the output's words in a lower row.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, ROWS, STEPS, TAIL, TEMPORARY, USED, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words
from sqlfront.storage.kernels.tables.limbs import add_value, copy_value, multiply, sign_of

UPPER, LOWER, LINK, LINK_GROUP, OUTPUT, OUTPUT_GROUP, CLOSING = range(7)
MEMBER_TO, MEMBER_BACK, BUCKET_TO, BUCKET_BACK, LOWER_USED, UPPER_USED = range(7, 13)
BUCKET, MEMBER, PLACES = 13, 14, 15

SHARED, CURSOR, TREE, TREES, OUT_KEYS, OUT_VALUES, OUT_LIMBS, PRODUCT = range(8)
UNION_WORDS = 8


@kernel("int64(int64,int64)")
def skipped(places, x):
    """Where a hop from x leads: x itself if nothing was skipped there."""
    found = load(places, x)
    return found - 1 if found != 0 else x


@kernel("void(int64,int64,int64,int64)")
def skip(to, back, x, after):
    """Skip x, after which `after` comes next; to be done once for each x."""
    # The run that ends in x and the one that follows become one; only the ends of a run know each other.
    begin = skipped(back, x)
    store(to, begin, after + 1)
    store(back, after, begin + 1)


@kernel("int64(int64,int64,int64)")
def member_after(tree, bucket, member):
    """The next member of a bucket that is not skipped, or its end."""
    table = load(tree, LOWER)
    address = load(table, ROWS) + member * load(table, WIDTH) * 8
    after = load32(address, 2 * (load(table, LINKS) + 2 * load(tree, LINK)))
    if after == 0:
        return load(tree, LOWER_USED) + bucket
    return skipped(load(tree, MEMBER_TO), after - 1)


@kernel("int64(int64,int64,int64)")
def first_member(tree, scratch, bucket):
    """The first member of a bucket that is not skipped, or its end."""
    upper = load(tree, UPPER)
    group = load(tree, LINK_GROUP)
    keys = load(group, KEYS)
    row = load(upper, ROWS) + bucket * load(upper, WIDTH) * 8
    places = PLACES + 2 * load(upper, KEYS)
    found = find(group, scratch, hash_places(row, tree, places, keys), row, tree, places)
    tail = load(group, ROWS) + (found * load(group, WIDTH) + load(group, TAIL)) * 8
    return skipped(load(tree, MEMBER_TO), load32(tail, 0) - 1)


@kernel("int64(int64,int64)")
def bucket_after(tree, bucket):
    """The next bucket that is not skipped, or UPPER_USED; the first one after -1."""
    upper = load(tree, UPPER)
    used = load(tree, UPPER_USED)
    bucket += 1
    while bucket < used:
        row = load(upper, ROWS) + bucket * load(upper, WIDTH) * 8
        if sign_of(row, load(upper, KEYS), load(upper, LIMBS)) != 0:  # Others are free, or wait to be swept.
            break
        bucket += 1
    return skipped(load(tree, BUCKET_TO), bucket)


@kernel("void(int64,int64,int64,int64)")
def exclude(tree, scratch, bucket, member):
    """Exclude a member of a bucket, and the bucket if it has no other."""
    after = member_after(tree, bucket, member)
    skip(load(tree, MEMBER_TO), load(tree, MEMBER_BACK), member, after)
    if first_member(tree, scratch, bucket) == load(tree, LOWER_USED) + bucket:
        skip(load(tree, BUCKET_TO), load(tree, BUCKET_BACK), bucket, bucket_after(tree, bucket))


@kernel("int64(int64,int64,int64,int64,int64)")
def add_members(union, tree, scratch, out, current):
    """Add the values of all members with an output row's words, in buckets that there are, to that row; with a bucket
    `current` (else -1), all others exclude them. Returns how many there are."""
    lower = load(tree, LOWER)
    upper = load(tree, UPPER)
    closing = load(tree, CLOSING)
    group = load(tree, OUTPUT_GROUP)
    keys = load(union, OUT_KEYS)
    values = load(union, OUT_VALUES)
    limbs = load(union, OUT_LIMBS)
    temporary = load(scratch, TEMPORARY)
    product = load(union, PRODUCT)
    upper_keys = load(upper, KEYS)
    pairs = PLACES + 2 * upper_keys + load(load(tree, LINK_GROUP), KEYS)
    next_place = 2 * (load(lower, LINKS) + 2 * load(tree, OUTPUT))
    lower_width = load(lower, WIDTH) * 8
    found = find(group, scratch, hash_words(out, keys), out, 0, 0)
    if found < 0:
        return 0
    tail = load(group, ROWS) + (found * load(group, WIDTH) + load(group, TAIL)) * 8
    member = load32(tail, 0)
    listed = load32(tail, 1)
    made = 0
    while member != 0:
        row = load(lower, ROWS) + (member - 1) * lower_width
        after = load32(row, next_place)
        bucket = find(upper, scratch, hash_places(row, tree, PLACES, upper_keys), row, tree, PLACES)
        if bucket >= 0:
            made += 1
            places = PLACES + upper_keys
            other = find(closing, scratch, hash_places(row, tree, places, upper_keys), row, tree, places)
            factor = load(closing, ROWS) + other * load(closing, WIDTH) * 8
            for v in range(values):
                multiply(
                    product,
                    0,
                    limbs,
                    row,
                    load(lower, KEYS) + load(tree, pairs + 2 * v) * load(lower, LIMBS),
                    load(lower, LIMBS),
                    factor,
                    load(closing, KEYS) + load(tree, pairs + 2 * v + 1) * load(closing, LIMBS),
                    load(closing, LIMBS),
                    temporary,
                )
                add_value(out, keys + v * limbs, product, 0, limbs)
            # This row is put out now, so the other buckets that have it must pass over it when they are read.
            if current >= 0 and bucket != current:
                exclude(tree, scratch, bucket, member - 1)
        member = after
    store(scratch, STEPS, load(scratch, STEPS) + listed)
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
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        row += 1
        if sign_of(address, keys, load(table, LIMBS)) != 0:
            for j in range(keys):
                store(out, j, load(address, j))
            clear_values(union, out, address)
            store(union, CURSOR, row)
            return 1
    store(union, CURSOR, row)
    return 0


@kernel("int64(int64,int64)")
def next_member(tree, scratch):
    """Go on to the next member that is not skipped, in the next bucket if need be; 0 at the end."""
    bucket = load(tree, BUCKET)
    ended = load(tree, LOWER_USED)
    member = member_after(tree, bucket, load(tree, MEMBER)) if bucket >= 0 else ended + bucket
    while member == ended + bucket:
        bucket = bucket_after(tree, bucket)
        store(tree, BUCKET, bucket)
        if bucket == load(tree, UPPER_USED):
            return 0
        member = first_member(tree, scratch, bucket)
        store(scratch, STEPS, load(scratch, STEPS) + 1)
    store(tree, MEMBER, member)
    return 1


@kernel("int64(int64,int64,int64,int64,int64)")
def next_union(union, trees, scratch, out, capacity):
    """Write up to `capacity` output rows, key words and values; how many, 0 at the end. `trees` are addresses."""
    keys = load(union, OUT_KEYS)
    width = keys + load(union, OUT_VALUES) * load(union, OUT_LIMBS)
    shared = load(union, SHARED)
    made = 0
    while made < capacity:
        row = out + made * width * 8
        number = load(union, TREE)
        if number < load(union, TREES):
            tree = load(trees, number)
            if next_member(tree, scratch) == 0:
                store(union, TREE, number + 1)
                continue
            lower = load(tree, LOWER)
            member = load(lower, ROWS) + load(tree, MEMBER) * load(lower, WIDTH) * 8
            places = PLACES + 2 * load(load(tree, UPPER), KEYS) + load(load(tree, LINK_GROUP), KEYS)
            places += 2 * load(union, OUT_VALUES)
            for j in range(keys):
                store(row, j, load(member, load(tree, places + j)))
            clear_values(union, row, 0)
            add_members(union, tree, scratch, row, load(tree, BUCKET))
            for i in range(number + 1, load(union, TREES)):  # No earlier tree has it: it would have been excluded.
                later = load(trees, i)
                add_members(union, later, scratch, row, load(later, UPPER_USED))
            if find(shared, scratch, hash_words(row, keys), row, 0, 0) < 0:
                made += 1
                continue
            # The shared table has it, and gives its own next row in its place: each row once, at constant delay.
        if next_shared(union, row) == 0:
            break
        for i in range(load(union, TREES)):
            add_members(union, load(trees, i), scratch, row, -1)
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
        address = load(shared, ROWS) + found * load(shared, WIDTH) * 8
        clear_values(union, row, address if found >= 0 else 0)
        for t in range(load(union, TREES)):
            add_members(union, load(trees, t), scratch, row, -1)
    store(scratch, STEPS, load(scratch, STEPS) + rows)
