"""Raw memory for the kernels: 64-bit words at addresses, as LLVM instructions.

Stores live in memory from the C allocator and are passed to kernels as one integer: no reference
counting in hot loops, growth by realloc, and drained memory goes back to the allocator at once.
Arrays of a file can be mapped in the place of such memory (tables/mapped_memory.py, tables/spilled_memory.py).
"""

from __future__ import annotations

import mmap
import sys

from sqlfront.storage.kernels.lowering import cgutils, intrinsic, ir, types

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_I128 = ir.IntType(128)
MAPPING = ("linux", "darwin")
"""Systems whose files are mapped."""
_MAP_FIXED = 0x10
"""MAP_FIXED of mmap on these systems: the address is no hint."""
SPILLING = ("linux",)
"""Systems with files whose room can be taken beforehand (posix_fallocate)."""

calloc = types.ExternalFunction("calloc", types.int64(types.int64, types.int64))
realloc = types.ExternalFunction("realloc", types.int64(types.int64, types.int64))
free = types.ExternalFunction("free", types.void(types.int64))
memcpy = types.ExternalFunction("memcpy", types.int64(types.int64, types.int64, types.int64))
sched_yield = types.ExternalFunction("sched_yield", types.int32())


@intrinsic
def load(typingctx, base, index):
    """The 64-bit word at base + 8 * index."""

    def codegen(context, builder, signature, arguments):
        address = builder.gep(builder.inttoptr(arguments[0], _I64.as_pointer()), [arguments[1]])
        return builder.load(address, align=8)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store(typingctx, base, index, value):
    """Write the 64-bit word at base + 8 * index."""

    def codegen(context, builder, signature, arguments):
        address = builder.gep(builder.inttoptr(arguments[0], _I64.as_pointer()), [arguments[1]])
        builder.store(arguments[2], address, align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def load32(typingctx, base, index):
    """The signed 32-bit word at base + 4 * index."""

    def codegen(context, builder, signature, arguments):
        address = builder.gep(builder.inttoptr(arguments[0], _I32.as_pointer()), [arguments[1]])
        return builder.sext(builder.load(address, align=4), _I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store32(typingctx, base, index, value):
    """Write the low 32 bits of `value` at base + 4 * index."""

    def codegen(context, builder, signature, arguments):
        address = builder.gep(builder.inttoptr(arguments[0], _I32.as_pointer()), [arguments[1]])
        builder.store(builder.trunc(arguments[2], _I32), address, align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def load_shared(typingctx, base, index):
    """The word at base + 8 * index, and all that another thread wrote before the `add_shared` that made it."""

    def codegen(context, builder, signature, arguments):
        address = builder.gep(builder.inttoptr(arguments[0], _I64.as_pointer()), [arguments[1]])
        return builder.load_atomic(address, "acquire", 8)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def add_shared(typingctx, base, index, value):
    """Add to the word at base + 8 * index, which other threads change too; the word before."""

    def codegen(context, builder, signature, arguments):
        address = builder.gep(builder.inttoptr(arguments[0], _I64.as_pointer()), [arguments[1]])
        return builder.atomic_rmw("add", address, arguments[2], "acq_rel")

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def or_shared(typingctx, base, index, value):
    """Set bits of the word at base + 8 * index, which other threads change too; the word before."""

    def codegen(context, builder, signature, arguments):
        address = builder.gep(builder.inttoptr(arguments[0], _I64.as_pointer()), [arguments[1]])
        return builder.atomic_rmw("or", address, arguments[2], "acq_rel")

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def prefetch(typingctx, address):
    """Ask the processor to bring the line at `address` near; never faults."""

    def codegen(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        function_type = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _I32, _I32, _I32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [ir.IntType(8).as_pointer()], function_type)
        builder.call(function, [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def advise(typingctx, address, size, advice):
    """Linux's madvise for whole pages; it may be refused. Other systems are told nothing."""

    def codegen(context, builder, signature, arguments):
        if sys.platform == "linux":
            function_type = ir.FunctionType(_I32, [_I64, _I64, _I32])
            function = cgutils.get_or_insert_function(builder.module, function_type, "madvise")
            builder.call(function, [arguments[0], arguments[1], builder.trunc(arguments[2], _I32)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def write_back(typingctx, address, size):
    """Write the changed pages of a mapped file to the disk, and wait for it (msync of Linux); other systems write them
    when they want to."""

    def codegen(context, builder, signature, arguments):
        if sys.platform == "linux":
            function_type = ir.FunctionType(_I32, [_I64, _I64, _I32])
            function = cgutils.get_or_insert_function(builder.module, function_type, "msync")
            builder.call(function, [*arguments, _I32(4)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def is_resident(typingctx, address):
    """1 if the page at the address is in memory, also if other processes or the system's cache have it (mincore of
    Linux); other systems say 1."""

    def codegen(context, builder, signature, arguments):
        if sys.platform not in SPILLING:
            return _I64(1)
        function_type = ir.FunctionType(_I32, [_I64, _I64, ir.IntType(8).as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, function_type, "mincore")
        state = cgutils.alloca_once_value(builder, ir.IntType(8)(1))
        builder.call(function, [arguments[0], _I64(1), state])
        return builder.zext(builder.and_(builder.load(state), ir.IntType(8)(1)), _I64)

    return types.int64(types.int64), codegen


@intrinsic
def map_file(typingctx, place, handle, start, size):
    """The address of `size` bytes of an open file, changes to which stay in this process: `place` in the place of other
    mapped bytes, or any if it is 0. 0 if the system cannot."""

    def codegen(context, builder, signature, arguments):
        if sys.platform not in MAPPING:
            return _I64(0)
        function_type = ir.FunctionType(_I64, [_I64, _I64, _I32, _I32, _I32, _I64])
        function = cgutils.get_or_insert_function(builder.module, function_type, "mmap")
        place, handle, start, size = arguments
        access, anywhere = _I32(mmap.PROT_READ | mmap.PROT_WRITE), builder.icmp_signed("==", place, _I64(0))
        kind = builder.select(anywhere, _I32(mmap.MAP_PRIVATE), _I32(mmap.MAP_PRIVATE | _MAP_FIXED))
        address = builder.call(function, [place, size, access, kind, builder.trunc(handle, _I32), start])
        return builder.select(builder.icmp_signed("==", address, _I64(-1)), _I64(0), address)

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def share_file(typingctx, handle, size):
    """The address of `size` bytes of an open file, which gets the changes. 0 if the system cannot."""

    def codegen(context, builder, signature, arguments):
        if sys.platform not in SPILLING:
            return _I64(0)
        function_type = ir.FunctionType(_I64, [_I64, _I64, _I32, _I32, _I32, _I64])
        function = cgutils.get_or_insert_function(builder.module, function_type, "mmap")
        handle, size = arguments
        access, shared = _I32(mmap.PROT_READ | mmap.PROT_WRITE), _I32(mmap.MAP_SHARED)
        address = builder.call(function, [_I64(0), size, access, shared, builder.trunc(handle, _I32), _I64(0)])
        return builder.select(builder.icmp_signed("==", address, _I64(-1)), _I64(0), address)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def make_file(typingctx, path):
    """A new open file, whose path replaces the template at the address (mkstemp); below zero if none can be made."""
    return types.int64(types.int64), _on_files("mkstemp", [_I64])


@intrinsic
def unlink(typingctx, path):
    """Take a file's name away: its room is given back with the last mapping."""
    return types.int64(types.int64), _on_files("unlink", [_I64])


@intrinsic
def take_room(typingctx, handle, size):
    """Give a file `size` bytes on its disk; the number of the error, or 0."""
    call = _on_files("posix_fallocate", [_I32, _I64, _I64])

    def codegen(context, builder, signature, arguments):
        return call(context, builder, signature, [arguments[0], _I64(0), arguments[1]])

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def close_file(typingctx, handle):
    """Close an open file; its mappings stay."""
    return types.int64(types.int64), _on_files("close", [_I32])


def _on_files(name, kinds):
    """A call of a function of the system that takes words of these kinds and returns an int, where files are spilled
    to. Elsewhere -1."""

    def codegen(context, builder, signature, arguments):
        if sys.platform not in SPILLING:
            return _I64(-1)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_I32, kinds), name)
        words = [
            builder.trunc(word, _I32) if kind is _I32 else word for word, kind in zip(arguments, kinds, strict=True)
        ]
        return builder.sext(builder.call(function, words), _I64)

    return codegen


@intrinsic
def unmap(typingctx, address, size):
    """Give back what `map_file` has mapped."""

    def codegen(context, builder, signature, arguments):
        if sys.platform in MAPPING:
            function_type = ir.FunctionType(_I32, [_I64, _I64])
            function = cgutils.get_or_insert_function(builder.module, function_type, "munmap")
            builder.call(function, arguments)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def high_product(typingctx, a, b):
    """The high 64 bits of the unsigned product."""

    def codegen(context, builder, signature, arguments):
        wide = [builder.zext(argument, _I128) for argument in arguments]
        return builder.trunc(builder.lshr(builder.mul(*wide), _I128(64)), _I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def add_overflows(typingctx, a, b):
    """1 if the signed sum does not fit 64 bits, else 0."""

    def codegen(context, builder, signature, arguments):
        flag = builder.extract_value(builder.sadd_with_overflow(*arguments), 1)
        return builder.zext(flag, _I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def product_overflows(typingctx, a, b):
    """1 if the signed product does not fit 64 bits, else 0."""

    def codegen(context, builder, signature, arguments):
        flag = builder.extract_value(builder.smul_with_overflow(*arguments), 1)
        return builder.zext(flag, _I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def shift_right(typingctx, a, bits):
    """Logical shift right of a 64-bit word."""

    def codegen(context, builder, signature, arguments):
        return builder.lshr(*arguments)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def double_of(typingctx, bits):
    """The double that has these bits."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def bits_of(typingctx, double):
    """The bits of a double."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], _I64)

    return types.int64(types.float64), codegen


@intrinsic
def less_unsigned(typingctx, a, b):
    """1 if a < b as unsigned words, else 0."""

    def codegen(context, builder, signature, arguments):
        return builder.zext(builder.icmp_unsigned("<", *arguments), _I64)

    return types.int64(types.int64, types.int64), codegen
