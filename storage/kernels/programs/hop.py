"""The union of many overlapping sets without duplicates: a scan of one after the other that hops over what it has had.

The sets are *buckets*: a row of an upper table, with the members that lower tables have for it. In a tree with one
lower table, a *level*, the members are its rows; with several, the product of their rows: a tuple takes one row of each
level, all of the same bucket. Rows of a level are equal if they have the same output words. When one is put out, the
other buckets exclude it: where a run of excluded members begins, `to` names the member after it, and there `back` names
its beginning (Kara et al. 2020, section 2.4: hop iterators and their union, with its two errors mended: the current
bucket excludes nothing, and a bucket without the member is left alone).

The first level's rows are found in all buckets by a group of its table. The *list* of a level has the buckets, with
their rows, in which the tuple so far is; the next level scans and looks up those alone, and starts its exclusions over
for each tuple so far. So the delay is the number of buckets that a tuple may be in, times the number of levels. Values
are multiplied over the levels and *factors*, rows without output words that a bucket has one of each, and added up over
the buckets. What a *shared* table has of the same output counts too, and takes the place of a tuple that it has (the
union of two sets, section 2.4).

Members are row numbers of a level's table, buckets those of the upper one; a bucket's end is the number of the level's
rows plus its own. A tree, a level and a factor are arrays of words; FROM_ words say where, in the same array, lists of
places begin.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, ROWS, STEPS, TAIL, TEMPORARY, USED, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words
from sqlfront.storage.kernels.tables.limbs import add_value, copy_value, multiply, sign_of

# A tree: the upper table, and the list of a look-up. FOUND_ROWS has the address of a row for each level and factor,
# TUPLE the output words of the scan's tuple, and KEY room for a key. Then come the addresses of levels, and of factors.
UPPER, UPPER_USED, BUCKET_TO, BUCKET_BACK, BUCKET, DEPTH = range(6)
LOOKED_UP, FOUND_ROWS, TUPLE, KEY, LEVELS, FACTORS, PARTS = range(6, 13)

# A level, and a factor, which has its table and two lists of places alone. BASE is added to the words of MEMBER_TO and
# MEMBER_BACK that count: it grows by SPAN when the exclusions start over.
TABLE, FROM_KEY, FROM_VALUES = range(3)
LINK, LINK_GROUP, OUTPUT, OUTPUT_GROUP, TABLE_USED, MEMBER_TO, MEMBER_BACK, BASE, SPAN = range(3, 12)
POSITION, MEMBER, LIST, OWN = range(12, 16)
FROM_LINK, FROM_UPPER, FROM_OWN, FROM_OUT, LEVEL_WORDS = range(16, 21)

# A list: how many entries it has, then the bucket of each, the address of its row, its place in the list before.
ENTRY = 3

SHARED, CURSOR, TREE, TREES, OUT_KEYS, OUT_VALUES, OUT_LIMBS, PRODUCT = range(8)
UNION_WORDS = 8


@kernel("int64(int64,int64,int64)")
def skipped(places, base, x):
    """Where a hop from x leads: x itself if nothing was skipped there."""
    found = load(places, x) - base
    return found - 1 if found > 0 else x


@kernel("void(int64,int64,int64,int64,int64)")
def skip(to, back, base, x, after):
    """Skip x, after which `after` comes next; to be done once for each x."""
    # The run that ends in x and the one that follows become one; only the ends of a run know each other.
    begin = skipped(back, base, x)
    store(to, begin, base + after + 1)
    store(back, after, base + begin + 1)


@kernel("int64(int64,int64)")
def row_address(table, row):
    """The address of a table's row."""
    return load(table, ROWS) + row * load(table, WIDTH) * 8


@kernel("int64(int64,int64,int64)")
def member_after(level, bucket, member):
    """The next member of a bucket that is not skipped, or its end."""
    table = load(level, TABLE)
    after = load32(row_address(table, member), 2 * (load(table, LINKS) + 2 * load(level, LINK)))
    if after == 0:
        return load(level, TABLE_USED) + bucket
    return skipped(load(level, MEMBER_TO), load(level, BASE), after - 1)


@kernel("int64(int64,int64,int64,int64)")
def first_member(tree, level, scratch, bucket):
    """The first member of a bucket that is not skipped, or its end."""
    group = load(level, LINK_GROUP)
    row = row_address(load(tree, UPPER), bucket)
    places = load(level, FROM_LINK)
    found = find(group, scratch, hash_places(row, level, places, load(group, KEYS)), row, level, places)
    tail = row_address(group, found) + load(group, TAIL) * 8
    return skipped(load(level, MEMBER_TO), load(level, BASE), load32(tail, 0) - 1)


