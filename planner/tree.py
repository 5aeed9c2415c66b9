"""View trees: from a query's hypergraph and its free variables to the cheapest generalized join tree.

The tree grows from the top. A node's label X separates what is below it: the groups of atoms connected outside X
become its children, a lone atom as a leaf, a larger group under a label of its own that contains what the group
shares with X. Labels that sit inside one atom of the group always lead to a tree when the query is acyclic (the top
atom of the group in a join tree rooted at X is one), and the atom's child is then the node's guard.

Taking the variables common to the whole group at each step is the q-tree construction (Idris et al. 2017,
Proposition 4.25); it is complete exactly for q-hierarchical queries, and `steps="simple"` asks for it.

Free variables: the atoms linked by bound variables form parts. Above, the parts are joined over the free variables
they show (that is the connex top); inside, each part's own tree sums its bound variables out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from planner.connex import bound_components
from planner.hypergraph import components, hypergraph, ordered_variables, vertices
from planner.keys import Key, closure, constant_keys, fixing_keys
from planner.plan import Node
from planner.query import Definition

Steps = Literal["simple", "keyed", "any"]

FAN_OUT_LEVELS = 2
"""What a look-up from many rows to many adds to a change's price, in levels."""

PAIRWISE_LIMIT = 6
"""Groups above this size try only labels linear in number; pairs of atoms would make the search exponential."""


def build_tree(
    definition: Definition, free: tuple[str, ...], steps: Steps, cardinalities: Mapping[str, int]
) -> Node | None:
    """The cheapest tree of the query that enumerates `free`; None when no tree passes `steps`.

    `steps` says what a child may be to its parent: "simple" a superset only, "keyed" also one whose row fixes the
    parent's by declared keys, "any" all. Cheapest is the least sum, over atoms, of the table's rows (1 if unknown)
    times the levels a change climbs; a look-up from many rows to many counts as two more levels.
    The query must be free-connex for `free`.
    """
    search = _Search(definition, frozenset(free), steps, cardinalities)
    children = []
    for group in search.split(search.frontier, frozenset()):
        found = search.best(group, frozenset())
        if found is None:
            return None
        children.append(found.node)
    return Node((), tuple(children), connex=True)


def cheapest_tree(
    definition: Definition, free: tuple[str, ...], cardinalities: Mapping[str, int]
) -> tuple[Node, tuple[Key, ...] | None] | None:
    """A tree whose every step looks up one row, with the keys that make it so; else the cheapest tree, and None.

    None when there is no tree at all: the query is not free-connex for `free`.
    """
    constant = build_tree(definition, free, "keyed", cardinalities)
    if constant is not None:
        return constant, constant_keys(constant, definition)
    root = build_tree(definition, free, "any", cardinalities)
    return None if root is None else (root, None)


@dataclass(frozen=True)
class _Part:
    """One operand of a join: a single atom, or (`connex`) the atoms behind one group of free variables."""

    label: frozenset[str]
    atoms: tuple[str, ...]
    connex: bool


@dataclass(frozen=True)
class _Found:
    """A subtree with its price, weighted by rows: (levels climbed and look-ups to many, levels alone)."""

    price: tuple[int, int]
    node: Node


_Group = tuple[_Part, ...]


