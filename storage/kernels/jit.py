"""Compilation of the kernels, cached on disk under a hash of everything they are made of.

Numba's own cache looks only at the file of the function being compiled, so an edit in a callee of
another file would leave stale machine code in use. Ours is one directory per hash of the kernels'
sources, the versions of numba and llvmlite, Python's, and the processor.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import llvmlite
import numba
import numba.cpython.numbers
import numba.np.math.numbers

_FOLDERS = ("tables", "programs")
_ARITHMETIC = (vars(numba.cpython.numbers), vars(numba.np.math.numbers))  # Both define add, sub and mul.
_state = {"compiling": False}


def cache_directory() -> Path:
    """Where compiled kernels of exactly these sources live: SQLFRONT_CACHE_DIR or the user's cache."""
    base = os.environ.get("SQLFRONT_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sqlfront" / "kernels" / _own_fingerprint()


@functools.cache
def _own_fingerprint() -> str:
    """That of this package, once per process: every kernel asks for it."""
    return fingerprint(Path(__file__).parent)


def fingerprint(package: Path) -> str:
    """A hash of the sources in `package` and of the tools and processor that compile them."""
    digest = hashlib.sha256()
    for part in (numba.__version__, llvmlite.__version__, sys.version, platform.machine(), _processor()):
        digest.update(part.encode() + b"\0")
    for source in sorted(package.rglob("*.py")):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


class Kernel:
    """A function for one signature, without the GIL unless it is `held`. It is loaded from the cache, or compiled, when
    it is first called or met in another that is being compiled: what is only called from compiled kernels is in their
    machine code."""

    def __init__(
        self, function: Callable[..., Any], signature: Any, inline: Literal["never", "always"], held: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._signature, self._held, self._compiled = function, signature, held, False
        # Numba asks these of what a function to be compiled calls.
        self.targetoptions: dict[str, Literal["never", "always"]] = {"inline": inline}

    @property
    def dispatcher(self) -> Any:
        """Numba's own object, compiled."""
        if not self._compiled:
            self._compiled = True  # Before it is: a recursive function meets itself.
            with _wrapping_overflow():
                self._dispatcher.compile(self._signature)
        return self._dispatcher

    @functools.cached_property
    def _dispatcher(self) -> Any:
        directory = cache_directory()
        _announce(directory)
        before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
        numba.config.CACHE_DIR = str(directory)  # type: ignore[attr-defined]
        try:
            return numba.njit(cache=True, nogil=not self._held, inline=self.targetoptions["inline"])(self.py_func)
        finally:
            numba.config.CACHE_DIR = before  # type: ignore[attr-defined]

    @property
    def _numba_type_(self) -> Any:
        return numba.types.Dispatcher(self.dispatcher)

    def __call__(self, *arguments: Any) -> Any:
        return self.dispatcher(*arguments)


_kernels: list[Kernel] = []


def kernel(signature: Any, *, inline: bool = False, held: bool = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a kernel of a signature, a string or numba's own, that keeps the GIL if it is to be `held`."""

    def make(function: Callable[..., Any]) -> Kernel:
        made = Kernel(function, signature, "always" if inline else "never", held)
        _kernels.append(made)
        return made

    return make


def compile_all() -> None:
    """Compile, or load, every kernel of the package."""
    for folder in _FOLDERS:
        for source in sorted((Path(__file__).parent / folder).glob("*.py")):
            importlib.import_module(f"{__package__}.{folder}.{source.stem}")
    for made in _kernels:
        _ = made.dispatcher


def entry_point(made: Kernel) -> Any:
    """The compiled function itself, without numba's type dispatch. It checks nothing: pass exact types."""
    return made.dispatcher.overloads[made.dispatcher.signatures[0]].entry_point


@contextmanager
def _wrapping_overflow() -> Iterator[None]:
    """Integer arithmetic that is compiled within wraps around.

    Numba marks signed arithmetic as never overflowing (LLVM's nsw), so LLVM may fold `a * M >= b * M` to `a >= b` and a
    test for a carry to False. Hashes and limbs overflow on purpose.
    """
    before = [names["_int_arith_flags"] for names in _ARITHMETIC]
    for names in _ARITHMETIC:
        names["_int_arith_flags"] = lambda _type: []
    try:
        yield
    finally:
        for names, flags in zip(_ARITHMETIC, before, strict=True):
            names["_int_arith_flags"] = flags


def _announce(directory: Path) -> None:
    if not _state["compiling"] and not directory.exists():
        _state["compiling"] = True
        directory.mkdir(parents=True, exist_ok=True)
        print("sqlfront: compiling kernels, once on this machine", file=sys.stderr, flush=True)


def _processor() -> str:
    from llvmlite import binding

    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
