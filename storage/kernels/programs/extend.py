"""EXTEND: bind new variables of a delta, by listing a group's members or by intersecting several groups.

The sides of an EXTEND are tables that hold the new variables and some bound ones. For each delta row the side
whose group has the fewest members is listed, and each member's candidate is looked up in the others: the work is
that of the shortest list, which makes joins of deltas worst-case optimal (Ngo, Porat, Re, Rudra 2018).
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
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
from sqlfront.storage.kernels.memory import load, load32, prefetch, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.tables.delta import bring, gather_keys, prefetch_row, reserve_scratch
from sqlfront.storage.kernels.tables.hash_table import find, orders
from sqlfront.storage.kernels.tables.hashing import finish_hash, hash_places, hash_words, mix
from sqlfront.storage.kernels.tables.read_ahead import read_ahead
from sqlfront.storage.kernels.tables.waves import MEMBER, OWN, SIDES, SOURCE, TAILS, WAVE, enter_list, list_members

_DEAD = -1
# Where EXTEND goes on when it is called again, the row that stands for no member, and where the offsets of its sides
# are.
_POSITION, _MEMBER, _LEFT, _SIDE, _MISSING, _OFFSETS = 4, 5, 6, 7, 8, 9
# Words of a side; n places of the group's key in the delta follow, then the template of its whole key, a delta word
# or -1 - the number of a candidate word for each, then the places of the candidate words in its rows.
_GROUP, _TABLE, _INDEX, _COUNT = 0, 1, 2, 3


@kernel("void(int64,int64,int64,int64,int64)")
def find_lists(at, scratch, delta, width, count):
    """For `count` delta rows choose the side to list: TAILS and SIDES of the wave hold the group's tail (0: there is
    nothing to list) and the side's number, OWN the row."""
    wave = load(scratch, WAVES)
    for i in range(count):
        store(wave, OWN + i, delta + i * width * 8)
        store(wave, TAILS + i, 0)
        store(wave, SIDES + i, 0)
    sides = load(at, 2)
    hashes = load(scratch, HASHES)
    for s in range(sides):
        side = at + load(at, _OFFSETS + s) * 8
        group = load(side, _GROUP)
        if group != 0:
            slots = load(group, SLOTS)
            mask = load(group, MASK)
            for i in range(count):
                h = hash_words(gather_keys(side, _COUNT, load(wave, OWN + i), scratch), load(side, _COUNT))
                store(hashes, s * WAVE + i, h)
                prefetch(slots + (h & mask) * 8)
    for s in range(sides):
        group = load(at + load(at, _OFFSETS + s) * 8, _GROUP)
        if group != 0:
            read_ahead(group, hashes + s * WAVE * 8, count)
            for i in range(count):
                prefetch_row(group, load(hashes, s * WAVE + i))
    for s in range(sides):
        side = at + load(at, _OFFSETS + s) * 8
        group = load(side, _GROUP)
        if group == 0:
            continue
        for i in range(count):
            if load(wave, SIDES + i) == _DEAD:
                continue
            row = find(group, scratch, load(hashes, s * WAVE + i), load(wave, OWN + i), side, _COUNT + 1)
            best = load(wave, TAILS + i)
            if row >= 0 and load(at, _MISSING) != 0:  # A group that counts nothing may not have been swept yet.
                address = load(group, ROWS) + row * load(group, WIDTH) * 8
                row = -1 if sign_of(address, load(group, KEYS), load(group, LIMBS)) == 0 else row
            if row < 0:
                store(wave, SIDES + i, _DEAD)
                store(wave, TAILS + i, 0)
                continue
            tail = load(group, ROWS) + (row * load(group, WIDTH) + load(group, TAIL)) * 8
            if best == 0 or load32(tail, 1) < load32(best, 1):
                store(wave, TAILS + i, tail)
                store(wave, SIDES + i, s)
                table = load(side, _TABLE)
                prefetch(load(table, ROWS) + (load32(tail, 0) - 1) * load(table, WIDTH) * 8)


