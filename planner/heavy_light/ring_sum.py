"""The IVM^eps strategy for a sum over R(a, b), S(b, c), T(c, d), U(d, a): O(N^(2/3)) a change at epsilon = 2/3.

The four tables are partitioned by both columns. A change R(a, b) needs the sum over c and d of S * T * U. A variable
that joins two tables is summed out beforehand where each row of the one meets few of the other: as the row's value is
light there, or what it meets is heavy. A change then lists what one table has for a or b, few again by the parts, and
looks up the sums of the other two. Where nothing is few, a and b are heavy, and the sums of all three are kept for such
pairs; where the two between cannot be summed, it lists heavy c and d, O(N^(2 - 2 eps)) pairs. Which parts are joined
how differs from atom to atom, so each has its own part trees. The bound is that of Hanauer, Henzinger and Hua 2022,
"Fully dynamic four-vertex subgraph counting"; the division is ours.
"""

from __future__ import annotations

from fractions import Fraction

from sqlfront.planner.heavy_light.reasons import say_apart, say_query
from sqlfront.planner.heavy_light.ring import Ring, find_ring
from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.exponents import EPSILON, Exponents, greatest, least, line
from sqlfront.planner.model.heavy_light import PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan
from sqlfront.planner.model.query import Definition

WHOLE, NOT_HL, NOT_LH, ALIKE = map(PartKey.of, ("**", "HH|L*", "H*|LL", "HH|LL"))
HEAVY, HL, LH, LL = map(PartKey.of, ("H*", "HL", "LH", "LL"))

PAIRS = (
    (HEAVY, NOT_HL), (LL, LH), (LL, ALIKE), (NOT_LH, LH), (NOT_LH, LL), (HL, LL)
)  # fmt: skip
"""The parts of a table and of the next one that are joined and summed over what they share."""


def ring_sum(definition: Definition, plan: Plan) -> Union | None:
    """The strategy, if the query is a sum over a ring of four; else None. O(N^max(eps, min(1, 2 - 2 eps))) a change."""
    narrow = all(len(atom.variables) == 2 for atom in definition.atoms)
    ring = find_ring(definition, 4) if narrow and plan.shape == "cyclic" and not plan.free else None
    if ring is None:
        return None
    trees = _Trees(definition, ring)
    part_trees = [trees.pair(j, *parts) for j in range(4) for parts in PAIRS]
    for i in range(4):
        part_trees += trees.heavy_ends(i)
    for i in range(4):
        part_trees += trees.changes(i)
    bag = Node(tuple(edge.first for edge in ring), tuple(trees.leaf(i) for i in range(4)))
    return Union(RING_SUM, ring, tuple(part_trees), Node((), (bag,), connex=True), _EXPONENTS)


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    kept = sum(part_tree.reading == Reading.LOOKED_UP for part_tree in union.part_trees)
    cost = union.exponents.cost(epsilon)
    return (
        f"{say_query(definition, union, free)} {say_apart(epsilon)}. What two tables join, by the status of their "
        f"values, is summed over the column that they share where that meets few rows, {kept} sums in all with those "
        "of three tables for pairs of heavy values. A change lists what is few in the others and looks up the rest. "
        f"It costs {cost.update}, with the rebalances that it makes necessary, and space {cost.space}; epsilon = 2/3 "
        f"makes a change cheapest, {Bound(union.exponents.update.at(Fraction(2, 3)))} ({union.strategy.source})."
    )


_EXPONENTS = Exponents(
    building=greatest(line(1, 1), least(line(2), line(3, -2))),
    update=greatest(EPSILON, least(line(1), line(2, -2))),
    delay=line(0),
    space=greatest(line(1, 1), line(2, -2)),
)

RING_SUM = Strategy(
    ring_sum,
    "the rings",
    "the bound of Hanauer, Henzinger and Hua 2022, Fully dynamic four-vertex subgraph counting",
    _reason,
)


