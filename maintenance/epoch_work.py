"""Where the time of epochs went: programs count steps, and seconds are taken around what may be slow.

One program updates all tree nodes that read a relation. Its seconds are apportioned to these nodes by their steps. The
output of a node is timed by itself. The work of the last epochs is kept.

A row that goes the short way (`RowFastPath`) is not noted by itself: that would cost as much as the row. The rows
between two other epochs are one entry, which is made when the next epoch begins, from the difference of the counters.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from sqlfront.maintenance.output.node import Node
    from sqlfront.maintenance.output.output_change import OutputChange
    from sqlfront.maintenance.relation.encoded import Encoded

KEPT = 100
"""How many entries are kept: epochs, or runs of single rows."""
_SHARED = 0
"""The number of the counter for stores that several nodes read."""


class Counted(NamedTuple):
    """A node by its counter, the relations that it reads, and its columns with their types."""

    name: str
    number: int
    relations: frozenset[str]
    columns: tuple[tuple[str, str], ...] = ()


class Told(NamedTuple):
    """What the output of a node took, how many rows it has; `steps` are among the node's."""

    seconds: float = 0.0
    rows: int | None = None
    steps: int = 0


class Spent(NamedTuple):
    """What a node spent; None is the node of the stores that several nodes read."""

    node: Counted | None
    rows_in: int | None
    rows_out: int | None
    steps: int
    seconds: float | None


@dataclass(slots=True)
class Work:
    """The work of one epoch, or of the `epochs` single rows that end with `number`, whose seconds nobody took; of no
    epoch where a deferred view was brought up to date.

    `before` and `after` are what the `counters` said, `rows` those that each relation brought, `programs` the seconds
    of the programs, `phases` the seconds of what is no node's.
    """

    counters: np.ndarray
    nodes: tuple[Counted, ...]
    before: np.ndarray
    after: np.ndarray
    number: int = 0
    epochs: int = 1
    seconds: float | None = None
    programs: float = 0.0
    rows: dict[str, int] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)

    def took(self, phase: str, seconds: float) -> None:
        """Add to the seconds of a phase."""
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    def ran(self, stage: Iterable[Encoded], seconds: float) -> None:
        """The programs over these changes of relations took so long."""
        for item in stage:
            self.rows[item.relation.name] = item.rows
        self.programs += seconds

    def output(self, node: Node, done: Sequence[Encoded]) -> OutputChange:
        """The output of a node, timed."""
        before, started = int(self.counters[node.number]), time.perf_counter()
        change = node.output(done)
        steps = int(self.counters[node.number]) - before
        self.told[node.name] = Told(time.perf_counter() - started, len(change), steps)
        return change

    def spent(self) -> Iterator[Spent]:
        """What each node has spent whose relations changed, and what stores did that several read."""
        total = sum((self.after - self.before).tolist()) - sum(one.steps for one in self.told.values())
        for node in self.nodes:
            rows = [self.rows[relation] for relation in node.relations & self.rows.keys()]
            if rows or (self.seconds is None and self._steps(node.number)):
                yield self._spent(node, sum(rows) if rows else None, total)
        if self._steps(_SHARED):
            yield self._spent(None, None, total)

    def other_seconds(self) -> float | None:
        """The seconds that belong to no phase and to no node."""
        if self.seconds is None:
            return None
        told = sum(one.seconds for one in self.told.values())
        return max(self.seconds - self.programs - told - sum(self.phases.values()), 0.0)

    def _spent(self, node: Counted | None, rows: int | None, total: int) -> Spent:
        told = Told() if node is None else self.told.get(node.name, Told())
        steps = self._steps(_SHARED if node is None else node.number)
        seconds = told.seconds + (self.programs * (steps - told.steps) / total if total else 0.0)
        return Spent(node, rows, told.rows, steps, None if self.seconds is None else seconds)

    def _steps(self, number: int) -> int:
        return int(self.after[number] - self.before[number])


class EpochLog:
    """The work of the last epochs, from the `counters` of the machine.

    `_counts` is what they said after epoch `_epoch`, the last one noted. Only epochs move them, and what is passed
    over.
    """

    def __init__(self, counters: np.ndarray) -> None:
        self._counters, self._counts = counters, counters[:1].copy()
        self._kept: deque[Work] = deque(maxlen=KEPT)
        self._nodes: tuple[Counted, ...] = ()
        self._used, self._epoch = 1, 0

    def know(self, nodes: Iterable[Counted], epoch: int) -> None:
        """Count these nodes from now on, before the epoch after this one."""
        self._gather(epoch)
        self._nodes = tuple(nodes)
        self._used = 1 + max((node.number for node in self._nodes), default=0)
        self.pass_over(epoch)

    def pass_over(self, epoch: int) -> None:
        """What has been counted until now is no epoch's: one was taken back, or the numbers begin at another one."""
        self._epoch, self._counts = epoch, self.counts()

    def counts(self) -> np.ndarray:
        """The counters of the nodes now."""
        return self._counters[: self._used].copy()

    def begin(self, epoch: int) -> Work:
        """The work of the epoch after this one."""
        self._gather(epoch)
        return Work(self._counters, self._nodes, self._counts, self._counts)

    def end(self, work: Work, epoch: int, seconds: float, epochs: int = 1) -> None:
        """The work is that of a committed epoch; or of none, after this one."""
        work.number, work.epochs, work.seconds = epoch, epochs, seconds
        self._kept.append(work)
        self._epoch, self._counts = epoch, work.after

    def last(self, epoch: int) -> list[Work]:
        """The work of the last epochs up to this one, oldest first."""
        self._gather(epoch)
        return list(self._kept)

    def _gather(self, epoch: int) -> None:
        """Note the single rows since the last epoch that was noted."""
        if epoch > self._epoch:
            counts = self.counts()
            self._kept.append(Work(self._counters, self._nodes, self._counts, counts, epoch, epoch - self._epoch))
            self._epoch, self._counts = epoch, counts
