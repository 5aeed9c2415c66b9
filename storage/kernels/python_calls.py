"""The functions through which Python calls kernels, as LLVM's text: an extension module without a line of C.

Numba's convention for a kernel is `status = kernel(result, error, arguments...)`. Python's is `METH_FASTCALL`: an array
of borrowed objects and their number. All names of Python's that are called are in its stable ABI (PEP 384), so one file
serves CPython 3.11 and later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

INIT = "PyInit__native"
"""The function that makes the module `_native`."""


class Exported(NamedTuple):
    """A kernel that Python calls: its name in the file, its symbol in LLVM's module, its signature as numba prints it,
    and whether it keeps the GIL."""

    name: str
    symbol: str
    signature: str
    held: bool


def python_module(kernels: Sequence[Exported], fingerprint: str) -> str:
    """A module of LLVM's that makes a module of Python's with a function for each kernel and with `fingerprint`."""
    numbers = range(len(kernels))
    methods = ", ".join(f"%method {{ptr @name{i}, ptr @call{i}, i32 {_FASTCALL}, ptr null}}" for i in numbers)
    lines = [_HEAD]
    for number, kernel in enumerate(kernels):
        lines.append(_text(f"name{number}", kernel.name))
        lines += _function(number, kernel)
    lines += [
        _text("fingerprint", fingerprint),
        f"@methods = internal global [{len(kernels) + 1} x %method] [{methods}, %method zeroinitializer]",
        _TAIL,
    ]
    return "\n".join(lines)


_FASTCALL = 0x80
_HEAD = r"""
%method = type {ptr, ptr, i32, ptr}
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyErr_Occurred()
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyBool_FromLong(i64)
declare ptr @Py_NewRef(ptr)
declare ptr @PyModule_Create2(ptr, i32)
declare i32 @PyModule_AddStringConstant(ptr, ptr, ptr)
@_Py_NoneStruct = external global i8
@PyExc_TypeError = external global ptr
@PyExc_ArithmeticError = external global ptr
@count_text = internal constant [40 x i8] c"a kernel takes %d arguments, not %zd\00\00\00\00"
@status_text = internal constant [24 x i8] c"a kernel failed (%d)\00\00\00\00"
@fingerprint_name = internal constant [12 x i8] c"fingerprint\00"
@module_name = internal constant [8 x i8] c"_native\00"
"""
# A PyModuleDef: its base (a PyObject's head, three words of Python's own), name, doc, size, methods, four hooks.
_TAIL = f"""
%definition = type {{i64, ptr, ptr, i64, ptr, ptr, ptr, i64, ptr, ptr, ptr, ptr, ptr}}
@definition = internal global %definition {{i64 1, ptr null, ptr null, i64 0, ptr null, ptr @module_name, ptr null,
  i64 -1, ptr @methods, ptr null, ptr null, ptr null, ptr null}}
define ptr @{INIT}() {{
  %module = call ptr @PyModule_Create2(ptr @definition, i32 3)
  %fails = icmp eq ptr %module, null
  br i1 %fails, label %end, label %name
name:
  %ignored = call i32 @PyModule_AddStringConstant(ptr %module, ptr @fingerprint_name, ptr @fingerprint)
  br label %end
end:
  ret ptr %module
}}
"""
_TYPES = {"int64": "i64", "bool": "i8", "none": "ptr", "python_object": "ptr"}
_GIVEN = {
    "int64": "%made = call ptr @PyLong_FromLongLong(i64 %value)",
    "bool": "%wide = zext i8 %value to i64\n  %made = call ptr @PyBool_FromLong(i64 %wide)",
    "none": "%made = call ptr @Py_NewRef(ptr @_Py_NoneStruct)",
}


def _function(number: int, kernel: Exported) -> Iterator[str]:
    """The METH_FASTCALL function of a kernel."""
    taken, given = _split(kernel.signature)
    kind, count = _TYPES[given], len(taken)
    arguments = ", ".join(["ptr %result", "ptr %error", *(f"{_TYPES[one]} %a{i}" for i, one in enumerate(taken))])
    declared = ", ".join(["ptr", "ptr", *(_TYPES[one] for one in taken)])
    yield f'declare i32 @"{kernel.symbol}"({declared})'
    yield f"define internal ptr @call{number}(ptr %self, ptr %args, i64 %n) {{"
    yield f"  %result = alloca {kind}\n  %error = alloca ptr\n  store {kind} zeroinitializer, ptr %result"
    yield f"  %fits = icmp eq i64 %n, {count}\n  br i1 %fits, label %take0, label %miscounted"
    for i, one in enumerate(taken):
        yield f"take{i}:\n  %p{i} = getelementptr ptr, ptr %args, i64 {i}\n  %o{i} = load ptr, ptr %p{i}"
        yield from _argument(i, one)
    yield f"take{count}:"
    if not kernel.held:
        yield "  %thread = call ptr @PyEval_SaveThread()"
    yield f'  %status = call i32 @"{kernel.symbol}"({arguments})'
    if not kernel.held:
        yield "  call void @PyEval_RestoreThread(ptr %thread)"
    yield "  %went = icmp eq i32 %status, 0\n  br i1 %went, label %give, label %failed"
    yield f"give:\n  %value = load {kind}, ptr %result\n  {_GIVEN[given]}\n  ret ptr %made"
    yield from _raise("miscounted", "TypeError", "count", f"i32 {count}, i64 %n")
    yield from _raise("failed", "ArithmeticError", "status", "i32 %status")
    yield "refused:\n  ret ptr null\n}"


def _argument(i: int, kind: str) -> Iterator[str]:
    """Make argument `%ai` of the object `%oi` and go on to the next, or to `refused` with an exception set."""
    if kind == "int64":
        yield f"  %a{i} = call i64 @PyLong_AsLongLong(ptr %o{i})\n  %odd{i} = icmp eq i64 %a{i}, -1"
        yield f"  br i1 %odd{i}, label %check{i}, label %take{i + 1}"
        yield f"check{i}:\n  %raised{i} = call ptr @PyErr_Occurred()\n  %fine{i} = icmp eq ptr %raised{i}, null"
        yield f"  br i1 %fine{i}, label %take{i + 1}, label %refused"
    elif kind == "bool":
        yield f"  %t{i} = call i32 @PyObject_IsTrue(ptr %o{i})\n  %a{i} = trunc i32 %t{i} to i8"
        yield f"  %fine{i} = icmp sge i32 %t{i}, 0\n  br i1 %fine{i}, label %take{i + 1}, label %refused"
    else:
        yield f"  %a{i} = bitcast ptr %o{i} to ptr\n  br label %take{i + 1}"


def _raise(label: str, error: str, text: str, values: str) -> Iterator[str]:
    """A block that sets an exception and returns; PyErr_Format gives NULL."""
    yield f"{label}:\n  %{label}_type = load ptr, ptr @PyExc_{error}"
    yield f"  %{label}_null = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %{label}_type, ptr @{text}_text, {values})"
    yield f"  ret ptr %{label}_null"


def _split(signature: str) -> tuple[list[str], str]:
    """The types of a signature as numba prints it, `(int64, bool) -> none`."""
    arguments, _, returned = signature.replace("boolean", "bool").rpartition(" -> ")
    return [one.strip() for one in arguments.strip()[1:-1].split(",") if one.strip()], returned


def _text(name: str, value: str) -> str:
    """A constant of LLVM's: ASCII without quotes or backslashes."""
    return f'@{name} = internal constant [{len(value) + 1} x i8] c"{value}\\00"'
