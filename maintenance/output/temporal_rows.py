"""A node that keeps rows in the order of what the clock is compared with, and puts out those that pass now.

The rows are stores of the relation that the node reads, one for each column that is compared, with an ordered index by
it. The clock is the second relation that the node reads: a tick is an epoch that replaces its one row. So undoing an
epoch turns the clock back as it turns back any other relation. DuckDB computes the bounds at the clock's value.

A changed row is put out if it passes at the clock's value. A tick lists the rows between the old and the new bound of
each comparison; it puts out those that pass at one of the two times only. Invariant: the output relation has the rows
that pass at the clock's value. Costs: O(log N) for a changed row; O(log N) and a step for each row between the bounds
for a tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.group_store import GroupStore, copies, words_of
from sqlfront.maintenance.output.kept_rows import KeptRowsNode
from sqlfront.maintenance.output.output_change import OutputChange
from sqlfront.maintenance.output.time_bounds import Compared, TestedBound, TimedRows
from sqlfront.maintenance.program.netting import net_words
from sqlfront.maintenance.relation.calendar import NEVER
from sqlfront.maintenance.tree.description import Description
from sqlfront.planner.model.computed_rows import TemporalRows
from sqlfront.planner.theory.wording import table_name

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.output.node import Keeper, Load
    from sqlfront.maintenance.relation.base_relation import Relation
    from sqlfront.maintenance.relation.encoded import Encoded

    Moment = Sequence[np.ndarray]
    """The words of each bound at a value of the clock."""

_SECOND = 1_000_000
_AHEAD = [
    *(_SECOND // 1000, _SECOND // 10, _SECOND, 10 * _SECOND, 60 * _SECOND, 600 * _SECOND, 3600 * _SECOND),
    *(days * 86_400 * _SECOND for days in (1, 7, 30, 365, 3650, 36500)),
]
"""How far a node looks ahead for its next row, in microseconds."""


class TemporalNode(KeptRowsNode):
    """The rows of one relation that pass at the clock's value; see `Node`."""

    rows: TemporalRows

    def __init__(self, name: str, rows: TemporalRows, number: int, keeper: Keeper) -> None:
        super().__init__(name, rows, number, keeper)
        self.relation, self.clock = keeper.relations[rows.table], keeper.relations[rows.clock]
        names = list(dict.fromkeys(bound.column for bound in rows.bounds))
        self._kept = {column: TimedRows(self.relation, column, name) for column in names}
        self._places = frozenset(kept.time_place for kept in self._kept.values())
        self._shown = [column for column, _ in rows.columns]
        self._bounds = [TestedBound(bound, self._kept[bound.column]) for bound in rows.bounds]
        self._known: dict[int, list[Moment]] = {}
        self._calendar = keeper.calendars[rows.clock]
        self._horizon: Moment | None = None
        self._looks = False

    @property
    def _rows(self) -> TimedRows:
        """The rows in one of their orders."""
        return next(iter(self._kept.values()))

    def open(self, load: Load) -> None:
        for kept in self._kept.values():
            kept.open(self._keeper, None, load)

    def feed(self, relation: Relation) -> None:
        """The node's rows are found among those that it keeps."""
        self._look_ahead()
        self._steps()
        self.count_from_now()

    def close(self) -> None:
        self._calendar.forget(self.name)
        for kept in self._kept.values():
            self._keeper.close_store(self.relation, kept.store, self.name)

    @staticmethod
    def planned(name: str, rows: TemporalRows) -> Description:
        bounds = [bound.label for bound in rows.bounds]
        return Description(
            name,
            "temporal filter",
            (rows.table, rows.clock),
            rows.cost.update,
            rows.output,
            rows.label,
            notes=(
                f"rows of {table_name(rows.table)} where {' and '.join(bounds)}",
                "rows wait in the order of the compared values",
            ),
            facts={"temporal": bounds, "of": table_name(rows.table), "clock": rows.clock},
        )

    def stores(self) -> Iterator[tuple[str, str, GroupStore]]:
        for column, kept in self._kept.items():
            yield f"rows of {table_name(self.name)} by {column}", "waiting", kept

    @property
    def relations(self) -> set[str]:
        return {self.rows.table, self.rows.clock}

    def commit(self) -> None:
        """Find out when the next row is due, if the time for which that is known has passed."""
        if self._looks:
            self._looks = False
            self._look_ahead()
            self._machine.counters[self.number] += self._steps()

    def output(self, done: Sequence[Encoded]) -> OutputChange:
        """With N and O for what passes at the new and the old time, N of the rows now without O of those before is
        (N - O) of the rows now, which have moved, and O of the delta."""
        old, new = self._times(done)
        words, weights = self._rows.delta(done)
        if len(words):
            moment = self._moment(old)
            self._note_sooner(words, moment, old)
            kept = self._passing(words, moment)
            words, weights = words[kept], weights[kept]
        if new < old:  # For a reader of an older epoch: what is due is not known from there on.
            self._calendar.set(self.name, new)
        if new != old and new >= self._calendar.of(self.name):
            self._looks = True
            moved = self._moved(self._moment(old), self._moment(new))
            words, weights = np.concatenate([words, moved[0]]), np.concatenate([weights, moved[1]])
            words, weights = net_words(words, weights)
        self._machine.counters[self.number] += len(words) + self._steps()
        return self._rows.change(words.T, weights, self._shown)

    def batches(self) -> Iterator[pa.RecordBatch]:
        words, counts = self._rows.all_rows()
        kept = self._passing(np.ascontiguousarray(words.T), self._moment(self.clock_value()))
        words, counts = words[:, kept], counts[kept]
        yield from self._rows.decoded(copies(words, counts)).select(self._shown).to_batches()

    def clock_value(self) -> int:
        """The clock's value, in microseconds since 1970."""
        assert self.clock.base is not None
        return int(words_of(self.clock.base.table)[0][0, 0])

    def _times(self, done: Sequence[Encoded]) -> tuple[int, int]:
        """The clock's value before and after an epoch with these changes."""
        new = self.clock_value()
        ticks = [item.keep[: item.rows] for item in done if item.relation is self.clock]
        former = [int(row[0]) for rows in ticks for row in rows if row[-1] < 0]
        return (former[0] if former else new), new

    def _moment(self, time: int) -> Moment:
        """The bounds at a value of the clock."""
        return self._from(time)[0]

    def _from(self, time: int) -> list[Moment]:
        """The bounds at a value of the clock, and at the values `_AHEAD` of that, by one query. The bounds of the last
        two values stay known: a tick asks for both its ends."""
        if time not in self._known:
            moments = self._moments([time, *(time + ahead for ahead in _AHEAD)])
            self._known = {**dict(list(self._known.items())[-1:]), time: moments}
        return self._known[time]

    def _moments(self, times: Sequence[int]) -> list[Moment]:
        """The bounds at values of the clock, as DuckDB computes them."""
        import pyarrow as pa

        clock = pa.table({"clock": pa.array(times, pa.timestamp("us", "UTC"))})
        shown = ", ".join(f"CAST({bound.clock} AS {bound.type})" for bound in self.rows.bounds)
        types = {"clock": "TIMESTAMP WITH TIME ZONE"}
        found = self._evaluate.query(clock, types, f"SELECT {shown} FROM {{rows}}", self.rows.settings)
        words = [one.encoded(found.column(place)) for place, one in enumerate(self._bounds)]
        return [[bound[place] for bound in words] for place in range(len(times))]

    def _note_sooner(self, words: np.ndarray, moment: Moment, time: int) -> None:
        """Be due at once if a new row may come or go before the time until which none does, as far as that is known."""
        if time >= self._calendar.of(self.name):
            return
        for place, bound in enumerate(self._bounds):
            end = None if self._horizon is None else self._horizon[place]
            if bound.lies_between(words, moment[place], end).any():
                self._calendar.set(self.name, time)
                return

    def _look_ahead(self) -> None:
        """Find a time until which no row comes or goes: the latest of some at which no bound has come to its next row.
        O(log N)."""
        now = self.clock_value()
        if not all(bound.bound.steady for bound in self._bounds):
            self._calendar.set(self.name, now)
            return
        moments = self._from(now)
        following = [bound.following(value) for bound, value in zip(self._bounds, moments[0], strict=True)]
        if not any(following):
            self._horizon = None
            self._calendar.set(self.name, NEVER)
            return
        safe = 0
        while safe < len(_AHEAD) and self._is_before(following, moments[safe + 1]):
            safe += 1
        self._horizon = moments[safe]
        self._calendar.set(self.name, now + (_AHEAD[safe - 1] if safe else 0) + 1)

    def _is_before(self, following: Sequence[list[tuple[np.ndarray, int]]], moment: Moment) -> bool:
        """Whether no bound has come to the rows that follow it."""
        return all(
            bound.compare(value, row) < outcome
            for bound, value, rows in zip(self._bounds, moment, following, strict=True)
            for row, outcome in rows
        )

    def _moved(self, old: Moment, new: Moment) -> tuple[np.ndarray, np.ndarray]:
        """The rows that pass at one of two times only, with the weight that they come or go with."""
        found = [
            rows
            for bound, before, after in zip(self._bounds, old, new, strict=True)
            for rows in bound.moved(before, after)
        ]
        words = np.concatenate([np.empty((0, self._rows.store.table.keys), np.int64), *(words for words, _ in found)])
        there = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in found)])
        if len(found) > 1:  # A row may lie between the bounds of several comparisons.
            words, first = np.unique(words, axis=0, return_index=True)
            there = there[first]
        weights = there * (self._passing(words, new).astype(np.int64) - self._passing(words, old))
        return words[weights != 0], weights[weights != 0]

    def _passing(self, words: np.ndarray, moment: Moment) -> np.ndarray:
        """Which rows pass all bounds, as Booleans."""
        rows = Compared(words, self._places)
        for bound, value in zip(self._bounds, moment, strict=True):
            rows.keep(bound.test, value)
        return rows.kept

    def _steps(self) -> int:
        """The steps in the orders since they were last asked for."""
        return sum(kept.take_steps() for kept in self._kept.values())
