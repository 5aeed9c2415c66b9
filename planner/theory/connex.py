"""The free-connex test, its witness, and the least free-connex extension of an acyclic query."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from sqlfront.planner.model.hypergraph import Edges, components, neighbours, vertices


def is_free_connex(edges: Edges, free: Collection[str]) -> bool:
    """Whether an *acyclic* query has a join tree whose top part holds exactly the free variables.

    Equivalent to: the atoms linked by bound variables show only free variables that one of them has.
    """
    wanted = frozenset(free)
    return all(_is_guarded(edges, group, wanted) for group in bound_components(edges, wanted))


def bound_components(edges: Edges, free: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """The groups of atoms linked by bound variables; what is summed out of the query falls apart along these."""
    return tuple(components(edges, free))


def _is_guarded(edges: Edges, group: tuple[str, ...], free: frozenset[str]) -> bool:
    seen = free & vertices({name: edges[name] for name in group})
    return any(seen <= edges[name] for name in group)


def find_free_path(edges: Edges, free: Collection[str]) -> tuple[str, ...] | None:
    """A chordless path x, z1, ..., zk, y (k >= 1) with free ends, bound inner variables and no atom over x and y.

    An acyclic query is free-connex exactly when there is none (Bagan, Durand and Grandjean 2007).
    """
    adjacent = neighbours(edges)
    order = {variable: rank for rank, variable in enumerate(dict.fromkeys(free))}
    for start in order:
        path = _shortest_path(adjacent, start, order)
        if path is not None:
            return path
    return None


def _shortest_path(adjacent: dict[str, frozenset[str]], start: str, free: Collection[str]) -> tuple[str, ...] | None:
    """Breadth first through bound variables to a free one that is not adjacent to `start`; shortest is chordless."""
    before: dict[str, str | None] = {start: None}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for after in sorted(adjacent[here] - before.keys()):
            if after not in free:
                before[after] = here
                queue.append(after)
            elif here != start and after not in adjacent[start]:
                path = [after]
                step: str | None = here
                while step is not None:
                    path.append(step)
                    step = before[step]
                return tuple(reversed(path))
    return None


def free_connex_extension(edges: Edges, free: Collection[str]) -> tuple[str, ...]:
    """The variables to add to `free` so that an acyclic query becomes free-connex; empty when it is.

    It is the least such set, so there is nothing to choose. If an inner variable of a free path stays bound,
    the piece of the path around it is again a free path: every extension must contain every inner variable.
    """
    grown = list(dict.fromkeys(free))
    start = len(grown)
    while (path := find_free_path(edges, grown)) is not None:
        grown.extend(path[1:-1])
    return tuple(grown[start:])
