"""The file of all kernels, compiled ahead of time: found, checked against the sources, loaded.

A wheel brings the file (script/wheel). From a source tree the file is built once (storage/kernels/building.py) and
kept in the user's cache. It holds the fingerprint of the sources: a file of other sources is never used.
SQLFRONT_KERNELS forces a mode: `native` (an error without the file) or `jit` (numba compiles each kernel by itself).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from sqlfront.storage.errors import OperationalError
from sqlfront.storage.native.compilers import has_compilers

HERE = Path(__file__).parents[1] / "kernels"
FILE, OBJECT = "_native.abi3.so", "_native.o"
MODES = ("native", "jit", "")


def mode() -> str:
    """What SQLFRONT_KERNELS asks for: `native`, `jit`, or empty for the file if there is one."""
    asked = os.environ.get("SQLFRONT_KERNELS", "")
    if asked in MODES:
        return asked
    raise OperationalError(
        f"SQLFRONT_KERNELS is {asked!r}",
        why="it forces how kernels are compiled",
        hint="set native or jit, or unset it",
    )


@functools.cache
def loaded() -> ModuleType | None:
    """The kernels of exactly these sources, as functions called `file_function`; None if numba compiles them.
    OperationalError if the mode is `native` and no file fits."""
    if mode() == "jit":
        return None
    found = find()
    if found is None and mode() == "native":
        raise OperationalError(
            "there is no file of compiled kernels for these sources",
            where=f"neither {HERE / FILE} nor {built_file()}",
            why="SQLFRONT_KERNELS=native forbids to compile them in this process",
            hint="sqlfront warm, or unset SQLFRONT_KERNELS",
        )
    return found


def find() -> ModuleType | None:
    """The file of a wheel, or that built from a source tree, if it was made of exactly these sources."""
    for place in (HERE / FILE, built_file(), built_file(OBJECT)):
        if place.exists() and (found := load_file(place)) is not None and found.fingerprint == fingerprint():
            return found
    return None


def built_file(name: str = FILE) -> Path:
    """Where the file built from a source tree is kept: FILE, or OBJECT where there is no C compiler to link it."""
    return cache_base() / "sqlfront" / "kernels" / fingerprint() / name


def cache_base() -> Path:
    """SQLFRONT_CACHE_DIR, or the user's cache."""
    return Path(os.environ.get("SQLFRONT_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@functools.cache
def fingerprint() -> str:
    """That of the sources of this package, once per process."""
    return fingerprint_of(HERE)


def fingerprint_of(package: Path) -> str:
    """A hash of the kernels' sources in a directory, and of the kind of machine."""
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()}".encode())
    for parts in sorted(_sources(str(package))):
        with open(os.path.join(package, *parts), "rb") as source:
            digest.update("/".join(parts).encode() + b"\0" + source.read() + b"\0")
    return digest.hexdigest()[:20]


def _sources(folder: str, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The parts of the path of each source in a directory. Links are not followed. pathlib would take twice the time,
    which is part of opening a file."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path, (*above, entry.name))
            elif entry.name.endswith(".py"):
                yield *above, entry.name


def load_file(place: Path) -> ModuleType | None:
    """The module in a file of kernels, of whatever sources; None if it is an object that nothing can load."""
    if place.suffix == ".o":
        if not has_compilers():
            return None
        from sqlfront.storage.native.object_file import load_object

        return load_object(place)
    spec = importlib.util.spec_from_file_location("_native", place)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
