"""Beam search over elimination orders, for hypergraphs too large for a complete search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from sqlfront.planner.model.hypergraph import Edges, neighbours
from sqlfront.planner.theory.cover import cover_number

BEAM = 12
"""Orders that are kept after each step."""

BEST = 4
"""Orders whose bags are given."""


def promising_bags(edges: Edges, free: frozenset[str]) -> tuple[frozenset[str], ...]:
    """The bags of good elimination orders, bound variables first, best order first.

    An order eliminates one variable after another: its bag is the variable with its neighbours, which become
    neighbours of each other. Orders survive by the greatest cover number of a bag so far, then by the sum.
    O(variables^2) covers.
    """
    orders = [_Order(Fraction(0), Fraction(0), (), neighbours(edges))]
    covers: dict[frozenset[str], Fraction] = {}
    for _ in range(len(orders[0].adjacent)):
        grown: dict[frozenset[str], _Order] = {}
        for order in orders:
            for longer in _longer(order, edges, free, covers):
                left = frozenset(longer.adjacent)
                if left not in grown or longer.price < grown[left].price:
                    grown[left] = longer
        orders = sorted(grown.values(), key=lambda order: order.price)[:BEAM]
    return tuple(dict.fromkeys(bag for order in orders[:BEST] for bag in order.bags))


@dataclass(frozen=True)
class _Order:
    """A beginning of an order: the greatest and the summed cover numbers, the bags, and the graph that is left."""

    width: Fraction
    total: Fraction
    bags: tuple[frozenset[str], ...]
    adjacent: dict[str, frozenset[str]]

    @property
    def price(self) -> tuple[Fraction, Fraction]:
        return self.width, self.total


def _longer(
    order: _Order, edges: Edges, free: frozenset[str], covers: dict[frozenset[str], Fraction]
) -> Iterator[_Order]:
    """The order with one more variable. `covers` are the cover numbers of the bags met so far."""
    bound = [variable for variable in order.adjacent if variable not in free]
    for variable in bound or order.adjacent:
        around = order.adjacent[variable]
        bag = around | {variable}
        if bag not in covers:
            covers[bag] = cover_number(bag, edges.values())
        rows = covers[bag]
        left = {v: others - {variable} for v, others in order.adjacent.items() if v != variable}
        left |= {v: left[v] | around - {v} for v in around}
        yield _Order(max(order.width, rows), order.total + rows, (*order.bags, bag), left)
