"""Kernels: functions that are machine code, from the file of all kernels (storage/native) or by numba in this process.

Numba's own cache looks only at the file of the function being compiled, so an edit in a callee of another file would
leave stale machine code in use. Ours is one directory per hash of the kernels' sources, the versions of numba and
llvmlite, Python's, and the processor.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlfront.storage.native.compilers import llvmlite, numba
from sqlfront.storage.native.native_file import HERE, cache_base, fingerprint_of, loaded

_FOLDERS = ("tables", "programs")
_state = {"compiling": False}


def cache_directory() -> Path:
    """Where numba keeps kernels of exactly these sources: below SQLFRONT_CACHE_DIR or the user's cache."""
    return cache_base() / "sqlfront" / "kernels" / _own_fingerprint()


@functools.cache
def _own_fingerprint() -> str:
    """That of this package, once per process: every kernel asks for it."""
    return fingerprint(HERE)


def fingerprint(package: Path) -> str:
    """A hash of the sources in `package` and of the tools and processor that compile them."""
    digest = hashlib.sha256(fingerprint_of(package).encode())
    for part in (numba().__version__, llvmlite().__version__, sys.version, platform.machine(), _processor()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:20]


class Kernel:
    """A function for one signature, without the GIL unless it is `held`.

    Machine code comes from the file of all kernels. Without the file, numba loads or compiles a kernel when it is first
    called, or met in another kernel that is being compiled: a kernel that is only called from compiled kernels is in
    their machine code.
    """

    def __init__(
        self, function: Callable[..., Any], signature: Any, inline: Literal["never", "always"], held: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self.signature, self.held, self._compiled = function, signature, held, False
        # Numba asks these of what a function to be compiled calls.
        self.targetoptions: dict[str, Literal["never", "always"]] = {"inline": inline}

    @property
    def symbol(self) -> str:
        """The name of the kernel in the file of all kernels."""
        return symbol_of(self.py_func)

    @functools.cached_property
    def entry(self) -> Any:
        """The machine code as a function of Python. It checks nothing: pass exact types."""
        found = loaded() if self.__module__.startswith(f"{__package__}.") else None
        if found is not None:
            return getattr(found, self.symbol)
        return self.dispatcher.overloads[self.dispatcher.signatures[0]].entry_point

    @property
    def dispatcher(self) -> Any:
        """Numba's own object, compiled."""
        if not self._compiled:
            self._compiled = True  # Before it is: a recursive function meets itself.
            with wrapping_overflow():
                self._dispatcher.compile(self.signature)
            self._dispatcher.disable_compile()  # Else numba compiles it again for each constant it is called with.
        return self._dispatcher

    @functools.cached_property
    def _dispatcher(self) -> Any:
        return make_dispatcher(self)

    @property
    def _numba_type_(self) -> Any:
        return numba("core.types").Dispatcher(self.dispatcher)

    def __call__(self, *arguments: Any) -> Any:
        return self.entry(*arguments)


def make_dispatcher(made: Kernel) -> Any:
    """Numba's object for a kernel, whose machine code is kept in the cache."""
    directory, config = cache_directory(), numba().config
    _announce(directory)
    before, config.CACHE_DIR = config.CACHE_DIR, str(directory)
    try:
        return numba().njit(cache=True, nogil=not made.held, inline=made.targetoptions["inline"])(made.py_func)
    finally:
        config.CACHE_DIR = before


def symbol_of(function: Callable[..., Any]) -> str:
    """The file and the name of a function as one name."""
    return f"{function.__module__.rpartition('.')[2]}_{function.__name__}"


KERNELS: list[Kernel] = []


def kernel(signature: Any, *, inline: bool = False, held: bool = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a kernel of a signature, a string or numba's own, that keeps the GIL if it is to be `held`."""

    def make(function: Callable[..., Any]) -> Kernel:
        made = Kernel(function, signature, "always" if inline else "never", held)
        KERNELS.append(made)
        return made

    return make


def import_all() -> None:
    """Import every module of kernels, so that KERNELS has them all."""
    for folder in _FOLDERS:
        for source in sorted((HERE / folder).glob("*.py")):
            importlib.import_module(f"{__package__}.{folder}.{source.stem}")


def compile_all() -> None:
    """Load, or compile, every kernel of the package."""
    import_all()
    for made in KERNELS:
        _ = made.entry


def entry_point(made: Kernel) -> Any:
    """The machine code of a kernel as a function of Python. It checks nothing: pass exact types."""
    return made.entry


@contextmanager
def wrapping_overflow() -> Iterator[None]:
    """Integer arithmetic that is compiled within wraps around.

    Numba marks signed arithmetic as never overflowing (LLVM's nsw), so LLVM may fold `a * M >= b * M` to `a >= b` and a
    test for a carry to False. Hashes and limbs overflow on purpose.
    """
    both = vars(numba("cpython.numbers")), vars(numba("np.math.numbers"))  # Both define add, sub and mul.
    before = [names["_int_arith_flags"] for names in both]
    for names in both:
        names["_int_arith_flags"] = lambda _type: []
    try:
        yield
    finally:
        for names, flags in zip(both, before, strict=True):
            names["_int_arith_flags"] = flags


def _announce(directory: Path) -> None:
    if not _state["compiling"] and not directory.exists():
        _state["compiling"] = True
        directory.mkdir(parents=True, exist_ok=True)
        print("sqlfront: compiling kernels, once on this machine", file=sys.stderr, flush=True)


def _processor() -> str:
    binding = llvmlite("binding")
    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
