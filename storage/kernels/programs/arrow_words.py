"""From Arrow's column buffers to the row-major words a program reads, one column at a time."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.lowering import intrinsic, ir, types
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.byte_strings import hash_rows, insert_rows

PLAN_WORDS = 6
MOST_KINDS = 4
ARRAY_WORDS, _RELEASE = 10, 8
"""The words of a struct ArrowArray, and the one of the function that lets go of it."""
_FORMAT, _NAME, _FIELDS, _FIELD, _DICTIONARY = 0, 1, 4, 5, 6
"""Words of a struct ArrowSchema: two texts, the number of its children, their addresses, and the one of its values."""


@intrinsic
def load8(typingctx, base, index):
    """The unsigned byte at base + index."""

    def codegen(context, builder, signature, arguments):
        byte = ir.IntType(8)
        address = builder.gep(builder.inttoptr(arguments[0], byte.as_pointer()), [arguments[1]])
        return builder.zext(builder.load(address, align=1), ir.IntType(64))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def release(typingctx, array):
    """Let go of what a struct ArrowArray has."""

    def codegen(context, builder, signature, arguments):
        word = ir.IntType(64)
        place = builder.gep(builder.inttoptr(arguments[0], word.as_pointer()), [ir.Constant(word, _RELEASE)])
        function = ir.FunctionType(ir.VoidType(), [word]).as_pointer()
        builder.call(builder.inttoptr(builder.load(place), function), arguments)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@kernel("int64(int64,int64)")
def is_same_text(one, other):
    """Whether two texts that end with a zero byte are equal."""
    i = 0
    while load8(one, i) == load8(other, i) and load8(one, i) != 0:
        i += 1
    return load8(one, i) == load8(other, i)


@kernel("int64(int64,int64)")
def is_same_schema(one, other):
    """Whether two schemas (struct ArrowSchema) have the same columns of the same plain types. Nested and
    dictionary-encoded types count as different."""
    fields = load(one, _FIELDS)
    same = fields == load(other, _FIELDS)
    f = 0
    while same and f < fields:
        first, second = load(load(one, _FIELD), f), load(load(other, _FIELD), f)
        plain = load(first, _FIELDS) == 0 and load(first, _DICTIONARY) == 0
        plain = plain and load(second, _FIELDS) == 0 and load(second, _DICTIONARY) == 0
        same = plain and is_same_text(load(first, _NAME), load(second, _NAME)) != 0
        same = same and is_same_text(load(first, _FORMAT), load(second, _FORMAT)) != 0
        f += 1
    return 1 if same else 0


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def pack_column(data, width, column, source, size, offset, validity, rows):
    """Copy a column of 4- or 8-byte integers, or the low words of 16-byte ones, to word `column` of each row.

    NULL_CODE where the validity bit is 0. Returns 1 if a value that is not NULL equals NULL_CODE (the caller escapes
    it), else 0.
    """
    clash = 0
    for i in range(rows):
        at = offset + i
        if size == 16:
            value = load(source, 2 * at)
        else:
            value = load(source, at) if size == 8 else load32(source, at)
        if validity != 0 and (load8(validity, at >> 3) >> (at & 7)) & 1 == 0:
            value = NULL_CODE
        elif value == NULL_CODE:
            clash = 1
        store(data, i * width + column, value)
    return clash


@kernel("void(int64,int64,int64,int64,int64)")
def fill_word(data, width, column, value, rows):
    """Write one word to word `column` of each row."""
    for i in range(rows):
        store(data, i * width + column, value)


@kernel("int64(int64,int64,int64,int64,int64,int64,int64,int64)")
def pack_signs(data, width, column, text, first, size, kinds, rows):
    """The weights of texts that name kinds of changes, in word `column` of each row. `kinds` are MOST_KINDS times a
    weight, a length and the address of the bytes. Returns 1 if a text is none of them, else 0."""
    strange = 0
    for i in range(rows):
        start = load(first, i) if size == 8 else load32(first, i)
        length = (load(first, i + 1) if size == 8 else load32(first, i + 1)) - start
        weight = 0
        for k in range(MOST_KINDS):
            if load(kinds, 3 * k + 1) == length:
                same = True
                for j in range(length):
                    same = same and load8(text, start + j) == load8(load(kinds, 3 * k + 2), j)
                if same:
                    weight = load(kinds, 3 * k)
        store(data, i * width + column, weight)
        if weight == 0:
            strange = 1
    return strange


@kernel("int64(int64,int64,int64,int64,int64)")
def pack_batch(array, plan, columns, data, width):
    """All columns of a batch in the Arrow C data interface (struct ArrowArray at `array`), one word each.

    `plan` has PLAN_WORDS per column: child number, word place (-1: nothing is written), bytes per value (of text: per
    offset), 1 if a NULL is not allowed, the dictionary's state for text, else 0, and the `kinds` of changes that a text
    names, else 0. Returns 0, or 1 when the general way is needed: a value equals NULL_CODE, a NULL stands where none
    may, a dictionary must grow, or a text is no kind of change.
    """
    rows = load(array, 0)
    outer = load(array, 2)
    children = load(array, 6)
    refused = 0
    for c in range(columns):
        child = load(children, load(plan, PLAN_WORDS * c))
        place = load(plan, PLAN_WORDS * c + 1)
        size = load(plan, PLAN_WORDS * c + 2)
        dictionary = load(plan, PLAN_WORDS * c + 4)
        kinds = load(plan, PLAN_WORDS * c + 5)
        buffers = load(child, 5)
        validity = load(buffers, 0)
        source = load(buffers, 1)
        offset = load(child, 2) + outer
        if load(child, 1) == 0:
            validity = 0
        if validity != 0 and load(plan, PLAN_WORDS * c + 3) == 1:
            for i in range(rows):
                if (load8(validity, (offset + i) >> 3) >> ((offset + i) & 7)) & 1 == 0:
                    refused = 1
        if place < 0:
            continue
        if kinds != 0:
            refused |= pack_signs(data, width, place, load(buffers, 2), source + size * offset, size, kinds, rows)
        elif dictionary == 0:
            refused |= pack_column(data, width, place, source, size, offset, validity, rows)
        else:
            wide = 1 if size == 8 else 0
            text = load(buffers, 2)
            first = source + size * offset
            out = data + place * 8
            hash_rows(dictionary, text, first, wide, validity, offset, out, width, rows)
            if insert_rows(dictionary, text, first, wide, 0, out, width, rows) < rows:
                refused = 1
    return refused


@kernel("int64(int64,int64,int64,int64,int64)")
def pack_exported(array, plan, columns, data, width):
    """As `pack_batch`; the batch, which is the caller's, is let go."""
    refused = pack_batch(array, plan, columns, data, width)
    release(array)
    return refused


@kernel("void(int64,int64,int64,int64,int64,int64,int64)")
def write_head(head, out, rows, stride, place, first, second):
    """The words of a message's head: [n, then for each a number, what a row adds to it, what a word from one column to
    the next adds]. If there is a `place`, one word is written to all rows of the column of words that begins so many
    half strides behind the head, and another one to the next column."""
    words = load(head, 0)
    for i in range(words):
        word = load(head, 1 + 3 * i) + rows * load(head, 2 + 3 * i) + stride * load(head, 3 + 3 * i)
        store(out, i, word)
    if place >= 0:
        column = out + 8 * words + 4 * place * stride
        for i in range(rows):
            store(column, i, first)
            store(column, stride + i, second)
