"""Loomis-Whitney joins of n atoms, each with all but one of n variables: sums, groups by any variables, all rows.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, section 12. Atom i is partitioned by all of its variables but the last. The
sum over three atoms is the sum over triangles whose tables are partitioned by one column each (section 3.3).

A group may be under several rows of an atom and in several part trees, so reads hop over duplicates. The delays are
ours. If one variable is summed out, a group fixes all others. Then the light lists and the heavy values of the next
atom bound the rows of a group. If more are summed out, a group may have O(N) rows of an atom.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlfront.planner.heavy_light.lacking import divide_by_next
from sqlfront.planner.heavy_light.reasons import BEYOND_TRIANGLES, TRIANGLES, say_division
from sqlfront.planner.model.exponents import LEAST_MORE, MOST, Exponents, greatest, line
from sqlfront.planner.model.heavy_light import Edge, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

LARGEST = 6
"""Atoms of a Loomis-Whitney join; its part trees are exponentially many."""


def loomis_whitney(definition: Definition, plan: Plan) -> Union | None:
    """The division of a join of four to six atoms; None for another query."""
    return _divided(definition, plan, LOOMIS_WHITNEY) if 3 < len(definition.atoms) <= LARGEST else None


def single_triangles(definition: Definition, plan: Plan) -> Union | None:
    """The division of a sum over triangles by one column of each table; None for another query."""
    return _divided(definition, plan, SINGLE_TRIANGLES) if len(definition.atoms) == 3 and not plan.free else None


def _divided(definition: Definition, plan: Plan, strategy: Strategy) -> Union | None:
    leaves = [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]
    size = len(leaves)
    every = frozenset().union(*(leaf.variables for leaf in leaves))
    lacking = [every - set(leaf.variables) for leaf in leaves]
    if len(every) != size or len(frozenset().union(*lacking)) != size or any(len(lacked) != 1 for lacked in lacking):
        return None
    variables = [next(iter(lacking[(i + 1) % size])) for i in range(size)]
    edges = [
        Edge(leaf.atom or "", (tuple(variables[(i + step) % size] for step in range(size - 2)),))
        for i, leaf in enumerate(leaves)
    ]
    shows, listed = bool(plan.free), set(plan.free) == every
    bag = Node(plan.free if listed else tuple(variables), tuple(leaves), connex=listed)
    root = Node((), (Node(plan.free, (bag,), connex=True) if shows and not listed else bag,), connex=True)

    def closed(i: int) -> Node:
        others = tuple(leaves[(i + step) % size] for step in range(1, size))
        joined = Node(tuple(variables), others, connex=shows)
        if shows and not lacking[i] <= set(plan.free):
            joined = Node(leaves[i].variables, (replace(joined, connex=False),), connex=True)
        return Node((), (Node(leaves[i].variables, (leaves[i], joined), connex=shows),), connex=True)

    part_trees = divide_by_next(edges, root, closed, (Reading.SHARED, Reading.ENUMERATED if shows else Reading.SHARED))
    return Union(strategy, tuple(edges), part_trees, root, _exponents(size, len(set(plan.free))))


def _exponents(size: int, free: int) -> Exponents:
    rows = Fraction(size, size - 1) if free == size else Fraction(min(free, 1))
    space = greatest(line(rows), LEAST_MORE) if free == size else LEAST_MORE
    delay = MOST if free == size - 1 else line(1 if 0 < free < size else 0)
    return Exponents(line(Fraction(3, 2)), MOST, delay, space, rows)


LOOMIS_WHITNEY = Strategy(loomis_whitney, "the joins", BEYOND_TRIANGLES, say_division)
SINGLE_TRIANGLES = Strategy(single_triangles, "the triangles", TRIANGLES, say_division, single=True)
