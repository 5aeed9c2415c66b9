"""All rows of a triangle whose tables have further columns that are put out: the part trees of the listed triangles,
each a tree under whose pairs the rows of the tables are listed.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, section 4; a pair (a, b) of a table stands for its rows.
"""

from __future__ import annotations

from sqlfront.planner.heavy_light.lacking import divide_by_next
from sqlfront.planner.heavy_light.reasons import TRIANGLES, say_division
from sqlfront.planner.heavy_light.ring import Ring, all_variables, find_ring, listed_ring
from sqlfront.planner.heavy_light.triangles import LISTED
from sqlfront.planner.model.heavy_light import Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.wording import labels


def triangle_rows(definition: Definition, plan: Plan) -> Union | None:
    """The union, if the query puts out all rows of a triangle and a table has columns that do not join; else None.

    O(N^max(eps, 1-eps)) a change, O(N^1.5) space, O(1) delay.
    """
    ring = listed_ring(definition, plan.free, 3) if plan.shape == "cyclic" else None
    if ring is None or all(len(atom.variables) == 2 for atom in definition.atoms):
        return None
    trees = Ring(definition, ring)
    whole = Node((), (trees.join(0, 3),), connex=True)

    def closed(i: int) -> Node:
        """The join of the two other edges, under the pairs of edge i."""
        pairs = Node((ring[i].first, ring[i].second), (trees.side(i), trees.join(i + 1)), connex=True)
        return Node((), (pairs,), connex=True)

    part_trees = divide_by_next(ring, whole, closed, (Reading.ENUMERATED, Reading.ENUMERATED), first=2)
    free = tuple(dict.fromkeys((*plan.free, *all_variables(definition))))
    root = Node((), (Node(free, tuple(map(trees.leaf, range(3))), connex=True),), connex=True)
    return Union(TRIANGLE_ROWS, ring, part_trees, root, LISTED)


def _refusal(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    ring = find_ring(definition, 3)
    if ring is None:
        return None
    joining = {edge.first for edge in ring}
    others = labels(definition, [variable for variable in plan.free if variable not in joining])
    return f"triangles by {others}, which joins no tables, are only told apart if all their rows are put out", None


TRIANGLE_ROWS = Strategy(triangle_rows, "the triangles", TRIANGLES, say_division, refusal=_refusal)
