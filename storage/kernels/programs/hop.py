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

A tree has several *branches* where keys lie side by side. A branch has an upper table and levels of its own. A tuple is
a product over the branches: the buckets of a branch are scanned below the rows above, which the branch has in common
with the branch before (tuple_union.py).

Members are row numbers of a level's table, buckets those of the upper one. The members of a bucket are a group of the
level's table. The end of a group is the number of the table's rows plus the group's own. Buckets share a group if the
level's link is only a part of their key; a level after the first scans each group once.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LIMBS, LINKS, ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places, hash_words

# Trees, branches, levels and factors are arrays of words; FROM_ words say where lists of places begin in the same
# array. A tree: the list of a look-up. FOUND_ROWS has the address of a row for each level and factor, TUPLE the output
# words of the scan's tuple, and KEY room for a key. Then come the addresses of all levels, and of the branches.
BUCKET_TO, BUCKET_BACK, BUCKET, DEPTH, LOOKED_UP, FOUND_ROWS, TUPLE, KEY, LEVELS, BRANCHES, PARTS = range(11)

# A branch: its upper table, the number of its first level, NEXT, the next branch or 0, the table of the keys that it
# has in common with the branch before (0 of the first one), and the group and the link of the upper table's rows by
# these. FROM_ABOVE has the places of such a key in a row of the upper table before. Then come two turns, of the scan
# and of look-ups, and the addresses of its levels, factors and guards.
UPPER, UPPER_USED, LEVEL, OWN_LEVELS, FACTORS, GUARDS, NEXT = range(7)
ABOVE, BELOW_GROUP, BELOW, FROM_ABOVE, TURNS = range(7, 12)

# A turn to a branch: the list of its buckets, with rows above instead of addresses; the sums of the branches before by
# row above; for each of these the number of the last tuple that it had; and the present number.
LISTED, SUMS, MET, TURN = range(4)
SCANNING, LOOKING_UP = range(2)
TURN_WORDS = 4
OWN_PARTS = TURNS + 2 * TURN_WORDS

# A level; a factor or a guard has its table and two lists of places alone. BASE is added to the words of MEMBER_TO and
# MEMBER_BACK that count: it grows by SPAN when the exclusions start over. SCANNED has, for each group, the BASE with
# which it was scanned, and MARKED the number of the last tuple that was excluded there. MARK is the present number.
TABLE, FROM_KEY, FROM_VALUES = range(3)
LINK, LINK_GROUP, OUTPUT, OUTPUT_GROUP, TABLE_USED, MEMBER_TO, MEMBER_BACK, BASE, SPAN = range(3, 12)
POSITION, MEMBER, GROUP, LIST, OWN, SCANNED, MARKED, MARK, BRANCH = range(12, 21)
FROM_LINK, FROM_UPPER, FROM_OWN, FROM_OUT = range(21, 25)

# A list: how many entries it has, then the bucket of each, the address of its row, its place in the list before.
ENTRY = 3


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
def branch_of(tree, number):
    """A branch by its number."""
    return load(tree, PARTS + load(tree, LEVELS) + number)


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


@kernel("int64(int64,int64,int64)")
def group_below(level, scratch, bucket):
    """The group of a bucket's members."""
    group = load(level, LINK_GROUP)
    row = row_address(load(load(level, BRANCH), UPPER), bucket)
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


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def find_part(tree, part, upper, scratch, bucket, out):
    """The row of a level, or of a factor, that has a tuple's words in a bucket of an upper table, or -1."""
    table = load(part, TABLE)
    key = load(tree, KEY)
    row = row_address(upper, bucket)
    places = load(part, FROM_KEY)
    keys = load(table, KEYS)
    for j in range(keys):
        place = load(part, places + j)  # Of the tuple; below 0, of the bucket.
        store(key, j, load(out, place) if place >= 0 else load(row, -1 - place))
    return find(table, scratch, hash_words(key, keys), key, 0, 0)


@kernel("int64(int64,int64,int64,int64)")
def is_guarded(tree, branch, scratch, bucket):
    """Whether all guards have the key of a branch's bucket."""
    first = OWN_PARTS + load(branch, OWN_LEVELS) + load(branch, FACTORS)
    for i in range(first, first + load(branch, GUARDS)):
        if find_part(tree, load(branch, i), load(branch, UPPER), scratch, bucket, 0) < 0:
            return False
    return True


@kernel("int64(int64,int64,int64)")
def bucket_after(tree, scratch, bucket):
    """The next bucket that is not skipped, or UPPER_USED; the first one after -1."""
    branch = branch_of(tree, 0)
    upper = load(branch, UPPER)
    used = load(branch, UPPER_USED)
    bucket += 1
    while bucket < used:
        count = sign_of(row_address(upper, bucket), load(upper, KEYS), load(upper, LIMBS))
        if count != 0 and is_guarded(tree, branch, scratch, bucket):
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
    branch = branch_of(tree, 0)
    upper = load(branch, UPPER)
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
        if bucket >= 0 and is_guarded(tree, branch, scratch, bucket):
            append(entries, bucket, row, 0)
            # This row is put out now, so the other buckets that have it must pass over it when they are read.
            if current >= 0 and bucket != current:
                exclude(tree, scratch, bucket, member - 1)
        member = after


@kernel("int64(int64,int64)")
def list_before(tree, number):
    """The list of the buckets that a level after the first scans: of the turn to its branch, or of the level before."""
    branch = load(load(tree, PARTS + number), BRANCH)
    if load(branch, LEVEL) == number:
        return load(branch, TURNS + LISTED)
    return load(load(tree, PARTS + number - 1), LIST)


@kernel("void(int64,int64,int64)")
def narrow(tree, number, scratch):
    """List the buckets of the list before in which a level has the words of the scan's tuple; those that are still to
    be scanned exclude the rows."""
    level = load(tree, PARTS + number)
    table = load(level, TABLE)
    before = list_before(tree, number)
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
            member = find_part(tree, level, load(load(level, BRANCH), UPPER), scratch, bucket, load(tree, TUPLE))
        if member >= 0:
            append(entries, bucket, row_address(table, member), place)
            group = group_of(level, member)
            if load(marked, group) != mark:  # It is excluded once, whichever buckets have the group.
                store(marked, group, mark)
                exclude_member(level, member)


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
        if bucket == load(branch_of(tree, 0), UPPER_USED):
            return 0
        group = group_below(level, scratch, bucket)
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
    before = list_before(tree, number)
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
        group = group_below(level, scratch, load(before, 1 + position * ENTRY))
        store(scratch, STEPS, load(scratch, STEPS) + 1)
        member = first_member(level, group) if load(scanned, group) != base else ended + group
        store(scanned, group, base)
    store(level, POSITION, position)
    store(level, GROUP, group)
    store(level, MEMBER, member)
    return 1
