"""Loading kernels that were compiled where there is no C compiler: LLVM's object, which llvmlite links in memory."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlfront.storage.native.compilers import llvmlite

_linked: list[Any] = []
"""What owns the machine code: it must not go while a function of it can be called."""


def load_object(place: Path) -> ModuleType:
    """The module of Python's in an object file. OperationalError without llvmlite. Some 50 ms."""
    llvm = llvmlite("binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="small")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(place.read_bytes()))
    engine.finalize_object()
    _linked.append(engine)
    made: ModuleType = ctypes.PYFUNCTYPE(ctypes.py_object)(engine.get_function_address("PyInit__native"))()
    return made
