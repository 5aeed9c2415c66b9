"""The log of a snapshot: the epochs since, each written before DuckDB commits it.

The file is a sequence of records, one for an epoch: length, check, and the changes by relation. A few rows are texts
that DuckDB casts, more rows are an Arrow stream. An epoch that fails takes its record back.

The file is never synced, and nobody can tell from it whether the last epoch was committed. So a reader has to compare
the log with the tables (`sqlfront/snapshots/contents.py`). If the log cannot be written or grows too long, it is given
up, which leaves an empty file: no epoch fails because of its log.

Cost: one write for an epoch, of some microseconds.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    Changes: TypeAlias = Mapping[str, tuple[pa.Table | pa.RecordBatch | Sequence[Sequence[Any]], Any]]
    """Rows and their weights (None: all are +1) by relation."""

log = logging.getLogger("sqlfront")

_TITLE = b"sqlfront epoch log 1\n"
_FRAME = struct.Struct("<QI")


@dataclass(frozen=True)
class Part:
    """What an epoch has changed in one relation. `rows` are lists of texts and None, or an Arrow table."""

    relation: str
    rows: list[list[str | None]] | pa.Table
    weights: np.ndarray


@dataclass(frozen=True)
class Record:
    """The changes of one epoch; its bytes end at `end`."""

    parts: list[Part]
    end: int


class EpochLog:
    """A log that is written. `relations` are those whose changes it takes, with the number of their columns: it is
    given up if this number is another one."""

    def __init__(self, path: Path, relations: Mapping[str, int], limit: int, end: int = 0) -> None:
        """Begin a log, or go on with one after the record that ends at `end`."""
        self._path, self._relations, self._limit = path, dict(relations), limit
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self.size = end
        os.ftruncate(self._file, end)
        if not end:
            self._write(_TITLE)
        self._last = self.size

    @property
    def holds(self) -> bool:
        """Whether it has all epochs: it has not been given up."""
        return self.size > 0

    @property
    def is_short(self) -> bool:
        """Whether the log holds all epochs, and is far from its limit."""
        return 0 < self.size <= self._limit // 4

    def append(self, changes: Changes) -> None:
        """Write an epoch that is about to be committed."""
        known = {name: change for name, change in changes.items() if name in self._relations}
        self._last = self.size
        if not known or not self.holds:
            return
        try:
            line, *blobs = _body(known, self._relations)
            check = functools.reduce(lambda check, blob: zlib.crc32(blob, check), blobs, zlib.crc32(line))
            self._write(_FRAME.pack(len(line) + sum(blob.nbytes for blob in blobs), check) + line)
            for blob in blobs:
                self._write(blob)
        except (OSError, _UnknownError) as error:
            self.give_up(str(error))
        else:
            if self.size > self._limit:
                self.give_up("it has grown too long")

    def take_back(self) -> None:
        """Forget the last epoch: it was not committed."""
        if self.holds:
            os.ftruncate(self._file, self._last)
            self.size = self._last

    def give_up(self, why: str) -> None:
        """Let the file be empty, and take no more epochs."""
        log.info("sqlfront: %s: the log of the snapshot ends: %s", self._path, why)
        os.ftruncate(self._file, 0)
        self.size = self._last = 0

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)

    def _write(self, words: bytes | memoryview) -> None:
        rest = memoryview(words)
        while rest:
            done = os.write(self._file, rest)
            self.size += done
            rest = rest[done:]


class _UnknownError(Exception):
    """Rows that the log does not know how to write."""


def records(path: Path) -> list[Record] | None:
    """The records of a log; None if there is no log, or it has been given up. A record that is not whole ends it."""
    try:
        words = path.read_bytes()
    except OSError:
        return None
    return list(_records(words)) if words.startswith(_TITLE) else None


def _records(words: bytes) -> Iterator[Record]:
    start = len(_TITLE)
    while start + _FRAME.size <= len(words):
        length, check = _FRAME.unpack_from(words, start)
        body = memoryview(words)[start + _FRAME.size : start + _FRAME.size + length]
        if len(body) < length or zlib.crc32(body) != check:
            return
        start += _FRAME.size + length
        yield Record(list(_parts(body)), start)


def _body(changes: Changes, relations: Mapping[str, int]) -> tuple[bytes, *tuple[memoryview, ...]]:
    """A line that says what the parts are, and then the Arrow streams, each before the weights of its rows."""
    said, blobs = list[Any](), list[memoryview]()
    for name, (rows, weights) in changes.items():
        if isinstance(rows, Sequence):
            width = len(rows[0]) if rows else relations[name]
            said.append([name, list(map(int, weights)), [[_text(value) for value in row] for row in rows]])
        else:
            width = rows.num_columns
            counted = np.ones(1, np.int64) if weights is None else np.asarray(weights, np.int64)
            if len(counted) and (counted == counted[0]).all():
                counted = counted[:1]
            blobs += _stream(rows), memoryview(counted.tobytes())
            said.append([name, rows.num_rows, [blob.nbytes for blob in blobs[-2:]]])
        if width != relations[name]:
            raise _UnknownError(f"{name} has other columns since")
    return json.dumps(said).encode() + b"\n", *blobs


def _parts(body: memoryview) -> Iterator[Part]:
    import pyarrow as pa

    line, _, rest = bytes(body).partition(b"\n")
    at = 0
    for name, weights, rows in json.loads(line):
        if isinstance(weights, list):
            yield Part(name, rows, np.array(weights, np.int64))
            continue
        size, counted = rows
        with pa.ipc.open_stream(pa.py_buffer(rest[at : at + size])) as reader:
            table = reader.read_all()
        # One weight is that of all rows.
        found = np.frombuffer(rest[at + size : at + size + counted], np.int64)
        yield Part(name, table, np.broadcast_to(found, weights) if len(found) == 1 else found)
        at += size + counted


def _text(value: Any) -> str | None:
    """A value as a text that DuckDB casts to it."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, bytes):
        return "".join(f"\\x{byte:02X}" for byte in value)
    return str(value)


def _stream(rows: pa.Table | pa.RecordBatch) -> memoryview:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return memoryview(sink.getvalue())
