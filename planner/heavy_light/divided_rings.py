"""The strategies for rings that are divided by the status of all values (ring_division.py): rings of five and six, sums
by columns of rings of four and five, and rings of three to five with tables that hang on them.

A query is divided if some epsilon makes a change cheaper than the query's one tree. The exponents are computed from the
trees, and EXPLAIN states them.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlfront.planner.heavy_light.hung_ring import LARGEST, HungRing, columns_by_key, find_hung_ring
from sqlfront.planner.heavy_light.reasons import say_apart, say_query
from sqlfront.planner.heavy_light.ring import all_variables, find_ring
from sqlfront.planner.heavy_light.ring_division import Division, cheapest, divide_ring
from sqlfront.planner.model.bound import Bound
from sqlfront.planner.model.heavy_light import Edge, Strategy, Union
from sqlfront.planner.model.plan import Node, Plan, RowsIn
from sqlfront.planner.model.query import Definition
from sqlfront.planner.theory.wording import enumerate_words, labels

LARGEST_UNEVEN = 5
"""Edges of a ring with groups or hanging tables, whose statuses are no rotations of each other."""

Accepts = Callable[[HungRing, tuple[str, ...]], bool]


def hung_ring(definition: Definition, plan: Plan) -> Union | None:
    """Rings of three to five with tables that hang on them: sums, all rows, and sums by columns of the ring."""
    return _divided(definition, plan, HUNG_RING, lambda ring, by: bool(ring.hung) and len(ring.edges) <= LARGEST_UNEVEN)


def grouped_ring(definition: Definition, plan: Plan) -> Union | None:
    """Sums over rings of four and five by some of their columns. O(N^(2/3)) and O(N) a change, at 1/3 and 1/2."""
    return _divided(
        definition, plan, GROUPED_RING, lambda ring, by: bool(by) and len(ring.edges) in (4, LARGEST_UNEVEN)
    )


def long_ring(definition: Definition, plan: Plan) -> Union | None:
    """Sums over rings of five and six, and all their rows. O(N) a change at epsilon = 1/2."""
    return _divided(definition, plan, LONG_RING, lambda ring, by: not by and not ring.hung and len(ring.edges) > 4)


def _divided(definition: Definition, plan: Plan, strategy: Strategy, accepts: Accepts) -> Union | None:
    found = _output(definition, plan)
    if found is None or not accepts(found[0], found[2]):
        return None
    ring, listed, by = found
    division = divide_ring(definition, ring, listed=listed, by=by)
    if not _is_cheaper(division, plan):
        return None
    edges = (*ring.edges, *(Edge(atom, ()) for atom in ring.hung))
    return Union(
        strategy, edges, division.part_trees, _root(definition, plan, ring, listed, by), division.exponents, joint=True
    )


def _output(definition: Definition, plan: Plan) -> tuple[HungRing, bool, tuple[str, ...]] | None:
    """The ring of a query, whether all its rows are put out, and the columns by which it is summed; None for another
    query, and where columns are put out that neither join nor are determined by a key that does."""
    ring = find_hung_ring(definition) if plan.shape == "cyclic" else None
    if ring is None:
        return None
    every = set(all_variables(definition))
    first = plan.rows_in == RowsIn.RANKED_TREE
    if first and plan.orders[0].top:
        return None
    free = definition.free if first else plan.free
    if free and (definition.mode == "bag" or set(free) == every):
        return ring, True, ()
    own = every - set(ring.variables)
    determined = frozenset[str]().union(*(columns for _, columns in columns_by_key(definition, ring).values()))
    if first or not own <= determined.intersection(plan.free):
        return None
    return ring, False, tuple(dict.fromkeys(plan.free))


def _is_cheaper(division: Division, plan: Plan) -> bool:
    return division.exponents.update.at(cheapest(division.exponents)) < plan.cost.update.power


def _root(definition: Definition, plan: Plan, ring: HungRing, listed: bool, by: tuple[str, ...]) -> Node:
    """The tree of what part trees share: the output, over one bag of all tables."""
    leaves = tuple(
        Node(tuple(column.name for column in definition.atom(atom).variables), atom=atom)
        for atom in (*(edge.atom for edge in ring.edges), *ring.hung)
    )
    if listed:
        every = tuple(dict.fromkeys((*plan.free, *all_variables(definition))))
        return Node((), (Node(every, leaves, connex=True),), connex=True)
    bag = Node(ring.variables, leaves)
    return Node((), (Node(by, (bag,), connex=True) if by else bag,), connex=True)


def _reason(definition: Definition, union: Union, free: tuple[str, ...], epsilon: float) -> str:
    exponents, cost, best = union.exponents, union.exponents.cost(epsilon), cheapest(union.exponents)
    hung = [edge.atom for edge in union.edges if not edge.groups]
    one = len(hung) == 1
    beside = f"{enumerate_words(hung)} {'hangs' if one else 'hang'} on them, and {'is' if one else 'are'} not divided. "
    return (
        f"{say_query(definition, union, free)} {beside if hung else ''}"
        f"{say_apart(epsilon)}; what is heavy in one of the two tables "
        "that it joins counts as heavy in both. By the status of all their values the rings are divided into "
        f"{len(union.part_trees)} part trees, each over bags of columns, in which a change lists light or heavy "
        f"values. For each status the tree is that whose changes list the least. A change costs {cost.update}, with "
        f"the rebalances that it makes necessary, {Bound(exponents.update.at(best))} at epsilon = {best}; space is "
        f"{cost.space}, and {'rows come' if free else 'the answer comes'} at {cost.delay} ({union.strategy.source})."
    )


def _refuse_hung(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    ring = find_hung_ring(definition)
    if ring is None or not ring.hung:
        return None
    what = "triangles" if len(ring.edges) == 3 else f"rings of {len(ring.edges)}"
    corners = [atom for atoms in ring.at_corners.values() for atom in atoms]
    hung = enumerate_words(ring.hung)
    if _output(definition, plan) is None:
        return (
            f"{what} with further tables are divided only in sums by columns that join, or that a declared key of such "
            "columns determines, and if all rows are put out",
            None,
        )
    if len(ring.edges) > LARGEST_UNEVEN:
        return f"tables that hang on rings of {len(ring.edges)} are not divided: only on rings of three to five", None
    why = f"a change of the {what} with {hung} costs as much with any epsilon as without"
    alone = f"create a view WITH (epsilon = ...) of the {what} alone, and join {hung} when reading it"
    return why, alone if corners else None


def _refuse_grouped(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    ring = find_hung_ring(definition)
    if ring is None or ring.hung or len(ring.edges) < 4:
        return None
    size, free = len(ring.edges), plan.free
    what = labels(definition, free) if free else "columns that join no tables"
    if size > LARGEST_UNEVEN:
        return f"rings of {size} by {what} are not divided: only sums without GROUP BY, and all rows", None
    if not free or not set(free) <= set(ring.variables):
        return f"rings of {size} by {what} are not divided: only sums of two columns a table, and all rows", None
    return f"a change of rings of {size} by {what} costs as much with any epsilon as without", None


def _refuse_long(definition: Definition, plan: Plan) -> tuple[str, str | None] | None:
    size = len(definition.atoms)
    if size > LARGEST and find_ring(definition, size) is not None:
        return f"for rings of {size} tables no division by heavy and light values is known here", None
    return None


_SOURCE = (
    "after Kara, Nikolic, Ngo, Olteanu and Zhang 2020; the division and its exponents are ours, docs/cost-classes.md"
)

HUNG_RING = Strategy(hung_ring, "the rings", _SOURCE, _reason, refusal=_refuse_hung)
GROUPED_RING = Strategy(grouped_ring, "the rings", _SOURCE, _reason, refusal=_refuse_grouped)
LONG_RING = Strategy(long_ring, "the rings", _SOURCE, _reason, refusal=_refuse_long)
