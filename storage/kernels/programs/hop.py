"""The union of many overlapping sets without duplicates: a scan of one after the other that hops over what it has had.

The sets are *buckets*. A bucket is a row of an upper table. Lower tables, the *levels*, have members for it, and its
tuples are their product: one member of each level. Members of a level are equal if they have the same output words.
When one is put out, the other buckets exclude it: where a run of excluded members begins, `to` names the member after
it, and there `back` names its beginning (Kara et al. 2020, section 2.4: hop iterators and their union, with its two
errors mended: the current bucket excludes nothing, and a bucket without the member is left alone).

A group of the first level's table lists the buckets that have a member. The *list* of a level has the buckets with the
tuple so far. The next level scans and looks up these alone, and its exclusions start over for each tuple so far. The
delay is the number of levels times the number of buckets that a tuple may be in. *Guards* are tables that must have a
bucket's key; passing over a bucket without it costs a step. Values are multiplied over the levels and *factors*, of
which a bucket has one row each without output words, and added up over the buckets.

Of several trees, and a *shared* table of tuples at last, each set takes the place of a tuple that it has: it gives its
own next one instead. So each tuple comes once, from one of the sets that have it (the union of two sets, section 2.4).

Members are row numbers of a level's table, buckets those of the upper one. The members of a bucket are a group of the
level's table. The end of a group is the number of the table's rows plus the group's own. Buckets share a group if the
level's link is only a part of their key; a level after the first scans each group once.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, ROWS, STEPS, TAIL, TEMPORARY, USED, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.numbers.limbs import add_value, copy_value, multiply, sign_of
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words

# Trees, levels and factors are arrays of words; FROM_ words say where lists of places begin in the same array. A tree:
# the upper table, and the list of a look-up. FOUND_ROWS has the address of a row for each level and factor, TUPLE the
# output words of the scan's tuple, and KEY room for a key. Then come the addresses of levels, factors and guards.
UPPER, UPPER_USED, BUCKET_TO, BUCKET_BACK, BUCKET, DEPTH = range(6)
LOOKED_UP, FOUND_ROWS, TUPLE, KEY, LEVELS, FACTORS, GUARDS, PARTS = range(6, 14)

# A level; a factor or a guard has its table and two lists of places alone. BASE is added to the words of MEMBER_TO and
# MEMBER_BACK that count: it grows by SPAN when the exclusions start over. SCANNED has, for each group, the BASE with
# which it was scanned, and MARKED the number of the last tuple that was excluded there. MARK is the present number.
TABLE, FROM_KEY, FROM_VALUES = range(3)
LINK, LINK_GROUP, OUTPUT, OUTPUT_GROUP, TABLE_USED, MEMBER_TO, MEMBER_BACK, BASE, SPAN = range(3, 12)
POSITION, MEMBER, GROUP, LIST, OWN, SCANNED, MARKED, MARK = range(12, 20)
FROM_LINK, FROM_UPPER, FROM_OWN, FROM_OUT = range(20, 24)

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


@kernel("int64(int64,int64)")
def group_of(level, member):
    """The group that a member is in."""
    table = load(level, TABLE)
    return load32(row_address(table, member), 2 * (load(table, LINKS) + 2 * load(level, LINK)) + 2)


@kernel("int64(int64,int64)")
def member_after(level, member):
    """The next member of a group that is not skipped, or its end."""
    table = load(level, TABLE)
    after = load32(row_address(table, member), 2 * (load(table, LINKS) + 2 * load(level, LINK)))
    if after == 0:
        return load(level, TABLE_USED) + group_of(level, member)
    return skipped(load(level, MEMBER_TO), load(level, BASE), after - 1)


@kernel("int64(int64,int64,int64,int64)")
def group_below(tree, level, scratch, bucket):
    """The group of a bucket's members."""
    group = load(level, LINK_GROUP)
    row = row_address(load(tree, UPPER), bucket)
    places = load(level, FROM_LINK)
    return find(group, scratch, hash_places(row, level, places, load(group, KEYS)), row, level, places)


@kernel("int64(int64,int64)")
def first_member(level, group):
    """The first member of a group that is not skipped, or its end."""
    table = load(level, LINK_GROUP)
    head = load32(row_address(table, group) + load(table, TAIL) * 8, 0)
    return skipped(load(level, MEMBER_TO), load(level, BASE), head - 1)


@kernel("void(int64,int64)")
def exclude_member(level, member):
    """Exclude a member of its group."""
    after = member_after(level, member)
    skip(load(level, MEMBER_TO), load(level, MEMBER_BACK), load(level, BASE), member, after)


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


@kernel("int64(int64,int64,int64)")
def is_guarded(tree, scratch, bucket):
    """Whether all guards have a bucket's key."""
    first = PARTS + load(tree, LEVELS) + load(tree, FACTORS)
    for i in range(first, first + load(tree, GUARDS)):
        if find_part(tree, load(tree, i), scratch, bucket, 0) < 0:
            return False
    return True


