"""Building the file of all kernels: one module of LLVM's, compiled once, with a function of Python for each kernel.

`python -m sqlfront.storage.kernels.building FILE` builds it, in a process of its own: numba's internals (of 0.68) are
changed, so that numba lowers each kernel without optimising or linking it. The steps: lower all kernels, join them in
one module, add the functions that Python calls (python_calls.py), optimise, emit an object, and let a C compiler link
the file. The file needs neither numba nor llvmlite, and serves Python 3.11 and later (PEP 384, the stable ABI). Without
a C compiler the object itself is kept, which llvmlite loads (storage/native/object_file.py).
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlfront.storage.kernels import jit
from sqlfront.storage.kernels.python_calls import INIT, Exported, python_module
from sqlfront.storage.native.compilers import llvmlite, numba
from sqlfront.storage.native.kernel_setup import compiler
from sqlfront.storage.native.native_file import fingerprint

OPTIMISED = 3
BASELINE = {"x86_64": "x86-64-v2", "AMD64": "x86-64-v2"}
"""Processors that the file is for, by machine: others are taken as the oldest of their kind. Newer vector units gain
nothing."""

Told = Callable[[str, float], None]
"""Takes the step that runs, and the share of the work that is done."""


def build(target: Path, told: Told, kernels: Sequence[jit.Kernel] | None = None) -> None:
    """Make the file of all kernels, or of these, whole or not at all: linked if its name ends in `.so`, else an object.
    CalledProcessError if the linker fails."""
    told("reading", 0.0)
    module, lowered = _lowered(kernels, told)
    told("optimising", 0.7)
    with tempfile.TemporaryDirectory(dir=target.parent) as room:
        binary, made = Path(room) / "kernels.o", Path(room) / target.name
        binary.write_bytes(_emitted(module, python_module(lowered, fingerprint())))
        told("linking", 0.98)
        if target.suffix == ".so":
            subprocess.run([*(compiler() or ()), "-shared", str(binary), "-o", str(made), "-s"], check=True)
        else:
            binary.rename(made)
        made.replace(target)
    told("done", 1.0)


def _lowered(chosen: Sequence[jit.Kernel] | None, told: Told) -> tuple[Any, list[Exported]]:
    """LLVM's module with every kernel and all it calls, not optimised; and what is exported."""
    llvm = llvmlite("binding")
    cpu_target, runtime = numba("core.registry").cpu_target, numba("core.runtime").rtsys
    numba().njit("int64(int64)")(lambda x: x)  # Numba's own parts are made before it is changed.
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
        kernels.append(Exported(made.symbol, compiled.fndesc.llvm_func_name, str(compiled.signature), made.held))
    module.link_in(llvm.parse_assembly(_NO_COUNTING))
    return module, kernels


_NO_COUNTING = "".join(
    f"define linkonce_odr void @NRT_{name}(ptr %p) alwaysinline {{ ret void }}\n" for name in ("incref", "decref")
)
"""Numba counts references to arrays, of which kernels have none."""


def _lower_only() -> None:
    """Let numba lower functions, and neither optimise, link nor load them."""
    library, context = numba("core.codegen").JITCodeLibrary, numba("core.cpu").CPUContext

    def finalize(self: Any) -> None:
        self._raise_if_finalized()
        self._finalized = True

    library.finalize = finalize
    library.add_llvm_module = lambda self, module: self._final_module.link_in(module)
    library._get_module_for_linking = lambda self: self._final_module
    context.get_executable = lambda *_: [].append  # A builtin like no other: overloads are found by it.


def _plain_dispatcher(made: jit.Kernel) -> Any:
    inline = made.targetoptions["inline"]
    return numba().njit(nogil=not made.held, inline=inline, no_cpython_wrapper=True, no_cfunc_wrapper=True)(
        made.py_func
    )


def _emitted(module: Any, calls: str) -> bytes:
    """The module and the functions that Python calls as an object file, optimised as a whole."""
    llvm = llvmlite("binding")
    llvm.initialize_native_asmprinter()
    text = re.sub(r"\b(add|sub|mul|shl)( nuw)? nsw ", r"\1 ", str(module))  # Overflow wraps: see wrapping_overflow.
    module = llvm.parse_assembly(text)
    module.link_in(llvm.parse_assembly(calls))
    for function in module.functions:
        if not function.is_declaration and function.name != INIT:
            function.linkage = "internal"
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


def _show(step: str, share: float) -> None:
    print(f"{share:.3f} {step}", flush=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]), _show)
