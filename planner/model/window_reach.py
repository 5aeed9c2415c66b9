"""How far a changed row reaches in an order: the other rows whose window functions may have other values after it.

Rows are told by places in the order alone: so many rows, or peers, or values before and after the changed row; or all
rows behind it, up to the next changed row, as long as the changes before these do not cancel. No changed row lies
between a row and the nearest changed one. So the same rows are within reach before the change and after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from sqlfront.planner.model.window_functions import Unit, WindowValue

if TYPE_CHECKING:
    from sqlfront.planner.model.query import Definition


class Net(IntEnum):
    """When changed rows reach all rows on one side: never, always, or unless something cancels. COUNT: the number of
    changed rows. SUMS: the number and all sums."""

    NEVER = 0
    COUNT = 1
    SUMS = 2
    ALWAYS = 3


@dataclass(frozen=True)
class Near:
    """The rows from so many rows (groups of peers, codes) before a changed row to so many after it; but for ROWS, the
    peers of a changed row by the first `peers` items of the order are among them."""

    unit: Unit
    before: int
    after: int
    peers: int = 0


@dataclass(frozen=True)
class Reach:
    """What a changed row reaches: the rows that are `near`, all rows `behind` it, all `ahead` of it, and the `whole`
    partition, the last also if it is among the `first` or the `last` so many rows of the partition."""

    near: tuple[Near, ...] = ()
    behind: Net = Net.NEVER
    ahead: Net = Net.NEVER
    whole: Net = Net.NEVER
    first: int = 0
    last: int = 0

    @property
    def is_bounded(self) -> bool:
        """Whether rows and peers near the changed row are all that is reached."""
        return not (self.behind or self.ahead or self.whole or self.first or self.last)

    @property
    def counts_rows(self) -> bool:
        """Whether so many rows as the query says are reached."""
        return self.is_bounded and all(one.unit == "ROWS" for one in self.near)


def reaches(definition: Definition) -> list[Reach]:
    """How far a changed row reaches in each order of a definition's window functions."""
    windows = definition.windows
    if windows is None:
        return []
    values = [raw.window for raw in definition.raw if raw.window is not None]
    return [reach_of(value for value in values if value.order == number) for number in range(len(windows.orders))]


def reach_of(values: Iterable[WindowValue]) -> Reach:
    """What is reached by one of several functions of an order."""
    found = [_reach(value) for value in values]
    near = dict.fromkeys(one for reach in found for one in reach.near)
    return Reach(
        tuple(near),
        max((one.behind for one in found), default=Net.NEVER),
        max((one.ahead for one in found), default=Net.NEVER),
        max((one.whole for one in found), default=Net.NEVER),
        max((one.first for one in found), default=0),
        max((one.last for one in found), default=0),
    )


def _reach(value: WindowValue) -> Reach:
    name, peers = value.function, (Near("GROUPS", 0, 0, value.peers),)
    match name:
        case "row_number":
            return Reach(behind=Net.COUNT)
        case "rank":
            return Reach(peers, behind=Net.COUNT)
        case "percent_rank" | "cume_dist" | "ntile":
            return Reach(peers, behind=Net.COUNT, whole=Net.COUNT)
        case "dense_rank":
            return Reach(peers, behind=Net.ALWAYS)
        case "lag" | "has_lag":
            return Reach((Near("ROWS", 0, value.number),))
        case "lead" | "has_lead":
            return Reach((Near("ROWS", value.number, 0),))
        case "first_value" | "nth_value" | "last_value":
            return _of_one_row(value)
    net = Net.ALWAYS if name in ("min", "max") else Net.SUMS
    start, end = value.frame.start, value.frame.end
    if start is None and end is None:
        return Reach(whole=net)
    behind, ahead = (net if bound is None else Net.NEVER for bound in (start, end))
    return Reach(_near(value, start, end), behind, ahead)


def _of_one_row(value: WindowValue) -> Reach:
    """What decides the value of the row that stands at a place of the frame, counted from one of its edges."""
    start, end, number = value.frame.start, value.frame.end, max(value.number, 1)
    if value.function == "last_value":
        return Reach(_near(value, start, end), last=int(end is None))
    if number > 1 and value.frame.unit != "ROWS" and start is not None:
        return Reach(whole=Net.ALWAYS)
    more = () if start is None or number == 1 else _near(value, start + number - 1)
    return Reach((*_near(value, start, end), *more), first=number if start is None else 0)


def _near(value: WindowValue, *bounds: int | None) -> tuple[Near, ...]:
    """The rows some bound of whose frame lies between a changed row and them."""
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return ()
    before, after = max(0, *known), max(0, *(-bound for bound in known))
    if value.frame.unit == "ROWS":
        return (Near("ROWS", before, after),)
    # A bound that is the row itself is that of its peers, by whatever items of the order.
    unit = value.frame.unit if before or after else "GROUPS"
    return (Near(unit, before, after, value.peers),)
