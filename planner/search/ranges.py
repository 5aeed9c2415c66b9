"""View trees whose comparisons need no bag: sums over ranges of sorted groups (Idris et al. 2020, GYO with predicates).

The search is that of tree.py. A node here also compares: a variable of one child with variables of the node's label,
which another child holds, or with those of one other child. What is only compared is a variable of the children alone,
so the node sums it out: a change that has bound the other side finds the sum within its bounds in one sorted group.

Each node has one such *range*, of variables in one order with at most one bound below and one above; a label that
several children are compared with has a chain of nodes. So each table is sorted in one way at most.

The topmost node may enumerate two children that it compares with each other alone, by one bound: a change of either
looks up the other's sum, and neither stores what the other has within its bound. The rows of a child that have
partners are then the first ones, or the last ones, of its sorted list.

Where there is no such tree, a node's comparisons may be a *box*: a range, and one bound of another variable, as two
intervals overlap. The sorted lists then know extremes of the other variable, along which rows are found. Where a child
is not enumerated, nobody needs its rows: sums over boxes are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from sqlfront.planner.model.hypergraph import comparison_edges, components, vertices
from sqlfront.planner.model.ordered_types import ORDERED, family_of
from sqlfront.planner.model.plan import Node, needed
from sqlfront.planner.model.query import Comparison, Definition
from sqlfront.planner.search.join_tree import PAIRWISE_LIMIT, Found, Group, Part, Search, Weights, add_prices
from sqlfront.planner.theory.keys import fixing_keys

Fits: TypeAlias = Callable[[Sequence[Comparison], Definition], bool]
"""Whether a node may have these comparisons."""
FEW = 5
"""Of a part with more variables that join or are compared, not all sets are tried as labels."""


def build_range_tree(
    definition: Definition, free: tuple[str, ...], weights: Weights, fits: Fits | None = None
) -> Node | None:
    """The cheapest tree that enumerates `free` and compares without bags, by comparisons that are ranges, or that
    `fits` lets pass; None if there is none.

    None also if two variables of one atom are compared. Cheapest is as `build_tree` says.
    """
    tests = definition.comparisons
    if any(not test.is_order or test.left == test.right for test in tests):
        return None
    if any(test.scheme <= atom.scheme for test in tests for atom in definition.atoms):
        return None
    search = _RangeSearch(definition, "any", weights)
    search.fits, search.boxes = fits or is_range, fits is not None
    groups = list(search.groups(frozenset(free)))
    search.is_alone = len(groups) == 1
    found = [search.best(group, frozenset()) for group in groups]
    children = [one.node for one in found if one is not None]
    if len(children) < len(found):
        return None
    first = children[0]
    is_root = first.connex and bool(first.comparisons) and not first.variables
    return first if is_root else Node((), tuple(children), connex=True)


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
    fresh = ((other, wanted & frozenset(other.variables) - bound) for other in others)
    return all(
        (_is_summed_range(node, lacking, definition) or _is_summed_box(node, other, lacking, definition))
        and _are_bounds(node.comparisons, lacking, bound)
        for other, lacking in fresh
    )


def sums_boxes(node: Node, definition: Definition) -> bool:
    """Whether a change that comes up from a child of a node looks up a sum over boxes of a sibling."""
    wanted = needed(node)
    pairs = [(one, other) for one in node.children for other in node.children if one is not other]
    fresh = [(other, wanted & frozenset(other.variables) - {*one.variables, *node.variables}) for one, other in pairs]
    return any(_is_summed_box(node, other, lacking, definition) for other, lacking in fresh)


def sums_boxes_of_each(root: Node, definition: Definition) -> bool:
    """Whether each of the rows that a change lists looks up a sum over boxes, at the same node or one above."""
    return any(_sums_box_of_each(node, child, definition) for node in root.walk() for child in node.children)


def _sums_box_of_each(node: Node, child: Node, definition: Definition) -> bool:
    return _looks_up_box(node, child, definition) and _comes_as_many(node, child, definition)


def _comes_as_many(node: Node, child: Node, definition: Definition) -> bool:
    """Whether a change that comes up from a child of a node, or from below it, has listed rows."""
    below = any(_comes_as_many(child, one, definition) for one in child.children)
    return below or not meets_one(node, child, definition)


def _looks_up_box(node: Node, child: Node, definition: Definition) -> bool:
    """Whether what comes up from a child looks up a sum over boxes of a sibling: one that alone has a variable of the
    node's label is listed."""
    label, wanted = frozenset(node.variables), needed(node)
    for other in node.children:
        known = frozenset[str]().union(*(one.variables for one in node.children if one is not other))
        fresh = wanted & frozenset(other.variables) - frozenset(child.variables) - label
        named = label & frozenset(other.variables)
        if other is not child and named <= known and _is_summed_box(node, other, fresh, definition):
            return True
    return False


