"""Trees over bags, for joins with cycles: hypertree decompositions in the form that views are maintained in.

The trees are those of `join_tree` without the demand for a guard: a node's label is a *bag*, the variables that join
its children, are shared with its parent or, in the connex top, are put out; no child need hold all of them. An
atom counts in the leaf of one node only and filters the bags above by way of the messages; in other branches it may be
a leaf that only filters, which rows there are without how many. The root has no variables and one child per connected
component.

A bag's rows are combinations of what is below it, so the atoms below bound their number, by the fractional cover
number: that is the node's *width*. The largest is the fractional hypertree width of the query (Grohe and Marx 2014),
unless an atom of another branch has some of its columns in a bag, and others not: no leaf keeps projections of atoms,
so such an atom does not bound the bag. A change of an atom binds that atom's variables in every bag on its way up: what
is left of the bag bounds its cost, by the same number (delta queries, Koch et al. 2014, joined worst-case optimally,
Ngo et al. 2012).

Free variables: as in `join_tree`, the atoms linked by bound variables form parts, which the connex top joins.

A comparison is an edge without rows: it must fall inside a bag, whose rows it tests there and then, but it bounds no
number of rows, costs nothing to change, and gives no variable a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations, islice

from sqlfront.planner.model.hypergraph import comparison_edges, constrained, ordered_variables, vertices
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Comparison, Definition
from sqlfront.planner.search.arrangements import State, arrangements, atoms_of, hung, variables_of
from sqlfront.planner.search.join_tree import FAN_OUT_LEVELS, Group, Part, Weights, frontier, guarded_labels, split
from sqlfront.planner.theory.cover import cover_number
from sqlfront.planner.theory.elimination import promising_bags
from sqlfront.planner.theory.enumerable import enumerable_sets
from sqlfront.planner.theory.gyo import reduce_gyo

STRATEGY = "bags of a hypertree decomposition, worst-case optimal delta joins"

EXACT_VARIABLES = 8
"""Cycles over at most so many variables are searched completely; above, the labels come from a beam search."""

EXACT_BUDGET = 3000
"""Options that a complete search compares at most, which only joins of very many tables have."""

BUDGET, MOST = 16000, 200
"""Options that another search compares, and those for one of its states. A state always has its first option."""

CHEAP_ATOMS = 8
"""An option costs a cover number for each atom, over all atoms: that of a query of more atoms counts as so many options
as the square of their multiple. The budgets bound the time that way, and the tree is the same on every machine."""

_FILTER = "\0"
"""Begins the name of an operand that filters by an atom."""


@dataclass(frozen=True)
class Decomposition:
    """A tree with its exponents of N: of what building it takes, of one change, of what is stored.

    `bags` are the labels that have the greatest width. `cut`: the search ended at its budget, and trees were not
    compared.
    """

    root: Node
    width: Fraction
    update: Fraction
    space: Fraction
    bags: tuple[tuple[str, ...], ...]
    cut: bool = False


def decompose_best(definition: Definition, weights: Weights) -> tuple[tuple[str, ...], Decomposition]:
    """The best tree among those that a view may enumerate, with the variables that it puts out."""
    choices = [(free, decompose(definition, free, weights)) for free in enumerable_sets(definition)]
    return min(choices, key=lambda choice: (choice[1].width, choice[1].update, choice[1].space))


def decompose(definition: Definition, free: tuple[str, ...], weights: Weights) -> Decomposition:
    """The best tree of the query that enumerates `free`.

    The best has the least width; then the cheapest change of one row; then the least space; then the fewest bags of
    that width; then the least sum, over atoms, of the table's weight times the levels that a change climbs, where a
    variable that a step binds counts as two more. Exact for cyclic cores of up to 8 variables, exponential in them
    up to a budget.
    """
    search = _Search(definition, frozenset(free), weights)
    parts = frontier(search.query, frozenset(free), search.comparisons.keys())
    states = [(group, frozenset[str]()) for group in split(parts, frozenset())]
    unlimited = Fraction(len(search.edges) + 1)
    limits = _Exponents(unlimited, unlimited, unlimited)
    for rank in range(3):
        least = max(search.least(state, rank, limits) for state in states)
        limits = limits.limited(rank, least)
    chosen = _Chosen(search, limits)
    children = tuple(chosen.node(state) for state in states)
    return Decomposition(Node((), children, connex=True), *limits.values, bags=tuple(chosen.bags), cut=search.cut)


def spell_cut(definition: Definition, found: Decomposition) -> str:
    """A sentence for a tree that is the best of those compared, not of all."""
    if not found.cut:
        return ""
    return f" Of the trees over {len(definition.atoms)} tables not all were compared: a cheaper one may exist."


@dataclass(frozen=True)
class _Exponents:
    """Of the width, a change's cost and the space."""

    width: Fraction
    update: Fraction
    space: Fraction

    @property
    def values(self) -> tuple[Fraction, Fraction, Fraction]:
        return self.width, self.update, self.space

    def limited(self, rank: int, value: Fraction) -> _Exponents:
        return replace(self, **{("width", "update", "space")[rank]: value})

    def __le__(self, other: _Exponents) -> bool:
        return all(mine <= its for mine, its in zip(self.values, other.values))


