"""Ordered groups: a group's list kept sorted, with a balanced search tree over its members to find the place.

The tree is a treap (Seidel and Aragon 1996): a search tree by the order, a heap by a hash of the row's key, so its
depth is O(log group) in expectation whatever the order of insertions and deletions. It lives inside the rows: the
parent beside the group's row in the second link word of the index, left and right in the word at the table's TAIL,
the root in the group's tail; each is a row number plus one, 0 for none. Neighbours in the list are neighbours in the
order, so the least member is the list's head. Where rows have subtree sums (subtree_sums) or subtree summaries
(subtree_summaries), insertions, removals and rotations keep them.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    INDEX_ENTRY,
    INDEX_LIST,
    KEYS,
    LINKS,
    ORDER,
    ORDER_INDEX,
    PLACED,
    RANKS,
    ROWS,
    STEPS,
    SUMMARIES,
    SUMS,
    TAIL,
    WIDTH,
)
from sqlfront.storage.kernels.memory import free, load, load32, memcpy, realloc, store, store32
from sqlfront.storage.kernels.tables.row_order import compare_rows
from sqlfront.storage.kernels.tables.subtree_summaries import (
    enter_summaries,
    find_extremes,
    find_extremes_above,
    leave_groups,
    renumber_summaries,
    rotate_groups,
)
from sqlfront.storage.kernels.tables.subtree_sums import add_own, rotate_sums

_MULTIPLIER = -4658895280553007687


@kernel("int64(int64)")
def compared_at(table):
    """Where in a row the words lie that its order list counts from: at its start, or behind TAIL if it is ranked."""
    return 8 * (load(table, TAIL) + 1) if load(table, RANKS) > 0 else 0


@kernel("int64(int64,int64)")
def priority(address, keys):
    """The heap's key of a row: a hash of its key words, another one than places it in the slots."""
    h = keys
    for i in range(keys):
        # A product mixes bits upwards only; the shift brings the upper ones down.
        h = (h ^ load(address, i)) * _MULTIPLIER
        h ^= (h >> 29) & 0x7FFFFFFFF
    return h * _MULTIPLIER


@kernel("void(int64,int64,int64,int64,int64,int64)")
def splice(table, place, row, before, after, group_tail):
    """Put a row between two neighbours of its group's list (0: none)."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    head = load32(group_tail, 0)
    last = before
    if before == 0:  # The head's word for the member before it names the last one.
        last = load32(rows + (head - 1) * width, place + 1) if head != 0 else row + 1
        store32(group_tail, 0, row + 1)
    else:
        store32(rows + (before - 1) * width, place, row + 1)
    store32(rows + row * width, place, after)
    store32(rows + row * width, place + 1, last)
    if after != 0:
        store32(rows + (after - 1) * width, place + 1, row + 1)
    elif before != 0:  # It is the last one now.
        store32(rows + (head - 1) * width, place + 1, row + 1)


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def hang(table, node, above, former, place, sides, group_tail):
    """Make `node` (0: none) the child of `above` (0: the root) that `former` was."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    if above == 0:
        store32(group_tail, 2, node)
    else:
        address = rows + (above - 1) * width
        store32(address, sides + (0 if load32(address, sides) == former else 1), node)
    if node != 0:
        store32(rows + (node - 1) * width, place + 3, above)


