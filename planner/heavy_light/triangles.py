"""The IVM^eps strategies for triangles R(a, b), S(b, c), T(c, a), by the number of variables that are put out.

Kara, Nikolic, Ngo, Olteanu and Zhang 2020, "Maintaining triangle queries under updates", sections 3 to 6.
"""

from __future__ import annotations

from dataclasses import replace

from sqlfront.planner.model.heavy_light import Cover, Edge, PartTree, Reading, Union
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Definition

WHOLE = "**"
Edges = tuple[Edge, Edge, Edge]


def triangle_union(definition: Definition, root: Node) -> Union | None:
    """The strategy for a plan's tree: by the number of variables it enumerates; None if it is no triangle."""
    edges = triangle_edges(root)
    if edges is None:
        return None
    free = root.children[0].variables if root.children[0].connex else ()
    return (_nullary, _unary, _binary, _ternary)[len(free)](_Trees(definition, edges, root, free))


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

    def union(self, *part_trees: PartTree, covers: tuple[Cover, ...] = ()) -> Union:
        return Union(self.edges, part_trees, self.root, covers)

    def listed(self, name: str, *parts: str) -> PartTree:
        """All three joined at once, by the shortest lists, and added to the output."""
        bag = Node(self._all(0), tuple(self._leaves))
        return self._part_tree(name, parts, self._output(bag), "shared")

    def paired(self, name: str, closing: int, *parts: str) -> PartTree:
        """The join of two kept by the variables of the third, `closing`, and with it added to the output."""
        return self._part_tree(name, parts, self._output(self._closed(closing)), "shared")

    def enumerated(self, name: str, closing: int, *parts: str) -> PartTree:
        """The join of two with all its variables, under those of the third: rows are listed without a dead end."""
        closed = self._closed(closing)
        own, pair = closed.children
        top = replace(closed, children=(own, replace(pair, connex=True)), connex=True)
        return self._part_tree(name, parts, Node((), (top,), connex=True), "enumerated")

    def product(self, first: int) -> PartTree:
        """The sums of two light-joined tables by their outer variables, both heavy: HL times LH."""
        one, other = self.edges[first], self.edges[(first + 1) % 3]
        pair = Node(self._all(first), (self._leaves[first], self._leaves[(first + 1) % 3]))
        root = Node((one.first, other.second), (pair,))
        return PartTree(f"{one.atom} HL * {other.atom} LH", ((one.atom, "HL"), (other.atom, "LH")), root, "looked up")

    def _part_tree(self, name: str, parts: tuple[str, ...], root: Node, reading: Reading) -> PartTree:
        return PartTree(name, tuple((e.atom, part) for e, part in zip(self.edges, parts, strict=True)), root, reading)

    def _all(self, first: int) -> tuple[str, ...]:
        edge = self.edges[first]
        return edge.first, edge.second, self.edges[(first + 1) % 3].second

    def _closed(self, closing: int) -> Node:
        others = [(closing + 1) % 3, (closing + 2) % 3]
        pair = Node(self._all(others[0]), tuple(self._leaves[i] for i in others))
        return Node((self.edges[closing].first, self.edges[closing].second), (self._leaves[closing], pair))

    def _output(self, join: Node) -> Node:
        if not self.free:
            return Node((), (join,), connex=True)
        if set(self.free) == set(join.variables):
            return Node((), (replace(join, variables=self.free, connex=True),), connex=True)
        return Node((), (Node(self.free, (join,), connex=True),), connex=True)


def _nullary(trees: _Trees) -> Union:
    """Each table partitioned by both columns. A change R(a, b) lists c heavy in T, or of a light value; for two heavy
    values the sum over light c is looked up. Kept by covers, as each atom lists other parts (section 3.4)."""
    return trees.union(
        *map(trees.product, range(3)),
        covers=(
            Cover(False, WHOLE, WHOLE),
            Cover(True, WHOLE, "HH"),
            Cover(True, "HH", "LH"),
            Cover(True, "HL", "LH", listed=False),
        ),
    )


def _ternary(trees: _Trees) -> Union:
    """Each table partitioned by its first column; no two part trees have a row in common (section 4)."""
    return trees.union(
        trees.listed("HHH", "H*", "H*", "H*"),
        trees.listed("LLL", "L*", "L*", "L*"),
        trees.enumerated("HL*", 2, "H*", "L*", WHOLE),
        trees.enumerated("*HL", 0, WHOLE, "H*", "L*"),
        trees.enumerated("L*H", 1, "L*", WHOLE, "H*"),
    )


def _binary(trees: _Trees) -> Union:
    """R partitioned by a; S and T by both columns, so that a pair (a, b) has few candidates c (section 5)."""
    return trees.union(
        trees.listed("HHH", "H*", "H*", "H*"),
        trees.listed("LLL", "L*", "L*", "L*"),
        trees.listed("H(LL)*", "H*", "LL", WHOLE),
        trees.listed("L*(HH)", "L*", WHOLE, "HH"),
        trees.paired("*HL", 0, WHOLE, "H*", "L*"),
        trees.enumerated("H(LH)*", 2, "H*", "LH", WHOLE),
        trees.enumerated("L*(HL)", 1, "L*", WHOLE, "HL"),
    )


def _unary(trees: _Trees) -> Union:
    """R and T partitioned by both columns, S by b (section 6)."""
    return trees.union(
        trees.listed("HHH", "H*", "H*", "H*"),
        trees.listed("LLL", "L*", "L*", "L*"),
        trees.listed("(LL)*H", "LL", WHOLE, "H*"),
        trees.listed("(LH)*(HH)", "LH", WHOLE, "HH"),
        trees.paired("HL*", 2, "H*", "L*", WHOLE),
        trees.paired("*HL", 0, WHOLE, "H*", "L*"),
        trees.enumerated("(LH)*(HL)", 1, "LH", WHOLE, "HL"),
    )
