"""The files of a snapshot: a manifest (JSON under its hash), and the memory of all arrays, in chunks.

The chunks are in files that this snapshot, and older ones, have written (unfinished.py). Large arrays are mapped,
copy-on-write, and checked before their first use (unchecked.py). The others are read and checked at once. The log of
the epochs since is in the same folder. No file of a snapshot is ever written again, so a mapping has what has been
checked.

Cost: one pass over the arrays, bound by the disk or by memory. Several threads check.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sqlfront.snapshots.chunks import Array, Chunk, check, side_by_side
from sqlfront.snapshots.unfinished import LAYOUT, MANIFEST, UNFINISHED, hash_of
from sqlfront.snapshots.unfinished import LOG as LOG
from sqlfront.storage.errors import OperationalError
from sqlfront.storage.kernels.tables.mapped_memory import map_file, unmap
from sqlfront.storage.stores.words import words_at

SUFFIX = ".sqlfront"
"""What the name of a database file's folder of snapshots adds to its own."""

_MAPPED_FROM = 1 << 16
"""Bytes from which on an array is mapped: a process may have some ten thousand mappings."""


def folder_of(path: str) -> Path:
    """Where the snapshots of a database file are."""
    return Path(f"{os.path.realpath(path)}{SUFFIX}")


def all_in(folder: Path) -> list[Path]:
    """The snapshots in a folder: two, if a process has been killed before it removed the older one."""
    return [one for one in folder.iterdir() if not one.name.startswith(UNFINISHED)]


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
        self.manifest, self.files, self.arrays = _read_manifest(folder / MANIFEST)
        for name, size in self.files.items():
            try:
                found = (folder / name).stat().st_size
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
        parts = [(chunk, memory[begin:end]) for chunk, (begin, end) in zip(found.chunks, found.bounds(), strict=True)]
        if side_by_side(self._fill, parts) != [check for _, _, check in found.chunks]:
            raise changed(name)

    def mapped(self, name: str, size: int) -> int:
        """The address of an array of this size, mapped and not checked yet, which belongs to the caller; 0 if it is to
        be read: it is small, or the system cannot map it."""
        found = self._found(name, size)
        if size < _MAPPED_FROM or any(start % mmap.PAGESIZE for _, start, _ in found.chunks):
            return 0
        address = 0
        for begin, file, start, length in found.runs():
            with open(self.folder / file, "rb") as opened:
                # The first run has room for the others, which take the place of what follows it.
                place = map_file(address and address + begin, opened.fileno(), start, length if address else size)
            if not place:
                if address:
                    unmap(address, size)
                return 0
            address = address or place
        return address

    def changed(self, mapped: Mapping[str, int]) -> set[str]:
        """The arrays, by their names and addresses, whose checks do not hold. O(bytes)."""
        parts = [
            (name, chunk[2], words_at(address + begin, (end - begin) // 8).view(np.uint8))
            for name, address in mapped.items()
            for chunk, (begin, end) in zip(self.arrays[name].chunks, self.arrays[name].bounds(), strict=True)
        ]
        found = side_by_side(lambda part: check(part[2]), parts)
        return {name for (name, known, _), seen in zip(parts, found, strict=True) if known != seen}

    def verify(self) -> None:
        """Check all arrays. O(bytes)."""
        for name, one in self.arrays.items():
            self.read(name, np.empty(one.size, np.uint8))

    def _found(self, name: str, size: int) -> Array:
        found = self.arrays.get(name)
        if found is None or found.size != size:
            raise damaged(f"array {name} is not there, or of another size")
        return found

    def _fill(self, part: tuple[Chunk, np.ndarray]) -> int:
        """Read one chunk from its place in its file; its check."""
        (name, start, _), memory = part
        into = memory.data
        with open(self.folder / name, "rb", buffering=0) as file:
            file.seek(start)
            done = 0
            while done < len(into):
                count = file.readinto(into[done:])
                if not count:
                    raise damaged("its arrays end too early")
                done += count
        return check(memory)


def damaged(why: str) -> OperationalError:
    """The error for a snapshot that is not as it was written."""
    return OperationalError("the snapshot is damaged", why=why)


def changed(name: str) -> OperationalError:
    """The error for an array that is not as it was written."""
    return damaged(f"array {name} has changed: its check does not hold")


def _read_manifest(path: Path) -> tuple[dict[str, Any], dict[str, int], dict[str, Array]]:
    """What is described, the sizes of the files with chunks, and the arrays."""
    try:
        found, _, text = path.read_bytes().decode(errors="replace").partition("\n")
    except OSError as error:
        raise damaged(f"its manifest cannot be read: {error}") from error
    if found != hash_of(text):
        raise damaged("its manifest has changed: its hash does not hold")
    manifest = json.loads(text)
    if manifest.pop("layout", None) != LAYOUT:
        raise OperationalError("the snapshot is not used", why="another release of sqlfront has written it")
    arrays, files, chunk = manifest.pop("arrays"), dict(manifest.pop("files")), manifest.pop("chunk")
    names = list(files)
    return (
        manifest,
        files,
        {
            key: Array(size, chunk, tuple((names[file], start, check) for file, start, check in places))
            for key, (size, places) in arrays.items()
        },
    )