class _Trees(Ring):
    """The trees of part trees: the change of edge i, R(a, b), meets S, T and U after it."""

    def pair(self, j: int, one: PartKey, other: PartKey) -> PartTree:
        """The sums over the variable that two edges share, by their other variables."""
        root = self._paired(j)
        return PartTree(
            self._name((j, one), (j + 1, other)), self._parts((j, one), (j + 1, other)), root, Reading.LOOKED_UP
        )

    def heavy_ends(self, i: int) -> list[PartTree]:
        """The sums over S, T and U for heavy a and b, c and d being light; and what changes of the three add."""
        s, t, u = (i + 1, HL), (i + 2, LL), (i + 3, LH)
        ends = self.ring[(i + 1) % 4].first, self.ring[i % 4].first
        every = (self.leaf(i + 1), self.leaf(i + 2), self.leaf(i + 3))
        name = self._name(s, t, u)
        kept = PartTree(name, self._parts(s, t, u), Node(ends, (self._bag(*every),)), Reading.LOOKED_UP)

        def added(changed: int, *operands: Node) -> PartTree:
            root = Node(ends, (self._bag(*operands),))
            atom = self.ring[changed % 4].atom
            return PartTree(f"{atom} to {name}", kept.parts, root, Reading.ADDED, atom, kept)

        return [
            kept,
            added(i + 1, every[0], self._paired(i + 2)),
            added(i + 3, every[2], self._paired(i + 1)),
            added(i + 2, every[1], every[0], every[2]),
        ]

    def changes(self, i: int) -> list[PartTree]:
        """What a change of edge i adds to the sum, by the parts of S, T and U; in a bag, what comes first is listed
        first."""
        s, t, u = i + 1, i + 2, i + 3
        leaves = {j: self.leaf(j) for j in (s, t, u)}
        through_c, through_d = self._paired(s), self._paired(t)
        all_three = Node((self.ring[s % 4].first, self.ring[i].first), (self._bag(*leaves.values()),))
        return [
            self._change(i, (WHOLE, HEAVY, NOT_HL), through_d, leaves[s]),
            self._change(i, (WHOLE, HEAVY, HL), leaves[u], leaves[t], leaves[s]),
            self._change(i, (NOT_LH, LH, WHOLE), through_c, leaves[u]),
            self._change(i, (LH, LH, WHOLE), leaves[s], leaves[t], leaves[u]),
            self._change(i, (NOT_LH, LL, NOT_LH), leaves[u], through_c),
            self._change(i, (NOT_HL, LL, LH), leaves[s], through_d),
            self._change(i, (HL, LL, LH), all_three),
            self._change(i, (LH, LL, HL), leaves[s], leaves[t], leaves[u]),
            self._change(i, (LH, LL, ALIKE), leaves[s], through_d),
        ]

    def _change(self, i: int, parts: tuple[PartKey, PartKey, PartKey], *operands: Node) -> PartTree:
        own = self._parts((i, WHOLE), *((i + 1 + place, part) for place, part in enumerate(parts)))
        root = Node((), (self._bag(self.leaf(i), *operands),), connex=True)
        return PartTree(
            f"{self.ring[i].atom} with {' '.join(map(str, parts))}", own, root, Reading.ADDED, self.ring[i].atom
        )

    def _paired(self, j: int) -> Node:
        one, other = self.ring[j % 4], self.ring[(j + 1) % 4]
        pair = Node((one.first, one.second, other.second), (self.leaf(j), self.leaf(j + 1)))
        return Node((one.first, other.second), (pair,))

    def _bag(self, *operands: Node) -> Node:
        return Node(tuple(dict.fromkeys(v for operand in operands for v in operand.variables)), operands)

    def _parts(self, *chosen: tuple[int, PartKey]) -> tuple[tuple[str, PartKey], ...]:
        return tuple((self.ring[i % 4].atom, part) for i, part in chosen)

    def _name(self, *chosen: tuple[int, PartKey]) -> str:
        return " * ".join(f"{atom} {part}" for atom, part in self._parts(*chosen))
