"""Fractional edge covers: how many rows a join can have, as an exponent of N."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import exp, log

from sqlfront.planner.theory.simplex import greatest_packing

_CACHED = 1 << 16


def cover_number(variables: Iterable[str], edges: Iterable[frozenset[str]]) -> Fraction:
    """The least total weight of `edges` such that each of `variables` is in edges of weight 1 together (rho*).

    Relations of N rows over the edges have at most N^rho* distinct combinations of values for the variables, and that
    is tight (Atserias, Grohe and Marx 2013, the AGM bound). Raises ValueError when a variable is in no edge.
    """
    places = {variable: place for place, variable in enumerate(sorted(variables))}
    masks = {sum(1 << places[variable] for variable in edge if variable in places) for edge in edges} - {0}
    covered = 0
    for mask in masks:
        covered |= mask
    if covered != (1 << len(places)) - 1:
        raise ValueError("a variable is in no edge")
    forced, left = _forced(masks)
    return forced + _reduced(left) if left else Fraction(forced)


def largest_join(variables: Iterable[str], edges: Iterable[tuple[frozenset[str], int]]) -> float:
    """The most distinct combinations of values for `variables` that relations with these variables and numbers of rows
    can have: the least product of powers of the numbers whose exponents cover the variables (the AGM bound).

    Raises ValueError when a variable is in no edge.
    """
    wanted = sorted(set(variables))
    sized = [(edge, rows) for edge, rows in edges if edge & set(wanted)]
    if any(rows == 0 for _, rows in sized):
        return 0.0
    if not wanted:
        return 1.0
    if any(all(variable not in edge for edge, _ in sized) for variable in wanted):
        raise ValueError("a variable is in no edge")
    holders = [[int(variable in edge) for variable in wanted] for edge, _ in sized]
    return exp(greatest_packing(holders, [log(rows) for _, rows in sized]))


def _forced(edges: Iterable[int]) -> tuple[int, frozenset[int]]:
    """How many edges have weight 1 because a vertex is in no other edge, and what is left of the others to cover.

    The next such edges come to light when the vertices of these are gone, so that paths and trees are decided here.
    """
    forced, left = 0, frozenset(edges)
    while True:
        once = twice = 0
        for edge in left:
            twice |= once & edge
            once |= edge
        alone = once & ~twice
        chosen = [edge for edge in left if edge & alone]
        if not chosen:
            return forced, left
        forced += len(chosen)
        covered = 0
        for edge in chosen:
            covered |= edge
        left = frozenset(edge & ~covered for edge in left) - {0}


@lru_cache(_CACHED)
def _reduced(edges: frozenset[int]) -> Fraction:
    """The cover number after dropping what decides nothing: an edge inside another one, a vertex whose edges include
    all those of another vertex."""
    while True:
        maximal = [edge for edge in edges if not any(edge != other and edge & other == edge for other in edges)]
        kept = sum(1 << place for place in _needed(maximal))
        smaller = frozenset(edge & kept for edge in maximal) - {0}
        if smaller == edges:
            break
        edges = smaller
    if all(edge.bit_count() == 1 for edge in edges):
        return Fraction(len(edges))
    union = 0
    for edge in edges:
        union |= edge
    vertices = [place for place in range(union.bit_length()) if union >> place & 1]
    rows = (tuple(edge >> place & 1 for place in vertices) for edge in edges)
    return _solve(tuple(sorted(rows)))


def _needed(edges: list[int]) -> list[int]:
    """The vertices to cover: of several with comparable sets of edges the one with the fewest."""
    size = max((edge.bit_length() for edge in edges), default=0)
    holders = {place: frozenset(e for e in edges if e >> place & 1) for place in range(size)}
    present = [place for place in range(size) if holders[place]]
    return [
        place
        for place in present
        if not any(
            holders[other] < holders[place] or (holders[other] == holders[place] and other < place) for other in present
        )
    ]


@lru_cache(_CACHED)
def _solve(edges: tuple[tuple[int, ...], ...]) -> Fraction:
    """The linear programme, as its dual: the most weight on vertices with at most 1 in each edge."""
    return greatest_packing(edges, [Fraction(1)] * len(edges))
