"""What a shard has been sent, as it must be kept: a snapshot of its rows, and the pieces that came since.

`ShardLog` keeps it in this process; who keeps it elsewhere replaces the methods that touch its lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sqlfront.maintenance.program.netting import net

if TYPE_CHECKING:
    import pyarrow as pa

COMPACT_FROM = 1 << 16  # Shorter logs are not worth a rewrite.


class At(NamedTuple):
    """Where a shard is: how many epochs it has seen, and what tells this one from another try at it."""

    number: int
    token: str


START = At(0, "")


@dataclass(frozen=True)
class ShardDelta:
    """Changed rows of one stream, with `_weight`, as Arrow's IPC bytes."""

    stream: int
    rows: bytes
    count: int


def pack(stream: int, rows: pa.Table) -> ShardDelta:
    """A piece of these rows."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return ShardDelta(stream, sink.getvalue().to_pybytes(), rows.num_rows)


def unpack(rows: bytes) -> pa.Table:
    """The rows of a piece."""
    import pyarrow as pa

    with pa.ipc.open_stream(rows) as reader:
        return reader.read_all()


class ShardLog:
    """The log of one shard, in this process. A snapshot and log entries; compacted when the log is the longer one."""

    def __init__(self) -> None:
        self._at = self._base = START
        self._rows = (0, 0)
        self._snapshot: list[ShardDelta] = []
        self._entries: list[tuple[At, ShardDelta]] = []

    # What is kept --------------------------------------------------------------------------------

    def at(self) -> At:
        """Where the shard is by the last committed epoch."""
        return self._at

    def base(self) -> At:
        """Where the shard was when its snapshot was taken."""
        return self._base

    def rows(self) -> tuple[int, int]:
        """The numbers of rows in the snapshot and in the log."""
        return self._rows

    def snapshot(self) -> Iterable[ShardDelta]:
        return self._snapshot

    def entries(self) -> Iterable[tuple[At, ShardDelta]]:
        """The pieces since the snapshot, each with where the shard was behind it, oldest first."""
        return self._entries

    def add(self, at: At, rows: tuple[int, int], pieces: Sequence[ShardDelta]) -> None:
        """Put pieces behind the others, and note where the shard is and how many rows are kept."""
        self._at, self._rows = at, rows
        self._entries += [(at, piece) for piece in pieces]

    def replace(self, at: At, rows: tuple[int, int], snapshot: Sequence[ShardDelta]) -> None:
        """Keep a snapshot and no entries."""
        self._at, self._base, self._rows = at, at, rows
        self._snapshot, self._entries = list(snapshot), []

    # What is done with it ------------------------------------------------------------------------

    def append(self, at: At, pieces: Sequence[ShardDelta]) -> None:
        """Note an epoch. The first one is the snapshot; a longer log is netted into it: O(1) a row, amortised."""
        new = sum(piece.count for piece in pieces)
        if self.at() == START:
            self.replace(at, (new, 0), pieces)
            return
        kept, since = self.rows()
        since += new
        self.add(at, (kept, since), pieces)
        if since > max(kept, COMPACT_FROM):
            compacted = list(_netted(self.all()))
            self.replace(at, (sum(piece.count for piece in compacted), 0), compacted)

    def all(self) -> Iterator[ShardDelta]:
        """Everything, the snapshot first."""
        yield from self.snapshot()
        yield from (piece for _, piece in self.entries())

    def after(self, at: At) -> list[ShardDelta] | None:
        """The pieces since the shard was there; None if it never was, or is not known any more."""
        found: list[ShardDelta] | None = [] if at == self.base() else None
        for own, piece in self.entries():
            if own == at:
                found = []
            elif found is not None:
                found.append(piece)
        return found


def _netted(pieces: Iterable[ShardDelta]) -> Iterator[ShardDelta]:
    """The rows that pieces add up to. O(rows)."""
    import pyarrow as pa

    streams: dict[int, list[pa.Table]] = {}
    for piece in pieces:
        streams.setdefault(piece.stream, []).append(unpack(piece.rows))
    for stream, tables in streams.items():
        rows = pa.concat_tables(tables).combine_chunks()
        weights = rows.column(rows.num_columns - 1).to_numpy()
        positions, sums = net(rows.columns[:-1], weights)
        kept = rows.take(pa.array(positions)).set_column(rows.num_columns - 1, rows.field(rows.num_columns - 1), [sums])
        for start in range(0, kept.num_rows, 1 << 16):
            yield pack(stream, kept.slice(start, 1 << 16))
