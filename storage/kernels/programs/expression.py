"""The interpreter of compiled expressions: from the encoded columns of rows to words computed from them.

A program is a list of operations of WORDS words, [operation, out, a, b, x, y]. out, a and b are registers, and a
register holds one word per row of a block: a number, a truth value (0 or 1), a code, or NULL_CODE. An operation that
cannot give the very value DuckDB would give refuses, and with it all the rows: then DuckDB computes them, or fails.
"""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.memory import (
    add_overflows,
    load,
    product_overflows,
    shift_right,
    store,
)
from sqlfront.storage.kernels.numbers.float_sums import bit_length, exponent_of, significand_of
from sqlfront.storage.kernels.numbers.limbs import multiply, negate
from sqlfront.storage.kernels.programs.arrow_words import load8
from sqlfront.storage.kernels.programs.reals import REAL_ADD, TO_REAL, calculate_real, to_real
from sqlfront.storage.kernels.tables.byte_strings import ENTRIES, HEAP, equal_bytes

WORDS = 6
BLOCK = 64

# out = word a of the row, refused if it is x; out = x; word b of the row = a, refused if it is x; as before, NULL as 0
# and with the sign in the x - 1 words behind it.
LOAD, CONSTANT, STORE, STORE_LIMBS = range(4)
# NULL if a or b is.
EQUAL, UNEQUAL, LESS, LESS_EQUAL = range(4, 8)
# Never NULL.
DISTINCT, NOT_DISTINCT = 8, 9
# Of three values; SELECT is b where a is 1, else register x; COALESCE is a where that is not NULL, else b.
AND, OR, NOT, SELECT, COALESCE = range(10, 15)
# NULL if a or b is; refused unless x <= out <= y.
ADD, SUBTRACT, MULTIPLY = range(15, 18)
# a divided by x, rounded down, refused where |a| is y; the year, month and day of the day number a.
FLOOR, YEAR, MONTH, DAY = range(18, 22)
# Whether the string with code a, in the dictionary whose state is y, is like the pattern at x: [n, then address and
# length of what it begins with, of what it ends with, and of n strings it has between these, one after the other].
LIKE = 22
# The bits that a and b have both; NULL if a or b is.
BITS = 23
# Word a of the row and the b - 1 behind it = the product of numbers, each in the unit 2^-x; 0 if one is NULL. Refused
# if it does not fit. y has a field for each number: a register, counted from 1, and whether it holds a whole number or
# the code of a DOUBLE. `out` is the address of room for ROOM * b words.
STORE_PRODUCT = 24
FIELD, WHOLE, MOST_FACTORS, ROOM = 16, 1 << 15, 4, 6
# out = the number in words a and a + 1 of the row, refused if it is wider than a word; words b and b + 1 = a.
LOAD_WIDE, STORE_WIDE = 25, 26
# Operations on DOUBLEs have the numbers from 27 to 31 (reals.py).
# out = the word at code a + 1, at 0 for NULL, of a memo (codecs/memo.py) whose header is at x, refused if it is y.
# The header has the addresses of the memo's pages and of its directory, which has a page for each PAGE words, and the
# length of the directory. Page 0 has y alone.
LOOK_UP = 32
PAGE_BITS = 9
PAGE = 1 << PAGE_BITS

_INFINITE_DAY = 2147483647


@kernel("int64(int64,int64)")
def civil(day, kind):
    """The YEAR, MONTH or DAY (`kind`) of a day counted from 1970, in the Gregorian calendar."""
    shifted = day + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * of_year + 2) // 153
    if kind == DAY:
        return of_year - (153 * month + 2) // 5 + 1
    if kind == MONTH:
        return month + 3 if month < 10 else month - 9
    return year_of_era + era * 400 + (1 if month >= 10 else 0)


@kernel("int64(int64,int64,int64)")
def date(at, registers, count):
    """FLOOR, YEAR, MONTH and DAY; these by Howard Hinnant's civil_from_days."""
    kind = load(at, 0)
    out = registers + load(at, 1) * count * 8
    source = registers + load(at, 2) * count * 8
    infinite = load(at, 5) if kind == FLOOR else _INFINITE_DAY
    refused = 0
    for i in range(count):
        a = load(source, i)
        value = NULL_CODE
        if a != NULL_CODE:
            refused |= 1 if a == infinite or a == -infinite else 0
            value = a // load(at, 4) if kind == FLOOR else civil(a, kind)
        store(out, i, value)
    return refused


@kernel("int64(int64,int64,int64,int64)")
def find_bytes(text, length, part, part_length):
    """Where `part` first occurs in `text`, or -1."""
    if part_length == 0:
        return 0
    first = load8(part, 0)
    for i in range(length - part_length + 1):
        if load8(text, i) == first and equal_bytes(text + i, part, part_length):
            return i
    return -1


