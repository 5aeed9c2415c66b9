"""Python's own objects in kernels: a tuple of integers becomes words, an array tells where its words lie. These kernels
run with the GIL."""

from __future__ import annotations

from sqlfront.storage.kernels.jit import kernel
from sqlfront.storage.kernels.layout import (
    NULL_CODE,
    ROW_CHECKED,
    ROW_COLUMNS,
    ROW_SOURCES,
    ROW_WORDS,
)
from sqlfront.storage.kernels.lowering import intrinsic, ir, python_object, types
from sqlfront.storage.kernels.memory import load, store

_tuple_size = types.ExternalFunction("PyTuple_Size", types.int64(types.int64))
_tuple_item = types.ExternalFunction("PyTuple_GetItem", types.int64(types.int64, types.int64))
_as_word = types.ExternalFunction("PyLong_AsLongLong", types.int64(types.int64))
_error = types.ExternalFunction("PyErr_Occurred", types.int64())
_clear_error = types.ExternalFunction("PyErr_Clear", types.void())


@intrinsic
def address_of(typingctx, value):
    """The address of a Python object."""

    def codegen(context, builder, signature, arguments):
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.int64(value), codegen


@kernel("int64(int64,int64,int64)")
def pack_row(entry, row, weight):
    """Write the words of a tuple and its weight, Python objects, where an entry's data lie; 0 if it cannot be.

    It cannot be a tuple of another length, or with a value that is no integer of 64 bits,
    or, where the entry says so or it is the weight, one that equals NULL_CODE."""
    data = load(entry, 3)
    columns = load(entry, ROW_COLUMNS)
    packed = _tuple_size(row) == columns
    if packed:
        checked = load(entry, ROW_CHECKED)
        for i in range(load(entry, ROW_WORDS)):
            source = load(entry, ROW_SOURCES + i)
            word = 0
            if source <= columns:
                word = _as_word(_tuple_item(row, source) if source < columns else weight)
                if word == -1 and _error() != 0:
                    packed = False
                    break
                if word == NULL_CODE and (checked != 0 or source == columns):
                    return 0
            store(data, i, word)
    if not packed:
        _clear_error()
        return 0
    return 1


@kernel(types.int64(python_object, types.int64), held=True)
def object_word(value, place):
    """A word of a Python object's own memory."""
    return load(address_of(value), place)