class _Search:
    """Memoised search over (group of parts, variables shared with the node above)."""

    def __init__(
        self, definition: Definition, free: frozenset[str], steps: Steps, cardinalities: Mapping[str, int]
    ) -> None:
        self.edges = hypergraph(definition)
        self.atoms = {atom.name: atom for atom in definition.atoms}
        self.weights = {name: max(1, cardinalities.get(atom.table, 1)) for name, atom in self.atoms.items()}
        self.rank = {variable: rank for rank, variable in enumerate(ordered_variables(definition))}
        self.steps = steps
        self.memo: dict[tuple[_Group, frozenset[str]], _Found | None] = {}
        self.frontier = tuple(
            _Part(vertices({name: self.edges[name] for name in names}) & free, names, connex=True)
            for names in bound_components(self.edges, free)
        )

    def best(self, group: _Group, above: frozenset[str]) -> _Found | None:
        """The cheapest subtree over `group`, whose variables meet the parent's in `above`; None if there is none."""
        if len(group) == 1:
            return self._single(group[0], above)
        if (group, above) not in self.memo:
            found = (self._join(group, above, label) for label in self._labels(group, above))
            self.memo[group, above] = min(
                (option for option in found if option is not None), key=lambda option: option.price, default=None
            )
        return self.memo[group, above]

    def split(self, group: _Group, label: frozenset[str]) -> list[_Group]:
        """What `group` falls apart into once the variables of `label` are fixed."""
        by_name = {part.atoms[0]: part for part in group}
        shown = {name: part.label for name, part in by_name.items()}
        return [tuple(by_name[name] for name in names) for names in components(shown, label)]

    def _single(self, part: _Part, above: frozenset[str]) -> _Found | None:
        """An atom's leaf; or a part's tree, under a projection onto its free variables if it shows new ones."""
        name = part.atoms[0]
        if not part.connex or (self.edges[name] == part.label and len(part.atoms) == 1):
            connex = part.connex and not part.label <= above
            return _Found((0, 0), Node(tuple(c.name for c in self.atoms[name].variables), atom=name, connex=connex))
        inner = tuple(_Part(self.edges[atom], (atom,), connex=False) for atom in part.atoms)
        below = self.best(inner, part.label)
        if below is None or part.label <= above:
            return below
        node = Node(self._sorted(part.label), (below.node,), connex=True)
        weight = self._weight((part,))
        return _Found((below.price[0] + weight, below.price[1] + weight), node)

    def _labels(self, group: _Group, above: frozenset[str]) -> Iterator[frozenset[str]]:
        """Labels worth trying for the node over `group`, most promising first."""
        seen: set[frozenset[str]] = {above}
        everywhere = frozenset.intersection(*(part.label for part in group))
        guards = [part.label for part in group if above <= part.label]
        if not guards:
            return
        proposals = [everywhere]
        if self.steps != "simple":
            counted = [variable for part in group for variable in part.label]
            shared = frozenset(variable for variable in counted if counted.count(variable) > 1)
            proposals += [guard & shared for guard in guards]
            if len(group) <= PAIRWISE_LIMIT:
                proposals += [guard & part.label for guard, part in _pairs(guards, group)]
        for proposal in proposals:
            label = above | proposal
            if label not in seen:
                seen.add(label)
                yield label

    def _join(self, group: _Group, above: frozenset[str], label: frozenset[str]) -> _Found | None:
        """The node over `label`; None when a label variable joins nothing, or a child's step is not allowed."""
        parts = self.split(group, label)
        scopes = [label & self._variables(part) for part in parts]
        if any(sum(variable in scope for scope in scopes) < 2 for variable in label - above):
            return None
        price = climbed = 0
        children = []
        guards = [part for part, scope in zip(parts, scopes, strict=True) if scope == label]
        for part, scope in zip(parts, scopes, strict=True):
            if not self._allowed(scope, label, guards):
                return None
            below = self.best(part, scope)
            if below is None:
                return None
            weight = self._weight(part)
            fans_out = scope != label and not self._is_unique(part, scope)
            price += weight + below.price[0] + (FAN_OUT_LEVELS * weight if fans_out else 0)
            climbed += weight + below.price[1]
            children.append(below.node)
        return _Found((price, climbed), Node(self._sorted(label), tuple(children), connex=group[0].connex))

    def _allowed(self, scope: frozenset[str], label: frozenset[str], guards: list[_Group]) -> bool:
        if self.steps == "any" or scope == label:
            return True
        if self.steps == "simple":
            return False
        atoms = [[self.atoms[name] for part in guard for name in part.atoms] for guard in guards]
        return fixing_keys(scope, label, atoms) is not None

    def _is_unique(self, group: _Group, scope: frozenset[str]) -> bool:
        """Whether `group` has one row for each value of the variables it shares with its parent."""
        fixed, _ = closure(scope, [self.atoms[name] for part in group for name in part.atoms])
        return self._variables(group) <= fixed

    def _variables(self, group: _Group) -> frozenset[str]:
        return frozenset().union(*(part.label for part in group))

    def _weight(self, group: _Group) -> int:
        return sum(self.weights[name] for part in group for name in part.atoms)

    def _sorted(self, variables: frozenset[str]) -> tuple[str, ...]:
        return tuple(sorted(variables, key=self.rank.__getitem__))


def _pairs(guards: list[frozenset[str]], group: _Group) -> Iterator[tuple[frozenset[str], _Part]]:
    for guard in guards:
        for part in group:
            if part.label != guard:
                yield guard, part
