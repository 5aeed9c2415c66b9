"""The one update loop: an interpreter of delta programs over tables.

A program is a list of operations on a *delta*, an array of rows (key words, then values). A path starts
at the leaf's delta, looks up or expands sibling views, multiplies, and adds the result to the views
above. Every operation works on a whole block; EXPAND, whose output may be large, stops at CHUNK rows,
lets the rest of the path run, and is resumed from where it stopped.
"""

from __future__ import annotations

from storage.jit import kernel
from storage.layout import (
    BAD_ROW,
    BAD_TABLE,
    BEST,
    BUFFERS,
    CHECK,
    CHUNK,
    COUNTERS,
    DIRTY_USED,
    END,
    EXPAND,
    FACTOR_CODE,
    FACTOR_LIMBS,
    FLAGS,
    HASHES,
    HASHES_CAPACITY,
    INDEX_ENTRY,
    INDEX_LIST,
    INDEXES,
    INTERSECT,
    KEYS,
    LIFT,
    LIMBS,
    LINKS,
    MATCHES,
    MATCHES_CAPACITY,
    NULL_CODE,
    OVERFLOW,
    PATH,
    PATH_END,
    PROBE,
    PROJECT,
    ROWS,
    RUNS,
    SCAN,
    SHRINK,
    SLOTS,
    MASK,
    STACK,
    STEPS,
    SWEEP,
    TAIL,
    TEMPORARY,
    TEMPORARY_WORDS,
    UPSERT,
    USED,
    VALUES,
    VIOLATION,
    WIDTH,
)
from storage.limb_kernels import copy_value, multiply, sign_of
from storage.memory import load, load32, prefetch, product_overflows, realloc, store
from storage.table_kernels import find, first_negative, hash_words, reserve, sweep, upsert, wants_shrink

_AHEAD = 12


@kernel("int64(int64,int64,int64)")
def buffer(scratch, number, words):
    """The address of a scratch buffer with room for `words` words."""
    place = BUFFERS + 3 * number
    if load(scratch, place + 1) < words:
        store(scratch, place, realloc(load(scratch, place), 8 * words))
        store(scratch, place + 1, words)
    return load(scratch, place)


@kernel("void(int64,int64,int64)")
def reserve_scratch(scratch, hashes, matches):
    """Room for that many hashes and matches."""
    if load(scratch, HASHES_CAPACITY) < hashes:
        store(scratch, HASHES, realloc(load(scratch, HASHES), 8 * hashes))
        store(scratch, HASHES_CAPACITY, hashes)
    if load(scratch, MATCHES_CAPACITY) < matches:
        store(scratch, MATCHES, realloc(load(scratch, MATCHES), 16 * matches))
        store(scratch, MATCHES_CAPACITY, matches)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def lift(at, scratch, data, first, rows, sign):
    """Make the leaf's delta from rows of encoded columns whose last word is the weight.

    [LIFT, length, data width, keys, factors, limbs, predicate place or -1, required: n, places..., key places...,
    factors: (kind, place, limbs)...]
    """
    data_width = load(at, 2)
    keys = load(at, 3)
    factors = load(at, 4)
    limbs = load(at, 5)
    predicate = load(at, 6)
    required = load(at, 7)
    key_places = 8 + required
    factor_places = key_places + keys
    width = keys + (1 + factors) * limbs
    out = buffer(scratch, 0, width * rows)
    temporary = load(scratch, TEMPORARY)
    overflow = 0
    kept = 0
    for i in range(rows):
        source = data + (first + i) * data_width * 8
        keep = predicate < 0 or load(source, predicate) == 1
        for j in range(required):
            if load(source, load(at, 8 + j)) == NULL_CODE:
                keep = False
        if not keep:
            continue
        target = out + kept * width * 8
        weight = load(source, data_width - 1) * sign
        for j in range(keys):
            store(target, j, load(source, load(at, key_places + j)))
        store(target, keys, weight)
        for j in range(1, limbs):
            store(target, keys + j, -1 if weight < 0 else 0)
        for f in range(factors):
            kind = load(at, factor_places + 3 * f)
            place = load(at, factor_places + 3 * f + 1)
            goal = keys + (1 + f) * limbs
            if kind == FACTOR_LIMBS:
                own = load(at, factor_places + 3 * f + 2)
                if own == 1 and limbs == 1:
                    value = load(source, place)
                    overflow |= product_overflows(value, weight)
                    store(target, goal, value * weight)
                else:
                    overflow |= multiply(target, goal, limbs, source, place, own, target, keys, limbs, temporary)
            else:
                code = load(source, place)
                value = 0
                if code != NULL_CODE:
                    value = code if kind == FACTOR_CODE else 1
                if limbs == 1:
                    overflow |= product_overflows(value, weight)
                    store(target, goal, value * weight)
                else:
                    store(temporary, TEMPORARY_WORDS - 1, value)
                    overflow |= multiply(
                        target, goal, limbs, temporary, TEMPORARY_WORDS - 1, 1, target, keys, limbs, temporary
                    )
        kept += 1
    if overflow != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | OVERFLOW)
    return kept


