"""Parts of a table's rows, by whether the values of its partitioned columns are heavy or light."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """The status of a value in a part: heavy, light, or either."""

    HEAVY = "H"
    LIGHT = "L"
    ANY = "*"


Cell = tuple[Status, ...]
"""A status for each partitioned column, or group of columns."""


@dataclass(frozen=True)
class PartKey:
    """The rows that are in any of some cells, which have no row in common."""

    cells: tuple[Cell, ...]

    @classmethod
    def of(cls, text: str) -> PartKey:
        """The part key that is written so: HL, H*, or HH|L* for two cells."""
        return cls(tuple(tuple(map(Status, cell)) for cell in text.split("|")))

    def __str__(self) -> str:
        return "|".join("".join(status.value for status in cell) for cell in self.cells)

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows."""
        return all(status is Status.ANY for cell in self.cells for status in cell)

    @property
    def needs_heavy(self) -> bool:
        """Whether each of the rows has a heavy value."""
        return all(Status.HEAVY in cell for cell in self.cells)

    def tells(self, place: int) -> bool:
        """Whether the rows go by the status of one of the columns."""
        return any(cell[place] is not Status.ANY for cell in self.cells)

    def has(self, cell: Cell) -> bool:
        """Whether rows whose values have this status are in it."""
        return any(all(one in (Status.ANY, own) for one, own in zip(each, cell, strict=True)) for each in self.cells)

    def singles(self) -> Iterator[PartKey]:
        """The cells, as parts of their own."""
        return (PartKey((cell,)) for cell in self.cells)
