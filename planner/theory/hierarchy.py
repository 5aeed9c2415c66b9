"""The hierarchical and q-hierarchical tests, with witnesses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from sqlfront.planner.model.hypergraph import Edges, occurrences


@dataclass(frozen=True)
class Violation:
    """Why a query is not q-hierarchical.

    "hierarchical": `x` and `y` meet in the atoms `both`, but each also occurs without the other (S-E-T).
    "free": `x` is free and occurs in `both` only; `y`, bound, occurs there and in `only_y` too (E-T).
    `bound`: among the bound variables alone, which is what matters to membership.
    "testing": `x` is free and `y`, bound, occurs in `both` with it and in `only_y` without; `x` may occur elsewhere.
    """

    condition: str
    x: str
    y: str
    both: tuple[str, ...]
    only_x: tuple[str, ...]
    only_y: tuple[str, ...]
    bound: bool = False


def is_q_hierarchical(edges: Edges, free: Collection[str]) -> bool:
    """Berkholz, Keppeler and Schweikardt 2017, Definition 3.1."""
    return find_violation(edges, free) is None


def find_violation(edges: Edges, free: Collection[str]) -> Violation | None:
    """The first broken condition, hierarchical before free; None for a q-hierarchical query.

    O(|variables|^2 * |atoms|).
    """
    return next(violations(edges, free), None)


def violations(edges: Edges, free: Collection[str]) -> Iterator[Violation]:
    """All pairs that break a condition of q-hierarchical, hierarchical before free."""
    holders = {variable: names for variable, names in occurrences(edges).items() if len(names) > 1 or variable in free}
    ordered = list(
        dict.fromkeys(variable for edge in edges.values() for variable in sorted(edge) if variable in holders)
    )
    joining = [variable for variable in ordered if len(holders[variable]) > 1]  # Both conditions need two atoms.
    for x, y in combinations(joining, 2):
        if holders[x] & holders[y] and holders[x] - holders[y] and holders[y] - holders[x]:
            yield _describe("hierarchical", x, y, edges)
    for x in (variable for variable in ordered if variable in free):
        for y in joining:
            if y not in free and holders[x] < holders[y]:
                yield _describe("free", x, y, edges)


def membership_violations(edges: Edges, free: Collection[str]) -> Iterator[Violation]:
    """All pairs that break a condition of t-hierarchical, under which membership of a tuple is O(1).

    Berkholz, Keppeler and Schweikardt 2018: the bound variables are hierarchical among themselves, and a bound one
    that meets a free one occurs nowhere without it.
    """
    bound = {name: edge - frozenset(free) for name, edge in edges.items()}
    yield from (replace(violation, bound=True) for violation in violations(bound, ()))
    holders = occurrences(edges)
    for y in (variable for variable, names in holders.items() if len(names) > 1 and variable not in free):
        for x in dict.fromkeys(free):
            if holders[x] & holders[y] and holders[y] - holders[x]:
                yield _describe("testing", x, y, edges)


def q_hierarchical_extension(edges: Edges, free: Collection[str]) -> tuple[str, ...] | None:
    """The fewest variables that make a hierarchical query q-hierarchical when they are free too.

    None when the query is not hierarchical: no choice of free variables helps then. Each added variable is
    forced, since `x` free demands that every `y` with atoms(x) inside atoms(y) is.
    """
    grown = list(free)
    while (violation := find_violation(edges, grown)) is not None:
        if violation.condition == "hierarchical":
            return None
        grown.append(violation.y)
    return tuple(grown[len(free) :])


def _describe(condition: str, x: str, y: str, edges: Edges) -> Violation:
    both = tuple(name for name, edge in edges.items() if x in edge and y in edge)
    only_x = tuple(name for name, edge in edges.items() if x in edge and y not in edge)
    only_y = tuple(name for name, edge in edges.items() if y in edge and x not in edge)
    return Violation(condition, x, y, both, only_x, only_y)