@kernel("void(int64,int64,int64,int64)")
def step_upsert(at, scratch, delta, rows):
    """[UPSERT, length, table]: add the delta to a table and its groups."""
    table = load(at, 2)
    keys = load(table, KEYS)
    width = keys + load(table, VALUES) * load(table, LIMBS)
    reserve(table, rows)
    for x in range(load(table, INDEXES)):
        reserve(load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0), rows)
    reserve_scratch(scratch, rows, 0)
    hashes = load(scratch, HASHES)
    slots = load(table, SLOTS)
    mask = load(table, MASK)
    for i in range(rows):
        h = hash_words(delta + i * width * 8, keys)
        store(hashes, i, h)
        prefetch(slots + (h & mask) * 8)
    table_rows = load(table, ROWS)
    table_width = load(table, WIDTH)
    overflow = 0
    for i in range(rows):
        if i + _AHEAD < rows:
            slot = load(slots, load(hashes, i + _AHEAD) & mask)
            if slot != 0:
                prefetch(table_rows + ((slot & 0xFFFFFFFF) - 1) * table_width * 8)
        overflow |= upsert(table, scratch, load(hashes, i), delta + i * width * 8)
    store(scratch, STEPS, load(scratch, STEPS) + rows)
    if overflow != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | OVERFLOW)


@kernel("int64(int64,int64,int64,int64)")
def gather_keys(at, first, row, scratch):
    """Collect the delta words a look-up needs: [n, places...] at `at[first]`; returns the address of the key."""
    temporary = load(scratch, TEMPORARY)
    for j in range(load(at, first)):
        store(temporary, j, load(row, load(at, first + 1 + j)))
    return temporary


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


@kernel("int64(int64,int64,int64,int64)")
def step_project(scratch, delta, width, rows):
    """[PROJECT, length, 0, emit place]: match each delta row with itself, to drop or reorder key words."""
    reserve_scratch(scratch, 0, rows)
    matches = load(scratch, MATCHES)
    for i in range(rows):
        store(matches, 2 * i, delta + i * width * 8)
        store(matches, 2 * i + 1, delta + i * width * 8)
    return rows


