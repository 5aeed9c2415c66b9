"""All rows of a ring R(a, b), S(b, c), T(c, d), U(d, a): trees over bags of three columns, by heavy and light values.

A value is heavy if it is so in one of the two tables that it joins. Light values have short lists in both, and heavy
ones are few; so a bag of two tables is cheap to change if what they share is light, or both of its other columns are
heavy. Ten part trees, by the status of all four values, have no ring in common (the split of Deep, Hu and Koutris 2022,
section on unions, divides by the first heavy value of a table; that bounds the bags, but not what a change costs).
"""

from __future__ import annotations

from fractions import Fraction

from sqlfront.planner.heavy_light.reasons import say_apart, say_query
from sqlfront.planner.heavy_light.ring import Ring, all_variables, find_ring, listed_ring
from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.exponents import REST, Exponents, greatest, least, line
from sqlfront.planner.model.heavy_light import PartKey, PartTree, Reading, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan, RowsIn
from sqlfront.planner.model.query import Definition

OPPOSITE = ("H*H*", "HLLL", "LLHL")
"""The status of a, b, c and d where the bags (a, b, c) and (c, d, a) are cheap to change."""

TURNED = ("L*L*", "HHLH", "LHHH")
"""Where (b, c, d) and (d, a, b) are."""

ADJACENT = ("HHLL", "LHHL", "LLHH", "HLLH")
"""Where the values of one table, R, S, T or U, are heavy, and the others light."""


def ring_rows(definition: Definition, plan: Plan) -> Union | None:
    """The strategy, if the query puts out all columns of a ring of four, all its rows, or first ones; else None.

    O(N^max(1-eps, min(1, 2 eps))) a change, O(N^max(2-eps, 1+eps)) space.
    """
    ring = None
    if plan.shape == "cyclic":
        first = plan.rows_in == RowsIn.RANKED_TREE and not plan.orders[0].top
        ring = find_ring(definition, 4) if first else listed_ring(definition, plan.free, 4)
    if ring is None:
        return None
    trees = _Trees(definition, ring)
    part_trees = [trees.part_tree(status, trees.opposite(0)) for status in OPPOSITE]
    part_trees += [trees.part_tree(status, trees.opposite(1)) for status in TURNED]
    part_trees += [trees.part_tree(status, trees.adjacent(i)) for i, status in enumerate(ADJACENT)]
    free = tuple(dict.fromkeys((*plan.free, *all_variables(definition))))
    bag = Node(free, tuple(map(trees.leaf, range(4))), connex=True)
    root = Node((), (bag,), connex=True)
    return Union(RING_ROWS, ring, tuple(part_trees), root, _EXPONENTS, joint=True)


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    exponents, cost = union.exponents, union.exponents.cost(epsilon)
    return (
        f"{say_query(definition, union, free)} {say_apart(epsilon)}; what is heavy in one of the two tables that it "
        "joins counts as heavy in both. By the status of all four values the rings are divided into "
        f"{len(union.part_trees)} part trees with none in common, each a tree over bags of three columns, in which a "
        f"change lists light or heavy values. It costs {cost.update}, with the rebalances that it makes necessary, "
        f"{Bound(exponents.update.at(Fraction(1, 3)))} at epsilon = 1/3; the bags take {cost.space}, "
        f"{Bound(exponents.space.at(Fraction(1, 2)))} at 0.5, and rows come at {cost.delay} "
        f"({union.strategy.source})."
    )


_SPACE = greatest(line(2, -1), line(1, 1))
_EXPONENTS = Exponents(
    building=_SPACE,
    update=greatest(REST, least(line(1), line(0, 2))),
    delay=line(0),
    space=_SPACE,
    rows=Fraction(4, 3),
)

RING_ROWS = Strategy(
    ring_rows,
    "the rings",
    "after the split of cycles by Deep, Hu and Koutris 2022; the division is ours",
    _reason,
)


class _Trees(Ring):
    """The trees of part trees, over the edges R(a, b), S(b, c), T(c, d), U(d, a)."""

    def part_tree(self, status: str, root: Node) -> PartTree:
        """The rings whose values a, b, c and d have this status."""
        parts = ((edge.atom, PartKey.of(status[i] + status[(i + 1) % 4])) for i, edge in enumerate(self.ring))
        return PartTree(status, tuple(parts), root, Reading.ENUMERATED)

    def opposite(self, i: int) -> Node:
        """For i = 0: a and c, under which the bags (a, b, c) and (c, d, a) are listed. O(1) for each row of a bag."""
        ends = self._start(i), self._start(i + 2)
        return self._enumerated(Node(ends, (self.join(i), self.join(i + 2)), connex=True))

    def adjacent(self, i: int) -> Node:
        """For i = 1: S(b, c); for its values the d that T has with c, and the bag (d, a, b) with b, whether S has the
        two or not; and the bag. So a change of S, whose values are heavy, is O(1), and the others list light values."""
        values = self._start(i), self._start(i + 1)
        upper = Node((*values, self._start(i + 2)), (self.side(i + 1), self.join(i + 2)), connex=True)
        return self._enumerated(Node(values, (self.side(i), upper), connex=True))

    def _start(self, i: int) -> str:
        return self.ring[i % 4].first

    @staticmethod
    def _enumerated(top: Node) -> Node:
        return Node((), (top,), connex=True)