@dataclass(frozen=True)
class _Option:
    """A node that a state may get: its label (None to go on below without a node), and the states of its children.

    `levels` are what the changes from below pay here, weighted by the update rates, and alike.
    """

    label: frozenset[str] | None
    children: tuple[State, ...]
    cost: _Exponents
    levels: tuple[float, float]


_Price = tuple[int, float, float, int]
"""Bags of the greatest width, levels weighted and alike, nodes."""


class _Search:
    """The options of every state, and the least exponents that one can come by."""

    def __init__(self, definition: Definition, free: frozenset[str], weights: Weights) -> None:
        self.definition, self.free = definition, free
        self.query = constrained(definition)
        self.comparisons = comparison_edges(definition)
        compared = frozenset[str]().union(*(comparison.scheme for comparison in definition.comparisons))
        self.exact = len(vertices(reduce_gyo(self.query)) | compared) <= EXACT_VARIABLES
        self.filtering = {_FILTER + atom.name: atom.name for atom in definition.atoms}
        self.edges = self.query | {name: self.query[atom] for name, atom in self.filtering.items()}
        self.rank = {name: rank for rank, name in enumerate(self.edges)}
        self.weights = {
            name: weights.get(definition.atom(self.atom(name)).table, 1) for name in self._tables(self.edges)
        }
        self.cut = False
        self._options: dict[State, tuple[_Option, ...]] = {}
        self._charge = max(1, len(self.query) // CHEAP_ATOMS) ** 2
        self._made = 0
        self._scopes: dict[State, list[State]] = {}
        self._grounded: dict[State, bool] = {}
        self._covers: dict[tuple[frozenset[str], tuple[str, ...]], Fraction] = {}
        self._least: dict[tuple[State, int, _Exponents], Fraction] = {}

    @cached_property
    def promising(self) -> tuple[frozenset[str], ...]:
        return promising_bags(self.query, self.free)

    @property
    def _left(self) -> int:
        """Options that may still be compared. A state has one option even if none are left."""
        return (EXACT_BUDGET if self.exact else BUDGET) - self._made

    def atom(self, name: str) -> str:
        """The atom of an operand, which counts or filters."""
        return self.filtering.get(name, name)

    def is_constant(self, name: str) -> bool:
        """Whether no change reaches the atom of an operand."""
        return self.definition.atom(self.atom(name)).is_constant

    def least(self, state: State, rank: int, limits: _Exponents) -> Fraction:
        """The least possible maximum of one exponent in the tree of `state`, the others being within `limits`."""
        key = (state, rank, limits)
        if key not in self._least:
            found = limits.values[rank] + 1
            for option in self.options(state):
                if option.cost <= limits and option.cost.values[rank] < found:
                    below = (self.least(child, rank, limits) for child in option.children)
                    found = min(found, max((option.cost.values[rank], *below)))
            self._least[key] = found
        return self._least[key]

    def options(self, state: State) -> tuple[_Option, ...]:
        if state not in self._options:
            group, above = state
            found = self._single(group[0], above) if len(group) == 1 else self._joins(group, above)
            left = self._left // self._charge
            most = max(1, left if self.exact else min(MOST, left))
            self._options[state] = tuple(islice(found, most))
            self._made += len(self._options[state]) * self._charge
            self.cut |= next(found, None) is not None
        return self._options[state]

    def _single(self, part: Part, above: frozenset[str]) -> Iterator[_Option]:
        """A leaf; or a part's tree, under a projection onto its free variables if it shows new ones."""
        if self.is_leaf(part):
            yield _Option(None, (), _Exponents(Fraction(1), Fraction(0), Fraction(1)), (0, 0))
            return
        inner = tuple(Part(self.edges[atom], (atom,), connex=False) for atom in part.atoms)
        shows = not part.label <= above
        cost = _Exponents(Fraction(1), Fraction(0), Fraction(1))
        if shows:
            rows = self._cover(part.label, part.atoms)
            cost = _Exponents(rows, self._update(part.label, part.atoms), rows)
        yield _Option(
            part.label if shows else None,
            ((inner, part.label),),
            cost,
            self._climb(part.atoms, 1) if shows else (0, 0),
        )

    def comparison(self, state: State) -> Comparison | None:
        """What a state compares, if that is all."""
        (part, *rest), _ = state
        return self.comparisons.get(part.atoms[0]) if not rest and len(part.atoms) == 1 else None

    def _is_grounded(self, state: State) -> bool:
        """Whether the atoms of a state have the variables that it shares with the node above."""
        if state not in self._grounded:
            group, scope = state
            self._grounded[state] = self.comparison(state) is not None or scope <= self._given(atoms_of(group))
        return self._grounded[state]

    def _given(self, atoms: Iterable[str]) -> frozenset[str]:
        """The variables to which atoms, not comparisons, give values."""
        return frozenset[str]().union(*(self.edges[name] for name in self._tables(atoms)))

    def _tables(self, atoms: Iterable[str]) -> list[str]:
        return [name for name in atoms if name not in self.comparisons]

    def is_leaf(self, part: Part) -> bool:
        name = part.atoms[0]
        return len(part.atoms) == 1 and (not part.connex or self.edges[name] == part.label)

    def _joins(self, group: Group, above: frozenset[str]) -> Iterator[_Option]:
        seen = set()
        compared = (self.edges[name] for name in atoms_of(group) if name in self.comparisons)
        core = _core(group, above) | frozenset[str]().union(*compared) - above
        for proposal in self._labels(group, above, core):
            label = self._joining(group, above, proposal)
            if label != above and label not in seen:
                seen.add(label)
                scoped = self._scoped(group, label)
                if core and _defers(scoped, label):
                    continue
                grounded = (c for c in arrangements(scoped, self.rank) if all(map(self._is_grounded, c)))
                for children in chain.from_iterable(map(self._filtered, grounded)):
                    if len(children) == 1 and len(children[0][0]) == 1:
                        yield from self._single(children[0][0][0], above)
                    elif all(sum(v in scope for _, scope in children) > 1 for v in label - above):
                        yield self._join(group, label, children)

    def _joining(self, group: Group, above: frozenset[str], label: frozenset[str]) -> frozenset[str]:
        """`label` without the variables that only one of the groups it leaves has. O(parts * variables)."""
        met = Counter(chain.from_iterable(scope for _, scope in self._scoped(group, label)))
        return above.union(variable for variable, scopes in met.items() if scopes > 1)

    def _scoped(self, group: Group, label: frozenset[str]) -> list[State]:
        """What a group falls apart into at a label, each with the variables that it shares with the label."""
        key = (group, label)
        if key not in self._scopes:
            self._scopes[key] = [(parts, label & variables_of(parts)) for parts in split(group, label)]
        return self._scopes[key]

    def _filtered(self, children: tuple[State, ...]) -> Iterator[tuple[State, ...]]:
        """The children as they are; and with atoms that others of them have as filters in those that share all of the
        atom's variables: by one such atom, and by all. None that an atom below implies."""
        found = [
            (place, self.atom(name))
            for place, (parts, scope) in enumerate(children)
            if self.comparison((parts, scope)) is None
            for other in (*children[:place], *children[place + 1 :])
            for name in self._tables(atoms_of(other[0]))
            if self.edges[name] <= scope and self._cover(self.edges[name], atoms_of(parts)) > 1
        ]
        found = list(dict.fromkeys(found))
        choices = [[], *([one] for one in found), found]
        for chosen in choices if len(found) > 1 else choices[: 1 + len(found)]:
            grown = list(children)
            for place, atom in chosen:
                name, (parts, scope) = _FILTER + atom, grown[place]
                added = Part(self.edges[name], (name,), connex=parts[0].connex)
                grown[place] = hung((parts, scope), [((added,), added.label)], self.rank)
            yield tuple(grown)

    def _labels(self, group: Group, above: frozenset[str], core: frozenset[str]) -> Iterator[frozenset[str]]:
        """Labels worth trying, of which `_joining` keeps those that join. In a search that is not complete the bags of
        good elimination orders come first: a state beyond the budget gets the first label alone."""
        if not core:
            yield from guarded_labels(group, above)
            return
        complete = self.exact and len(core) <= EXACT_VARIABLES and self._left > 0
        if not complete:
            bags = dict.fromkeys(above | bag & variables_of(group) for bag in self.promising)
            yield from sorted(bags, key=lambda bag: (self._cover(bag, atoms_of(group)), len(bag), sorted(bag)))
        yield variables_of(group)
        yield from (above | part.label for part in group)
        if complete:
            for size in range(1, len(core) + 1):
                yield from (above.union(chosen) for chosen in combinations(sorted(core), size))

    def _join(self, group: Group, label: frozenset[str], children: Sequence[State]) -> _Option:
        atoms = atoms_of(group)
        rows = self._cover(label, atoms)
        stored = [rows] if group[0].connex else []
        joined = [child for child in children if self.comparison(child) is None]
        if len(joined) > 1:
            stored += [self._cover(scope, atoms_of(parts)) for parts, scope in joined]
        levels = [self._climb(atoms_of(parts), 1 + FAN_OUT_LEVELS * len(label - scope)) for parts, scope in joined]
        return _Option(
            label,
            tuple(children),
            _Exponents(rows, self._update(label, atoms), max(stored, default=Fraction(1))),
            (sum(weighted for weighted, _ in levels), sum(alike for _, alike in levels)),
        )

    def _cover(self, variables: frozenset[str], atoms: tuple[str, ...]) -> Fraction:
        key = (variables, atoms)
        if key not in self._covers:
            self._covers[key] = cover_number(variables, [self.edges[name] for name in self._tables(atoms)])
        return self._covers[key]

    def _update(self, label: frozenset[str], atoms: tuple[str, ...]) -> Fraction:
        """What a change of one of `atoms` costs at `label`, for the worst of them: one that has none of it, if any.
        Constant rows do not change."""
        left = {label - self.edges[name] for name in self._tables(atoms) if not self.is_constant(name)}
        worst = [label] if label in left else left
        return max((self._cover(variables, atoms) for variables in worst), default=Fraction(0))

    def _climb(self, atoms: Sequence[str], levels: int) -> tuple[float, float]:
        tables = self._tables(atoms)
        return levels * sum(self.weights[name] for name in tables), levels * len(tables)


class _Chosen:
    """The cheapest tree within limits that are known to be possible."""

    def __init__(self, search: _Search, limits: _Exponents) -> None:
        self.search, self.limits = search, limits
        self.bags: list[tuple[str, ...]] = []
        self._rank = {variable: rank for rank, variable in enumerate(ordered_variables(search.definition))}
        self._best: dict[State, tuple[_Price, _Option] | None] = {}

    def node(self, state: State) -> Node:
        """The tree of a state."""
        group, above = state
        part = group[0]
        found = self._cheapest(state)
        assert found is not None
        option = found[1]
        if not option.children:
            (name,) = part.atoms
            columns = tuple(column.name for column in self.search.definition.atom(self.search.atom(name)).variables)
            if name in self.search.filtering:
                return Node(columns, filters=self.search.filtering[name])
            return Node(columns, atom=name, connex=part.connex and not part.label <= above)
        if option.label is None:
            return self.node(option.children[0])
        label = tuple(sorted(option.label, key=self._rank.__getitem__))
        if option.cost.width == self.limits.width:
            self.bags.append(label)
        tests = [self.search.comparison(child) for child in option.children]
        children = (self.node(child) for child, test in zip(option.children, tests, strict=True) if test is None)
        comparisons = tuple(test for test in tests if test is not None)
        return Node(label, tuple(children), connex=part.connex, comparisons=comparisons)

    def _cheapest(self, state: State) -> tuple[_Price, _Option] | None:
        if state not in self._best:
            found: tuple[_Price, _Option] | None = None
            for option in self.search.options(state):
                if option.cost <= self.limits:
                    below = [self._cheapest(child) for child in option.children]
                    prices = [one[0] for one in below if one is not None]
                    if len(prices) == len(below):
                        own = (int(option.cost.width == self.limits.width), *option.levels, 1)
                        price = _total((own, *prices))
                        if found is None or price < found[0]:
                            found = (price, option)
            self._best[state] = found
        return self._best[state]


def _total(prices: Sequence[_Price]) -> _Price:
    bags, weighted, levels, nodes = zip(*prices)
    return sum(bags), sum(weighted), sum(levels), sum(nodes)


def _core(group: Group, above: frozenset[str]) -> frozenset[str]:
    """The variables on cycles of the group under a node that holds `above`, without those."""
    shown = {str(rank): part.label for rank, part in enumerate(group)}
    return vertices(reduce_gyo({**shown, "above": above})) - above


def _defers(children: list[State], label: frozenset[str]) -> bool:
    """Whether one child has to join all of `label` again, and the others are atoms with less of it.

    A tree for that child has a node that can take these atoms too: no wider, and cheaper to search for.
    """
    joins = [(parts, scope) for parts, scope in children if len(atoms_of(parts)) > 1]
    again = len(joins) == 1 and joins[0][1] == label and len(joins[0][0]) > 1
    return again and any(scope != label for _, scope in children)
