"""The division of a ring by the status of all its values: for each status the tree whose changes are cheapest.

A value is heavy if it is so in one of the two tables that it joins. So light values have short lists in both, and heavy
ones are few. Each of the 2^n statuses of n variables has one part tree, chosen among trees over bags (ring_trees.py) by
what its changes list (tree_listings.py); statuses that choose alike share a part tree. No two part trees have a ring in
common. The exponents of the union are the largest of any status, at each epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product

from sqlfront.planner.heavy_light.hung_ring import HungRing, columns_by_key
from sqlfront.planner.heavy_light.listings import UNIT, Listing, Listings, Values, largest
from sqlfront.planner.heavy_light.ring_trees import Candidate, RingTrees
from sqlfront.planner.heavy_light.tree_listings import kept, listed_by_changes
from sqlfront.planner.model.exponents import Curve, Exponents
from sqlfront.planner.model.heavy_light import PartKey, PartTree
from sqlfront.planner.model.query import Definition

CHOICES = Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(2, 3)
"""The epsilons for which trees are compared: at one of them a change is cheapest."""

CORNERS = tuple(sorted({Fraction(p, q) for q in range(1, 9) for p in range(q + 1)}))
"""The epsilons at which two bounds on at most eight variables can meet; between these they are lines."""


ByKey = dict[str, tuple[frozenset[str], frozenset[str]]]
Bounds = Callable[[str, Sequence[Fraction]], Listings]


@dataclass(frozen=True)
class Division:
    """The part trees of a ring, and what they cost."""

    part_trees: tuple[PartTree, ...]
    exponents: Exponents


@lru_cache(maxsize=64)
def divide_ring(definition: Definition, ring: HungRing, *, listed: bool, by: tuple[str, ...]) -> Division:
    """The division of a query that puts out all rows of a ring (`listed`), or sums by the variables `by`."""
    turns = range(1 if ring.hung or by else len(ring.edges))
    trees = [tuple(RingTrees(definition, ring.turned(turn), listed=listed, by=by).candidates()) for turn in turns]
    questions = [_Questions.of(one, by, ring) for one in trees[0]]
    # The statuses of a plain ring that differ by a rotation have the same trees, rotated.
    statuses = ["".join(letters) for letters in product("HL", repeat=len(ring.edges))]
    first = {status: min((_turned(status, turn), turn) for turn in turns) for status in statuses}
    bounds = partial(_listings, ring, _shown_by_key(definition, ring, by))
    numbers = _choose(bounds, dict.fromkeys(status for status, _ in first.values()), questions)
    chosen = {status: trees[turn][numbers[alike]] for status, (alike, turn) in first.items()}
    part_trees = [
        _part_tree(ring, status, candidate)
        for candidate in dict.fromkeys(chosen.values())
        for status in merged([status for status, one in chosen.items() if one == candidate])
    ]
    exact = [(bounds(status, CORNERS), questions[number]) for status, number in numbers.items()]
    update, delay, space = (
        _curve([listings.most(getattr(asked, name)) for listings, asked in exact]) for name in _Questions.COSTS
    )
    rows = _rows(definition, ring, listed=listed, by=by)
    return Division(tuple(part_trees), Exponents(update.plus(1), update, delay, space, rows))


def cheapest(exponents: Exponents) -> Fraction:
    """The epsilon of those compared at which a change is cheapest; of equals the least, with most sums kept."""
    return min(CHOICES, key=exponents.update.at)


def _turned(status: str, turn: int) -> str:
    return status[turn:] + status[:turn]


def merged(statuses: Sequence[str]) -> list[str]:
    """Pairs of statuses in which one variable is heavy and light, and all others alike, as one: it is either (*)."""
    found = dict.fromkeys(statuses)
    for place in range(len(statuses[0])):
        for heavy in [one for one in found if one[place] == "H"]:
            light, either = (heavy[:place] + letter + heavy[place + 1 :] for letter in "L*")
            if light in found:
                del found[heavy], found[light]
                found[either] = None
    return list(found)


@dataclass(frozen=True, eq=False)
class _Questions:
    """A candidate, and what decides its costs: what its changes list, how often a row may come again, what it keeps."""

    COSTS = "changes", "repeats", "space"

    candidate: Candidate
    changes: frozenset[Listing]
    repeats: frozenset[Listing]
    space: frozenset[Listing]

    @classmethod
    def of(cls, candidate: Candidate, by: tuple[str, ...], ring: HungRing) -> _Questions:
        atoms = frozenset((*(edge.atom for edge in ring.edges), *ring.hung))
        again = {Listing(frozenset(candidate.first), frozenset(candidate.ends), atoms)} if candidate.ends else ()
        edge = Listing(frozenset(), frozenset((ring.edges[0].first, ring.edges[0].second)), atoms)
        return cls(candidate, listed_by_changes(candidate.root), frozenset(again), kept(candidate.root) | {edge})


def _choose(bounds: Bounds, statuses: Iterable[str], questions: list[_Questions]) -> dict[str, int]:
    """The number of the best candidate for each status: by the cost of a change at the epsilon where the costliest
    status is cheapest, then the delay and the space there, then all of them at all epsilons."""
    costs: dict[str, list[tuple[Values, Values, Values]]] = {}
    for status in statuses:
        listings = bounds(status, CHOICES)
        costs[status] = [
            (listings.most(asked.changes), listings.most(asked.repeats), listings.most(asked.space))
            for asked in questions
        ]
    places = range(len(CHOICES))
    least = [max(min(change[place] for change, _, _ in own) for own in costs.values()) for place in places]
    best = max(places, key=lambda place: (-least[place], place))

    def rank(values: tuple[Values, Values, Values]) -> tuple[int, ...]:
        return (*(one[best] for one in values), *map(sum, values))

    ranks = {status: list(map(rank, own)) for status, own in costs.items()}
    return {status: own.index(min(own)) for status, own in ranks.items()}


def _listings(ring: HungRing, by_key: ByKey, status: str, epsilons: Sequence[Fraction]) -> Listings:
    heavy = (variable for variable, letter in zip(ring.variables, status, strict=True) if letter == "H")
    return Listings(dict(ring.pairs()), heavy, epsilons, by_key)


def _shown_by_key(definition: Definition, ring: HungRing, by: tuple[str, ...]) -> ByKey:
    """The hanging atoms whose columns are put out, which a key determines."""
    every = columns_by_key(definition, ring)
    return {atom: (joined, own.intersection(by)) for atom, (joined, own) in every.items() if own.intersection(by)}


def _curve(values: Sequence[Values]) -> Curve:
    most = largest(values)
    return Curve.through((epsilon, Fraction(value, UNIT)) for epsilon, value in zip(CORNERS, most, strict=True))


def _rows(definition: Definition, ring: HungRing, *, listed: bool, by: tuple[str, ...]) -> Fraction:
    """The exponent of the rows at worst: of a ring N^(n/2), of a table with columns of its own up to N for each row."""
    if listed:
        wide = [atom for atom, shared in ring.shared.items() if len(definition.atom(atom).variables) > shared]
        return Fraction(len(ring.edges), 2) + len(wide)
    told = frozenset(by)
    for joined, own in _shown_by_key(definition, ring, by).values():
        told = told - own | joined
    adjacent = any(told <= {edge.first, edge.second} for edge in ring.edges)
    return Fraction(min(len(told), 1 if adjacent else 2))


def _part_tree(ring: HungRing, status: str, candidate: Candidate) -> PartTree:
    size = len(ring.edges)
    parts = [(edge.atom, PartKey.of(status[i] + status[(i + 1) % size])) for i, edge in enumerate(ring.edges)]
    return PartTree(
        status, (*parts, *((atom, PartKey.of("")) for atom in ring.hung)), candidate.root, candidate.reading
    )
