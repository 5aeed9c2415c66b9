"""The division of a join whose atoms lack one variable each: triangles, and the Loomis-Whitney joins beyond them.

The atoms are in rotation: atom i lacks the variable before its first. A change of an atom lists, of the variable that
the atom lacks, the values that the next atom has for it, if they are few; or the heavy values that it has in another
atom. Where the next atom alone is heavy, the join of the others is kept under the rows of this one. No two part trees
have a row in common. O(N^max(eps, 1-eps)) a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading
from sqlfront.planner.model.plan import Node


def divide_by_next(
    edges: Sequence[Edge], whole: Node, closed: Callable[[int], Node], readings: tuple[Reading, Reading], first: int = 0
) -> tuple[PartTree, ...]:
    """The part trees by which atoms are heavy in their first group: `whole` joins all atoms at once, `closed(i)` those
    beside atom i under its rows, atom `first` being the first of these. The readings are those of the two kinds."""
    size = len(edges)

    def part_tree(key: Sequence[str], root: Node, reading: Reading) -> PartTree:
        parts = (
            (edge.atom, PartKey.of(own + "*" * (len(edge.groups) - 1))) for edge, own in zip(edges, key, strict=True)
        )
        return PartTree("".join(key), tuple(parts), root, reading)

    joined = [key for key in product("HL", repeat=size) if not any(_alone(key, i) for i in range(size))]
    part_trees = [part_tree(key, whole, readings[0]) for key in joined]
    for i in ((first + step) % size for step in range(size)):
        own = ["*" if j == i else "H" if j == (i + 1) % size else "L" for j in range(size)]
        part_trees.append(part_tree(own, closed(i), readings[1]))
    return tuple(part_trees)


def _alone(key: Sequence[str], i: int) -> bool:
    """Whether of all atoms but the i-th the one after it alone is heavy."""
    others = [key[(i + step) % len(key)] for step in range(1, len(key))]
    return others[0] == "H" and "H" not in others[1:]
