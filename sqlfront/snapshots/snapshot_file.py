"""The files of a snapshot: a manifest (JSON under its hash), and the memory of all arrays.

A snapshot is written to a folder of another name, synced, and renamed: under its own name it is whole. Each array
begins at a page. Large arrays are mapped, copy-on-write, and checked before their first use (unchecked.py). The others
are read and checked at once. The log of the epochs since is in the same folder. No file of a snapshot is ever written
again under its name, so a mapping has what has been checked.

Cost: one pass over the arrays each way, bound by the disk or by memory. Several threads check.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sqlfront.storage.errors import OperationalError
from sqlfront.storage.kernels.tables.mapped_memory import check_of, map_file
from sqlfront.storage.stores.table import words_at

LOG = "log"
"""The log of the epochs since a snapshot, in its folder."""
_MANIFEST, _ARRAYS = "manifest", "arrays"
_UNFINISHED = "unfinished-"
_PAGE, _CHUNK = max(1 << 12, mmap.PAGESIZE), 1 << 24
_MAPPED_FROM = 1 << 16
"""Bytes from which on an array is mapped: a process may have some ten thousand mappings."""
_THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Array:
    """Where an array is among the others, and a check for each of its chunks."""

    start: int
    size: int
    checks: tuple[int, ...]


def folder_of(path: str) -> Path:
    """Where the snapshots of a database file are."""
    return Path(f"{os.path.realpath(path)}.sqlfront")


class Unfinished:
    """A snapshot that is being written: its folder, and the arrays, which have to stay as they are only until this has
    been made. OSError if there is no room, or no right to write there; nothing is left then."""

    def __init__(self, folder: Path, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        self._folder, self._name, self._unfinished = folder, name, folder / f"{_UNFINISHED}{name}"
        self._unfinished.mkdir(parents=True)
        with self._or_nothing(), open(self._unfinished / _ARRAYS, "wb") as file:
            self._places = {key: _append(file, array) for key, array in arrays.items()}

    @property
    def log(self) -> Path:
        """Where the log of the snapshot is."""
        return self._unfinished / LOG

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Let the snapshot be whole, under its own name."""
        with self._or_nothing():
            arrays = self._unfinished / _ARRAYS
            with open(arrays, "rb+") as file:
                _sync(file)
            places = {
                key: [start, size, [_check(arrays, *chunk) for chunk in _chunks(start, size)]]
                for key, (start, size) in self._places.items()
            }
            text = json.dumps({**manifest, "arrays": places})
            with open(self._unfinished / _MANIFEST, "wb") as file:
                file.write(f"{_hash(text)}\n{text}".encode())
                _sync(file)
            _sync_folder(self._unfinished)
            self._unfinished.rename(self._folder / self._name)
            _sync_folder(self._folder)

    def drop(self) -> None:
        """Remove what has been written."""
        shutil.rmtree(self._unfinished, ignore_errors=True)

    @contextmanager
    def _or_nothing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.drop()
            raise


def all_in(folder: Path) -> list[Path]:
    """The snapshots in a folder: two, if a process has been killed before it removed the older one."""
    return [one for one in folder.iterdir() if not one.name.startswith(_UNFINISHED)]


def remove_others(folder: Path, name: str | None) -> None:
    """Remove all snapshots but that of this name, and unfinished ones; the folder too, if there is no name."""
    if not folder.is_dir():
        return
    for one in folder.iterdir():
        if one.name != name:
            shutil.rmtree(one, ignore_errors=True)
    if name is None:
        folder.rmdir()


