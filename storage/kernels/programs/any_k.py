"""Ranked enumeration: the answers of a ranked tree in order, one after the other, each in logarithmic time.

Any-k with lazy chains (Deep, Hu and Koutris 2022, ch. 7, corrected): the ranked answers below a node and an anchor form
a **chain**, which is made as far as somebody asks. Its next answer is the least of a heap of **cells** and of the best
completion of the next row of the group's list, which is sorted. A cell is a row with, for each child, a place in the
child's chain. What follows a cell are the cells that advance one child, no earlier one than was advanced last: each
combination has one predecessor, so it is met once. A cell is expanded only when the next answer is asked for.

A row without a partner below an optional or absent child has one there all the same: the **missing row**, of NULLs,
which the plan holds. Its children's partners are their missing rows, and no group of a table has them (number MISSING).

A read may have a **start**: it gives the answers of those rows of the root that pass a test of their first rank words,
as do all after the first that passes.

Reads write nothing but their own memory, a header of READ_WORDS words and what it points to; they are valid until the
tree changes.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import INDEX_LIST, LINKS, ORDER, RANKS, ROWS, TAIL, USED, WIDTH
from sqlfront.storage.kernels.memory import calloc, free, load, load32, realloc, store
from sqlfront.storage.kernels.programs.rank import add_key
from sqlfront.storage.kernels.tables.extreme_search import within
from sqlfront.storage.kernels.tables.hash_table import find
from sqlfront.storage.kernels.tables.hashing import hash_places, same_words
from sqlfront.storage.kernels.tables.range_scan import first_passing
from sqlfront.storage.kernels.tables.row_order import compare_rows

# Header words; the first is STEPS. The plan: nodes, the most children of one, whether answers are distinct, how many
# answers of each of the root's groups there are at most (0: all), an offset for each node, and there [table, children,
# whether there are rank words of its own below, the offset of the missing row's key (0: none), behind which that row
# lies, an offset for each child; there: the child's number, keys, places...].
PLAN = 1
CHAINS, CHAINS_USED, CHAINS_CAPACITY = 2, 3, 4
SLOTS, MASK = 5, 6
CELLS, CELLS_USED, CELLS_CAPACITY, CELL_WORDS = 7, 8, 9, 10
KEY_PLACE, KEY_WORDS, KEY_ORDER = 11, 12, 13
CHAIN, NEXT, GROUPS_SEEN = 14, 15, 16  # The root's chain (-1: none), its next answer, the groups begun.
START = 17  # The address (0: none) of that of the words to compare with, and of the test, as RANGE has them.
READ_WORDS = 18

MOST_CHILDREN, DISTINCT, QUOTA, OFFSETS = 1, 2, 3, 4  # Of the plan.
OWN_WORDS, MISSING_ROW, CHILDREN = 2, 3, 4  # Of a node in the plan.
MISSING = -1  # The group of missing rows.

# A chain: whose it is, the next unstarted row of its group's list (plus one), its answers, and its heap.
NODE, GROUP, POSITION, EXPANDED = 0, 1, 2, 3
HEAP, HEAP_USED, HEAP_CAPACITY = 4, 5, 6
ANSWERS, ANSWERS_USED, ANSWERS_CAPACITY = 7, 8, 9
CHAIN_WORDS = 10

# A cell: its row's address, the child advanced last, a place in each child's chain, its key.
ROW, ADVANCED, PLACES = 0, 1, 2


@kernel("int64(int64,int64,int64,int64)")
def with_room(owner, place, words, least):
    """The array of entries of `words` words at `place` of its owner, where its used and its possible number follow,
    with room for one more. O(1) amortised."""
    used = load(owner, place + 1)
    if used == load(owner, place + 2):
        capacity = max(least, 2 * used)
        store(owner, place, realloc(load(owner, place), capacity * words * 8))
        store(owner, place + 2, capacity)
    return load(owner, place)


@kernel("int64(int64,int64)")
def table_of(read, node):
    plan = load(read, PLAN)
    return load(plan + 8 * load(plan, OFFSETS + node), 0)


@kernel("int64(int64,int64)")
def missing_row(read, node):
    """The address of a node's missing row; that of no row for a node without."""
    plan = load(read, PLAN)
    return plan + 8 * (load(plan + 8 * load(plan, OFFSETS + node), MISSING_ROW) + load(read, KEY_WORDS))


@kernel("int64(int64,int64)")
def slot_of(node, group_row):
    h = (group_row * 64 + node) * -7046029254386353131
    return (h >> 33) & 0x7FFFFFFF


