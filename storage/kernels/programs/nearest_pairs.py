"""The pairs of an as-of join that change with rows of either side, and those of all rows: one call for each.

The stores of both sides are as after the change, that of the pairs' own rows is as before it. A changed row of the left
concerns its own pairs. A changed row of the right concerns the rows of the left in a range of its group. The own rows
of these come out with negative weights, their pairs as they are now with positive ones; equal rows are netted. PAIRS_*
of kernels/layout.py say what lies where `node` points.

O(log N + copies joined) expected for each changed row, and for each row of the left that it concerns.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    KEYS,
    LIMBS,
    LINKS,
    LIST_AT,
    LIST_USED,
    PAIRS_BESIDE,
    PAIRS_BETTER,
    PAIRS_CAME,
    PAIRS_LAID,
    PAIRS_LEFT,
    PAIRS_LEFT_KEY,
    PAIRS_LEFT_SOURCE,
    PAIRS_LEFT_WORDS,
    PAIRS_LEFTS,
    PAIRS_LOWER,
    PAIRS_MADE,
    PAIRS_MOST,
    PAIRS_MOVED,
    PAIRS_OUTER,
    PAIRS_OWN,
    PAIRS_OWN_GROUP,
    PAIRS_OWN_INDEX,
    PAIRS_OWN_KEY,
    PAIRS_OWN_LEFT,
    PAIRS_OWNS,
    PAIRS_REACHED,
    PAIRS_RIGHT,
    PAIRS_RIGHT_GROUP,
    PAIRS_RIGHT_INDEX,
    PAIRS_RIGHT_KEY,
    PAIRS_RIGHT_SOURCE,
    PAIRS_RIGHT_WORDS,
    PAIRS_ROW,
    PAIRS_SECOND,
    PAIRS_SHOWN,
    PAIRS_SLOTS,
    PAIRS_STACK,
    PAIRS_UPPER,
    ROWS,
    STEPS,
    USED,
    WIDTH,
)
from sqlfront.storage.kernels.memory import load, load32, memcpy, store
from sqlfront.storage.kernels.numbers.limbs import sign_of
from sqlfront.storage.kernels.programs.net import net_rows
from sqlfront.storage.kernels.tables.extreme_search import within
from sqlfront.storage.kernels.tables.nearest import (
    append_address,
    list_at,
    list_range,
    member_before,
    root_of,
    row_of,
    take_words,
)
from sqlfront.storage.kernels.tables.range_extremes import last_within
from sqlfront.storage.kernels.tables.range_scan import first_passing
from sqlfront.storage.kernels.tables.waves import WAVE, bring_paths


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def change_pairs(node, scratch, left, left_rows, right, right_rows):
    """Make the rows by which the pairs change: their words, then their weights. `left` and `right` are the addresses of
    encoded changes of the sides. Returns how many rows there are."""
    moves = take_changes(node, PAIRS_MOVED, load(node, PAIRS_LEFT_SOURCE), left, left_rows)
    comings = take_changes(node, PAIRS_CAME, load(node, PAIRS_RIGHT_SOURCE), right, right_rows)
    lefts = node + PAIRS_LEFTS * 8
    owns = node + PAIRS_OWNS * 8
    made = node + PAIRS_MADE * 8
    store(lefts, LIST_USED, 0)
    store(owns, LIST_USED, 0)
    store(made, LIST_USED, 0)
    width = (load(load(node, PAIRS_LEFT), KEYS) + 1) * 8
    for i in range(moves):
        if i % WAVE == 0 and moves > 1:
            bring_partners(node, scratch, PAIRS_MOVED, PAIRS_RIGHT, PAIRS_LOWER, i, min(WAVE, moves - i))
        list_moved(node, scratch, load(node, PAIRS_MOVED + LIST_AT) + i * width)
    width = (load(load(node, PAIRS_RIGHT), KEYS) + 1) * 8
    for i in range(comings):
        if i % WAVE == 0 and comings > 1:
            for place in range(2):
                side = PAIRS_OWN if place == 1 else PAIRS_LEFT
                bring_partners(node, scratch, PAIRS_CAME, side, PAIRS_REACHED + place, i, min(WAVE, comings - i))
        list_reached(node, scratch, load(node, PAIRS_CAME + LIST_AT) + i * width)
    if moves + comings > 1:  # Several changes may reach the same row.
        net_list(node, owns, 2)
    if moves + comings > 1 or load(node, PAIRS_BETTER) != 0:
        net_list(node, lefts, 2)
    for i in range(load(owns, LIST_USED) // 2):
        append_old(node, load(load(owns, LIST_AT), 2 * i))
    for i in range(load(lefts, LIST_USED) // 2):
        append_pairs(node, scratch, load(load(lefts, LIST_AT), 2 * i))
    words = load(load(node, PAIRS_OWN), KEYS) + 1
    store(scratch, STEPS, load(scratch, STEPS) + load(made, LIST_USED) // words)
    return net_list(node, made, words)


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def bring_partners(node, scratch, changes, side, test, first, count):
    """`bring_paths` in a side for changed rows of the other one, from the row `first` on."""
    other = PAIRS_LEFT if changes == PAIRS_MOVED else PAIRS_RIGHT
    width = (load(load(node, other), KEYS) + 1) * 8
    table = load(node, side)
    group = load(node, side + 1)
    key = load(node, other + 4)
    if load(node, test) == 0:
        return
    slots = node + PAIRS_SLOTS * 8
    store(slots, LIST_USED, 0)
    searches = take_words(slots, 2 * count)
    steps = load(scratch, STEPS)
    for i in range(count):
        row = load(node, changes + LIST_AT) + (first + i) * width
        store(searches, 2 * i, row)
        store(searches, 2 * i + 1, root_of(group, row_of(group, scratch, row, key)))
    store(scratch, STEPS, steps)  # What is only brought near counts when it is looked up.
    bring_paths(table, 0, load(node, test), searches, count)


@kernel("int64(int64,int64)")
def all_pairs(node, scratch):
    """Make the pairs of all rows of the left, with their counts. Returns how many rows there are."""
    left = load(node, PAIRS_LEFT)
    made = node + PAIRS_MADE * 8
    store(made, LIST_USED, 0)
    for row in range(load(left, USED)):
        address = load(left, ROWS) + row * load(left, WIDTH) * 8
        if sign_of(address, load(left, KEYS), load(left, LIMBS)) != 0:
            append_pairs(node, scratch, address)
    return load(made, LIST_USED) // (load(load(node, PAIRS_OWN), KEYS) + 1)


@kernel("void(int64,int64)")
def copy_made(node, out):
    """Copy the rows that have been made."""
    memcpy(out, load(node, PAIRS_MADE + LIST_AT), load(node, PAIRS_MADE + LIST_USED) * 8)


@kernel("int64(int64,int64,int64,int64,int64)")
def take_changes(node, place, source, data, rows):
    """Take the words of encoded changes that a side has, and their weights, to the list at a place; equal rows are
    netted. Returns how many rows there are."""
    width = load(source, 0)
    count = load(source, 1)
    changes = node + place * 8
    store(changes, LIST_USED, 0)
    for i in range(rows):
        target = take_words(changes, count + 1)
        row = data + i * width * 8
        for j in range(count):
            store(target, j, load(row, load(source, 2 + j)))
        store(target, count, load(row, width - 1))
    return net_list(node, changes, count + 1)


@kernel("int64(int64,int64,int64)")
def net_list(node, words, width):
    """Net a list of rows whose last words are weights; how many rows are left. O(rows)."""
    rows = load(words, LIST_USED) // width
    if rows > 1:
        room = 4
        while room < 2 * rows:
            room *= 2
        slots = node + PAIRS_SLOTS * 8
        store(slots, LIST_USED, 0)
        rows = net_rows(load(words, LIST_AT), rows, width, take_words(slots, room), room - 1, True)
        store(words, LIST_USED, rows * width)
    return rows


@kernel("void(int64,int64,int64)")
def list_moved(node, scratch, row):
    """Note a changed row of the left, and its own rows."""
    left = load(node, PAIRS_LEFT)
    own = load(node, PAIRS_OWN)
    address = row_of(left, scratch, row, load(node, PAIRS_LEFT_WORDS))
    if address != 0:
        append_address(node + PAIRS_LEFTS * 8, address)
    laid = load(node, PAIRS_ROW)
    lay_out(load(node, PAIRS_LAID), row, laid)
    group = load(node, PAIRS_OWN_GROUP)
    group_row = row_of(group, scratch, laid, load(node, PAIRS_OWN_KEY))
    list_at(own, load(node, PAIRS_OWN_INDEX), group, group_row, laid, scratch, node + PAIRS_OWNS * 8)


@kernel("void(int64,int64,int64)")
def list_reached(node, scratch, row):
    """Note the rows of the left, and the own rows, whose partners change with a row of the right. Copies beyond those
    that are joined change none."""
    right = load(node, PAIRS_RIGHT)
    keys = load(right, KEYS)
    most = max(1, load(node, PAIRS_MOST))
    address = row_of(right, scratch, row, load(node, PAIRS_RIGHT_WORDS))
    count = 0 if address == 0 else load(address, keys)
    if min(count, most) == min(count - load(row, keys), most):
        return
    key = load(node, PAIRS_RIGHT_KEY)
    end = 0
    if load(node, PAIRS_MOST) > 0:
        group = load(node, PAIRS_RIGHT_GROUP)
        group_row = row_of(group, scratch, row, key)
        end = member_before(right, load(node, PAIRS_RIGHT_INDEX), group, group_row, row, most, scratch)
    for place in range(2):
        side = PAIRS_OWN if place == 1 else PAIRS_LEFT
        group = load(node, side + 1)
        group_row = row_of(group, scratch, row, key)
        test = load(node, PAIRS_REACHED + place)
        beside = load(node, PAIRS_BESIDE + place)
        found = node + (PAIRS_OWNS if place == 1 else PAIRS_LEFTS) * 8
        first = load(found, LIST_USED)
        list_range(load(node, side), load(node, side + 2), group, group_row, row, test, end, beside, scratch, found)
        if place == 1 and load(node, PAIRS_BETTER) != 0:
            leave_better(node, scratch, row, first)


@kernel("void(int64,int64,int64,int64)")
def leave_better(node, scratch, row, first):
    """Take own rows with a better value than a row of the right out of their list, from its word `first` on, and their
    rows of the left out of those that are looked at for that row."""
    owns = node + PAIRS_OWNS * 8
    listed = load(owns, LIST_AT)
    kept = first
    for i in range(first, load(owns, LIST_USED), 2):
        own = load(listed, i)
        if not within(load(node, PAIRS_BETTER), row, own):
            store(listed, kept, own)
            kept += 2
            continue
        left = row_of(load(node, PAIRS_LEFT), scratch, own, load(node, PAIRS_OWN_LEFT))
        if left != 0:  # It was listed with 1: what nets to 0 is left out.
            target = take_words(node + PAIRS_LEFTS * 8, 2)
            store(target, 0, left)
            store(target, 1, -1)
    store(owns, LIST_USED, kept)


@kernel("void(int64,int64)")
def append_old(node, address):
    """Take an own row out."""
    words = load(load(node, PAIRS_OWN), KEYS)
    target = take_words(node + PAIRS_MADE * 8, words + 1)
    for i in range(words):
        store(target, i, load(address, i))
    store(target, words, -load(address, words))


@kernel("void(int64,int64,int64)")
def append_pairs(node, scratch, address):
    """Make the pairs of a row of the left."""
    right = load(node, PAIRS_RIGHT)
    count = load(address, load(load(node, PAIRS_LEFT), KEYS))
    group = load(node, PAIRS_RIGHT_GROUP)
    root = root_of(group, row_of(group, scratch, address, load(node, PAIRS_LEFT_KEY)))
    lower = load(node, PAIRS_LOWER)
    wanted = load(node, PAIRS_MOST)
    found = 0
    if wanted == 0:
        stack = node + PAIRS_STACK * 8
        second = load(node, PAIRS_SECOND)
        partner = last_within(right, scratch, stack, root, lower, load(node, PAIRS_UPPER), second, address)
        if partner != 0:
            append_pair(node, address, partner, count)
            found = 1
    else:
        after = 2 * (load(right, LINKS) + 2 * load(node, PAIRS_RIGHT_INDEX))
        member = first_passing(right, scratch, root, lower, address)
        while member != 0 and wanted > 0:
            partner = load(right, ROWS) + (member - 1) * load(right, WIDTH) * 8
            taken = min(wanted, load(partner, load(right, KEYS)))
            append_pair(node, address, partner, count * taken)
            wanted -= taken
            found += 1
            member = load32(partner, after)
    if found == 0 and load(node, PAIRS_OUTER) != 0:
        append_pair(node, address, 0, count)
    store(scratch, STEPS, load(scratch, STEPS) + 1 + found)


@kernel("void(int64,int64,int64,int64)")
def append_pair(node, address, partner, weight):
    """Make the own row of a row of the left and its partner (0: none)."""
    words = load(load(node, PAIRS_OWN), KEYS)
    target = take_words(node + PAIRS_MADE * 8, words + 1)
    lay_out(load(node, PAIRS_LAID), address, target)
    shown = load(node, PAIRS_SHOWN)
    for i in range(load(shown, 0)):
        word = load(shown, 3 + 3 * i)
        if partner != 0:
            word = load(partner, load(shown, 2 + 3 * i))
        store(target, load(shown, 1 + 3 * i), word)
    store(target, words, weight)


@kernel("void(int64,int64,int64)")
def lay_out(laid, row, target):
    """Copy the words of a row of the left to their places in an own row."""
    for i in range(load(laid, 0)):
        store(target, load(laid, 1 + 2 * i), load(row, load(laid, 2 + 2 * i)))