@kernel("boolean(int64,int64,int64)")
def is_like(text, length, pattern):
    """Whether a string is like a pattern."""
    begin = load(pattern, 2)
    end = load(pattern, 4)
    if length < begin + end or not equal_bytes(text, load(pattern, 1), begin):
        return False
    if not equal_bytes(text + length - end, load(pattern, 3), end):
        return False
    text += begin
    length -= begin + end
    for n in range(load(pattern, 0)):
        size = load(pattern, 6 + 2 * n)
        place = find_bytes(text, length, load(pattern, 5 + 2 * n), size)
        if place < 0:
            return False
        text += place + size
        length -= place + size
    return True


@kernel("void(int64,int64,int64)")
def like(at, registers, count):
    """LIKE."""
    out = registers + load(at, 1) * count * 8
    source = registers + load(at, 2) * count * 8
    entries = load(load(at, 5), ENTRIES)
    heap = load(load(at, 5), HEAP)
    for i in range(count):
        code = load(source, i)
        value = NULL_CODE
        if code != NULL_CODE:
            value = 1 if is_like(heap + load(entries, 2 * code), load(entries, 2 * code + 1), load(at, 4)) else 0
        store(out, i, value)


@kernel("int64(int64,int64,int64)")
def look_up(at, registers, count):
    """LOOK_UP."""
    out = registers + load(at, 1) * count * 8
    source = registers + load(at, 2) * count * 8
    header = load(at, 4)
    absent = load(at, 5)
    pages = load(header, 0)
    directory = load(header, 1)
    length = load(header, 2)
    refused = 0
    for i in range(count):
        code = load(source, i)
        place = 0 if code == NULL_CODE else code + 1
        entry = place >> PAGE_BITS
        page = load(directory, entry) if entry < length else 0
        value = load(pages, (page << PAGE_BITS) + (place & (PAGE - 1)))
        refused |= 1 if value == absent else 0
        store(out, i, value)
    return refused


@kernel("int64(int64,int64,int64,int64,int64)")
def write_number(word, whole, shift, out, limbs):
    """A whole number, or the DOUBLE that has a code, times 2^shift; 1 if that is no whole number of so many limbs."""
    for i in range(limbs):
        store(out, i, 0)
    if word == 0:
        return 0
    negative = word < 0
    if whole:
        significand, position = -word if negative else word, shift
    else:
        bits = word ^ ((word >> 63) & 0x7FFFFFFFFFFFFFFF)
        significand, position = significand_of(bits), exponent_of(bits) + shift
        if (bits >> 52) & 0x7FF == 0x7FF:
            return 1
    if position < 0:
        if position < -63 or significand & ((1 << -position) - 1) != 0:
            return 1
        significand = shift_right(significand, -position)
        position = 0
    if position + bit_length(significand) >= 64 * limbs:
        return 1
    limb = position >> 6
    offset = position & 63
    store(out, limb, significand << offset)
    if offset > 0 and limb + 1 < limbs:
        store(out, limb + 1, shift_right(significand, 64 - offset))
    if negative:
        negate(out, 0, limbs)
    return 0


@kernel("int64(int64,int64,int64,int64,int64)")
def store_product(at, registers, count, block, width):
    """STORE_PRODUCT."""
    room = load(at, 1)
    place = load(at, 2)
    limbs = load(at, 3)
    shift = load(at, 4)
    other = room
    temporary = room + 8 * limbs
    refused = 0
    for i in range(count):
        product = block + (i * width + place) * 8
        fields = load(at, 5)
        first = True
        while fields != 0:
            word = load(registers, ((fields & (WHOLE - 1)) - 1) * count + i)
            whole = fields & WHOLE != 0
            fields = shift_right(fields, FIELD)
            if word == NULL_CODE:
                for limb in range(limbs):
                    store(product, limb, 0)
                fields = 0
            elif first:
                refused |= write_number(word, whole, shift, product, limbs)
            else:
                refused |= write_number(word, whole, shift, other, limbs)
                refused |= multiply(product, 0, limbs, product, 0, limbs, other, 0, limbs, temporary)
            first = False
    return refused


@kernel("int64(int64,int64,int64)")
def calculate(at, registers, count):
    """ADD, SUBTRACT, MULTIPLY and BITS."""
    kind = load(at, 0)
    out = registers + load(at, 1) * count * 8
    left = registers + load(at, 2) * count * 8
    right = registers + load(at, 3) * count * 8
    low = load(at, 4)
    high = load(at, 5)
    refused = 0
    for i in range(count):
        a = load(left, i)
        b = load(right, i)
        value = NULL_CODE
        if a != NULL_CODE and b != NULL_CODE:
            if kind == MULTIPLY:
                refused |= product_overflows(a, b)
                value = a * b
            elif kind == BITS:
                value = a & b
            else:
                b = -b if kind == SUBTRACT else b
                refused |= add_overflows(a, b)
                value = a + b
            refused |= 1 if value < low or value > high else 0
        store(out, i, value)
    return refused