@kernel("int64(int64,int64,int64)")
def bucket_after(tree, scratch, bucket):
    """The next bucket that is not skipped, or UPPER_USED; the first one after -1."""
    upper = load(tree, UPPER)
    used = load(tree, UPPER_USED)
    bucket += 1
    while bucket < used:
        count = sign_of(row_address(upper, bucket), load(upper, KEYS), load(upper, LIMBS))
        if count != 0 and is_guarded(tree, scratch, bucket):
            break  # Others are free, or wait to be swept, or have no tuple.
        bucket += 1
    return skipped(load(tree, BUCKET_TO), 0, bucket)


@kernel("void(int64,int64,int64,int64)")
def exclude(tree, scratch, bucket, member):
    """Exclude a member of a bucket of the first level, and the bucket if it has no other."""
    level = load(tree, PARTS)
    exclude_member(level, member)
    group = group_of(level, member)
    if first_member(level, group) == load(level, TABLE_USED) + group:
        skip(load(tree, BUCKET_TO), load(tree, BUCKET_BACK), 0, bucket, bucket_after(tree, scratch, bucket))


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
        if bucket >= 0 and is_guarded(tree, scratch, bucket):
            append(entries, bucket, row, 0)
            # This row is put out now, so the other buckets that have it must pass over it when they are read.
            if current >= 0 and bucket != current:
                exclude(tree, scratch, bucket, member - 1)
        member = after


@kernel("void(int64,int64,int64)")
def narrow(tree, number, scratch):
    """List the buckets of the list before in which a level has the words of the scan's tuple; those that are still to
    be scanned exclude the rows."""
    level = load(tree, PARTS + number)
    table = load(level, TABLE)
    before = load(load(tree, PARTS + number - 1), LIST)
    entries = load(level, LIST)
    position = load(level, POSITION)
    marked = load(level, MARKED)
    mark = load(level, MARK) + 1
    store(level, MARK, mark)
    store(marked, load(level, GROUP), mark)
    store(entries, 0, 0)
    for place in range(position, load(before, 0)):  # An earlier one that had them would have excluded them here.
        bucket = load(before, 1 + place * ENTRY)
        member = load(level, MEMBER)
        if place != position:
            member = find_part(tree, level, scratch, bucket, load(tree, TUPLE))
        if member >= 0:
            append(entries, bucket, row_address(table, member), place)
            group = group_of(level, member)
            if load(marked, group) != mark:  # It is excluded once, whichever buckets have the group.
                store(marked, group, mark)
                exclude_member(level, member)


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


@kernel("int64(int64,int64,int64,int64)")
def add_found(union, tree, scratch, out):
    """Look an output row's words up in a tree, and add the values that they have there. Returns in how many buckets."""
    meet(tree, scratch, out, -1, load(tree, LOOKED_UP))
    return add_values(union, tree, scratch, out, load(tree, LOOKED_UP), 1)


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
    group = load(level, GROUP)
    member = member_after(level, load(level, MEMBER)) if bucket >= 0 else ended + group
    while member == ended + group:
        bucket = bucket_after(tree, scratch, bucket)
        store(tree, BUCKET, bucket)
        if bucket == load(tree, UPPER_USED):
            return 0
        group = group_below(tree, level, scratch, bucket)
        member = first_member(level, group)
        store(scratch, STEPS, load(scratch, STEPS) + 1)
    store(level, GROUP, group)
    store(level, MEMBER, member)
    return 1


@kernel("int64(int64,int64,int64)")
def next_listed(tree, number, scratch):
    """Go on to the next row that is not skipped of a level, in the next bucket of the list before if need be; 0 at the
    end."""
    level = load(tree, PARTS + number)
    before = load(load(tree, PARTS + number - 1), LIST)
    ended = load(level, TABLE_USED)
    scanned = load(level, SCANNED)
    base = load(level, BASE)
    position = load(level, POSITION)
    group = load(level, GROUP)
    member = member_after(level, load(level, MEMBER)) if position >= 0 else ended + group
    while member == ended + group:
        position += 1
        if position == load(before, 0):
            return 0
        group = group_below(tree, level, scratch, load(before, 1 + position * ENTRY))
        store(scratch, STEPS, load(scratch, STEPS) + 1)
        member = first_member(level, group) if load(scanned, group) != base else ended + group
        store(scanned, group, base)
    store(level, POSITION, position)
    store(level, GROUP, group)
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


@kernel("int64(int64,int64,int64,int64)")
def next_of_tree(union, tree, scratch, out):
    """Make an output row of a tree's next tuple; 0 if there is none."""
    if next_tuple(tree, scratch) == 0:
        return 0
    levels = load(tree, LEVELS)
    for j in range(load(union, OUT_KEYS)):
        store(out, j, load(load(tree, TUPLE), j))
    clear_values(union, out, 0)
    add_values(union, tree, scratch, out, load(load(tree, PARTS + levels - 1), LIST), levels)
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
