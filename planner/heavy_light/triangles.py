"""The IVM^eps strategies for triangles R(a, b), S(b, c), T(c, a), by the number of variables that are put out.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates", sections 3 to 6.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from sqlfront.planner.heavy_light.lacking import divide_by_next
from sqlfront.planner.heavy_light.reasons import TRIANGLES, say_apart, say_division, say_query
from sqlfront.planner.heavy_light.ring import find_ring
from sqlfront.planner.model.exponents import EPSILON, LEAST_MORE, MOST, REST, Exponent, Exponents, greatest, least, line
from sqlfront.planner.model.heavy_light import Cover, Edge, PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition
from sqlfront.planner.search.decomposition import STRATEGY
from sqlfront.planner.theory.wording import column

WHOLE, HH, HL, LH = map(PartKey.of, ("**", "HH", "HL", "LH"))
HEAVY, LIGHT, LL = map(PartKey.of, ("H*", "L*", "LL"))
Edges = tuple[Edge, Edge, Edge]


def triangle_sum(definition: Definition, plan: Plan) -> Union | None:
    """A sum over all triangles: each table partitioned by both columns (section 3.4).

    A change R(a, b) lists c heavy in T, or of a light value; for two heavy values the sum over light c is looked up.
    Kept by covers, as each atom lists other parts.
    """
    trees = _trees(definition, plan, 0)
    if trees is None:
        return None
    covers = (
        Cover(False, WHOLE, WHOLE),
        Cover(True, WHOLE, HH),
        Cover(True, HH, LH),
        Cover(True, HL, LH, listed=False),
    )
    space = greatest(line(1), least(line(1, 1), line(2, -2)))
    products = tuple(map(trees.product, range(3)))
    return Union(TRIANGLE_SUM, trees.edges, products, trees.root, _exponents(line(0), space), covers)


def triangle_ends(definition: Definition, plan: Plan) -> Union | None:
    """Triangles by one variable: R and T partitioned by both columns, S by b (section 6)."""
    trees = _trees(definition, plan, 1)
    if trees is None:
        return None
    part_trees = (
        trees.listed("HHH", HEAVY, HEAVY, HEAVY),
        trees.listed("LLL", LIGHT, LIGHT, LIGHT),
        trees.listed("(LL)*H", LL, WHOLE, HEAVY),
        trees.listed("(LH)*(HH)", LH, WHOLE, HH),
        trees.paired("HL*", 2, HEAVY, LIGHT, WHOLE),
        trees.paired("*HL", 0, WHOLE, HEAVY, LIGHT),
        trees.enumerated("(LH)*(HL)", 1, LH, WHOLE, HL),
    )
    exponents = _exponents(least(line(0, 2), line(2, -2)), LEAST_MORE, rows=1)
    return Union(TRIANGLE_ENDS, trees.edges, part_trees, trees.root, exponents)


def triangle_pairs(definition: Definition, plan: Plan) -> Union | None:
    """Triangles by two variables: R partitioned by a; S and T by both columns, so that a pair (a, b) has few candidates
    c (section 5)."""
    trees = _trees(definition, plan, 2)
    if trees is None:
        return None
    part_trees = (
        trees.listed("HHH", HEAVY, HEAVY, HEAVY),
        trees.listed("LLL", LIGHT, LIGHT, LIGHT),
        trees.listed("H(LL)*", HEAVY, LL, WHOLE),
        trees.listed("L*(HH)", LIGHT, WHOLE, HH),
        trees.paired("*HL", 0, WHOLE, HEAVY, LIGHT),
        trees.enumerated("H(LH)*", 2, HEAVY, LH, WHOLE),
        trees.enumerated("L*(HL)", 1, LIGHT, WHOLE, HL),
    )
    exponents = _exponents(least(EPSILON, REST), LEAST_MORE, rows=1)
    return Union(TRIANGLE_PAIRS, trees.edges, part_trees, trees.root, exponents)


def listed_triangles(definition: Definition, plan: Plan) -> Union | None:
    """All triangles: each table partitioned by its first column (section 4)."""
    trees = _trees(definition, plan, 3)
    if trees is None:
        return None
    part_trees = divide_by_next(
        trees.edges, trees.joined(), trees.closed, (Reading.SHARED, Reading.ENUMERATED), first=2
    )
    return Union(LISTED_TRIANGLES, trees.edges, part_trees, trees.root, LISTED)


def _exponents(delay: Exponent, space: Exponent, rows: int = 0) -> Exponents:
    return Exponents(line(Fraction(3, 2)), MOST, delay, space, Fraction(rows))


LISTED = Exponents(line(Fraction(3, 2)), MOST, line(0), line(Fraction(3, 2)), rows=Fraction(3, 2))
"""What all triangles cost."""


def _say_sum(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    start, exponents = say_query(definition, union, free), union.exponents
    if not 0 < epsilon < 1:
        return (
            f"{start} With epsilon = {epsilon:g} no value is heavy or all are, so nothing is kept beside the sum: a "
            "change is joined with whole lists, the shortest first, in worst-case optimal steps (Ngo et al. 2012). "
            f"epsilon = 0.5 would take {exponents.cost(0.5).update} per change."
        )
    return (
        f"{start} {say_apart(epsilon)}, and for pairs of heavy values the sum over light ones is kept as a product. "
        f"A change costs N^{exponents.update}, with the rebalances that it makes necessary, and space "
        f"N^{exponents.space} ({union.strategy.source})."
    )


def _refusal(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    """Triangles with further tables on their corners."""
    for three in combinations(definition.atoms, 3) if len(definition.atoms) > 3 else ():
        ring = find_ring(replace(definition, atoms=three), 3)
        corners = {edge.first for edge in ring or ()}
        met = [(atom, sorted(corners & atom.scheme)) for atom in definition.atoms if atom not in three]
        if corners and any(shared for _, shared in met) and all(len(shared) < 2 for _, shared in met):
            table, [corner] = next(one for one in met if one[1])
            key = column(definition, table.name, corner)
            why = f"a change of {table.name} meets all triangles of its {key}, and these may be O(N) with any epsilon"
            hint = f"create a view WITH (epsilon = ...) of the triangles alone, and join {table.name} when reading it"
            return why, hint
    return None


TRIANGLE_SUM = Strategy(
    triangle_sum,
    "the triangles",
    f"{TRIANGLES} and the nullary query with double partitioning",
    _say_sum,
    choice="always",
    undivided=STRATEGY,
    refusal=_refusal,
)
TRIANGLE_ENDS = Strategy(triangle_ends, "the triangles", TRIANGLES, say_division)
TRIANGLE_PAIRS = Strategy(triangle_pairs, "the triangles", TRIANGLES, say_division)
LISTED_TRIANGLES = Strategy(listed_triangles, "the triangles", TRIANGLES, say_division)


def _trees(definition: Definition, plan: Plan, count: int) -> _Trees | None:
    """The forms of trees for a triangle with `count` enumerated variables; None for another query."""
    edges = triangle_edges(plan.root) if plan.shape == "cyclic" else None
    if edges is None:
        return None
    top = plan.root.children[0]
    free = top.variables if top.connex else ()
    return _Trees(definition, edges, plan.root, free) if len(free) == count else None


def triangle_edges(root: Node) -> Edges | None:
    """The atoms of a triangle in rotation, if a plan's tree joins them in one bag and puts out nothing else; None for
    any other plan, and for atoms with variables of their own, which are summed on their way to the join.

    A single free variable is the first of the first atom, two are both of its.
    """
    bag, free = root, frozenset[str]()
    while len(bag.children) == 1:
        (bag,) = bag.children
        free = frozenset(bag.variables) if bag.connex else free
    sets = [frozenset(leaf.variables) for leaf in bag.children]
    if (
        root.variables
        or len(sets) != 3
        or any(leaf.atom is None for leaf in bag.children)
        or set(map(len, sets)) != {2}
    ):
        return None
    shared = [sets[i] & sets[(i + 1) % 3] for i in range(3)]
    if set(map(len, shared)) != {1} or len(frozenset().union(*shared)) != 3:
        return None
    (one,), (two,), (three,) = shared
    names = [leaf.atom or "" for leaf in bag.children]
    pairs = [(three, one), (one, two), (two, three)]
    edges = [Edge(name, ((first,), (second,))) for name, (first, second) in zip(names, pairs, strict=True)]
    if 0 < len(free) < 3:
        first = next(i for i in range(3) if free <= {edges[i].first, edges[i].second} and edges[i].first in free)
        edges = edges[first:] + edges[:first]
    return edges[0], edges[1], edges[2]


class _Trees:
    """The forms that trees of part trees over the triangle R(a, b), S(b, c), T(c, a) have."""

    def __init__(self, definition: Definition, edges: Edges, root: Node, free: tuple[str, ...]) -> None:
        self.edges, self.root, self.free = edges, root, free
        self._leaves = [
            Node(tuple(column.name for column in definition.atom(edge.atom).variables), atom=edge.atom)
            for edge in edges
        ]

    def listed(self, name: str, *parts: PartKey) -> PartTree:
        """All three joined at once, by the shortest lists, and added to the output."""
        return self._part_tree(name, parts, self.joined(), Reading.SHARED)

    def joined(self) -> Node:
        """The tree of such a part tree."""
        return self._output(Node(self._all(0), tuple(self._leaves)))

    def paired(self, name: str, closing: int, *parts: PartKey) -> PartTree:
        """The join of two kept by the variables of the third, `closing`, and with it added to the output."""
        return self._part_tree(name, parts, self._output(self._pair(closing)), Reading.SHARED)

    def enumerated(self, name: str, closing: int, *parts: PartKey) -> PartTree:
        """The join of two with all its variables, under those of the third: rows are listed without a dead end."""
        return self._part_tree(name, parts, self.closed(closing), Reading.ENUMERATED)

    def closed(self, closing: int) -> Node:
        """The tree of such a part tree."""
        closed = self._pair(closing)
        own, pair = closed.children
        top = replace(closed, children=(own, replace(pair, connex=True)), connex=True)
        return Node((), (top,), connex=True)

    def product(self, first: int) -> PartTree:
        """The sums of two light-joined tables by their outer variables, both heavy: HL times LH."""
        one, other = self.edges[first], self.edges[(first + 1) % 3]
        pair = Node(self._all(first), (self._leaves[first], self._leaves[(first + 1) % 3]))
        root = Node((one.first, other.second), (pair,))
        return PartTree(f"{one.atom} HL * {other.atom} LH", ((one.atom, HL), (other.atom, LH)), root, Reading.LOOKED_UP)

    def _part_tree(self, name: str, parts: tuple[PartKey, ...], root: Node, reading: Reading) -> PartTree:
        return PartTree(name, tuple((e.atom, part) for e, part in zip(self.edges, parts, strict=True)), root, reading)

    def _all(self, first: int) -> tuple[str, ...]:
        edge = self.edges[first]
        return edge.first, edge.second, self.edges[(first + 1) % 3].second

    def _pair(self, closing: int) -> Node:
        others = [(closing + 1) % 3, (closing + 2) % 3]
        pair = Node(self._all(others[0]), tuple(self._leaves[i] for i in others))
        return Node((self.edges[closing].first, self.edges[closing].second), (self._leaves[closing], pair))

    def _output(self, join: Node) -> Node:
        if not self.free:
            return Node((), (join,), connex=True)
        if set(self.free) == set(join.variables):
            return Node((), (replace(join, variables=self.free, connex=True),), connex=True)
        return Node((), (Node(self.free, (join,), connex=True),), connex=True)
