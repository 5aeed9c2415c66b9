"""Arrangements of a node's children: some may hang below a sibling that has all variables they share with the node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import prod

from sqlfront.planner.search.join_tree import Group, Part

_CACHED = 1 << 14

MOVES = 32
"""Ways to hang children below their siblings that are tried for one label."""


State = tuple[Group, frozenset[str]]
"""The operands below a node's label, and the variables that they share with the node above."""


def arrangements(children: list[State], rank: Mapping[str, int]) -> Iterator[tuple[State, ...]]:
    """The children as they are; and with some hung below a sibling that has all variables they share with the node."""
    targets = [
        [None, *(j for j in range(len(children)) if j != i and _may_hang(child, children[j]))]
        for i, child in enumerate(children)
    ]
    if prod(map(len, targets)) <= MOVES:
        moves = list(product(*targets))
    else:
        every = range(len(children))
        moves = [(None,) * len(children), *(tuple(j if j in targets[i] else None for i in every) for j in every)]
    for move in moves:
        if all(j is None or move[j] is None for j in move):
            yield tuple(
                hung(child, [children[i] for i, j in enumerate(move) if j == place], rank)
                for place, child in enumerate(children)
                if move[place] is None
            )


def _may_hang(child: State, target: State) -> bool:
    """Whether `child` may become part of what is below `target`: where several atoms are joined anyway, or where one
    puts out more than it shares, so that a join that it would not filter is made for its rows alone."""
    (parts, scope), (others, its) = child, target
    single = sum(len(part.atoms) for part in others) < 2
    if not scope <= its:
        return False
    if single and (len(atoms_of(parts)) < 2 or not others[0].connex or variables_of(others) <= its):
        return False
    return len(others) > 1 or not parts[0].connex or variables_of(parts) <= its


def hung(target: State, more: list[State], rank: Mapping[str, int]) -> State:
    """`target` with other children's operands among its own, in the order of FROM."""
    parts, scope = target
    if not more:
        return target
    if len(parts) > 1:
        grown = (*parts, *(part for group, _ in more for part in group))
        return tuple(sorted(grown, key=lambda part: rank[part.atoms[0]])), scope
    (part,) = parts
    atoms = (*part.atoms, *(name for group, _ in more for name in atoms_of(group)))
    return (Part(part.label, tuple(sorted(atoms, key=rank.__getitem__)), part.connex),), scope


@lru_cache(_CACHED)
def variables_of(group: Group) -> frozenset[str]:
    return frozenset().union(*(part.label for part in group))


@lru_cache(_CACHED)
def atoms_of(group: Group) -> tuple[str, ...]:
    return tuple(name for part in group for name in part.atoms)