@kernel("void(int64)")
def more_slots(read):
    """Twice as many slots for chains."""
    mask = 2 * load(read, MASK) + 1
    slots = calloc(mask + 1, 8)
    for c in range(load(read, CHAINS_USED)):
        chain = load(read, CHAINS) + c * CHAIN_WORDS * 8
        i = slot_of(load(chain, NODE), load(chain, GROUP)) & mask
        while load(slots, i) != 0:
            i = (i + 1) & mask
        store(slots, i, c + 1)
    free(load(read, SLOTS))
    store(read, SLOTS, slots)
    store(read, MASK, mask)


@kernel("int64(int64,int64,int64)")
def chain_of(read, node, group_row):
    """The number of the chain of a node's group, made if it is new."""
    mask = load(read, MASK)
    slots = load(read, SLOTS)
    i = slot_of(node, group_row) & mask
    while load(slots, i) != 0:
        chain = load(read, CHAINS) + (load(slots, i) - 1) * CHAIN_WORDS * 8
        if load(chain, NODE) == node and load(chain, GROUP) == group_row:
            return load(slots, i) - 1
        i = (i + 1) & mask
    used = load(read, CHAINS_USED)
    chain = with_room(read, CHAINS, CHAIN_WORDS, 32) + used * CHAIN_WORDS * 8
    for j in range(CHAIN_WORDS):
        store(chain, j, 0)
    store(chain, NODE, node)
    store(chain, GROUP, group_row)
    if group_row != MISSING:
        group = load(load(table_of(read, node), INDEX_LIST), 0)
        store(chain, POSITION, load32(load(group, ROWS) + group_row * load(group, WIDTH) * 8, 2 * load(group, TAIL)))
    store(slots, i, used + 1)
    store(read, CHAINS_USED, used + 1)
    if 2 * used > mask:
        more_slots(read)
    return used


@kernel("int64(int64,int64,int64)")
def new_cell(read, row, children):
    """The number of a new cell of a row, at the first place of each child's chain."""
    used = load(read, CELLS_USED)
    words = load(read, CELL_WORDS)
    cell = with_room(read, CELLS, words, 64) + used * words * 8
    store(cell, ROW, row)
    store(cell, ADVANCED, 0)
    for q in range(children):
        store(cell, PLACES + q, 0)
    store(read, CELLS_USED, used + 1)
    return used


@kernel("int64(int64,int64)")
def key_of(read, cell):
    return load(read, CELLS) + (cell * load(read, CELL_WORDS) + load(read, KEY_PLACE)) * 8


@kernel("int64(int64,int64)")
def missing_cell(read, node):
    """The number of a new cell of a node's missing row."""
    row = missing_row(read, node)
    plan = load(read, PLAN)
    cell = new_cell(read, row, load(plan + 8 * load(plan, OFFSETS + node), 1))
    words = load(read, KEY_WORDS)
    target = key_of(read, cell)
    for j in range(words):
        store(target, j, load(row - 8 * words, j))
    return cell


@kernel("boolean(int64,int64,int64)")
def is_less(read, one, other):
    store(read, 0, load(read, 0) + 1)
    return compare_rows(load(read, KEY_ORDER), key_of(read, one), key_of(read, other)) < 0


@kernel("void(int64,int64,int64)")
def push(read, chain, cell):
    """Enter a cell in a chain's heap. O(log heap)."""
    here = load(read, CHAINS) + chain * CHAIN_WORDS * 8
    i = load(here, HEAP_USED)
    heap = with_room(here, HEAP, 1, 4)
    store(here, HEAP_USED, i + 1)
    while i > 0 and is_less(read, cell, load(heap, (i - 1) >> 1)):
        store(heap, i, load(heap, (i - 1) >> 1))
        i = (i - 1) >> 1
    store(heap, i, cell)


@kernel("int64(int64,int64)")
def pop(read, chain):
    """Take the least cell out of a chain's heap, which is not empty. O(log heap)."""
    here = load(read, CHAINS) + chain * CHAIN_WORDS * 8
    heap = load(here, HEAP)
    least = load(heap, 0)
    size = load(here, HEAP_USED) - 1
    store(here, HEAP_USED, size)
    last = load(heap, size)
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and is_less(read, load(heap, child + 1), load(heap, child)):
            child += 1
        if not is_less(read, load(heap, child), last):
            break
        store(heap, i, load(heap, child))
        i = child
    if size > 0:
        store(heap, i, last)
    return least


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def push_advanced(read, chain, last, child, before, after, children):
    """Enter in the heap the cell after `last` in one child, whose answer goes from `before` to `after`."""
    made = new_cell(read, 0, children)
    words = load(read, CELL_WORDS)
    source = load(read, CELLS) + last * words * 8
    cell = load(read, CELLS) + made * words * 8
    for j in range(words):
        store(cell, j, load(source, j))
    store(cell, ADVANCED, child)
    store(cell, PLACES + child, load(source, PLACES + child) + 1)
    order, count = load(read, KEY_ORDER), load(read, KEY_WORDS)
    add_key(order, count, key_of(read, made), key_of(read, before), -1)
    add_key(order, count, key_of(read, made), key_of(read, after), 1)
    push(read, chain, made)