@kernel("int64(int64,int64)")
def bucket_after(tree, bucket):
    """The next bucket that is not skipped, or UPPER_USED; the first one after -1."""
    upper = load(tree, UPPER)
    used = load(tree, UPPER_USED)
    bucket += 1
    while bucket < used:
        if sign_of(row_address(upper, bucket), load(upper, KEYS), load(upper, LIMBS)) != 0:
            break  # Others are free, or wait to be swept.
        bucket += 1
    return skipped(load(tree, BUCKET_TO), 0, bucket)


@kernel("void(int64,int64,int64,int64)")
def exclude(tree, scratch, bucket, member):
    """Exclude a member of a bucket of the first level, and the bucket if it has no other."""
    level = load(tree, PARTS)
    after = member_after(level, bucket, member)
    skip(load(level, MEMBER_TO), load(level, MEMBER_BACK), load(level, BASE), member, after)
    if first_member(tree, level, scratch, bucket) == load(level, TABLE_USED) + bucket:
        skip(load(tree, BUCKET_TO), load(tree, BUCKET_BACK), 0, bucket, bucket_after(tree, bucket))


@kernel("void(int64,int64,int64,int64)")
def append(entries, bucket, row, place):
    """Append an entry to a list."""
    count = load(entries, 0)
    store(entries, 1 + count * ENTRY, bucket)
    store(entries, 2 + count * ENTRY, row)
    store(entries, 3 + count * ENTRY, place)
    store(entries, 0, count + 1)


@kernel("void(int64,int64,int64,int64,int64)")
def meet(tree, scratch, out, current, entries):
    """List the buckets, of those that there are, whose first level has a tuple's words; with a bucket `current` (else
    -1), all others exclude the rows."""
    level = load(tree, PARTS)
    table = load(level, TABLE)
    upper = load(tree, UPPER)
    group = load(level, OUTPUT_GROUP)
    next_place = 2 * (load(table, LINKS) + 2 * load(level, OUTPUT))
    places = load(level, FROM_OUT)
    above = load(level, FROM_UPPER)
    store(entries, 0, 0)
    found = find(group, scratch, hash_places(out, level, places, load(group, KEYS)), out, level, places)
    if found < 0:
        return
    tail = row_address(group, found) + load(group, TAIL) * 8
    member = load32(tail, 0)
    store(scratch, STEPS, load(scratch, STEPS) + load32(tail, 1))
    while member != 0:
        row = row_address(table, member - 1)
        after = load32(row, next_place)
        bucket = find(upper, scratch, hash_places(row, level, above, load(upper, KEYS)), row, level, above)
        if bucket >= 0:
            append(entries, bucket, row, 0)
            # This row is put out now, so the other buckets that have it must pass over it when they are read.
            if current >= 0 and bucket != current:
                exclude(tree, scratch, bucket, member - 1)
        member = after


@kernel("int64(int64,int64,int64,int64,int64)")
def find_part(tree, part, scratch, bucket, out):
    """The row of a level, or of a factor, that has a tuple's words in a bucket, or -1."""
    table = load(part, TABLE)
    key = load(tree, KEY)
    row = row_address(load(tree, UPPER), bucket)
    places = load(part, FROM_KEY)
    keys = load(table, KEYS)
    for j in range(keys):
        place = load(part, places + j)  # Of the tuple; below 0, of the bucket.
        store(key, j, load(out, place) if place >= 0 else load(row, -1 - place))
    return find(table, scratch, hash_words(key, keys), key, 0, 0)


@kernel("void(int64,int64,int64)")
def narrow(tree, number, scratch):
    """List the buckets of the list before in which a level has the words of the scan's tuple; those that are still to
    be scanned exclude the rows."""
    level = load(tree, PARTS + number)
    table = load(level, TABLE)
    before = load(load(tree, PARTS + number - 1), LIST)
    entries = load(level, LIST)
    position = load(level, POSITION)
    store(entries, 0, 0)
    for place in range(position, load(before, 0)):  # An earlier one that had them would have excluded them here.
        bucket = load(before, 1 + place * ENTRY)
        member = load(level, MEMBER)
        if place != position:
            member = find_part(tree, level, scratch, bucket, load(tree, TUPLE))
        if member >= 0:
            append(entries, bucket, row_address(table, member), place)
            if place != position:
                after = member_after(level, bucket, member)
                skip(load(level, MEMBER_TO), load(level, MEMBER_BACK), load(level, BASE), member, after)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def add_values(union, tree, scratch, out, entries, known):
    """Add the values of a tuple in the buckets of a list, which has the rows of the first `known` levels, to an output
    row. Returns in how many of them it is."""
    parts = load(tree, LEVELS) + load(tree, FACTORS)
    rows = load(tree, FOUND_ROWS)
    keys = load(union, OUT_KEYS)
    limbs = load(union, OUT_LIMBS)
    temporary = load(scratch, TEMPORARY)
    made = 0
    for number in range(load(entries, 0)):
        bucket = load(entries, 1 + number * ENTRY)
        place = number
        for i in range(known - 1, -1, -1):
            listed = entries if i == known - 1 else load(load(tree, PARTS + i), LIST)
            store(rows, i, load(listed, 2 + place * ENTRY))
            place = load(listed, 3 + place * ENTRY)
        there = True
        for i in range(known, parts):
            part = load(tree, PARTS + i)
            found = find_part(tree, part, scratch, bucket, out)
            if found < 0:
                there = False
                break
            store(rows, i, row_address(load(part, TABLE), found))
        if not there:
            continue
        made += 1
        for v in range(load(union, OUT_VALUES)):
            product = load(union, PRODUCT)
            other = product + limbs * 8
            first = load(tree, PARTS)
            own = load(load(first, TABLE), LIMBS)
            copy_value(product, 0, limbs, load(rows, 0), load(first, load(first, FROM_VALUES) + v), own)
            for i in range(1, parts):
                part = load(tree, PARTS + i)
                own = load(load(part, TABLE), LIMBS)
                value = load(part, load(part, FROM_VALUES) + v)
                multiply(other, 0, limbs, product, 0, limbs, load(rows, i), value, own, temporary)
                product, other = other, product
            add_value(out, keys + v * limbs, product, 0, limbs)
    return made


