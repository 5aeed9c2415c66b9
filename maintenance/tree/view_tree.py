"""The view tree of one view: which of a plan's nodes are stored, in what form, and the paths that maintain them.

Storage follows demand. What enumeration reads, or a path looks up as a sibling, is stored; every
stored view is maintained by a path from each leaf below it; those paths look up siblings in turn. A
node that nobody reads is never stored: deltas pass through it.

A stored node is kept *full* (keyed by all its variables) when rows of it are listed, else as a
*message*: keyed by the variables it shares with its parent, everything else summed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from sqlfront.maintenance.program.shapes import Part, Shape, parts_of, shape_of
from sqlfront.maintenance.tree.arrange import Arrangement
from sqlfront.maintenance.tree.carrying import base_of, carries, carry_steps, supports
from sqlfront.maintenance.tree.steps import Step, is_lower, join_rank, ready_tests
from sqlfront.maintenance.tree.view_node import View as View
from sqlfront.planner.model.hypergraph import components
from sqlfront.planner.model.outer_groups import key_of
from sqlfront.planner.model.plan import Node, Plan, RowsIn, needed
from sqlfront.planner.model.query import Comparison, Definition
from sqlfront.storage.codecs.codec import Codec
from sqlfront.storage.codecs.order import Places, directed_places, order_places
from sqlfront.storage.kernels.layout import SUMMARY_EXTREME
from sqlfront.storage.stores.table import Table

Route = tuple[View, ...]
"""The optional and absent views at which a delta turns into that of their rows of NULLs, on its way up."""


class Tree:
    """All views of one plan, with demands settled. Leaves' tables are supplied by the relations that own them.

    Where only one atom's changes go through the tree, it is `changed`. A tree that `is_shared` is filled by part trees:
    it has the rows that several of them make.
    """

    def __init__(
        self,
        definition: Definition,
        plan: Plan,
        codecs: Mapping[str, Codec],
        *,
        counted: bool,
        changed: str | None = None,
    ) -> None:
        self.changed = changed
        self.definition, self.plan, self.codecs = definition, plan, codecs
        self.widths = {variable: codec.words for variable, codec in codecs.items()}
        self.root = _grow(plan.root, None)
        self.leaves = {view.node.atom: view for view in self.root.walk() if view.node.atom is not None}
        self.filters = [view for view in self.root.walk() if view.node.filters is not None]
        self.joins = {frozenset(leaf.atom or "" for leaf in node.leaves()): self._join(node) for node in plan.joins}
        self._schemes = {atom.name: atom.scheme for atom in definition.atoms}
        self.is_shared = plan.is_divided
        self.output = definition.free if plan.rows_in == RowsIn.PROJECTION else None
        self.supports = self.output is not None and supports(self)
        self.projection: Table | None = None
        self.arrangement = Arrangement()
        self._is_settled = False
        for leaf in (*self.leaves.values(), *self.filters):
            leaf.full = True
        for atom in definition.outer_atoms:
            self._demand_key(next(self.leaves[atom.name].borders()), key_of(definition, atom))
        if plan.rows_in == RowsIn.PROJECTION:
            self._demand_projection()
        elif plan.rows_in == RowsIn.TREE:
            self._demand_enumeration(counted)
        for order in plan.orders:
            for variables in order.bags:
                self.demand_full(self.bag(variables))
        self._settle()
        self._is_settled = True

    def bag(self, variables: tuple[str, ...]) -> View:
        """The inner node of these variables."""
        return next(view for view in self.root.walk() if view.children and view.node.variables == variables)

    def entries(self) -> list[View]:
        """The leaves at which changes enter the tree: those that count, then those that filter."""
        if self.changed is not None:
            return [self.leaves[self.changed]]
        return [*self.leaves.values(), *self.filters]

    @property
    def needs_orders(self) -> bool:
        """Whether sums over ranges of a view are looked up, or ranges are enumerated."""
        enumerated = (child for view in self.root.walk() if view.node.comparisons for child in view.children)
        return any(view.ranges for view in self.root.walk()) or any(child.node.connex for child in enumerated)

    def parts(self, view: View) -> tuple[Part, ...]:
        """The values of a view's rows: one per distinct part of the measures on its atoms."""
        return parts_of(self.definition.measures, view.atoms)

    def shape(self, view: View, limbs: int) -> Shape:
        """The layout of an inner stored view's table."""
        variables = view.node.variables if view.full else view.link
        return shape_of(variables, self.widths, self.parts(view), limbs)

    def stored_inner(self) -> list[View]:
        """Stored views that are not a relation's stores, children first."""
        return self.side_joins() + [view for view in self.root.walk() if view.stored and view.node.atom is None]

    def side_joins(self) -> list[View]:
        """The stored joins that changes of others are joined with: all but the result, smaller ones first."""
        return list(self.joins.values())[:-1]

    def summed(self, view: View, variables: tuple[str, ...]) -> int:
        """How many values a group of this index sums: all if it serves as the message or tells who is missing."""
        serves = (variables == view.link and view.message) or (view.presence != "required" and variables == view.key)
        return len(self.parts(view)) if serves else 0

    def order_of(self, view: View) -> tuple[int, Places] | None:
        """The ordered index of a view's table, and the places of its words to compare."""
        if view.order is None:
            return None
        assert view.shape is not None
        index, variable = view.order
        return view.index_number(index), order_places(self.codecs[variable], view.shape.places([variable])[0])

    def summaries_of(self, view: View) -> list[tuple[int, Places]]:
        """The subtree summaries of a view's table: of what its groups know extremes, and by which words these come
        last."""
        if view.extreme is None:
            return []
        assert view.shape is not None
        variable, greatest = view.extreme
        places = directed_places(self.codecs[variable], view.shape.places([variable])[0], (not greatest, True))
        return [(SUMMARY_EXTREME, places)]

    def boxes_of(self, view: View) -> tuple[Sequence[int], Places, Places] | None:
        """Of a view with sums over boxes: the places of a key in its table, and how words compare in both orders."""
        if view.boxes is None:
            return None
        assert view.shape is not None
        key, *orders = view.boxes
        first, second = (order_places(self.codecs[one], view.shape.places([one])[0]) for one in orders)
        return view.shape.places(key), first, second

    def top(self, leaf: View) -> View | None:
        """The highest stored ancestor of a leaf: where its path ends."""
        stored = [view for view in leaf.ancestors() if view.stored]
        return stored[-1] if stored else None

    def message(self, view: View) -> tuple[Table, Shape]:
        """What is looked up by the variables that `view` shares with its parent: a table and its layout."""
        return self._grouped(view, view.link) if view.full else self._stored(view)

    def by_key(self, view: View) -> tuple[Table, Shape]:
        """What tells whether an optional or absent view has rows of a key: a table and its layout."""
        return self._grouped(view, view.key)

    def _grouped(self, view: View, variables: tuple[str, ...]) -> tuple[Table, Shape]:
        """The rows of a full view added up by some of its variables."""
        table, shape = self._stored(view)
        if set(variables) == set(shape.variables):
            return table, shape
        group = table.groups[view.index_number(variables)]
        return group, shape_of(variables, self.widths, shape.parts, shape.limbs)

    def _stored(self, view: View) -> tuple[Table, Shape]:
        assert view.table is not None and view.shape is not None
        return view.table, view.shape

    def projection_shape(self) -> Shape:
        """The layout of the maintained projection."""
        assert self.output is not None and self.projection is not None
        return shape_of(self.output, self.widths, self.parts(self.root), self.projection.limbs)

    # Demands -------------------------------------------------------------------------------------

    def demand_message(self, view: View) -> None:
        """`view` will be looked up by the variables it shares with its parent."""
        view.message = True
        if view.full and view.link != view.node.variables and view.link not in view.indexes:
            view.indexes.append(view.link)

    def _demand_key(self, view: View, key: frozenset[str]) -> None:
        """An optional or absent view will be looked up by its key."""
        view.key = tuple(variable for variable in view.node.variables if variable in key)
        if view.node.atom is None:
            self.demand_message(view)
        if view.key != (view.node.variables if view.full else view.link):
            view.indexes.append(view.key)

    def demand_members(self, view: View, variables: tuple[str, ...]) -> None:
        """Rows of `view` that agree on `variables` will be listed: of its message if nobody needs more."""
        if view.node.connex or view.node.atom is not None or self.output is not None:
            self.demand_full(view)
        elif not view.full:
            view.message = True
        if variables not in view.indexes:
            view.indexes.append(variables)

    def demand_full(self, view: View) -> None:
        if not view.full:
            view.full = True
            if view.message:
                self.demand_message(view)

    def _demand_enumeration(self, counted: bool) -> None:
        if counted or not self.plan.free or self.root.node.comparisons:
            self.demand_full(self.root)
        # A walk scans the first component; the change of another one lists its rows.
        alone = len(self.root.children) == 1
        for view in self.root.walk():
            if not view.node.connex:
                continue
            if view is not self.root:
                self.demand_full(view)
            for child in view.children:
                if child.node.connex and not (alone and view is self.root):
                    self._demand(self.listing(child))
                elif not child.node.connex and not self.frontier(view):
                    self.demand_message(child)

    def frontier(self, view: View) -> bool:
        """True when enumeration goes no deeper: the view's own values stand for everything below it."""
        return not any(child.node.connex for child in view.children)

    def listing(self, view: View) -> Step:
        """The step from a row of an enumerated view's parent, and one of the sibling that it is compared with, to the
        view's rows."""
        assert view.parent is not None
        label = set(view.parent.node.variables)
        bound = label | (needed(view.parent.node) - set(view.link))
        found = self.look_up(view, bound)
        if found is not None and found.access == "range sum":
            return replace(found, access="range")
        if found is None:
            return self.within_bounds(Step(view, "members", self.ordered(view, bound), True), bound)
        return Step(view, "row" if view.link == view.node.variables else "members", view.link, True)

    def compared_sibling(self, view: View) -> View | None:
        """The sibling that the parent compares a view with, where it has neither side itself."""
        assert view.parent is not None
        node = view.parent.node
        own = [
            test for test in node.comparisons if test.scheme & set(view.link) and not test.scheme & {*node.variables}
        ]
        others = (one for one in view.parent.children if one is not view)
        return next((one for one in others for test in own if test.scheme & set(one.link)), None)

    def _demand_projection(self) -> None:
        for leaf in self.entries():
            if self.supports and not carries(self, base := base_of(self, leaf)):
                self.demand_message(base)
            for step in carry_steps(self, leaf):
                self._demand(step)

    def _demand(self, step: Step) -> None:
        if step.access == "message":
            self.demand_message(step.view)
        elif step.lists:
            for view, key in ((step.view, step.key), *step.partners):
                self.demand_members(view, key)
        elif step.access == "range sum":
            self.demand_members(step.view, step.key)
            step.view.ranges = True
        elif step.access == "box sum":
            step.view.message |= not step.view.full
            if step.key:
                self.demand_members(step.view, step.key)
            step.view.boxes = step.key, step.compared, step.compared_beside
        elif step.access == "row":
            self.demand_full(step.view)
        if step.access in ("range", "range sum") and step.view.order is None:
            step.view.order = step.key, step.compared
        if step.access == "range" and step.beside:
            step.view.extreme = _extreme(step.beside[0], step.fresh)

    # Paths ---------------------------------------------------------------------------------------

    def update_steps(self, parent: View, source: View) -> list[Step]:
        """How a delta over `source`'s link variables joins the other children of `parent`, one step a sibling.

        In a bag, which no child covers, siblings that would bind the same variables next are intersected. Where every
        join is stored, siblings that are connected without `source` are looked up as one. What `parent` compares is
        tested as soon as it is bound, unless a sorted list has just what passes; a sibling whose one variable that is
        not bound is only compared is summed up within the bounds.
        """
        if self.joins:
            joined = list(self._join_steps(parent, source))
            return joined + ready_tests(
                parent, set(source.node.variables).union(*(s.view.node.variables for s in joined))
            )
        bound = set(source.link)
        steps = ready_tests(parent, bound)
        order = self.join_order(parent, source)
        for place, sibling in enumerate(order):
            summed = self.look_up(sibling, bound)
            if summed is not None:
                steps.append(summed)
            else:
                partners = self._partners(sibling, order[place + 1 :], bound) if parent.node.is_bag else ()
                listing = Step(sibling, "members", self.ordered(sibling, bound), True, partners)
                steps.append(self.within_bounds(listing, bound))
            known = bound | set(sibling.link) if steps[-1].binds else bound
            steps += ready_tests(parent, known, bound, steps[-1].tests)
            bound = known
        return steps

    def look_up(self, view: View, bound: Set[str]) -> Step | None:
        """The look-up of the sum of a view's rows that join what is bound; None if they have to be listed."""
        fresh = set(view.link) - bound
        if not fresh:
            return Step(view, "message", view.link, True)
        assert view.parent is not None
        tests = [test for test in view.parent.node.comparisons if test.scheme & fresh]
        known = all(test.is_order and len(test.scheme & bound) == 1 for test in tests)
        order = self.definition.order_of(min(fresh))
        if fresh & set(view.parent.node.variables) or not known:
            return None
        if not fresh <= order:
            return self._box_sum(view, bound, tests)
        bounds = {is_lower(test, order): test for test in tests}
        key = self.ordered(view, bound)
        kept = view.is_sorted(key, order) and view.ranges
        free = (view.order is None or view.is_sorted(key, order)) and not self._is_settled
        if len(bounds) < len(tests) or not (kept or free):
            return None
        return Step(view, "range sum", key, True, comparisons=tuple(tests))

    def _box_sum(self, view: View, bound: Set[str], tests: Sequence[Comparison]) -> Step | None:
        """The look-up of the sum of a view's rows within bounds of two orders; None if these are others, or rows of the
        view are enumerated, or a removed row's strings would be compared."""
        fresh = set(view.link) - bound
        orders = list(dict.fromkeys(map(self.definition.order_of, sorted(fresh))))
        sides = [tuple(test for test in tests if test.scheme & fresh & order) for order in orders]
        named = any(self.codecs[variable].dictionary is not None for variable in fresh)
        if len(orders) != 2 or view.node.connex or named:
            return None
        if any(not side or len({is_lower(test, fresh) for test in side}) < len(side) for side in sides):
            return None
        step = Step(view, "box sum", self.ordered(view, bound), True, comparisons=sides[0], beside=sides[1])
        free = view.boxes is None and not self._is_settled
        return step if free or view.boxes == (step.key, step.compared, step.compared_beside) else None

    def within_bounds(self, listing: Step, bound: Set[str]) -> Step:
        """The listing of just what lies within the bounds that the parent's comparisons set to variables in one order,
        if the members can be sorted by it."""
        view, fresh = listing.view, listing.fresh
        assert view.parent is not None
        tests = [
            test
            for test in view.parent.node.comparisons
            if test.is_order and test.scheme & bound and len(test.scheme & fresh) == 1
        ]
        orders = [self.definition.order_of(*(test.scheme & fresh)) for test in tests]
        ranges = [(one, {is_lower(test, one): test for test in reversed(tests) if test.scheme & one}) for one in orders]
        # Extremes leave out rows by one bound alone, so the list is sorted by a variable with two bounds.
        for order, bounds in sorted(ranges, key=lambda one: -len(one[1])) if not listing.partners else ():
            if view.is_sorted(listing.key, order) or (view.order is None and not self._is_settled):
                others = (test for test in tests if not test.scheme & order)
                beside = [test for test in others if self._has_extremes(view, _extreme(test, fresh))][:1]
                return replace(listing, access="range", comparisons=tuple(bounds.values()), beside=tuple(beside))
        return listing

    def _has_extremes(self, view: View, extreme: tuple[str, bool]) -> bool:
        """Whether the groups of a view know these extremes, or still may. Those of strings they do not: a removed row's
        strings are gone."""
        free = view.extreme is None and not self._is_settled and self.codecs[extreme[0]].dictionary is None
        return free or view.extreme == extreme

    def _join_steps(self, parent: View, source: View) -> Iterator[Step]:
        others = {atom: self._schemes[atom] for atom in parent.atoms - source.atoms}
        for atoms in components(others, frozenset(source.node.variables)):
            view = self.joins.get(frozenset(atoms)) or self.leaves[atoms[0]]
            known = self.ordered(view, set(source.node.variables))
            yield Step(view, "row" if known == view.node.variables else "members", known, True)

    def _partners(self, view: View, others: list[View], bound: set[str]) -> tuple[tuple[View, tuple[str, ...]], ...]:
        """Those of `others` that share bound variables and lack the same ones as `view`, with their keys.

        Only views without variables of their own, which list each value once.
        """
        fresh = set(view.link) - bound
        if set(view.listed) - bound != fresh:
            return ()
        alike = [other for other in others if set(other.listed) - bound == fresh]
        keys = [(other, self.ordered(other, bound)) for other in alike]
        return tuple((other, key) for other, key in keys if key)

    def _join(self, node: Node) -> View:
        """A stored join; the result is part of the tree, the others share its leaves."""
        if node.connex:
            return self.root.children[0] if node is not self.plan.root else self.root
        children = [self.leaves[leaf.atom or ""] for leaf in node.children]
        return View(node, None, children, full=True)

    def _settle(self) -> None:
        """Demand what the paths of stored views look up, until nothing new is demanded."""
        while True:
            before = self._state()
            for join in self.side_joins():
                for leaf in join.children:
                    for step in self.update_steps(join, leaf):
                        self._demand(step)
            for leaf in self.entries():
                top = self.top(leaf)
                view: View = leaf
                while top is not None and view is not top:
                    parent = view.parent
                    assert parent is not None
                    for step in self.update_steps(parent, view):
                        self._demand(step)
                    view = parent
            if self._state() == before:
                return

    def _state(self) -> list[tuple[bool | int, ...]]:
        views = [*self.side_joins(), *self.root.walk()]
        demands = ((v.order is None, v.ranges, v.extreme is None, v.boxes is None) for v in views)
        return [(v.full, v.message, len(v.indexes), *own) for v, own in zip(views, demands, strict=True)]

    def ordered(self, view: View, bound: Set[str]) -> tuple[str, ...]:
        return tuple(v for v in view.node.variables if v in bound)

    def join_order(self, parent: View, source: View) -> list[View]:
        """The siblings of `source` in the order a delta joins them: each next one shares most with what is bound,
        in a bag the one that binds least."""
        bound = set(source.link)
        rest = [child for child in parent.children if child is not source]
        order = []
        while rest:
            known = frozenset(bound)
            best = max(rest, key=lambda sibling: join_rank(sibling, known, parent))
            rest.remove(best)
            order.append(best)
            bound |= set(best.link)
        return order


def _extreme(test: Comparison, fresh: Set[str]) -> tuple[str, bool]:
    """The variable of a comparison that is one of these, and whether the greatest of its values meets it first."""
    (variable,) = test.scheme & fresh
    return variable, is_lower(test, {variable})


def _grow(node: Node, parent: View | None) -> View:
    view = View(node, parent)
    view.children = [_grow(child, view) for child in node.children]
    return view
