"""IVM^eps strategies as plan data: a query as a union of view trees over the heavy and light parts of its tables.

A value of a table's columns is heavy there if many rows have it. Each *part tree* reads, of each atom, one part: the
rows whose values are heavy (H), light (L), or either (*). Rows that join are in the parts of exactly one part tree that
counts. What makes a change cheap in a part tree is that a light value has a short list, and that heavy values are few
(Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlfront.planner.model.plan import Node

Reading = Literal["shared", "enumerated", "looked up", "added"]
"""How a part tree is read.

- shared: its rows are added to an output that part trees share.
- enumerated: its rows are enumerated from its tree, by the values they have in the tree's upper part.
- looked up: its rows only serve other part trees.
- added: the delta of one atom is added, to the output or to a part tree that serves others. So the deltas of each atom
  may be divided differently.
"""


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
    """One view tree of a union; `parts` gives the part of each of its atoms, a letter for each group of variables.

    A part may be several, apart by |. `changed` is the atom whose changes alone are added, `target` the part tree to
    which (None: the output).
    """

    name: str
    parts: tuple[tuple[str, str], ...]
    root: Node
    reading: Reading
    changed: str | None = None
    target: str | None = None

    def part(self, atom: str) -> str:
        return dict(self.parts)[atom]


@dataclass(frozen=True)
class Cover:
    """Some of the pairs of rows, of the next atom and of the one before, that a change of any atom joins with.

    They are taken if both its values are heavy there (`both`), or if one is not; the pairs are those of two parts,
    `listed`, the shorter list first, or looked up in the part tree that joins the two.
    """

    both: bool
    after: str
    before: str
    listed: bool = True


@dataclass(frozen=True)
class Union:
    """A strategy: its atoms, the part trees, and the covers of a sum that no tree keeps (of triangles, whose atoms
    are then in rotation). `root` is the tree that holds what part trees share. `joint`: a value is heavy in all
    columns that are joined if it is so in one of them. `first_rows`: it finds the first rows of an order, along a
    ranked tree for each part tree."""

    edges: tuple[Edge, ...]
    part_trees: tuple[PartTree, ...]
    root: Node
    covers: tuple[Cover, ...] = ()
    joint: bool = False
    first_rows: bool = False

    @property
    def has_changes(self) -> bool:
        """Whether the changes of each atom are divided in a way of their own."""
        return any(part_tree.reading == "added" for part_tree in self.part_trees)


def is_whole(part: str) -> bool:
    """Whether a part is all rows of an atom."""
    return set(part) <= {"*"}
