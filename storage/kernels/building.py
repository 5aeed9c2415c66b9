"""Building the file of all kernels: one module of LLVM's, compiled once, with a function of Python for each kernel.

`python -m sqlfront.storage.kernels.building FILE` builds it, in a process of its own: numba's internals (of 0.68) are
changed, so that numba lowers each kernel without optimising or linking it. The steps: lower all kernels, join them in
one module, optimise, emit an object, write the C functions that Python calls, and let a C compiler link the file. The
file needs neither numba nor llvmlite, and serves Python 3.11 and later (PEP 384, the stable ABI).
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlfront.storage.kernels import jit
from sqlfront.storage.native.kernel_setup import compiler
from sqlfront.storage.native.native_file import fingerprint

OPTIMISED = 3
BASELINE = {"x86_64": "x86-64-v2", "AMD64": "x86-64-v2"}
"""Processors that the file is for, by machine: others are taken as the oldest of their kind. Newer vector units gain
nothing."""

Told = Callable[[str, float], None]
"""Takes the step that runs, and the share of the work that is done."""


def build(target: Path, told: Told, kernels: Sequence[jit.Kernel] | None = None) -> None:
    """Make the file of all kernels, or of these, whole or not at all. CalledProcessError if the C compiler fails."""
    command = compiler()
    assert command is not None
    told("reading", 0.0)
    module, lowered = _lowered(kernels, told)
    told("optimising", 0.7)
    with tempfile.TemporaryDirectory(dir=target.parent) as room:
        code, binary, made = (Path(room) / name for name in ("kernels.c", "kernels.o", target.name))
        binary.write_bytes(_emitted(module, [symbol for _, symbol, _, _ in lowered]))
        code.write_text(_c_source(lowered))
        told("linking", 0.92)
        include = sysconfig.get_path("include")
        flags = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", f"-I{include}"]
        subprocess.run([*command, *flags, str(code), str(binary), "-o", str(made), "-s"], check=True)
        made.replace(target)
    told("done", 1.0)


Lowered = tuple[str, str, str, bool]
"""Of a kernel: its name in the file, its symbol in LLVM's module, its signature, whether it keeps the GIL."""


def _lowered(chosen: Sequence[jit.Kernel] | None, told: Told) -> tuple[Any, list[Lowered]]:
    """LLVM's module with every kernel and all it calls, not optimised; and what is exported."""
    llvm: Any = import_module("llvmlite.binding")
    cpu_target: Any = import_module("numba.core.registry").cpu_target
    runtime: Any = import_module("numba.core.runtime").rtsys
    numba: Any = import_module("numba")
    numba.njit("int64(int64)")(lambda x: x)  # Numba's own parts are made before it is changed.
    _lower_only()
    jit.make_dispatcher = _plain_dispatcher
    if chosen is None:
        jit.import_all()
    wanted = jit.KERNELS if chosen is None else chosen
    for number, made in enumerate(wanted):
        told("lowering", 0.02 + 0.68 * number / len(wanted))
        _ = made.dispatcher
    codegen = cpu_target.target_context.codegen()
    module = llvm.parse_assembly(str(codegen._create_empty_module("sqlfront_kernels")))
    joined = {id(runtime.library)}

    def join(library: Any) -> None:
        if id(library) not in joined:
            joined.add(id(library))
            module.link_in(library._final_module, preserve=True)
            for other in library._linking_libraries:
                join(other)

    kernels = []
    for made in wanted:
        compiled = made.dispatcher.overloads[made.dispatcher.signatures[0]]
        join(compiled.library)
        kernels.append((made.symbol, compiled.fndesc.llvm_func_name, str(compiled.signature), made.held))
    module.link_in(llvm.parse_assembly(_NO_COUNTING))
    return module, kernels


_NO_COUNTING = "".join(
    f"define linkonce_odr void @NRT_{name}(ptr %p) alwaysinline {{ ret void }}\n" for name in ("incref", "decref")
)
"""Numba counts references to arrays, of which kernels have none."""


def _lower_only() -> None:
    """Let numba lower functions, and neither optimise, link nor load them."""
    library: Any = import_module("numba.core.codegen").JITCodeLibrary
    context: Any = import_module("numba.core.cpu").CPUContext

    def finalize(self: Any) -> None:
        self._raise_if_finalized()
        self._finalized = True

    library.finalize = finalize
    library.add_llvm_module = lambda self, module: self._final_module.link_in(module)
    library._get_module_for_linking = lambda self: self._final_module
    context.get_executable = lambda *_: [].append  # A builtin like no other: overloads are found by it.


def _plain_dispatcher(made: jit.Kernel) -> Any:
    njit: Any = import_module("numba").njit
    inline = made.targetoptions["inline"]
    return njit(nogil=not made.held, inline=inline, no_cpython_wrapper=True, no_cfunc_wrapper=True)(made.py_func)


