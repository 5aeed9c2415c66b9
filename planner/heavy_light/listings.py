"""How many values the paths of a view tree list over the edges of a ring, by heavy and light values, as exponents of N.

A light value of an edge has about N^eps partners there, a heavy one up to N. A heavy variable has about N^(1-eps)
values, whatever lists them. An edge of which no value is known has N rows. A key determines one row. A set of variables
is bound by the cheapest sequence of such steps, and their exponents are added up. These are degree constraints (Khamis,
Ngo and Suciu 2017, "What do Shannon-type inequalities, submodular width, and disjunctive datalog have to do with one
another?").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import add
from typing import NamedTuple

UNIT = 840
"""The exponent 1: those at p/q are whole numbers for every q up to 8."""

Values = tuple[int, ...]
"""Exponents in units, one for each epsilon of interest."""


class Listing(NamedTuple):
    """How many combinations of the `wanted` variables join one of the `known` ones, in the edges of some atoms."""

    known: frozenset[str]
    wanted: frozenset[str]
    atoms: frozenset[str]


class Listings:
    """The bounds for one status of the variables of a ring. `edges` are the variables of its atoms, by name; `heavy`
    are the heavy variables, all others are light. In each of the atoms `by_key` the first variables determine the
    second ones. The exponents are those at the `epsilons`."""

    def __init__(
        self,
        edges: Mapping[str, tuple[str, str]],
        heavy: Iterable[str],
        epsilons: Sequence[Fraction],
        by_key: Mapping[str, tuple[frozenset[str], frozenset[str]]] | None = None,
    ) -> None:
        self.nothing, self.all = ((n * UNIT,) * len(epsilons) for n in (0, 1))
        keys = by_key or {}
        determined = [variable for _, own in keys.values() for variable in sorted(own)]
        variables = dict.fromkeys([*(v for edge in edges.values() for v in edge), *determined])
        self._bits = {variable: 1 << i for i, variable in enumerate(variables)}
        self._edges = {atom: self._mask(edge) for atom, edge in edges.items()}
        self._keys = {atom: (self._mask(joined), self._mask(own)) for atom, (joined, own) in keys.items()}
        self._heavy = self._mask(heavy)
        self._light_list = tuple(int(epsilon * UNIT) for epsilon in epsilons)
        self._heavy_values = tuple(UNIT - epsilon for epsilon in self._light_list)
        self._found: dict[Listing, Values] = {}
        self._reached: dict[tuple[int, frozenset[str]], dict[int, Values]] = {}

    def most(self, listings: Iterable[Listing]) -> Values:
        """The exponents of the largest of several numbers. Other variables and atoms than the ring's are ignored."""
        return largest([self.nothing, *map(self._count, listings)])

    def _count(self, listing: Listing) -> Values:
        """Exponential in the number of variables, once for what is known and each set of atoms."""
        if (found := self._found.get(listing)) is not None:
            return found
        have, want = self._mask(listing.known), self._mask(listing.wanted)
        atoms = listing.atoms & (self._edges.keys() | self._keys.keys())
        if (have, atoms) not in self._reached:
            self._reached[have, atoms] = self._reach(have, atoms)
        reached = [values for bound, values in self._reached[have, atoms].items() if want & ~bound == 0]
        self._found[listing] = tuple(map(min, *reached)) if len(reached) > 1 else reached[0]
        return self._found[listing]

    def _reach(self, have: int, atoms: frozenset[str]) -> dict[int, Values]:
        """The exponents of all sets of variables that steps lead to."""
        edges = [self._edges[atom] for atom in atoms if atom in self._edges]
        keys = [self._keys[atom] for atom in atoms if atom in self._keys]
        best = {have: self.nothing}
        for bound in range(have, 1 << len(self._bits)):  # A step adds variables, so it leads to a larger number.
            total = best.get(bound)
            for more, values in self._steps(bound, edges, keys) if total is not None else ():
                reached, sums = bound | more, tuple(map(add, total or (), values))
                best[reached] = tuple(map(min, best[reached], sums)) if reached in best else sums
        return best

    def _steps(self, bound: int, edges: list[int], keys: list[tuple[int, int]]) -> Iterator[tuple[int, Values]]:
        """What can be listed next: what a key determines, a heavy variable, the other variable of an edge, or both."""
        for joined, own in keys:
            if not joined & ~bound and own & ~bound:
                yield own & ~bound, self.nothing
        for edge in edges:
            fresh = edge & ~bound
            if not fresh:
                continue
            is_light = edge & bound & ~self._heavy
            yield fresh, self._light_list if is_light else self.all
            heavy = fresh & self._heavy
            while heavy:
                yield heavy & -heavy, self._heavy_values
                heavy &= heavy - 1

    def _mask(self, variables: Iterable[str]) -> int:
        return sum(self._bits.get(variable, 0) for variable in set(variables))


def largest(values: Sequence[Values]) -> Values:
    """The largest exponents, at each epsilon."""
    return tuple(map(max, *values)) if len(values) > 1 else values[0]
