"""Loomis-Whitney joins: of n atoms that have all but one of n variables each, their sum, or all that joins.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, section 12. Atom i is partitioned by all of its variables but the last. That
of three is the sum over triangles whose tables are partitioned by one column each (section 3.3).
"""

from __future__ import annotations

from fractions import Fraction

from sqlfront.planner.heavy_light.lacking import divide_by_next
from sqlfront.planner.heavy_light.reasons import BEYOND_TRIANGLES, TRIANGLES, say_division
from sqlfront.planner.model.exponents import LEAST_MORE, MOST, Exponents, greatest, line
from sqlfront.planner.model.heavy_light import Edge, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

LARGEST = 5
"""Atoms of a Loomis-Whitney join; its part trees are exponentially many."""


def loomis_whitney(definition: Definition, plan: Plan) -> Union | None:
    """The division of a join of four or more atoms; None for another query."""
    return _divided(definition, plan, LOOMIS_WHITNEY) if 3 < len(definition.atoms) <= LARGEST else None


def single_triangles(definition: Definition, plan: Plan) -> Union | None:
    """The division of a sum over triangles by one column of each table; None for another query."""
    return _divided(definition, plan, SINGLE_TRIANGLES) if len(definition.atoms) == 3 and not plan.free else None


def _divided(definition: Definition, plan: Plan, strategy: Strategy) -> Union | None:
    leaves = [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]
    size = len(leaves)
    every = frozenset().union(*(leaf.variables for leaf in leaves))
    lacking = [every - set(leaf.variables) for leaf in leaves]
    if plan.free and set(plan.free) != every:
        return None
    if len(every) != size or len(frozenset().union(*lacking)) != size or any(len(lacked) != 1 for lacked in lacking):
        return None
    variables = [next(iter(lacking[(i + 1) % size])) for i in range(size)]
    edges = [
        Edge(leaf.atom or "", (tuple(variables[(i + step) % size] for step in range(size - 2)),))
        for i, leaf in enumerate(leaves)
    ]
    shows = bool(plan.free)
    root = Node((), (Node(plan.free or tuple(variables), tuple(leaves), connex=shows),), connex=True)

    def closed(i: int) -> Node:
        others = tuple(leaves[(i + step) % size] for step in range(1, size))
        joined = Node(tuple(variables), others, connex=shows)
        return Node((), (Node(leaves[i].variables, (leaves[i], joined), connex=shows),), connex=True)

    part_trees = divide_by_next(edges, root, closed, (Reading.SHARED, Reading.ENUMERATED if shows else Reading.SHARED))
    return Union(strategy, tuple(edges), part_trees, root, _exponents(size, shows=shows))


def _exponents(size: int, *, shows: bool) -> Exponents:
    rows = Fraction(size, size - 1)
    space = greatest(line(rows), LEAST_MORE) if shows else LEAST_MORE
    return Exponents(line(Fraction(3, 2)), MOST, line(0), space, rows if shows else Fraction(0))


LOOMIS_WHITNEY = Strategy(loomis_whitney, "the joins", BEYOND_TRIANGLES, say_division)
SINGLE_TRIANGLES = Strategy(single_triangles, "the triangles", TRIANGLES, say_division, single=True)
