"""IVM^eps strategies as plan data: a query as a union of view trees over the heavy and light parts of its tables.

A value of a table's columns is heavy there if many rows have it. Each *part tree* reads, of each atom, one part: the
rows whose values are heavy (H), light (L), or either (*). Rows that join are in the parts of exactly one part tree that
counts. What makes a change cheap in a part tree is that a light value has a short list, and that heavy values are few
(Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from sqlfront.planner.model.exponents import Exponents
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

EPSILON = 0.5
"""The epsilon of the least cost of a change."""


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


class Reading(Enum):
    """How a part tree is read.

    - shared: its rows are added to an output that part trees share.
    - enumerated: its rows are enumerated from its tree, by the values they have in the tree's upper part.
    - looked up: its rows only serve other part trees.
    - added: the delta of one atom is added, to the output or to a part tree that serves others. So the deltas of each
      atom may be divided differently.
    """

    SHARED = "shared"
    ENUMERATED = "enumerated"
    LOOKED_UP = "looked up"
    ADDED = "added"


@dataclass(frozen=True)
class Edge:
    """An atom, and the groups of its variables by whose values its rows may be told apart."""

    atom: str
    groups: tuple[tuple[str, ...], ...]

    @property
    def first(self) -> str:
        """Of an edge between two variables: the one it shares with the atom before it."""
        return self.groups[0][0]

    @property
    def second(self) -> str:
        """The one it shares with the atom after it."""
        return self.groups[1][0]


@dataclass(frozen=True)
class PartTree:
    """One view tree of a union; `parts` gives the part of each of its atoms, by its groups of variables.

    `changed` is the atom whose changes alone are added, `target` the part tree to
    which (None: the output).
    """

    name: str
    parts: tuple[tuple[str, PartKey], ...]
    root: Node
    reading: Reading
    changed: str | None = None
    target: PartTree | None = None

    def part(self, atom: str) -> PartKey:
        return dict(self.parts)[atom]


@dataclass(frozen=True)
class Cover:
    """Some of the pairs of rows, of the next atom and of the one before, that a change of any atom joins with.

    They are taken if both its values are heavy there (`both`), or if one is not; the pairs are those of two parts,
    `listed`, the shorter list first, or looked up in the part tree that joins the two.
    """

    both: bool
    after: PartKey
    before: PartKey
    listed: bool = True


@dataclass(frozen=True)
class Union:
    """A query divided by a strategy: its atoms, the part trees, and what they cost; the covers of a sum that no tree
    keeps (of triangles, whose atoms are then in rotation).

    `root` is the tree that holds what part trees share. `joint`: a value is heavy in all columns that are joined if it
    is so in one of them.
    """

    strategy: Strategy
    edges: tuple[Edge, ...]
    part_trees: tuple[PartTree, ...]
    root: Node
    exponents: Exponents
    covers: tuple[Cover, ...] = ()
    joint: bool = False

    @property
    def keeps_rows(self) -> bool:
        """Whether part trees keep the rows; covers keep nothing but a sum."""
        return not self.covers

    @property
    def covered(self) -> list[PartKey]:
        """The parts that covers read."""
        return [part for cover in self.covers for part in (cover.after, cover.before)]

    def listings(self, edge: Edge) -> Iterator[tuple[PartKey, str]]:
        """The parts of an edge's table that covers list, each by a variable."""
        for cover in self.covers:
            if cover.listed:
                yield from ((cover.after, edge.first), (cover.before, edge.second))

    def enumerated(self, free: tuple[str, ...]) -> tuple[str, ...]:
        """The variables that it enumerates: more than the `free` ones where it lists all rows."""
        top = self.root.children[0]
        return top.variables if top.connex and set(top.variables) != set(free) else free


class Reason(Protocol):
    """The reason that EXPLAIN gives for a union, of a query that puts `free` out."""

    def __call__(self, definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str: ...


@dataclass(frozen=True)
class Strategy:
    """A way to divide a query by heavy and light values, and all that is known of it.

    - recognise: the union for a query and its plan without, None for a query of another shape.
    - what, source: what the query is over, and the paper with the theorem, in words; `reason` puts them together.
    - choice: whether a query is divided without being asked: always, or by the costs that are expected.
    - single: tables are partitioned by one column each, as partition = 'single' asks.
    - undivided: the name of what runs where epsilon is 0 or 1, if nothing is divided then.
    - distinct: rows of its trees are only read to find distinct ones.
    - refusal: why a query that has nearly the shape is not divided, and a hint; None for any other query.
    """

    recognise: Callable[[Definition, Plan], Union | None]
    what: str
    source: str
    reason: Reason
    choice: Literal["always", "by cost", "if asked"] = "by cost"
    single: bool = False
    undivided: str | None = None
    distinct: bool = False
    refusal: Callable[[Definition, Plan], tuple[str, str | None] | None] | None = None

    def name(self, epsilon: float) -> str:
        """The strategy's name at an epsilon."""
        if self.undivided is not None and not 0 < epsilon < 1:
            return f"{self.undivided} (epsilon = {epsilon:g}: no values apart)"
        apart = {0.0: "all values heavy", 1.0: "all values light"}.get(epsilon, "heavy and light values apart")
        return f"IVM^eps with epsilon = {epsilon:g}, {apart}"
