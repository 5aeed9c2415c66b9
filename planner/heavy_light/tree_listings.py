"""What the changes of a view tree list, and what it keeps: the numbers that decide what the tree costs.

A change climbs from its leaf to the root. At each node it is joined with the siblings. Siblings whose variables are
known are looked up, the others are listed; in a bag those that bind the same variables are intersected
(maintenance/tree/paths.py). The cost of a path is the number of combinations that it has listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sqlfront.planner.heavy_light.listings import Listing
from sqlfront.planner.model.plan import Node


def listed_by_changes(root: Node) -> frozenset[Listing]:
    """What the changes of the leaves list, each on its way to the root."""
    return frozenset(listing for chain in _chains(root, ()) for listing in _climb(chain))


def kept(root: Node) -> frozenset[Listing]:
    """The rows of the inner nodes: by all their variables where rows are enumerated, else by those that their parents
    have."""
    return frozenset(_kept(root, frozenset()))


def _kept(node: Node, above: frozenset[str]) -> Iterator[Listing]:
    if node.atom is None:
        variables = frozenset(node.variables)
        yield Listing(frozenset(), variables if node.connex else variables & above, _atoms(node))
        for child in node.children:
            yield from _kept(child, variables)


def _chains(node: Node, above: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """From each leaf to the root."""
    if node.atom is not None:
        yield (node, *above)
    for child in node.children:
        yield from _chains(child, (node, *above))


def _climb(chain: tuple[Node, ...]) -> Iterator[Listing]:
    leaf = frozenset(chain[0].variables)
    known, atoms = leaf, _atoms(chain[0])
    for source, parent in pairwise(chain):
        bound = _link(source, parent)
        order = _join_order(parent, source)
        for place, sibling in enumerate(order):
            fresh = _listed(sibling, parent) - bound
            atoms |= _atoms(sibling)
            if _link(sibling, parent) <= bound:
                continue
            for other in order[place + 1 :] if parent.is_bag else ():
                if _listed(other, parent) - bound == fresh and bound.intersection(other.variables):
                    atoms |= _atoms(other)
            known |= fresh
            bound |= _link(sibling, parent)
            yield Listing(leaf, known, atoms)


def _join_order(parent: Node, source: Node) -> list[Node]:
    """The siblings of `source` as a path joins them: those that are known first, then those that bind least."""
    bound, order = _link(source, parent), []
    rest = [child for child in parent.children if child is not source]
    while rest:
        ranks = [_rank(node, parent, bound) for node in rest]
        best = rest.pop(ranks.index(max(ranks)))
        order.append(best)
        bound |= _link(best, parent)
    return order


def _rank(node: Node, parent: Node, bound: frozenset[str]) -> tuple[bool, bool, bool, int, int]:
    shared, fresh = _link(node, parent) & bound, _link(node, parent) - bound
    binds = -len(fresh) if parent.is_bag else 0
    return not fresh, fresh <= set(parent.variables), bool(shared), binds, len(shared)


def _link(node: Node, parent: Node) -> frozenset[str]:
    return frozenset(node.variables).intersection(parent.variables)


def _listed(node: Node, parent: Node) -> frozenset[str]:
    """The variables of a row where rows are listed."""
    return frozenset(node.variables) if node.connex or node.atom is not None else _link(node, parent)


def _atoms(node: Node) -> frozenset[str]:
    return frozenset(leaf.atom for leaf in node.leaves() if leaf.atom)