def _is_summed_range(node: Node, fresh: frozenset[str], definition: Definition) -> bool:
    """Whether a child's sum is looked up by its key, or by variables that rows can be sorted by, with a bound below at
    most and one above."""
    tests = [test for test in node.comparisons if test.scheme & fresh]
    return not tests or (_is_one_order(fresh, definition) and is_range(tests, definition))


def _is_summed_box(node: Node, child: Node, fresh: frozenset[str], definition: Definition) -> bool:
    """Whether the sum of a child's rows is looked up by a box that its variables `fresh` are within: two orders of
    numbers or times, each with a bound below at most and one above. Of an enumerated child rows are needed, too."""
    tests = [test for test in node.comparisons if test.scheme & fresh]
    types = {column.name: column.type for atom in definition.atoms for column in atom.variables}
    if child.connex or any(family_of(types[variable]) not in ORDERED for variable in fresh):
        return False
    orders = {definition.order_of(variable) for variable in fresh}
    return len(orders) == 2 and all(
        is_range([t for t in tests if t.scheme & one & fresh], definition) for one in orders
    )


def _is_one_order(variables: frozenset[str], definition: Definition) -> bool:
    """Whether rows can be sorted by all of some variables."""
    return not variables or variables <= definition.order_of(next(iter(variables)))


def _are_bounds(tests: Iterable[Comparison], fresh: frozenset[str], bound: frozenset[str]) -> bool:
    """Whether a child that lacks `fresh` of what is bound is looked up as one: what they are compared with is bound."""
    return all(test.scheme - fresh <= bound for test in tests if test.scheme & fresh)


@dataclass(frozen=True)
class _Operand:
    """What a group falls apart into: parts, the variables of theirs that the node alone compares, and these tests."""

    group: Group
    compared: frozenset[str]
    tests: tuple[Comparison, ...]