@kernel("void(int64,int64,int64,int64,int64)")
def emit(at, scratch, out, found, delta_keys):
    """Make the next delta from matches of a delta row and a table row.

    [out buffer, out keys, out values, out limbs, delta keys, delta limbs, table keys, table limbs,
    key words: (0 delta | 1 table, place)..., values: (delta value, table value or -1 for a factor of 1)...]
    """
    keys = load(at, 1)
    values = load(at, 2)
    limbs = load(at, 3)
    delta_base = load(at, 4)
    delta_limbs = load(at, 5)
    table_base = load(at, 6)
    table_limbs = load(at, 7)
    width = keys + values * limbs
    matches = load(scratch, MATCHES)
    temporary = load(scratch, TEMPORARY)
    overflow = 0
    for j in range(keys):
        side = load(at, 8 + 2 * j)
        place = load(at, 9 + 2 * j)
        for i in range(found):
            store(out, i * width + j, load(load(matches, 2 * i + side), place))
    first = 8 + 2 * keys
    for v in range(values):
        a = load(at, first + 2 * v)
        b = load(at, first + 2 * v + 1)
        if b < 0:
            for i in range(found):
                overflow |= copy_value(
                    out,
                    i * width + keys + v * limbs,
                    limbs,
                    load(matches, 2 * i),
                    delta_base + a * delta_limbs,
                    delta_limbs,
                )
        elif limbs == 1 and delta_limbs == 1 and table_limbs == 1:
            for i in range(found):
                x = load(load(matches, 2 * i), delta_base + a)
                y = load(load(matches, 2 * i + 1), table_base + b)
                overflow |= product_overflows(x, y)
                store(out, i * width + keys + v, x * y)
        else:
            for i in range(found):
                overflow |= multiply(
                    out + i * width * 8,
                    keys + v * limbs,
                    limbs,
                    load(matches, 2 * i),
                    delta_base + a * delta_limbs,
                    delta_limbs,
                    load(matches, 2 * i + 1),
                    table_base + b * table_limbs,
                    table_limbs,
                    temporary,
                )
    if overflow != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | OVERFLOW)


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


@kernel("int64(int64,int64,int64,int64)")
def step_scan(at, scratch, first, rows):
    """[SCAN, length, table]: the delta is the table's own rows first..first+rows-1, those that are live."""
    table = load(at, 2)
    keys = load(table, KEYS)
    limbs = load(table, LIMBS)
    width = keys + load(table, VALUES) * limbs
    out = buffer(scratch, 0, width * rows)
    kept = 0
    for row in range(first, min(first + rows, load(table, USED))):
        address = load(table, ROWS) + row * load(table, WIDTH) * 8
        if sign_of(address, keys, limbs) != 0:
            for i in range(width):
                store(out, kept * width + i, load(address, i))
            kept += 1
    store(scratch, STEPS, load(scratch, STEPS) + rows)
    return kept


@kernel("void(int64,int64,int64)")
def step_sweep(table, scratch, unused):
    """Sweep a table; note if it or one of its groups should shrink."""
    if load(table, DIRTY_USED) == 0:
        return
    shrink = sweep(table)
    for x in range(load(table, INDEXES)):
        shrink |= wants_shrink(load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0))
    if shrink != 0:
        store(scratch, FLAGS, load(scratch, FLAGS) | SHRINK)