@kernel("int64(int64,int64,int64,int64,int64)")
def rise(table, row, place, sides, group_tail):
    """Rotate a new leaf up to where no ancestor has less priority; returns the rotations, two or fewer expected."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    address = rows + row * width
    own = priority(address, keys)
    summed = load(table, SUMS) > 0
    steps = 0
    while True:
        parent = load32(address, place + 3)
        if parent == 0:
            break
        above = rows + (parent - 1) * width
        if priority(above, keys) >= own:
            break
        side = 0 if load32(above, sides) == row + 1 else 1
        # A rotation: the row's inner subtree goes to the parent, the parent below the row.
        inner = load32(address, sides + 1 - side)
        store32(above, sides + side, inner)
        if inner != 0:
            store32(rows + (inner - 1) * width, place + 3, parent)
        store32(address, sides + 1 - side, parent)
        hang(table, row + 1, load32(above, place + 3), parent, place, sides, group_tail)
        store32(above, place + 3, row + 1)
        if summed:
            rotate_sums(table, above, address, 0 if inner == 0 else rows + (inner - 1) * width)
        if load(table, SUMMARIES) != 0:
            rotate_groups(table, above, address, inner)
            find_extremes(table, above)
            find_extremes(table, address)
        steps += 1
    return steps


@kernel("void(int64,int64,int64,int64)")
def insert_ordered(table, scratch, row, group_tail):
    """Enter a row in the list and the tree of its group, whose tail lies at `group_tail`. O(log group) expected."""
    order = load(table, ORDER)
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    place = 2 * (load(table, LINKS) + 2 * load(order, ORDER_INDEX))
    sides = 2 * load(table, TAIL)
    address = rows + row * width
    compared = compared_at(table)
    summed = load(table, SUMS) > 0
    if summed:
        add_own(table, address + 4 * sides + 8, address, 0)
    node = load32(group_tail, 2)
    parent = 0
    side = 0
    steps = 1
    while node != 0:
        # All rows on the way have one row more below them.
        parent = node
        above = rows + (node - 1) * width
        side = 0 if compare_rows(order, address + compared, above + compared) < 0 else 1
        if summed:
            add_own(table, above + 4 * sides + 8, address, 0)
        node = load32(above, sides + side)
        steps += 1
    store32(address, place + 3, parent)
    store32(address, sides, 0)
    store32(address, sides + 1, 0)
    before = 0
    after = 0
    if parent == 0:
        store32(group_tail, 2, row + 1)
    else:
        above = rows + (parent - 1) * width
        store32(above, sides + side, row + 1)
        if side == 0:  # A left leaf stands before its parent; before the head there is none.
            before = load32(above, place + 1) if parent != load32(group_tail, 0) else 0
            after = parent
        else:
            before = parent
            after = load32(above, place)
    splice(table, place, row, before, after, group_tail)
    if load(table, SUMMARIES) != 0:
        steps += enter_summaries(table, row, before, after, place + 3)
    steps += rise(table, row, place, sides, group_tail)
    store(scratch, STEPS, load(scratch, STEPS) + steps)


@kernel("int64(int64,int64,int64)")
def remove_ordered(table, row, group_tail):
    """Take a row out of its group's tree (not its list): its two subtrees become one. Returns the steps.

    O(log group), two expected, more where the rows above it find their extremes anew. It does not compare the row's
    values: their strings may be gone. Those of its sums are zero, as its count is.
    """
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    keys = load(table, KEYS)
    place = 2 * (load(table, LINKS) + 2 * load(load(table, ORDER), ORDER_INDEX))
    sides = 2 * load(table, TAIL)
    address = rows + row * width
    steps = 1
    if load(table, SUMMARIES) != 0:
        steps += leave_groups(table, row, load32(address, place), place + 3)
    while True:
        left = load32(address, sides)
        right = load32(address, sides + 1)
        if left == 0 or right == 0:
            break
        # The child of more priority rises, until one side of the row is empty.
        left_first = priority(rows + (left - 1) * width, keys) > priority(rows + (right - 1) * width, keys)
        side = 0 if left_first else 1
        child = left if left_first else right
        lifted = rows + (child - 1) * width
        inner = load32(lifted, sides + 1 - side)
        hang(table, child, load32(address, place + 3), row + 1, place, sides, group_tail)
        store32(lifted, sides + 1 - side, row + 1)
        store32(address, place + 3, child)
        store32(address, sides + side, inner)
        if inner != 0:
            store32(rows + (inner - 1) * width, place + 3, row + 1)
        if load(table, SUMS) > 0:
            rotate_sums(table, address, lifted, 0 if inner == 0 else rows + (inner - 1) * width)
        if load(table, SUMMARIES) != 0:
            rotate_groups(table, address, lifted, inner)
        steps += 1
    rest = left if left != 0 else right
    above = load32(address, place + 3)
    hang(table, rest, above, row + 1, place, sides, group_tail)
    if load(table, SUMMARIES) != 0:
        steps += find_extremes_above(table, above, place + 3)
    return steps


@kernel("boolean(int64,int64,int64)")
def is_listed(table, x, address):
    """Whether a live row is in the list of its group of index x."""
    ranks = load(table, RANKS)
    return x > 0 or ranks == 0 or load(address, load(table, TAIL) + 1 + ranks) & PLACED != 0


@kernel("void(int64,int64,int64,int64)")
def renumber_tree(table, x, renumbered, moved):
    """After rows have moved from old to new numbers: rewrite the tree's links and the groups' roots."""
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    place = 2 * (load(table, LINKS) + 2 * x)
    sides = 2 * load(table, TAIL)
    group = load(load(table, INDEX_LIST) + x * (INDEX_ENTRY + 32) * 8, 0)
    for row in range(moved):
        address = rows + row * width
        if not is_listed(table, x, address):
            continue
        for word in (place + 3, sides, sides + 1):
            node = load32(address, word)
            if node != 0:
                store32(address, word, load32(renumbered, node - 1) + 1)
        if load(table, SUMMARIES) != 0:
            renumber_summaries(table, address, renumbered)
        if load32(address, place + 3) == 0:
            group_row = load(group, ROWS) + load32(address, place + 2) * load(group, WIDTH) * 8
            store32(group_row, 2 * load(group, TAIL) + 2, row + 1)


@kernel("void(int64,int64,int64)")
def sort_addresses(order, addresses, count):
    """Sort the addresses of words by an order list; equal ones stay as they come. O(count log count): merge sort."""
    source = realloc(0, max(1, count) * 8)
    run = 1
    while run < count:
        memcpy(source, addresses, count * 8)
        for start in range(0, count, 2 * run):
            middle = min(start + run, count)
            end = min(start + 2 * run, count)
            left = start
            right = middle
            for i in range(start, end):
                from_left = left < middle
                if from_left and right < end:
                    from_left = compare_rows(order, load(source, left), load(source, right)) <= 0
                if from_left:
                    store(addresses, i, load(source, left))
                    left += 1
                else:
                    store(addresses, i, load(source, right))
                    right += 1
        run *= 2
    free(source)
