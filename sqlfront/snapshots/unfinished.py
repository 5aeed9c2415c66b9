"""A snapshot that is being written: the chunks that have changed since the snapshot before, and links to its files.

A snapshot is written to a folder of another name, synced, and renamed: under its own name it is whole. Chunks that are
as they were stay where they are, in files that older snapshots have written: each snapshot has hard links to those that
it needs, so older snapshots may go. A file of which less than half is needed is left, and so are all but a few: what is
needed of them is written again. So a snapshot takes at most twice the room of its arrays.

Cost: one pass over the arrays, by several threads, and writing the chunks that have changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sqlfront.snapshots import chunks
from sqlfront.snapshots.chunks import PAGE, Array, Chunk, bounds, check, side_by_side

if TYPE_CHECKING:
    from sqlfront.snapshots.snapshot_file import SnapshotFile

LOG = "log"
"""The log of the epochs since a snapshot, in its folder."""
MANIFEST = "manifest"
UNFINISHED = "unfinished-"
LAYOUT = 2
"""The number of this layout: a release reads no snapshot of another one."""
_MOST_FILES, _MOST_PIECES = 16, 5_000
"""Older files that a snapshot needs, and pieces of arrays in them, at most: a process may have some ten thousand
mappings."""

Kept: TypeAlias = dict[str, dict[int, Chunk]]
"""Chunks that stay where they are, by array and number."""


class Unfinished:
    """A snapshot that is being written: its folder, and the arrays, which have to stay as they are only until this has
    been made. Chunks are shared with the snapshot `former`. OSError if there is no room, or no right to write there;
    nothing is left then."""

    def __init__(
        self, folder: Path, name: str, arrays: Mapping[str, np.ndarray], former: SnapshotFile | None = None
    ) -> None:
        self._folder, self._name, self._unfinished = folder, name, folder / f"{UNFINISHED}{name}"
        memory = {key: array.view(np.uint8) for key, array in arrays.items()}
        checks = _checks(memory)
        self._unfinished.mkdir(parents=True)
        with self._or_nothing():
            kept = {} if former is None else self._linked(former, _unchanged(former, memory, checks))
            with open(self._unfinished / file_of(name), "wb") as file:
                self._arrays = {key: _written(file, memory[key], checks[key], kept.get(key, {})) for key in memory}
            self._sizes = _sizes(self._unfinished)

    @property
    def log(self) -> Path:
        """Where the log of the snapshot is."""
        return self._unfinished / LOG

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Let the snapshot be whole, under its own name."""
        with self._or_nothing():
            with open(self._unfinished / file_of(self._name), "rb+") as arrays:
                _sync(arrays)
            numbers = {file: number for number, file in enumerate(self._sizes)}
            places = {
                key: [one.size, [[numbers[file], start, found] for file, start, found in one.chunks]]
                for key, one in self._arrays.items()
            }
            files = list(self._sizes.items())
            described = {**manifest, "layout": LAYOUT, "arrays": places, "files": files, "chunk": chunks.CHUNK}
            text = json.dumps(described)
            with open(self._unfinished / MANIFEST, "wb") as file:
                file.write(f"{hash_of(text)}\n{text}".encode())
                _sync(file)
            _sync_folder(self._unfinished)
            self._unfinished.rename(self._folder / self._name)
            _sync_folder(self._folder)

    def drop(self) -> None:
        """Remove what has been written."""
        shutil.rmtree(self._unfinished, ignore_errors=True)

    def _linked(self, former: SnapshotFile, kept: Kept) -> Kept:
        """The chunks that stay in files of another snapshot, to which there are links then; none on a system that has
        no links: all is written."""
        files = {file for own in kept.values() for file, _, _ in own.values()}
        try:
            for file in files:
                os.link(former.folder / file, self._unfinished / file)
        except OSError:
            for file in files:
                (self._unfinished / file).unlink(missing_ok=True)
            return {}
        return kept

    @contextmanager
    def _or_nothing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.drop()
            raise


def file_of(name: str) -> str:
    """The file of the chunks that the snapshot of this name has written."""
    return f"arrays-{name}"


def hash_of(text: str) -> str:
    """The hash under which a manifest is written."""
    return hashlib.sha256(text.encode()).hexdigest()


def _checks(memory: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    """The checks of all chunks of arrays."""
    parts = [
        (key, array[begin:end]) for key, array in memory.items() for begin, end in bounds(len(array), chunks.CHUNK)
    ]
    found: dict[str, list[int]] = {key: [] for key in memory}
    for (key, _), one in zip(parts, side_by_side(lambda part: check(part[1]), parts), strict=True):
        found[key].append(one)
    return found


def _unchanged(former: SnapshotFile, memory: Mapping[str, np.ndarray], checks: Mapping[str, list[int]]) -> Kept:
    """The chunks that another snapshot has as they are, in files that are worth to be kept."""
    found, used = list[tuple[str, int, Chunk]](), Counter[str]()
    for key, own in checks.items():
        other = former.arrays.get(key)
        if other is None or other.chunk != chunks.CHUNK:
            continue
        same = zip(bounds(len(memory[key]), chunks.CHUNK), other.bounds(), own, other.chunks, strict=False)
        for number, (place, was, found_check, chunk) in enumerate(same):
            if place == was and found_check == chunk[2]:
                found.append((key, number, chunk))
                used[chunk[0]] += -(-(place[1] - place[0]) // PAGE) * PAGE
    worth = {file for file, size in used.most_common(_MOST_FILES) if 2 * size >= former.files[file]}
    kept: Kept = {}
    for key, number, chunk in found:
        if chunk[0] in worth:
            kept.setdefault(key, {})[number] = chunk
    pieces = sum(number - 1 not in own for own in kept.values() for number in own)
    return kept if pieces < _MOST_PIECES else {}


def _written(file: IO[bytes], array: np.ndarray, checks: list[int], kept: Mapping[int, Chunk]) -> Array:
    """An array whose chunks are written to a file, but for those that are `kept` elsewhere, by their numbers. What is
    written of it is one run if all of it is."""
    found, name = list[Chunk](), Path(file.name).name
    for number, (begin, end) in enumerate(bounds(len(array), chunks.CHUNK)):
        if number not in kept:
            file.write(bytes(-file.tell() % PAGE))
            found.append((name, file.tell(), checks[number]))
            file.write(array[begin:end].data)
        else:
            found.append(kept[number])
    return Array(len(array), chunks.CHUNK, tuple(found))


def _sizes(folder: Path) -> dict[str, int]:
    """The sizes of the files with chunks."""
    return {one.name: one.stat().st_size for one in sorted(folder.iterdir()) if one.name.startswith("arrays-")}


def _sync(file: IO[bytes]) -> None:
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
