"""The steps that reads of a view take: one counter a view, to which each enumeration adds as it goes on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Meter:
    """Elementary steps of the reads of one view: slots looked at, list members visited, cells compared."""

    steps: int = 0


class Metered:
    """An enumeration whose steps a meter counts too. Without a `meter` nobody asks, or another enumeration tells."""

    def __init__(self, meter: Meter | None) -> None:
        self._meter, self._told = meter, 0

    @property
    def steps(self) -> int:
        """Elementary steps taken so far."""
        raise NotImplementedError

    def _tell(self) -> None:
        """Add to the meter what has been taken since the last time."""
        if self._meter is not None:
            taken = self.steps
            self._meter.steps += taken - self._told
            self._told = taken