@kernel("void(int64,int64,int64)")
def bring_lists(at, row, stage):
    """Bring near the slots (stage 0), groups (1) and first members (2) of the lists that a delta row may meet."""
    for s in range(load(at, 2)):
        side = at + load(at, _OFFSETS + s) * 8
        group = load(side, _GROUP)
        if group == 0:
            continue
        h = hash_places(row, side, _COUNT + 1, load(side, _COUNT))
        bring(group, h, stage)
        if stage == 2:
            slot = load(load(group, SLOTS), h & load(group, MASK))
            if slot != 0:
                table = load(side, _TABLE)
                tail = (((slot & 0xFFFFFFFF) - 1) * load(group, WIDTH) + load(group, TAIL)) * 8
                member = load32(load(group, ROWS) + tail, 0) - 1
                prefetch(load(table, ROWS) + member * load(table, WIDTH) * 8)


@kernel("void(int64,int64,int64,int64,int64)")
def candidate_key(side, listed, row, member, out):
    """The whole key of a side's table: words of the delta row, and candidate words of a member of the listed side."""
    template = _COUNT + 1 + load(side, _COUNT)
    candidates = _COUNT + 1 + load(listed, _COUNT) + load(load(listed, _TABLE), KEYS)
    for j in range(load(load(side, _TABLE), KEYS)):
        word = load(side, template + j)
        if word >= 0:
            store(out, j, load(row, word))
        else:
            store(out, j, load(member, load(listed, candidates - 1 - word)))


@kernel("int64(int64,int64)")
def first_partner(at, s):
    """The side in which members of side `s` are looked up first."""
    last = load(at, 2) - 1
    return last if s != last else last - 1


@kernel("int64(int64,int64)")
def pair_place(side, listed):
    """Where the candidate word of a side's key is in a member of the listed side, if the key is one such word and one
    of the delta row; else -1."""
    template = _COUNT + 1 + load(side, _COUNT)
    if load(load(side, _TABLE), KEYS) != 2 or (load(side, template) < 0) == (load(side, template + 1) < 0):
        return -1
    candidates = _COUNT + 1 + load(listed, _COUNT) + load(load(listed, _TABLE), KEYS)
    return load(listed, candidates - 1 - min(load(side, template), load(side, template + 1)))


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)", inline=True)
def candidate_hash(side, listed, row, member, place, leads, bound, temporary):
    """The hash of a candidate's key; of a pair, whose candidate word is at `place`, without writing it down: its other
    word is `bound`, or the hash begun with it if it `leads`."""
    if place < 0:
        candidate_key(side, listed, row, member, temporary)
        h = hash_words(temporary, load(load(side, _TABLE), KEYS))
    elif leads != 0:
        h = finish_hash(mix(bound, load(member, place)))
    else:
        h = finish_hash(mix(mix(2, load(member, place)), bound))
    return h


