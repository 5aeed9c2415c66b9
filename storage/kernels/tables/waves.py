"""Member lists walked side by side: a hop from member to member waits for memory, many at once wait together.

A **wave** is up to WAVE lists, each an entry: the row that is matched with the members, the next member, how
many are still to be listed, and where in the block of results they go. A block row is `depth` words, copied
from what the entry's source address points to, and a member's address.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import LINKS, ROWS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, prefetch, store
from sqlfront.storage.kernels.tables.extreme_search import within
from sqlfront.storage.kernels.tables.row_order import compare_rows

WAVE = 64
ENTRY = 4
SOURCE, MEMBER, OUT, LEFT = range(4)
# Behind the entries, three words for each: its source, and the group it lists, if they are needed longer than the
# entry; then how many hops list_members made, and room for one key.
OWN, TAILS, SIDES = WAVE * ENTRY, WAVE * (ENTRY + 1), WAVE * (ENTRY + 2)
HOPS = WAVE * (ENTRY + 3)
KEY = HOPS + 1
WAVE_WORDS = KEY + 32


@kernel("void(int64,int64,int64,int64)")
def extend(out, source, depth, address):
    """One row of a block: a source row's words, and one more."""
    for j in range(depth):
        store(out, j, load(source, j))
    store(out, depth, address)


@kernel("void(int64,int64,int64,int64,int64,int64)")
def enter_list(wave, number, source, member, left, out):
    """Make entry `number`: list `left` members of a group from `member` on, beginning at row `out` of the block."""
    entry = wave + number * ENTRY * 8
    store(entry, SOURCE, source)
    store(entry, MEMBER, member)
    store(entry, OUT, out)
    store(entry, LEFT, left)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def list_members(table, index, block, depth, active, wave):
    """List the members of the wave's first `active` entries into the block; on along runs of neighbours at once.

    Returns the member after the last one listed of a group that is not at its end (0: all are). Hops that did not
    lead to the next row are added to the wave's HOPS.
    """
    rows = load(table, ROWS)
    width = load(table, WIDTH) * 8
    link_place = 2 * (load(table, LINKS) + 2 * index)
    hops = 0
    rest = 0
    while active > 0:
        kept = 0
        for i in range(active):
            entry = wave + i * ENTRY * 8
            source = load(entry, SOURCE)
            member = load(entry, MEMBER)
            left = load(entry, LEFT)
            out = block + load(entry, OUT) * (depth + 1) * 8
            first = load(source, 0)
            last = load(source, depth - 1)
            while True:
                address = rows + (member - 1) * width
                after = load32(address, link_place)
                store(out, 0, first)
                for j in range(1, depth - 1):
                    store(out, j, load(source, j))
                store(out, depth - 1, last)
                store(out, depth, address)
                out += (depth + 1) * 8
                left -= 1
                member += 1
                if left == 0 or after != member:
                    break
            if left > 0:
                prefetch(rows + (after - 1) * width)
                prefetch(rows + (after - 1) * width + 4 * link_place)
                enter_list(wave, kept, source, after, left, (out - block) // ((depth + 1) * 8))
                hops += 1
                kept += 1
            elif after != 0:
                rest = after
        active = kept
    store(wave, HOPS, load(wave, HOPS) + hops)
    return rest


@kernel("void(int64,int64,int64,int64,int64)")
def bring_paths(table, order, test, searches, count):
    """Bring near what searches along trees will read. A search goes from the root of an ordered group to a row's place
    by an order, or, unless `test` is 0, to the first member that passes the row's test.

    A search is an entry (address of the row's words, row number of a root plus one; 0: no group), which is spent.
    """
    rows = load(table, ROWS)
    size = load(table, WIDTH) * 8
    tail = load(table, TAIL) * 8
    while count > 0:
        kept = 0
        for i in range(count):
            row = load(searches, 2 * i)
            node = load(searches, 2 * i + 1)
            if node == 0:
                continue
            address = rows + (node - 1) * size
            is_before = within(test, row, address) if test != 0 else compare_rows(order, row, address) < 0
            node = load32(address + tail, 0 if is_before else 1)
            if node != 0:
                prefetch(rows + (node - 1) * size)
                prefetch(rows + (node - 1) * size + tail)
            store(searches, 2 * kept, row)
            store(searches, 2 * kept + 1, node)
            kept += 1
        count = kept
