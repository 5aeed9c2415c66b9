"""A row of a benchmark: two sides that alternate in one process, and what the row must hold."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bound:
    """What a row of the report must hold: at most `times` what stands beside it and `more` milliseconds, and at `most`
    so many milliseconds."""

    times: float | None = None
    more: float = 0.0
    most: float | None = None

    def __str__(self) -> str:
        more = f" + {self.more:g} ms" if self.more else ""
        parts = [f"{self.times:g}x{more}" if self.times else "", f"{self.most:g} ms" if self.most else ""]
        return " and ".join(filter(None, parts))

    def holds(self, ms: float, beside: float) -> bool:
        fast = self.times is None or ms <= self.times * beside + self.more
        return fast and (self.most is None or ms <= self.most)


def compare(
    what: str,
    run: Callable[[int], object],
    beside: Callable[[int], object],
    times: int,
    bound: Bound,
    before: float | None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Run both sides in turn; the medians of what the clock says, against the bound."""
    taken: dict[Callable[[int], object], list[float]] = {run: [], beside: []}
    spent = []
    gc.collect()
    for number in range(-min(5, times), times):
        for side, seconds in taken.items():
            processor, start = time.process_time(), clock()
            side(number)
            if number >= 0:
                seconds.append(clock() - start)
                if side is run:
                    spent.append(time.process_time() - processor)
    ms, other = (1e3 * statistics.median(taken[side]) for side in (run, beside))
    return {
        "what": what,
        "before": before,
        "ms": ms,
        "cpu ms": 1e3 * statistics.median(spent),
        "beside": other,
        "times": ms / other,
        "bound": str(bound),
        "holds": "yes" if bound.holds(ms, other) else "no",
    }
