"""The sum over a path R(b), S(b, c), T(c): S is partitioned by b and by c.

Where b is heavy, or both are light, sums over c are kept for each b: a change of T lists the few heavy b, or the short
list of a light c. Else sums over b are kept for each c. Kara, Nikolic, Ngo, Olteanu and Zhang 2020, section 12.
"""

from __future__ import annotations

from sqlfront.planner.heavy_light.reasons import BEYOND_TRIANGLES, say_division
from sqlfront.planner.model.exponents import MOST, Exponents, line
from sqlfront.planner.model.heavy_light import Edge, PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition


def path_sum(definition: Definition, plan: Plan) -> Union | None:
    """The union, if the query is such a sum; else None. O(N^max(eps, 1-eps)) a change, linear space."""
    leaves = [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]
    middle = next((leaf for leaf in leaves if len(leaf.variables) == 2), None)
    if plan.free or len(leaves) != 3 or middle is None:
        return None
    first, second = middle.variables
    ends = [next((leaf for leaf in leaves if leaf.variables == (variable,)), None) for variable in (first, second)]
    if ends[0] is None or ends[1] is None:
        return None
    left, right = ends[0], ends[1]
    edges = (Edge(middle.atom or "", ((first,), (second,))), Edge(left.atom or "", ()), Edge(right.atom or "", ()))

    def kept(part: str, own: Node, other: Node) -> PartTree:
        inner = Node(middle.variables, (middle, other))
        parts = tuple((edge.atom, PartKey.of(part if edge.groups else "")) for edge in edges)
        return PartTree(part, parts, Node((), (Node(own.variables, (own, inner)),), connex=True), Reading.SHARED)

    part_trees = kept("H*", left, right), kept("LL", left, right), kept("LH", right, left)
    root = Node((), (Node(middle.variables, (middle, left, right)),), connex=True)
    return Union(PATH_SUM, edges, part_trees, root, Exponents(line(1), MOST, line(0), line(1)))


PATH_SUM = Strategy(path_sum, "the joins", BEYOND_TRIANGLES, say_division)
