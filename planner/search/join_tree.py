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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from sqlfront.planner.model.hypergraph import Edges, components, hypergraph, ordered_variables, vertices
from sqlfront.planner.model.outer_groups import group_of, inside, key_of
from sqlfront.planner.model.plan import Node
from sqlfront.planner.model.query import Atom, Definition
from sqlfront.planner.theory.connex import bound_components
from sqlfront.planner.theory.keys import Guarantees, constant_keys, ended, fixing_keys

Steps = Literal["simple", "keyed", "referring", "any"]

Weights = Mapping[str, float]
"""How often a table changes, relative to others, by table name."""

FAN_OUT_LEVELS = 2
"""What a look-up from many rows to many adds to a change's price, in levels."""

PAIRWISE_LIMIT = 6
"""Groups above this size try only labels linear in number; pairs of atoms would make the search exponential."""


def build_tree(
    definition: Definition, free: tuple[str, ...], steps: Steps, weights: Weights, top: frozenset[str] = frozenset()
) -> Node | None:
    """The cheapest tree of the query that enumerates `free`, with the variables of `top` at its root; None when no tree
    passes `steps`, or no atom has all of `top`.

    `steps` says what a child may be to its parent: "simple" a superset only, "keyed" also one whose row fixes the
    parent's by declared keys, "referring" also one whose changes end there by foreign keys, "any" all. Cheapest is
    the least sum, over atoms, of the table's weight (1 if none is given) times the levels a change climbs (Wang, Hu,
    Dai and Yi 2023); a step that may meet many rows counts as two more. Ties fall to the tree that is cheapest when
    all tables change alike. The query must be free-connex for `free`.
    """
    search = Search(definition, steps, weights)
    if top:
        return search.rooted(search.frontier(frozenset(free)), top)
    children = []
    for group in split(search.frontier(frozenset(free)), frozenset()):
        found = search.best(group, frozenset()) if search.is_required(group) else None
        if found is None:
            return None
        children.append(found.node)
    return Node((), tuple(children), connex=True)


def cheapest_tree(
    definition: Definition, free: tuple[str, ...], weights: Weights, top: frozenset[str] = frozenset()
) -> tuple[Node, Guarantees | None] | None:
    """A tree whose every step looks up one row, with the keys and the foreign keys that make it so; else the cheapest
    tree, and None.

    None when there is no tree at all: the query is not free-connex for `free`, or no atom has all of `top`.
    """
    for steps in ("keyed", "referring"):
        constant = build_tree(definition, free, steps, weights, top)
        if constant is not None:
            return constant, constant_keys(constant, definition)
    root = build_tree(definition, free, "any", weights, top)
    return None if root is None else (root, None)


class Part(NamedTuple):
    """One operand of a join: a single atom, or (`connex`) the atoms behind one group of free variables.

    A tuple, as states of searches are hashed very often.
    """

    label: frozenset[str]
    atoms: tuple[str, ...]
    connex: bool


Group = tuple[Part, ...]


def frontier(edges: Edges, free: frozenset[str], compared: Collection[str] = ()) -> Group:
    """The operands of the connex top: the atoms linked by bound variables, with the free variables that they show.

    What is `compared`, by some of the edges, with a bound variable links as that does: its values must be at hand when
    the other is summed. A comparison of free variables links nothing: it is tested where both are at hand.
    """
    apart = [name for name in compared if edges[name] <= free]
    linking = frozenset[str]().union(*(edges[name] for name in compared if name not in apart))
    groups = bound_components({name: edge for name, edge in edges.items() if name not in apart}, free - linking)
    whole = [*groups, *((name,) for name in apart)]
    return tuple(Part(vertices({name: edges[name] for name in names}) & free, names, connex=True) for names in whole)


def split(group: Group, label: frozenset[str]) -> list[Group]:
    """What `group` falls apart into once the variables of `label` are fixed."""
    by_name = {part.atoms[0]: part for part in group}
    shown = {name: part.label for name, part in by_name.items()}
    return [tuple(by_name[name] for name in names) for names in components(shown, label)]


@dataclass(frozen=True)
class Found:
    """A subtree with its price: levels climbed and look-ups to many, levels alone, each weighted; the first unweighted.

    `leaving` are the atoms whose changes go on to the parent: those that no atom met so far refers to.
    """

    price: Price
    node: Node
    leaving: frozenset[str]