@kernel("int64(int64,int64,int64)")
def take_least(read, chain, children):
    """Take the least of a chain's heap and of the next row of its group; the cell, or -1 if there is none."""
    here = load(read, CHAINS) + chain * CHAIN_WORDS * 8
    position = load(here, POSITION)
    waiting = load(here, HEAP_USED)
    if position == 0 and waiting == 0:
        return -1
    store(read, 0, load(read, 0) + 1)
    table = table_of(read, load(here, NODE))
    row = load(table, ROWS) + (position - 1) * load(table, WIDTH) * 8
    key = row + 8 * (load(table, TAIL) + 1)
    from_list = position != 0
    if from_list and waiting > 0:
        from_list = compare_rows(load(read, KEY_ORDER), key, key_of(read, load(load(here, HEAP), 0))) <= 0
    if not from_list:
        return pop(read, chain)
    cell = new_cell(read, row, children)
    target = key_of(read, cell)
    for j in range(load(read, KEY_WORDS)):
        store(target, j, load(key, j))
    store(here, POSITION, load32(row, 2 * load(table, LINKS)))
    return cell


@kernel("void(int64,int64,int64)")
def append(read, chain, cell):
    """Make a cell the chain's next answer."""
    here = load(read, CHAINS) + chain * CHAIN_WORDS * 8
    used = load(here, ANSWERS_USED)
    store(with_room(here, ANSWERS, 1, 4), used, cell)
    store(here, ANSWERS_USED, used + 1)


@kernel("int64(int64,int64,int64,int64)")
def child_chain(read, node, row, child):
    """The chain of a row's partners below one of its children: only rows that have some, or need none, are in lists."""
    plan = load(read, PLAN)
    block = plan + 8 * load(plan, OFFSETS + node)
    entry = plan + 8 * load(block, CHILDREN + child)
    number = load(entry, 0)
    found = MISSING
    if row != missing_row(read, node):
        group = load(load(table_of(read, number), INDEX_LIST), 0)
        h = hash_places(row, entry, 2, load(entry, 1))
        found = find(group, read, h, row, entry, 2)
    chain = chain_of(read, number, found)
    if found == MISSING and load(load(read, CHAINS) + chain * CHAIN_WORDS * 8, ANSWERS_USED) == 0:
        append(read, chain, missing_cell(read, number))
    return chain


@kernel("int64(int64,int64,int64)")
def reach(read, chain, rank):
    """The cell of a chain's answer number `rank`, made with those before it; -1 if there are not so many.

    Where answers are distinct, cells of equal keys are one answer, as all output columns are in them.
    """
    plan = load(read, PLAN)
    node = load(load(read, CHAINS) + chain * CHAIN_WORDS * 8, NODE)
    block = plan + 8 * load(plan, OFFSETS + node)
    children = load(block, 1)
    distinct = load(plan, DISTINCT)
    words = load(read, KEY_WORDS)
    while True:
        here = load(read, CHAINS) + chain * CHAIN_WORDS * 8
        answers = load(here, ANSWERS_USED)
        if rank < answers:
            return load(load(here, ANSWERS), rank)
        last = -1
        if answers > 0:
            if distinct != 0 and load(block, OWN_WORDS) == 0:
                return -1
            last = load(load(here, ANSWERS), answers - 1)
        expanded = last
        if load(here, EXPANDED) == answers:
            expanded = -1
        store(here, EXPANDED, answers)
        while True:
            if expanded >= 0:
                for q in range(load(load(read, CELLS) + expanded * load(read, CELL_WORDS) * 8, ADVANCED), children):
                    cell = load(read, CELLS) + expanded * load(read, CELL_WORDS) * 8
                    place = load(cell, PLACES + q)
                    below = child_chain(read, node, load(cell, ROW), q)
                    after = reach(read, below, place + 1)
                    if after >= 0:
                        push_advanced(read, chain, expanded, q, reach(read, below, place), after, children)
            expanded = take_least(read, chain, children)
            if expanded < 0:
                return -1
            if distinct == 0 or last < 0 or not same_words(key_of(read, expanded), key_of(read, last), words):
                append(read, chain, expanded)
                break


