"""From Arrow's column buffers to the row-major words a program reads, one column at a time."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import NULL_CODE
from sqlfront.storage.kernels.lowering import intrinsic, ir, types
from sqlfront.storage.kernels.memory import load, load32, store
from sqlfront.storage.kernels.tables.byte_strings import hash_rows, insert_rows

PLAN_WORDS = 5


@intrinsic
def load8(typingctx, base, index):
    """The unsigned byte at base + index."""

    def codegen(context, builder, signature, arguments):
        byte = ir.IntType(8)
        address = builder.gep(builder.inttoptr(arguments[0], byte.as_pointer()), [arguments[1]])
        return builder.zext(builder.load(address, align=1), ir.IntType(64))

    return types.int64(types.int64, types.int64), codegen


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


@kernel("int64(int64,int64,int64,int64,int64)")
def pack_batch(array, plan, columns, data, width):
    """All columns of a batch in the Arrow C data interface (struct ArrowArray at `array`), one word each.

    `plan` has PLAN_WORDS per column: child number, word place, bytes per value (of text: per offset), 1 if a NULL is
    not allowed, and the dictionary's state for text, else 0. Returns 0, or 1 when the general way is needed: a value
    equals NULL_CODE, a NULL stands where none may, or a dictionary must grow.
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
        if dictionary == 0:
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