@kernel("void(int64,int64,int64,int64,int64,int64,int64,int64)", inline=True)
def note_match(matches, hashes, slots, mask, i, row, member, h):
    """Note a match and its candidate's hash, and bring the slot near where it will be looked up."""
    store(matches, 2 * i, row)
    store(matches, 2 * i + 1, member)
    store(hashes, i, h)
    prefetch(slots + (h & mask) * 8)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def list_alone(at, scratch, matches, row, s, member, count, whole):
    """List `count` members of side `s` from `member` on for one row of the delta, and make ready to look each up in
    another side while the next is on its way; returns the member after the last one listed (0: none).

    Each hop waits for the one before it, so a `whole` list is walked on three ways: to every second member from the
    second and from the third on, and back from the last one."""
    listed = at + load(at, _OFFSETS + s) * 8
    side = at + load(at, _OFFSETS + first_partner(at, s)) * 8
    own = load(listed, _TABLE)
    next_place = 2 * (load(own, LINKS) + 2 * load(listed, _INDEX))
    rows = load(own, ROWS)
    width = load(own, WIDTH) * 8
    slots = load(load(side, _TABLE), SLOTS)
    mask = load(load(side, _TABLE), MASK)
    hashes = load(scratch, HASHES)
    temporary = load(scratch, TEMPORARY)
    place = pair_place(side, listed)
    leads = 0
    bound = 0
    if place >= 0:
        template = _COUNT + 1 + load(side, _COUNT)
        leads = 1 if load(side, template) >= 0 else 0
        bound = load(row, max(load(side, template), load(side, template + 1)))
        if leads != 0:
            bound = mix(2, bound)
    head = rows + (member - 1) * width
    odd = load32(head, next_place)
    even = load32(head, next_place + 3)
    last = load32(head, next_place + 1)
    # An ordered list has no links to the next but one: it is walked on one way.
    turn = 0 if whole != 0 and not orders(own, load(listed, _INDEX)) else -1
    for i in range(count):
        address = rows + (member - 1) * width
        h = candidate_hash(side, listed, row, address, place, leads, bound, temporary)
        note_match(matches, hashes, slots, mask, i, row, address, h)
        # The three ways take turns, so two loads are under way while the third is used. `count` ends the walk before
        # two ways meet, so no member is listed twice.
        if turn < 0:
            member = load32(address, next_place)
        elif turn == 0:
            member = odd
            turn = 1
        elif turn == 1:
            odd = load32(address, next_place + 3)
            member = even
            turn = 2
        elif turn == 2:
            even = load32(address, next_place + 3)
            member = last
            turn = 3
        else:
            last = load32(address, next_place + 1)
            member = odd
            turn = 1
    return 0 if whole != 0 else member


@kernel("void(int64,int64,int64,int64,int64,int64)")
def hash_matches(side, listed, scratch, matches, rows, hashes):
    """Make ready to look the candidates of all matches up in a side."""
    slots = load(load(side, _TABLE), SLOTS)
    mask = load(load(side, _TABLE), MASK)
    keys = load(load(side, _TABLE), KEYS)
    temporary = load(scratch, TEMPORARY)
    for i in range(rows):
        candidate_key(side, listed, load(matches, 2 * i), load(matches, 2 * i + 1), temporary)
        h = hash_words(temporary, keys)
        store(hashes, i, h)
        prefetch(slots + (h & mask) * 8)


@kernel("int64(int64,int64,int64,int64,int64)")
def drop_absent(table, scratch, matches, rows, hashes):
    """Keep the matches, and their hashes, whose hash a row of the table has, and bring that row near; how many. Counts
    the slots looked at for the others: `find` will count those of what is kept."""
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    kept = 0
    looked = 0
    for i in range(rows):
        h = load(hashes, i)
        j = h & mask
        slot = load(slots, j)
        while slot != 0 and slot >> 32 != h:
            j = (j + 1) & mask
            slot = load(slots, j)
        if slot == 0:
            looked += 1 + ((j - h) & mask)
        else:
            prefetch(load(table, ROWS) + ((slot & 0xFFFFFFFF) - 1) * load(table, WIDTH) * 8)
            store(hashes, kept, h)
            store(matches, 2 * kept, load(matches, 2 * i))
            store(matches, 2 * kept + 1, load(matches, 2 * i + 1))
            kept += 1
    store(scratch, STEPS, load(scratch, STEPS) + looked)
    return kept


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def keep_common(at, scratch, matches, rows, s, ready):
    """Keep the matches of members of side `s` that the other sides have too, with the row of side 0; how many. They are
    `ready` to be looked up in the first side after `list_alone`."""
    listed = at + load(at, _OFFSETS + s) * 8
    temporary = load(scratch, TEMPORARY)
    hashes = load(scratch, HASHES)
    for t in range(load(at, 2) - 1, -1, -1):
        if t == s:
            continue
        side = at + load(at, _OFFSETS + t) * 8
        table = load(side, _TABLE)
        if ready == 0 or t != first_partner(at, s):
            hash_matches(side, listed, scratch, matches, rows, hashes)
        rows = drop_absent(table, scratch, matches, rows, hashes)
        kept = 0
        for i in range(rows):
            row = load(matches, 2 * i)
            member = load(matches, 2 * i + 1)
            candidate_key(side, listed, row, member, temporary)
            partner = find(table, scratch, load(hashes, i), temporary, 0, 0)
            if partner >= 0:
                store(matches, 2 * kept, row)
                if t == 0:
                    member = load(table, ROWS) + partner * load(table, WIDTH) * 8
                store(matches, 2 * kept + 1, member)
                kept += 1
        rows = kept
    return rows


