"""The changes of base relations since the oldest epoch that a reader has pinned. They rewind the views for the reader.

A reader of an older epoch has these changes undone in the state, reads, and has them redone (`Transaction.applied`).
While no epoch is pinned, nothing is kept.

Changes are kept as values: dictionaries may forget codes. They lie in *spans*, from one pinned epoch to the next. A
span whose pins have gone is joined to the span before. Spans are netted when they have grown to twice their size.
Beyond the memory limit the oldest span goes, and its pins are `lost`. An epoch pays for a copy of its rows. All spans
go with the last pin.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from sqlfront.maintenance.relation.waiting import SINGLE_ROW, Waiting

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence

    from sqlfront.maintenance.engine import Change
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded

_FIRST_LOOK = 1 << 24


class Pin:
    """An epoch that a reader goes on to see, as long as the reader keeps this. `lost` are the bytes for which there was
    no room within the setting `limit`, once the changes since could not be kept."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.lost, self.limit = 0, ""


class _Span:
    """What has changed from the epoch of some pins on, until the next pinned epoch."""

    def __init__(self) -> None:
        self.pins: weakref.WeakSet[Pin] = weakref.WeakSet()
        self.changes: dict[Relation, Waiting] = {}

    def of(self, relation: Relation) -> Waiting:
        """What has changed in a relation."""
        return self.changes.setdefault(relation, Waiting(relation))

    def bytes(self) -> int:
        return sum(waiting.bytes for waiting in self.changes.values())

    def lose(self, taken: int, limit: str) -> None:
        """The changes go, which took so many bytes with all later ones."""
        for pin in self.pins:
            pin.lost, pin.limit = taken, limit


class KeptChanges:
    """The kept changes of an engine, whose `lock` is held. `limit` is how many bytes they may take."""

    def __init__(self, lock: threading.RLock, limit: Callable[[], float]) -> None:
        self._lock, self._limit = lock, limit
        self._spans: list[_Span] = []
        self._grown, self._next_look = 0, _FIRST_LOOK
        self.pinned: dict[int, weakref.ref[Pin]] = {}

    def pin(self, epoch: int) -> Pin:
        """Keep what changes from now on, for whoever keeps the pin."""
        made, owner = Pin(epoch), weakref.ref(self)
        number = id(made)

        def unpin(_: weakref.ref[Pin]) -> None:
            if (kept := owner()) is not None:
                kept._unpin(number)

        self.pinned[number] = weakref.ref(made, unpin)  # First: else the last other pin may end, and take the spans.
        self._join()
        if not self._spans or self._spans[-1].changes:
            self._spans.append(_Span())
        self._spans[-1].pins.add(made)
        return made

    def add(self, applied: Iterable[Encoded]) -> None:
        """Keep what a committed epoch has changed in base relations."""
        if (span := self._last()) is None:
            return
        for item in applied:
            if item.relation.is_base:
                self._grown += span.of(item.relation).add(item)
        if self._grown >= self._next_look:
            self._bound()

    def add_row(self, relation: Relation, row: Sequence[Any], weight: int) -> None:
        """Keep a row that a committed epoch has changed in a base relation. O(1), amortised."""
        if (span := self._last()) is None:
            return
        span.of(relation).add_row(row, weight)
        self._grown += SINGLE_ROW
        if self._grown >= self._next_look:
            self._bound()

    def since(self, pin: Pin, relations: Iterable[Relation]) -> dict[str, Change]:
        """The netted changes of relations since a pinned epoch which is not lost, with their signs turned."""
        from sqlfront.maintenance.engine import Change

        start = next(place for place, span in enumerate(self._spans) if pin in span.pins)
        found = {}
        for relation in relations:
            waiting = Waiting(relation)
            for span in self._spans[start:]:
                if relation in span.changes:
                    waiting.join(span.changes[relation])
            if waiting.rows:
                rows, weights = waiting.netted()
                found[relation.name] = Change(rows, -weights)
        return found

    @property
    def oldest(self) -> int | None:
        """The oldest epoch whose changes since are kept."""
        return min((pin.epoch for span in self._spans for pin in span.pins), default=None)

    @property
    def rows(self) -> int:
        """How many changed rows are kept."""
        return sum(waiting.rows for span in self._spans for waiting in span.changes.values())

    def bytes(self) -> int:
        """The memory of the kept changes. O(pinned epochs)."""
        return sum(span.bytes() for span in self._spans)

    def give_up(self, most: float, limit: str) -> None:
        """Keep at most so many bytes, by a setting: the oldest changes go, and their pins are lost."""
        self._net()
        while self._spans and (taken := self.bytes()) > most:
            self._spans[0].lose(taken, limit)
            self._spans = self._spans[1:]
        self._grown = self.bytes()
        if not self._spans:  # For the pins to come.
            self.pinned.clear()

    def _last(self) -> _Span | None:
        """Where the changes of now belong, if an epoch is pinned."""
        if not self.pinned:
            self._forget()
        spans = self._spans
        return spans[-1] if spans else None

    def _forget(self) -> None:
        self._spans, self._grown = [], 0

    def _unpin(self, number: int) -> None:
        """A pin has gone, in any thread: an epoch may be changing the spans in another one, and lets them go then."""
        self.pinned.pop(number, None)
        if self._lock.acquire(False):
            try:
                if not self.pinned:
                    self._forget()
            finally:
                self._lock.release()

    def _join(self) -> None:
        """Join spans that nobody has pinned to those before. The first goes."""
        kept: list[_Span] = []
        for span in self._spans:
            if span.pins:
                kept.append(span)
            elif kept:
                for relation, waiting in span.changes.items():
                    kept[-1].of(relation).join(waiting)
        self._spans = kept

    def _net(self) -> None:
        """Keep each changed row once between two pinned epochs."""
        self._join()
        for span in self._spans:
            for waiting in span.changes.values():
                waiting.net()

    def _bound(self) -> None:
        """Net what is kept. While it is too much, give up the oldest pins."""
        self.give_up(self._limit(), "memory_limit")
        self._next_look = max(2 * self._grown, _FIRST_LOOK)