def _emitted(module: Any, exported: Sequence[str]) -> bytes:
    """The module as an object file, optimised as a whole."""
    llvm: Any = import_module("llvmlite.binding")
    llvm.initialize_native_asmprinter()
    text = re.sub(r"\b(add|sub|mul|shl)( nuw)? nsw ", r"\1 ", str(module))  # Overflow wraps: see wrapping_overflow.
    module, names = llvm.parse_assembly(text), set(exported)
    for function in module.functions:
        if not function.is_declaration:
            function.linkage = "external" if function.name in names else "internal"
            if function.name in names:
                function.visibility = "hidden"
    for variable in module.global_variables:
        if not variable.is_declaration and variable.linkage not in (llvm.Linkage.internal, llvm.Linkage.private):
            variable.linkage = "internal"
    triple, processor = llvm.get_process_triple(), BASELINE.get(platform.machine(), "generic")
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=processor, features="", opt=OPTIMISED, reloc="pic", codemodel="default")
    module.triple, module.data_layout = triple, str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=OPTIMISED))
    builder.getModulePassManager().run(module, builder)
    module.verify()
    return bytes(machine.emit_object(module))


# The C that Python calls ---------------------------------------------------------------------------------------------

_HEAD = r"""
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

static PyObject *bad_count(Py_ssize_t n, int expected)
{ return PyErr_Format(PyExc_TypeError, "a kernel takes %d arguments, not %zd", expected, n); }
static PyObject *failed(int status)
{ return PyErr_Format(PyExc_ArithmeticError, "a kernel failed (%d)", status); }
"""
_RETURNED = {
    "int64": ("int64_t", "PyLong_FromLongLong(r)"),
    "none": ("void *", "Py_NewRef(Py_None)"),
    "bool": ("uint8_t", "PyBool_FromLong(r)"),
}
_TAKEN = {
    "int64": (
        "int64_t",
        "int64_t a{i} = PyLong_AsLongLong(args[{i}]); if (a{i} == -1 && PyErr_Occurred()) return NULL;",
    ),
    "bool": (
        "uint8_t",
        "int t{i} = PyObject_IsTrue(args[{i}]); if (t{i} < 0) return NULL; uint8_t a{i} = (uint8_t)t{i};",
    ),
    "python_object": ("void *", "void *a{i} = args[{i}];"),
}


def _c_source(kernels: Sequence[Lowered]) -> str:
    functions = [line for number, kernel in enumerate(kernels) for line in _wrapper(number, *kernel)]
    methods = [
        f'  {{"{name}", (PyCFunction)(void (*)(void))w{number}, METH_FASTCALL, NULL}},'
        for number, (name, *_) in enumerate(kernels)
    ]
    return "\n".join(
        [
            _HEAD,
            *functions,
            "static PyMethodDef methods[] = {",
            *methods,
            "  {NULL, NULL, 0, NULL}};",
            'static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods};',
            "PyMODINIT_FUNC PyInit__native(void) {",
            "  PyObject *m = PyModule_Create(&definition);",
            f'  if (m) PyModule_AddStringConstant(m, "fingerprint", "{fingerprint()}");',
            "  return m;",
            "}",
            "",
        ]
    )


def _wrapper(number: int, name: str, symbol: str, signature: str, held: bool) -> Iterator[str]:
    """The C function that takes a kernel's arguments from Python; numba's convention is (result, error, arguments)."""
    taken, returned = _split(signature)
    kind, made = _RETURNED[returned]
    types = [f"{kind} *", "void **", *(_TAKEN[one][0] for one in taken)]
    call = f"s = k{number}({', '.join(['&r', '&e', *(f'a{i}' for i in range(len(taken)))])});"
    yield f'extern int32_t k{number}({", ".join(types)}) __asm__("{symbol}") __attribute__((visibility("hidden")));'
    yield f"static PyObject *w{number}(PyObject *self, PyObject *const *args, Py_ssize_t n) {{ /* {name} */"
    yield f"  if (n != {len(taken)}) return bad_count(n, {len(taken)});"
    yield f"  {kind} r = 0; void *e; int32_t s;"
    yield from (f"  {_TAKEN[one][1].format(i=i)}" for i, one in enumerate(taken))
    yield f"  {call if held else f'PyThreadState *state = PyEval_SaveThread(); {call} PyEval_RestoreThread(state);'}"
    yield f"  return s ? failed(s) : {made};"
    yield "}"


def _split(signature: str) -> tuple[list[str], str]:
    """The types of a signature as numba prints it, `(int64, bool) -> none`."""
    arguments, _, returned = signature.replace("boolean", "bool").rpartition(" -> ")
    return [one.strip() for one in arguments.strip()[1:-1].split(",") if one.strip()], returned


def _show(step: str, share: float) -> None:
    print(f"{share:.3f} {step}", flush=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]), _show)
