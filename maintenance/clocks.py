"""The clocks of an engine: relations of one row, the time, which nodes read as they read other relations.

Time goes on in epochs that replace the row. So a tick is undone as any other change, and views over one clock agree.
The wall clock has the time of the machine, the manual clock the time that it is told. Invariant: time never goes back,
but where an epoch is undone.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sqlfront.maintenance.output.group_store import words_of
from sqlfront.maintenance.relation.base_relation import Column
from sqlfront.storage.errors import ProgrammingError

if TYPE_CHECKING:
    import pyarrow as pa

    from sqlfront.maintenance.engine import Change, Engine

WALL, MANUAL = "wall", "manual"
_REPLACED = np.array([-1, 1])
ZONED = "TIMESTAMP WITH TIME ZONE"


def clock_relation(clock: str) -> str:
    """The name of the relation that has the time of a clock."""
    return f"clock {clock}"


class Clocks:
    """The clocks of an engine, which is locked by the caller. Times are microseconds since 1970, UTC."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def time(self, clock: str) -> int | None:
        """The time of a clock; None before it has been started."""
        relation = self._engine.relations.get(clock_relation(clock))
        if relation is None or relation.base is None:
            return None
        return int(words_of(relation.base.table)[0][0, 0])

    def start(self, clock: str, time: int) -> None:
        """Let a clock have its first time."""
        name = clock_relation(clock)
        self._engine.create_table(name, [Column("time", ZONED, True)], retain=True)
        self._engine.fill_table(name, _times([time]).to_batches(), 1)

    def is_due(self, clock: str, time: int) -> bool:
        """Whether the rows of a node over a clock may change by a time."""
        now = self.time(clock)
        return now is not None and now < time and self._engine.calendars[clock_relation(clock)].first <= time

    def change(self, clock: str, time: int) -> Mapping[str, Change]:
        """The change that lets time go on. ProgrammingError if it would go back."""
        from sqlfront.maintenance.engine import Change

        self.refuse_past(clock, time)
        now = self.time(clock)
        return {} if now is None or now == time else {clock_relation(clock): Change(_times([now, time]), _REPLACED)}

    def refuse_past(self, clock: str, time: int, also: int | None = None) -> None:
        """ProgrammingError for a time before that of a clock, or before the other one."""
        now = max(one for one in (self.time(clock), also, time - 1) if one is not None)
        if time < now:
            raise ProgrammingError(
                f"the {clock} clock cannot go back to {shown_time(time)}",
                why=f"it is {shown_time(now)} already, and rows have come and gone by that time",
                hint=f"give a time from {shown_time(now)} on",
            )


def shown_time(time: int) -> str:
    """A time for people, in UTC."""
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return str(start + datetime.timedelta(microseconds=time))


def _times(times: list[int]) -> pa.Table:
    import pyarrow as pa

    return pa.table({"time": pa.array(times, pa.timestamp("us", "UTC"))})
