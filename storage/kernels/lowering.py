"""What kernels use of numba and llvmlite, imported only if kernels are compiled in this process.

Where the kernels are a file that is loaded, their sources are imported for their names and constants only: `types`,
`ir`, `cgutils` and `intrinsic` are stand-ins then, which take every call and give nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlfront.storage.native.compilers import llvmlite, numba
from sqlfront.storage.native.native_file import loaded


class _Absent:
    """Stands in for a name of numba or llvmlite."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


types: Any = _Absent()
ir: Any = _Absent()
cgutils: Any = _Absent()
python_object: Any = _Absent()
intrinsic: Any = _same

if loaded() is None:
    extending = numba("extending")
    types, cgutils = numba("core.types"), numba("core.cgutils")
    ir, intrinsic = llvmlite("ir"), extending.intrinsic

    class _PythonObject(types.Type):
        """A Python object, lent by the caller."""

    python_object = _PythonObject("python_object")
    extending.register_model(_PythonObject)(extending.models.OpaqueModel)

    @extending.unbox(_PythonObject)
    def _lend(_type: Any, value: Any, _context: Any) -> Any:
        return extending.NativeValue(value)