@kernel("void(int64,int64,int64)")
def connect(at, registers, count):
    """AND, OR, NOT, SELECT and COALESCE."""
    kind = load(at, 0)
    out = registers + load(at, 1) * count * 8
    left = registers + load(at, 2) * count * 8
    right = registers + load(at, 3) * count * 8
    other = registers + load(at, 4) * count * 8
    for i in range(count):
        a = load(left, i)
        b = load(right, i)
        if kind == AND:
            value = 0
            if a != 0 and b != 0:
                value = NULL_CODE if a == NULL_CODE or b == NULL_CODE else 1
        elif kind == OR:
            value = 1
            if a != 1 and b != 1:
                value = NULL_CODE if a == NULL_CODE or b == NULL_CODE else 0
        elif kind == NOT:
            value = NULL_CODE if a == NULL_CODE else 1 - a
        elif kind == SELECT:
            value = b if a == 1 else load(other, i)
        else:
            value = b if a == NULL_CODE else a
        store(out, i, value)


@kernel("void(int64,int64,int64)")
def compare(at, registers, count):
    """EQUAL, UNEQUAL, LESS, LESS_EQUAL, DISTINCT and NOT_DISTINCT."""
    kind = load(at, 0)
    out = registers + load(at, 1) * count * 8
    left = registers + load(at, 2) * count * 8
    right = registers + load(at, 3) * count * 8
    for i in range(count):
        a = load(left, i)
        b = load(right, i)
        if kind in (EQUAL, NOT_DISTINCT):
            holds = a == b
        elif kind in (UNEQUAL, DISTINCT):
            holds = a != b
        elif kind == LESS:
            holds = a < b
        else:
            holds = a <= b
        value = 1 if holds else 0
        if kind <= LESS_EQUAL and (a == NULL_CODE or b == NULL_CODE):
            value = NULL_CODE
        store(out, i, value)


@kernel("int64(int64,int64,int64,int64,int64)")
def move(at, registers, count, block, width):
    """LOAD, CONSTANT, STORE and STORE_LIMBS, LOAD_WIDE and STORE_WIDE."""
    kind = load(at, 0)
    out = registers + load(at, 1) * count * 8
    x = load(at, 4)
    refused = 0
    if kind == LOAD:
        place = load(at, 2)
        for i in range(count):
            word = load(block, i * width + place)
            refused |= 1 if word == x and word != NULL_CODE else 0
            store(out, i, word)
    elif kind == LOAD_WIDE:
        place = load(at, 2)
        for i in range(count):
            high = load(block, i * width + place)
            word = load(block, i * width + place + 1)
            if high == NULL_CODE:
                word = NULL_CODE
            else:
                refused |= 1 if high != word >> 63 or word == NULL_CODE else 0
            store(out, i, word)
    elif kind == CONSTANT:
        for i in range(count):
            store(out, i, x)
    else:
        a = registers + load(at, 2) * count * 8
        place = load(at, 3)
        for i in range(count):
            word = load(a, i)
            if kind == STORE_WIDE:
                store(block, i * width + place, NULL_CODE if word == NULL_CODE else word >> 63)
                store(block, i * width + place + 1, 0 if word == NULL_CODE else word)
            elif kind == STORE:
                refused |= 1 if word == x and word != NULL_CODE else 0
                store(block, i * width + place, word)
            else:
                word = 0 if word == NULL_CODE else word
                store(block, i * width + place, word)
                for limb in range(1, x):
                    store(block, i * width + place + limb, word >> 63)
    return refused


@kernel("int64(int64,int64,int64,int64,int64)")
def operate(at, registers, count, block, width):
    """One operation on the rows of a block; 1 if it refuses, else 0."""
    kind = load(at, 0)
    if kind <= STORE_LIMBS or LOAD_WIDE <= kind <= STORE_WIDE:
        return move(at, registers, count, block, width)
    if kind <= NOT_DISTINCT:
        compare(at, registers, count)
        return 0
    if kind <= COALESCE:
        connect(at, registers, count)
        return 0
    if kind == LIKE:
        like(at, registers, count)
        return 0
    if kind == LOOK_UP:
        return look_up(at, registers, count)
    if kind == TO_REAL:
        return to_real(at, registers, count)
    if kind >= REAL_ADD:
        return calculate_real(at, registers, count)
    if kind == STORE_PRODUCT:
        return store_product(at, registers, count, block, width)
    return calculate(at, registers, count) if kind <= MULTIPLY or kind == BITS else date(at, registers, count)


@kernel("int64(int64,int64,int64,int64,int64,int64)")
def compute(program, operations, registers, data, width, rows):
    """Run a program on rows of `width` words, a block at a time; 1 if it refuses, else 0."""
    refused = 0
    first = 0
    while first < rows and refused == 0:
        count = min(rows - first, BLOCK)
        for n in range(operations):
            refused |= operate(program + n * WORDS * 8, registers, count, data + first * width * 8, width)
        first += count
    return refused
