"""View trees whose comparisons need no bag: sums over ranges of sorted groups (Idris et al. 2020, GYO with predicates).

The search is that of tree.py. A node here also compares: a variable of one child with variables of the node's label,
which another child holds, or with those of one other child. What is only compared is a variable of the children alone,
so the node sums it out: a change that has bound the other side finds the sum within its bounds in one sorted group.

Each node has one such *range*, of one variable with at most one bound below and one above; a label that several
children are compared with has a chain of nodes. So each table is sorted in one way at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from planner.hypergraph import components, constrained
from planner.keys import fixing_keys
from planner.plan import Node, needed
from planner.query import Comparison, Definition
from planner.tree import PAIRWISE_LIMIT, Found, Group, Search, Weights, add_prices, frontier, split

FEW = 5
"""Of a part with more variables that join or are compared, not all sets are tried as labels."""


def build_range_tree(definition: Definition, weights: Weights) -> Node | None:
    """The cheapest tree that enumerates the free variables and compares without bags; None if there is none.

    None also if two free variables are compared, or two variables of one atom. Cheapest is as `build_tree` says.
    """
    atoms = {atom.name: atom for atom in definition.atoms}
    free = frozenset(definition.free)
    tests = definition.comparisons
    if any(test.scheme <= free or test.operator == "<>" or test.left == test.right for test in tests):
        return None
    if any(test.scheme <= atom.scheme for test in tests for atom in definition.atoms):
        return None
    parts = frontier(constrained(definition), free, [test.scheme for test in tests])
    parts = tuple(replace(part, atoms=tuple(name for name in part.atoms if name in atoms)) for part in parts)
    search = _RangeSearch(definition, "any", weights)
    found = [search.best(group, frozenset()) for group in split(parts, frozenset())]
    children = [one.node for one in found if one is not None]
    return Node((), tuple(children), connex=True) if len(children) == len(found) else None


def meets_one(node: Node, child: Node, definition: Definition) -> bool:
    """Whether a change that comes up from a child is joined with one row or one sum of each of its siblings."""
    label, wanted = frozenset(node.variables), needed(node)
    bound = wanted & frozenset(child.variables)
    others = [other for other in node.children if other is not child]
    if not label <= bound:
        guards = [other for other in others if label <= frozenset(other.variables)]
        below = [[definition.atom(leaf.atom or "") for leaf in guard.leaves()] for guard in guards]
        if fixing_keys(label & bound, label, below) is None:
            return False
        bound |= label
    return all(_is_summed(node.comparisons, wanted & frozenset(other.variables) - bound, bound) for other in others)


def _is_summed(tests: Iterable[Comparison], fresh: frozenset[str], bound: frozenset[str]) -> bool:
    """Whether a child is looked up as one, where it lacks `fresh` of what is bound: one variable, whose bounds are."""
    return len(fresh) < 2 and all(test.scheme - fresh <= bound for test in tests if test.scheme & fresh)


@dataclass(frozen=True)
class _Piece:
    """What a group falls apart into: parts, the variables of theirs that the node alone compares, and these tests."""

    group: Group
    compared: frozenset[str]
    tests: tuple[Comparison, ...]


class _RangeSearch(Search):
    """The search with comparisons, which are all below the nodes that are enumerated."""

    def options(self, group: Group, above: frozenset[str]) -> Iterator[Found | None]:
        if group[0].connex:
            yield from super().options(group, above)
            return
        tests = [test for test in self.definition.comparisons if test.scheme <= self.variables(group)]
        for label in _labels(group, above, tests):
            for cut in _cuts(tests, label):
                yield self._compare(group, above, label, tests, cut)

    def _compare(
        self,
        group: Group,
        above: frozenset[str],
        label: frozenset[str],
        tests: Sequence[Comparison],
        cut: Collection[Comparison],
    ) -> Found | None:
        """The nodes over `label` that compare its variables, or what is `cut`; None if they are no ranges."""
        pieces = self._pieces(group, label, tests, cut)
        ranged = [piece for piece in pieces if piece.compared]
        if len(pieces) < 2 or not all(any(test in piece.tests for piece in pieces) for test in cut):
            return None
        if cut:
            links = [tuple(cut)]
            if len(ranged) != 2 or set(ranged[0].tests) | set(ranged[1].tests) != set(cut):
                return None
        else:
            # The one that changes most is at the top.
            ranged.sort(key=lambda piece: sum(self.weights[part.atoms[0]] for part in piece.group))
            links = [piece.tests for piece in ranged]
            if any(len(piece.compared) > 1 for piece in ranged):
                return None
        if not all(_is_range(tests) for tests in links):
            return None
        scopes = [label & self.variables(piece.group) for piece in pieces]
        used = _variables(test for link in links for test in link)
        if any(v not in used and sum(v in scope for scope in scopes) < 2 for v in label - above):
            return None
        below = {piece: self.best(piece.group, scope | piece.compared) for piece, scope in zip(pieces, scopes)}
        found = {piece: one for piece, one in below.items() if one is not None}
        if len(found) < len(pieces):
            return None
        if cut:
            return self._node(label, list(found.values()), tuple(cut))
        plain = [found[piece] for piece in pieces if not piece.compared]
        if not ranged:
            return self._node(label, plain, ())
        for piece in ranged:
            plain = [self._node(label, [*plain, found[piece]], piece.tests)]
        return plain[0]

    def _pieces(
        self, group: Group, label: frozenset[str], tests: Sequence[Comparison], cut: Collection[Comparison]
    ) -> list[_Piece]:
        """What the group falls apart into once `label` is fixed and what is `cut` is no link."""
        shown = {part.atoms[0]: part.label for part in group}
        links = [test for test in tests if test not in cut and not test.scheme & label]
        edges = shown | {f"{number} compared": test.scheme for number, test in enumerate(links)}
        pieces = []
        for names in components(edges, label):
            parts = tuple(part for part in group if part.atoms[0] in names)
            inside = self.variables(parts)
            own = tuple(test for test in tests if test.scheme & (inside - label) and not test.scheme <= inside)
            compared = _variables(own) & inside - label
            pieces.append(_Piece(parts, compared, own))
        return pieces

    def _node(self, label: frozenset[str], below: Sequence[Found], tests: tuple[Comparison, ...]) -> Found:
        node = Node(self.in_order(label), tuple(found.node for found in below), comparisons=tests)
        price = (0.0, 0.0, 0)
        leaving = frozenset[str]()
        for found in below:
            fans_out = not meets_one(node, found.node, self.definition)
            price = add_prices(add_prices(price, found.price), self.climb(found.leaving, fans_out=fans_out))
            leaving |= found.leaving
        return Found(price, node, leaving)


def _labels(group: Group, above: frozenset[str], tests: Sequence[Comparison]) -> Iterator[frozenset[str]]:
    """Labels inside one part that contain `above`, of what joins or is compared."""
    counted = [variable for part in group for variable in part.label]
    shared = frozenset(variable for variable in counted if counted.count(variable) > 1)
    useful_anywhere = shared | _variables(tests)
    seen = set()
    for guard in (part.label for part in group if above <= part.label):
        useful = sorted((guard & useful_anywhere) - above)
        sizes = range(len(useful) + 1) if len(useful) <= FEW and len(group) <= PAIRWISE_LIMIT else (0, 1, len(useful))
        added = [frozenset(one) for size in sizes for one in combinations(useful, size)]
        for label in (above | more for more in (*added, guard & shared)):
            if label not in seen:
                seen.add(label)
                yield label


def _cuts(tests: Sequence[Comparison], label: frozenset[str]) -> Iterator[tuple[Comparison, ...]]:
    """No comparison, or all of one variable, among those that do not reach into `label`."""
    outside = [test for test in tests if not test.scheme & label]
    found = [()] + [tuple(test for test in outside if v in test.scheme) for v in sorted(_variables(outside))]
    yield from dict.fromkeys(found)


def _variables(tests: Iterable[Comparison]) -> frozenset[str]:
    return frozenset[str]().union(*(test.scheme for test in tests))


def _is_range(tests: Sequence[Comparison]) -> bool:
    """Whether comparisons are of one variable, bounded once from below at most and once from above."""
    for variable in frozenset.intersection(*(test.scheme for test in tests)):
        upwards = [(test.operator in ("<", "<=")) == (test.right == variable) for test in tests]
        if len(set(upwards)) == len(upwards):
            return True
    return False