@kernel("void(int64,int64,int64,int64)")
def add_found(union, tree, scratch, out):
    """Look an output row's words up in a tree, and add the values that they have there."""
    meet(tree, scratch, out, -1, load(tree, LOOKED_UP))
    add_values(union, tree, scratch, out, load(tree, LOOKED_UP), 1)


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


@kernel("int64(int64,int64)")
def next_member(tree, scratch):
    """Go on to the first level's next row that is not skipped, in the next bucket if need be; 0 at the end."""
    level = load(tree, PARTS)
    bucket = load(tree, BUCKET)
    ended = load(level, TABLE_USED)
    member = member_after(level, bucket, load(level, MEMBER)) if bucket >= 0 else ended + bucket
    while member == ended + bucket:
        bucket = bucket_after(tree, bucket)
        store(tree, BUCKET, bucket)
        if bucket == load(tree, UPPER_USED):
            return 0
        member = first_member(tree, level, scratch, bucket)
        store(scratch, STEPS, load(scratch, STEPS) + 1)
    store(level, MEMBER, member)
    return 1


@kernel("int64(int64,int64,int64)")
def next_listed(tree, number, scratch):
    """Go on to the next row that is not skipped of a level, in the next bucket of the list before if need be; 0 at the
    end."""
    level = load(tree, PARTS + number)
    before = load(load(tree, PARTS + number - 1), LIST)
    ended = load(level, TABLE_USED)
    position = load(level, POSITION)
    bucket = member = -1
    if position >= 0:
        bucket = load(before, 1 + position * ENTRY)
        member = member_after(level, bucket, load(level, MEMBER))
    while position < 0 or member == ended + bucket:
        position += 1
        if position == load(before, 0):
            return 0
        bucket = load(before, 1 + position * ENTRY)
        member = first_member(tree, level, scratch, bucket)
        store(scratch, STEPS, load(scratch, STEPS) + 1)
    store(level, POSITION, position)
    store(level, MEMBER, member)
    return 1


@kernel("int64(int64,int64)")
def next_tuple(tree, scratch):
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
        level = load(tree, PARTS + number)
        store(level, POSITION, -1)
        store(level, BASE, load(level, BASE) + load(level, SPAN))


@kernel("int64(int64,int64,int64,int64,int64)")
def next_union(union, trees, scratch, out, capacity):
    """Write up to `capacity` output rows, key words and values; how many, 0 at the end. `trees` are addresses.

    Of several trees each has one level: another's exclusions end with the tuple so far.
    """
    keys = load(union, OUT_KEYS)
    width = keys + load(union, OUT_VALUES) * load(union, OUT_LIMBS)
    shared = load(union, SHARED)
    made = 0
    while made < capacity:
        row = out + made * width * 8
        number = load(union, TREE)
        if number < load(union, TREES):
            tree = load(trees, number)
            if next_tuple(tree, scratch) == 0:
                store(union, TREE, number + 1)
                continue
            levels = load(tree, LEVELS)
            for j in range(keys):
                store(row, j, load(load(tree, TUPLE), j))
            clear_values(union, row, 0)
            add_values(union, tree, scratch, row, load(load(tree, PARTS + levels - 1), LIST), levels)
            for i in range(number + 1, load(union, TREES)):  # No earlier tree has it: it would have been excluded.
                later = load(trees, i)
                meet(later, scratch, row, load(later, UPPER_USED), load(later, LOOKED_UP))
                add_values(union, later, scratch, row, load(later, LOOKED_UP), 1)
            if find(shared, scratch, hash_words(row, keys), row, 0, 0) < 0:
                made += 1
                continue
            # The shared table has it, and gives its own next row in its place: each row once, at constant delay.
        if next_shared(union, row) == 0:
            break
        for i in range(load(union, TREES)):
            add_found(union, load(trees, i), scratch, row)
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
