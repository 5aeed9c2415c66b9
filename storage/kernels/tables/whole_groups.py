"""Whole ordered groups as arrays: their rows word by word, running sums over them, and where each row stands.

A *span* is a run of neighbouring rows of an array: a group's rows, or a group of peers. The starts of all spans, and
the number of rows behind the last, tell each row's span.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import KEYS, LINKS, ROWS, STEPS, TAIL, WIDTH
from sqlfront.storage.kernels.memory import load, load32, prefetch, store
from sqlfront.storage.kernels.numbers.limbs import add_wide

WAVE = 16
"""So many groups are read side by side: a hop from row to row waits for memory, many at once wait together."""
WAVE_WORDS = 3 * WAVE
_LARGEST = 2**62


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64,int64)")
def words_of_groups(table, group, index, groups, count, words, wave, scratch, outs):
    """The first `words` words of all rows of the groups, group after group, each in the order of its list of index
    `index`: word j of each row from the address outs[j] on. Returns 0 if each row is there once."""
    base = load(table, ROWS)
    width = load(table, WIDTH) * 8
    link = 2 * (load(table, LINKS) + 2 * index)
    keys = load(table, KEYS)
    tail = 2 * load(group, TAIL)
    copies = 0
    following = 0
    behind = 0
    active = 0
    while True:
        while active < WAVE and following < count:
            owner = load(groups, following)
            following += 1
            size = load32(owner, tail + 1) if owner != 0 else 0
            if size > 0:
                entry = wave + 24 * active
                store(entry, 0, base + (load32(owner, tail) - 1) * width)
                store(entry, 1, behind)
                behind += size
                store(entry, 2, behind)
                prefetch(load(entry, 0))
                active += 1
        if active == 0:
            break
        kept = 0
        for i in range(active):
            address = load(wave + 24 * i, 0)
            place = load(wave + 24 * i, 1)
            end = load(wave + 24 * i, 2)
            while True:
                for j in range(words):
                    store(load(outs, j), place, load(address, j))
                copies |= load(address, keys) ^ 1
                after = base + (load32(address, link) - 1) * width
                place += 1
                address += width
                if place == end or after != address:
                    break
            if place < end:
                prefetch(after)
                prefetch(after + 64)
                store(wave + 24 * kept, 0, after)
                store(wave + 24 * kept, 1, place)
                store(wave + 24 * kept, 2, end)
                kept += 1
        active = kept
    store(scratch, STEPS, load(scratch, STEPS) + behind)
    return copies


@kernel("int64(int64,int64,int64)")
def running_sums(numbers, rows, out):
    """The sums of the numbers before each place, `rows` + 1 of them. Returns 1, with nothing more to be used, if one is
    so large that the difference of two may be beyond a word."""
    total = 0
    store(out, 0, 0)
    for i in range(rows):
        total += load(numbers, i)
        if total < -_LARGEST or total >= _LARGEST:
            return 1
        store(out, i + 1, total)
    return 0


@kernel("void(int64,int64,int64,int64,int64,int64)")
def sums_between(running, limbs, firsts, lasts, rows, out):
    """What running sums of `limbs` words grow by from place firsts[i] to lasts[i], modulo their width."""
    if limbs == 1:
        for i in range(rows):
            store(out, i, load(running, load(lasts, i)) - load(running, load(firsts, i)))
        return
    for i in range(rows):
        last = load(lasts, i) * limbs
        for j in range(limbs):
            store(out, i * limbs + j, load(running, last + j))
        add_wide(out, i * limbs, limbs, running, load(firsts, i) * limbs, limbs, 1)


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def words_within(words, places, firsts, ends, rows, absent, out):
    """The word at each place, `absent` where that is not from firsts[i] on and before ends[i]."""
    for i in range(rows):
        place = load(places, i)
        store(out, i, load(words, place) if load(firsts, i) <= place < load(ends, i) else absent)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def new_spans(words, count, rows, starts, spans, out):
    """The starts of the spans of rows that have the same words, which are from `count` addresses on, within other spans
    whose starts are given. Returns how many there are; the number of rows follows the last."""
    made = 0
    span = 0
    for i in range(rows):
        fresh = False
        while span < spans and load(starts, span) == i:
            fresh = True
            span += 1
        if not fresh:
            for j in range(count):
                if load(load(words, j), i) != load(load(words, j), i - 1):
                    fresh = True
                    break
        if fresh:
            store(out, made, i)
            made += 1
    store(out, made, rows)
    return made


@kernel("void(int64,int64,int64,int64,int64)")
def spans_around(starts, span, first, rows, out):
    """Where the spans of `rows` rows from place `first` on start and end, all starts first. `span` is the number of the
    first row's."""
    for i in range(rows):
        while load(starts, span + 1) <= first + i:
            span += 1
        store(out, i, load(starts, span))
        store(out, rows + i, load(starts, span + 1))


@kernel("void(int64,int64,int64,int64,int64)")
def moved_within(place, firsts, ends, rows, out):
    """The places from `place` on, one a row; firsts[i] or ends[i] where that is nearer."""
    for i in range(rows):
        store(out, i, min(max(place + i, load(firsts, i)), load(ends, i)))