class SnapshotFile:
    """A snapshot that is read. OperationalError, with what is wrong, for one that is not as it was written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest, self.arrays = _read_manifest(folder / _MANIFEST)
        size = max((one.start + one.size for one in self.arrays.values()), default=0)
        try:
            found = (folder / _ARRAYS).stat().st_size
        except OSError as error:
            raise damaged(f"its arrays cannot be read: {error}") from error
        if found != size:
            raise damaged(f"its arrays have {found} bytes instead of {size}")

    @property
    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(one.size for one in self.arrays.values())

    def read(self, name: str, into: np.ndarray) -> None:
        """Fill memory with an array, and check it."""
        found, memory = self._found(name, into.nbytes), into.view(np.uint8)
        parts = [(found.start + start, memory[start : start + size]) for start, size in _chunks(0, found.size)]
        if tuple(_side_by_side(self._fill, parts)) != found.checks:
            raise changed(name)

    def mapped(self, name: str, size: int) -> int:
        """The address of an array of this size, mapped and not checked yet, which belongs to the caller; 0 if it is to
        be read: it is small, or the system cannot map it."""
        found = self._found(name, size)
        if size < _MAPPED_FROM or found.start % mmap.PAGESIZE:
            return 0
        with open(self.folder / _ARRAYS, "rb") as file:
            address: int = map_file(file.fileno(), found.start, size)
        return address

    def changed(self, mapped: Mapping[str, int]) -> set[str]:
        """The arrays, by their names and addresses, whose checks do not hold. O(bytes)."""
        parts = [
            (name, check, words_at(address + start, size // 8).view(np.uint8))
            for name, address in mapped.items()
            for check, (start, size) in zip(self.arrays[name].checks, _chunks(0, self.arrays[name].size), strict=True)
        ]
        found = _side_by_side(lambda part: _check_of(part[2]), parts)
        return {name for (name, check, _), seen in zip(parts, found, strict=True) if check != seen}

    def verify(self) -> None:
        """Check all arrays. O(bytes)."""
        for name, one in self.arrays.items():
            self.read(name, np.empty(one.size, np.uint8))

    def _found(self, name: str, size: int) -> Array:
        found = self.arrays.get(name)
        if found is None or found.size != size:
            raise damaged(f"array {name} is not there, or of another size")
        return found

    def _fill(self, part: tuple[int, np.ndarray]) -> int:
        """Read one chunk from its place in the file; its check."""
        start, chunk = part
        memory = chunk.data
        with open(self.folder / _ARRAYS, "rb", buffering=0) as file:
            file.seek(start)
            done = 0
            while done < len(memory):
                count = file.readinto(memory[done:])
                if not count:
                    raise damaged("its arrays end too early")
                done += count
        return _check_of(chunk)


def damaged(why: str) -> OperationalError:
    """The error for a snapshot that is not as it was written."""
    return OperationalError("the snapshot is damaged", why=why)


def changed(name: str) -> OperationalError:
    """The error for an array that is not as it was written."""
    return damaged(f"array {name} has changed: its check does not hold")


def _append(file: BinaryIO, array: np.ndarray) -> tuple[int, int]:
    """Write an array; where it begins, and its size."""
    file.write(bytes(-file.tell() % _PAGE))
    start, memory = file.tell(), array.view(np.uint8).data
    file.write(memory)
    return start, len(memory)


def _chunks(start: int, size: int) -> Iterator[tuple[int, int]]:
    """The chunks of an array, as start and size."""
    for first in range(start, start + size, _CHUNK):
        yield first, min(_CHUNK, start + size - first)


def _check(path: Path, start: int, size: int) -> int:
    """The check of a part of a file. Without threads of its own: a program that ends can start none."""
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        return _check_of(np.frombuffer(file.read(size), np.uint8))


def _check_of(chunk: np.ndarray) -> int:
    """The check of bytes."""
    words, tail = divmod(len(chunk), 8)
    last = int.from_bytes(chunk[len(chunk) - tail :].tobytes(), "little")
    found: int = check_of(int(chunk.ctypes.data), words, last)
    return found


def _side_by_side(call: Callable[[Any], int], parts: Sequence[Any]) -> list[int]:
    """What is called for each part, on several threads. A program that ends can start none."""
    if len(parts) < 2 or not threading.main_thread().is_alive():
        return [call(part) for part in parts]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(call, parts))


def _read_manifest(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    try:
        found, _, text = path.read_bytes().decode(errors="replace").partition("\n")
    except OSError as error:
        raise damaged(f"its manifest cannot be read: {error}") from error
    if found != _hash(text):
        raise damaged("its manifest has changed: its hash does not hold")
    manifest = json.loads(text)
    places = manifest.pop("arrays")
    return manifest, {name: Array(start, size, tuple(checks)) for name, (start, size, checks) in places.items()}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk; systems that cannot open folders keep them in order by themselves."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
