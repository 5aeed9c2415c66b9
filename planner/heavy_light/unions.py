"""The IVM^eps strategies beside triangles: Loomis-Whitney joins, sums over a path of three, a projected join of two.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, section 12, names the first two; the third is the simplest hierarchical
query that is not q-hierarchical (Kara, Nikolic, Olteanu and Zhang 2020, "Trade-offs in static and dynamic evaluation of
hierarchical queries").
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from sqlfront.planner.heavy_light.ring_rows import ring_rows
from sqlfront.planner.heavy_light.rings import ring_sum
from sqlfront.planner.heavy_light.stars import star
from sqlfront.planner.heavy_light.triangle_rows import triangle_rows
from sqlfront.planner.heavy_light.triangles import triangle_union
from sqlfront.planner.model.heavy_light import Edge, PartTree, Reading, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

LARGEST = 5
"""Atoms of a Loomis-Whitney join; its part trees are exponentially many."""


def find_union(definition: Definition, plan: Plan, *, single: bool = False) -> Union | None:
    """The strategy that a query has beside its plan; None if none is known for it, as for joins by comparisons.

    `single`: that of a sum over triangles whose tables are partitioned by one column each.
    """
    if definition.comparisons:
        return None
    if plan.ranked_only and plan.shape != "cyclic":
        return star(definition, plan) if not single else None
    if single:
        return loomis_whitney(definition, plan) if not plan.free and len(definition.atoms) == 3 else None
    for rule in (_triangle, triangle_rows, loomis_whitney, path_sum, projected_join, ring_sum, ring_rows):
        union = rule(definition, plan)
        if union is not None:
            return union
    return None


def _triangle(definition: Definition, plan: Plan) -> Union | None:
    return triangle_union(definition, plan.root) if plan.shape == "cyclic" and not plan.projected else None


def loomis_whitney(definition: Definition, plan: Plan) -> Union | None:
    """Of n atoms that have all but one of n variables each, atom i all but the one before its first: their sum, or all
    that joins.

    Atom i is partitioned by all of its variables but the last. A change of it lists, of the variable that it lacks, the
    values that the next atom has for it, if they are few; or the heavy values that it has in another; where the next
    alone is heavy, their sums are kept, or what joins of them, from which it is enumerated: no two part trees have a
    row in common. O(N^max(eps, 1-eps)) a change.
    """
    leaves = list(_leaves(definition))
    size = len(leaves)
    every = frozenset().union(*(leaf.variables for leaf in leaves))
    lacking = [every - set(leaf.variables) for leaf in leaves]
    if (plan.free and set(plan.free) != every) or plan.projected:
        return None
    if not 3 <= size <= LARGEST or len(every) != size or len(frozenset().union(*lacking)) != size:
        return None
    if any(len(lacked) != 1 for lacked in lacking):
        return None
    (variables,) = [[next(iter(lacking[(i + 1) % size])) for i in range(size)]]
    edges = [
        Edge(leaf.atom or "", (tuple(variables[(i + step) % size] for step in range(size - 2)),))
        for i, leaf in enumerate(leaves)
    ]
    shows = bool(plan.free)
    root = Node((), (Node(plan.free or tuple(variables), tuple(leaves), connex=shows),), connex=True)
    part_trees = [
        _shared("".join(part_key), edges, part_key, root)
        for part_key in product("HL", repeat=size)
        if not any(_alone(part_key, i) for i in range(size))
    ]
    for i in range(size):
        others = [(i + step) % size for step in range(1, size)]
        joined = Node(tuple(variables), tuple(leaves[j] for j in others), connex=shows)
        closed = Node(leaves[i].variables, (leaves[i], joined), connex=shows)
        part_key = tuple("*" if j == i else "H" if j == others[0] else "L" for j in range(size))
        tree = Node((), (closed,), connex=True)
        part_trees.append(_part_tree("".join(part_key), edges, part_key, tree, "enumerated" if shows else "shared"))
    return Union(tuple(edges), tuple(part_trees), root)


def path_sum(definition: Definition, plan: Plan) -> Union | None:
    """Of a sum over R(b), S(b, c), T(c): S is partitioned by b and by c.

    Where b is heavy, or both are light, sums over c are kept for each b: a change of T lists the few heavy b, or the
    short list of a light c. Else sums over b are kept for each c. O(N^max(eps, 1-eps)) a change, linear space.
    """
    leaves = list(_leaves(definition))
    middle = next((leaf for leaf in leaves if len(leaf.variables) == 2), None)
    if plan.free or len(leaves) != 3 or middle is None:
        return None
    first, second = middle.variables
    ends = [next((leaf for leaf in leaves if leaf.variables == (variable,)), None) for variable in (first, second)]
    if ends[0] is None or ends[1] is None:
        return None
    (left, right), edge = (ends[0], ends[1]), Edge(middle.atom or "", ((first,), (second,)))
    edges = [edge, Edge(left.atom or "", ()), Edge(right.atom or "", ())]

    def kept(name: str, part: str, own: Node, other: Node) -> PartTree:
        inner = Node(middle.variables, (middle, other))
        return _shared(name, edges, (part, "", ""), Node((), (Node(own.variables, (own, inner)),), connex=True))

    part_trees = kept("H*", "H*", left, right), kept("LL", "LL", left, right), kept("LH", "LH", right, left)
    root = Node((), (Node(middle.variables, (middle, left, right)),), connex=True)
    return Union(tuple(edges), part_trees, root)


def projected_join(definition: Definition, plan: Plan) -> Union | None:
    """Of what R has besides b where S(b) has it: R is partitioned by b.

    Where b is light its rows are added to the output, fewer than N^eps for a change of S. The rows of a heavy b are
    enumerated from a tree, under the heavy b that S has, of which there are at most 2 N^(1-eps).
    """
    leaves = list(_leaves(definition))
    if plan.shape != "free-connex" or len(leaves) != 2 or not definition.free or definition.mode == "bag":
        return None
    leaves.sort(key=lambda leaf: -len(leaf.variables))
    (own, closing), free = leaves, tuple(dict.fromkeys(definition.free))
    if set(free) & set(closing.variables) or set(own.variables) != {*free, *closing.variables}:
        return None
    edges = [Edge(own.atom or "", (closing.variables,)), Edge(closing.atom or "", ())]

    def output(join: Node) -> Node:
        return Node((), (Node(free, (join,), connex=True),), connex=True)

    inner = Node(own.variables, (own,), connex=True)
    upper = Node(closing.variables, (closing, inner), connex=True)
    part_trees = (
        _shared("L", edges, ("L", ""), output(Node(own.variables, (own, closing)))),
        _part_tree("H", edges, ("H", ""), Node((), (upper,), connex=True), "enumerated"),
    )
    return Union(tuple(edges), part_trees, output(Node(own.variables, (own, closing))))


def exponents(union: Union, free: int, epsilon: Fraction) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """What building, a change, the delay and the space of a strategy cost with `free` variables, as powers of N."""
    top = union.root.children[0]
    free = len(top.variables) if top.connex else free
    least, most = min(epsilon, 1 - epsilon), max(epsilon, 1 - epsilon)
    one, atoms = Fraction(1), len(union.edges)
    if union.first_rows:
        ends = sum(bool(edge.groups) for edge in union.edges)
        change = (ends - 1) * (1 - epsilon)
        return 1 + change, change, epsilon, max(one, ends * (1 - epsilon))
    if atoms == 2:
        return one, epsilon, 1 - epsilon, one
    if any(not edge.groups for edge in union.edges):
        return one, most, Fraction(0), one
    if union.joint:
        space = max(2 - epsilon, 1 + epsilon)
        return space, max(1 - epsilon, min(one, 2 * epsilon)), Fraction(0), space
    if union.has_changes:
        change = max(epsilon, min(one, 2 - 2 * epsilon))
        return 1 + change, change, Fraction(0), max(1 + epsilon, 2 - 2 * epsilon)
    if atoms > 3 or not (free or union.covers):
        space = max(Fraction(atoms, atoms - 1), 1 + least) if free else 1 + least
        return Fraction(3, 2), most, Fraction(0), space
    space = (max(one, min(1 + epsilon, 2 - 2 * epsilon)), 1 + least, 1 + least, Fraction(3, 2))[min(free, 3)]
    return Fraction(3, 2), most, (0, 2 * least, least, 0)[min(free, 3)] * one, space


def _alone(part_key: tuple[str, ...], i: int) -> bool:
    """Whether of all atoms but the i-th the one after it alone is heavy."""
    others = [part_key[(i + step) % len(part_key)] for step in range(1, len(part_key))]
    return others[0] == "H" and "H" not in others[1:]


def _leaves(definition: Definition) -> list[Node]:
    return [Node(tuple(column.name for column in atom.variables), atom=atom.name) for atom in definition.atoms]


def _shared(name: str, edges: list[Edge], parts: tuple[str, ...], root: Node) -> PartTree:
    return _part_tree(name, edges, parts, root, "shared")


def _part_tree(name: str, edges: list[Edge], parts: tuple[str, ...], root: Node, reading: Reading) -> PartTree:
    return PartTree(name, tuple((edge.atom, part) for edge, part in zip(edges, parts, strict=True)), root, reading)