@kernel("void(int64,int64,int64)")
def spread(read, cell, out):
    """Write the address of an answer's row of each node. Nodes are numbered parents first; `out` holds cells before."""
    plan = load(read, PLAN)
    store(out, 0, cell)
    for node in range(load(plan, 0)):
        block = plan + 8 * load(plan, OFFSETS + node)
        own = load(out, node)
        row = load(load(read, CELLS) + own * load(read, CELL_WORDS) * 8, ROW)
        for q in range(load(block, 1)):
            place = load(load(read, CELLS) + own * load(read, CELL_WORDS) * 8, PLACES + q)
            child = load(plan + 8 * load(block, CHILDREN + q), 0)
            store(out, child, reach(read, child_chain(read, node, row, q), place))
        store(out, node, row)


@kernel("int64(int64,int64)")
def open_read(plan, start):
    """A new read of the tree that a plan describes: the answers of its root's groups, one group after the other, from
    a start on (0: all)."""
    read = calloc(READ_WORDS, 8)
    store(read, PLAN, plan)
    store(read, START, start)
    root = load(plan + 8 * load(plan, OFFSETS), 0)
    store(read, KEY_PLACE, PLACES + load(plan, MOST_CHILDREN))
    store(read, KEY_WORDS, load(root, RANKS))
    store(read, KEY_ORDER, load(root, ORDER))
    store(read, CELL_WORDS, load(read, KEY_PLACE) + load(read, KEY_WORDS))
    store(read, SLOTS, calloc(64, 8))
    store(read, MASK, 63)
    store(read, CHAIN, -1)
    return read


@kernel("void(int64,int64)")
def seek(read, tail):
    """Let the root's chain begin at the first row of its group, whose tail is given, that passes the start's test.
    O(log group) expected."""
    start = load(read, START)
    if start != 0:
        first = first_passing(table_of(read, 0), read, load32(tail, 2), start + 8, load(start, 0))
        store(load(read, CHAINS) + load(read, CHAIN) * CHAIN_WORDS * 8, POSITION, first)


@kernel("boolean(int64)")
def next_group(read):
    """Begin with the root's next group; whether there is one."""
    plan = load(read, PLAN)
    group = load(load(load(plan + 8 * load(plan, OFFSETS), 0), INDEX_LIST), 0)
    for row in range(load(read, GROUPS_SEEN), load(group, USED)):
        tail = load(group, ROWS) + (row * load(group, WIDTH) + load(group, TAIL)) * 8
        if load32(tail, 0) != 0:
            store(read, GROUPS_SEEN, row + 1)
            store(read, CHAIN, chain_of(read, 0, row))
            store(read, NEXT, 0)
            seek(read, tail)
            return True
    store(read, CHAIN, -1)
    return False


@kernel("int64(int64)")
def next_answer(read):
    """The cell of the next answer; -1 if there is none."""
    quota = load(load(read, PLAN), QUOTA)
    while True:
        place = load(read, NEXT)
        if load(read, CHAIN) >= 0 and (quota == 0 or place < quota):
            cell = reach(read, load(read, CHAIN), place)
            if cell >= 0:
                store(read, NEXT, place + 1)
                return cell
        if not next_group(read):
            return -1


@kernel("void(int64)")
def close_read(read):
    """Give a read's memory back."""
    for c in range(load(read, CHAINS_USED)):
        chain = load(read, CHAINS) + c * CHAIN_WORDS * 8
        free(load(chain, HEAP))
        free(load(chain, ANSWERS))
    free(load(read, CHAINS))
    free(load(read, SLOTS))
    free(load(read, CELLS))
    free(read)


@kernel("int64(int64,int64,int64,int64)")
def next_answers(read, count, out, keys):
    """Write the rows of the next `count` answers, an address for each node and answer, and their keys; how many there
    are."""
    nodes = load(load(read, PLAN), 0)
    words = load(read, KEY_WORDS)
    for i in range(count):
        cell = next_answer(read)
        if cell < 0:
            return i
        key = key_of(read, cell)
        for j in range(words):
            store(keys, i * words + j, load(key, j))
        spread(read, cell, out + i * nodes * 8)
    return count


@kernel("int64(int64,int64,int64,int64)")
def passed_over(start, keys, words, rows):
    """How many answers' keys, which come in order, are before the first that passes a start's test."""
    for i in range(rows):
        if within(start + 8, load(start, 0), keys + i * words * 8):
            return i
    return rows


@kernel("void(int64,int64,int64,int64,int64,int64)")
def gather_answers(addresses, nodes, rows, places, count, out):
    """Column by column, the words at the `count` places (node, word)... of the answers' rows."""
    for c in range(count):
        node = load(places, 2 * c)
        place = load(places, 2 * c + 1)
        for i in range(rows):
            store(out, c * rows + i, load(load(addresses, i * nodes + node), place))
