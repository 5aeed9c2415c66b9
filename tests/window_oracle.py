"""Window functions over lists of rows, naively: partitions are sorted, and each frame is gone through row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

from sqlfront.planner.model.window_functions import OrderItem, Windows, WindowValue

Row = tuple[Any, ...]
Summed = Callable[[Any, Sequence[int]], Any]
"""A raw column over the rows with these numbers."""


class NaiveWindows:
    """The values of window functions of rows, which are tuples of the variables `free`. O(rows of the frames)."""

    def __init__(self, windows: Windows, free: Sequence[str], rows: Sequence[Row], summed: Summed) -> None:
        self._rows, self._summed = [dict(zip(free, row, strict=True)) for row in rows], summed
        self._orders = [order.items for order in windows.orders]
        self._partitions: list[list[list[int]]] = [[] for _ in rows]
        for order in windows.orders:
            partitions: dict[str, list[int]] = {}
            for number, row in enumerate(self._rows):
                partitions.setdefault(repr([row[name] for name in order.partition]), []).append(number)
            for members in partitions.values():
                members.sort(key=cmp_to_key(lambda a, b, items=order.items: self._compare(items, a, b)))
                for number in members:
                    self._partitions[number].append(members)

    def value(self, value: WindowValue, variable: str | None, over: Any, number: int) -> Any:
        """The value of a function for the row with a number."""
        members = self._partitions[number][value.order]
        place, size, name = members.index(number), len(members), value.function
        first, last = self._peers(value, members, place)
        if name in ("row_number", "rank", "percent_rank", "cume_dist"):
            found = {"row_number": place + 1, "rank": first + 1, "cume_dist": last / size}
            return found[name] if name in found else (first / (size - 1) if size > 1 else 0.0)
        if name == "dense_rank":
            return sum(self._peers(value, members, one)[0] == one for one in range(place + 1))
        if name == "ntile":
            small, more = divmod(size, value.number)
            buckets = [bucket for bucket in range(value.number) for _ in range(small + (bucket < more))]
            return buckets[place] + 1
        if name in ("has_lag", "has_lead"):
            return int(place >= value.number if name == "has_lag" else place + value.number < size)
        if name in ("lag", "lead"):
            frame, other = members, place + (value.number if name == "lead" else -value.number)
        else:
            frame = members[slice(*self._frame(value, members, place))]
            other = {"first_value": 0, "last_value": len(frame) - 1, "nth_value": value.number - 1}.get(name, 0)
        if variable is None:
            return self._summed(over, frame)
        values = [self._rows[member][variable] for member in frame]
        if name in ("min", "max"):
            present = [one for one in values if one is not None]
            return (min if name == "min" else max)(present) if present else None
        return values[other] if 0 <= other < len(values) else None

    def _frame(self, value: WindowValue, members: list[int], place: int) -> tuple[int, int]:
        unit, bounds = value.frame.unit, (value.frame.start, value.frame.end)
        if unit == "ROWS":
            edges = [None if bound is None else place + bound for bound in bounds]
        else:
            assert unit == "GROUPS" or not any(bounds), "distances are no part of the oracle"
            starts = [one for one in range(len(members)) if self._peers(value, members, one)[0] == one]
            own, edges = starts.index(self._peers(value, members, place)[0]), list[int | None]()
            for bound, behind in zip(bounds, (0, 1), strict=True):
                group = 0 if bound is None else own + bound + behind
                edge = len(members) if group >= len(starts) else 0 if group < 0 else starts[group]
                edges.append(None if bound is None else edge - behind)
        start = 0 if edges[0] is None else max(0, edges[0])
        return start, max(start, len(members) if edges[1] is None else edges[1] + 1)

    def _peers(self, value: WindowValue, members: list[int], place: int) -> tuple[int, int]:
        items = self._orders[value.order][: value.peers]
        same = [one for one, member in enumerate(members) if not self._compare(items, member, members[place])]
        return same[0], same[-1] + 1

    def _compare(self, items: Sequence[OrderItem], one: int, other: int) -> int:
        for item in items:
            a, b = self._rows[one][item.variable], self._rows[other][item.variable]
            if a == b:
                continue
            if a is None or b is None:
                return -1 if (a is None) == item.nulls_first else 1
            return -1 if (a < b) != item.descending else 1
        return 0