@kernel("int64(int64,int64,int64,int64,int64)")
def step_extend(at, scratch, delta, width, rows):
    """[EXTEND, length, sides, emit place, next delta row, next member, left, its side, missing, offset of each side...,
    sides].

    Match each delta row with the rows of side 0 whose candidates all sides have; at most CHUNK members are listed a
    call. Words 4 to 7 say where to go on (next delta row = -1: done). A side without a group is only looked up. A lone
    side may have a row `missing` (0: none), with which a delta row is matched that has no members to list.
    """
    position = load(at, _POSITION)
    member = load(at, _MEMBER)
    left = load(at, _LEFT)
    s = load(at, _SIDE)
    sides = load(at, 2)
    missing = load(at, _MISSING)
    reserve_scratch(scratch, max(CHUNK, sides * WAVE), CHUNK)
    matches = load(scratch, MATCHES)
    wave = load(scratch, WAVES)
    made = 0
    found = 0
    while position < rows and made < CHUNK:
        if member != 0:  # The list of one delta row was longer than a chunk: go on in it.
            side = at + load(at, _OFFSETS + s) * 8
            store(wave, OWN, delta + position * width * 8)
            made = min(left, CHUNK)
            left -= made
            enter_list(wave, 0, wave + OWN * 8, member, made, 0)
            member = list_members(load(side, _TABLE), load(side, _INDEX), matches, 1, 1, wave)
            found = made if sides == 1 else keep_common(at, scratch, matches, made, s, 0)
            if member == 0:
                position += 1
            continue
        count = min(WAVE, rows - position)
        find_lists(at, scratch, delta + position * width * 8, width, count)
        last = 0
        n = 0
        while n < count and made < CHUNK:
            tail = load(wave, TAILS + n)
            if tail != 0:
                size = load32(tail, 1)
                last = min(size, CHUNK - made)
                left = size - last
                made += last
            elif missing != 0:
                store(matches, 2 * found, load(wave, OWN + n))
                store(matches, 2 * found + 1, missing)
                found += 1
                made += 1
            n += 1
        # Rows whose shortest list is on the same side go together: their hops wait for memory side by side. The chunk
        # can cut the list of the last row only.
        for t in range(sides):
            side = at + load(at, _OFFSETS + t) * 8
            active = 0
            out = 0
            size = 0
            for i in range(n):
                tail = load(wave, TAILS + i)
                if tail != 0 and load(wave, SIDES + i) == t:
                    size = load32(tail, 1)
                    taken = last if i == n - 1 else size
                    enter_list(wave, active, wave + (OWN + i) * 8, load32(tail, 0), taken, out)
                    active += 1
                    out += taken
            if active > 0:
                block = matches + found * 16
                lone = 1 if active == 1 and sides > 1 else 0
                if lone == 1:
                    row = load(load(wave, SOURCE), 0)
                    rest = list_alone(at, scratch, block, row, t, load(wave, MEMBER), out, 1 if out == size else 0)
                else:
                    rest = list_members(load(side, _TABLE), load(side, _INDEX), block, 1, active, wave)
                if rest != 0:
                    member = rest
                    s = t
                found += out if sides == 1 else keep_common(at, scratch, block, out, t, lone)
        position += n if member == 0 else n - 1
    store(at, _POSITION, -1 if position >= rows else position)
    store(at, _MEMBER, member)
    store(at, _LEFT, left)
    store(at, _SIDE, s)
    store(scratch, STEPS, load(scratch, STEPS) + made)
    return found