class _RangeSearch(Search):
    """The search with comparisons. Of enumerated nodes too: their label has one side, or they are compared by one
    bound, so that each row that is walked has matches. A node's comparisons are such as `fits` lets pass: ranges, or
    (`boxes`) more. `is_alone`: the root has one component."""

    fits: Fits
    boxes = is_alone = False

    def groups(self, free: frozenset[str]) -> Iterator[Group]:
        """The operands of the connex top, by what connects them."""
        group = tuple(Part(self._scope(atoms) & free, atoms, connex=True) for atoms in self._frontier(free))
        return (piece.group for piece in self._pieces(group, frozenset(), self._tests(group), ()))

    def _frontier(self, free: frozenset[str]) -> list[tuple[str, ...]]:
        """The atoms that bound variables and their comparisons link. A free variable that is compared with a bound one
        must be at hand where that is summed out: a group that lacks it is joined with one that has it."""
        tests = {name: test for name, test in comparison_edges(self.definition).items() if not test.scheme <= free}
        linked = components(self.edges | {name: test.scheme for name, test in tests.items()}, free)
        groups = [tuple(name for name in names if name in self.atoms) for names in linked]
        for test in tests.values():
            own = next(atoms for atoms in groups if test.scheme - free <= self._scope(atoms))
            lacking, label = test.scheme - self._scope(own), self._scope(own) & free
            if lacking:
                having = [atoms for atoms in groups if lacking <= self._scope(atoms)]
                other = min(having, key=lambda atoms: (len(label - self._scope(atoms)), len(atoms)))
                merged = tuple(name for name in self.edges if name in own or name in other)
                groups = [atoms for atoms in groups if atoms not in (own, other)] + [merged]
        return groups

    def _scope(self, atoms: Iterable[str]) -> frozenset[str]:
        return vertices({name: self.edges[name] for name in atoms})

    def options(self, group: Group, above: frozenset[str]) -> Iterator[Found | None]:
        tests = self._tests(group)
        for label in _labels(group, above, tests):
            for cut in self._cuts(tests, label, above, enumerated=group[0].connex):
                yield self._compare(group, above, label, tests, cut)

    def _cuts(
        self, tests: Sequence[Comparison], label: frozenset[str], above: frozenset[str], *, enumerated: bool
    ) -> Iterator[tuple[Comparison, ...]]:
        """No comparison, or all of the variables in one order, among those that do not reach into `label`.

        An enumerated node is cut by one bound, at the top: nobody lists its rows from above but a walk.
        """
        outside = [test for test in tests if not test.scheme & label]
        if enumerated:
            yield from [(), *((test,) for test in outside if self.is_alone and not above)]
            return
        orders = dict.fromkeys(map(self.definition.order_of, sorted(_variables(outside))))
        cuts = [(), *(tuple(test for test in outside if test.scheme & one) for one in orders)]
        yield from dict.fromkeys([*cuts, tuple(outside)] if self.boxes else cuts)

    def _tests(self, group: Group) -> list[Comparison]:
        """The comparisons between the parts of a group."""
        shown = self.variables(group)
        tests = [test for test in self.definition.comparisons if test.scheme <= shown]
        return [test for test in tests if not any(test.scheme <= part.label for part in group)]

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
            if not (self.boxes or all(_is_one_order(piece.compared, self.definition) for piece in ranged)):
                return None
        if not all(self.fits(tests, self.definition) for tests in links):
            return None
        scopes = [label & self.variables(piece.group) for piece in pieces]
        used = _variables(test for link in links for test in link)
        if any(v not in used and sum(v in scope for scope in scopes) < 2 for v in label - above):
            return None
        below = {piece: self._below(piece, scope) for piece, scope in zip(pieces, scopes)}
        found = {piece: one for piece, one in below.items() if one is not None}
        if len(found) < len(pieces):
            return None
        if cut:
            return self._node(label, list(found.values()), tuple(cut), group[0].connex)
        plain = [found[piece] for piece in pieces if not piece.compared]
        if not ranged:
            return self._node(label, plain, (), group[0].connex)
        for piece in ranged:
            plain = [self._node(label, [*plain, found[piece]], piece.tests, group[0].connex)]
        return plain[0]

    def _pieces(
        self, group: Group, label: frozenset[str], tests: Sequence[Comparison], cut: Collection[Comparison]
    ) -> list[_Operand]:
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
            pieces.append(_Operand(parts, compared, own))
        return pieces

    def _below(self, piece: _Operand, scope: frozenset[str]) -> Found | None:
        """The subtree of a piece; what only the node above compares, and puts out, is new there."""
        alone = len(piece.group) == 1 and piece.group[0].connex
        return self.best(piece.group, scope if alone else scope | piece.compared)

    def _node(
        self, label: frozenset[str], below: Sequence[Found], tests: tuple[Comparison, ...], connex: bool
    ) -> Found:
        node = Node(self.in_order(label), tuple(found.node for found in below), connex=connex, comparisons=tests)
        price = (0.0, 0.0, 0)
        leaving = frozenset[str]()
        for found in below:
            fans_out = not meets_one(node, found.node, self.definition)
            price = add_prices(add_prices(price, found.price), self.climb(found.leaving, fans_out=fans_out))
            if _sums_box_of_each(node, found.node, self.definition):
                price = add_prices(price, self.climb(found.leaving, fans_out=True))
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


def _variables(tests: Iterable[Comparison]) -> frozenset[str]:
    return frozenset[str]().union(*(test.scheme for test in tests))


def is_range(tests: Sequence[Comparison], definition: Definition) -> bool:
    """Whether comparisons are of variables in one order, bounded once from below at most and once from above."""
    for variables in {definition.order_of(variable) for variable in _variables(tests)}:
        sides = [test.scheme & variables for test in tests]
        upwards = [(test.operator in ("<", "<=")) == (test.right in variables) for test in tests]
        if all(len(side) == 1 for side in sides) and len(set(upwards)) == len(upwards):
            return True
    return False


def is_box(tests: Sequence[Comparison], definition: Definition) -> bool:
    """Whether comparisons are a range, or a range and one comparison more."""
    return is_range(tests, definition) or any(
        is_range([test for test in tests if test is not one], definition) for one in tests
    )


def is_rectangle(tests: Sequence[Comparison], definition: Definition) -> bool:
    """Whether comparisons are a box, or two ranges of different variables."""
    orders = {definition.order_of(variable) for variable in _variables(tests)}
    inside = [[test for test in tests if test.scheme & one] for one in orders]
    return is_box(tests, definition) or any(
        is_range(own, definition) and is_range([test for test in tests if test not in own], definition)
        for own in inside
    )
