"""The changes a feed holds, of whole epochs, oldest first: Arrow tables, or words that become one when they are read.

All subscriptions read the same changes. What a table takes to be read, its plain types and its versions, is worked out
once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlfront.maintenance.output.output_change import images, is_plain, plain, types_of
from sqlfront.maintenance.output.told_view import WordsChange

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.output_change import OutputChange

_PACKED, _FEW = 256, 64


class HeldChange:
    """The changes of one or more whole epochs, from number `first` to `last`, in order of epochs: a table of so many
    `rows`, or the change of one epoch at a `moment`, which becomes one when it is read. `types` are DuckDB's of the
    view's columns; None if they are plain ones."""

    def __init__(
        self,
        held: Any,
        types: Mapping[str, str] | None,
        first: int,
        last: int,
        moment: int | None = None,
    ) -> None:
        self._held, self._types, self.first, self.last, self._moment = held, types, first, last, moment
        self.rows: int = held.num_rows if moment is None else held.copies
        self._lossless: pa.Table | None = held if moment is None else None
        self._plain: pa.Table | None = self._lossless if types is None else None

    @staticmethod
    def joined(changes: Sequence[HeldChange]) -> HeldChange | None:
        """Changes that wait as words as one; None if they do not, or if some rows have copies. O(rows)."""
        first, own = changes[0], [one._held for one in changes]
        if not all(isinstance(one, WordsChange) and one.copies == len(one) and one.told is own[0].told for one in own):
            return None
        told, types = own[0].told, first._types
        change = told.joined(own, [(one.first, one._moment or 0) for one in changes])
        block, texts, kinds = change.block, change.texts, types_of(change.kinds)
        found = HeldChange(told.table(block, texts, None, kinds), types, first.first, changes[-1].last)
        found._plain = found._lossless if types is None else told.table(block, texts, None, kinds, types)
        return found

    @property
    def lossless(self) -> pa.Table:
        """The changes in types from which DuckDB restores all of its own; made once."""
        if self._types is None:
            return self.plain
        if self._lossless is None:
            self._lossless = images(self._held, self.first, self._moment or 0)
        return self._lossless

    @property
    def plain(self) -> pa.Table:
        """The changes in plain types; made once."""
        if self._plain is None:
            types = self._types
            if self._moment is not None:
                self._plain = images(self._held, self.first, self._moment, types)
            else:
                self._plain = plain(self._held, types or {})
        return self._plain

    @staticmethod
    def in_few(changes: Iterable[HeldChange]) -> list[HeldChange]:
        """Changes in their order, those that wait one after the other as one. O(rows)."""
        found = list[HeldChange]()
        for waits, run in groupby(changes, lambda change: change._moment is not None):
            own = list(run)
            joined = HeldChange.joined(own) if waits and len(own) > 1 else None
            found += own if joined is None else [joined]
        return found

    def split(self, version: int) -> tuple[HeldChange | None, HeldChange | None]:
        """The epochs up to this one, and those after it. O(log rows)."""
        if version < self.first:
            return None, self
        if version >= self.last:
            return self, None
        versions = self.lossless.column("_commit_version").to_numpy()
        end = int(np.searchsorted(versions, version, side="right"))
        former, later = self.lossless.slice(0, end), self.lossless.slice(end)
        last, first = int(versions[end - 1]), int(versions[end])
        return HeldChange(former, self._types, self.first, last), HeldChange(later, self._types, first, self.last)


class FeedLog:
    """The changes of all epochs after `since`, as long as they are held; `rows` of them.

    A change of one row takes two kilobytes as words, seven as a table. So every 256 small ones are packed into one.
    """

    def __init__(self, since: int, types: Mapping[str, str]) -> None:
        self.since, self.rows = since, 0
        self._types = None if all(map(is_plain, types.values())) else types
        self._changes: deque[HeldChange] = deque()
        self._single = 0

    def add(self, change: OutputChange, epoch: int, moment: int, most: int) -> None:
        """Note an epoch's change, which had come at a `moment`. Of those before it the oldest go until at most `most`
        rows are held. O(1), amortised, if the change lasts; else O(rows)."""
        held = HeldChange(change, self._types, epoch, epoch, moment)
        if not change.lasts:
            held = HeldChange(held.lossless, self._types, epoch, epoch)
        self._changes.append(held)
        self._single += 1
        self.rows += held.rows
        while self.rows > most and (len(self._changes) > 1 or self._changes[0].first < self._changes[0].last):
            self._drop_oldest()
        self._single = min(self._single, len(self._changes))
        if self._single == _PACKED:
            self._pack()

    def _pack(self) -> None:
        """Make one table of the last ones, if these are small."""
        import pyarrow as pa

        last = [self._changes[-number] for number in range(self._single, 0, -1)]
        if sum(change.rows for change in last) <= _FEW * len(last):
            for _ in last:
                self._changes.pop()
            if (packed := HeldChange.joined(last)) is None:
                table = pa.concat_tables([change.lossless for change in last]).combine_chunks()
                packed = HeldChange(table, self._types, last[0].first, last[-1].last)
            self._changes.append(packed)
        self._single = 0

    def after(self, version: int) -> list[HeldChange]:
        """The changes of the epochs after `version`, oldest first. O(tables found)."""
        found: list[HeldChange] = []
        for change in reversed(self._changes):
            rest = change if change.first > version else change.split(version)[1]
            if rest is None:
                break
            found.append(rest)
        return found[::-1]

    def clear(self) -> None:
        """Hold nothing more."""
        self._changes.clear()
        self.rows = self._single = 0

    def _drop_oldest(self) -> None:
        oldest = self._changes.popleft()
        self.since = oldest.first
        gone, rest = (oldest, None) if oldest.first == oldest.last else oldest.split(self.since)
        assert gone is not None
        self.rows -= gone.rows
        if rest is not None:
            self._changes.appendleft(rest)