@kernel("void(int64,int64,int64,int64,int64,int64)")
def run(program, scratch, data, first, rows, sign):
    """Run a program over `rows` (at most CHUNK) rows of encoded data, from row `first`, weights times `sign`."""
    pc = program
    delta = 0
    width = 0
    n = 0
    leaf_width = 0
    leaf_rows = 0
    steps = load(scratch, STEPS)
    owner = 0
    stack = load(scratch, STACK)
    depth = 0
    while True:
        operation = load(pc, 0)
        after = pc + load(pc, 1) * 8
        if operation == LIFT:
            leaf_rows = lift(pc, scratch, data, first, rows, sign)
            leaf_width = load(pc, 3) + (1 + load(pc, 4)) * load(pc, 5)
        elif operation == SCAN:
            leaf_rows = step_scan(pc, scratch, first, rows)
            table = load(pc, 2)
            leaf_width = load(table, KEYS) + load(table, VALUES) * load(table, LIMBS)
        elif operation == PATH:
            owner = load(pc, 2)
            delta = load(scratch, BUFFERS)
            width = leaf_width
            n = leaf_rows
            steps = load(scratch, STEPS)
        elif operation == UPSERT:
            step_upsert(pc, scratch, delta, n)
        elif operation == PROBE or operation == EXPAND or operation == INTERSECT or operation == PROJECT:
            resumed = False
            if operation == EXPAND:
                if depth > 0 and load(stack, 4 * (depth - 1)) == pc:
                    resumed = True
                    delta = load(stack, 4 * (depth - 1) + 1)
                    width = load(stack, 4 * (depth - 1) + 2)
                    n = load(stack, 4 * (depth - 1) + 3)
                else:
                    store(pc, 6, 0)
                    store(pc, 7, 0)
                found = step_expand(pc, scratch, delta, width, n)
                done = load(pc, 6) < 0
                if not done and not resumed:
                    store(stack, 4 * depth, pc)
                    store(stack, 4 * depth + 1, delta)
                    store(stack, 4 * depth + 2, width)
                    store(stack, 4 * depth + 3, n)
                    depth += 1
                if done and resumed:
                    depth -= 1
            elif operation == PROBE:
                found = step_probe(pc, scratch, delta, width, n)
            elif operation == PROJECT:
                found = step_project(scratch, delta, width, n)
            else:
                found = step_intersect(pc, scratch, delta, width, n)
            emitter = pc + load(pc, 3) * 8
            width = load(emitter, 1) + load(emitter, 2) * load(emitter, 3)
            delta = buffer(scratch, load(emitter, 0), max(1, width * found))
            emit(emitter, scratch, delta, found, 0)
            n = found
        elif operation == BEST:
            n = step_best(pc, scratch, delta, width, n)
            delta = load(scratch, BUFFERS + 3 * load(pc, 3))
            width = load(pc, 7) + 2
        elif operation == PATH_END:
            if depth > 0:
                after = load(stack, 4 * (depth - 1))
            else:
                counter = load(scratch, COUNTERS) + owner * 8
                store(counter, 0, load(counter, 0) + load(scratch, STEPS) - steps)
        elif operation == CHECK:
            table = load(pc, 2)
            if load(table, DIRTY_USED) > 0:
                row = first_negative(table)
                if row >= 0 and load(scratch, FLAGS) & VIOLATION == 0:
                    store(scratch, BAD_TABLE, table)
                    store(scratch, BAD_ROW, row)
                    store(scratch, FLAGS, load(scratch, FLAGS) | VIOLATION)
        elif operation == SWEEP:
            step_sweep(load(pc, 2), scratch, 0)
        elif operation == END:
            return
        pc = after


@kernel("void(int64,int64,int64,int64,int64)")
def run_rows(body, scratch, data, rows, sign):
    """Run a body over any number of rows, in chunks."""
    first = 0
    while first < rows:
        run(body, scratch, data, first, min(CHUNK, rows - first), sign)
        first += CHUNK


@kernel("int64(int64,int64,int64,int64)")
def run_epoch(entries, count, scratch, sign):
    """Run an epoch in one call, so that nothing can come in between; returns the flags.

    An entry is (body, check program, sweep program, data, rows). All bodies run, then the checks, then, if
    nothing failed, the sweeps. With sign -1, which undoes an epoch, there are no checks. RUNS counts the calls.
    """
    store(scratch, FLAGS, 0)
    store(scratch, RUNS, load(scratch, RUNS) + 1)
    for i in range(count):
        run_rows(load(entries, 5 * i), scratch, load(entries, 5 * i + 3), load(entries, 5 * i + 4), sign)
    if sign < 0:
        store(scratch, FLAGS, 0)
    elif load(scratch, FLAGS) & OVERFLOW == 0:
        for i in range(count):
            run(load(entries, 5 * i + 1), scratch, 0, 0, 0, 1)
    if load(scratch, FLAGS) == 0:
        for i in range(count):
            run(load(entries, 5 * i + 2), scratch, 0, 0, 0, 1)
    return load(scratch, FLAGS)


@kernel("int64(int64,int64,int64,int64,int64)")
def run_program(program, scratch, data, rows, sign):
    """Run one program over rows (0: once, for programs that read none); returns the flags."""
    store(scratch, FLAGS, 0)
    if rows > 0:
        run_rows(program, scratch, data, rows, sign)
    return load(scratch, FLAGS)