Price = tuple[float, float, int]


class Search:
    """Memoised search over (group of parts, variables shared with the node above).

    The atoms of an optional or absent group are one operand, by the name of its head, whose tree is another search's.
    """

    def __init__(self, definition: Definition, steps: Steps, weights: Weights) -> None:
        self.definition = definition
        self.atoms = {atom.name: atom for atom in definition.atoms}
        heads = [atom for atom in definition.outer_atoms if atom.within is None]
        self.outer = {atom.name: key_of(definition, atom) for atom in heads}
        groups = {atom.name: group_of(definition, atom) for atom in heads}
        self.edges = {name: edge for name, edge in hypergraph(definition).items() if self.atoms[name].within is None}
        self.edges |= {name: frozenset().union(*(one.scheme for one in group)) for name, group in groups.items()}
        self.inside = {
            name: Search(inside(definition, self.atoms[name]), steps, weights)
            for name, group in groups.items()
            if len(group) > 1
        }
        self.weights = {name: weights.get(atom.table, 1) for name, atom in self.atoms.items()}
        self.rank = {variable: rank for rank, variable in enumerate(ordered_variables(definition))}
        self.steps = steps
        self.memo: dict[tuple[Group, frozenset[str]], Found | None] = {}

    def frontier(self, free: frozenset[str]) -> Group:
        """The operands of the connex top."""
        return frontier(self.edges, free)

    def best(self, group: Group, above: frozenset[str]) -> Found | None:
        """The cheapest subtree over `group`, whose variables meet the parent's in `above`; None if there is none."""
        if len(group) == 1:
            return self._single(group[0], above)
        if (group, above) not in self.memo:
            found = self.options(group, above)
            self.memo[group, above] = min(
                (option for option in found if option is not None), key=lambda option: option.price, default=None
            )
        return self.memo[group, above]

    def options(self, group: Group, above: frozenset[str]) -> Iterator[Found | None]:
        """The subtrees over a group of several parts, None for what turned out to be none."""
        return (self._join(group, above, label) for label in self._labels(group, above))

    def rooted(self, group: Group, top: frozenset[str]) -> Node | None:
        """The cheapest tree over `group` whose root has just the variables of `top`."""
        found = self._join(group, top, top) if any(top <= part.label for part in group) else None
        return found.node if found is not None else None

    def _single(self, part: Part, above: frozenset[str]) -> Found | None:
        """An atom's leaf; or a part's tree, under a projection onto its free variables if it shows new ones."""
        name = part.atoms[0]
        whole = self.edges[name] == part.label or name in self.inside
        if not part.connex or (whole and len(part.atoms) == 1):
            connex = part.connex and not part.label <= above
            if name in self.inside:
                return self._group(name, part.label if connex else frozenset(), above & self.edges[name])
            atom = self.atoms[name]
            leaf = Node(tuple(c.name for c in atom.variables), atom=name, connex=connex, presence=atom.presence)
            return Found((0, 0, 0), leaf, frozenset[str]() if self.atoms[name].is_constant else frozenset({name}))
        inner = tuple(Part(self.edges[atom], (atom,), connex=False) for atom in part.atoms)
        below = self.best(inner, part.label)
        if below is None or part.label <= above:
            return below
        if frozenset(below.node.variables) == part.label:
            return replace(below, node=replace(below.node, connex=True))
        node = Node(self.in_order(part.label), (below.node,), connex=True)
        return Found(add_prices(below.price, self.climb(below.leaving, fans_out=False)), node, below.leaving)

    def _group(self, name: str, shown: frozenset[str], key: frozenset[str]) -> Found | None:
        """The tree of an optional or absent group, which enumerates what is shown; its root has the key.

        None if a node inside shares nothing but the key with its parent: it may have rows where the group has none.
        """
        search = self.inside[name]
        if shown:
            operands = search.frontier(shown | key)
        else:
            operands = tuple(Part(edge, (atom,), connex=False) for atom, edge in search.edges.items())
        found = search.best(operands, key)
        if found is None or not key <= frozenset(found.node.variables):
            return None
        inner = ((node, child) for node in found.node.walk() for child in node.children)
        if not all((set(node.variables) & set(child.variables)) - key for node, child in inner):
            return None
        return replace(found, node=replace(found.node, presence=self.atoms[name].presence))

    def _labels(self, group: Group, above: frozenset[str]) -> Iterator[frozenset[str]]:
        """Labels worth trying for the node over `group`, most promising first."""
        if self.steps != "simple":
            return guarded_labels(group, above)
        everywhere = above.union(frozenset.intersection(*(part.label for part in group)))
        return iter([everywhere] if everywhere != above else [])

    def _join(self, group: Group, above: frozenset[str], label: frozenset[str]) -> Found | None:
        """The node over `label`; None when a label variable joins nothing, when it is not known without a part that may
        be missing, or a child's step is not allowed."""
        parts = split(group, label)
        scopes = [label & self.variables(part) for part in parts]
        if self.outer and not self._is_known(label, parts):
            return None
        if any(sum(variable in scope for scope in scopes) < 2 for variable in label - above):
            return None
        price: Price = (0, 0, 0)
        children, leaving = [], frozenset[str]()
        sides = [(scope, self._atoms(part)) for part, scope in zip(parts, scopes, strict=True)]
        guards = [atoms for scope, atoms in sides if scope == label]
        for rank, (part, scope) in enumerate(zip(parts, scopes, strict=True)):
            if self.steps == "simple" and scope != label:
                return None
            below = self.best(part, scope)
            if below is None:
                return None
            others = sides[:rank] + sides[rank + 1 :]
            stopped = {name for _, name in ended(scope, others, [self.atoms[name] for name in sorted(below.leaving)])}
            going = below.leaving - stopped
            fixed = fixing_keys(scope, label, guards) is not None
            unbounded = below.leaving if self.steps == "keyed" else going
            if self.steps != "any" and unbounded and not fixed:
                return None
            price = add_prices(price, below.price)
            price = add_prices(price, self.climb(going, fans_out=not fixed))
            price = add_prices(price, self.climb(stopped, fans_out=False))
            leaving |= going
            children.append(below.node)
        return Found(price, Node(self.in_order(label), tuple(children), connex=group[0].connex), leaving)

    def climb(self, atoms: Collection[str], *, fans_out: bool) -> Price:
        """The price of one level for the changes of these atoms."""
        levels = 1 + FAN_OUT_LEVELS if fans_out else 1
        weight, count = sum(self.weights[name] for name in atoms), len(atoms)
        return levels * weight, weight, levels * count

    def _atoms(self, group: Group) -> list[Atom]:
        return [self.atoms[name] for part in group for name in part.atoms]

    def _is_known(self, label: frozenset[str], parts: Sequence[Group]) -> bool:
        """Whether a part that a row needs has the whole label, or the keys of those that have the rest of it: then the
        node has no more rows than that part, or than it has partners."""
        missing = [
            (self.outer[group[0].atoms[0]], self.variables(group)) for group in parts if not self.is_required(group)
        ]
        guards = (self.variables(group) for group in parts if self.is_required(group))
        return any(label <= guard.union(*(own for key, own in missing if key <= guard)) for guard in guards)

    def is_required(self, group: Group) -> bool:
        """Whether a row above needs a row of the group."""
        return any(atom.presence == "required" for atom in self._atoms(group))

    def variables(self, group: Group) -> frozenset[str]:
        return frozenset().union(*(part.label for part in group))

    def in_order(self, variables: frozenset[str]) -> tuple[str, ...]:
        return tuple(sorted(variables, key=self.rank.__getitem__))


def guarded_labels(group: Group, above: frozenset[str]) -> Iterator[frozenset[str]]:
    """Labels inside one part that contain `above` and more, most promising first; enough for an acyclic group."""
    seen: set[frozenset[str]] = {above}
    guards = [part.label for part in group if above <= part.label]
    if not guards:
        return
    counted = [variable for part in group for variable in part.label]
    shared = frozenset(variable for variable in counted if counted.count(variable) > 1)
    proposals = [frozenset.intersection(*(part.label for part in group)), *(guard & shared for guard in guards)]
    if len(group) <= PAIRWISE_LIMIT:
        proposals += [guard & part.label for guard, part in _pairs(guards, group)]
    for proposal in proposals:
        label = above | proposal
        if label not in seen:
            seen.add(label)
            yield label


def add_prices(one: Price, other: Price) -> Price:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _pairs(guards: list[frozenset[str]], group: Group) -> Iterator[tuple[frozenset[str], Part]]:
    for guard in guards:
        for part in group:
            if part.label != guard:
                yield guard, part
